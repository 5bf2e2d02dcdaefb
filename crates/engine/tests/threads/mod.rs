//! Which threads of engines this process has.

#![allow(dead_code, clippy::unwrap_used, clippy::panic, reason = "each test file uses its part")]

use std::time::{Duration, Instant};

/// The names of the threads that engines have started, sorted.
pub(crate) fn of_engines() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir("/proc/self/task")
        .unwrap()
        // A thread may end while it is looked at.
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("comm")).ok())
        .map(|name| name.trim_end().to_owned())
        .filter(|name| name == "control" || name.starts_with("data-") || name.starts_with("cold-"))
        .collect();
    names.sort();
    names
}

/// Waits until no thread of an engine is left.
pub(crate) fn wait_for_none(longest: Duration) {
    let until = Instant::now() + longest;
    while !of_engines().is_empty() {
        assert!(Instant::now() < until, "left running: {:?}", of_engines());
        std::thread::park_timeout(Duration::from_millis(1));
    }
}
