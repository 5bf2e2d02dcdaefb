//! Disks of a test's own: mounted in a mount namespace of its own, which goes away with the test.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "each test file uses its part"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Set in the process that has a mount namespace of its own.
const INSIDE: &str = "TIDEGATE_TEST_INSIDE";

/// Whether this process may mount. Where it may not, the test of this name is run once more by a process
/// that may, and has passed if it passes there. Where no process may, that is said and the test passes.
pub(crate) fn may_mount(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let how = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    if !succeeds(Command::new("unshare").args([how, "mount", "-t", "tmpfs", "none", "/mnt"])) {
        println!("{test}: left out, since nothing can be mounted here");
        return false;
    }
    let status = Command::new("unshare")
        .arg(how)
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "yes")
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    false
}

/// A file system in memory.
#[derive(Debug)]
pub(crate) struct Memory {
    at: PathBuf,
}

impl Memory {
    /// Mounts one of so many bytes.
    pub(crate) fn mount(at: &Path, bytes: u64) -> Self {
        must(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "none"]).arg(at));
        Self { at: at.to_owned() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
    }
}

/// An ext4 file system in a file, which can be frozen.
#[derive(Debug)]
pub(crate) struct Freezer {
    at: PathBuf,
    /// Thaws when this process ends in whatever way, and after a minute.
    watchdog: Child,
}

impl Freezer {
    /// Mounts one; `None` where there are no loop devices.
    pub(crate) fn mount(image: &Path, at: &Path, bytes: u64) -> Option<Self> {
        std::fs::File::create(image).unwrap().set_len(bytes).unwrap();
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let made = succeeds(Command::new("mkfs.ext4").arg("-q").arg(image).env("PATH", &path));
        if !made || !succeeds(Command::new("mount").args(["-o", "loop"]).args([image, at])) {
            return None;
        }
        // A process with a thread in a frozen write cannot be killed, and keeps its pipes: hence the minute.
        let script =
            "trap '' TERM INT HUP; timeout 60 cat >/dev/null; PATH=$PATH:/usr/sbin:/sbin fsfreeze -u \"$1\"";
        let watchdog = Command::new("setsid")
            .args(["sh", "-c", script, "sh"])
            .arg(at)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        Some(Self { at: at.to_owned(), watchdog })
    }

    /// From now on every write there waits. Returns false where freezing is not to be had.
    pub(crate) fn freeze(&self) -> bool {
        succeeds(Self::fsfreeze("-f").arg(&self.at))
    }

    /// Writes go on.
    pub(crate) fn thaw(&self) {
        must(Self::fsfreeze("-u").arg(&self.at));
    }

    fn fsfreeze(what: &str) -> Command {
        let mut command = Command::new("fsfreeze");
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        command.arg(what).env("PATH", path).stderr(Stdio::null());
        command
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = Self::fsfreeze("-u").arg(&self.at).output();
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
    }
}

fn succeeds(command: &mut Command) -> bool {
    matches!(command.output(), Ok(Output { status, .. }) if status.success())
}

fn must(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}
