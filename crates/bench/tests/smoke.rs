//! Every command once, as small as it can be: the object that it prints, its exit code, and counts. No figure
//! that depends on how busy the machine is.
#![allow(clippy::unwrap_used, reason = "a failure here is the failure of a test")]

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The program that is measured. It is built here if only this package is tested.
fn tidegate() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let path = PathBuf::from(env!("CARGO_BIN_EXE_tidegate-bench")).with_file_name("tidegate");
    let built = BUILT.get_or_init(|| {
        if !path.exists() {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let status = Command::new(cargo)
                .args(["build", "--quiet", "--locked", "-p", "tidegate", "--manifest-path"])
                .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"))
                .status();
            assert!(status.unwrap().success(), "tidegate can be built");
        }
        path.clone()
    });
    built.clone()
}

fn bench(words: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
        .args(words)
        .args(["--json", "--quick", "--tidegate"])
        .arg(tidegate())
        .current_dir(dir.path())
        .env("TMPDIR", dir.path())
        .output()
        .unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{words:?} leaves nothing behind");
    output
}

/// Runs a command that must end with `code`, and reads what it prints.
fn measured(words: &[&str], code: i32) -> Value {
    let output = bench(words);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{words:?}\n{out}\n{err}");
    let object: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(object["command"], words[0]);
    assert!(object["machine"]["kernel"].as_str().unwrap().starts_with("Linux "));
    assert!(object["versions"]["tidegate_bench"].is_string());
    let failures = object["failures"].as_array().unwrap();
    assert_eq!(failures.is_empty(), code == 0, "{failures:?}");
    assert_eq!(err.matches("FAIL: ").count(), failures.len(), "{err}");
    let rows = object["rows"].as_array().unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        let names: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, ["arm", "metric", "unit", "median", "min", "max", "n", "bar", "holds"]);
        let metric = row["metric"].as_str().unwrap();
        assert!(metric.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{row}");
        let (least, median, most) = (&row["min"], &row["median"], &row["max"]);
        assert!(least.as_f64().unwrap() <= median.as_f64().unwrap(), "{row}");
        assert!(median.as_f64().unwrap() <= most.as_f64().unwrap(), "{row}");
        assert!(row["n"].as_u64().unwrap() > 0, "{row}");
        assert_eq!(row["bar"].is_null(), row["holds"].is_null(), "{row}");
    }
    object
}

/// The median of an arm's metric.
fn median(object: &Value, arm: &str, metric: &str) -> f64 {
    let rows = object["rows"].as_array().unwrap();
    let row =
        rows.iter().find(|row| row["arm"].as_str().unwrap().starts_with(arm) && row["metric"] == metric);
    assert!(row.is_some(), "{arm} {metric}: {object}");
    row.unwrap()["median"].as_f64().unwrap()
}

/// Arms of ours, of which every run counted.
fn nothing_failed(object: &Value) {
    let rows = object["rows"].as_array().unwrap();
    assert!(!rows.iter().any(|row| row["metric"] == "failed_runs"), "{object}");
}

const SMALL: [&str; 8] = ["--size", "4M", "--runs", "1", "--connections", "2", "--dir", "."];

#[test]
fn throughput_measures_ours_and_the_bare_loops() {
    let words = [&["throughput", "--no-peers", "--require-mbps", "0.001"][..], &SMALL].concat();
    let object = measured(&words, 0);
    nothing_failed(&object);
    for arm in ["ours/", "ours_synced/", "floor_discard/", "floor_write/", "floor_copy/", "floor_splice/"] {
        assert!(median(&object, arm, "throughput_mbps") > 0.0);
    }
    assert!(median(&object, "ours/", "ratio_to_floor_copy") > 0.0);
    assert!(median(&object, "ours/", "requests") >= 1.0);
}

#[test]
fn throughput_speaks_tls() {
    let words = [&["throughput", "--no-peers", "--tls"][..], &SMALL].concat();
    let object = measured(&words, 0);
    nothing_failed(&object);
    assert!(median(&object, "ours/", "vm_hwm_kib") > 0.0);
}

#[test]
fn an_impossible_bar_is_missed() {
    let words = [&["throughput", "--no-peers", "--no-floors", "--require-mbps", "1e15"][..], &SMALL].concat();
    let object = measured(&words, 1);
    let row = object["rows"].as_array().unwrap().iter().find(|row| row["holds"] == false).unwrap();
    assert_eq!(row["metric"], "throughput_mbps");
    assert_eq!(row["bar"], ">= 1000000000000000");
}

#[test]
fn a_bar_beside_an_arm_that_is_not_there_is_missed() {
    let words = [&["throughput", "--no-peers", "--max-cpu-ratio", "curl=1e9"][..], &SMALL].concat();
    measured(&words, 1);
}

#[test]
fn peers_are_measured_or_named_as_missing() {
    let object = measured(&[&["peers"][..], &SMALL].concat(), 0);
    for peer in ["curl", "aria2c", "axel", "wget2"] {
        let notes = object["notes"].as_array().unwrap();
        let is_named = notes.iter().any(|note| note.as_str().unwrap().starts_with(peer));
        let is_there = object["versions"][peer].is_string();
        assert!(is_named || is_there, "{peer}: {object}");
    }
}

#[test]
fn usage_that_makes_no_sense_is_told() {
    for words in [
        &["throughput", "--size", "x"][..],
        &["throughput", "--link", "10gbit"],
        &["throughput", "--dir", "/nonexistent"],
        &["throughput", "--runs", "0"],
        &["throughput", "--link", "1gbit", "--server", "nginx"],
        &["peers", "--peers", "lynx"],
        &["line", "--scenario", "fast"],
        &["unknown"],
    ] {
        assert_eq!(bench(words).status.code(), Some(2), "{words:?}");
    }
    let bare = Command::new(env!("CARGO_BIN_EXE_tidegate-bench")).output().unwrap();
    assert_eq!(bare.status.code(), Some(2));
    let lost = Command::new(env!("CARGO_BIN_EXE_tidegate-bench"))
        .args(["peers", "--tidegate", "/nonexistent/tidegate"])
        .output()
        .unwrap();
    assert_eq!(lost.status.code(), Some(2));
}

#[test]
fn a_line_of_its_own_is_made_by_root_and_refused_to_others() {
    let words = [&["throughput", "--no-peers", "--no-floors", "--link", "1gbit"][..], &SMALL].concat();
    let output = bench(&words);
    if output.status.code() == Some(0) {
        return;
    }
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("needs root"), "{output:?}");
}

#[test]
fn load_counts_what_failed() {
    let words =
        ["load", "--tasks", "3", "--segments", "2", "--task-size", "256k", "--rate", "0", "--no-peers"];
    let object = measured(&words, 0);
    assert_eq!(median(&object, "ours", "failed"), 0.0);
    assert!(median(&object, "ours", "requests") >= 3.0);
    measured(&[&words[..], &["--require-rss-kb", "1"]].concat(), 1);
}

#[test]
fn load_runs_many_small_files_some_at_a_time() {
    let words = ["load", "--tasks", "60", "--segments", "1", "--task-size", "10k", "--rate", "0"];
    let more = ["--parallel", "8", "--peers", "curl,aria2c", "--max-connects", "16"];
    let object = measured(&[&words[..], &more].concat(), 0);
    for arm in ["ours", "ours_synced"] {
        assert_eq!((median(&object, arm, "failed"), median(&object, arm, "left_over")), (0.0, 0.0));
        assert_eq!(median(&object, arm, "requests"), 60.0);
        assert!(median(&object, arm, "most_connections") <= 8.0);
    }
    measured(&[&words[..], &["--no-peers", "--parallel", "8", "--max-connects", "1"]].concat(), 1);
}

#[test]
fn a_steady_transfer_allocates_nothing() {
    let words = ["alloc-check", "--size", "32M", "--window-s", "0.3", "--connections", "2"];
    let object = measured(&[&words[..], &["--max-allocations", "0"]].concat(), 0);
    for arm in ["limited", "paced", "limited_quiet", "paced_quiet"] {
        assert_eq!(median(&object, arm, "allocations"), 0.0);
        assert!(median(&object, arm, "bytes_in_window") > 0.0);
    }
}

#[test]
fn a_slow_disk_is_slow_and_the_file_is_right() {
    let object = measured(&["slow-writer", "--size", "2M", "--rate", "4M", "--connections", "2"], 0);
    nothing_failed(&object);
    // It cannot be faster than the disk with its little cache, however fast the machine.
    assert!(median(&object, "ours/slow", "ratio_to_ideal") >= 0.85);
    assert!(median(&object, "ours/slow", "peak_pss_ratio_to_fast") > 0.0);
    // Plain bodies go from the socket to the file without passing through the program's memory: but for what
    // came with a head, and the checkpoint.
    assert!(median(&object, "ours/slow", "spliced_kib") >= 1900.0);
    assert!(median(&object, "ours/slow", "written_kib") <= 200.0);
}

#[test]
fn fairness_is_told_of_what_the_server_saw() {
    let words = [
        "fairness",
        "--tasks",
        "4",
        "--limit",
        "512k",
        "--window-s",
        "1",
        "--scenario",
        "equal",
        "--runs",
        "1",
    ];
    let object = measured(&words, 0);
    assert!(median(&object, "equal", "jain_downloads") > 0.0);
    assert!(median(&object, "equal", "used_of_limit") > 0.0);
}

#[test]
fn what_a_process_of_its_own_costs_stands_beside_a_bare_one() {
    let object =
        measured(&["mode-cost", "--tls", "--max", "start_us=1e12", "--require", "throughput_ratio=0"], 0);
    for arm in ["in_process", "child"] {
        assert!(median(&object, arm, "throughput_mibps") > 0.0);
        assert!(median(&object, arm, "round_trip_busy_us") > 0.0);
        assert!(median(&object, arm, "shutdown_stop_us") > 0.0);
    }
    for metric in ["start_us", "round_trip_spaced_us", "round_trip_busy_us", "event_busy_us", "crash_busy_us"]
    {
        assert!(
            median(&object, "child", metric) > 0.0 && median(&object, "floor", metric) >= 0.0,
            "{metric}"
        );
    }
    // Another process goes on where one was killed, and does not begin again.
    assert!(median(&object, "child", "resume_us") > 0.0);
    assert!(median(&object, "child", "fetched_again_each_kib") < 2048.0);
    assert!(median(&object, "child", "spare_pss_kib") > 0.0);
    let words = ["boundary", "--max", "start_us=0", "--max", "never_measured=1"];
    let object = measured(&words, 1);
    assert!(median(&object, "engine", "start_us") > 0.0 && median(&object, "floor", "start_us") > 0.0);
    assert_eq!(object["failures"].as_array().unwrap().len(), 2, "{object}");
}

#[test]
fn a_line_is_held_to_its_ideal() {
    let words = [
        "line",
        "--scenario",
        "capped",
        "--scenario",
        "cut",
        "--ideal-s",
        "0.5",
        "--rate",
        "256k",
        "--no-peers",
    ];
    let object = measured(&words, 0);
    nothing_failed(&object);
    assert!(median(&object, "ours/capped", "ratio_to_ideal") >= 0.9);
    assert!(median(&object, "ours/cut", "connects") >= 1.0);
    measured(&[&words[..], &["--max-ratio", "0.01"]].concat(), 1);
}
