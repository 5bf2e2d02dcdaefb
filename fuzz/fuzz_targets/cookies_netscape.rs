//! Cookie files: no text is too strange, and what was read is written and read back as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::cookies::CookieJar;

const NOW: i64 = 1_700_000_000;

fuzz_target!(|text: &str| {
    let jar = CookieJar::from_netscape(text, NOW).jar;
    let written = jar.to_netscape(NOW);
    let back = CookieJar::from_netscape(&written, NOW);
    assert!(back.skipped.is_empty());
    assert_eq!(back.jar.to_netscape(NOW), written);
});
