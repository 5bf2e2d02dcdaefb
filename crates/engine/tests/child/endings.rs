//! Ends that are wanted, and the end of whoever started the process.

use super::processes::{children_of, hold, signal, wait_for_end};
use super::{MIB, PRICE, bench, process};
use crate::common::{Bench, LONGEST, embed};
use rustix::process::Signal;
use std::process::{Command, Stdio};
use std::time::Instant;
use tidegate_core::Code;
use tidegate_core::message::EventKind;
use tidegate_testkit::{Body, Origin, Rate, Resource};

/// In which order the process ends and the download is told to.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// It is told first, and the process ends while it does as it was told, or just after.
    Told,
    /// The process has ended, which nobody may have noticed yet.
    Killed,
    /// The process stands still and hears nothing any more before it ends.
    Still,
}

/// Ends the process while a download is told to go, which `tell` does.
fn end_while(bench: &Bench, order: Order, tell: impl FnOnce(&Bench) + Send) {
    let number = process(bench);
    match order {
        Order::Told => {
            tell(bench);
            signal(number, Signal::KILL);
        }
        Order::Killed => {
            signal(number, Signal::KILL);
            tell(bench);
        }
        Order::Still => {
            signal(number, Signal::STOP);
            std::thread::scope(|scope| {
                let telling = scope.spawn(|| tell(bench));
                // Whether it got as far or not: what is promised is the same.
                std::thread::yield_now();
                signal(number, Signal::KILL);
                telling.join().unwrap();
            });
        }
    }
}

const ORDERS: [Order; 3] = [Order::Told, Order::Killed, Order::Still];

#[test]
fn a_download_that_is_stopped_while_the_process_ends_stays_stopped_and_keeps_what_it_has() {
    for order in ORDERS.into_iter().cycle().take(6) {
        let body = Body::random(1, 8 * MIB);
        let resource = Resource::new(body.clone()).rate(Rate::mib(8));
        let origin = Origin::builder().resource("/f", resource).start().unwrap();
        let bench = bench();
        let request = bench.request(&[&origin.url("/f")]);
        let id = bench.start(request.clone());
        assert!(origin.wait_until(LONGEST, |c| c.body_bytes > 3 * MIB));
        end_while(&bench, order, |bench| bench.engine.stop(id).unwrap());
        let outcome = bench.follow(id);
        let EventKind::Stopped { kept } = outcome.last else { panic!("{order:?}: {outcome:?}") };
        // Another process is there, and it is told of nothing.
        process(&bench);
        let until = Instant::now() + LONGEST;
        while !bench.engine.snapshot().unwrap().downloads.is_empty() {
            assert!(Instant::now() < until, "{order:?}: {:?}", bench.engine.snapshot());
            std::thread::yield_now();
        }
        let sent = origin.counters();
        let outcome = bench.get(request);
        assert_eq!(body.first_difference_in(outcome.path().unwrap()).unwrap(), None, "{order:?}");
        let rest = origin.counters().body_bytes - sent.body_bytes;
        assert!(rest <= body.len() - kept + MIB, "{order:?}: {rest} bytes after {kept} were kept");
    }
}

#[test]
fn a_download_that_is_cancelled_while_the_process_ends_leaves_nothing() {
    for order in ORDERS.into_iter().cycle().take(6) {
        let resource = Resource::new(Body::random(1, 8 * MIB)).rate(Rate::mib(8));
        let origin = Origin::builder().resource("/f", resource).start().unwrap();
        let bench = bench();
        let id = bench.start(bench.request(&[&origin.url("/f")]));
        assert!(origin.wait_until(LONGEST, |c| c.body_bytes > 3 * MIB));
        end_while(&bench, order, |bench| bench.engine.cancel(id).unwrap());
        let outcome = bench.follow(id);
        assert_eq!(outcome.code(), Some(Code::Cancelled), "{order:?}: {outcome:?}");
        assert_eq!(bench.names(), Vec::<String>::new(), "{order:?}");
    }
}

#[test]
fn an_engine_that_ends_while_the_process_does_has_saved_what_was_there() {
    for order in ORDERS.into_iter().cycle().take(6) {
        let body = Body::random(1, 8 * MIB);
        let resource = Resource::new(body.clone()).rate(Rate::mib(8));
        let origin = Origin::builder().resource("/f", resource).start().unwrap();
        let one = bench();
        let request = one.request(&[&origin.url("/f")]);
        let id = one.start(request.clone());
        assert!(origin.wait_until(LONGEST, |c| c.body_bytes > 3 * MIB));
        end_while(&one, order, |bench| bench.engine.shutdown(LONGEST).unwrap());
        let outcome = one.follow(id);
        let EventKind::Stopped { kept } = outcome.last else { panic!("{order:?}: {outcome:?}") };
        assert_eq!(children_of(std::process::id()), Vec::<u32>::new(), "{order:?}");
        let before = origin.counters().body_bytes;
        let outcome = bench().get(request);
        assert_eq!(body.first_difference_in(outcome.path().unwrap()).unwrap(), None, "{order:?}");
        let rest = origin.counters().body_bytes - before;
        assert!(rest <= body.len() - kept + MIB, "{order:?}: {rest} bytes after {kept} were kept");
    }
}

#[test]
fn the_process_ends_with_whoever_started_it_and_another_run_goes_on_from_its_record() {
    for round in 0..4 {
        let body = Body::random(round, 16 * MIB);
        let resource = Resource::new(body.clone()).rate(Rate::mib(8));
        let origin = Origin::builder().resource("/f", resource).start().unwrap();
        let after = bench();
        let mut parent = Command::new(embed())
            .arg(origin.url("/f"))
            .arg(after.folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        assert!(origin.wait_until(LONGEST, |c| c.body_bytes >= 8 * MIB + round * 300_000));
        let children = children_of(parent.id());
        let held: Vec<_> = children.iter().filter_map(|child| hold(*child, parent.id())).collect();
        assert!(!held.is_empty(), "{children:?}");
        parent.kill().unwrap();
        parent.wait().unwrap();
        held.iter().for_each(|child| wait_for_end(child, LONGEST));

        let outcome = after.get(after.request(&[&origin.url("/f")]));
        assert_eq!(body.first_difference_in(outcome.path().unwrap()).unwrap(), None, "{outcome:?}");
        let sent = origin.counters();
        println!("{} KiB were sent twice", (sent.body_bytes - body.len()) >> 10);
        let connections = sent.requests - 1;
        assert!(sent.body_bytes <= body.len() + PRICE * connections, "{sent:?}");
        assert_eq!(after.names(), ["f"]);
    }
}
