//! Downloads over real sockets, as a program that uses the library sees them.

mod common;

use common::Bench;
use tidegate_core::Code;
use tidegate_core::message::{EventKind, Proof};
use tidegate_core::request::{Credentials, Mirror};
use tidegate_engine::{Ask, Config};
use tidegate_testkit::recipes::{PASSWORD, USER};
use tidegate_testkit::{Body, Ending, Origin, Rate, Resource};

const MIB: u64 = 1 << 20;

#[test]
fn a_file_comes_whole_over_several_connections_and_leaves_nothing_else_behind() {
    let body = Body::random(1, 8 * MIB);
    // Slow enough that one connection is not done before another can be made.
    let resource = Resource::new(body.clone()).rate(Rate::mib(8));
    let origin = Origin::builder().resource("/file.bin", resource).start().unwrap();
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
    // What the server had in flight when it was stopped is sent twice, and never more than half again.
    assert!(origin.counters().body_bytes < 24 * MIB, "{:?}", origin.counters());
}

/// A writer whose bytes can be looked at later.
#[derive(Clone, Default)]
struct Sink(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().map_err(|_| std::io::ErrorKind::Other)?.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_writer_gets_the_bytes_in_order_across_interruptions() {
    let body = Body::random(5, 3 * MIB);
    let resource = Resource::new(body.clone()).cut_after(MIB, Ending::Reset);
    let origin = Origin::builder().resource("/f", resource).start().unwrap();
    let bench = Bench::new();
    let sink = Sink::default();
    let mut request = bench.request(&[&origin.url("/f")]);
    request.options.retry_wait = std::time::Duration::from_millis(10);
    let id = bench.engine.start_into(request, sink.clone()).unwrap();
    let outcome = bench.follow(id);
    assert!(matches!(outcome.last, EventKind::Completed { path: None, .. }), "{outcome:?}");
    assert_eq!(*sink.0.lock().unwrap(), body.to_vec());
    assert_eq!(bench.names(), Vec::<String>::new());
}

/// Knows a password, and where the file went.
#[derive(Debug)]
struct Helper {
    fresh: String,
}

impl Ask for Helper {
    fn credentials(&self, _: tidegate_core::DownloadId, _: &url::Url) -> Option<Credentials> {
        Some(Credentials::Password { user: USER.to_owned(), password: PASSWORD.to_owned() })
    }

    fn fresh_link(&self, _: tidegate_core::DownloadId, _: &tidegate_core::Failure) -> Option<Mirror> {
        Mirror::parse(&self.fresh).ok()
    }
}

#[test]
fn somebody_is_asked_for_a_password_and_the_download_goes_on() {
    let body = Body::random(6, MIB);
    let resource = Resource::new(body.clone()).gate(tidegate_testkit::auth::basic(USER, PASSWORD));
    let origin = Origin::builder().resource("/f", resource).start().unwrap();
    let ask = std::sync::Arc::new(Helper { fresh: origin.url("/f") });
    let bench = Bench::with(Config { ask: Some(ask), ..Config::default() });
    let outcome = bench.get(bench.request(&[&origin.url("/f")]));
    assert_eq!(body.first_difference_in(outcome.path().unwrap()).unwrap(), None, "{outcome:?}");
}

#[test]
fn somebody_is_asked_for_a_fresh_link_and_nothing_is_fetched_twice() {
    let body = Body::random(7, 8 * MIB);
    let expires = Resource::new(body.clone()).rate(Rate::mib(1));
    let fresh = Resource::new(body.clone());
    let origin = Origin::builder().resource("/old", expires).resource("/new", fresh).start().unwrap();
    let ask = std::sync::Arc::new(Helper { fresh: origin.url("/new") });
    let bench = Bench::with(Config { ask: Some(ask), ..Config::default() });
    let id = bench.start(bench.request(&[&origin.url("/old")]));
    assert!(origin.wait_until(common::LONGEST, |c| c.body_bytes > 3 * MIB));
    let gone = Resource::new(body.clone()).gate(|_| Some(tidegate_testkit::Answer::status(410)));
    origin.set("/old", gone);
    origin.drop_network();
    origin.restore_network();
    let outcome = bench.follow(id);
    assert_eq!(body.first_difference_in(outcome.path().unwrap()).unwrap(), None, "{outcome:?}");
    assert!(origin.counters().body_bytes < 11 * MIB, "{:?}", origin.counters());
}
