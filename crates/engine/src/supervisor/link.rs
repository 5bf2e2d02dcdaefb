//! One process of the engine: its socket, its end, and what it said on its standard error.

use crate::child::{ARGUMENT, NAME, SOCKET};
use crate::protocol::ToChild;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::net::{Shutdown, sendmsg, shutdown, socketpair};
use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tidegate_confine::spawn::{Exit, Process, Program, Signal, Start};

/// How long it may take to take in what it is told.
const TO_HEAR: Duration = Duration::from_secs(10);

/// How much of what it said last is kept, in bytes.
const LAST_WORDS: usize = 2 << 10;

/// A running process, and the way to it.
pub(super) struct Link {
    socket: OwnedFd,
    out: Mutex<Vec<u8>>,
    process: Mutex<Process>,
    words: Mutex<Words>,
    /// Why it was ended by us.
    ended_for: Mutex<Option<&'static str>>,
}

struct Words {
    pipe: File,
    last: Vec<u8>,
}

impl Link {
    /// Starts a process. From a thread that lives as long as it shall, since it ends with that.
    pub(super) fn start(program: &Program) -> io::Result<Self> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let (pipe, their_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&pipe, true)?;
        // Whoever has something to say to one that hears nothing does not wait for ever.
        set_socket_timeout(&ours, Timeout::Send, Some(TO_HEAR))?;
        let process = Start::new(NAME)
            .argument(ARGUMENT)
            .descriptor(SOCKET, theirs.as_fd())
            .descriptor(2, their_end.as_fd())
            // Keys that are pressed reach every process of a terminal; what becomes of this one is for us to say.
            .ignoring(Signal::INT)
            .ignoring(Signal::QUIT)
            .ignoring(Signal::PIPE)
            .dying_with_us(Signal::KILL)
            .spawn(program)?;
        let words = Mutex::new(Words { pipe: File::from(pipe), last: Vec::new() });
        let (out, ended_for) = (Mutex::default(), Mutex::default());
        Ok(Self { socket: ours, out, process: Mutex::new(process), words, ended_for })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Its number, for whoever looks at its memory.
    pub(super) fn id(&self) -> u32 {
        self.process().id()
    }

    /// Says something, with these descriptors; waits until the process has taken it in, or is gone. If it is, that
    /// is found elsewhere.
    pub(super) fn send(&self, message: &ToChild, descriptors: &[BorrowedFd<'_>]) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.clear();
        message.encode(&mut out);
        if self.write(&out, descriptors).is_err() {
            // Half a message may be with it: nothing that follows could be understood.
            let _ = shutdown(&self.socket, Shutdown::Both);
        }
        if out.capacity() > 1 << 20 {
            *out = Vec::new();
        }
    }

    /// Says something unless somebody else is saying something just now, or it takes nothing in.
    pub(super) fn send_without_waiting(&self, message: &ToChild) {
        if let Ok(mut out) = self.out.try_lock() {
            out.clear();
            message.encode(&mut out);
            // A short message goes whole or not at all.
            let _ = rustix::net::send(&self.socket, &out, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    fn write(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut sent = 0;
        while sent < bytes.len() {
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if sent == 0 && !descriptors.is_empty() {
                ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
            }
            let parts = [IoSlice::new(&bytes[sent..])];
            match sendmsg(&self.socket, &parts, &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(count) => sent += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads what there is, without waiting; 0 at the end. Descriptors that it may send are not taken.
    pub(super) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::net::recv(&self.socket, &mut *into, rustix::net::RecvFlags::DONTWAIT) {
                Ok((count, _)) => return Ok(count),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Tells it that nothing more is said.
    pub(super) fn hang_up(&self) {
        let _ = shutdown(&self.socket, Shutdown::Write);
    }

    /// Ends it, for this reason.
    pub(super) fn end(&self, why: &'static str) {
        self.ended_for.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.kill();
    }

    /// Why it was ended by us, if it was.
    pub(super) fn ended_for(&self) -> Option<&'static str> {
        *self.ended_for.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn kill(&self) {
        // One that has ended is no failure, and nobody else can have its place.
        let _ = self.process().kill(Signal::KILL);
    }

    /// Waits until it is gone, at most so long, for ever if that is `None`. Tells whether it is.
    pub(super) fn wait_until_gone(&self, most: Option<Timespec>) -> bool {
        let Ok(pidfd) = self.process().pidfd().try_clone_to_owned() else { return false };
        loop {
            match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], most.as_ref()) {
                Err(rustix::io::Errno::INTR) => {}
                result => return result.is_ok_and(|ready| ready > 0),
            }
        }
    }

    /// How it ended; `None` if it has not.
    pub(super) fn exit(&self) -> io::Result<Option<Exit>> {
        self.process().try_wait()
    }

    /// Takes in what it said on its standard error. Of very much only the end is kept.
    pub(super) fn listen(&self) {
        let Words { pipe, last } = &mut *self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = [0; 1024];
        // One that says more than this at a time is heard again later.
        for _ in 0..64 {
            match pipe.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(count) => {
                    last.extend_from_slice(&buffer[..count]);
                    let excess = last.len().saturating_sub(LAST_WORDS);
                    last.drain(..excess);
                }
            }
        }
    }

    /// Its last words, as they may be shown: no more than a few lines, without anything that moves a cursor.
    pub(super) fn last_words(&self) -> String {
        self.listen();
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&words.last);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(3)..].join("; ");
        last.chars().filter(|c| !c.is_control()).take(400).collect()
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
