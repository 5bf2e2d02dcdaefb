//! Very many small files, as they are counted by the server: no figure of time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::process::Command;
use tidegate_testkit::{Body, Origin, Resource};

const FILES: u64 = 200;
const PARALLEL: u64 = 32;
const SIZE: u64 = 10 << 10;

fn many_small_files(more: &[&str]) {
    let body = |number| Body::random(number, SIZE);
    let mut origin = Origin::builder();
    for number in 0..FILES {
        origin = origin.resource(&format!("/{number}"), Resource::new(body(number)));
    }
    let origin = origin.start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut list = String::new();
    for number in 0..FILES {
        writeln!(list, "{}\n  out=file-{number}", origin.url(&format!("/{number}"))).unwrap();
    }
    let list_file = folder.path().join("list.txt");
    std::fs::write(&list_file, list).unwrap();
    let into = folder.path().join("into");
    let parallel = PARALLEL.to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["get", "--proxy", "none", "-j", &parallel, "--max-host", &parallel, "-i"])
        .arg(list_file)
        .arg("-d")
        .arg(&into)
        .args(more)
        .env_clear()
        .env("HOME", folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));

    let counters = origin.counters();
    assert_eq!(counters.requests, FILES, "each file is asked for once: {counters:?}");
    assert_eq!(counters.body_bytes, FILES * SIZE);
    // Some are opened in vain, when another connection comes free just then.
    assert!(counters.connects <= 2 * PARALLEL, "connections are used again: {counters:?}");
    let names = std::fs::read_dir(&into).unwrap().count() as u64;
    assert_eq!(names, FILES, "nothing but the files is left");
    for number in 0..FILES {
        let path = into.join(format!("file-{number}"));
        assert_eq!(body(number).first_difference_in(path).unwrap(), None, "file {number}");
    }
}

#[test]
fn many_small_files_come_with_one_request_each_over_few_connections() {
    many_small_files(&["--sync", "none"]);
}

#[test]
fn many_small_files_that_are_synced_leave_nothing_else_either() {
    many_small_files(&[]);
}
