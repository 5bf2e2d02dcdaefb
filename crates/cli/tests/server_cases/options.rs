//! What is asked for by options: names that are taken, times, digests, and only looking.

use crate::common::{N, Place, b, measured, measured_play, played};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidegate_testkit::{Body, Ending, Framing, Origin, Resource};

/// 2022-11-15T12:45:26Z, when the testkit's files were modified, in seconds.
const MODIFIED: u64 = 1_668_516_326;

fn modified(place: &Place, name: &str) -> SystemTime {
    std::fs::metadata(place.path(name)).unwrap().modified().unwrap()
}

fn then() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(MODIFIED)
}

#[test]
fn tc_42_the_time_of_the_server_is_kept_when_wanted() {
    for name in ["tc-42", "honest", "last-modified-rfc-850"] {
        let origin = played(name);
        let place = Place::new();
        let began = SystemTime::now() - Duration::from_secs(2);
        place.get(&["--remote-time", &origin.entry_url(), "-o", "on"]).done();
        place.get(&["--no-remote-time", &origin.entry_url(), "-o", "off"]).done();
        assert_eq!(modified(&place, "on"), then(), "{name}");
        assert!(modified(&place, "off") >= began, "{name}");
        assert!(place.holds("on", &b()) && place.holds("off", &b()));
    }

    // After a resume, and from two mirrors.
    let cut = Resource::new(b()).cut_at_share(0.4, Ending::Reset);
    let origin = Origin::builder().also_listen(None).resource("/file.bin", cut).start().unwrap();
    let place = Place::new();
    place.stop_at(&["--remote-time", &origin.entry_url()], |event| event["event"] == "waiting");
    origin.set("/file.bin", Resource::new(b()));
    let mirror = origin.url_of(1, "/file.bin");
    place.get(&["--remote-time", &origin.entry_url(), "--mirror", &mirror]).done();
    place.holds_only("file.bin", &b());
    assert_eq!(modified(&place, "file.bin"), then());
}

#[test]
fn a_date_that_is_none_changes_no_time() {
    for name in ["last-modified-garbage", "no-validators"] {
        let origin = played(name);
        let place = Place::new();
        let began = SystemTime::now() - Duration::from_secs(2);
        place.get(&["--remote-time", &origin.entry_url()]).done();
        place.holds_only("file.bin", &b());
        assert!(modified(&place, "file.bin") >= began, "{name}");
    }
}

#[test]
fn a_name_that_is_taken_is_treated_as_was_said() {
    let origin = played("honest");
    let url = origin.entry_url();
    for (say, code, names) in [
        ("rename", 0, &["file.1.bin", "file.bin"][..]),
        ("skip", 0, &["file.bin"]),
        ("overwrite", 0, &["file.bin"]),
        ("fail", 1, &["file.bin"]),
    ] {
        let place = Place::new();
        std::fs::write(place.path("file.bin"), "mine").unwrap();
        let ended = place.get(&["--on-exists", say, &url]);
        assert_eq!(ended.code, code, "{say}: {ended:?}");
        assert_eq!(place.finals(), names, "{say}");
        let mine = std::fs::read(place.path("file.bin")).unwrap() == b"mine";
        assert_eq!(mine, say != "overwrite", "{say}");
        match say {
            "rename" => assert!(place.holds("file.1.bin", &b())),
            "overwrite" => assert!(place.holds("file.bin", &b())),
            "fail" => assert!(ended.says("[exists]")),
            _ => {}
        }
    }
}

#[test]
fn only_a_newer_file_is_fetched_when_that_is_wanted() {
    let (old, new) = ("Tue, 15 Nov 2022 12:45:26 GMT", "Wed, 16 Nov 2022 12:45:26 GMT");
    let changed = Body::random(5, N);
    let origin =
        measured(Origin::builder().resource("/file.bin", Resource::new(b()).last_modified(Some(old))));
    let place = Place::new();
    let words = ["--newer", "--remote-time", "--on-exists", "overwrite"];
    let url = origin.entry_url();
    place.get(&[&words[..], &[&url]].concat()).done();
    let served = origin.counters().body_bytes;
    place.get(&[&words[..], &[&url]].concat()).done();
    place.holds_only("file.bin", &b());
    assert!(origin.counters().body_bytes - served < N / 2, "fetched again, though it is not newer");

    origin.set("/file.bin", Resource::new(changed.clone()).etag("\"v2\"").last_modified(Some(new)));
    place.get(&[&words[..], &[&url]].concat()).done();
    place.holds_only("file.bin", &changed);
}

#[test]
fn a_digest_is_what_the_file_must_have() {
    let origin = played("honest");
    let url = origin.entry_url();
    let (right, wrong) = (b().sha256_hex(), Body::bytes("other").sha256_hex());
    let place = Place::new();
    place.get(&["--checksum", &format!("sha-256={wrong}"), &url]).failed(4, "[digest-mismatch]");
    place.holds_nothing_whole();
    let ended = place.get_json(&["--checksum", &format!("sha-256={right}"), &url]).done();
    assert_eq!(ended.event("completed")["proof"], "digest");
    place.holds_only("file.bin", &b());

    let place = Place::new();
    let sums = place.write_aside("SHA256SUMS", format!("{wrong}  other.bin\n{right} *file.bin\n"));
    place.get(&["--checksum-file", &sums, &url]).done();
    place.holds_only("file.bin", &b());
    let place = Place::new();
    let sums = place.write_aside("SHA256SUMS", format!("{wrong}  file.bin\n"));
    place.get(&["--checksum-file", &sums, &url]).failed(4, "[digest-mismatch]");
    place.holds_nothing_whole();
    let sums = place.write_aside("SHA256SUMS", format!("{right}  other.bin\n"));
    let asked = origin.counters().requests;
    assert_eq!(place.get(&["--checksum-file", &sums, &url]).code, 2);
    assert_eq!(origin.counters().requests, asked, "something was fetched that cannot be checked");
}

#[test]
fn a_file_that_is_larger_than_allowed_is_refused_before_its_first_byte() {
    let origin = measured_play("honest");
    let url = origin.entry_url();
    let (just, less) = (N.to_string(), (N - 1).to_string());
    for words in
        [&["--max-size", &less][..], &["--max-size", &less, "--dry-run"], &["--max-size", "1k", "-o", "-"]]
    {
        let place = Place::new();
        let ended = place.get(&[words, &[&url]].concat()).failed(1, "[too-large]");
        assert!(ended.says("8.0 MiB"), "{ended:?}");
        assert_eq!((place.names(), ended.out.len()), (Vec::new(), 0));
    }
    let counters = origin.counters();
    assert!(counters.requests == 3 && counters.body_bytes < 3 << 20, "{counters:?}");
    let place = Place::new();
    place.get(&["--max-size", &just, &url]).done();
    place.holds_only("file.bin", &b());
}

#[test]
fn a_body_that_never_ends_is_stopped_where_the_user_said() {
    // Small chunks go through a buffer, and a body that ends with its connection does not.
    never_ends(Framing::Chunked(16 << 10));
    never_ends(Framing::UntilClose);

    // A larger limit goes on; one that is just enough is enough.
    let whole = b();
    let origin = Origin::serve(Resource::new(whole.clone()).framing(Framing::Chunked(16 << 10))).unwrap();
    let place = Place::new();
    place.get(&["--max-size", "3M", &origin.entry_url()]).failed(1, "[too-large]");
    place.get(&["--max-size", &N.to_string(), &origin.entry_url()]).done();
    place.holds_only("file.bin", &whole);
}

fn never_ends(framing: Framing) {
    let endless = Body::random(1, 1 << 40);
    let file = Resource::new(endless.clone()).framing(framing);
    let origin = Origin::builder().also_listen(None).resource("/file.bin", file).start().unwrap();
    let place = Place::new();
    let (url, mirror) = (origin.entry_url(), origin.url_of(1, "/file.bin"));
    place.get(&["--max-size", "3M", &url, "--mirror", &mirror]).failed(1, "[too-large]");
    place.holds_nothing_whole();
    let kept = std::fs::metadata(place.path("file.bin.part")).unwrap().len();
    assert!(kept <= 3 << 20, "{kept}");
    assert!(origin.counters().requests <= 2, "{:?}", origin.counters());

    let ended = place.get(&["--max-size", "3M", "-o", "-", &url]).failed(1, "[too-large]");
    assert!(ended.out.len() <= 3 << 20, "{}", ended.out.len());
    let prefix = endless.slice(0..ended.out.len() as u64);
    assert_eq!(prefix.first_difference(&ended.out[..]).unwrap(), None);
}

#[test]
fn only_looking_writes_nothing() {
    for name in ["honest", "chunked", "no-validators", "tc-41", "name", "redirect-302"] {
        let origin = played(name);
        let place = Place::new();
        let ended = place.get_json(&["--dry-run", &origin.entry_url()]).done();
        assert_eq!(place.names(), Vec::<String>::new(), "{name}");
        assert_eq!(place.strays(), Vec::<String>::new());
        assert!(!ended.event("named")["path"].is_null(), "{name}: {ended:?}");
    }
    let origin = played("404-always");
    let place = Place::new();
    place.get(&["--dry-run", &origin.entry_url()]).failed(1, "[not-found]");
    assert_eq!(place.names(), Vec::<String>::new());
}
