//! A disk that becomes full while a download writes to it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says figures"
)]

mod common;
mod mounts;

use common::{Bench, LONGEST};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use tidegate_core::message::{EventKind, Phase};
use tidegate_core::request::Destination;
use tidegate_core::{Code, DownloadId};
use tidegate_testkit::{Body, Framing, Origin, Rate, Resource};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 16 * MIB;

/// Writes until there is no room left.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    let block = vec![7; 64 << 10];
    while file.write_all(&block).is_ok() {}
}

/// Takes events until this download waits for room.
fn wait_for_full(bench: &Bench, id: DownloadId) {
    let until = Instant::now() + LONGEST;
    while Instant::now() < until {
        match bench.engine.next_event(Duration::from_secs(1)).unwrap() {
            Some(event) if event.id == id => match event.kind {
                EventKind::Waiting { failure, .. } if failure.code == Code::DiskFull => return,
                kind => assert!(!kind.is_final(), "{kind:?}"),
            },
            _ => {}
        }
    }
    panic!("the disk is never seen to be full: {:?}", bench.engine.snapshot());
}

#[test]
fn a_full_disk_stops_only_what_is_on_it_and_costs_nothing_that_was_there() {
    let name = "a_full_disk_stops_only_what_is_on_it_and_costs_nothing_that_was_there";
    if !mounts::may_mount(name) {
        return;
    }
    let (full, other) = (Body::random(1, SIZE), Body::random(2, SIZE));
    let origin = Origin::builder()
        .resource("/full", Resource::new(full.clone()).rate(Rate::mib(2)))
        .resource("/other", Resource::new(other.clone()).rate(Rate::mib(8)))
        .start()
        .unwrap();
    let bench = Bench::new();
    let disk = bench.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let _memory = mounts::Memory::mount(&disk, SIZE + 4 * MIB);

    let mut request = bench.request(&[&origin.url("/full")]);
    request.destination = Destination::File { dir: disk.clone(), name: None, adopt: None };
    let id = bench.start(request);
    assert!(origin.wait_until(LONGEST, |c| c.path("/full") > 4 * MIB));
    fill(&disk.join("filler"));
    wait_for_full(&bench, id);
    let had = bench.engine.progress(id).unwrap().unwrap().have;
    assert!(had > 2 * MIB && had < SIZE, "{had}");

    // The other disk's download runs from its beginning to its end meanwhile.
    let outcome = bench.get(bench.request(&[&origin.url("/other")]));
    assert_eq!(other.first_difference_in(outcome.path().unwrap()).unwrap(), None, "{outcome:?}");
    let told = |kind: &EventKind| matches!(kind, EventKind::Waiting { .. } | EventKind::Restarted { .. });
    assert!(!outcome.events.iter().any(told), "{outcome:?}");
    assert!(origin.counters().path("/other") < SIZE + MIB, "{:?}", origin.counters());

    // Commands are answered while it waits, and a pause is a pause.
    let phase = || bench.engine.progress(id).unwrap().unwrap().phase;
    assert!(matches!(phase(), Phase::Waiting { failure, .. } if failure.code == Code::DiskFull));
    bench.engine.pause(id).unwrap();
    let EventKind::Paused { have } = bench.follow(id).last else { panic!("{:?}", phase()) };
    assert!(have >= had, "{have} of {had}");
    assert_eq!(phase(), Phase::Paused);
    bench.engine.resume(id).unwrap();
    wait_for_full(&bench, id);

    std::fs::remove_file(disk.join("filler")).unwrap();
    let outcome = bench.follow(id);
    assert_eq!(full.first_difference_in(outcome.path().unwrap()).unwrap(), None, "{outcome:?}");
    let sent = origin.counters().path("/full");
    println!("{} KiB were sent beyond the size", (sent - SIZE) >> 10);
    assert!(sent < SIZE + 4 * MIB, "{sent}");
}

#[test]
fn a_disk_that_has_not_room_enough_is_known_before_anything_is_fetched() {
    let name = "a_disk_that_has_not_room_enough_is_known_before_anything_is_fetched";
    if !mounts::may_mount(name) {
        return;
    }
    let body = Body::random(3, SIZE);
    let origin =
        Origin::builder().resource("/f", Resource::new(body.clone()).rate(Rate::mib(8))).start().unwrap();
    let bench = Bench::new();
    let disk = bench.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let _memory = mounts::Memory::mount(&disk, SIZE + 4 * MIB);
    File::create(disk.join("filler")).unwrap().write_all(&vec![7; 8 << 20]).unwrap();
    let mut request = bench.request(&[&origin.url("/f")]);
    request.destination = Destination::File { dir: disk.clone(), name: None, adopt: None };
    let id = bench.start(request);
    wait_for_full(&bench, id);
    assert_eq!(bench.engine.progress(id).unwrap().unwrap().have, 0);
    std::fs::remove_file(disk.join("filler")).unwrap();
    let outcome = bench.follow(id);
    assert_eq!(body.first_difference_in(outcome.path().unwrap()).unwrap(), None, "{outcome:?}");
}

#[test]
fn a_body_that_never_ends_leaves_a_reserve_on_the_disk() {
    let name = "a_body_that_never_ends_leaves_a_reserve_on_the_disk";
    if !mounts::may_mount(name) {
        return;
    }
    // Small chunks go through a buffer, and a body that ends with its connection does not.
    never_ends(Framing::Chunked(16 << 10));
    never_ends(Framing::UntilClose);
}

fn never_ends(framing: Framing) {
    const DISK: u64 = 60 * MIB;
    let endless = Resource::new(Body::random(4, 1 << 40)).framing(framing);
    let origin = Origin::builder().resource("/f", endless).start().unwrap();
    let bench = Bench::new();
    let disk = bench.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let _memory = mounts::Memory::mount(&disk, DISK);
    let free = || rustix::fs::statvfs(&disk).map(|space| space.f_bavail * space.f_frsize).unwrap();
    let mut request = bench.request(&[&origin.url("/f")]);
    request.destination = Destination::File { dir: disk.clone(), name: None, adopt: None };
    let id = bench.start(request);
    wait_for_full(&bench, id);
    let have = bench.engine.progress(id).unwrap().unwrap().have;
    println!("{} KiB are here, {} KiB free", have >> 10, free() >> 10);
    // A tenth of a disk that is so small.
    assert!(free() >= DISK / 10, "{}", free());
    assert!(free() <= DISK / 10 + 8 * MIB, "{}", free());
    assert!(have >= DISK - DISK / 10 - 8 * MIB, "{have}");

    // Told to go on, it does not touch the reserve either.
    let requests = origin.counters().requests;
    bench.engine.pause(id).unwrap();
    bench.follow(id);
    bench.engine.resume(id).unwrap();
    wait_for_full(&bench, id);
    // One connection is told so, and those that were asked for with its answer.
    assert!(origin.counters().requests <= requests + 3, "{:?}", origin.counters());
    assert!(free() >= DISK / 10, "{}", free());
}
