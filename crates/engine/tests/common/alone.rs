//! A harness for tests whose program is also what it starts: each test runs in a process of its own, so that what it
//! counts is its own, and what it starts can learn from that process which test it is for.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "this is a harness, and each program uses its part"
)]

use std::panic::catch_unwind;
use std::process::{Command, ExitCode};

/// Each test by its name.
pub(crate) type Tests = [(&'static str, fn())];

/// Names the test that this process is for.
pub(crate) const ALONE: &str = "TIDEGATE_TEST_ALONE";

/// A folder that is gone when that test has ended.
const FOLDER: &str = "TIDEGATE_TEST_FOLDER";

/// Runs what `cargo test` and `cargo nextest` ask for.
pub(crate) fn run(tests: &Tests) -> ExitCode {
    if let Ok(alone) = std::env::var(ALONE) {
        let test = tests.iter().find(|(name, _)| *name == alone).unwrap().1;
        return if catch_unwind(test).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| words.iter().any(|this| this == word);
    // Of what else they say nothing matters here: `--format terse`, `--test-threads 1`.
    let is_value = |word: &String| word == "terse" || word == "pretty" || word.parse::<u32>().is_ok();
    let filters: Vec<&String> =
        words.iter().filter(|word| !word.starts_with('-') && !is_value(word)).collect();
    let chosen = |name: &str| {
        let fits = |filter: &&String| if has("--exact") { name == *filter } else { name.contains(*filter) };
        !has("--ignored") && (filters.is_empty() || filters.iter().any(fits))
    };
    let chosen = tests.iter().filter(|(name, _)| chosen(name));
    if has("--list") {
        chosen.for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let mut code = ExitCode::SUCCESS;
    for (name, _) in chosen {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("/proc/self/exe");
        let status = command.env(ALONE, name).env(FOLDER, folder.path()).status().unwrap();
        println!("test {name} ... {}", if status.success() { "ok" } else { "FAILED" });
        if !status.success() {
            code = ExitCode::from(101);
        }
    }
    code
}

/// The folder of the test that this process, or whoever started it, is for.
pub(crate) fn folder() -> std::path::PathBuf {
    of_the_test(FOLDER).into()
}

/// The name of that test.
pub(crate) fn name() -> String {
    of_the_test(ALONE)
}

/// A variable of that test's process: a process of the engine has no environment of its own.
fn of_the_test(variable: &str) -> String {
    if let Ok(value) = std::env::var(variable) {
        return value;
    }
    let parent = std::os::unix::process::parent_id();
    let environment = std::fs::read(format!("/proc/{parent}/environ")).unwrap();
    let found = environment.split(|byte| *byte == 0).find_map(|word| {
        let word = std::str::from_utf8(word).ok()?;
        word.strip_prefix(variable)?.strip_prefix('=')
    });
    found.unwrap().to_owned()
}
