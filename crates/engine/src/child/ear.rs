//! What the control thread hears: the parent, and the threads of this process.
//!
//! It waits for both itself, so that for what the parent says no other thread has to be woken first: where a
//! processor sleeps, waking a thread takes longer than all that is done with most messages.

use super::Child;
use super::downlink::{Broken, Downlink};
use crate::engine::{Inbox, Source};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Of so many messages of its own threads at most the parent is looked at once.
const BETWEEN_LOOKS: u32 = 64;

/// Wakes the control thread where that waits for the parent too.
#[derive(Debug)]
pub(super) struct Bell {
    fd: OwnedFd,
    /// Nobody would hear of a message without it.
    asleep: AtomicBool,
}

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd, asleep: AtomicBool::new(false) })
    }

    /// A message was put into the queue.
    pub(super) fn ring(&self) {
        // Either this sees that the other is asleep, or that sees the message ([`Ear::sleep`]).
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            // Fails only when it has rung already.
            let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        }
    }
}

/// The control thread's messages.
pub(super) struct Ear {
    downlink: Downlink,
    child: Child,
    queue: Receiver<Inbox>,
    bell: Arc<Bell>,
    /// Messages that were heard since the parent was looked at.
    unlooked: u32,
    /// Why there is nothing more to hear.
    end: Arc<OnceLock<End>>,
}

/// How hearing ends.
pub(super) enum End {
    /// The parent is gone, or wants nothing more.
    Gone,
    /// It was not understood.
    Broken(String),
}

impl Ear {
    pub(super) fn new(downlink: Downlink, child: Child, queue: Receiver<Inbox>, bell: Arc<Bell>) -> Self {
        Self { downlink, child, queue, bell, unlooked: 0, end: Arc::default() }
    }

    /// Where it is found why there was nothing more to hear.
    pub(super) fn end(&self) -> Arc<OnceLock<End>> {
        Arc::clone(&self.end)
    }

    /// The next message that has come from the parent.
    fn heard_from_parent(&mut self) -> Option<Inbox> {
        loop {
            let (message, descriptors) = match self.downlink.next() {
                Ok(Some(heard)) => heard,
                Ok(None) => return None,
                Err(broken) => return self.ends(broken),
            };
            match self.child.take(message, descriptors) {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(why) => {
                    let _ = self.end.set(End::Broken(why.to_owned()));
                    return None;
                }
            }
        }
    }

    fn ends(&self, broken: Broken) -> Option<Inbox> {
        let _ = self.end.set(match broken {
            Broken::Ended => End::Gone,
            broken => End::Broken(format!("it did not understand its parent: {broken}")),
        });
        None
    }

    /// Waits until there is something, or so long.
    fn sleep(&self, patience: Duration) -> Option<Inbox> {
        self.bell.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let message = self.queue.try_recv().ok();
        if message.is_none() {
            let timeout = Timespec::try_from(patience).ok();
            let mut fds = [
                PollFd::new(self.downlink.socket(), PollFlags::IN),
                PollFd::new(&self.bell.fd, PollFlags::IN),
            ];
            // Interrupted or not: what there is, is heard.
            let _ = poll(&mut fds, timeout.as_ref());
            if !fds[1].revents().is_empty() {
                let _ = rustix::io::read(&self.bell.fd, &mut [0; 8]);
            }
        }
        self.bell.asleep.store(false, Ordering::Relaxed);
        message
    }
}

impl Source for Ear {
    fn next(&mut self) -> Option<Inbox> {
        if self.unlooked < BETWEEN_LOOKS
            && let Ok(message) = self.queue.try_recv()
        {
            self.unlooked += 1;
            return Some(message);
        }
        self.unlooked = 0;
        self.heard_from_parent().or_else(|| self.queue.try_recv().ok())
    }

    fn wait(&mut self, patience: Duration) -> Result<Inbox, RecvTimeoutError> {
        let mut heard = self.next();
        if heard.is_none() && self.end.get().is_none() {
            // Whoever is about to send something does so now, and need not wake this thread.
            std::thread::yield_now();
            heard = self.queue.try_recv().ok().or_else(|| self.sleep(patience)).or_else(|| self.next());
        }
        match heard {
            _ if self.end.get().is_some() => Err(RecvTimeoutError::Disconnected),
            Some(message) => Ok(message),
            None => Err(RecvTimeoutError::Timeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;

    #[test]
    fn a_bell_is_rung_only_for_one_that_sleeps_and_once() {
        let bell = Bell::new().unwrap();
        let rings = || {
            let mut fds = [PollFd::new(&bell.fd, PollFlags::IN)];
            poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
        };
        bell.ring();
        assert!(!rings());
        bell.asleep.store(true, Ordering::Relaxed);
        bell.ring();
        bell.ring();
        assert!(rings());
        let mut count = [0; 8];
        rustix::io::read(bell.fd.as_fd(), &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1);
    }
}
