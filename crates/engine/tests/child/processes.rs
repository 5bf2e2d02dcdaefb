//! What this process has: children, descriptors, threads, memory.

#![allow(dead_code, clippy::unwrap_used, clippy::panic, reason = "each test file uses its part")]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The processes that `parent` has started and that are there, ended but not waited for included; sorted.
pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    let mut found: Vec<u32> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| parent_of(*number) == Some(parent))
        .collect();
    found.sort_unstable();
    found
}

/// Who started a process, if that is there.
fn parent_of(number: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The name is in brackets and may have anything in it.
    status.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// A process that this one or a child of it has started, so that it is the same one all the time.
pub(crate) fn hold(number: u32, parent: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(number).unwrap()).unwrap();
    let held = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    (parent_of(number) == Some(parent)).then_some(held)
}

/// Sends a signal to a child of this process. Whether there was one.
pub(crate) fn signal(number: u32, signal: Signal) -> bool {
    let child = hold(number, std::process::id());
    child.is_some_and(|child| pidfd_send_signal(child, signal).is_ok())
}

/// Ends a child of this process by this signal, again and again: a program may take the first one for something else
/// (Rust's looks at a wrong address whether a stack has grown too far). Whether there was one.
pub(crate) fn end_by(number: u32, signal: Signal) -> bool {
    let Some(child) = hold(number, std::process::id()) else { return false };
    while pidfd_send_signal(&child, signal).is_ok() {
        if has_ended(&child, Duration::from_millis(5)) {
            return true;
        }
    }
    true
}

/// Waits until a process has ended.
pub(crate) fn wait_for_end(process: &OwnedFd, longest: Duration) {
    assert!(has_ended(process, longest), "it has not ended");
}

fn has_ended(process: &OwnedFd, longest: Duration) -> bool {
    let longest = Timespec {
        tv_sec: i64::try_from(longest.as_secs()).unwrap(),
        tv_nsec: i64::from(longest.subsec_nanos()),
    };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&longest)).unwrap() > 0
}

/// What this process holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Holds {
    pub(crate) children: usize,
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
}

/// What this process holds now.
pub(crate) fn holds() -> Holds {
    let count = |path: &str| fs::read_dir(path).unwrap().count();
    Holds {
        children: children_of(std::process::id()).len(),
        // But for the one by which they are counted.
        descriptors: count("/proc/self/fd") - 1,
        threads: count("/proc/self/task"),
    }
}

/// Waits until this process holds no more than it did: threads of a server end in their own time.
pub(crate) fn wait_until_back(before: &Holds, longest: Duration) {
    let until = Instant::now() + longest;
    loop {
        let now = holds();
        let back = now.children <= before.children
            && now.descriptors <= before.descriptors
            && now.threads <= before.threads;
        if back {
            return;
        }
        assert!(Instant::now() < until, "it had {before:?}, and has {now:?}: {}", descriptors());
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// What the open descriptors stand for, to be shown.
fn descriptors() -> String {
    let links =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.map(|link| link.display().to_string()).collect::<Vec<_>>().join(" ")
}

/// The memory of this process that is its own, in bytes.
pub(crate) fn own_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
