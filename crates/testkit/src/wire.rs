//! One connection: reads and writes that can be ended from outside, and the ways of closing it.
//!
//! The socket does not block; this thread waits in `poll` for the socket and for an order at once. So
//! a reset ordered by a test is carried out by the one thread that owns the socket, and is a true one.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use rustls::{ServerConnection, StreamOwned};

use crate::hub::{Control, Order, Seat};
use crate::sys;

/// How long a peer may take to send or to receive something.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a close waits for the peer's own, and a reset for bytes to arrive.
const LINGER: Duration = Duration::from_secs(2);

pub(crate) struct Wire {
    // The order matters: the socket closes first, and the seat is given back after it.
    socket: Arc<TcpStream>,
    seat: Seat,
    control: Arc<Control>,
    reset: bool,
}

impl Wire {
    pub(crate) fn new(socket: Arc<TcpStream>, control: Arc<Control>, seat: Seat) -> io::Result<Self> {
        let wire = Self { socket, seat, control, reset: false };
        wire.socket.set_nonblocking(true)?;
        wire.socket.set_nodelay(true)?;
        Ok(wire)
    }

    /// The number of this connection, from 0.
    pub(crate) fn number(&self) -> u64 {
        self.seat.number()
    }

    pub(crate) fn ordered(&self) -> io::Result<()> {
        match self.control.order() {
            Order::GoOn => Ok(()),
            Order::Reset | Order::Close => {
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, "told to end"))
            }
        }
    }

    /// Waits until then.
    ///
    /// # Errors
    /// When the connection is ended meanwhile, from either side.
    pub(crate) fn sleep_until(&self, at: Instant) -> io::Result<()> {
        loop {
            self.ordered()?;
            if at <= Instant::now() {
                return Ok(());
            }
            let seen = self.wait(PollFlags::empty(), at)?;
            if seen.intersects(PollFlags::ERR | PollFlags::HUP) {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
    }

    /// Waits until the peer has closed its side or the connection is ordered to end, without reading.
    pub(crate) fn stall(&self) -> io::Result<()> {
        loop {
            self.ordered()?;
            let seen = self.wait(PollFlags::RDHUP, Instant::now() + PATIENCE)?;
            if seen.intersects(PollFlags::RDHUP | PollFlags::ERR | PollFlags::HUP) {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
    }

    /// Waits, for a while, until all written bytes are acknowledged: a reset throws away those in the
    /// send buffer, and a test wants to know how many arrived.
    pub(crate) fn drain(&self) {
        let deadline = Instant::now() + LINGER;
        while sys::unacknowledged(self.socket.as_fd()).unwrap_or(0) > 0 && Instant::now() < deadline {
            if self.sleep_until(Instant::now() + Duration::from_millis(1)).is_err() {
                return;
            }
        }
    }

    /// Closes by RST.
    pub(crate) fn reset(mut self) {
        self.reset = true;
    }

    /// Closes by FIN: says so, then reads what the peer still sends, because a close with unread bytes
    /// would be a reset.
    pub(crate) fn finish(mut self) {
        if self.socket.shutdown(Shutdown::Write).is_err() {
            return;
        }
        let deadline = Instant::now() + LINGER;
        let mut waste = [0; 4096];
        let mut left: u32 = 1 << 20;
        while left > 0 {
            match self.read_within(&mut waste, deadline) {
                Ok(0) | Err(_) => return,
                Ok(n) => left = left.saturating_sub(n as u32),
            }
        }
    }

    pub(crate) fn read_within(&mut self, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
        loop {
            self.ordered()?;
            match (&*self.socket).read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.wait(PollFlags::IN, deadline)?.is_empty() && Instant::now() >= deadline {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    /// Waits for these events at the socket, for an order, or for the deadline. Returns the socket's.
    fn wait(&self, events: PollFlags, deadline: Instant) -> io::Result<PollFlags> {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = [PollFd::new(&*self.socket, events), PollFd::new(self.control.wake(), PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(fds[0].revents()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Which way bytes went through a relay.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Way {
    Up,
    Down,
}

impl Wire {
    /// Carries bytes both ways until both sides are done, and passes a reset on to the other side.
    pub(crate) fn relay(
        mut self,
        upstream: &TcpStream,
        mut carried: impl FnMut(Way, usize),
    ) -> io::Result<()> {
        upstream.set_nonblocking(true)?;
        upstream.set_nodelay(true)?;
        let (mut up, mut down) = (Pipe::new(), Pipe::new());
        let result = self.pump(upstream, &mut up, &mut down, &mut carried);
        if result.is_err() {
            self.reset = true;
            let _ = sockopt::set_socket_linger(upstream, Some(Duration::ZERO));
        }
        result
    }

    fn pump(
        &self,
        upstream: &TcpStream,
        up: &mut Pipe,
        down: &mut Pipe,
        carried: &mut impl FnMut(Way, usize),
    ) -> io::Result<()> {
        while !(up.done && down.done) {
            self.ordered()?;
            let client_wants = up.read_interest() | down.write_interest();
            let upstream_wants = down.read_interest() | up.write_interest();
            // A side of which nothing is wanted is left out: its hang-up would be reported at once, again
            // and again.
            let mut fds = vec![PollFd::new(self.control.wake(), PollFlags::IN)];
            if !client_wants.is_empty() {
                fds.push(PollFd::new(&*self.socket, client_wants));
            }
            if !upstream_wants.is_empty() {
                fds.push(PollFd::new(upstream, upstream_wants));
            }
            let timeout = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            up.step(&self.socket, upstream, |n| carried(Way::Up, n))?;
            down.step(upstream, &self.socket, |n| carried(Way::Down, n))?;
        }
        Ok(())
    }
}

/// One direction of a relay.
struct Pipe {
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    ended: bool,
    done: bool,
}

impl Pipe {
    fn new() -> Self {
        Self { buffer: vec![0; 64 * 1024], from: 0, to: 0, ended: false, done: false }
    }

    fn read_interest(&self) -> PollFlags {
        if !self.ended && self.from == self.to { PollFlags::IN } else { PollFlags::empty() }
    }

    fn write_interest(&self) -> PollFlags {
        if self.from < self.to { PollFlags::OUT } else { PollFlags::empty() }
    }

    /// Carries what can be carried now.
    fn step(
        &mut self,
        mut source: &TcpStream,
        mut sink: &TcpStream,
        mut carried: impl FnMut(usize),
    ) -> io::Result<()> {
        let later = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        };
        if !self.ended && self.from == self.to {
            match source.read(&mut self.buffer) {
                Ok(0) => self.ended = true,
                Ok(n) => {
                    (self.from, self.to) = (0, n);
                    carried(n);
                }
                Err(error) if later(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if self.from < self.to {
            match sink.write(&self.buffer[self.from..self.to]) {
                Ok(n) => self.from += n,
                Err(error) if later(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if self.ended && self.from == self.to && !self.done {
            self.done = true;
            // The sink may be gone already.
            let _ = sink.shutdown(Shutdown::Write);
        }
        Ok(())
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_within(buffer, Instant::now() + PATIENCE)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.ordered()?;
            match (&*self.socket).write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.wait(PollFlags::OUT, deadline)?.is_empty() && Instant::now() >= deadline {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let reset = self.reset || self.control.order() == Order::Reset;
        if reset {
            // With no time to linger a close is an RST. If it fails the socket is gone already.
            let _ = sockopt::set_socket_linger(&*self.socket, Some(Duration::ZERO));
        }
        self.seat.closing(sys::bytes_acked(self.socket.as_fd()).unwrap_or(0), reset);
    }
}

/// A connection as HTTP sees it: with or without TLS.
pub(crate) enum Link {
    Plain(Wire),
    Tls(Box<StreamOwned<ServerConnection, Wire>>),
}

impl Link {
    pub(crate) fn wire(&self) -> &Wire {
        match self {
            Self::Plain(wire) => wire,
            Self::Tls(stream) => &stream.sock,
        }
    }

    /// Ends the stream in order: close_notify if there is TLS, then FIN.
    pub(crate) fn finish(self) {
        match self {
            Self::Plain(wire) => wire.finish(),
            Self::Tls(mut stream) => {
                stream.conn.send_close_notify();
                let _ = stream.flush();
                stream.sock.finish();
            }
        }
    }

    /// FIN with no close_notify before it.
    pub(crate) fn finish_without_notice(self) {
        match self {
            Self::Plain(wire) => wire.finish(),
            Self::Tls(stream) => stream.sock.finish(),
        }
    }

    /// RST, after what was written has arrived.
    pub(crate) fn reset(self) {
        let wire = match self {
            Self::Plain(wire) => wire,
            Self::Tls(stream) => stream.sock,
        };
        wire.drain();
        wire.reset();
    }
}

impl Read for Link {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(wire) => wire.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Link {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(wire) => wire.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(wire) => wire.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
