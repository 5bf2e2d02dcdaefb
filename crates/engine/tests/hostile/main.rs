//! A process of the engine that strangers have taken over, before the lock-down if they like: whatever it says, and
//! whatever it does with what it was handed, its parent stays up and small, the download fails or what is published
//! is right, and another engine in the same program never notices.
//!
//! This program is the tests, and it is also the process: see `child.rs`. That is not locked down unless it says so
//! here, so that it can do more than a real one.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says figures"
)]

#[path = "../common/alone.rs"]
mod alone;
mod child;
#[path = "../common/mod.rs"]
mod common;
mod lies;
#[path = "../child/processes.rs"]
mod processes;
mod says;
mod silences;

use common::{Bench, LONGEST, Outcome};
use processes::{Holds, holds, wait_until_back};
use std::fs;
use std::process::ExitCode;
use tidegate_core::Request;
use tidegate_core::message::EventKind;
use tidegate_engine::{Config, Engine, Mode};
use tidegate_testkit::{Body, Origin, Resource};

const MIB: u64 = 1 << 20;

/// What this process may have grown by at any time, in bytes: the longest message, and what reading it takes.
const GROWN: u64 = 96 * MIB;

const TESTS: &alone::Tests = &[
    ("whatever_no_process_says_ends_it_and_fails_its_download", says::violations),
    ("a_flood_of_notices_makes_nothing_grow", says::notices),
    ("a_flood_of_events_ends_it_when_nobody_takes_them", says::events),
    ("a_flood_of_answers_to_nothing_makes_nothing_grow", says::answers),
    ("a_flood_of_names_to_look_up_is_bounded_and_tells_nothing_of_hosts_that_nobody_asked_for", says::names),
    ("a_flood_of_hosts_that_it_met_tells_no_more_of_the_users_logins_than_a_few", says::hosts),
    ("descriptors_that_it_sends_are_not_taken", says::descriptors),
    ("a_spare_that_speaks_is_ended_and_nobody_notices", says::spare),
    ("a_name_that_leads_elsewhere_stays_in_the_folder", lies::dots),
    ("a_file_that_it_says_is_whole_is_not_published_if_it_is_not", lies::nothing),
    ("a_file_of_wrong_bytes_is_found_out_by_its_digest", lies::wrong),
    ("a_file_that_is_only_claimed_is_found_out_by_its_digest", lies::claims),
    ("one_that_keeps_a_file_open_is_ended_before_the_file_is_believed", lies::keeps),
    ("a_file_that_somebody_else_can_still_write_is_not_published", lies::passes_on),
    ("another_links_part_is_only_read_until_it_is_known_to_be_of_the_same_file", lies::spoils),
    ("one_that_is_never_ready_is_given_up_with_a_reason", silences::never_ready),
    ("one_that_speaks_another_version_is_given_up_with_a_reason", silences::other_version),
    ("one_that_does_not_listen_holds_up_nobody_and_is_ended", silences::deaf),
    ("one_that_says_that_it_is_alive_without_having_listened_is_ended", silences::parrot),
    ("one_that_gives_nothing_back_is_ended_when_its_download_is_to_go", silences::miser),
    ("one_that_listens_late_is_left_alone", silences::late),
    ("where_there_will_be_no_other_each_download_is_told", silences::no_other),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    match words.get(1).map(String::as_str) {
        Some("engine") if std::env::vars_os().next().is_none() => child::be(),
        Some("holds") => lies::hold(words[2].as_ref()),
        _ => alone::run(TESTS),
    }
}

/// An engine whose process is hostile in this way.
fn bench(how: &str) -> Bench {
    let mode = Mode::Child { program: None, whole: false };
    let user_agent = Some(how.to_owned());
    let engine = Engine::start(Config { mode, user_agent, ..Config::default() }).unwrap();
    Bench { engine, folder: tempfile::tempdir().unwrap() }
}

/// A download that no server is asked for: the process makes it up.
fn request(bench: &Bench) -> Request {
    bench.request(&["http://127.0.0.1:9/f"])
}

/// How a download ended, with the failure's message or an empty text.
fn told(outcome: &Outcome) -> (Option<tidegate_core::Code>, String) {
    match &outcome.last {
        EventKind::Failed { failure, .. } => (Some(failure.code), failure.message.clone()),
        _ => (None, String::new()),
    }
}

/// Does something with hostile processes, and holds after it what this process held before; and another engine works.
fn bounded(what: impl FnOnce()) {
    another_works();
    let (before, most_before) = (holds(), most_memory());
    assert_eq!(before.children, 0, "{before:?}");
    what();
    another_works();
    wait_until_back(&Holds { children: 0, ..before }, LONGEST);
    let grown = most_memory() - most_before;
    println!("grown by {} KiB at most", grown >> 10);
    assert!(grown <= GROWN, "{grown} bytes");
}

/// An engine whose process is an honest one.
fn another_works() {
    let body = Body::random(7, 2 * MIB);
    let origin = Origin::builder().resource("/f", Resource::new(body.clone())).start().unwrap();
    let mode = Mode::Child { program: Some(common::embed()), whole: false };
    let engine = Engine::start(Config { mode, ..Config::default() }).unwrap();
    let bench = Bench { engine, folder: tempfile::tempdir().unwrap() };
    let outcome = bench.get(bench.request(&[&origin.url("/f")]));
    assert_eq!(body.first_difference_in(outcome.path().unwrap()).unwrap(), None);
    bench.engine.shutdown(LONGEST).unwrap();
}

/// The most memory that this process ever had, in bytes.
fn most_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
