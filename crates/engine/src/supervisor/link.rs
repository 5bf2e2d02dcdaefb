//! One process of the engine: its socket, its end, and what it said on its standard error.

use crate::child::{ARGUMENT, NAME, SOCKET};
use crate::protocol::ToChild;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::net::{Shutdown, sendmsg, shutdown, socketpair};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidegate_confine::spawn::{Exit, Process, Program, Signal, Start};

/// What may wait for it to be taken in, in bytes: many times more than is ever said in the seconds after which a
/// process that takes nothing in is ended.
const MOST_WAITING: usize = 16 << 20;

/// How much of what it said last is kept, in bytes.
const LAST_WORDS: usize = 2 << 10;

/// A running process, and the way to it.
pub(super) struct Link {
    socket: OwnedFd,
    outbox: Mutex<Outbox>,
    /// Wakes the thread that writes what waits.
    wake: Arc<OwnedFd>,
    process: Mutex<Process>,
    words: Mutex<Words>,
    /// Why it was ended by us.
    ended_for: Mutex<Option<&'static str>>,
}

/// What it was told and has not taken in.
#[derive(Default)]
struct Outbox {
    buffer: Vec<u8>,
    waiting: VecDeque<Parcel>,
    /// Bytes that wait.
    bytes: usize,
    /// Nothing more can be said.
    closed: bool,
}

/// A message, or what is left of it.
struct Parcel {
    bytes: Vec<u8>,
    sent: usize,
    descriptors: Vec<OwnedFd>,
}

struct Words {
    pipe: File,
    last: Vec<u8>,
}

impl Link {
    /// Starts a process. From a thread that lives as long as it shall, since it ends with that.
    /// `wake` is written to when something waits to be written ([`Link::flush`]).
    pub(super) fn start(program: &Program, wake: &Arc<OwnedFd>) -> io::Result<Self> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let (pipe, their_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&pipe, true)?;
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
        let (outbox, ended_for) = (Mutex::default(), Mutex::default());
        let (wake, process) = (Arc::clone(wake), Mutex::new(process));
        Ok(Self { socket: ours, outbox, wake, process, words, ended_for })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Its number, for whoever looks at its memory.
    pub(super) fn id(&self) -> u32 {
        self.process().id()
    }

    /// Says something, with these descriptors, and does not wait until the process has taken it in: what it does not
    /// take in at once is written later. If it is gone, that is found elsewhere.
    pub(super) fn send(&self, message: &ToChild, descriptors: &[BorrowedFd<'_>]) {
        let mut outbox = self.outbox();
        let outbox = &mut *outbox;
        if outbox.closed {
            return;
        }
        outbox.buffer.clear();
        message.encode(&mut outbox.buffer);
        let mut sent = 0;
        if outbox.waiting.is_empty() {
            match self.write(&outbox.buffer, descriptors) {
                Ok(count) => sent = count,
                Err(_) => return self.break_off(outbox),
            }
        }
        if sent < outbox.buffer.len() {
            if outbox.bytes + outbox.buffer.len() > MOST_WAITING {
                self.break_off(outbox);
                return self.end("it did not take in what it was told");
            }
            // Those that ride on a message have gone with its first byte.
            let left = if sent == 0 { descriptors } else { &[] };
            let owned: io::Result<Vec<OwnedFd>> = left.iter().map(BorrowedFd::try_clone_to_owned).collect();
            let Ok(descriptors) = owned else { return self.break_off(outbox) };
            outbox.bytes += outbox.buffer.len() - sent;
            outbox.waiting.push_back(Parcel { bytes: outbox.buffer.clone(), sent, descriptors });
            // Fails only when that thread is awake already.
            let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        }
        if outbox.buffer.capacity() > 1 << 20 {
            outbox.buffer = Vec::new();
        }
    }

    /// Whether something waits until the socket takes it.
    pub(super) fn has_more(&self) -> bool {
        !self.outbox().waiting.is_empty()
    }

    /// Writes of what waits as much as the socket takes.
    pub(super) fn flush(&self) {
        let mut outbox = self.outbox();
        while let Some(parcel) = outbox.waiting.front_mut() {
            let descriptors: Vec<BorrowedFd<'_>> = parcel.descriptors.iter().map(AsFd::as_fd).collect();
            match self.write(&parcel.bytes[parcel.sent..], &descriptors) {
                Ok(0) => return,
                Ok(count) => {
                    parcel.sent += count;
                    parcel.descriptors.clear();
                    let is_whole = parcel.sent == parcel.bytes.len();
                    outbox.bytes -= count;
                    if is_whole {
                        outbox.waiting.pop_front();
                    }
                }
                Err(_) => return self.break_off(&mut outbox),
            }
        }
    }

    /// Half a message may be with it: nothing that follows could be understood.
    fn break_off(&self, outbox: &mut Outbox) {
        *outbox = Outbox { closed: true, ..Outbox::default() };
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Writes as much as there is room for, and tells how much that was. The descriptors go with the first byte.
    fn write(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut sent = 0;
        while sent < bytes.len() {
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if sent == 0 && !descriptors.is_empty() {
                ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
            }
            let parts = [IoSlice::new(&bytes[sent..])];
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.socket, &parts, &mut ancillary, flags) {
                Ok(count) => sent += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(sent)
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

    /// Tells it that nothing more is said; what still waits is not said.
    pub(super) fn hang_up(&self) {
        *self.outbox() = Outbox { closed: true, ..Outbox::default() };
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

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
