//! A disk that takes no bytes for a while, as one that spins up or a network's that is away.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says figures"
)]

mod common;
mod mounts;

use common::{Bench, LONGEST};
use mounts::Freezer;
use std::time::{Duration, Instant};
use tidegate_core::message::{EventKind, Phase};
use tidegate_core::request::Destination;
use tidegate_testkit::{Body, Origin, Rate, Resource};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 32 * MIB;

#[test]
fn a_frozen_disk_stops_only_what_is_on_it_and_is_not_taken_for_a_silent_server() {
    let name = "a_frozen_disk_stops_only_what_is_on_it_and_is_not_taken_for_a_silent_server";
    if !rustix::process::geteuid().is_root() {
        println!("{name}: left out, since only root can freeze a disk");
        return;
    }
    if !mounts::may_mount(name) {
        return;
    }
    let (frozen, other) = (Body::random(1, SIZE), Body::random(2, SIZE));
    let origin = Origin::builder()
        .resource("/frozen", Resource::new(frozen.clone()).rate(Rate::mib(2)))
        .resource("/other", Resource::new(other.clone()).rate(Rate::mib(4)))
        .start()
        .unwrap();
    let bench = Bench::new();
    let disk = bench.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let Some(freezer) = Freezer::mount(&bench.path("image"), &disk, 4 * SIZE) else {
        println!("{name}: left out, since there are no loop devices");
        return;
    };

    let mut request = bench.request(&[&origin.url("/frozen")]);
    request.destination = Destination::File { dir: disk.clone(), name: None, adopt: None };
    request.options.stall = Duration::from_secs(2);
    let id = bench.start(request);
    assert!(origin.wait_until(LONGEST, |c| c.path("/frozen") > 6 * MIB));
    if !freezer.freeze() {
        println!("{name}: left out, since this file system cannot be frozen");
        return;
    }
    let frozen_at = Instant::now();
    let phase = || bench.engine.progress(id).unwrap().unwrap().phase;
    while phase() != Phase::WaitingForDisk {
        assert!(frozen_at.elapsed() < LONGEST, "{:?}", phase());
        let _ = bench.engine.next_event(Duration::from_millis(10)).unwrap();
    }
    let asked = || origin.requests().iter().filter(|request| request.target == "/frozen").count();
    let before = asked();

    let process = bench.engine.process();

    // The other disk's download from its beginning to its end, and far beyond the patience with silence: that with a
    // server's, and that with a process of the engine.
    let mut request = bench.request(&[&origin.url("/other")]);
    request.destination = bench.destination();
    let second = bench.start(request);
    let (mut answered, mut slowest, mut completed) = (0u32, Duration::ZERO, None);
    while completed.is_none() || frozen_at.elapsed() < Duration::from_secs(8) {
        assert!(frozen_at.elapsed() < LONGEST, "{:?}", bench.engine.snapshot());
        let began = Instant::now();
        let snapshot = bench.engine.snapshot().unwrap();
        slowest = slowest.max(began.elapsed());
        answered += 1;
        let shown = snapshot.downloads.iter().find(|progress| progress.id == id).unwrap();
        assert_eq!(shown.phase, Phase::WaitingForDisk);
        match bench.engine.next_event(Duration::from_millis(5)).unwrap() {
            Some(event) if event.id == second => match event.kind {
                EventKind::Completed { path, .. } => completed = path,
                kind => assert!(!kind.is_final(), "{kind:?}"),
            },
            Some(event) => assert!(!event.kind.is_final(), "{event:?}"),
            None => {}
        }
    }
    println!("{answered} snapshots while the disk was frozen, the slowest in {slowest:?}");
    assert_eq!(other.first_difference_in(completed.unwrap()).unwrap(), None);
    assert_eq!(asked(), before, "it asked for more that it could not write");

    assert_eq!(bench.engine.process(), process, "it was not taken for one that hangs");

    freezer.thaw();
    let outcome = bench.follow(id);
    assert_eq!(frozen.first_difference_in(outcome.path().unwrap()).unwrap(), None, "{outcome:?}");
    let EventKind::Completed { received, .. } = outcome.last else { panic!("{outcome:?}") };
    // More was sent than is taken: what a server says beyond the end of a connection's share while nobody
    // listens stays in the kernel until that connection is closed.
    let sent = origin.counters().path("/frozen");
    println!(
        "beyond the size, {} KiB were sent and {} KiB taken",
        (sent - SIZE) >> 10,
        (received - SIZE) >> 10
    );
    // At most one read of each connection, beyond where it was to stop.
    assert!(received < SIZE + 4 * MIB, "{received}");
    // Let go of before the disk is.
    drop(bench.engine);
    drop(freezer);
}
