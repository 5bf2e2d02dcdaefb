//! The threads of one engine, so that whoever ends it can wait for them. They never wait for each other.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// The threads of one engine.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    state: Mutex<State>,
    ended: Condvar,
    /// Threads that wait for work, where there can be no others.
    reserve: Option<Arc<Reserve>>,
}

/// Threads that wait for work.
#[derive(Default)]
struct Reserve {
    state: Mutex<Waiting>,
    /// There is work.
    work: Condvar,
    /// All of them wait.
    all: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// How many wait, those included that are about to take what is there.
    idle: usize,
    work: VecDeque<Body>,
}

/// What a thread does.
type Body = Box<dyn FnOnce() + Send>;

#[derive(Debug, Default)]
struct State {
    /// How many have not come to their end.
    running: usize,
    handles: Vec<JoinHandle<()>>,
}

/// Held by a thread for as long as it runs.
struct Runs(Arc<Threads>);

impl Drop for Runs {
    fn drop(&mut self) {
        self.0.lock().running -= 1;
        self.0.ended.notify_all();
    }
}

impl Reserve {
    /// What each of so many threads does.
    fn work(&self, count: usize) {
        let mut waiting = self.lock();
        loop {
            waiting.idle += 1;
            if waiting.idle == count {
                self.all.notify_one();
            }
            let body = loop {
                match waiting.work.pop_front() {
                    Some(body) => break body,
                    None => waiting = self.work.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                }
            };
            waiting.idle -= 1;
            drop(waiting);
            // What breaks one piece of work does not cost the thread.
            let _ = catch_unwind(AssertUnwindSafe(body));
            waiting = self.lock();
        }
    }

    /// Has one of them do this.
    fn give(&self, body: Body) -> io::Result<()> {
        let mut waiting = self.lock();
        if waiting.idle <= waiting.work.len() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        waiting.work.push_back(body);
        self.work.notify_one();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reserve")
    }
}

impl Threads {
    /// So many threads, which wait for what they are to do, and no others ever. When this returns each of them
    /// has got as far as to wait.
    ///
    /// # Errors
    /// When there cannot be so many.
    pub(crate) fn reserved(count: usize) -> io::Result<Self> {
        let reserve = Arc::<Reserve>::default();
        for _ in 0..count {
            let reserve = Arc::clone(&reserve);
            std::thread::Builder::new().spawn(move || reserve.work(count))?;
        }
        let mut waiting = reserve.lock();
        // Woken by the last of them, and not by each: waking takes longer than all that they do.
        while waiting.idle < count {
            waiting = reserve.all.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        drop(waiting);
        Ok(Self { reserve: Some(reserve), ..Self::default() })
    }

    /// Starts a thread.
    ///
    /// # Errors
    /// When there can be no more.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        name: String,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        if let Some(reserve) = &self.reserve {
            return reserve.give(Box::new(body));
        }
        self.lock().running += 1;
        let runs = Runs(Arc::clone(self));
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            let _runs = runs;
            body();
        })?;
        let mut state = self.lock();
        state.handles.retain(|thread| !thread.is_finished());
        state.handles.push(thread);
        Ok(())
    }

    /// Waits until all have ended, or until then; for ever if that is no time. Tells whether they have.
    pub(crate) fn wait(&self, until: Option<Instant>) -> bool {
        let mut state = self.lock();
        while state.running > 0 {
            state = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => self.ended.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => return false,
                Some(left) => self.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        let handles = std::mem::take(&mut state.handles);
        drop(state);
        // Each has done its work: what is left is what the system does at its end.
        handles.into_iter().for_each(|thread| drop(thread.join()));
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    #[test]
    fn those_in_reserve_do_what_comes_one_thing_each_and_no_more_than_there_are() {
        let threads = Arc::new(Threads::reserved(3).unwrap());
        let (told, hear) = sync_channel(3);
        let (end, wait) = sync_channel::<()>(0);
        let wait = Arc::new(Mutex::new(wait));
        let busy = |name: &str| {
            let (told, wait) = (told.clone(), Arc::clone(&wait));
            threads.spawn(name.to_owned(), move || {
                told.send(std::thread::current().id()).unwrap();
                let _ = wait.lock().unwrap_or_else(PoisonError::into_inner).recv();
                panic!("this test breaks a thread");
            })
        };
        (0..3).for_each(|_| busy("one").unwrap());
        let mut ids: Vec<_> = (0..3).map(|_| hear.recv().unwrap()).collect();
        ids.dedup();
        assert_eq!(ids.len(), 3);
        assert_eq!(busy("one more").unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // One that broke is there again.
        end.send(()).unwrap();
        while busy("again").is_err() {
            std::thread::yield_now();
        }
        assert!(ids.contains(&hear.recv().unwrap()));
    }

    #[test]
    fn threads_are_waited_for_until_they_end_or_a_time_has_come() {
        let threads = Arc::new(Threads::default());
        assert!(threads.wait(None), "there are none");
        let (end, wait) = sync_channel::<()>(0);
        threads
            .spawn("one".to_owned(), move || {
                let _ = wait.recv();
            })
            .unwrap();
        threads.spawn("breaks".to_owned(), || panic!("this test breaks a thread")).unwrap();
        assert!(!threads.wait(Some(Instant::now())));
        assert!(!threads.wait(Some(Instant::now() + Duration::from_millis(20))));
        drop(end);
        assert!(threads.wait(None), "also one that broke has ended");
    }
}
