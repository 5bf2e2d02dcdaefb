//! Writing to a part file allocates nothing once it has got going.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

#[path = "write_allocations/sys.rs"]
mod sys;

use std::path::PathBuf;
use tidegate_core::Identity;
use tidegate_core::request::{Options, Resume};
use tidegate_engine::landing::{Begin, Landing, LandingRequest};
use tidegate_engine::part_file::Basis;

#[test]
fn writing_allocates_nothing_in_steady_state() {
    const STEP: u64 = 64 << 10;
    const CONNECTIONS: u64 = 16;
    const EACH: u64 = 4 << 20;
    let dir = tempfile::tempdir().unwrap();
    let request = LandingRequest {
        dir: dir.path().to_owned(),
        name: PathBuf::from("a"),
        explicit_name: false,
        url: "http://h/a".parse().unwrap(),
        resume: Resume::Auto,
        adopt: None,
    };
    let mut landing = Landing::open(request).unwrap();
    let identity = Identity { length: Some(CONNECTIONS * EACH), ..Identity::default() };
    let begun = landing.begin(&identity, "a".as_ref(), Basis::Nothing, &Options::default()).unwrap();
    let Begin::Fetch(version) = begun else { panic!("{begun:?}") };
    let part = landing.part();
    let bytes = vec![7; STEP as usize];
    let round = |at: u64| {
        for connection in 0..CONNECTIONS {
            part.write_at(version, connection * EACH + at, &bytes).unwrap();
        }
    };
    // Each connection has its span, and the map has been saved some times.
    (0..4).for_each(|step| round(step * STEP));
    let before = sys::allocations();
    (4..EACH / STEP).for_each(|step| round(step * STEP));
    assert_eq!(sys::allocations() - before, 0);
    assert_eq!(part.have_total(), CONNECTIONS * EACH);
    // And the probe does count.
    drop(vec![0_u8; 100]);
    assert!(sys::allocations() > before);
}
