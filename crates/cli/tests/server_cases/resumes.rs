//! Two runs, and what was between them: the same file, another, or none.

use crate::common::{N, Place, b, b2, measured, measured_play, played};
use serde_json::Value;
use tidegate_testkit::{Body, Ending, Origin, Resource, Site};

const FILE: &str = "/file.bin";

/// The first phase breaks off, and the run with it.
fn broken_off(event: &Value) -> bool {
    event["event"] == "waiting"
}

/// Stops in the first phase, with some of the file here, and begins the second. Tells the bytes served so far.
fn stopped(origin: &Origin, place: &Place) -> u64 {
    let have = place.stop_at(&[&origin.entry_url()], broken_off);
    assert!(have >= N * 3 / 10, "only {have} bytes were kept");
    place.holds_nothing_whole();
    origin.enter_phase(2).unwrap();
    origin.counters().body_bytes
}

/// A file that is cut off in the first phase, and then this one.
fn cut_then(first: Resource, second: Resource) -> Origin {
    let first = first.cut_at_share(0.4, Ending::Reset);
    Origin::builder().site(Site::file(first)).phase(Site::file(second)).start().unwrap()
}

#[test]
fn tc_03_a_server_that_forgets_ranges_gives_the_whole_once_more() {
    let origin = played("tc-03");
    let place = Place::new();
    let before = stopped(&origin, &place);
    place.get(&[&origin.entry_url()]).done();
    place.holds_only("file.bin", &b());
    let served = origin.counters().body_bytes - before;
    assert!(served <= 2 * N, "{served}");
}

#[test]
fn tc_11_another_etag_for_the_same_bytes_costs_no_progress() {
    let origin = measured_play("tc-11");
    let place = Place::new();
    let before = stopped(&origin, &place);
    let ended = place.get_json(&[&origin.entry_url()]).done();
    place.holds_only("file.bin", &b());
    assert_eq!(ended.event("completed")["proof"], "sampled");
    let served = origin.counters().body_bytes - before;
    assert!(served <= N * 3 / 4, "{served} bytes in the second run");
}

#[test]
fn tc_12_another_file_of_the_same_length_is_never_spliced() {
    for name in ["tc-12", "tc-12-no-if-range", "tc-12-silent", "tc-12-weak", "zeros-then-other"] {
        let origin = played(name);
        let place = Place::new();
        place.stop_at(&[&origin.entry_url()], broken_off);
        origin.enter_phase(2).unwrap();
        let ended = place.get_json(&[&origin.entry_url()]);
        assert_eq!(ended.code, 0, "{name}: {ended:?}");
        assert_eq!(place.names(), ["file.bin"], "{name}");
        assert!(place.holds("file.bin", &b2()), "{name}: not the new file");
        assert!(origin.counters().body_bytes <= 3 * N, "{name}: {:?}", origin.counters());
    }
}

#[test]
fn tc_14_no_validators_and_the_same_bytes_are_gone_on_with_by_samples() {
    let origin = measured_play("tc-14");
    let place = Place::new();
    let before = stopped(&origin, &place);
    let ended = place.get_json(&[&origin.entry_url()]).done();
    place.holds_only("file.bin", &b());
    assert_eq!(ended.event("completed")["proof"], "sampled");
    let served = origin.counters().body_bytes - before;
    assert!(served <= N * 3 / 4, "{served} bytes in the second run");
}

#[test]
fn tc_17_a_file_that_is_whole_is_left_alone() {
    let origin = measured_play("tc-17");
    let place = Place::new();
    place.get(&[&origin.entry_url()]).done();
    let before = std::fs::metadata(place.path("file.bin")).unwrap();
    let asked = origin.log().len();
    place.get(&[&origin.entry_url()]).done();
    place.holds_only("file.bin", &b());
    let after = std::fs::metadata(place.path("file.bin")).unwrap();
    assert_eq!(before.modified().unwrap(), after.modified().unwrap());
    let with_body = origin.log()[asked..].iter().filter(|one| one.body_bytes > 0).count();
    assert!(with_body <= 1, "{with_body} requests had a body");
}

#[test]
fn a_link_that_died_keeps_what_is_here_and_says_so() {
    for (name, word) in [("honest-then-gone", "[not-found]"), ("web-page-phase", "[not-the-file]")] {
        let origin = played(name);
        let place = Place::new();
        stopped(&origin, &place);
        let ended = place.get(&["--retries", "1", &origin.entry_url()]);
        ended.failed(1, word);
        place.holds_nothing_whole();
        let kept = std::fs::metadata(place.path("file.bin.part")).unwrap().len();
        assert!(kept > 0, "{name}: nothing was kept");
    }
}

/// An expired link with a part under NAME, and a fresh one at `/fresh` on another listener.
fn with_fresh_link(fresh: Resource) -> Origin {
    let old = Resource::new(b()).cut_at_share(0.4, Ending::Reset);
    let gone = Resource::new(b()).gate(|_| Some(tidegate_testkit::Answer::status(403)));
    let builder = Origin::builder().also_listen(None).resource("/old", old);
    measured(builder.phase(Site::new().with("/old", gone).with("/fresh", fresh)))
}

#[test]
fn a_fresh_link_goes_on_where_the_expired_one_stopped() {
    for fresh in
        [Resource::new(b()), Resource::new(b()).no_validators(), Resource::new(b()).etag("\"other\"")]
    {
        let origin = with_fresh_link(fresh);
        let place = Place::new();
        place.stop_at(&[&origin.url("/old"), "-o", "name.bin"], broken_off);
        origin.enter_phase(2).unwrap();
        let served = origin.counters().body_bytes;
        place.get(&[&origin.url_of(1, "/fresh?token=1"), "-o", "name.bin"]).done();
        place.holds_only("name.bin", &b());
        let served = origin.counters().body_bytes - served;
        println!("{served} bytes by the fresh link");
        assert!(served <= N * 3 / 4, "{served} bytes by the fresh link");
    }
}

#[test]
fn a_fresh_link_to_another_file_never_becomes_a_splice() {
    for fresh in [
        Resource::new(b2()),
        Resource::new(b2()).no_validators(),
        Resource::new(b2()).etag("\"other\""),
        Resource::new(b2().followed_by(Body::bytes("more"))),
    ] {
        let right = fresh.body().clone();
        let origin = with_fresh_link(fresh);
        let place = Place::new();
        place.stop_at(&[&origin.url("/old"), "-o", "name.bin"], broken_off);
        origin.enter_phase(2).unwrap();
        let left = || ["name.bin.part", "name.bin.part.tide"].map(|name| std::fs::read(place.path(name)));
        let [part, checkpoint] = left().map(|file| file.expect("the expired link left a part"));
        place.get(&[&origin.url_of(1, "/fresh?token=1"), "-o", "name.bin"]).done();
        assert_eq!(place.finals(), ["name.bin"]);
        assert!(place.holds("name.bin", &right), "a splice");
        // What the expired link brought is not ours to spoil: a link to that file may come yet.
        let [part_now, checkpoint_now] = left().map(|file| file.expect("it is still there"));
        assert!(part_now == part && checkpoint_now == checkpoint, "the part of another link was changed");
    }
}

#[test]
fn strict_begins_beside_the_part_of_another_link_and_ends_whole() {
    for fresh in [Resource::new(b()), Resource::new(b()).no_validators()] {
        let origin = with_fresh_link(fresh);
        let place = Place::new();
        place.stop_at(&[&origin.url("/old"), "-o", "name.bin"], broken_off);
        origin.enter_phase(2).unwrap();
        let strict = ["-o", "name.bin", "--resume", "strict"];
        place.get(&[&[&*origin.url_of(1, "/fresh?token=1")], &strict[..]].concat()).done();
        assert!(place.holds("name.bin", &b()));
    }
}

#[test]
fn a_leftover_of_another_program_is_adopted_only_if_it_is_of_the_file() {
    let (own, alien) = (b().slice(0..N / 2), b2().slice(0..N / 2));
    for (leftover, most) in [(own, N * 3 / 4), (alien, 2 * N)] {
        for file in [Resource::new(b()), Resource::new(b()).no_validators()] {
            let origin = measured(Origin::builder().resource(FILE, file));
            let place = Place::new();
            let path = place.write_aside("half.bin.crdownload", leftover.to_vec());
            let ended = place.get(&[&origin.url(FILE), "--adopt", &path]).done();
            assert!(place.holds("file.bin", &b()), "{ended:?}");
            let served = origin.counters().body_bytes;
            assert!(served <= most, "{served} bytes were fetched, {most} allowed");
        }
    }
}

#[test]
fn a_full_length_leftover_with_holes_is_not_taken_for_whole() {
    let holes = Body::joined([b().slice(0..N / 2), Body::zeros(N / 2)]);
    let origin = Origin::serve(Resource::new(b()).no_validators()).unwrap();
    let place = Place::new();
    let path = place.write_aside("half.bin.aria2", holes.to_vec());
    place.get(&[&origin.url(FILE), "--adopt", &path]).done();
    assert!(place.holds("file.bin", &b()));
}

#[test]
fn strict_is_never_wrong_by_a_single_block() {
    let changed = b().with_block_changed(N / 5);
    for file in
        [Resource::new(b()).no_validators(), Resource::new(b()).etag("W/\"same\"").last_modified(None)]
    {
        let origin = cut_then(file.clone(), file.with_body(changed.clone()));
        let place = Place::new();
        place.stop_at(&["--resume", "strict", &origin.entry_url()], |event| {
            event["event"] == "waiting"
                || event["event"] == "progress" && event["have"].as_u64() > Some(N / 5 + 4096)
        });
        origin.enter_phase(2).unwrap();
        let ended = place.get(&["--resume", "strict", &origin.entry_url()]).done();
        assert!(place.holds("file.bin", &changed), "wrong by a block: {ended:?}");
    }
}

#[test]
fn zeros_prove_nothing_and_still_become_the_right_file() {
    let zeros = Resource::new(Body::zeros(N)).no_validators();
    let one = Body::zeros(N).with_block_changed(N / 5);
    for second in [zeros.clone(), zeros.clone().with_body(one)] {
        let right = second.body().clone();
        let origin = cut_then(zeros.clone(), second);
        let place = Place::new();
        place.stop_at(&[&origin.entry_url()], broken_off);
        origin.enter_phase(2).unwrap();
        place.get(&[&origin.entry_url()]).done();
        place.holds_only("file.bin", &right);
    }
}

#[test]
fn what_is_here_is_not_gone_on_with_when_that_is_not_wanted() {
    let origin = cut_then(Resource::new(b()), Resource::new(b()));
    let place = Place::new();
    let before = stopped(&origin, &place);
    place.get(&["--resume", "never", &origin.entry_url()]).done();
    place.holds_only("file.bin", &b());
    assert!(origin.counters().body_bytes - before >= N);
}
