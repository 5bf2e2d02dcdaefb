//! What it says.

use super::child::{Line, be_honest, preparation};
use super::processes::{children_of, end_by, holds};
use super::{LONGEST, MIB, alone, bench, bounded, request, told};
use crate::common::Bench;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidegate_core::frame::{MAX_FRAME, MORE, encode};
use tidegate_core::message::{EventKind, Proof};
use tidegate_core::netrc::Netrc;
use tidegate_core::{Code, DownloadId, SpanSet};
use tidegate_engine::protocol::{Cold, FromChild, Resolution, Setup, ToChild, VERSION};
use tidegate_engine::{Config, Engine, Mode};
use tidegate_testkit::{Body, Origin, Rate, Resource};

/// What no process says.
type Violation = (&'static str, fn(&mut Line, DownloadId));

/// The one that needs a question.
const ANOTHER: &str = "an answer to another question";

const VIOLATIONS: &[Violation] = &[
    ("a frame of 2 GiB", |line, _| line.say_bytes(&[0x80, 0, 0, 0, 2])),
    ("a frame of all bytes that there can be", |line, _| line.say_bytes(&[0xff; 4])),
    ("a frame of nothing", |line, _| line.say_bytes(&[0; 4])),
    ("a kind that there is not", |line, _| say_raw(line, 99, b"{}")),
    ("no JSON", |line, _| say_raw(line, 2, b"\xff{]")),
    ("JSON without a bottom", |line, _| say_raw(line, 2, &[b'['; 500_000])),
    ("a field that there is not", |line, _| say_raw(line, 3, br#"{"call":0,"more":1}"#)),
    ("nothing where something must be", |line, _| say_raw(line, 3, b"{}")),
    ("a negative number", |line, id| say_with(line, started(id), "12345", "-12345")),
    ("a number beyond all files", |line, id| say_with(line, started(id), "12345", "9223372036854775808")),
    ("a number beyond all numbers", |line, id| say_with(line, started(id), "12345", "1e400")),
    ("a part of a number", |line, id| say_with(line, started(id), "12345", "0.5")),
    ("a span from its end", |line, id| say_with(line, returned(id), "[7,9]", "[9,7]")),
    ("a span beyond all files", |line, id| say_with(line, returned(id), "[7,9]", "[7,9223372036854775808]")),
    ("a download that never was", |line, id| line.tell(DownloadId(id.0 + 1), Cold::Paused)),
    ("an answer to what will never be asked", |line, _| line.say(&FromChild::Done { call: 1 << 40 })),
    (ANOTHER, |line, _| {
        loop {
            if let Some((ToChild::Snapshot { call }, _)) = line.next() {
                line.say(&FromChild::Done { call });
            }
        }
    }),
    ("a pause that nobody asked for", |line, id| line.tell(id, Cold::Paused)),
    ("what only a cold side tells", |line, id| {
        let proof = Proof::Digest;
        let path = Some(PathBuf::from("/etc/passwd"));
        let kind = EventKind::Completed { path, length: 1, proof, already: false, received: 1 };
        line.tell(id, Cold::Tell(kind));
    }),
    ("that it is ready, twice", |line, _| line.say_ready(VERSION)),
    ("one message in the middle of another", |line, _| {
        line.say_bytes(&[0, 0, 0, 2, 2 | MORE, b'{', 0, 0, 0, 2, 3, b'{']);
    }),
    ("a message without an end", |line, _| {
        loop {
            let length = u32::try_from(MAX_FRAME).unwrap().to_be_bytes();
            line.say_bytes(&[&length[..], &[2 | MORE], &vec![b' '; MAX_FRAME - 1]].concat());
        }
    }),
    ("more than a person reads", |line, id| {
        line.tell(id, Cold::Tell(EventKind::Notice { message: "x".repeat(65 << 10) }));
    }),
    ("more than a head has room for", |line, id| {
        let mut preparation = preparation(1);
        preparation.disposition = Some("x".repeat(200_000));
        line.tell(id, Cold::Prepare { preparation: Box::new(preparation), doubts: 0 });
    }),
    ("a host that is none", |line, _| {
        line.say(&FromChild::Resolve { call: 1, host: "a b".to_owned(), port: 80 });
    }),
];

fn started(id: DownloadId) -> FromChild {
    FromChild::Cold { id, message: Cold::Tell(EventKind::Started { resumed_from: 12345 }) }
}

fn returned(id: DownloadId) -> FromChild {
    let have: SpanSet = tidegate_core::Span::new(7, 9).into_iter().collect();
    FromChild::Cold { id, message: Cold::Returned { doubts: 0, have } }
}

fn say_raw(line: &mut Line, kind: u8, body: &[u8]) {
    let mut bytes = Vec::new();
    encode(kind, body, &mut bytes);
    line.say_bytes(&bytes);
}

/// Says something with one thing in its text changed into another.
fn say_with(line: &mut Line, message: FromChild, from: &str, into: &str) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    let body = String::from_utf8(bytes[5..].to_vec()).unwrap();
    assert!(body.contains(from), "{body}");
    say_raw(line, bytes[4], body.replace(from, into).as_bytes());
}

pub(crate) fn violate(mut line: Line, setup: &Setup) {
    let how = setup.user_agent.as_deref().unwrap();
    let id = line.start();
    let (_, violation) = VIOLATIONS.iter().find(|(name, _)| *name == how).unwrap();
    violation(&mut line, id);
    line.wind_up();
}

pub(crate) fn violations() {
    bounded(|| {
        for (how, _) in VIOLATIONS {
            let bench = bench(how);
            let id = bench.start(request(&bench));
            let over = AtomicBool::new(false);
            let outcome = std::thread::scope(|scope| {
                scope.spawn(|| {
                    while *how == ANOTHER && !over.load(Ordering::Relaxed) {
                        // Whoever asked is answered all the same.
                        bench.engine.snapshot().unwrap();
                    }
                });
                let outcome = bench.follow(id);
                over.store(true, Ordering::Relaxed);
                outcome
            });
            let (code, message) = told(&outcome);
            println!("{how}: {message}");
            assert_eq!(code, Some(Code::EngineProtocol), "{how}: {outcome:?}");
            assert!(message.contains("said what none says"), "{how}: {message}");
            assert_eq!(bench.names(), Vec::<String>::new(), "{how}");
            bench.engine.shutdown(LONGEST).unwrap();
        }
    });
}

/// How many messages a flood has.
const FLOOD: u64 = 200_000;

/// Made when a flood has been said.
fn said() -> PathBuf {
    alone::folder().join("said")
}

pub(crate) fn be(mut line: Line, setup: &Setup) {
    let id = line.start();
    let mut why = "said all".to_owned();
    match setup.user_agent.as_deref().unwrap() {
        "notices" => {
            let message = "x".repeat(100);
            for _ in 0..FLOOD {
                line.tell(id, Cold::Tell(EventKind::Notice { message: message.clone() }));
            }
        }
        "events" => loop {
            line.tell(id, Cold::Tell(EventKind::Started { resumed_from: 0 }));
        },
        "answers" => {
            for _ in 0..FLOOD {
                line.say(&FromChild::Done { call: 0 });
                line.say(&FromChild::Pong { call: 0, at_ns: u64::MAX });
                line.say(&FromChild::Progress { call: 0, progress: None });
            }
        }
        "names" => {
            let (mut refused, mut sent) = (0, 0);
            while sent < FLOOD / 10 {
                // Many at a time, and no more than the answers of which its socket can hold.
                for call in sent..sent + 50 {
                    line.say(&FromChild::Resolve { call, host: "localhost".to_owned(), port: 80 });
                }
                sent += 50;
                // Which certificates the system trusts is told to anybody.
                if sent % 5000 == 0 {
                    line.say(&FromChild::WantRoots { call: sent });
                }
                while refused < sent {
                    match line.hear() {
                        Some((ToChild::Resolved { answer: Resolution::Failed(_), .. }, _)) => refused += 1,
                        Some((ToChild::Resolved { .. }, _)) => panic!("it was told"),
                        Some(_) => {}
                        None => return,
                    }
                }
            }
        }
        "hosts" => {
            let mut known = 0;
            for number in 0..FLOOD / 20 {
                line.say(&FromChild::Introduce { host: format!("{number}.example") });
                loop {
                    match line.hear() {
                        Some((ToChild::Introduced { netrc, .. }, _)) => {
                            known += u64::from(netrc.is_some());
                            break;
                        }
                        Some(_) => {}
                        None => return,
                    }
                }
            }
            why = known.to_string();
        }
        "descriptors" => {
            let mut bytes = Vec::new();
            FromChild::Done { call: 0 }.encode(&mut bytes);
            let null = File::open("/dev/null").unwrap();
            let many = [null.as_fd(); 8];
            for _ in 0..500 {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
                let mut ancillary = SendAncillaryBuffer::new(&mut space);
                assert!(ancillary.push(SendAncillaryMessage::ScmRights(&many)));
                sendmsg(line.socket(), &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::empty()).unwrap();
            }
        }
        how => panic!("{how}"),
    }
    fs::write(said(), "").unwrap();
    line.give_up(id, &why);
    line.wind_up();
}

/// Waits until a flood was said, while nobody takes an event.
fn wait_until_said() {
    let until = Instant::now() + LONGEST;
    while !said().exists() {
        assert!(Instant::now() < until, "it is never heard");
        std::thread::yield_now();
    }
}

pub(crate) fn notices() {
    bounded(|| {
        let bench = bench("notices");
        let id = bench.start(request(&bench));
        wait_until_said();
        let outcome = bench.follow(id);
        assert_eq!(told(&outcome), (Some(Code::Internal), "said all".to_owned()));
        println!("{} of {FLOOD} notices were told", outcome.events.len());
        bench.engine.shutdown(LONGEST).unwrap();
    });
}

pub(crate) fn events() {
    bounded(|| {
        let bench = bench("events");
        let id = bench.start(request(&bench));
        let first = bench.engine.process();
        let until = Instant::now() + LONGEST;
        while bench.engine.process() == first {
            assert!(Instant::now() < until, "it is never ended");
            std::thread::yield_now();
        }
        // From now on they are taken, as fast as they can be; sooner or later too many come all the same.
        let mut last = None;
        while last.is_none() {
            assert!(Instant::now() < until, "it is never ended");
            let event = bench.engine.next_event(Duration::from_secs(1)).unwrap();
            last = event.map(|event| event.kind).filter(EventKind::is_final);
            // Whoever shows them takes his time.
            std::thread::yield_now();
        }
        let Some(EventKind::Failed { failure, .. }) = last else { panic!("{last:?}") };
        assert_eq!(failure.code, Code::EngineProtocol, "{failure}");
        println!("{id}: {failure}");
        bench.engine.shutdown(LONGEST).unwrap();
    });
}

pub(crate) fn answers() {
    bounded(|| {
        let bench = bench("answers");
        let outcome = bench.get(request(&bench));
        assert_eq!(told(&outcome), (Some(Code::Internal), "said all".to_owned()));
        bench.engine.shutdown(LONGEST).unwrap();
    });
}

pub(crate) fn names() {
    bounded(|| {
        let bench = bench("names");
        let before = holds();
        let id = bench.start(request(&bench));
        wait_until_said();
        let threads = holds().threads - before.threads;
        assert!(threads <= 16, "{threads} threads more");
        let outcome = bench.follow(id);
        assert_eq!(told(&outcome), (Some(Code::Internal), "said all".to_owned()));
        bench.engine.shutdown(LONGEST).unwrap();
    });
}

pub(crate) fn hosts() {
    bounded(|| {
        // Whoever asks is told who the user is there.
        let netrc = Netrc::parse("default login me password secret").unwrap();
        let (mode, netrc) = (Mode::Child { program: None, whole: false }, Some(netrc));
        let user_agent = Some("hosts".to_owned());
        let engine = Engine::start(Config { mode, netrc, user_agent, ..Config::default() }).unwrap();
        let bench = Bench { engine, folder: tempfile::tempdir().unwrap() };
        let (_, known) = told(&bench.get(request(&bench)));
        println!("of {} hosts it was told a login for {known}", FLOOD / 20);
        assert!((1..=256).contains(&known.parse::<u64>().unwrap()), "{known}");
        bench.engine.shutdown(LONGEST).unwrap();
    });
}

pub(crate) fn descriptors() {
    bounded(|| {
        let bench = bench("descriptors");
        let before = holds();
        let id = bench.start(request(&bench));
        wait_until_said();
        let outcome = bench.follow(id);
        assert_eq!(told(&outcome), (Some(Code::Internal), "said all".to_owned()));
        let grown = holds().descriptors.saturating_sub(before.descriptors);
        // Those of a spare and of the folder.
        assert!(grown <= 8, "{grown} descriptors more after 4000 were sent");
        bench.engine.shutdown(LONGEST).unwrap();
    });
}

pub(crate) fn be_a_spare(generation: u64) {
    if generation != 2 {
        return be_honest();
    }
    let mut line = Line::open();
    line.say_ready(VERSION);
    fs::write(said(), "").unwrap();
    loop {
        line.say(&FromChild::Introduce { host: "bank.example".to_owned() });
    }
}

pub(crate) fn spare() {
    bounded(|| {
        let body = Body::random(1, 16 * MIB);
        let resource = Resource::new(body.clone()).rate(Rate::mib(2));
        let origin = Origin::builder().resource("/f", resource).start().unwrap();
        let mode = Mode::Child { program: None, whole: false };
        let engine = Engine::start(Config { mode, ..Config::default() }).unwrap();
        let bench = Bench { engine, folder: tempfile::tempdir().unwrap() };
        let id = bench.start(bench.request(&[&origin.url("/f")]));
        let first = bench.engine.process().unwrap();
        wait_until_said();
        let until = Instant::now() + LONGEST;
        while children_of(std::process::id()).len() > 1 {
            assert!(Instant::now() < until, "the spare is never ended");
            std::thread::yield_now();
        }
        assert_eq!(bench.engine.process(), Some(first));
        assert!(end_by(first, Signal::KILL));
        let outcome = bench.follow(id);
        assert_eq!(body.first_difference_in(outcome.path().unwrap()).unwrap(), None, "{outcome:?}");
        bench.engine.shutdown(LONGEST).unwrap();
    });
}
