//! What the child says to its parent, from any of its threads, without making them wait.

use crate::protocol::FromChild;
use rustix::net::{SendFlags, send};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Bytes that wait until the parent reads; beyond, cold sides wait with telling more.
const ENOUGH: usize = 1 << 20;

/// The way to the parent.
#[derive(Debug)]
pub(super) struct Uplink {
    socket: Arc<OwnedFd>,
    state: Mutex<State>,
    /// Something waits to be written.
    news: Condvar,
    /// Less waits than was [`ENOUGH`].
    room: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// What did not fit into the socket.
    waiting: VecDeque<u8>,
    /// A thread is writing what waited before.
    writing: bool,
    buffer: Vec<u8>,
    /// The parent is gone.
    broken: bool,
}

impl Uplink {
    pub(super) fn new(socket: Arc<OwnedFd>) -> Self {
        Self { socket, state: Mutex::default(), news: Condvar::new(), room: Notify::new() }
    }

    /// Says something. What the socket does not take at once is written by [`Uplink::write_what_waits`].
    pub(super) fn send(&self, message: &FromChild) {
        let mut state = self.lock();
        if state.broken {
            return;
        }
        let State { waiting, writing, buffer, broken } = &mut *state;
        buffer.clear();
        message.encode(buffer);
        let mut sent = 0;
        if waiting.is_empty() && !*writing {
            while sent < buffer.len() {
                match send(self.socket.as_fd(), &buffer[sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                    Ok(count) => sent += count,
                    Err(rustix::io::Errno::INTR) => {}
                    Err(rustix::io::Errno::AGAIN) => break,
                    Err(_) => {
                        *broken = true;
                        self.news.notify_all();
                        self.room.notify_one();
                        return;
                    }
                }
            }
        }
        if sent < buffer.len() {
            waiting.extend(&buffer[sent..]);
            self.news.notify_one();
        }
        if buffer.capacity() > ENOUGH {
            *buffer = Vec::new();
        }
    }

    /// Whether not too much waits.
    pub(super) fn has_room(&self) -> bool {
        let state = self.lock();
        state.broken || state.waiting.len() < ENOUGH
    }

    /// Waits until not too much waits.
    pub(super) async fn room(&self) {
        loop {
            {
                let state = self.lock();
                if state.broken || state.waiting.len() < ENOUGH {
                    break;
                }
            }
            self.room.notified().await;
        }
        // Whoever else waits is to know of it too.
        self.room.notify_one();
    }

    /// Writes what did not fit, as the parent reads. For a thread of its own; ends with the parent.
    pub(super) fn write_what_waits(&self) {
        let mut chunk = Vec::new();
        loop {
            {
                let mut state = self.lock();
                state.writing = false;
                while state.waiting.is_empty() && !state.broken {
                    state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                if state.broken {
                    return;
                }
                state.writing = true;
                chunk.clear();
                let count = state.waiting.len().min(64 << 10);
                chunk.extend(state.waiting.drain(..count));
                if state.waiting.is_empty() && state.waiting.capacity() > ENOUGH {
                    state.waiting = VecDeque::new();
                }
            }
            self.room.notify_one();
            if self.write(&chunk).is_err() {
                self.break_off();
                return;
            }
        }
    }

    /// The parent is gone: nothing is said any more, and nobody waits.
    pub(super) fn break_off(&self) {
        self.lock().broken = true;
        self.news.notify_all();
        self.room.notify_one();
    }

    fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match send(self.socket.as_fd(), bytes, SendFlags::NOSIGNAL) {
                Ok(count) => bytes = &bytes[count..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
