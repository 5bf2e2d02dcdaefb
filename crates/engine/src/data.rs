//! The data threads, one for each file system and each stream: they carry out fetches and post counts.
//!
//! A data thread decides nothing. It owns a current-thread runtime, one buffer that all its
//! connections share, and the connections that wait to be used again. It writes inline: while a disk
//! hangs in a write, this thread hangs with it, and only the downloads on that disk wait.

use crate::connect::{Endpoint, Form, Network, Stream, Window};
use crate::engine::Disk;
use crate::limiter::RateLimiter;
use crate::splice::Pipe;
use crate::threads::Threads;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Bytes of the buffer that all connections of a thread share: the most for one read and one write.
pub(crate) const BUFFER: usize = 512 << 10;

/// Bytes of the buffer for comparing.
const COMPARE: usize = 64 << 10;

/// Connections kept for use again: in all, and how long.
const MOST_IDLE: usize = 64;
const IDLE_FOR: Duration = Duration::from_secs(20);

thread_local! {
    static BUFFERS: RefCell<Option<Buffers>> = const { RefCell::new(None) };
}

/// The buffers of a data thread.
pub(crate) struct Buffers {
    /// What one read brings.
    pub(crate) read: Box<[u8]>,
    /// What is on the disk, to compare.
    pub(crate) compare: Box<[u8]>,
    /// For bodies that need not be seen. `None` until one is wanted, and after one that is not empty again.
    pub(crate) pipe: Option<Pipe>,
}

/// Runs `f` with this thread's buffers. They are never held across an await: `f` is not async.
pub(crate) fn with_buffers<R>(f: impl FnOnce(&mut Buffers) -> R) -> R {
    BUFFERS.with_borrow_mut(|buffers| {
        f(buffers.get_or_insert_with(|| Buffers {
            read: vec![0; BUFFER].into_boxed_slice(),
            compare: vec![0; COMPARE].into_boxed_slice(),
            pipe: None,
        }))
    })
}

/// A connection over which requests can be sent, one after the other.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    /// What requests on it must be like.
    pub(crate) form: Form,
    /// Its receive window, if it was opened under a limit.
    pub(crate) window: Option<Window>,
}

impl Connection {
    /// Whether it can be used under a limit that leaves it this share, in bytes a second, or without any: one
    /// opened without a limit lets the server send more than that, one opened small cannot be fast.
    fn suits(&mut self, share: Option<u64>) -> bool {
        match (&mut self.window, self.stream.socket()) {
            (Some(window), Some(socket)) => window.fit(socket, share),
            _ => share.is_none_or(|share| !Window::is_for(share)),
        }
    }
}

/// A connection that waits to be used again, and since when.
type Idle = (Connection, Instant);

/// What the fetches of a data thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) network: Network,
    pub(crate) limiter: RateLimiter,
    /// Whether bodies may go by way of the pipe.
    pub(crate) splice: bool,
    idle: Mutex<BTreeMap<Endpoint, Vec<Idle>>>,
    epoch: Instant,
    /// When the write that is under way began, in ms since `epoch` plus 1; 0 if none is.
    writing_since: AtomicU64,
}

impl Shared {
    /// A connection that carried an answer before and can have this share of a limit, in bytes a second.
    pub(crate) fn take_idle(&self, endpoint: &Endpoint, share: Option<u64>) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle.get_mut(endpoint)?;
        while let Some((mut connection, since)) = kept.pop() {
            if since.elapsed() < IDLE_FOR && connection.suits(share) {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection for use again.
    pub(crate) fn keep_idle(&self, endpoint: &Endpoint, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let count: usize = idle.values().map(Vec::len).sum();
        if count < MOST_IDLE {
            idle.entry(endpoint.clone()).or_default().push((connection, Instant::now()));
        }
    }

    /// Closes connections that nobody used for a while.
    pub(crate) fn reap_idle(&self) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|_, kept| {
            kept.retain(|(_, since)| since.elapsed() < IDLE_FOR);
            !kept.is_empty()
        });
    }

    /// Runs a write, noting that it is under way.
    pub(crate) fn writing<R>(&self, write: impl FnOnce() -> R) -> R {
        let since = u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        self.writing_since.store(since, Ordering::Relaxed);
        let result = write();
        self.writing_since.store(0, Ordering::Relaxed);
        result
    }

    /// How long the write that is under way has taken so far.
    pub(crate) fn blocked_for(&self) -> Duration {
        match self.writing_since.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            since => self.epoch.elapsed().saturating_sub(Duration::from_millis(since - 1)),
        }
    }
}

/// A data thread. When this is dropped its fetches are ended, and then the thread; nobody waits for it
/// here, since it may hang in a write for as long as the disk wants.
#[derive(Debug)]
pub(crate) struct DataThread {
    pub(crate) shared: Arc<Shared>,
    pub(crate) runtime: Handle,
    _stop: oneshot::Sender<()>,
}

impl DataThread {
    /// Starts a data thread.
    ///
    /// # Errors
    /// When no thread or event queue can be had.
    pub(crate) fn start(
        disk: Disk,
        network: Network,
        limiter: RateLimiter,
        splice: bool,
        threads: &Arc<Threads>,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            // Only name look-ups use them.
            .max_blocking_threads(8)
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let shared = Arc::new(Shared {
            network,
            limiter,
            splice,
            idle: Mutex::new(BTreeMap::new()),
            epoch: Instant::now(),
            writing_since: AtomicU64::new(0),
        });
        threads.spawn(format!("data-{disk}"), move || {
            // Ends when the sender is dropped.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        })?;
        Ok(Self { shared, runtime: handle, _stop: stop })
    }
}
