//! What it does with the part that it was handed, and what it says of it.

use super::child::{Lent, Line, identity, preparation};
use super::{LONGEST, MIB, alone, bench, bounded, request, told};
use crate::common::{Bench, Outcome};
use crate::processes::end_by;
use rustix::fs::{CWD, FileType, Mode};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;
use tidegate_core::message::{EventKind, Proof};
use tidegate_core::request::Destination;
use tidegate_core::transfer::Preparation;
use tidegate_core::{Algorithm, Code, Digest, DownloadId, Span, SpanSet};
use tidegate_engine::protocol::{Cold, Setup};
use tidegate_engine::{Config, Engine, Mode as EngineMode};
use tidegate_testkit::{Body, Origin, Rate, Resource};

/// Of a size with a record, and of one without.
const SIZES: [u64; 2] = [2 * MIB, 100_000];

fn body(length: u64) -> Body {
    Body::random(5, length)
}

fn all(length: u64) -> SpanSet {
    Span::new(0, length).into_iter().collect()
}

pub(crate) fn be(mut line: Line, setup: &Setup) {
    let (how, length) = setup.user_agent.as_deref().unwrap().split_once(' ').unwrap();
    let length: u64 = length.parse().unwrap();
    let id = line.start();
    let right = body(length).to_vec();
    match how {
        "dots" => {
            let mut preparation = preparation(length);
            preparation.disposition = Some("attachment; filename=\"../../evil\"".to_owned());
            let lent = line.prepare(id, preparation);
            write(lent, &right);
            line.verify(id, identity(length), all(length));
        }
        "nothing" => {
            drop(line.prepare(id, preparation(length)));
            line.verify(id, identity(length), all(length));
        }
        "wrong" => {
            let lent = line.prepare(id, preparation(length));
            write(lent, &vec![7; right.len()]);
            line.verify(id, identity(length), all(length));
        }
        "claims" => {
            let mut lent = line.prepare(id, preparation(length));
            lent.state.have = all(length - 1);
            let part = lent.open();
            part.write_at(part.version(), length - 1, &right[right.len() - 1..]).unwrap();
            part.save().unwrap();
            drop(part);
            line.verify(id, identity(length), all(length));
        }
        "keeps" => {
            let lent = line.prepare(id, preparation(length));
            let kept = lent.file.try_clone().unwrap();
            write(lent, &right);
            line.verify(id, identity(length), all(length));
            // As long as it lives.
            while kept.write_all_at(b"evil", 0).is_ok() {}
        }
        "spoils" => {
            let preparation = Preparation { unproved: true, ..preparation(length) };
            let lent = line.prepare(id, preparation);
            let files = [Some(&lent.file), lent.checkpoint.as_ref()];
            let spoilt = files.into_iter().flatten().any(|file| file.write_all_at(b"evil", 0).is_ok());
            drop(lent);
            line.tell(id, Cold::Returned { doubts: 0, have: SpanSet::new() });
            line.give_up(id, if spoilt { "spoilt" } else { "refused" });
        }
        "passes-on" => {
            let lent = line.prepare(id, preparation(length));
            pass_on(&lent);
            write(lent, &right);
            line.verify(id, identity(length), all(length));
        }
        how => panic!("{how}"),
    }
    line.wind_up();
}

fn write(lent: Lent, bytes: &[u8]) {
    let part = lent.open();
    part.write_at(part.version(), 0, bytes).unwrap();
    part.save().unwrap();
}

/// Follows a download of which the process lies.
fn lied_to(how: &str, length: u64, with_digest: bool) -> (Bench, DownloadId) {
    let bench = bench(&format!("{how} {length}"));
    let mut request = request(&bench);
    if with_digest {
        request.digests = vec![Digest::from_hex(Algorithm::Sha256, &body(length).sha256_hex()).unwrap()];
    }
    let id = bench.start(request);
    (bench, id)
}

/// Nothing has a name that claims to be whole.
fn nothing_is_published(bench: &Bench, outcome: &Outcome) {
    assert!(told(outcome).0.is_some(), "{outcome:?}");
    let names = bench.names();
    assert!(names.iter().all(|name| name.ends_with(".part") || name.ends_with(".part.tide")), "{names:?}");
    bench.engine.shutdown(LONGEST).unwrap();
}

pub(crate) fn dots() {
    bounded(|| {
        for length in SIZES {
            let (bench, id) = lied_to("dots", length, false);
            let outcome = bench.follow(id);
            let path = outcome.path().unwrap();
            assert_eq!(path.parent(), Some(bench.folder.path()), "{path:?}");
            assert_eq!(bench.names(), [path.file_name().unwrap().to_str().unwrap()]);
            assert_eq!(body(length).first_difference_in(path).unwrap(), None);
            bench.engine.shutdown(LONGEST).unwrap();
        }
    });
}

pub(crate) fn nothing() {
    bounded(|| {
        for length in SIZES {
            let (bench, id) = lied_to("nothing", length, false);
            let outcome = bench.follow(id);
            assert_eq!(told(&outcome).0, Some(Code::LengthMismatch), "{outcome:?}");
            nothing_is_published(&bench, &outcome);
        }
    });
}

pub(crate) fn wrong() {
    found_out_by_digest("wrong");
}

pub(crate) fn claims() {
    found_out_by_digest("claims");
}

fn found_out_by_digest(how: &str) {
    bounded(|| {
        for length in SIZES {
            let (bench, id) = lied_to(how, length, true);
            let outcome = bench.follow(id);
            assert_eq!(told(&outcome), (Some(Code::Internal), "found out".to_owned()), "{outcome:?}");
            nothing_is_published(&bench, &outcome);
        }
    });
}

pub(crate) fn keeps() {
    bounded(|| {
        for length in SIZES {
            let (bench, id) = lied_to("keeps", length, true);
            let first = bench.engine.process().unwrap();
            let outcome = bench.follow(id);
            // What it wrote until it was ended is there, or not: if it is, the file is not right and not published. Each
            // that follows does the same, until the download is taken for the cause.
            match &outcome.last {
                EventKind::Completed { path: Some(path), proof, .. } => {
                    assert_eq!(*proof, Proof::Digest);
                    assert_eq!(body(length).first_difference_in(path).unwrap(), None);
                }
                _ => nothing_is_published(&bench, &outcome),
            }
            println!("{length} bytes: {:?}", outcome.last);
            assert!(!end_by(first, Signal::KILL), "it is gone");
            let _ = bench.engine.shutdown(LONGEST);
        }
    });
}

/// Of another link there is a part of that name, and whether it is of the same file is not known yet.
pub(crate) fn spoils() {
    bounded(|| {
        let length = 4 * MIB;
        let origin = Origin::builder()
            .resource("/other", Resource::new(body(length)).rate(Rate::mib(1)))
            .start()
            .unwrap();
        let bench = bench(&format!("spoils {length}"));
        let named = |url: &str| {
            let mut request = bench.request(&[url]);
            let dir = bench.folder.path().to_owned();
            request.destination = Destination::File { dir, name: Some("f".into()), adopt: None };
            request
        };
        let mode = EngineMode::Child { program: Some(crate::common::embed()), whole: false };
        let honest = Engine::start(Config { mode, ..Config::default() }).unwrap();
        let other = honest.start(named(&origin.url("/other"))).unwrap();
        assert!(origin.wait_until(LONGEST, |c| c.body_bytes > 2 * MIB));
        honest.stop(other).unwrap();
        while honest.next_event(LONGEST).unwrap().is_some_and(|event| !event.kind.is_final()) {}
        honest.shutdown(LONGEST).unwrap();
        let all = || ["f.part", "f.part.tide"].map(|name| fs::read(bench.path(name)).unwrap());
        let before = all();
        let outcome = bench.follow(bench.start(named("http://127.0.0.1:9/f")));
        assert_eq!(told(&outcome), (Some(Code::Internal), "refused".to_owned()), "{outcome:?}");
        assert!(before == all(), "it is as it was");
        bench.engine.shutdown(LONGEST).unwrap();
    });
}

// ---- a writer that is not the process ----------------------------------------------------------------

/// Starts another process that has the file.
#[allow(clippy::zombie_processes, reason = "it is to be there after this one, and ends by itself")]
fn pass_on(lent: &Lent) {
    Command::new("/proc/self/exe")
        .arg("holds")
        .arg(alone::folder())
        .stdin(Stdio::from(lent.file.try_clone().unwrap()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
}

/// Is that process: writes into its standard input when it is told to.
pub(crate) fn hold(folder: &OsStr) -> ExitCode {
    let folder = Path::new(folder);
    let mut told = File::open(folder.join("go")).unwrap();
    let _ = told.read(&mut [0]);
    let file = std::io::stdin().as_fd().try_clone_to_owned().map(File::from).unwrap();
    let _ = file.write_all_at(b"evil", 0);
    fs::write(folder.join("done"), "").unwrap();
    ExitCode::SUCCESS
}

pub(crate) fn passes_on() {
    let folder = alone::folder();
    rustix::fs::mknodat(CWD, folder.join("go"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // Both ways, so that nobody waits for the other to open it.
    let mut go = File::options().read(true).write(true).open(folder.join("go")).unwrap();
    let length = SIZES[0];
    let (bench, id) = lied_to("passes-on", length, true);
    let outcome = bench.follow(id);
    go.write_all(b"+").unwrap();
    let until = Instant::now() + LONGEST;
    while !folder.join("done").exists() {
        assert!(Instant::now() < until, "nobody holds it");
        std::thread::yield_now();
    }
    if let Some(path) = outcome.path() {
        assert_eq!(body(length).first_difference_in(path).unwrap(), None, "written to when it was published");
    }
    nothing_is_published(&bench, &outcome);
}
