//! Ctrl-C and its relatives, sent to the program while it fetches.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod program;

use program::{command, names, run, said, sent, signal};
use rustix::process::Signal;
use std::path::Path;
use std::process::Child;
use tempfile::TempDir;
use tidegate_testkit::{Body, Origin, Rate, Resource};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 16 * MIB;

struct Bench {
    body: Body,
    origin: Origin,
    folder: TempDir,
    url: String,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let body = Body::random(seed, SIZE);
        // Eight connections at most: more than a second lies between what is waited for and the end.
        let resource = Resource::new(body.clone()).rate(Rate::mib(1));
        let origin = Origin::builder().resource("/a.bin", resource).start().unwrap();
        let url = origin.url("/a.bin");
        Self { body, origin, folder: tempfile::tempdir().unwrap(), url }
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn words(&self) -> [&str; 1] {
        [&self.url]
    }

    /// A run that has fetched some of the file and is far from its end.
    fn begun(&self) -> Child {
        let mut child = command(self.folder(), &self.words()).spawn().unwrap();
        assert!(sent(&self.origin, 6 * MIB, &mut child), "{:?}", child.wait_with_output());
        child
    }

    /// The same command goes on from what is here, and fetches not much more than the rest.
    fn goes_on(&self) {
        assert_eq!(names(self.folder()), ["a.bin.part", "a.bin.part.tide"]);
        let output = run(self.folder(), &self.words());
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert_eq!(self.body.first_difference_in(self.folder().join("a.bin")).unwrap(), None);
        assert_eq!(names(self.folder()), ["a.bin"]);
        // Up to eight connections were cut in the middle, each with no more than a moment on its way.
        let sent = self.origin.counters().body_bytes;
        assert!(sent <= SIZE + 4 * MIB, "{sent}");
    }
}

#[test]
fn a_signal_to_stop_saves_and_ends_with_its_own_code() {
    for (seed, (by, code)) in (1..).zip([(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)]) {
        let bench = Bench::new(seed);
        let child = bench.begun();
        signal(&child, by);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{by:?}: {}", said(&output));
        let asked = bench.origin.counters().requests;
        assert!(said(&output).contains("the same command goes on"), "{}", said(&output));
        assert_eq!(bench.origin.counters().requests, asked, "nothing is asked for after the end");
        bench.goes_on();
    }
}

#[test]
fn signals_that_come_together_end_it_and_cost_no_more() {
    // The second ends the program wherever it is with its saving; what was written is kept all the same.
    for (seed, second) in (10..).zip([Signal::INT, Signal::TERM, Signal::HUP]) {
        let bench = Bench::new(seed);
        let child = bench.begun();
        signal(&child, Signal::INT);
        signal(&child, second);
        let output = child.wait_with_output().unwrap();
        let code = output.status.code();
        assert!(matches!(code, Some(130 | 143 | 129)), "{second:?}: {code:?} {}", said(&output));
        bench.goes_on();
    }
}

#[test]
fn a_signal_before_anything_has_come_leaves_nothing_that_is_in_the_way() {
    let body = Body::random(20, SIZE);
    let resource = Resource::new(body.clone()).hook(|request, answer| {
        if request.hit == 1 {
            answer.delay = program::LONGEST;
        }
    });
    let origin = Origin::builder().resource("/a.bin", resource).start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = origin.url("/a.bin");
    let child = command(folder.path(), &[&url]).spawn().unwrap();
    assert!(origin.wait_until(program::LONGEST, |c| c.requests == 1));
    signal(&child, Signal::TERM);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{}", said(&output));
    let output = run(folder.path(), &[&url]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(names(folder.path()), ["a.bin"]);
    assert_eq!(body.first_difference_in(folder.path().join("a.bin")).unwrap(), None);
}
