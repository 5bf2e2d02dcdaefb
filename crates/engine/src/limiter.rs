//! Holds the limits where the bytes come in: a connection asks before it reads.
//!
//! The rules are [`FairShare`]'s; here are the clock, the lock, the timers and the wakers. One limiter
//! serves all data threads, each with its runtime. Every waiting connection has a timer of its own on
//! its own thread, so a thread that hangs in a write holds up nobody else.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::time::{self, Instant, Sleep};
use crate::sync::{Mutex, MutexGuard};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate_core::DownloadId;
use tidegate_core::bucket::{ConnectionId, FairShare, Grant};
use tidegate_core::message::Limits;

/// The longest sleep of a timer. A connection that wakes for nothing sleeps again.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// The limits of an engine, and who shares them. Clones are the same limiter.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    shared: Arc<Shared>,
}

impl RateLimiter {
    /// A limiter with these limits; of [`Limits`] only the rates matter here.
    pub fn new(limits: &Limits) -> Self {
        let state = State { share: FairShare::new(), wakers: Vec::new(), ready: Vec::new() };
        let shared = Shared {
            limited: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            origin: Instant::now(),
            state: Mutex::new(state),
        };
        let limiter = Self { shared: Arc::new(shared) };
        limiter.set_limits(limits);
        limiter
    }

    /// Changes the limits for everything, for each host and for each download, from now on. What
    /// connections were granted before, at most 512 KiB each, they may still read.
    pub fn set_limits(&self, limits: &Limits) {
        self.shared.change(|share, now| {
            share.set_total_limit(limits.total, now);
            share.set_host_limit(limits.host, now);
            share.set_each_limit(limits.each, now);
        });
    }

    /// Changes the limit of one download, in bytes a second. It is remembered until it is `None` again:
    /// say so when the download ends.
    pub fn set_download_limit(&self, download: DownloadId, limit: Option<u64>) {
        self.shared.change(|share, now| share.set_download_limit(download, limit, now));
    }

    /// A connection of `download` to `host`, for as long as the result lives.
    pub fn register(&self, download: DownloadId, host: &str) -> ConnectionLimit {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        let id = state.share.add(download, host, now);
        if state.wakers.len() <= id.index() {
            state.wakers.resize(id.index() + 1, None);
            let connections = state.wakers.len();
            state.ready.reserve(connections);
        }
        drop(state);
        // It looks at its own share first.
        let seen = self.shared.changes.fetch_add(1, Ordering::Release);
        ConnectionLimit { shared: Arc::clone(&self.shared), id, seen, waits: false, lent: false, timer: None }
    }
}

/// A connection's part in the limits.
#[derive(Debug)]
pub struct ConnectionLimit {
    shared: Arc<Shared>,
    id: ConnectionId,
    /// The state of `changes` when its share was looked at last.
    seen: u64,
    /// It was told to wait and has got nothing since.
    waits: bool,
    /// The last grant came from the share and may be given back to it.
    lent: bool,
    /// Made at the first wait, then used again.
    timer: Option<Pin<Box<Sleep>>>,
}

impl ConnectionLimit {
    /// Resolves with how many bytes may be read now: at least 1, at most `want` (0 counts as 1). At
    /// once when nothing is limited, else when it is this connection's turn. May be dropped at any
    /// time; nothing is lost.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled, if it has to wait.
    pub fn take(&mut self, want: usize) -> Take<'_> {
        Take { limit: self, want: want.max(1) }
    }

    /// Whether anything is limited at all.
    pub fn is_limited(&self) -> bool {
        self.shared.is_limited()
    }

    /// What it may expect, in bytes a second; `None` without a limit. For the size of its receive buffer.
    pub fn share(&self) -> Option<u64> {
        self.shared.is_limited().then(|| self.shared.lock().share.share_of(self.id)).flatten()
    }

    /// The same, if that may have changed since this was asked last: limits
    /// were set, or others came or went. `Some(None)` is no limit.
    pub fn new_share(&mut self) -> Option<Option<u64>> {
        let now = self.shared.changes.load(Ordering::Acquire);
        if now == self.seen {
            return None;
        }
        self.seen = now;
        Some(self.share())
    }

    /// Gives back bytes of the last grant that were not read.
    pub fn give_back(&mut self, unused: usize) {
        if !self.lent || unused == 0 {
            return;
        }
        let now = self.shared.now();
        let mut state = self.shared.lock();
        state.share.give_back(self.id, count(unused));
        self.shared.wake(state, now);
    }

    fn poll_take(&mut self, want: usize, context: &mut Context<'_>) -> Poll<usize> {
        if !self.waits && !self.shared.is_limited() {
            self.lent = false;
            return Poll::Ready(want);
        }
        loop {
            let now = self.shared.now();
            let mut state = self.shared.lock();
            let grant = state.share.take(self.id, count(want), now);
            let mut old = None;
            if let (Grant::Wait(_), Some(place)) = (grant, state.wakers.get_mut(self.id.index()))
                && !place.as_ref().is_some_and(|waker| waker.will_wake(context.waker()))
            {
                old = place.replace(context.waker().clone());
            }
            self.shared.wake(state, now);
            // Dropped without the lock: a waker may own a task, and the task a connection.
            drop(old);
            let until = match grant {
                Grant::Bytes(bytes) => {
                    (self.waits, self.lent) = (false, true);
                    // Not more than `want`, which is a usize.
                    return Poll::Ready(usize::try_from(bytes).unwrap_or(want));
                }
                Grant::Wait(until) => self.shared.origin + within(until, now),
            };
            (self.waits, self.lent) = (true, false);
            let timer = self.timer.get_or_insert_with(|| Box::pin(time::sleep_until(until)));
            if timer.deadline() != until || timer.is_elapsed() {
                timer.as_mut().reset(until);
            }
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn cancel(&mut self) {
        if std::mem::take(&mut self.waits) {
            let now = self.shared.now();
            let mut state = self.shared.lock();
            state.share.cancel(self.id);
            self.shared.wake(state, now);
        }
    }
}

impl Drop for ConnectionLimit {
    fn drop(&mut self) {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        state.share.remove(self.id);
        let old = state.wakers.get_mut(self.id.index()).and_then(Option::take);
        self.shared.wake(state, now);
        self.shared.changes.fetch_add(1, Ordering::Release);
        drop(old);
    }
}

/// The future of [`ConnectionLimit::take`].
#[derive(Debug)]
#[must_use = "nothing is taken until it is awaited"]
pub struct Take<'a> {
    limit: &'a mut ConnectionLimit,
    want: usize,
}

impl Future for Take<'_> {
    type Output = usize;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<usize> {
        let this = self.get_mut();
        this.limit.poll_take(this.want, context)
    }
}

impl Drop for Take<'_> {
    fn drop(&mut self) {
        self.limit.cancel();
    }
}

#[derive(Debug)]
struct Shared {
    /// Whether any limit is set: all that is looked at while none is.
    limited: AtomicBool,
    /// Counts what changes shares: limits that are set, connections that come and go.
    changes: AtomicU64,
    origin: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    share: FairShare,
    /// By [`ConnectionId::index`].
    wakers: Vec<Option<Waker>>,
    /// Room for those to be woken, kept so that waking does not allocate.
    ready: Vec<Waker>,
}

impl Shared {
    fn is_limited(&self) -> bool {
        self.limited.load(Ordering::Acquire)
    }

    /// Nanoseconds since the limiter was made.
    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// No code that can panic leaves the state half changed, so a poisoned lock is as good as any.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut FairShare, u64)) {
        let now = self.now();
        let mut state = self.lock();
        change(&mut state.share, now);
        self.limited.store(state.share.is_limited(), Ordering::Release);
        self.changes.fetch_add(1, Ordering::Release);
        // All that wait have a new time to look again: each finds out its own.
        let mut ready = std::mem::take(&mut state.ready);
        ready.extend(state.wakers.iter().flatten().cloned());
        self.wake_all(state, ready, now);
    }

    /// Wakes those whose turn has come, and gives the lock back.
    fn wake(&self, state: MutexGuard<'_, State>, now: u64) {
        self.wake_all(state, Vec::new(), now);
    }

    fn wake_all(&self, mut state: MutexGuard<'_, State>, more: Vec<Waker>, now: u64) {
        let mut ready = if more.capacity() > 0 { more } else { std::mem::take(&mut state.ready) };
        let State { share, wakers, .. } = &mut *state;
        for id in share.wake(now) {
            ready.extend(wakers.get(id.index()).cloned().flatten());
        }
        if ready.is_empty() {
            state.ready = ready;
            return;
        }
        drop(state);
        ready.drain(..).for_each(Waker::wake);
        let mut state = self.lock();
        if state.ready.capacity() < ready.capacity() {
            state.ready = ready;
        }
    }
}

/// The time of `until` since the origin, if that is not too far from `now`.
fn within(until: u64, now: u64) -> Duration {
    Duration::from_nanos(until).min(Duration::from_nanos(now) + LONGEST_SLEEP)
}

fn count(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(shuttle)))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;
    use tokio::task::LocalSet;
    use tokio::time::{sleep, timeout};

    const MIB: u64 = 1 << 20;

    fn limits(total: Option<u64>) -> Limits {
        Limits { total, ..Limits::default() }
    }

    /// Runs connections of these downloads for `seconds` of paused time; tells what each read.
    async fn run(limiter: &RateLimiter, downloads: &[u64], seconds: u64) -> Vec<u64> {
        let read = Rc::new(RefCell::new(vec![0_u64; downloads.len()]));
        let tasks = LocalSet::new();
        for (index, &download) in downloads.iter().enumerate() {
            let (mut limit, read) = (limiter.register(DownloadId(download), "h"), Rc::clone(&read));
            tasks.spawn_local(async move {
                loop {
                    let bytes = limit.take(1 << 18).await;
                    // Reads a little less each time, and says so.
                    let unused = bytes / 10;
                    limit.give_back(unused);
                    read.borrow_mut()[index] += (bytes - unused) as u64;
                }
            });
        }
        let _ = timeout(Duration::from_secs(seconds), tasks).await;
        Rc::try_unwrap(read).unwrap().into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_nobody_waits() {
        let limiter = RateLimiter::new(&limits(None));
        let mut limit = limiter.register(DownloadId(1), "h");
        for _ in 0..1000 {
            assert_eq!(limit.take(1 << 30).await, 1 << 30);
            limit.give_back(1 << 29);
        }
        assert_eq!(limiter.shared.origin.elapsed(), Duration::ZERO);
        assert!(limit.timer.is_none());
        assert_eq!(limit.share(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_is_held_from_the_first_second_and_used() {
        for rate in [10_000, MIB, 100 * MIB] {
            let limiter = RateLimiter::new(&limits(Some(rate)));
            let first: u64 = run(&limiter, &[1, 1, 1, 2, 3], 1).await.iter().sum();
            assert!(first <= rate + rate / 20 + 65_536, "{first} in the first second at {rate}");
            let more: u64 = run(&limiter, &[1, 1, 1, 2, 3], 10).await.iter().sum();
            assert!(more as f64 >= 9.5 * rate as f64, "{more} in 10 s at {rate}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn downloads_share_evenly_whatever_their_connections() {
        let limiter = RateLimiter::new(&limits(Some(MIB)));
        let read = run(&limiter, &[1, 1, 1, 1, 1, 1, 2], 10).await;
        let (first, second) = (read[..6].iter().sum::<u64>() as f64, read[6] as f64);
        assert!((first - second).abs() < 0.05 * second, "{first} against {second}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_lifted_or_set_reaches_those_that_wait() {
        let limiter = RateLimiter::new(&limits(Some(1)));
        let mut limit = limiter.register(DownloadId(1), "h");
        let lifted = async {
            sleep(Duration::from_millis(1)).await;
            limiter.set_limits(&limits(None));
        };
        let (bytes, ()) = tokio::join!(limit.take(1000), lifted);
        assert_eq!(bytes, 1000);
        assert_eq!(limit.new_share(), Some(None));
        assert_eq!(limiter.shared.origin.elapsed(), Duration::from_millis(1));

        limiter.set_download_limit(DownloadId(1), Some(1));
        let raised = async {
            sleep(Duration::from_millis(1)).await;
            limiter.set_download_limit(DownloadId(1), Some(MIB));
        };
        tokio::join!(limit.take(1000), raised);
        assert!(limiter.shared.origin.elapsed() < Duration::from_millis(50));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_dropped_loses_no_tokens() {
        let limiter = RateLimiter::new(&limits(Some(MIB)));
        let mut fickle = limiter.register(DownloadId(1), "h");
        let mut steady = limiter.register(DownloadId(2), "h");
        let mut read = 0_u64;
        let steadily = async {
            loop {
                read += steady.take(1 << 18).await as u64;
            }
        };
        let fickly = async {
            // Never patient enough, or just when its turn has come.
            loop {
                let patience = Duration::from_millis(1);
                if let Ok(bytes) = timeout(patience, fickle.take(1 << 18)).await {
                    fickle.give_back(bytes);
                }
            }
        };
        let both = async { tokio::join!(steadily, fickly) };
        let _ = timeout(Duration::from_secs(10), both).await;
        assert!(read as f64 >= 9.5 * MIB as f64, "{read}");
        assert!(read <= 10 * MIB + MIB / 20 + 65_536, "{read}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_ends_leaves_its_part_to_the_others() {
        let limiter = RateLimiter::new(&limits(Some(MIB)));
        let ended = limiter.register(DownloadId(1), "h");
        let mut limit = limiter.register(DownloadId(2), "h");
        assert_eq!(limit.share(), Some(MIB / 2));
        assert_eq!(limit.new_share(), Some(Some(MIB / 2)));
        assert_eq!(limit.new_share(), None);
        drop(ended);
        assert_eq!(limit.new_share(), Some(Some(MIB)));
        let mut read = 0_u64;
        let reading = async {
            loop {
                read += limit.take(1 << 18).await as u64;
            }
        };
        let _: Result<(), _> = timeout(Duration::from_secs(10), reading).await;
        assert!(read as f64 >= 9.5 * MIB as f64, "{read}");
    }

    #[test]
    fn several_threads_share_one_limit_and_one_that_hangs_stops_nobody() {
        let limiter = RateLimiter::new(&limits(Some(64 * MIB)));
        let read = Arc::new(AtomicU64::new(0));
        let goal = 16 * MIB;
        // It waits, then its thread never comes again.
        let mut hung = limiter.register(DownloadId(9), "h");
        let waker = std::task::Waker::noop();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let entered = runtime.enter();
        assert!(hung.poll_take(1 << 18, &mut Context::from_waker(waker)).is_pending());
        drop(entered);
        let begun = std::time::Instant::now();
        std::thread::scope(|scope| {
            for download in 0..3 {
                let (limiter, read) = (limiter.clone(), Arc::clone(&read));
                scope.spawn(move || {
                    let runtime =
                        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                    runtime.block_on(async {
                        let mut limit = limiter.register(DownloadId(download), "h");
                        while read.load(Ordering::Relaxed) < goal {
                            let bytes = limit.take(1 << 18).await;
                            read.fetch_add(bytes as u64, Ordering::Relaxed);
                        }
                    });
                });
            }
        });
        // Not sooner than the limit allows; how much later is this machine's affair.
        let allowed = 64.0 * MIB as f64 * begun.elapsed().as_secs_f64() * 1.05 + 4.0 * MIB as f64;
        assert!(read.load(Ordering::Relaxed) as f64 <= allowed);
    }
}
