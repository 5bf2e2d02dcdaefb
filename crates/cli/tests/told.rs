//! What a person at a terminal is told: the whole program, and the words with which it ends.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod program;

use program::{names, run, said, signal};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tidegate_testkit::{Answer, Body, Origin, Resource};

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn events(output: &Output) -> Vec<serde_json::Value> {
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

fn count(output: &Output, name: &str) -> usize {
    events(output).iter().filter(|event| event["event"] == name).count()
}

#[test]
fn a_port_that_refuses_from_the_start_is_believed_at_once() {
    let origin = Origin::serve(Resource::new(Body::random(1, 9000))).unwrap();
    origin.refuse_connects();
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["--json", &origin.entry_url()]);
    assert_eq!((code(&output), count(&output, "waiting")), (Some(1), 0), "{output:?}");
    let failed = events(&output).into_iter().find(|event| event["event"] == "failed").unwrap();
    assert_eq!(failed["failure"]["code"], "connect-failed");
    let host = origin.address();
    let message = format!("no connection to {host}: connection refused");
    assert_eq!(failed["failure"]["message"], message, "said once and without a number");
}

#[test]
fn a_port_that_refuses_when_some_of_the_file_is_here_is_waited_for() {
    let body = Body::random(2, 4 << 20);
    let origin = Origin::builder().resource("/a.bin", Resource::new(body.clone())).start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = origin.url("/a.bin");
    let mut child = program::command(folder.path(), &["--json", "--limit", "1M", &url]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| {
        let event: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        event["event"] == "progress" && event["have"].as_u64() > Some(1 << 20)
    }));
    signal(&child, Signal::INT);
    assert!(lines.last().unwrap().unwrap().contains("\"exit\":130"));
    child.wait().unwrap();

    origin.refuse_connects();
    let words = ["--json", "--retries", "2", "--retry-wait", "10ms", &url];
    let output = run(folder.path(), &words);
    assert_eq!((code(&output), count(&output, "waiting")), (Some(1), 2), "{output:?}");
    origin.restore_network();
    let output = run(folder.path(), &words);
    assert_eq!(code(&output), Some(0), "{output:?}");
    assert_eq!(body.first_difference_in(folder.path().join("a.bin")).unwrap(), None);
}

#[test]
fn a_mirror_that_refuses_is_left_for_the_next() {
    let body = Body::random(3, 1 << 20);
    let gone = Origin::serve(Resource::new(body.clone())).unwrap();
    let here = Origin::serve(Resource::new(body.clone())).unwrap();
    gone.refuse_connects();
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["--json", &gone.entry_url(), "--mirror", &here.entry_url()]);
    assert_eq!((code(&output), count(&output, "waiting")), (Some(0), 0), "{output:?}");
    assert_eq!(names(folder.path()), ["file.bin"]);
}

#[test]
fn a_file_where_a_folder_is_wanted_is_told_before_any_server_is_asked() {
    let origin = Origin::serve(Resource::new(Body::random(4, 9000))).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("taken"), "mine").unwrap();
    let url = origin.entry_url();
    for words in [&["-d", "taken"][..], &["-d", "taken/below"], &["-o", "taken/x"], &["-d", "taken/a/b/c"]] {
        let output = run(folder.path(), &[words, &[&url]].concat());
        assert_eq!(code(&output), Some(2), "{words:?}: {output:?}");
        let told = "taken is a file, not a folder [usage]\n  Choose another folder with -d";
        assert!(said(&output).contains(told), "{words:?}: {}", said(&output));
    }
    let output = run(folder.path(), &["-d", "/proc/self", &url]);
    assert_eq!(code(&output), Some(2), "{output:?}");
    assert!(said(&output).contains("/proc/self is made up by the system and takes no files"), "{output:?}");
    assert_eq!((origin.counters().connects, names(folder.path())), (0, vec!["taken".to_owned()]));
}

#[test]
fn a_link_without_a_name_is_called_by_its_host_until_it_has_one() {
    let refused = Resource::new(Body::random(5, 9)).gate(|_| Some(Answer::status(403)));
    let origin = Origin::builder().resource("/", refused).start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &[&origin.url("/")]);
    let start = format!("{}: ", origin.address());
    assert!(said(&output).starts_with(&start) && !said(&output).contains("index.html"), "{}", said(&output));
}

#[test]
fn with_a_wrong_digest_it_is_said_what_is_kept_and_what_the_next_run_does() {
    let body = Body::random(6, 2 << 20);
    let origin = Origin::builder().resource("/a.bin", Resource::new(body.clone())).start().unwrap();
    let (folder, url) = (tempfile::tempdir().unwrap(), origin.url("/a.bin"));
    let wrong = format!("sha-256={}", "0".repeat(64));
    let right = format!("sha-256={}", body.sha256_hex());
    let output = run(folder.path(), &["--checksum", &wrong, &url]);
    assert_eq!(code(&output), Some(4), "{output:?}");
    let text = said(&output);
    for piece in [&wrong[..], &right, "it did not get its name", "2.0 MiB stay in the .part file"] {
        assert!(text.contains(piece), "{piece:?} is not in {text}");
    }
    assert_eq!(names(folder.path()), ["a.bin.part", "a.bin.part.tide"]);

    // What was said of the next run is true: with the right one nothing comes again but a sample.
    let before = origin.counters().body_bytes;
    let output = run(folder.path(), &["--checksum", &right, &url]);
    assert_eq!(code(&output), Some(0), "{output:?}");
    assert!(origin.counters().body_bytes - before < 1 << 20, "{:?}", origin.counters());
    assert_eq!(names(folder.path()), ["a.bin"]);
    assert!(said(&output).contains("from before"), "{}", said(&output));
}

#[test]
fn what_was_given_up_for_want_of_a_right_is_counted_as_the_exit_code_says() {
    let origin = Origin::serve(Resource::new(Body::random(9, 9000))).unwrap();
    let folder = tempfile::tempdir().unwrap();
    // Nobody may make files there, whoever asks.
    let output = run(folder.path(), &["--json", "-d", "/sys", &origin.entry_url()]);
    let last = events(&output).pop().unwrap();
    let counts = (&last["failed"], &last["incomplete"], &last["exit"]);
    assert_eq!(counts, (&1.into(), &0.into(), &1.into()), "{output:?}");
    assert_eq!(code(&output), Some(1));
}

#[test]
fn of_many_files_the_last_line_says_how_many_failed() {
    let origin = Origin::builder().resource("/a", Resource::new(Body::random(8, 9))).start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("list"), format!("{0}/a\n{0}/gone\n{0}/a\n out=b\n", origin.url("")))
        .unwrap();
    let output = run(folder.path(), &["-i", "list", "-j", "1"]);
    assert_eq!(code(&output), Some(1), "{output:?}");
    assert!(said(&output).ends_with("\n2 of 3 done, 1 given up (see above)\n"), "{}", said(&output));
    assert_eq!(names(folder.path()), ["a", "b", "list"]);
    // A single failure is its own summary.
    let output = run(folder.path(), &[&origin.url("/gone")]);
    assert!(said(&output).ends_with("it may have moved or expired.\n"), "{}", said(&output));
}

#[test]
fn a_reader_of_standard_output_that_has_seen_enough_is_no_failure_of_a_disk() {
    let origin =
        Origin::builder().resource("/a.bin", Resource::new(Body::random(10, 16 << 20))).start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let url = origin.url("/a.bin");
    for (words, text) in [
        (&["-o", "-"][..], "a.bin: stopped, since nobody reads standard output any more\n"),
        (
            &["-o", "-", "--when-full", "wait"],
            "a.bin: stopped, since nobody reads standard output any more\n",
        ),
        (&["-q", "-o", "-"], ""),
    ] {
        let mut child = program::command(folder.path(), &[words, &[&url]].concat()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(code(&output), Some(141), "{words:?}: {output:?}");
        assert!(said(&output).ends_with(text) && !said(&output).contains("disk"), "{words:?}: {output:?}");
        assert!(!text.is_empty() || said(&output).is_empty(), "{output:?}");
    }
    assert_eq!(names(folder.path()), Vec::<String>::new());
}

#[test]
fn a_dry_run_says_what_could_be_fetched_and_claims_no_more() {
    let origin = Origin::builder().resource("/a", Resource::new(Body::random(11, 9))).start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["--dry-run", "-d", "r", &origin.url("/a"), &origin.url("/gone")]);
    assert_eq!(code(&output), Some(1), "{output:?}");
    let text = said(&output);
    assert!(text.contains("a: would be called r/a, if that is free\n"), "{text}");
    assert!(text.ends_with("\n1 of 2 could be fetched, 1 could not (see above)\n"), "{text}");
}

#[test]
fn a_name_that_the_checksum_file_lacks_is_told_with_those_that_it_has() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("SUMS"), format!("{}  a.bin\n", "0".repeat(64))).unwrap();
    let output = run(folder.path(), &["--checksum-file", "SUMS", "-o", "newname", "http://h.invalid/a.bin"]);
    assert_eq!(code(&output), Some(2), "{output:?}");
    let told =
        "SUMS has no digest for \"newname\" [usage]\n  It lists a.bin. Or give the digest with --checksum";
    assert!(said(&output).contains(told), "{}", said(&output));
}

#[test]
fn a_file_and_the_source_of_a_manual_page_are_not_for_a_terminal() {
    let origin = Origin::builder().resource("/a.bin", Resource::new(Body::random(12, 9))).start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let text = on_a_terminal(folder.path(), 200, &["-o", "-", &origin.url("/a.bin")]).join("\n");
    assert!(text.contains("-o - would write the file to this terminal"), "{text}");
    assert_eq!(origin.counters().requests, 0);
    let text = on_a_terminal(folder.path(), 200, &["man", "get"]).join("\n");
    assert!(text.ends_with("to read it: tidegate man get | man -l -"), "{text}");
}

/// Runs the program on a terminal of so many columns, and tells the lines that it wrote there.
fn on_a_terminal(folder: &Path, columns: u16, words: &[&str]) -> Vec<String> {
    let program = env!("CARGO_BIN_EXE_tidegate");
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let line = format!("stty cols {columns} rows 24; exec '{program}' {}", quoted.join(" "));
    // Of util-linux; it makes a terminal and copies what is written there.
    let output = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .current_dir(folder)
        .env_clear()
        .env("HOME", folder)
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("TERM", "xterm")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // What moves and clears stands before what is written.
    let written = |line: &str| match line.rsplit_once('\x1b') {
        Some((_, last)) => last
            .trim_start_matches(|c: char| !c.is_ascii_alphabetic())
            .get(1..)
            .unwrap_or_default()
            .to_owned(),
        None => line.to_owned(),
    };
    text.lines().map(|line| written(line.trim_end())).collect()
}

#[test]
fn on_a_narrow_terminal_no_word_of_a_reason_is_cut_off_or_broken() {
    let origin = Origin::builder().resource("/a.bin", Resource::new(Body::random(7, 9))).start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for words in [&["get"][..], &["get", "--quiet"]] {
        let lines = on_a_terminal(folder.path(), 40, &[words, &[&origin.url("/not-there.bin")]].concat());
        // A link keeps a line to itself, whatever it takes.
        let fits = |line: &String| line.chars().count() < 40 || line.split_whitespace().count() == 1;
        assert!(lines.iter().all(fits), "{lines:#?}");
        let all = lines.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(all.contains("does not exist (404) [not-found]"), "{lines:#?}");
        assert!(all.contains("Check the link; it may have moved or expired."), "{lines:#?}");
    }
}
