//! How an engine ends: dropped, or asked to.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
mod threads;

use common::{Bench, LONGEST};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;
use tempfile::TempDir;
use tidegate_core::message::EventKind;
use tidegate_core::{Code, DownloadId};
use tidegate_engine::Config;
use tidegate_testkit::{Body, Origin, Rate, Resource};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 16 * MIB;

/// Threads are counted in these tests, so there is one engine at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A server of a file that takes a while, and a bench that has begun to fetch it.
fn begun(seed: u64) -> (Body, Origin, Bench, DownloadId) {
    let body = Body::random(seed, SIZE);
    let resource = Resource::new(body.clone()).rate(Rate::mib(4));
    let origin = Origin::builder().resource("/f", resource).start().unwrap();
    let bench = Bench::new();
    let id = bench.start(bench.request(&[&origin.url("/f")]));
    assert!(origin.wait_until(LONGEST, |c| c.body_bytes > 6 * MIB));
    (body, origin, bench, id)
}

/// Another engine goes on in the same folder, and fetches not much more than the rest.
fn goes_on(body: &Body, origin: &Origin, folder: TempDir) {
    let bench = Bench { engine: common::start(Config::default()), folder };
    assert_eq!(bench.names(), ["f.part", "f.part.tide"]);
    let outcome = bench.get(bench.request(&[&origin.url("/f")]));
    assert_eq!(body.first_difference_in(outcome.path().unwrap()).unwrap(), None, "{outcome:?}");
    assert_eq!(bench.names(), ["f"]);
    assert!(origin.counters().body_bytes < SIZE + 3 * MIB, "{:?}", origin.counters());
}

#[test]
fn an_engine_that_is_dropped_saves_what_it_has_and_ends_its_threads() {
    let _alone = alone();
    let (body, origin, bench, _) = begun(1);
    assert!(threads::of_engines().len() >= 3, "{:?}", threads::of_engines());
    let Bench { engine, folder } = bench;
    // Another handle keeps it alive; the last one ends it.
    let last = engine.clone();
    drop(engine);
    assert_eq!(last.snapshot().unwrap().downloads.len(), 1);
    drop(last);
    threads::wait_for_none(LONGEST);
    goes_on(&body, &origin, folder);
}

#[test]
fn an_engine_that_is_shut_down_tells_what_it_saved_and_takes_no_more_orders() {
    let _alone = alone();
    let (body, origin, bench, id) = begun(2);
    bench.engine.shutdown(LONGEST).unwrap();
    assert_eq!(threads::of_engines(), Vec::<String>::new());
    let mut last = None;
    let ended = loop {
        match bench.engine.next_event(LONGEST) {
            Ok(Some(event)) => last = Some(event),
            Ok(None) => panic!("it has ended, and nobody says so"),
            Err(failure) => break failure,
        }
    };
    assert_eq!(ended.code, Code::EngineUnavailable);
    let last = last.unwrap();
    let EventKind::Stopped { kept } = last.kind else { panic!("{last:?}") };
    assert!(last.id == id && kept > 4 * MIB, "{last:?}");
    let refused = |code: Code| assert_eq!(code, Code::EngineUnavailable);
    refused(bench.engine.start(bench.request(&[&origin.url("/f")])).unwrap_err().code);
    refused(bench.engine.pause(id).unwrap_err().code);
    refused(bench.engine.snapshot().unwrap_err().code);
    refused(bench.engine.shutdown(Duration::ZERO).unwrap_err().code);
    goes_on(&body, &origin, bench.folder);
}

#[test]
fn a_shutdown_does_not_wait_for_events_that_nobody_takes_and_none_is_lost() {
    let _alone = alone();
    let origin = Origin::builder().resource("/f", Resource::new(Body::random(3, 10))).start().unwrap();
    let bench = Bench::new();
    // More than are kept for whoever takes them.
    let started: BTreeSet<DownloadId> =
        (0..700).map(|_| bench.start(bench.request(&[&origin.url("/none")]))).collect();
    assert!(origin.wait_until(LONGEST, |c| c.status(404) >= 500));
    bench.engine.shutdown(Duration::from_millis(50)).unwrap();
    let mut ended = BTreeSet::new();
    while let Ok(event) = bench.engine.next_event(LONGEST) {
        let event = event.unwrap();
        if event.kind.is_final() {
            assert!(ended.insert(event.id), "{event:?} a second time");
        }
    }
    assert_eq!(ended, started);
    threads::wait_for_none(LONGEST);
}
