//! `kill -9` at random moments, and the same command again, until the file is there.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "it tells its figures")]

mod program;

use program::{command, names, sent};
use std::sync::Mutex;
use tidegate_core::dice::Dice;
use tidegate_testkit::{Body, Ending, Origin, Rate, Resource};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;
const CONNECTIONS: u64 = 8;

/// What a kill may cost for each connection: the bytes between two records of the map, and what was on
/// its way.
const PRICE: u64 = MIB + (64 << 10);

/// Kills in all, over as many downloads as that takes, unless `TIDEGATE_KILLS` says another number.
const KILLS: u64 = 40;

/// Kills of one download, at most.
const MOST_OF_ONE: u64 = 12;

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

/// One download, killed at most `kills` times: how often it was, and the bytes that the server sent.
fn download(seed: u64, kills: u64) -> (u64, u64) {
    let mut dice = Dice::new(seed);
    let body = Body::random(seed, SIZE);
    let origin = origin(&body, seed);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("disk.iso");
    let url = origin.url("/disk.iso");
    let words = ["-q", "-x", "8", "--min-split", "1M", &url];
    let mut killed = 0;
    loop {
        let before = origin.counters().body_bytes;
        let mut child = command(folder.path(), &words).spawn().unwrap();
        // Some when the new run has hardly begun, some when all connections are there.
        let most = [MIB / 4, 8 * MIB, 8 * MIB, 32 * MIB][dice.below(4) as usize];
        if killed < kills && sent(&origin, before + 1 + dice.below(most), &mut child) {
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            killed += u64::from(output.status.code().is_none());
            if file.exists() {
                assert_eq!(body.first_difference_in(&file).unwrap(), None, "after kill {killed} of {seed}");
            }
            continue;
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "seed {seed}, {killed} kills: {output:?}");
        break;
    }
    assert_eq!(body.first_difference_in(&file).unwrap(), None, "seed {seed}, {killed} kills");
    assert_eq!(names(folder.path()), ["disk.iso"], "seed {seed}");
    let sent = origin.counters().body_bytes;
    let bound = SIZE + SIZE / 10 + PRICE * CONNECTIONS * killed;
    assert!(sent <= bound, "seed {seed}: {sent} bytes were sent for {SIZE}, after {killed} kills");
    (killed, sent)
}

#[test]
fn however_often_it_is_killed_the_file_comes_right_and_little_is_fetched_again() {
    let wanted = std::env::var("TIDEGATE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(KILLS);
    let (mut kills, mut downloads, mut sent) = (0, 0, 0);
    while kills < wanted {
        downloads += 1;
        let (killed, bytes) = download(downloads, MOST_OF_ONE.min(wanted - kills));
        println!("download {downloads}: {killed} kills, {} KiB beyond its size", (bytes - SIZE) >> 10);
        kills += killed;
        sent += bytes;
    }
    let again = sent - SIZE * downloads;
    println!(
        "{downloads} downloads of {} MiB, {kills} kills: {} KiB fetched again, {} KiB for each kill",
        SIZE / MIB,
        again >> 10,
        (again / kills.max(1)) >> 10
    );
}
