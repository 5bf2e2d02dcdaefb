//! The program against a server: what it fetches, says and ends with.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tidegate_testkit::{Body, Origin, Resource};

const LONG: Duration = Duration::from_secs(60);

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .args(words)
        .current_dir(folder)
        .env_clear()
        .env("HOME", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run(folder: &Path, words: &[&str]) -> Output {
    command(folder, words).output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("{output:?}"))
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn is(path: &Path, body: &Body) -> bool {
    body.first_difference_in(path).unwrap().is_none()
}

fn interrupt(child: &Child) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
}

#[test]
fn a_file_arrives_whole_under_its_name_and_leaves_nothing_else() {
    let body = Body::random(1, 3 << 20);
    let origin = Origin::builder().resource("/a.bin", Resource::new(body.clone())).start().unwrap();
    let folder = folder();
    let output = run(folder.path(), &[&origin.url("/a.bin")]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(names(folder.path()), ["a.bin"]);
    assert!(is(&folder.path().join("a.bin"), &body));
    assert_eq!(output.stdout, b"");
    assert!(err(&output).contains("a.bin: done, 3.0 MiB"), "{}", err(&output));

    let output = run(folder.path(), &[&origin.url("/a.bin")]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(err(&output).contains("is here already, whole"), "{}", err(&output));
    assert_eq!(names(folder.path()), ["a.bin"]);
}

#[test]
fn each_way_to_fail_has_its_exit_code_and_says_what_to_do() {
    let body = Body::random(2, 1 << 20);
    let origin = Origin::builder().resource("/a.bin", Resource::new(body.clone())).start().unwrap();
    let (there, gone) = (origin.url("/a.bin"), origin.url("/gone"));
    let wrong = format!("sha-256={}", "0".repeat(64));
    let right = format!("sha-256={}", body.sha256_hex());
    let table: &[(&[&str], i32, &str)] = &[
        (&[&there, "--checksum", &right], 0, "it has the digest that it should"),
        (&[&there, "--checksum", &wrong], 4, "[digest-mismatch]"),
        (&[&gone], 1, "[not-found]"),
        (&[&there, &gone, "-j", "1"], 1, "a.bin: done"),
        (&[&there, "-o", "here", "--on-exists", "fail"], 1, "[exists]"),
        (&["http://127.0.0.1:1/a", "--retries", "0"], 1, "[connect-failed]"),
    ];
    for (words, expected, text) in table {
        let folder = folder();
        std::fs::write(folder.path().join("here"), "mine").unwrap();
        let output = run(folder.path(), words);
        assert_eq!(code(&output), *expected, "{words:?}: {}", err(&output));
        assert!(err(&output).contains(text), "{words:?}: {}", err(&output));
        assert_eq!(output.stdout, b"");
        assert_eq!(std::fs::read(folder.path().join("here")).unwrap(), b"mine");
        if *expected == 4 {
            assert!(!folder.path().join("a.bin").exists(), "wrong bytes have no final name");
        }
    }
}

#[test]
fn quiet_means_errors_only() {
    let origin = Origin::builder().resource("/a", Resource::new(Body::random(3, 9000))).start().unwrap();
    let folder = folder();
    assert_eq!(err(&run(folder.path(), &["-q", &origin.url("/a")])), "");
    assert!(err(&run(folder.path(), &["-q", &origin.url("/b")])).contains("[not-found]"));
}

#[test]
fn standard_output_gets_the_bytes_in_order() {
    let body = Body::random(4, 3 << 20);
    let origin = Origin::builder().resource("/a", Resource::new(body.clone())).start().unwrap();
    let folder = folder();
    let output = run(folder.path(), &["-o", "-", &origin.url("/a")]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(output.stdout == body.to_vec());
    assert!(names(folder.path()).is_empty());
}

#[test]
fn what_the_server_is_told_is_what_the_command_line_says() {
    let origin = Origin::builder().resource("/a", Resource::new(Body::random(5, 9000))).start().unwrap();
    let folder = folder();
    let host = origin.address().ip().to_string();
    std::fs::write(folder.path().join("cookies"), format!("{host}\tFALSE\t/\tFALSE\t0\tk\tv\n")).unwrap();
    let words = [
        "-H",
        "X-Mine: yes",
        "--user-agent",
        "me/1",
        "--referer",
        "http://r.example/",
        "--cookies",
        "cookies",
        &origin.url("/a"),
    ];
    let output = run(folder.path(), &words);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let requests = origin.requests();
    let seen = requests.first().unwrap();
    for (field, value) in
        [("x-mine", "yes"), ("user-agent", "me/1"), ("referer", "http://r.example/"), ("cookie", "k=v")]
    {
        assert_eq!(seen.field(field), Some(value), "{field}");
    }
}

#[test]
fn a_list_is_fetched_to_the_places_that_it_names() {
    let (a, b) = (Body::random(6, 9000), Body::random(7, 9000));
    let origin = Origin::builder()
        .resource("/a", Resource::new(a.clone()))
        .resource("/b", Resource::new(b.clone()))
        .start()
        .unwrap();
    let folder = folder();
    let list = format!("{}\n  out=sub/one\n{}\n", origin.url("/a"), origin.url("/b"));
    std::fs::write(folder.path().join("list"), list).unwrap();
    let output = run(folder.path(), &["-i", "list", "-d", "to"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(is(&folder.path().join("to/sub/one"), &a));
    assert!(is(&folder.path().join("to/b"), &b));
}

#[test]
fn events_are_json_and_the_last_tells_the_exit_code() {
    let origin = Origin::builder().resource("/a", Resource::new(Body::random(8, 9000))).start().unwrap();
    let folder = folder();
    let output = run(folder.path(), &["--json", &origin.url("/a"), &origin.url("/gone")]);
    assert_eq!(code(&output), 1);
    let events: Vec<serde_json::Value> = output
        .stdout
        .split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice(l).unwrap())
        .collect();
    let named = |name: &str| events.iter().filter(|e| e["event"] == name).count();
    assert_eq!((named("added"), named("completed"), named("failed"), named("finished")), (2, 1, 1, 1));
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["exit"]), (&"finished".into(), &1.into()));
    assert_eq!(err(&output), "");
}

#[test]
fn ctrl_c_saves_and_the_same_command_goes_on() {
    let body = Body::random(9, 4 << 20);
    let origin = Origin::builder().resource("/a.bin", Resource::new(body.clone())).start().unwrap();
    let folder = folder();
    let url = origin.url("/a.bin");
    let mut child = command(folder.path(), &["--json", "--limit", "1M", &url]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // Once some of the file is here and none of it is whole.
    let begun = lines.any(|line| {
        let event: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        event["event"] == "progress" && event["have"].as_u64() > Some(1 << 20)
    });
    assert!(begun);
    interrupt(&child);
    assert!(lines.last().unwrap().unwrap().contains("\"exit\":130"));
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 130, "{}", err(&output));
    assert!(!folder.path().join("a.bin").exists());
    assert!(folder.path().join("a.bin.part").exists());

    let output = run(folder.path(), &["--json", &url]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert!(is(&folder.path().join("a.bin"), &body));
    let text = String::from_utf8(output.stdout).unwrap();
    let done: serde_json::Value = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .find(|e: &serde_json::Value| e["event"] == "completed")
        .unwrap();
    assert!(done["received"].as_u64() < Some(body.len() - (1 << 20)), "nothing was kept: {done}");
    assert_eq!(names(folder.path()), ["a.bin"]);
}

#[test]
fn when_the_reader_of_events_goes_away_the_run_is_saved_and_ends() {
    let origin =
        Origin::builder().resource("/a.bin", Resource::new(Body::random(10, 64 << 20))).start().unwrap();
    let folder = folder();
    let mut child =
        command(folder.path(), &["--json", "--limit", "1M", &origin.url("/a.bin")]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("added"));
    assert!(origin.wait_until(LONG, |c| c.requests > 0));
    drop(lines);
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 141, "{}", err(&output));
}
