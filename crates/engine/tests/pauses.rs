//! Pauses that come while something is under way on the cold side.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{Bench, LONGEST};
use std::time::{Duration, Instant};
use tidegate_core::message::EventKind;
use tidegate_testkit::{Body, Origin, Resource};

const MIB: u64 = 1 << 20;

/// Until the cold sides wait for somebody to take events: nobody does, and more are told than are kept.
fn stop_the_cold_sides(bench: &Bench, origin: &Origin) {
    let many = 560;
    for _ in 0..many {
        bench.start(bench.request(&[&origin.url("/none")]));
    }
    assert!(origin.wait_until(LONGEST, |c| c.status(404) >= many));
}

#[test]
fn a_pause_before_the_part_is_ready_does_not_let_it_be_made_ready_twice_under_its_bytes() {
    for length in [5_000, 3 * MIB] {
        let body = Body::random(length, length);
        let origin = Origin::builder().resource("/f", Resource::new(body.clone())).start().unwrap();
        let bench = Bench::new();
        stop_the_cold_sides(&bench, &origin);
        let id = bench.start(bench.request(&[&origin.url("/f")]));
        let began = Instant::now();
        let told = |length| bench.engine.progress(id).unwrap().is_some_and(|p| p.length == length);
        for _ in 0..3 {
            while !told(Some(length)) {
                assert!(began.elapsed() < LONGEST, "{:?}", bench.engine.progress(id));
                std::thread::park_timeout(Duration::from_millis(1));
            }
            bench.engine.pause(id).unwrap();
            assert!(told(None), "what was not made ready is asked for again");
            bench.engine.resume(id).unwrap();
        }
        // One event at a time, and the control thread has its turn after each: so the cold side is slow.
        let mut outcome = None;
        while outcome.is_none() {
            assert!(began.elapsed() < LONGEST, "{:?}", bench.engine.progress(id));
            let event = bench.engine.next_event(Duration::from_secs(1)).unwrap();
            bench.engine.snapshot().unwrap();
            match event.filter(|event| event.id == id).map(|event| event.kind) {
                Some(EventKind::Completed { path, .. }) => outcome = path,
                Some(kind @ (EventKind::Failed { .. } | EventKind::Restarted { .. })) => panic!("{kind:?}"),
                _ => {}
            }
        }
        assert_eq!(body.first_difference_in(outcome.unwrap()).unwrap(), None);
        assert_eq!(bench.names(), ["f"]);
    }
}
