//! Kills of the engine's process at random byte counts, by signals of every kind that a crash may have.

use super::processes::{children_of, end_by, holds, own_memory, wait_until_back};
use super::{MIB, PRICE, bench, goes_on, process};
use crate::common::{Bench, LONGEST};
use rustix::process::Signal;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tidegate_core::dice::Dice;
use tidegate_core::message::EventKind;
use tidegate_testkit::{Body, Ending, Origin, Rate, Resource};

const SIZE: u64 = 64 * MIB;
const CONNECTIONS: u64 = 8;

/// Kills in all, over as many downloads as that takes, unless `TIDEGATE_CHILD_KILLS` says another number.
const KILLS: u64 = 40;

/// Kills of one download, at most.
const MOST_OF_ONE: u64 = 12;

/// With so many bytes since the last kill some are on record, which is progress.
const PROGRESS: u64 = 10 * MIB;

/// What this process may have grown by, in bytes.
const GROWN: u64 = 8 * MIB;

/// The signals of a kill, of a wrong address, and of an abort.
const SIGNALS: [Signal; 3] = [Signal::KILL, Signal::SEGV, Signal::ABORT];

/// A server of one file, each connection at its own pace, that resets one in six answers somewhere.
fn origin(body: &Body, seed: u64) -> Origin {
    let dice = Mutex::new(Dice::new(seed));
    let resource = Resource::new(body.clone()).rate(Rate::mib(8)).hook_on(206, move |_, answer| {
        let mut dice = dice.lock().unwrap();
        if dice.below(6) == 0 {
            let after = dice.below(answer.body.len().max(1));
            answer.cut_after(after, Ending::Reset);
        }
    });
    Origin::builder().resource("/disk.iso", resource).start().unwrap()
}

/// How one download went.
struct Told {
    kills: u64,
    sent: u64,
}

/// One download, whose engine is killed at most `kills` times.
fn download(bench: &Bench, seed: u64, kills: u64) -> Told {
    let mut dice = Dice::new(seed);
    let body = Body::random(seed, SIZE);
    let origin = origin(&body, seed);
    let mut request = bench.request(&[&origin.url("/disk.iso")]);
    request.options.connections = CONNECTIONS as usize;
    request.options.min_split = MIB;
    let id = bench.start(request);
    let (mut killed, mut far) = (0, true);
    let last = loop {
        // Some when the process has hardly begun, some when all its connections are there. Only one in a row
        // without progress: three would be taken for the download's fault.
        let least = if far { 1 } else { PROGRESS };
        far = !far;
        let at = origin.counters().body_bytes + least + dice.below(if far { 24 * MIB } else { MIB });
        let until = Instant::now() + LONGEST;
        let mut ended = None;
        while ended.is_none() && !origin.wait_until(Duration::from_millis(10), |c| c.body_bytes >= at) {
            assert!(Instant::now() < until, "seed {seed}: {:?}", bench.engine.snapshot());
            while let Some(event) = bench.engine.next_event(Duration::ZERO).unwrap() {
                ended = ended.or(Some(event.kind).filter(|kind| event.id == id && kind.is_final()));
            }
        }
        if let Some(last) = ended {
            break last;
        }
        if killed == kills {
            break bench.follow(id).last;
        }
        let number = process(bench);
        let told = end_by(number, SIGNALS[(killed % 3) as usize]);
        match goes_on(bench, id) {
            Ok(_) => {
                killed += u64::from(told);
                assert_ne!(bench.engine.process(), Some(number), "another goes on");
            }
            // Everything was there already.
            Err(last) => break last,
        }
    };
    let EventKind::Completed { path: Some(path), .. } = last else {
        panic!("seed {seed}, {killed} kills: {last:?}");
    };
    assert_eq!(body.first_difference_in(&path).unwrap(), None, "seed {seed}, {killed} kills");
    std::fs::remove_file(path).unwrap();
    assert_eq!(bench.names(), Vec::<String>::new(), "seed {seed}: nothing else is left");
    let sent = origin.counters().body_bytes;
    let bound = SIZE + SIZE / 10 + PRICE * CONNECTIONS * killed;
    assert!(sent <= bound, "seed {seed}: {sent} bytes were sent for {SIZE}, after {killed} kills");
    Told { kills: killed, sent }
}

#[test]
fn however_often_the_process_is_killed_files_come_right_and_nothing_is_left_behind() {
    let wanted = std::env::var("TIDEGATE_CHILD_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(KILLS);
    // What is made once, is made.
    let warm = bench();
    download(&warm, 1000, 2);
    warm.engine.shutdown(LONGEST).unwrap();
    drop(warm);
    let before = holds();
    assert_eq!(before.children, 0, "a shutdown leaves none");

    let bench = bench();
    download(&bench, 1001, 2);
    let memory = own_memory();
    let (mut kills, mut downloads, mut sent) = (0, 0, 0);
    while kills < wanted {
        downloads += 1;
        let told = download(&bench, downloads, MOST_OF_ONE.min(wanted - kills));
        kills += told.kills;
        sent += told.sent;
        let again = told.sent - SIZE;
        println!("download {downloads}: {} kills, {} KiB beyond its size", told.kills, again >> 10);
        // The one that works and the one that waits.
        let children = children_of(std::process::id());
        assert!(children.len() <= 2 && children.contains(&process(&bench)), "{children:?}");
    }
    let grown = own_memory().saturating_sub(memory);
    let again = sent - SIZE * downloads;
    println!(
        "{downloads} downloads of {} MiB, {kills} kills: {} KiB fetched again, {} KiB for each kill; {} KiB grown",
        SIZE / MIB,
        again >> 10,
        (again / kills.max(1)) >> 10,
        grown >> 10
    );
    assert!(grown <= GROWN, "{grown} bytes of memory more than before {kills} kills");
    bench.engine.shutdown(LONGEST).unwrap();
    assert_eq!(children_of(std::process::id()), Vec::<u32>::new());
    drop(bench);
    wait_until_back(&before, LONGEST);
}
