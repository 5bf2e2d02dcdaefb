//! A file larger than 32 bits can count, cut and gone on with around and beyond that mark.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "it tells its figures")]

mod program;

use program::{command, names, run, said, sent};
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use tidegate_core::request::{Options, Preallocate, Resume};
use tidegate_core::{EntityTag, Identity, Span};
use tidegate_engine::landing::{Begin, Landing, LandingRequest};
use tidegate_engine::part_file::Basis;
use tidegate_testkit::{Body, Origin, RangeAsked, Rate, Resource};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SIZE: u64 = 5 * GIB;

/// What is not here yet: across the mark of 2 GiB, across that of 4 GiB, and the end.
const MISSING: [(u64, u64); 3] =
    [(2 * GIB - MIB, 2 * GIB + MIB), (4 * GIB - 3 * MIB, 4 * GIB + 3 * MIB), (SIZE - 2 * MIB - 1, SIZE)];

/// Zeros but where bytes are missing: so what is here is a hole that takes no room.
fn body() -> Body {
    let mut parts = Vec::new();
    let mut at = 0;
    for (seed, (start, end)) in (1..).zip(MISSING) {
        parts.extend([Body::zeros(start - at), Body::random(seed, end - start)]);
        at = end;
    }
    Body::joined(parts)
}

/// A part and its checkpoint, made as a run makes them, in which all is recorded but what is missing.
fn run_before(folder: &Path, url: &str) {
    let mut landing = Landing::open(LandingRequest {
        dir: folder.to_owned(),
        name: PathBuf::from("big.iso"),
        explicit_name: false,
        url: url.parse().unwrap(),
        resume: Resume::Auto,
        adopt: None,
    })
    .unwrap();
    let identity = Identity { length: Some(SIZE), etag: EntityTag::parse("\"v1\""), ..Identity::default() };
    let options = Options { preallocate: Preallocate::None, ..Options::default() };
    let begun = landing.begin(&identity, OsStr::new("big.iso"), Basis::Nothing, &options).unwrap();
    let Begin::Fetch(version) = begun else { panic!("{begun:?}") };
    OpenOptions::new().write(true).open(landing.part_path()).unwrap().set_len(SIZE).unwrap();
    let mut at = 0;
    for (start, end) in MISSING {
        landing.part().written(version, Span::new(at, start).unwrap()).unwrap();
        at = end;
    }
    let missing: u64 = MISSING.iter().map(|(start, end)| end - start).sum();
    assert_eq!(landing.keep().unwrap(), SIZE - missing);
}

#[test]
fn a_file_of_5_gib_that_was_cut_goes_on_across_4_gib_and_to_its_last_byte() {
    let folder = tempfile::tempdir().unwrap();
    let space = rustix::fs::statvfs(folder.path()).unwrap();
    if space.f_bavail * space.f_frsize < SIZE + GIB {
        println!("left out, since the disk would not be taken to have room for 5 GiB");
        return;
    }
    let body = body();
    assert_eq!(body.len(), SIZE);
    let resource = Resource::new(body.clone()).rate(Rate::mib(4)).last_modified(None);
    let origin = Origin::builder().resource("/big.iso", resource).start().unwrap();
    let url = origin.url("/big.iso");
    run_before(folder.path(), &url);
    let words = ["--preallocate", "none", "--sync", "none", &url];

    // Once more it is cut, in the middle of what is missing.
    let mut child = command(folder.path(), &words).spawn().unwrap();
    assert!(sent(&origin, 3 * MIB, &mut child), "{:?}", child.wait_with_output());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(names(folder.path()), ["big.iso.part", "big.iso.part.tide"]);

    let output = run(folder.path(), &words);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(names(folder.path()), ["big.iso"]);
    let file = std::fs::File::open(folder.path().join("big.iso")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), SIZE);
    for (start, end) in MISSING {
        let around = start - 64 * 1024..(end + 64 * 1024).min(SIZE);
        let mut here = vec![0xAA; usize::try_from(around.end - around.start).unwrap()];
        file.read_exact_at(&mut here, around.start).unwrap();
        assert!(here == body.bytes_of(around.clone()), "{around:?}");
    }
    // st_blocks counts in 512 bytes: only what came takes room.
    assert!(file.metadata().unwrap().blocks() * 512 < 32 * MIB, "{:?}", file.metadata());
    let missing: u64 = MISSING.iter().map(|(start, end)| end - start).sum();
    let counters = origin.counters();
    assert!(counters.body_bytes < missing + 4 * MIB, "{} for {missing}", counters.body_bytes);
    let beyond = |range: &&str| matches!(RangeAsked::parse(range), RangeAsked::From(at, _) if at >= 4 * GIB);
    let requests = origin.requests();
    assert!(requests.iter().filter_map(|r| r.field("range")).filter(|r| beyond(r)).count() > 0);
}
