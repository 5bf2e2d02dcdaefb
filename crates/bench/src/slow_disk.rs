//! A slow disk, without one: each write into a folder takes as long as a disk of that speed would need.
//!
//! The program that is measured is the one that users have, and it writes to a real file system. But its calls
//! of `write`, `pwrite` and `splice` are held by the kernel (seccomp's user notification, Linux 5.5) until we
//! let them go on, one after the other, as the requests to a disk with hardly a cache. A thread that writes is
//! blocked exactly there for exactly so long. No device, no file system and no privilege is needed.
//!
//! What this does not show: a page cache in between, which takes the first bytes at once and blocks later, and
//! what a sync costs.

use crate::sys::{self, Held};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The disk's own cache, as time: what may be made up for after a pause. Without it, whoever writes in small
/// pieces would pay for every late wake-up.
const CACHE: Duration = Duration::from_millis(50);

/// How fast a folder may be written to.
#[derive(Clone, Debug)]
pub(crate) struct Pacing {
    folder: PathBuf,
    rate: u64,
    /// Bytes that came by `splice`, and by the others.
    spliced: Arc<AtomicU64>,
    written: Arc<AtomicU64>,
}

impl Pacing {
    /// At most `rate` bytes a second (0 counts as 1) go into files below `folder`.
    ///
    /// # Errors
    /// When the folder cannot be found.
    pub(crate) fn new(folder: &Path, rate: u64) -> io::Result<Self> {
        let (spliced, written) = (Arc::default(), Arc::default());
        Ok(Self { folder: folder.canonicalize()?, rate: rate.max(1), spliced, written })
    }

    /// How many bytes the program gave to its calls so far: to `splice`, and to `write` and `pwrite`.
    pub(crate) fn bytes_by_way(&self) -> (u64, u64) {
        (self.spliced.load(Ordering::Relaxed), self.written.load(Ordering::Relaxed))
    }

    /// Starts a program whose writes are held, and tells when.
    ///
    /// # Errors
    /// When the kernel cannot hold writes, or the program cannot be started.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<(Instant, Child)> {
        if !rustix::process::geteuid().is_root() {
            // Where the descriptors of a process lead that cannot be looked into, only root is told.
            command.env("TIDEGATE_ENGINE", "in-process");
        }
        // Started here, since threads too are under the filter of the thread that starts them: it would wait
        // for itself, and never see that everybody else has gone.
        let (hand_over, handed) = std::sync::mpsc::sync_channel::<OwnedFd>(1);
        let this = self.clone();
        std::thread::Builder::new().name("slow-disk".to_owned()).spawn(move || {
            if let Ok(listener) = handed.recv() {
                this.serve(&listener);
            }
        })?;
        std::thread::scope(|scope| {
            // The filter is for the thread that installs it and what it starts, and stays until that ends.
            let starter = scope.spawn(|| {
                hand_over.send(sys::hold_writes()?).map_err(io::Error::other)?;
                let begin = Instant::now();
                Ok((begin, command.spawn()?))
            });
            starter.join().unwrap_or_else(|_| Err(io::Error::other("the thread that starts programs ended")))
        })
    }

    /// Lets calls go on when it is their time, until nobody is left who could make one.
    fn serve(&self, listener: &OwnedFd) {
        // The time at which the disk has done all that it was given.
        let mut free = Instant::now();
        let mut waiting: VecDeque<(Instant, u64)> = VecDeque::new();
        loop {
            let now = Instant::now();
            while let Some((_, id)) = waiting.front().copied().filter(|(due, _)| *due <= now) {
                waiting.pop_front();
                let _ = sys::let_go_on(listener.as_fd(), id);
            }
            let patience = waiting.front().map_or(Duration::from_secs(60), |(due, _)| *due - now);
            let Ok(wait) = Timespec::try_from(patience) else { return };
            let mut watched = [PollFd::new(listener, PollFlags::IN)];
            match poll(&mut watched, Some(&wait)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(_) => return,
            }
            let events = watched[0].revents();
            if !events.contains(PollFlags::IN) {
                // Hung up: every process with this filter is gone.
                return;
            }
            let Ok(held) = sys::next_held(listener.as_fd()) else { return };
            let Some(held) = held else { continue };
            match self.bytes(&held) {
                0 => {
                    let _ = sys::let_go_on(listener.as_fd(), held.id);
                }
                bytes => {
                    let way = if held.is_splice { &self.spliced } else { &self.written };
                    way.fetch_add(bytes, Ordering::Relaxed);
                    let takes = Duration::from_secs_f64(bytes as f64 / self.rate as f64);
                    let now = Instant::now();
                    free = free.max(now.checked_sub(CACHE).unwrap_or(now)) + takes;
                    waiting.push_back((free, held.id));
                }
            }
        }
    }

    /// How many bytes a call writes below the folder; 0 for a socket, a pipe or a file elsewhere.
    fn bytes(&self, held: &Held) -> u64 {
        let (file, length) = held.places;
        // A descriptor is an int, so the upper half of the word says nothing.
        let descriptor = held.args[file] as u32;
        let link = format!("/proc/{}/fd/{descriptor}", held.pid);
        match fs::read_link(link) {
            Ok(path) if path.starts_with(&self.folder) => held.args[length],
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Manner, run};

    /// Runs `dd` into a file below `to`, with the folder `slow` paced to 1 MiB/s.
    fn dd(slow: &Path, to: &Path) -> io::Result<Duration> {
        let pacing = Pacing::new(slow, 1 << 20)?;
        let mut command = Command::new("dd");
        command.args(["if=/dev/zero", "bs=64k", "count=4"]).arg(format!("of={}", to.join("f").display()));
        let manner = Manner { pacing: Some(&pacing), ..Manner::default() };
        let ran = run(&mut command, Duration::from_secs(60), &manner)?;
        assert!(ran.status.success(), "{}", ran.last_words);
        assert_eq!(fs::metadata(to.join("f"))?.len(), 256 << 10);
        Ok(ran.wall)
    }

    #[test]
    fn writes_into_the_folder_wait_for_their_time() {
        let (slow, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        match dd(slow.path(), slow.path()) {
            // However busy the machine, it cannot be earlier.
            Ok(took) => assert!(took >= Duration::from_millis(250) - CACHE, "{took:?}"),
            // Sandboxes may refuse filters; the command says so then.
            Err(error) => return assert!(error.raw_os_error().is_some(), "{error}"),
        }
        dd(slow.path(), other.path()).unwrap();
    }
}
