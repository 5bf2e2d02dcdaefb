//! The cold side of a file on a real disk.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};
use tempfile::TempDir;
use tidegate_core::checkpoint::{Link, Promise};
use tidegate_core::message::Proof;
use tidegate_core::request::{OnExists, Options, Resume, Sync};
use tidegate_core::{Code, EntityTag, Identity, Span, SpanSet};
use tidegate_engine::landing::{Begin, Found, Landing, LandingRequest, Published};
use tidegate_engine::part_file::{Basis, Version};

const MIB: u64 = 1 << 20;

fn request(dir: &TempDir, name: &str, url: &str) -> LandingRequest {
    LandingRequest {
        dir: dir.path().to_owned(),
        name: PathBuf::from(name),
        explicit_name: false,
        url: url.parse().unwrap(),
        resume: Resume::Auto,
        adopt: None,
    }
}

fn open(dir: &TempDir, name: &str, url: &str) -> Landing {
    Landing::open(request(dir, name, url)).unwrap()
}

fn identity(length: u64, tag: &str) -> Identity {
    Identity { length: Some(length), etag: EntityTag::parse(tag), ..Identity::default() }
}

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

fn begin(landing: &mut Landing, identity: &Identity, final_name: &str, basis: Basis) -> Version {
    match landing.begin(identity, name(final_name), basis, &Options::default()).unwrap() {
        Begin::Fetch(version) => version,
        other => panic!("{other:?}"),
    }
}

/// Downloads `bytes` in one go.
fn fetch(landing: &mut Landing, identity: &Identity, final_name: &str, bytes: &[u8]) {
    fetch_with(landing, identity, final_name, bytes, &Options::default());
}

fn fetch_with(landing: &mut Landing, identity: &Identity, called: &str, bytes: &[u8], options: &Options) {
    match landing.begin(identity, name(called), Basis::Nothing, options).unwrap() {
        Begin::Fetch(version) => landing.part().write_at(version, 0, bytes).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn with(on_exists: OnExists) -> Options {
    Options { on_exists, ..Options::default() }
}

fn named(published: Published) -> PathBuf {
    match published {
        Published::Named { path } => path,
        other => panic!("{other:?}"),
    }
}

fn names(dir: &TempDir) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn span(start: u64, end: u64) -> Span {
    Span::new(start, end).unwrap()
}

fn dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_whole_file_gets_its_name_and_nothing_else_is_left() {
    let dir = dir();
    let bytes = vec![7; 3 * MIB as usize];
    let mut landing = open(&dir, "a.bin", "http://h/a.bin");
    assert_eq!(landing.found(), Found::Nothing);
    fetch(&mut landing, &identity(3 * MIB, "\"x\""), "a.bin", &bytes);
    assert_eq!(names(&dir), ["a.bin.part", "a.bin.part.tide"]);
    let path = named(landing.publish(name("a.bin"), 3 * MIB, &Options::default()).unwrap());
    assert_eq!(path, dir.path().join("a.bin"));
    assert_eq!(names(&dir), ["a.bin"]);
    assert_eq!(fs::read(path).unwrap(), bytes);
}

#[test]
fn a_small_file_needs_no_checkpoint() {
    let dir = dir();
    let mut landing = open(&dir, "a", "http://h/a");
    fetch(&mut landing, &identity(3, "\"x\""), "b", b"abc");
    assert_eq!(names(&dir), ["a.part"]);
    landing.publish(name("b"), 3, &Options::default()).unwrap();
    assert_eq!(names(&dir), ["b"]);
}

#[test]
fn an_empty_file_is_whole() {
    let dir = dir();
    let mut landing = open(&dir, "a", "http://h/a");
    begin(&mut landing, &identity(0, "\"x\""), "a", Basis::Nothing);
    let path = named(landing.publish(name("a"), 0, &Options::default()).unwrap());
    assert_eq!(fs::metadata(path).unwrap().len(), 0);
}

#[test]
fn a_part_of_full_length_is_not_complete() {
    let dir = dir();
    let mut landing = open(&dir, "a", "http://h/a");
    let version = begin(&mut landing, &identity(2 * MIB, "\"x\""), "a", Basis::Nothing);
    landing.part().write_at(version, MIB, &vec![1; MIB as usize]).unwrap();
    assert_eq!(fs::metadata(dir.path().join("a.part")).unwrap().len(), 2 * MIB);
    let failure = landing.publish(name("a"), 2 * MIB, &Options::default()).unwrap_err();
    assert_eq!(failure.code, Code::LengthMismatch);
    assert_eq!(names(&dir), ["a.part", "a.part.tide"]);
    // Nor without its checkpoint.
    drop(landing);
    fs::remove_file(dir.path().join("a.part.tide")).unwrap();
    let found = open(&dir, "a", "http://h/a").found();
    assert_eq!(found, Found::Bare { length: 2 * MIB, adopted: false });
}

#[test]
fn what_was_written_is_found_again_by_the_same_request() {
    let dir = dir();
    let mut landing = open(&dir, "a", "http://u:p@h/a?token=1");
    let version = begin(&mut landing, &identity(4 * MIB, "\"x\""), "a", Basis::Nothing);
    landing.part().write_at(version, MIB, &vec![7; MIB as usize]).unwrap();
    // As if killed: nothing is saved on the way out.
    drop(landing);
    for (url, expected) in [("http://h/a?token=1", Link::Same), ("http://h/a?token=2", Link::OtherQuery)] {
        let mut landing = open(&dir, "a", url);
        let Found::Recorded { identity: found, spans, link, promise, moved, done } = landing.found() else {
            panic!("{:?}", landing.found());
        };
        assert_eq!((found, link, moved, done), (identity(4 * MIB, "\"x\""), expected, false, None));
        // Older kernels cannot tell that the page cache is the same: then only what is durable counts.
        if promise == Promise::Written {
            assert_eq!(spans, SpanSet::from_iter([span(MIB, 2 * MIB)]));
        }
        begin(&mut landing, &identity(4 * MIB, "\"x\""), "a", Basis::Recorded);
        landing.keep().unwrap();
    }
    let checkpoint = fs::read(dir.path().join("a.part.tide")).unwrap();
    let text = String::from_utf8_lossy(&checkpoint);
    assert!(text.contains("http://h/a") && !text.contains("token") && !text.contains("u:p"));
    assert_eq!(fs::metadata(dir.path().join("a.part.tide")).unwrap().mode() & 0o077, 0);
}

#[test]
fn the_part_of_another_request_is_left_alone() {
    let dir = dir();
    let mut one = open(&dir, "get", "http://h/one");
    fetch(&mut one, &identity(2 * MIB, "\"1\""), "get", b"one");
    one.keep().unwrap();
    let before = fs::read(dir.path().join("get.part")).unwrap();
    let mut two = open(&dir, "get", "http://h/two");
    assert_eq!(two.part_path(), dir.path().join("get.1.part"));
    fetch(&mut two, &identity(2 * MIB, "\"2\""), "get", b"two");
    two.keep().unwrap();
    assert_eq!(fs::read(dir.path().join("get.part")).unwrap(), before);
    // Each finds its own again.
    assert_eq!(open(&dir, "get", "http://h/one").part_path(), dir.path().join("get.part"));
    assert_eq!(open(&dir, "get", "http://h/two").part_path(), dir.path().join("get.1.part"));
}

#[test]
fn among_parts_that_differ_in_their_query_each_request_finds_its_own() {
    let dir = dir();
    let mut one = open(&dir, "get", "http://h/get?id=1");
    fetch(&mut one, &identity(2 * MIB, "\"1\""), "get", b"one");
    let mut two = open(&dir, "get", "http://h/get?id=2");
    fetch(&mut two, &identity(2 * MIB, "\"2\""), "get", b"two");
    one.keep().unwrap();
    two.keep().unwrap();
    for (url, part) in [("http://h/get?id=1", "get.part"), ("http://h/get?id=2", "get.1.part")] {
        let landing = open(&dir, "get", url);
        assert!(matches!(landing.found(), Found::Recorded { link: Link::Same, .. }));
        assert_eq!(landing.part_path(), dir.path().join(part));
    }
    // A third may be a refreshed link of the first.
    let landing = open(&dir, "get", "http://h/get?id=3");
    assert!(matches!(landing.found(), Found::Recorded { link: Link::OtherQuery, .. }));
    assert_eq!(landing.part_path(), dir.path().join("get.part"));
}

#[test]
fn a_chosen_name_means_its_part_also_from_a_fresh_link() {
    let dir = dir();
    let mut landing = open(&dir, "a", "http://h/expired");
    fetch(&mut landing, &identity(2 * MIB, "\"1\""), "a", b"one");
    landing.keep().unwrap();
    let fresh = LandingRequest { explicit_name: true, ..request(&dir, "a", "http://other/fresh") };
    let mut landing = Landing::open(fresh).unwrap();
    assert!(matches!(landing.found(), Found::Recorded { link: Link::Other, .. }));
    // It turns out to be another file.
    landing.next_part().unwrap();
    assert_eq!(landing.part_path(), dir.path().join("a.1.part"));
    assert_eq!(landing.found(), Found::Nothing);
    assert!(matches!(open(&dir, "a", "http://h/expired").found(), Found::Recorded { link: Link::Same, .. }));
}

#[test]
fn a_download_that_runs_is_not_joined_by_another() {
    let dir = dir();
    let one = open(&dir, "a", "http://h/a");
    let two = open(&dir, "a", "http://h/a");
    assert_ne!(one.part_path(), two.part_path());
    drop(one);
    assert_eq!(open(&dir, "a", "http://h/a").part_path(), dir.path().join("a.part"));
}

/// Not a test by itself: holds a part as another process until its input ends.
#[test]
fn helper_that_holds_a_part() {
    let Some(dir) = std::env::var_os("TIDEGATE_TEST_HOLD") else { return };
    let request = LandingRequest {
        dir: PathBuf::from(dir),
        name: PathBuf::from("a"),
        explicit_name: false,
        url: "http://h/a".parse().unwrap(),
        resume: Resume::Auto,
        adopt: None,
    };
    let mut landing = Landing::open(request).unwrap();
    let version = begin(&mut landing, &identity(8 * MIB, "\"x\""), "a", Basis::Recorded);
    let mut at = landing.part().have().run_end(0);
    fs::write(landing.part_path().with_extension("ready"), "").unwrap();
    // Writes until it is killed.
    loop {
        let bytes: Vec<u8> = (at..at + 5000).map(|i| (i % 251) as u8 + 1).collect();
        landing.part().write_at(version, at, &bytes).unwrap();
        at = (at + 5000) % (8 * MIB - 5000);
    }
}

#[test]
fn a_killed_process_leaves_its_part_unlocked_and_no_wrong_byte_in_the_map() {
    let dir = dir();
    for _ in 0..5 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "helper_that_holds_a_part", "--nocapture"])
            .env("TIDEGATE_TEST_HOLD", dir.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let ready = dir.path().join("a.ready");
        while !ready.exists() {
            assert!(child.try_wait().unwrap().is_none(), "the other process ended early");
            std::thread::yield_now();
        }
        // It holds the part.
        let other = open(&dir, "a", "http://h/a");
        assert_eq!(other.part_path(), dir.path().join("a.1.part"));
        other.discard().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_file(ready).unwrap();
        let landing = open(&dir, "a", "http://h/a");
        assert_eq!(landing.part_path(), dir.path().join("a.part"));
        let bytes = fs::read(dir.path().join("a.part")).unwrap();
        if let Found::Recorded { spans, .. } = landing.found() {
            for span in spans.iter() {
                let wrong = (span.start()..span.end()).find(|i| {
                    // Written at multiples of 5000 in one run, and anywhere in the next; each value is
                    // what its place asks for.
                    bytes[*i as usize] != (i % 251) as u8 + 1
                });
                assert_eq!(wrong, None, "in {span}");
            }
        }
    }
}

#[test]
fn two_downloads_of_one_name_at_once_give_two_whole_files() {
    let dir = dir();
    let fetch_one = |url: &str, byte: u8, length: usize| {
        let mut landing = open(&dir, "videoplayback", url);
        let identity = identity(length as u64, &format!("\"{byte}\""));
        fetch(&mut landing, &identity, "videoplayback", &vec![byte; length]);
        named(landing.publish(name("videoplayback"), length as u64, &Options::default()).unwrap())
    };
    std::thread::scope(|scope| {
        scope.spawn(|| fetch_one("http://h/1", 1, 1_500_000));
        scope.spawn(|| fetch_one("http://h/2", 2, 1_200_000));
    });
    assert_eq!(names(&dir), ["videoplayback", "videoplayback.1"]);
    let bodies = ["videoplayback", "videoplayback.1"].map(|name| fs::read(dir.path().join(name)).unwrap());
    let mut lengths = bodies.each_ref().map(Vec::len);
    lengths.sort_unstable();
    assert_eq!(lengths, [1_200_000, 1_500_000]);
    assert!(bodies.iter().all(|body| body.iter().all(|byte| *byte == body[0])));
}

#[test]
fn a_part_that_is_a_link_is_not_followed() {
    let dir = dir();
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, dir.path().join("a.part")).unwrap();
    fs::hard_link(&victim, dir.path().join("a.1.part")).unwrap();
    symlink("/nowhere/at/all", dir.path().join("a.2.part")).unwrap();
    fs::create_dir(dir.path().join("a.3.part")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("a.4.part"), rustix::fs::Mode::RWXU).unwrap();
    symlink(&victim, dir.path().join("a.5.part.tide")).unwrap();
    let mut landing = open(&dir, "a", "http://h/a");
    assert_eq!(landing.part_path(), dir.path().join("a.6.part"));
    fetch(&mut landing, &identity(2 * MIB, "\"x\""), "a", &vec![1; 2 * MIB as usize]);
    landing.publish(name("a"), 2 * MIB, &Options::default()).unwrap();
    assert_eq!(fs::read_to_string(victim).unwrap(), "precious");
    assert!(!dir.path().join("a.5.part").exists(), "the part that could not be used is not left");
}

#[test]
fn folders_below_the_directory_are_made_and_links_among_them_refused() {
    let dir = dir();
    let mut landing = open(&dir, "x/y/a", "http://h/a");
    fetch(&mut landing, &identity(1, "\"x\""), "a", b"1");
    landing.publish(name("a"), 1, &Options::default()).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("x/y/a")).unwrap(), "1");
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), dir.path().join("link")).unwrap();
    let failure = Landing::open(request(&dir, "link/a", "http://h/a")).unwrap_err();
    assert_eq!(failure.code, Code::UnsafePart, "{failure}");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    for bad in ["../a", "/etc/a", "x/../../a", "..", ".", "", "x/.."] {
        let failure = Landing::open(request(&dir, bad, "http://h/a")).unwrap_err();
        assert_eq!(failure.code, Code::UnsafePart, "{bad:?}");
    }
    assert!(!dir.path().join("../a.part").exists());
}

#[test]
fn no_suggested_name_leaves_the_directory() {
    let dir = dir();
    let mut landing = open(&dir, "a", "http://h/a");
    for bad in ["../b", "/tmp/b", "..", "x/b", ""] {
        let begun = landing.begin(&identity(1, "\"x\""), name(bad), Basis::Nothing, &Options::default());
        assert_eq!(begun.unwrap_err().code, Code::UnsafePart, "{bad:?}");
        let published = landing.publish(name(bad), 0, &Options::default());
        assert_eq!(published.unwrap_err().code, Code::UnsafePart, "{bad:?}");
    }
}

#[test]
fn a_directory_that_is_a_link_is_followed_and_a_missing_one_is_made() {
    let dir = dir();
    fs::create_dir(dir.path().join("real")).unwrap();
    symlink("real", dir.path().join("Downloads")).unwrap();
    for (folder, lands_in) in [("Downloads", "real"), ("new/er", "new/er")] {
        let request = LandingRequest { dir: dir.path().join(folder), ..request(&dir, "a", "http://h/a") };
        let mut landing = Landing::open(request).unwrap();
        fetch(&mut landing, &identity(1, "\"x\""), "a", b"1");
        landing.publish(name("a"), 1, &Options::default()).unwrap();
        assert!(dir.path().join(lands_in).join("a").exists());
    }
}

#[test]
fn a_name_that_is_taken_gets_a_number_and_is_never_overwritten_unasked() {
    let dir = dir();
    fs::write(dir.path().join("a.tar.gz"), "old").unwrap();
    let mut landing = open(&dir, "a.tar.gz", "http://h/a.tar.gz");
    fetch(&mut landing, &identity(3, "\"x\""), "a.tar.gz", b"new");
    let path = named(landing.publish(name("a.tar.gz"), 3, &Options::default()).unwrap());
    assert_eq!(path, dir.path().join("a.1.tar.gz"));
    assert_eq!(fs::read_to_string(dir.path().join("a.tar.gz")).unwrap(), "old");

    let mut landing = open(&dir, "a.tar.gz", "http://h/other");
    let begin = |landing: &mut Landing, options: &Options| {
        landing.begin(&identity(3, "\"y\""), name("a.tar.gz"), Basis::Nothing, options)
    };
    assert_eq!(begin(&mut landing, &with(OnExists::Fail)).unwrap_err().code, Code::Exists);
    assert!(matches!(begin(&mut landing, &with(OnExists::Skip)), Ok(Begin::Skip { .. })));
    let Ok(Begin::Fetch(version)) = begin(&mut landing, &with(OnExists::Overwrite)) else { panic!() };
    landing.part().write_at(version, 0, b"two").unwrap();
    // Somebody makes the name before it is published.
    let failure = landing.publish(name("a.tar.gz"), 3, &with(OnExists::Fail)).unwrap_err();
    assert_eq!(failure.code, Code::Exists);
    landing.publish(name("a.tar.gz"), 3, &with(OnExists::Overwrite)).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("a.tar.gz")).unwrap(), "two");
}

#[test]
fn the_same_request_again_is_already_complete_until_something_changes() {
    let dir = dir();
    let options = Options { remote_time: true, ..Options::default() };
    let now = Identity { last_modified: Some(1_668_515_126), ..identity(3, "\"x\"") };
    let publish = |url: &str, byte: &[u8]| {
        let mut landing = open(&dir, "a.bin", url);
        fetch(&mut landing, &now, "a.bin", byte);
        named(landing.publish(name("a.bin"), 3, &options).unwrap())
    };
    let again = |url: &str, now: &Identity| {
        let mut landing = open(&dir, "a.bin", url);
        let begun = landing.begin(now, name("a.bin"), Basis::Nothing, &options).unwrap();
        landing.discard().unwrap();
        begun
    };
    let path = publish("http://h/a.bin", b"abc");
    assert_eq!(
        again("http://h/a.bin", &now),
        Begin::AlreadyComplete { path: path.clone(), proof: Proof::Validator }
    );
    assert!(matches!(again("http://h/other/a.bin", &now), Begin::Fetch(_)));
    let changed = Identity { etag: EntityTag::parse("\"y\""), ..now.clone() };
    assert!(matches!(again("http://h/a.bin", &changed), Begin::Fetch(_)));
    // Also where it had to be called otherwise.
    let second = publish("http://h/other/a.bin", b"xyz");
    assert_eq!(second, dir.path().join("a.1.bin"));
    assert_eq!(
        again("http://h/other/a.bin", &now),
        Begin::AlreadyComplete { path: second, proof: Proof::Validator }
    );
    // A person edits the file: same length, another content.
    fs::write(&path, "abd").unwrap();
    assert!(matches!(again("http://h/a.bin", &now), Begin::Fetch(_)));
    assert_eq!(names(&dir), ["a.1.bin", "a.bin"]);
}

#[test]
fn the_servers_time_is_given_only_when_asked_for() {
    let modified = UNIX_EPOCH + Duration::from_secs(1_668_515_126);
    for remote_time in [true, false] {
        let dir = dir();
        let mut landing = open(&dir, "a", "http://h/a");
        let identity = Identity { last_modified: Some(1_668_515_126), ..identity(3, "\"x\"") };
        fetch(&mut landing, &identity, "a", b"abc");
        let options = Options { remote_time, ..Options::default() };
        let path = named(landing.publish(name("a"), 3, &options).unwrap());
        assert_eq!(fs::metadata(path).unwrap().modified().unwrap() == modified, remote_time);
    }
}

#[test]
fn a_name_that_only_the_server_chose_replaces_nothing_but_the_same_links_file() {
    for options in [with(OnExists::Overwrite), Options { newer: true, ..Options::default() }] {
        let dir = dir();
        let mine = dir.path().join("thesis.odt");
        fs::write(&mine, "mine").unwrap();
        let publish = |tag: &str, options: &Options| {
            let now = Identity { last_modified: Some(4_000_000_000), ..identity(3, tag) };
            let mut landing = open(&dir, "get.php", "http://h/get.php");
            fetch_with(&mut landing, &now, "thesis.odt", b"abc", options);
            named(landing.publish(name("thesis.odt"), 3, options).unwrap())
        };
        assert_eq!(publish("\"x\"", &options), dir.path().join("thesis.1.odt"));
        assert_eq!(fs::read(&mine).unwrap(), b"mine");
        // A file of that name that came from there before may be replaced.
        fs::remove_file(&mine).unwrap();
        assert_eq!(publish("\"y\"", &Options::default()), mine);
        assert_eq!(publish("\"z\"", &options), mine);
    }
}

#[test]
fn a_file_that_appears_during_the_download_is_left_alone_and_so_is_what_was_fetched() {
    let newer = Options { newer: true, ..Options::default() };
    for options in [with(OnExists::Skip), newer] {
        let dir = dir();
        let mut landing = open(&dir, "a", "http://h/a");
        let now = Identity { last_modified: Some(1000), ..identity(2 * MIB, "\"x\"") };
        fetch(&mut landing, &now, "a", &vec![7; 2 << 20]);
        fs::write(dir.path().join("a"), "mine").unwrap();
        let (path, kept) = (dir.path().join("a"), dir.path().join("a.part"));
        let published = landing.publish(name("a"), 2 * MIB, &options).unwrap();
        assert_eq!(published, Published::LeftAlone { path: path.clone(), kept });
        drop(landing);
        assert_eq!(fs::read(path).unwrap(), b"mine");
        let again = open(&dir, "a", "http://h/a");
        assert!(
            matches!(again.found(), Found::Recorded { spans, done: None, .. } if spans.total() == 2 * MIB)
        );
    }
}

#[test]
fn newer_fetches_only_what_is_newer() {
    let dir = dir();
    let path = dir.path().join("a");
    fs::write(&path, "old").unwrap();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(UNIX_EPOCH + Duration::from_secs(1000))
        .unwrap();
    let options = Options { newer: true, ..Options::default() };
    let mut landing = open(&dir, "a", "http://h/a");
    assert_eq!(landing.existing(name("a")).unwrap().map(|e| (e.length, e.modified)), Some((3, 1000)));
    let of = |seconds| Identity { last_modified: Some(seconds), ..identity(3, "\"x\"") };
    let mut begin = |seconds| landing.begin(&of(seconds), name("a"), Basis::Nothing, &options).unwrap();
    assert_eq!(begin(1000), Begin::NotNewer { path: path.clone() });
    let Begin::Fetch(version) = begin(1001) else { panic!() };
    landing.part().write_at(version, 0, b"new").unwrap();
    assert_eq!(named(landing.publish(name("a"), 3, &options).unwrap()), path);
    assert_eq!(fs::read_to_string(path).unwrap(), "new");
}

#[test]
fn a_crash_between_the_done_mark_and_the_name_is_repaired() {
    let dir = dir();
    let bytes = vec![9; 2 * MIB as usize];
    let mut landing = open(&dir, "a", "http://h/a");
    fetch(&mut landing, &identity(2 * MIB, "\"x\""), "b", &bytes);
    landing.part().mark_done(Some("b")).unwrap();
    drop(landing);
    // Before the rename: the part says that it is whole, and under which name.
    let landing = open(&dir, "a", "http://h/a");
    let Found::Recorded { done, spans, .. } = landing.found() else { panic!() };
    assert_eq!((done.as_deref(), spans.total()), (Some(name("b")), 2 * MIB));
    drop(landing);
    // After the rename: the checkpoint is an orphan, and is no part's of the next download.
    fs::rename(dir.path().join("a.part"), dir.path().join("b")).unwrap();
    let mut landing = open(&dir, "a", "http://h/a");
    assert_eq!(landing.found(), Found::Nothing);
    assert_eq!(names(&dir), ["a.part", "b"]);
    fetch(&mut landing, &identity(2 * MIB, "\"y\""), "b", &bytes);
    landing.publish(name("b"), 2 * MIB, &Options::default()).unwrap();
    assert_eq!(names(&dir), ["b", "b.1"]);
    // By link, where the file system cannot rename otherwise: both names are there.
    let mut landing = open(&dir, "c", "http://h/c");
    fetch(&mut landing, &identity(2 * MIB, "\"x\""), "c", &bytes);
    landing.part().mark_done(Some("c")).unwrap();
    drop(landing);
    fs::hard_link(dir.path().join("c.part"), dir.path().join("c")).unwrap();
    let landing = open(&dir, "c", "http://h/c");
    assert_eq!((landing.found(), landing.part_path()), (Found::Nothing, dir.path().join("c.part")));
    landing.discard().unwrap();
    assert_eq!(names(&dir), ["b", "b.1", "c"]);
    assert_eq!(fs::read(dir.path().join("c")).unwrap(), bytes);
}

#[test]
fn a_done_download_can_be_published_without_asking_again() {
    let dir = dir();
    let mut landing = open(&dir, "a", "http://h/a");
    fetch(&mut landing, &identity(2 * MIB, "\"x\""), "a", &vec![9; 2 * MIB as usize]);
    landing.part().mark_done(Some("a")).unwrap();
    drop(landing);
    let mut landing = open(&dir, "a", "http://h/a");
    let Found::Recorded { identity, done: Some(done), .. } = landing.found() else { panic!() };
    begin(&mut landing, &identity, "a", Basis::Recorded);
    landing.publish(&done, 2 * MIB, &Options::default()).unwrap();
    assert_eq!(names(&dir), ["a"]);
}

#[test]
fn a_damaged_checkpoint_never_means_complete() {
    let dir = dir();
    let mut landing = open(&dir, "a", "http://h/a");
    fetch(&mut landing, &identity(2 * MIB, "\"x\""), "a", &vec![9; 2 * MIB as usize]);
    landing.keep().unwrap();
    let checkpoint = dir.path().join("a.part.tide");
    let whole = fs::read(&checkpoint).unwrap();
    for damaged in [&b""[..], &vec![0; whole.len()], &vec![0xff; whole.len()], &whole[..100]] {
        fs::write(&checkpoint, damaged).unwrap();
        let found = open(&dir, "a", "http://h/a").found();
        assert_eq!(found, Found::Bare { length: 2 * MIB, adopted: false });
    }
    // And is replaced by one that works.
    let mut landing = open(&dir, "a", "http://h/a");
    fetch(&mut landing, &identity(2 * MIB, "\"y\""), "a", &vec![8; MIB as usize]);
    landing.keep().unwrap();
    let Found::Recorded { spans, .. } = open(&dir, "a", "http://h/a").found() else { panic!() };
    assert_eq!(spans.total(), MIB);
}

#[test]
fn a_checkpoint_of_a_later_version_is_left_alone() {
    let dir = dir();
    let mut landing = open(&dir, "a", "http://h/a");
    fetch(&mut landing, &identity(2 * MIB, "\"x\""), "a", &vec![9; 2 * MIB as usize]);
    landing.keep().unwrap();
    let checkpoint = dir.path().join("a.part.tide");
    let mut bytes = fs::read(&checkpoint).unwrap();
    bytes[8] = 99;
    fs::write(&checkpoint, &bytes).unwrap();
    assert_eq!(open(&dir, "a", "http://h/a").part_path(), dir.path().join("a.1.part"));
    assert_eq!(fs::read(&checkpoint).unwrap(), bytes);
}

#[test]
fn a_copied_part_counts_but_asks_for_proof() {
    let dir = dir();
    let mut landing = open(&dir, "a", "http://h/a");
    fetch(&mut landing, &identity(2 * MIB, "\"x\""), "a", &vec![9; MIB as usize]);
    landing.keep().unwrap();
    let other = tempfile::tempdir().unwrap();
    for file in ["a.part", "a.part.tide"] {
        fs::copy(dir.path().join(file), other.path().join(file)).unwrap();
    }
    let found = open(&other, "a", "http://h/a").found();
    let Found::Recorded { spans, promise: Promise::Durable, moved: true, .. } = found else {
        panic!("{found:?}");
    };
    assert_eq!(spans.total(), MIB);
    // A copy from before the checkpoint is shorter, and cannot have what lies beyond.
    File::options().write(true).open(other.path().join("a.part")).unwrap().set_len(1000).unwrap();
    let Found::Recorded { spans, .. } = open(&other, "a", "http://h/a").found() else { panic!() };
    assert_eq!(spans.total(), 1000);
    // And nothing brings that back.
    File::options().write(true).open(other.path().join("a.part")).unwrap().set_len(2 * MIB).unwrap();
    let Found::Recorded { spans, .. } = open(&other, "a", "http://h/a").found() else { panic!() };
    assert_eq!(spans.total(), 1000);
}

#[test]
fn resume_never_starts_from_nothing() {
    let dir = dir();
    let mut landing = open(&dir, "a", "http://h/a");
    fetch(&mut landing, &identity(2 * MIB, "\"x\""), "a", &vec![9; MIB as usize]);
    landing.keep().unwrap();
    let never = LandingRequest { resume: Resume::Never, ..request(&dir, "a", "http://h/a") };
    let mut landing = Landing::open(never).unwrap();
    assert_eq!(landing.found(), Found::Nothing);
    begin(&mut landing, &identity(2 * MIB, "\"x\""), "a", Basis::Nothing);
    assert_eq!(landing.part().have_total(), 0);
    drop(landing);
    assert_eq!(open(&dir, "a", "http://h/a").found(), Found::Nothing);
}

#[test]
fn a_leftover_of_another_tool_is_read_and_kept() {
    let dir = dir();
    let elsewhere = tempfile::tempdir().unwrap();
    let leftover = elsewhere.path().join("half.iso");
    fs::write(&leftover, vec![5; MIB as usize]).unwrap();
    let adopting =
        LandingRequest { adopt: Some(leftover.clone()), ..request(&dir, "a.iso", "http://h/a.iso") };
    let mut landing = Landing::open(adopting).unwrap();
    assert_eq!(landing.found(), Found::Bare { length: MIB, adopted: true });
    let mut sample = [0; 100];
    assert_eq!(landing.read_found(MIB - 50, &mut sample).unwrap(), 50);
    assert_eq!(sample[..50], [5; 50]);
    let proved = SpanSet::from_iter([span(0, 600_000), span(700_000, MIB)]);
    begin(&mut landing, &identity(2 * MIB, "\"x\""), "a.iso", Basis::Proved(proved.clone()));
    assert_eq!(landing.part().have(), proved);
    let part = fs::read(landing.part_path()).unwrap();
    assert!(part[..600_000].iter().chain(&part[700_000..MIB as usize]).all(|byte| *byte == 5));
    assert_eq!(fs::metadata(leftover).unwrap().len(), MIB);
}

#[test]
fn too_little_room_is_told_before_the_first_byte() {
    let dir = dir();
    let mut landing = open(&dir, "a", "http://h/a");
    let huge = identity(1 << 60, "\"x\"");
    let failure = landing.begin(&huge, name("a"), Basis::Nothing, &Options::default()).unwrap_err();
    assert_eq!(failure.code, Code::DiskFull);
    assert!(failure.message.contains("1.0 EiB more are needed"), "{failure}");
    // It goes on where there is room.
    fetch(&mut landing, &identity(3, "\"x\""), "a", b"abc");
    landing.publish(name("a"), 3, &Options::default()).unwrap();
}

#[test]
fn a_part_that_was_replaced_is_not_published() {
    let dir = dir();
    let mut landing = open(&dir, "a", "http://h/a");
    fetch(&mut landing, &identity(3, "\"x\""), "a", b"abc");
    fs::rename(dir.path().join("a.part"), dir.path().join("mine")).unwrap();
    fs::write(dir.path().join("a.part"), "xyz").unwrap();
    let failure = landing.publish(name("a"), 3, &Options::default()).unwrap_err();
    assert_eq!(failure.code, Code::DiskError);
    assert_eq!(names(&dir), ["a.part", "mine"]);
    // Nor is what others put there removed.
    landing.discard().unwrap();
    assert_eq!(names(&dir), ["a.part", "mine"]);
}

#[test]
fn a_file_can_be_verified_through_a_descriptor_that_cannot_write() {
    let dir = dir();
    let mut landing = open(&dir, "a", "http://h/a");
    fetch(&mut landing, &identity(3, "\"x\""), "a", b"abc");
    let file = landing.part().read_only().unwrap();
    let mut bytes = [0; 3];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"abc");
    assert!(std::os::unix::fs::FileExt::write_at(&file, b"x", 0).is_err());
    fs::remove_file(landing.part_path()).unwrap();
    assert!(landing.part().read_only().is_err());
}

#[test]
fn without_sync_the_file_is_published_all_the_same() {
    let dir = dir();
    let mut landing = open(&dir, "a", "http://h/a");
    fetch(&mut landing, &identity(2 * MIB, "\"x\""), "a", &vec![1; 2 * MIB as usize]);
    let options = Options { sync: Sync::None, ..Options::default() };
    landing.publish(name("a"), 2 * MIB, &options).unwrap();
    assert_eq!(names(&dir), ["a"]);
}

#[test]
fn it_works_in_memory_too() {
    let memory = Path::new("/dev/shm");
    let Ok(dir) = tempfile::tempdir_in(memory) else { return };
    let mut landing = open(&dir, "a", "http://h/a");
    let version = begin(&mut landing, &identity(4 * MIB, "\"x\""), "a", Basis::Nothing);
    // Its length is set, and no room is used yet.
    let part = fs::metadata(landing.part_path()).unwrap();
    assert!(part.len() == 4 * MIB && part.blocks() < 100 || part.blocks() >= 8192);
    landing.part().write_at(version, 0, &vec![1; MIB as usize]).unwrap();
    drop(landing);
    let mut landing = open(&dir, "a", "http://h/a");
    begin(&mut landing, &identity(4 * MIB, "\"x\""), "a", Basis::Recorded);
    let version = landing.part().version();
    let rest: Vec<Span> = landing.part().have().gaps(span(0, 4 * MIB)).collect();
    for gap in rest {
        landing.part().write_at(version, gap.start(), &vec![1; gap.len() as usize]).unwrap();
    }
    let path = named(landing.publish(name("a"), 4 * MIB, &Options::default()).unwrap());
    assert!(fs::read(path).unwrap().iter().all(|byte| *byte == 1));
}

#[test]
fn a_folder_that_may_not_be_written_says_so() {
    if rustix::process::geteuid().is_root() {
        return; // May write everywhere.
    }
    let failure =
        Landing::open(LandingRequest { dir: PathBuf::from("/"), ..request(&dir(), "a", "http://h/a") })
            .unwrap_err();
    assert_eq!(failure.code, Code::PermissionDenied, "{failure}");
}

#[test]
fn long_names_leave_room_for_the_part_and_its_checkpoint() {
    let dir = dir();
    let long = format!("{}.zip", "x".repeat(300));
    let mut landing = open(&dir, &long, "http://h/a");
    fetch(&mut landing, &identity(2 * MIB, "\"x\""), &long, &vec![1; 2 * MIB as usize]);
    let path = named(landing.publish(name(&long), 2 * MIB, &Options::default()).unwrap());
    let published = path.file_name().unwrap().to_str().unwrap();
    assert!(published.len() == 255 && published.ends_with("x.zip"));
}

#[test]
fn a_validator_that_was_decided_upon_before_a_doubt_is_not_recorded_after_it() {
    let dir = dir();
    let strong = identity(2 * MIB, "\"x\"");
    let mut landing = open(&dir, "a", "http://h/a");
    let version = begin(&mut landing, &strong.weakened(), "a", Basis::Nothing);
    let part = std::sync::Arc::clone(landing.part());
    let decided = part.doubts();
    part.doubt(version);
    part.set_identity(&strong, decided).unwrap();
    assert_eq!(part.identity(), strong.weakened());
    begin(&mut landing, &strong, "a", Basis::Continued { doubts: decided });
    assert_eq!(part.identity(), strong.weakened());
    part.set_identity(&strong, part.doubts()).unwrap();
    assert_eq!(part.identity(), strong);
    // Whoever still fetches what was begun before writes nothing that could be doubted.
    let decided = part.doubts();
    part.doubt(version);
    part.set_identity(&strong, decided).unwrap();
    assert_eq!(part.identity(), strong);
}

#[test]
fn a_part_of_another_query_is_never_given_out_to_be_emptied() {
    let dir = dir();
    for (id, number) in [(1, ""), (2, ".1")] {
        let mut landing = open(&dir, "get", &format!("http://h/get?id={id}"));
        if number == ".1" {
            landing.next_part().unwrap();
        }
        fetch(&mut landing, &identity(2 * MIB, &format!("\"{id}\"")), "get", b"some");
        assert_eq!(landing.part_path(), dir.path().join(format!("get{number}.part")));
        landing.keep().unwrap();
    }
    let mut third = open(&dir, "get", "http://h/get?id=3");
    third.next_part().unwrap();
    assert_eq!((third.part_path(), third.found()), (dir.path().join("get.2.part"), Found::Nothing));
    third.discard().unwrap();
    for explicit_name in [false, true] {
        let anew = LandingRequest {
            resume: Resume::Never,
            explicit_name,
            ..request(&dir, "get", "http://h/get?id=3")
        };
        assert_eq!(Landing::open(anew).unwrap().part_path(), dir.path().join("get.2.part"));
        fs::remove_file(dir.path().join("get.2.part")).unwrap();
    }
    // One's own begins anew in its place.
    let anew = LandingRequest { resume: Resume::Never, ..request(&dir, "get", "http://h/get?id=1") };
    assert_eq!(Landing::open(anew).unwrap().part_path(), dir.path().join("get.part"));
}
