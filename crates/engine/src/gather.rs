//! How much must have come before a connection is read again.
//!
//! On a fast line a reader that is woken for each packet spends most of its time being woken: at 1 Gbit/s to
//! be woken less often took two fifths off what a bare loop costs (ADR 19). So a connection that has shown itself fast lets the kernel wait until a good
//! part of what 20 ms bring is there (`SO_RCVLOWAT`). Never for the last bytes, which nothing would follow, nor
//! under a limit, where little is let in at a time; and when that much does not come soon, the connection has
//! become slow, and is read as the bytes come.

use crate::sys;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// The most that is waited for, in bytes.
const MOST: u64 = 256 << 10;

/// Less than this is not worth waiting for, in bytes.
const LEAST: u64 = 32 << 10;

/// How many bytes show how fast a connection is.
const SHOWN_BY: u64 = 1 << 20;

/// What comes in so much time is waited for.
const AHEAD: Duration = Duration::from_millis(20);

/// How long it is waited for.
const PATIENCE: Duration = Duration::from_millis(50);

/// The waiting of one connection.
#[derive(Debug)]
pub(crate) struct Gather {
    /// What the kernel waits for, in bytes.
    least: u64,
    /// What came since then.
    bytes: u64,
    since: Instant,
    /// Whether the reader waits, with the timer set.
    waits: bool,
    /// Made at the first wait, then used again.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Gather {
    pub(crate) fn new() -> Self {
        Self { least: 1, bytes: 0, since: Instant::now(), waits: false, timer: None }
    }

    /// Whether the kernel waits for more than a byte.
    pub(crate) fn is_on(&self) -> bool {
        self.least > 1
    }

    /// The reader found nothing to read, and is to be woken by `cx` when there is enough, or when it took too
    /// long.
    pub(crate) fn wait(&mut self, socket: &TcpStream, cx: &mut Context<'_>) {
        if !self.is_on() {
            return;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
        if !std::mem::replace(&mut self.waits, true) {
            timer.as_mut().reset(Instant::now() + PATIENCE);
        }
        if timer.as_mut().poll(cx).is_ready() {
            // The kernel looks again at once, and wakes the reader if there is anything.
            self.stop(socket);
        }
    }

    /// So many bytes were read, and as many are to come on this connection at least.
    pub(crate) fn read(&mut self, socket: &TcpStream, count: usize, to_come: u64, limited: bool) {
        self.waits = false;
        self.bytes += count as u64;
        if limited || to_come < self.least.saturating_mul(2) {
            self.stop(socket);
        } else if self.bytes >= SHOWN_BY {
            let taken = self.since.elapsed().as_secs_f64().max(1e-6);
            let ahead = (self.bytes as f64 / taken * AHEAD.as_secs_f64()) as u64;
            (self.bytes, self.since) = (0, Instant::now());
            let least = match ahead.min(MOST) {
                least if least < LEAST || to_come < least.saturating_mul(2) => 1,
                least => least,
            };
            // Not for every little change.
            if least > self.least.saturating_mul(3) / 2 || least < self.least / 2 {
                self.set(socket, least);
            }
        }
    }

    /// Less was there than the reader had room for. tokio takes a socket for readable until a read says
    /// `WouldBlock`; said here, it waits for the kernel's next word, which comes when enough has come.
    pub(crate) fn taken(&self, socket: &TcpStream) {
        // A pipe may have been full before the socket was empty, and of what is there the kernel says nothing more.
        let left = || rustix::io::ioctl_fionread(socket).unwrap_or(u64::MAX);
        if self.is_on() && left() < self.least {
            let _ = socket.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
        }
    }

    /// From here on each byte counts.
    pub(crate) fn stop(&mut self, socket: &TcpStream) {
        if self.is_on() {
            self.set(socket, 1);
        }
        (self.bytes, self.since, self.waits) = (0, Instant::now(), false);
    }

    fn set(&mut self, socket: &TcpStream, least: u64) {
        if sys::wake_at(socket, least).is_ok() {
            self.least = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::io::Write;
    use std::task::Poll;

    #[tokio::test]
    async fn a_fast_connection_is_woken_for_many_bytes_and_a_slow_limited_or_ending_one_for_each() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut server = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (client, _) = listener.accept().unwrap();
        client.set_nonblocking(true).unwrap();
        let socket = TcpStream::from_std(client).unwrap();
        let shown = usize::try_from(SHOWN_BY).unwrap();
        let mut gather = Gather::new();
        for (to_come, limited, on) in [(u64::MAX, false, true), (MOST, false, false), (u64::MAX, true, false)]
        {
            gather.read(&socket, shown, u64::MAX, false);
            assert!(gather.is_on());
            gather.read(&socket, shown, to_come, limited);
            assert_eq!(gather.is_on(), on, "{to_come} to come, limited: {limited}");
        }

        gather.read(&socket, shown, u64::MAX, false);
        server.write_all(&[1; 1000]).unwrap();
        gather.taken(&socket);
        // Given a turn, the runtime would hear of it.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        assert!(poll_fn(|cx| Poll::Ready(socket.poll_read_ready(cx).is_pending())).await);
        // It has come to be slow: the kernel tells of what is there.
        gather.stop(&socket);
        socket.readable().await.unwrap();
        gather.read(&socket, shown, u64::MAX, false);
        gather.taken(&socket);
        server.write_all(&vec![1; usize::try_from(MOST).unwrap()]).unwrap();
        socket.readable().await.unwrap();
    }
}
