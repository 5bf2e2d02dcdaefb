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
    let many = 700;
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
        // The pauses are told too; the outcome is the last.
        let outcome = loop {
            let outcome = bench.follow(id);
            if !matches!(outcome.last, EventKind::Paused { .. }) {
                break outcome;
            }
        };
        assert_eq!(body.first_difference_in(outcome.path().unwrap()).unwrap(), None, "{outcome:?}");
        let again =
            |kind: &EventKind| matches!(kind, EventKind::Restarted { .. } | EventKind::Waiting { .. });
        assert!(!outcome.events.iter().any(again), "{outcome:?}");
        assert_eq!(bench.names(), ["f"]);
    }
}
