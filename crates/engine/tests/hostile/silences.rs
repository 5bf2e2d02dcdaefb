//! What it does not say, and does not hear.

use super::child::{Line, be_honest, preparation};
use super::processes::end_by;
use super::{LONGEST, MIB, bench, bounded, request, told};
use crate::common::Bench;
use rustix::process::Signal;
use std::time::Duration;
use tidegate_core::Code;
use tidegate_core::message::EventKind;
use tidegate_engine::connect::{NetworkConfig, TlsConfig};
use tidegate_engine::protocol::{Cold, FromChild, ToChild, VERSION};
use tidegate_engine::{Config, Engine, Mode};
use tidegate_testkit::{Body, Origin, Resource};

const MODE: Mode = Mode::Child { program: None, whole: false };

/// Waits until its parent breaks off.
fn wait_for_the_end(mut line: Line) {
    while line.next().is_some() {}
}

pub(crate) fn be_never_ready() {
    wait_for_the_end(Line::open());
}

pub(crate) fn never_ready() {
    bounded(|| {
        let failure = Engine::start(Config { mode: MODE, ..Config::default() }).unwrap_err();
        assert_eq!(failure.code, Code::EngineUnavailable, "{failure}");
        println!("{failure}");
    });
}

pub(crate) fn be_of_another_version() {
    let mut line = Line::open();
    line.say_ready(VERSION + 1);
    wait_for_the_end(line);
}

pub(crate) fn other_version() {
    bounded(|| {
        let failure = Engine::start(Config { mode: MODE, ..Config::default() }).unwrap_err();
        assert_eq!(failure.code, Code::EngineUnavailable, "{failure}");
        assert!(failure.message.contains("version"), "{failure}");
    });
}

/// The first is ready, and then hears nothing.
pub(crate) fn be_deaf(generation: u64) {
    if generation > 1 {
        return be_honest();
    }
    let mut line = Line::open();
    line.say_ready(VERSION);
    // It ends by being ended.
    loop {
        std::thread::park();
    }
}

pub(crate) fn deaf() {
    bounded(|| {
        let body = Body::random(1, 2 * MIB);
        let origin = Origin::builder().resource("/f", Resource::new(body.clone())).start().unwrap();
        // More than a socket holds, right at the beginning.
        let certificate = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap().cert.pem();
        let tls = TlsConfig { ca_pem: Some(certificate.repeat(1000).into_bytes()), ..TlsConfig::default() };
        let network = NetworkConfig { tls, ..NetworkConfig::default() };
        let engine = Engine::start(Config { mode: MODE, network, ..Config::default() }).unwrap();
        let bench = Bench { engine, folder: tempfile::tempdir().unwrap() };
        let first = bench.engine.process();
        let outcome = bench.get(bench.request(&[&origin.url("/f")]));
        assert_eq!(body.first_difference_in(outcome.path().unwrap()).unwrap(), None, "{outcome:?}");
        assert_ne!(bench.engine.process(), first);
        bench.engine.shutdown(LONGEST).unwrap();
    });
}

/// The first listens to nothing after its hello, and says all the time that it is alive.
pub(crate) fn be_a_parrot(generation: u64) {
    if generation > 1 {
        return be_honest();
    }
    let (mut line, _) = Line::after_hello();
    line.start();
    loop {
        for call in [0, 1, u64::MAX] {
            line.say(&FromChild::Pong { call, at_ns: 0 });
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn parrot() {
    bounded(|| {
        let body = Body::random(1, 2 * MIB);
        let origin = Origin::builder().resource("/f", Resource::new(body.clone())).start().unwrap();
        let bench = bench("");
        let first = bench.engine.process();
        let outcome = bench.get(bench.request(&[&origin.url("/f")]));
        assert_eq!(body.first_difference_in(outcome.path().unwrap()).unwrap(), None, "{outcome:?}");
        assert_ne!(bench.engine.process(), first);
        bench.engine.shutdown(LONGEST).unwrap();
    });
}

/// The first takes a part, answers whatever it is asked, and never gives the part back.
pub(crate) fn be_a_miser(generation: u64) {
    if generation > 1 {
        return be_honest();
    }
    let (mut line, _) = Line::after_hello();
    let id = line.start();
    let lent = line.prepare(id, preparation(2 * MIB));
    loop {
        match line.hear() {
            Some((ToChild::Stop { call, .. }, _)) => {
                line.say(&FromChild::Done { call });
                line.tell(id, Cold::End);
            }
            Some(_) => {}
            None => break,
        }
    }
    drop(lent);
}

pub(crate) fn miser() {
    bounded(|| {
        let bench = bench("");
        let first = bench.engine.process().unwrap();
        let id = bench.start(request(&bench));
        let last = loop {
            let event = bench.engine.next_event(LONGEST).unwrap().unwrap();
            match event.kind {
                // Now it has the part.
                EventKind::Named { .. } => bench.engine.stop(id).unwrap(),
                kind if kind.is_final() => break kind,
                _ => {}
            }
        };
        assert!(matches!(last, EventKind::Stopped { .. }), "{last:?}");
        assert!(!end_by(first, Signal::KILL), "it is gone");
        bench.engine.shutdown(LONGEST).unwrap();
    });
}

/// It is busy with something else for longer than it is asked whether it is alive, and for less than it may be.
pub(crate) fn be_late() {
    let mut line = Line::open();
    line.say_ready(VERSION);
    std::thread::sleep(Duration::from_millis(3500));
    let id = line.start();
    // Until it would have been ended.
    let until = std::time::Instant::now() + Duration::from_secs(5);
    while std::time::Instant::now() < until {
        line.tell(id, Cold::Turn(1));
        let _ = line.socket().set_read_timeout(Some(Duration::from_millis(100)));
        line.answer_for_a_moment();
    }
    let _ = line.socket().set_read_timeout(None);
    line.give_up(id, "at last");
    line.wind_up();
}

pub(crate) fn late() {
    let bench = bench("late");
    let first = bench.engine.process();
    let mut long = request(&bench);
    // More than a socket holds: whoever says it waits until it is heard.
    long.headers = (0..60).map(|n| (format!("X-{n}"), "x".repeat(8000))).collect();
    let outcome = bench.get(long);
    assert_eq!(told(&outcome), (Some(Code::Internal), "at last".to_owned()), "{outcome:?}");
    assert_eq!(bench.engine.process(), first);
    bench.engine.shutdown(LONGEST).unwrap();
}

/// The first works until it hears of a download; the others cannot even begin.
pub(crate) fn be_the_last(generation: u64) {
    if generation == 1 {
        let (mut line, _) = Line::after_hello();
        line.start();
    }
}

pub(crate) fn no_other() {
    bounded(|| {
        let bench = bench("");
        let ids: Vec<_> = (0..3).map(|_| bench.start(request(&bench))).collect();
        let mut told = Vec::new();
        let ended = loop {
            match bench.engine.next_event(LONGEST) {
                Ok(Some(event)) => match event.kind {
                    EventKind::Failed { failure, .. } => told.push((event.id, failure.code)),
                    kind => assert!(!kind.is_final(), "{kind:?}"),
                },
                Ok(None) => panic!("{told:?}"),
                Err(failure) => break failure,
            }
        };
        told.sort_unstable_by_key(|(id, _)| *id);
        let expected: Vec<_> = ids.into_iter().map(|id| (id, Code::EngineUnavailable)).collect();
        assert_eq!(told, expected);
        assert_eq!(ended.code, Code::EngineUnavailable);
        assert_eq!(bench.engine.start(request(&bench)).unwrap_err().code, Code::EngineUnavailable);
        assert_eq!(bench.engine.snapshot().unwrap_err().code, Code::EngineUnavailable);
    });
}
