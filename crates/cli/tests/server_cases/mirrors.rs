//! More than one place for a file, and digests that tell which of them is right.

use crate::common::{N, Place, b, b2, measured, played};
use crate::sweep::fetch;
use tidegate_testkit::pace::{Pace, Rate};
use tidegate_testkit::{Body, Origin, Resource};

const MIRRORS: [&str; 2] = ["/mirror-1/file.bin", "/mirror-2/file.bin"];

/// Fetches what a Metalink of this Origin describes.
fn by_metalink(origin: &Origin, place: &Place, path: &str) -> crate::common::Ended {
    let list = place.write_aside("list.meta4", fetch(origin, path));
    place.get_json(&["--metalink", &list])
}

#[test]
fn tc_45_bad_pieces_are_fetched_again_from_the_good_mirror_only() {
    for (name, second) in [("tc-45", Rate::mib(8)), ("metalink-one-block", Rate::mib(8))] {
        let origin = played(name);
        // The first is slow, so that the second is worth having.
        for (path, rate) in [(MIRRORS[0], Rate::mib(1)), (MIRRORS[1], second)] {
            let mirror = origin.site().get(path).unwrap().clone();
            origin.set(path, mirror.pace(Pace::Connection(rate)));
        }
        let place = Place::new();
        let ended = by_metalink(&origin, &place, "/file.meta4").done();
        println!("{name}: {:?}", origin.counters());
        place.holds_only("file.bin", &b());
        assert_eq!(ended.event("completed")["proof"], "digest");
        let served = origin.counters().path(MIRRORS[0]) + origin.counters().path(MIRRORS[1]);
        assert!(served <= N * 8 / 5, "{name}: {served} bytes for a file of {N}");
    }
}

#[test]
fn tc_45_without_pieces_mirrors_are_compared_before_they_are_mixed() {
    for name in ["tc-45", "metalink-one-block", "metalink-mirror-longer", "metalink-mirror-dead"] {
        let origin = played(name);
        let first = origin.site().get(MIRRORS[0]).unwrap().clone();
        origin.set(MIRRORS[0], first.pace(Pace::Connection(Rate::mib(1))));
        let place = Place::new();
        let ended = by_metalink(&origin, &place, "/file-without-pieces.meta4").done();
        println!("{name}: {:?} {:?}", origin.counters(), ended.took);
        place.holds_only("file.bin", &b());
        let served = origin.counters().path(MIRRORS[0]) + origin.counters().path(MIRRORS[1]);
        assert!(served <= 3 * N, "{name}: {served} bytes for a file of {N}");
    }
}

#[test]
fn tc_45_the_wrong_mirror_first_is_found_out_by_the_digest() {
    let (good, stale) = (Resource::new(b()), Resource::new(b2()));
    for paths in [["/stale", "/good"], ["/good", "/stale"]] {
        let builder = Origin::builder().also_listen(None);
        let origin = measured(builder.resource("/good", good.clone()).resource("/stale", stale.clone()));
        let place = Place::new();
        let digest = format!("sha-256={}", b().sha256_hex());
        let (first, second) = (origin.url(paths[0]), origin.url_of(1, paths[1]));
        place.get(&["-o", "file.bin", "--checksum", &digest, &first, "--mirror", &second]).done();
        place.holds_only("file.bin", &b());
        println!("{paths:?}: {:?}", origin.counters());
        assert!(origin.counters().body_bytes <= 4 * N, "{paths:?}: {:?}", origin.counters());
    }
}

#[test]
fn a_mirror_is_admitted_when_its_file_is_the_same_and_only_then() {
    // Every second connection is fast, so that there is something to take over from the others.
    let slow = |body: Body| {
        Resource::new(body).hook(|request, answer| {
            let rate = if request.hit.is_multiple_of(2) { Rate::mib(2) } else { Rate::kib(256) };
            answer.paces = vec![Pace::Response(rate)];
        })
    };
    let fast = |body: Body| Resource::new(body).pace(Pace::Connection(Rate::mib(4)));
    let own = |body: Body| fast(body).etag("\"mirror\"").last_modified(None);
    let longer = b().followed_by(Body::bytes("more"));
    for (mirror, right) in
        [(fast(b()), true), (own(b()), true), (own(b2()), false), (own(longer), false), (fast(b2()), false)]
    {
        let origin = Origin::builder()
            .also_listen(None)
            .resource("/file.bin", slow(b()))
            .resource("/mirror.bin", mirror)
            .start()
            .unwrap();
        let place = Place::new();
        let (first, second) = (origin.url("/file.bin"), origin.url_of(1, "/mirror.bin"));
        let ended = place.get(&["--min-split", "128k", &first, "--mirror", &second]).done();
        println!("{:?}, {:?}", ended.took, origin.counters());
        place.holds_only("file.bin", &b());
        let by_mirror = origin.counters().path("/mirror.bin");
        // More than what was only compared, or no more than that.
        assert_eq!(by_mirror > 1 << 20, right, "{by_mirror} bytes from the mirror");
    }
}

#[test]
fn a_digest_of_the_server_is_heeded() {
    for name in ["digest", "repr-digest", "digest-many", "repr-digest-bad", "content-digest", "content-md5"] {
        let origin = played(name);
        let place = Place::new();
        place.get(&[&origin.entry_url()]).done();
        place.holds_only("file.bin", &b());
    }
    for name in ["digest-wrong", "repr-digest-wrong"] {
        let origin = played(name);
        let place = Place::new();
        place.get(&["--retry-wait", "100ms", &origin.entry_url()]).failed(4, "[digest-mismatch]");
        place.holds_nothing_whole();
    }
}

#[test]
fn a_metalink_may_not_lead_out_of_the_folder_nor_be_half_of_one() {
    let origin = played("metalink-traversal");
    let place = Place::new();
    let ended = by_metalink(&origin, &place, "/file.meta4");
    assert_eq!(place.strays(), Vec::<String>::new());
    assert!(ended.code != 0 && place.names().is_empty() || place.finals().len() == 1, "{ended:?}");

    let origin = played("metalink-broken");
    let place = Place::new();
    by_metalink(&origin, &place, "/file.meta4").failed(2, "[bad-metalink]");
    assert_eq!(place.names(), Vec::<String>::new());
}
