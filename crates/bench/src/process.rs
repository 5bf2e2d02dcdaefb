//! Runs a program and tells what it used.

use crate::interrupt;
use crate::slow_disk::Pacing;
use crate::sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How often a running program's memory is looked at.
const SAMPLE: Duration = Duration::from_millis(20);

/// What one run used, and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    /// From just before it was started until it had ended.
    pub(crate) wall: Duration,
    /// User and system time of all its threads, from the operating system.
    pub(crate) cpu: Duration,
    /// The highest sum of the proportional memory of it and its children, as sampled.
    pub(crate) peak_pss_kib: u64,
    /// The highest proportional memory of each of them, by its number.
    pub(crate) peaks_kib: BTreeMap<u32, u64>,
    /// The highest resident memory of the process itself that the kernel had noted when last looked at.
    pub(crate) vm_hwm_kib: u64,
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// It was stopped because it had used up its time.
    pub(crate) timed_out: bool,
    /// What it said last on standard error.
    pub(crate) last_words: String,
}

impl Ran {
    /// Why this run counts as failed, if it does.
    pub(crate) fn trouble(&self) -> Option<String> {
        if self.timed_out {
            return Some(format!("was stopped after {:.0} s", self.wall.as_secs_f64()));
        }
        (!self.status.success()).then(|| format!("{}: {}", self.status, self.last_words.trim()))
    }
}

/// When a program is to be interrupted, as Ctrl-C does, and how it may write.
#[derive(Debug, Default)]
pub(crate) struct Manner<'a> {
    /// Interrupted after this time; that is then its proper end.
    pub(crate) interrupt_after: Option<Duration>,
    /// Its disk is slow.
    pub(crate) pacing: Option<&'a Pacing>,
    /// Its standard output goes here.
    pub(crate) output: Option<&'a File>,
    /// Its memory is not looked at, which takes the processors' time from whoever is measured.
    pub(crate) unwatched: bool,
}

/// Runs a program to its end, at most for `patience`.
///
/// # Errors
/// When it cannot be started or waited for.
pub(crate) fn run(command: &mut Command, patience: Duration, manner: &Manner<'_>) -> io::Result<Ran> {
    let mut said = tempfile::tempfile()?;
    let output = manner.output.map(File::try_clone).transpose()?;
    command
        .stdin(Stdio::null())
        .stdout(output.map_or_else(Stdio::null, Stdio::from))
        .stderr(said.try_clone()?);
    let (begin, child) = match manner.pacing {
        None => (Instant::now(), command.spawn()?),
        Some(pacing) => pacing.spawn(command)?,
    };
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let handle = pidfd_open(pid, PidfdFlags::empty())?;
    let (mut pss, mut hwm, mut peaks_kib) = (0, 0, BTreeMap::new());
    let (mut interrupted, mut timed_out) = (false, false);
    let usage = loop {
        if !manner.unwatched {
            let mut sum = 0;
            for pid in family(child.id()) {
                let memory = memory_kib(pid);
                sum += memory;
                let peak = peaks_kib.entry(pid).or_insert(0);
                *peak = memory.max(*peak);
            }
            pss = sum.max(pss);
            hwm = field(child.id(), "status", "VmHWM:").max(hwm);
        }
        let mut watched = [PollFd::new(&handle, PollFlags::IN)];
        let wait = Timespec::try_from(SAMPLE).map_err(io::Error::other)?;
        match poll(&mut watched, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(usage) = sys::reap(child.id())? {
            break usage;
        }
        let passed = begin.elapsed();
        if manner.interrupt_after.is_some_and(|after| passed >= after) && !interrupted {
            interrupted = true;
            pidfd_send_signal(&handle, Signal::INT)?;
        }
        if (passed >= patience || interrupt::is_asked()) && !timed_out {
            timed_out = true;
            pidfd_send_signal(&handle, Signal::KILL)?;
        }
    };
    let wall = begin.elapsed();
    if interrupt::is_asked() {
        return Err(io::ErrorKind::Interrupted.into());
    }
    Ok(Ran {
        wall,
        cpu: usage.cpu,
        peak_pss_kib: pss,
        peaks_kib,
        vm_hwm_kib: hwm,
        status: usage.status,
        timed_out,
        last_words: tail(&mut said),
    })
}

/// The proportional memory of a process. Of one that lets nobody look into it, as the engine's does, only root is
/// told; to all others what is resident stands for it, which counts all of what it shares.
fn memory_kib(pid: u32) -> u64 {
    match field(pid, "smaps_rollup", "Pss:") {
        0 => field(pid, "status", "VmRSS:"),
        pss => pss,
    }
}

/// A process and all below it.
pub(crate) fn family(pid: u32) -> Vec<u32> {
    let (mut all, mut next) = (vec![pid], 0);
    // Nothing measured here has many children; a bound keeps a runaway from growing this list.
    while let Some(pid) = all.get(next).copied().filter(|_| all.len() < 1000) {
        next += 1;
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(text.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
        }
    }
    all
}

/// A number of KiB in one of the files of a process; 0 if it has ended or may not be looked at.
pub(crate) fn field(pid: u32, file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// The last of what was written to a file.
fn tail(file: &mut File) -> String {
    const MOST: i64 = 600;
    let length = file.seek(SeekFrom::End(0)).unwrap_or(0);
    let back = i64::try_from(length).unwrap_or(MOST).min(MOST);
    let mut bytes = Vec::new();
    let read = file.seek(SeekFrom::End(-back)).and_then(|_| file.read_to_end(&mut bytes));
    match read {
        Ok(_) => {
            String::from_utf8_lossy(&bytes).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
        }
        Err(error) => format!("(what it said cannot be read: {error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ends_is_told_with_its_status_and_its_last_words() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo what went wrong >&2; exit 3"]);
        let ran = run(&mut command, Duration::from_secs(60), &Manner::default()).unwrap();
        assert_eq!(ran.status.code(), Some(3));
        assert!(ran.trouble().unwrap().contains("what went wrong"));
    }

    #[test]
    fn a_program_that_does_not_end_is_stopped() {
        let mut command = Command::new("sleep");
        let ran = run(command.arg("600"), Duration::from_millis(50), &Manner::default()).unwrap();
        assert!(ran.timed_out && ran.trouble().is_some() && ran.vm_hwm_kib > 0);
    }
}
