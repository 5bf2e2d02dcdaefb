//! What the model checker does not bring along, or not as it is.

use shuttle::sync::atomic::{AtomicBool, Ordering};

/// The one of tokio, of which the model checker knows nothing: so it is told where it may change threads.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    inner: tokio::sync::Notify,
    here: AtomicBool,
}

impl Notify {
    pub(crate) async fn notified(&self) {
        // Between the last look and the wait: where what comes must not be lost.
        self.here.load(Ordering::SeqCst);
        self.inner.notified().await;
    }

    pub(crate) fn notify_one(&self) {
        self.inner.notify_one();
    }

    pub(crate) fn notify_waiters(&self) {
        self.inner.notify_waiters();
    }
}

/// A bell of which the model checker knows.
#[derive(Debug)]
pub(crate) struct Bell {
    rung: super::Mutex<usize>,
    news: super::Condvar,
}

impl Bell {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self { rung: super::Mutex::new(0), news: super::Condvar::new() })
    }

    pub(crate) fn ring(&self) {
        *self.rung.lock().unwrap() += 1;
        self.news.notify_one();
    }

    /// Nothing is ever too late, since the clock stands still.
    pub(crate) fn wait(&self, _most: std::time::Duration) -> bool {
        let mut rung = self.rung.lock().unwrap();
        while *rung == 0 {
            rung = self.news.wait(rung).unwrap();
        }
        *rung -= 1;
        true
    }
}

/// A clock that stands still unless a model moves it: so nobody is woken by a timer who should have been woken by
/// another thread. Each model runs on one thread of the system, whose own it is.
pub(crate) mod time {
    use std::cell::{Cell, RefCell};
    use std::future::Future;
    use std::ops::Add;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    thread_local! {
        static NOW: Cell<Instant> = const { Cell::new(Instant(Duration::ZERO)) };
        static SLEEPERS: RefCell<Vec<(Instant, Waker)>> = const { RefCell::new(Vec::new()) };
    }

    #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
    pub(crate) struct Instant(Duration);

    impl Instant {
        pub(crate) fn now() -> Self {
            NOW.get()
        }

        pub(crate) fn elapsed(self) -> Duration {
            NOW.get().0.saturating_sub(self.0)
        }
    }

    impl Add<Duration> for Instant {
        type Output = Self;

        fn add(self, more: Duration) -> Self {
            Self(self.0 + more)
        }
    }

    /// Begins anew: for the beginning of each run of a model.
    pub(crate) fn reset() {
        NOW.set(Instant(Duration::ZERO));
        SLEEPERS.take();
    }

    /// Moves the clock, and wakes those whose time has come.
    pub(crate) fn advance(by: Duration) {
        NOW.set(NOW.get() + by);
        let due = |(until, _): &mut (Instant, Waker)| *until <= Instant::now();
        let woken: Vec<_> = SLEEPERS.with_borrow_mut(|sleepers| sleepers.extract_if(.., due).collect());
        woken.into_iter().for_each(|(_, waker)| waker.wake());
    }

    #[derive(Debug)]
    pub(crate) struct Sleep {
        until: Instant,
    }

    pub(crate) fn sleep_until(until: Instant) -> Sleep {
        Sleep { until }
    }

    impl Sleep {
        pub(crate) fn deadline(&self) -> Instant {
            self.until
        }

        pub(crate) fn is_elapsed(&self) -> bool {
            self.until <= Instant::now()
        }

        pub(crate) fn reset(mut self: Pin<&mut Self>, until: Instant) {
            self.until = until;
        }
    }

    impl Future for Sleep {
        type Output = ();

        fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            if self.is_elapsed() {
                return Poll::Ready(());
            }
            SLEEPERS.with_borrow_mut(|sleepers| sleepers.push((self.until, context.waker().clone())));
            Poll::Pending
        }
    }
}

/// The channels of the standard library, as far as they are used here. Those of the model checker keep what nobody
/// receives any more, and so the ways back in it, until the last sender goes: whoever waits for an answer would wait
/// for ever. Nothing is ever too late, since the clock stands still.
pub(crate) mod mpsc {
    use crate::sync::{Condvar, Mutex, MutexGuard};
    use std::collections::VecDeque;
    use std::sync::Arc;
    pub(crate) use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
    use std::time::Duration;

    #[derive(Debug)]
    struct Channel<T> {
        state: Mutex<State<T>>,
        changed: Condvar,
        room: usize,
    }

    #[derive(Debug)]
    struct State<T> {
        queue: VecDeque<T>,
        senders: usize,
        receives: bool,
    }

    impl<T> Channel<T> {
        fn lock(&self) -> MutexGuard<'_, State<T>> {
            self.state.lock().unwrap()
        }
    }

    pub(crate) fn sync_channel<T>(room: usize) -> (SyncSender<T>, Receiver<T>) {
        let state = State { queue: VecDeque::new(), senders: 1, receives: true };
        let channel = Channel { state: Mutex::new(state), changed: Condvar::new(), room: room.max(1) };
        let channel = Arc::new(channel);
        (SyncSender(Arc::clone(&channel)), Receiver(channel))
    }

    #[derive(Debug)]
    pub(crate) struct SyncSender<T>(Arc<Channel<T>>);

    impl<T> SyncSender<T> {
        pub(crate) fn send(&self, message: T) -> Result<(), SendError<T>> {
            let full = |state: &mut State<T>| state.receives && state.queue.len() >= self.0.room;
            let mut state = self.0.changed.wait_while(self.0.lock(), full).unwrap();
            if !state.receives {
                drop(state);
                return Err(SendError(message));
            }
            state.queue.push_back(message);
            self.0.changed.notify_all();
            Ok(())
        }

        pub(crate) fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
            let mut state = self.0.lock();
            if !state.receives {
                return Err(TrySendError::Disconnected(message));
            }
            if state.queue.len() >= self.0.room {
                return Err(TrySendError::Full(message));
            }
            state.queue.push_back(message);
            self.0.changed.notify_all();
            Ok(())
        }
    }

    impl<T> Clone for SyncSender<T> {
        fn clone(&self) -> Self {
            self.0.lock().senders += 1;
            Self(Arc::clone(&self.0))
        }
    }

    impl<T> Drop for SyncSender<T> {
        fn drop(&mut self) {
            self.0.lock().senders -= 1;
            self.0.changed.notify_all();
        }
    }

    #[derive(Debug)]
    pub(crate) struct Receiver<T>(Arc<Channel<T>>);

    impl<T> Receiver<T> {
        pub(crate) fn recv(&self) -> Result<T, RecvError> {
            let nothing = |state: &mut State<T>| state.senders > 0 && state.queue.is_empty();
            let mut state = self.0.changed.wait_while(self.0.lock(), nothing).unwrap();
            let message = state.queue.pop_front().ok_or(RecvError)?;
            self.0.changed.notify_all();
            Ok(message)
        }

        pub(crate) fn recv_timeout(&self, _: Duration) -> Result<T, RecvTimeoutError> {
            self.recv().map_err(|RecvError| RecvTimeoutError::Disconnected)
        }

        pub(crate) fn try_recv(&self) -> Result<T, TryRecvError> {
            let mut state = self.0.lock();
            match state.queue.pop_front() {
                Some(message) => {
                    self.0.changed.notify_all();
                    Ok(message)
                }
                None if state.senders == 0 => Err(TryRecvError::Disconnected),
                None => Err(TryRecvError::Empty),
            }
        }
    }

    impl<T> Drop for Receiver<T> {
        fn drop(&mut self) {
            let mut state = self.0.lock();
            state.receives = false;
            let queue = std::mem::take(&mut state.queue);
            drop(state);
            self.0.changed.notify_all();
            // Without the lock: a message may own senders.
            drop(queue);
        }
    }
}
