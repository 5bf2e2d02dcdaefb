//! Wakes one thread by way of a pipe.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// A bell for one thread that waits.
#[derive(Debug)]
pub(crate) struct Bell {
    heard: OwnedFd,
    rung: OwnedFd,
}

impl Bell {
    /// # Errors
    /// When there are too many descriptors.
    pub(crate) fn new() -> io::Result<Self> {
        let (heard, rung) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { heard, rung })
    }

    /// Wakes whoever waits, or will.
    pub(crate) fn ring(&self) {
        // Fails only when it was rung so often that nobody can miss it.
        let _ = rustix::io::write(&self.rung, b"!");
    }

    /// Waits for one ring, at most so long. Tells whether it came.
    pub(crate) fn wait(&self, most: Duration) -> bool {
        let until = Instant::now().checked_add(most);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut [PollFd::new(&self.heard, PollFlags::IN)], timeout.as_ref()) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(1..) => return rustix::io::read(&self.heard, &mut [0; 1]).is_ok_and(|count| count > 0),
                Ok(0) | Err(_) => return false,
            }
        }
    }
}
