//! Challenges, and the answers to them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::auth::{self, Challenge, DigestUse, MAX_CHALLENGES};

fuzz_target!(|data: &[u8]| {
    let challenges = Challenge::parse_all(data.split(|&b| b == b'\n'));
    assert!(challenges.len() <= MAX_CHALLENGES);
    let request = DigestUse { method: "GET", uri: "/a?b", cnonce: "c0ffee", count: 7 };
    for challenge in &challenges {
        if let Ok(value) = auth::digest(challenge, "user", "password", request) {
            assert!(!value.contains(char::is_control));
        }
    }
    assert_eq!(
        auth::strongest(&challenges).and_then(Challenge::strength),
        challenges.iter().filter_map(Challenge::strength).max()
    );
});
