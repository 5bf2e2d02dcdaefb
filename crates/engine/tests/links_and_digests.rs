//! What is here already, whose it is, and what the user says that it must be.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

mod common;

use common::Bench;
use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use tidegate_core::message::{EventKind, Proof};
use tidegate_core::request::{Destination, OnExists, Options, Request};
use tidegate_core::{Algorithm, Code, Digest, EntityTag, Identity};
use tidegate_engine::landing::{Begin, Landing, LandingRequest};
use tidegate_engine::part_file::Basis;
use tidegate_testkit::{Body, Origin, Rate, Resource};

const MIB: u64 = 1 << 20;
const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// Leaves a part `f.part` of this link, with these bytes from the first.
fn leave_part(bench: &Bench, url: &str, tag: &str, length: u64, bytes: &[u8]) {
    leave_marked(bench, url, tag, length, bytes, None);
}

/// The same, with the mark that it was about to get this name.
fn leave_marked(bench: &Bench, url: &str, tag: &str, length: u64, bytes: &[u8], done: Option<&str>) {
    let mut landing = Landing::open(LandingRequest {
        dir: bench.folder.path().to_owned(),
        name: PathBuf::from("f"),
        explicit_name: true,
        url: url.parse().unwrap(),
        resume: tidegate_core::request::Resume::Auto,
        adopt: None,
    })
    .unwrap();
    let identity = Identity {
        length: Some(length),
        etag: EntityTag::parse(tag),
        last_modified: Some(784_111_777),
        ..Identity::default()
    };
    let begun = landing.begin(&identity, OsStr::new("f"), Basis::Nothing, &Options::default()).unwrap();
    let Begin::Fetch(version) = begun else { panic!("{begun:?}") };
    landing.part().write_at(version, 0, bytes).unwrap();
    landing.part().mark_done(done).unwrap();
    landing.keep().unwrap();
}

fn named_f(bench: &Bench, url: &str) -> Request {
    let mut request = bench.request(&[url]);
    request.destination = Destination::File {
        dir: bench.folder.path().to_owned(),
        name: Some(PathBuf::from("f")),
        adopt: None,
    };
    request
}

fn sha256(body: &Body) -> Digest {
    Digest::from_hex(Algorithm::Sha256, &body.sha256_hex()).unwrap()
}

#[test]
fn with_a_digest_another_link_goes_on_with_what_is_proved_and_leaves_alone_what_is_not() {
    let (body, alien) = (Body::random(1, 4 * MIB), Body::random(3, 4 * MIB));
    // At a pace, or an answer that is dropped at its head has been sent whole by then.
    let resource = Resource::new(body.clone()).etag("\"new\"").last_modified(Some(DATE)).rate(Rate::mib(8));
    let origin = Origin::builder().resource("/f", resource).start().unwrap();
    // The same date and another tag is for the bytes to prove; and another link is as well.
    let links = [origin.url("/f?old"), "http://other/f".to_owned()];
    for (link, left) in links.iter().flat_map(|link| [(link, &body), (link, &alien)]) {
        let bench = Bench::new();
        let here = left.to_vec()[..3 * MIB as usize].to_vec();
        leave_part(&bench, link, "\"old\"", 4 * MIB, &here);
        let mut request = named_f(&bench, &origin.url("/f?new"));
        request.digests.push(sha256(&body));
        let before = origin.counters().body_bytes;
        let outcome = bench.get(request);
        assert!(matches!(outcome.last, EventKind::Completed { proof: Proof::Digest, .. }), "{outcome:?}");
        assert_eq!(body.first_difference_in(outcome.path().unwrap()).unwrap(), None);
        if std::ptr::eq(left, &body) {
            assert_eq!(bench.names(), ["f"]);
            let served = origin.counters().body_bytes - before;
            assert!(served < 3 * MIB, "{served} bytes were fetched");
        } else {
            assert_eq!(bench.names(), ["f", "f.part", "f.part.tide"]);
            assert_eq!(fs::read(bench.path("f.part")).unwrap()[..here.len()], here);
        }
    }
}

#[test]
fn a_name_that_only_a_checkpoint_tells_is_used_where_a_server_could_have_chosen_it_and_nowhere_else() {
    let body = Body::random(5, 2 * MIB);
    let resource = Resource::new(body.clone()).etag("\"same\"").last_modified(Some(DATE));
    let origin = Origin::builder().resource("/f", resource).start().unwrap();
    for (done, published) in [("other.iso", "other.iso"), (".profile", "f"), ("f", "f")] {
        let bench = Bench::new();
        leave_marked(&bench, &origin.url("/f"), "\"same\"", 2 * MIB, &body.to_vec(), Some(done));
        let outcome = bench.get(bench.request(&[&origin.url("/f")]));
        assert!(matches!(outcome.last, EventKind::Completed { .. }), "{outcome:?}");
        assert_eq!(bench.names(), [published]);
        assert_eq!(body.first_difference_in(bench.path(published)).unwrap(), None);
    }
}

#[test]
fn with_a_digest_a_refreshed_link_goes_on_by_its_strong_tag() {
    let body = Body::random(2, 4 * MIB);
    let resource = Resource::new(body.clone()).etag("\"same\"").last_modified(Some(DATE));
    let origin = Origin::builder().resource("/f", resource).start().unwrap();
    let bench = Bench::new();
    leave_part(&bench, &origin.url("/f?old"), "\"same\"", 4 * MIB, &body.to_vec()[..3 * MIB as usize]);
    let mut request = named_f(&bench, &origin.url("/f?new"));
    request.digests.push(sha256(&body));
    let outcome = bench.get(request);
    assert_eq!(body.first_difference_in(outcome.path().unwrap()).unwrap(), None, "{outcome:?}");
    assert_eq!(bench.names(), ["f"]);
    assert!(origin.counters().body_bytes < 2 * MIB, "{:?}", origin.counters());
}

#[test]
fn a_download_that_is_cancelled_takes_no_part_of_another_link_with_it() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let link = format!("http://{}/f", silent.local_addr().unwrap());
    for (other, kept) in
        [(format!("{link}?old"), true), ("http://other/f".into(), true), (link.clone(), false)]
    {
        let bench = Bench::new();
        leave_part(&bench, &other, "\"x\"", 4 * MIB, &[7; 1000]);
        let id = bench.start(named_f(&bench, &link));
        let _connection = silent.accept().unwrap();
        bench.engine.cancel(id).unwrap();
        let outcome = bench.follow(id);
        assert_eq!(outcome.code(), Some(Code::Cancelled), "{outcome:?}");
        assert_eq!(bench.path("f.part").exists(), kept, "{other}");
    }
}

#[test]
fn a_file_that_is_here_is_not_the_one_wanted_if_it_has_another_digest() {
    let (body, changed) = (Body::random(3, 2 * MIB), Body::random(4, 2 * MIB));
    let origin = Origin::builder().resource("/f", Resource::new(body).etag("\"x\"")).start().unwrap();
    let bench = Bench::new();
    bench.get(bench.request(&[&origin.url("/f")]));
    assert_eq!(bench.names(), ["f"]);
    // The server breaks its word: other bytes by the same tag.
    origin.set("/f", Resource::new(changed.clone()).etag("\"x\""));
    let mut request = bench.request(&[&origin.url("/f")]);
    request.digests.push(sha256(&changed));
    let outcome = bench.get(request.clone());
    assert!(
        matches!(outcome.last, EventKind::Completed { proof: Proof::Digest, already: false, .. }),
        "{outcome:?}"
    );
    assert_eq!(bench.names(), ["f", "f.1"]);
    assert_eq!(changed.first_difference_in(outcome.path().unwrap()).unwrap(), None);
    // And that one is, though it has a number.
    let outcome = bench.get(request);
    assert!(
        matches!(outcome.last, EventKind::Completed { proof: Proof::Digest, already: true, .. }),
        "{outcome:?}"
    );
    assert_eq!(outcome.path().unwrap(), bench.path("f.1"));
}

#[test]
fn a_twin_with_a_number_counts_only_where_a_number_would_be_given() {
    let body = Body::random(5, 2 * MIB);
    let origin = Origin::builder().resource("/f", Resource::new(body.clone())).start().unwrap();
    let bench = Bench::new();
    fs::write(bench.path("f"), "another").unwrap();
    let with = |on_exists| {
        let mut request = bench.request(&[&origin.url("/f")]);
        request.options.on_exists = on_exists;
        bench.get(request)
    };
    assert_eq!(with(OnExists::Rename).path(), Some(&*bench.path("f.1")));
    let again = with(OnExists::Rename);
    assert!(matches!(again.last, EventKind::Completed { already: true, .. }), "{again:?}");
    assert_eq!(with(OnExists::Fail).code(), Some(Code::Exists));
    let skipped = with(OnExists::Skip);
    assert!(matches!(skipped.last, EventKind::Completed { proof: Proof::Untouched, .. }), "{skipped:?}");
    assert_eq!(skipped.path(), Some(&*bench.path("f")));
    let over = with(OnExists::Overwrite);
    assert_eq!(over.path(), Some(&*bench.path("f")));
    assert_eq!(body.first_difference_in(bench.path("f")).unwrap(), None);
}
