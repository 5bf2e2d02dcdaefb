//! The threads of one engine, so that whoever ends it can wait for them. They never wait for each other.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// The threads of one engine.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    state: Mutex<State>,
    ended: Condvar,
    /// Threads that wait for work, where there can be no others.
    reserve: Option<Reserve>,
}

/// Threads that wait, each with the way to it.
type Reserve = Arc<Mutex<Vec<SyncSender<Body>>>>;

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

impl Threads {
    /// So many threads, which wait for what they are to do, and no others ever. When this returns each of them
    /// has got as far as to wait.
    ///
    /// # Errors
    /// When there cannot be so many.
    pub(crate) fn reserved(count: usize) -> io::Result<Self> {
        let reserve = Reserve::default();
        let (here, arrived) = sync_channel(count);
        for _ in 0..count {
            let (here, reserve) = (here.clone(), Arc::clone(&reserve));
            std::thread::Builder::new().spawn(move || {
                let (sender, work) = sync_channel::<Body>(1);
                let wait = || reserve.lock().unwrap_or_else(PoisonError::into_inner).push(sender.clone());
                wait();
                let _ = here.send(());
                drop(here);
                while let Ok(body) = work.recv() {
                    // What breaks one piece of work does not cost the thread.
                    let _ = catch_unwind(AssertUnwindSafe(body));
                    wait();
                }
            })?;
        }
        drop(here);
        (0..count).try_for_each(|_| arrived.recv()).map_err(io::Error::other)?;
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
            let waits = reserve.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(waits) = waits else { return Err(io::ErrorKind::WouldBlock.into()) };
            return waits.send(Box::new(body)).map_err(|_| io::ErrorKind::BrokenPipe.into());
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
