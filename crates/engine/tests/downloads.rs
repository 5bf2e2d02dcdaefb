//! Downloads over real sockets, as a program that uses the library sees them.

mod common;

use common::Bench;
use tidegate_core::Code;
use tidegate_core::message::{EventKind, Proof};
use tidegate_testkit::{Body, Origin, Rate, Resource};

const MIB: u64 = 1 << 20;

#[test]
fn a_file_comes_whole_over_several_connections_and_leaves_nothing_else_behind() {
    let body = Body::random(1, 8 * MIB);
    let origin = Origin::builder().resource("/file.bin", Resource::new(body.clone())).start().unwrap();
    let bench = Bench::new();
    let outcome = bench.get(bench.request(&[&origin.url("/file.bin")]));
    let EventKind::Completed { proof, .. } = &outcome.last else { panic!("{outcome:?}") };
    assert_eq!(*proof, Proof::Validator);
    assert_eq!(body.first_difference_in(outcome.path().unwrap()).unwrap(), None);
    assert_eq!(bench.names(), ["file.bin"]);
    assert!(origin.counters().method("GET") >= 2, "{:?}", origin.counters());
}

#[test]
fn an_empty_file_and_one_of_a_single_byte_come_whole() {
    for length in [0, 1] {
        let body = Body::random(2, length);
        let origin = Origin::builder().resource("/f", Resource::new(body.clone())).start().unwrap();
        let bench = Bench::new();
        let outcome = bench.get(bench.request(&[&origin.url("/f")]));
        assert_eq!(body.first_difference_in(outcome.path().unwrap()).unwrap(), None, "{outcome:?}");
        assert_eq!(origin.counters().method("GET"), 1);
    }
}

#[test]
fn a_missing_file_is_a_failure_that_leaves_nothing_behind() {
    let origin = Origin::builder().resource("/f", Resource::new(Body::random(3, 10))).start().unwrap();
    let bench = Bench::new();
    let outcome = bench.get(bench.request(&[&origin.url("/other")]));
    assert_eq!(outcome.code(), Some(Code::NotFound), "{outcome:?}");
    assert_eq!(bench.names(), Vec::<String>::new());
}

#[test]
fn a_paused_download_goes_on_where_it_stopped() {
    let body = Body::random(4, 16 * MIB);
    let resource = Resource::new(body.clone()).rate(Rate::mib(2));
    let origin = Origin::builder().resource("/f", resource).start().unwrap();
    let bench = Bench::new();
    let id = bench.start(bench.request(&[&origin.url("/f")]));
    assert!(origin.wait_until(common::LONGEST, |c| c.body_bytes > 4 * MIB));
    bench.engine.pause(id).unwrap();
    let outcome = bench.follow(id);
    let EventKind::Paused { have } = outcome.last else { panic!("{outcome:?}") };
    assert!(have > 2 * MIB, "{have}");
    bench.engine.resume(id).unwrap();
    let outcome = bench.follow(id);
    assert_eq!(body.first_difference_in(outcome.path().unwrap()).unwrap(), None, "{outcome:?}");
    assert!(origin.counters().body_bytes < 18 * MIB, "{:?}", origin.counters());
}
