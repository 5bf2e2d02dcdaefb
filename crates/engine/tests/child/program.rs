//! The program that is the process: what becomes of its file, and where it cannot be isolated.

use super::old_kernel;
use super::processes::{children_of, holds, signal, wait_until_back};
use super::{MIB, bench, goes_on, process};
use crate::common::{Bench, LONGEST, embed};
use rustix::process::Signal;
use tidegate_core::Code;
use tidegate_engine::{Config, Engine, Mode};
use tidegate_testkit::{Body, Origin, Rate, Resource};

#[test]
fn an_upgrade_of_the_program_does_not_break_its_restart() {
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("program");
    std::fs::copy(embed(), &program).unwrap();
    let body = Body::random(1, 16 * MIB);
    let resource = Resource::new(body.clone()).rate(Rate::mib(4));
    let origin = Origin::builder().resource("/f", resource).start().unwrap();
    let mode = Mode::Child { program: Some(program.clone()), whole: false };
    let bench = Bench { engine: Engine::start(Config { mode, ..Config::default() }).unwrap(), ..bench() };
    let id = bench.start(bench.request(&[&origin.url("/f")]));
    assert!(origin.wait_until(LONGEST, |c| c.body_bytes > 2 * MIB));
    // As a package manager does it: another file of that name.
    let new = place.path().join("new");
    std::fs::write(&new, "no program at all").unwrap();
    std::fs::rename(&new, &program).unwrap();
    for _ in 0..2 {
        // The spare was started before; it goes too.
        let current = process(&bench);
        for child in children_of(std::process::id()).into_iter().filter(|child| *child != current) {
            signal(child, Signal::KILL);
        }
        assert!(signal(current, Signal::KILL));
        goes_on(&bench, id).unwrap();
    }
    std::fs::remove_file(&program).unwrap();
    let outcome = bench.follow(id);
    assert_eq!(body.first_difference_in(outcome.path().unwrap()).unwrap(), None, "{outcome:?}");
}

#[test]
fn where_a_layer_cannot_be_had_it_is_named_and_refused_if_all_are_required() {
    let before = holds();
    let start = |whole| {
        let mode = Mode::Child { program: Some(embed()), whole };
        Engine::start(Config { mode, ..Config::default() })
    };
    let whole = start(true).map(|engine| engine.isolation().clone());
    // What this machine lacks it lacks in either case.
    let missing_here = start(false).unwrap().isolation().missing.clone();
    assert_eq!(whole.is_err(), !missing_here.is_empty(), "{whole:?}, {missing_here:?}");

    let told = std::thread::spawn(move || {
        old_kernel::become_one(&[(libc::SYS_landlock_create_ruleset, None)]);
        let refused = start(true).unwrap_err();
        let engine = start(false).unwrap();
        (refused, engine.isolation().clone())
    });
    let (refused, isolation) = told.join().unwrap();
    assert_eq!(refused.code, Code::EngineUnavailable, "{refused}");
    for layer in ["landlock-files", "landlock-ports", "landlock-sockets", "landlock-signals"] {
        assert!(isolation.missing.iter().any(|this| this == layer), "{isolation:?}");
        assert!(refused.message.contains(layer), "{refused}");
    }
    assert!(isolation.layers.iter().any(|layer| layer == "seccomp"), "{isolation:?}");
    wait_until_back(&before, LONGEST);
}

#[test]
fn a_program_that_is_none_of_ours_is_refused_and_leaves_no_process() {
    let before = holds();
    let start = |program: &str| {
        let mode = Mode::Child { program: Some(program.into()), whole: false };
        Engine::start(Config { mode, ..Config::default() }).unwrap_err()
    };
    for program in ["/nothing/here", "/bin/true", "/bin/cat", "/etc/passwd"] {
        let failure = start(program);
        assert_eq!(failure.code, Code::EngineUnavailable, "{program}: {failure}");
    }
    wait_until_back(&before, LONGEST);
}
