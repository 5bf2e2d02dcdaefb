//! What the tests of whole runs share: the program, started in a folder of its own.

#![allow(dead_code, clippy::unwrap_used, clippy::panic, reason = "each test file uses its part")]

use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tidegate_testkit::Origin;

/// What takes longer than this hangs.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);

/// The program with these arguments, in this folder, with no settings of the user's.
pub(crate) fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .args(words)
        .current_dir(folder)
        .env_clear()
        // Which way bodies go to the disk, and where the engine runs, may be chosen for a whole run of the tests.
        .envs(
            ["TIDEGATE_BUFFERED", "TIDEGATE_ENGINE"]
                .into_iter()
                .filter_map(|name| Some((name, std::env::var_os(name)?))),
        )
        .env("HOME", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs the program to its end.
pub(crate) fn run(folder: &Path, words: &[&str]) -> Output {
    command(folder, words).output().unwrap()
}

/// What it said to a person.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The names in a folder, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Sends a signal to the program.
pub(crate) fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Waits until the server has handed over this many bytes in all, or the program has ended. Says
/// whether the bytes came first.
pub(crate) fn sent(origin: &Origin, bytes: u64, child: &mut Child) -> bool {
    let until = Instant::now() + LONGEST;
    while Instant::now() < until {
        if origin.wait_until(Duration::from_millis(50), |c| c.body_bytes >= bytes) {
            return true;
        }
        if child.try_wait().unwrap().is_some() {
            return false;
        }
    }
    panic!("{bytes} bytes are never asked for: {:?}", origin.counters());
}
