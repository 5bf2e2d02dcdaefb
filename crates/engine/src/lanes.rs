//! The threads that may wait for a disk: one for each folder that downloads go into.
//!
//! All downloads into one folder share a thread, so very many small ones cost few wake-ups, and a disk that
//! hangs stops only those that go to it. On its thread a download does what takes a moment: opening a new
//! file, giving it its name. What takes longer (a sync, the digest of a large file, a question to a person) is done
//! [`aside`], on a thread that is lent for it, and holds up nobody.

use crate::places;
use crate::threads::Threads;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidegate_core::DownloadId;
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::{LocalSet, spawn_blocking, spawn_local};

/// Threads that are left when no download uses them, at most.
const MOST_IDLE: usize = 4;

/// What cold sides may wait for together: those of one lane share a thread.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Lane {
    /// The disk that this folder is on, as the user named it.
    Folder(PathBuf),
    /// The stream of this download.
    Stream(DownloadId),
    /// Nothing.
    Nowhere,
}

/// The cold side of a download, made on the thread where it lives.
type Job = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// The lanes of one engine.
#[derive(Debug)]
pub(crate) struct Lanes {
    threads: Arc<Threads>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lanes: BTreeMap<Lane, Running>,
    started: u64,
    closed: bool,
}

/// A lane with its thread, which ends when this is dropped and its last download is over.
#[derive(Debug)]
struct Running {
    /// Tells it from an earlier lane of the same key, whose last downloads may end later.
    number: u64,
    jobs: Sender<Job>,
    downloads: usize,
}

/// Held by a download for as long as it is in its lane.
struct Stay {
    lanes: Arc<Lanes>,
    lane: Lane,
    number: u64,
}

impl Lanes {
    pub(crate) fn new(threads: Arc<Threads>) -> Self {
        Self { threads, state: Mutex::default() }
    }

    /// Runs what `download` makes, on the thread of this lane, to its end.
    ///
    /// # Errors
    /// When no thread can be had, or all was closed.
    pub(crate) fn start<F: Future<Output = ()> + 'static>(
        self: &Arc<Self>,
        lane: Lane,
        download: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<()> {
        let mut state = self.lock();
        if state.closed {
            return Err(io::Error::other("the engine is ending"));
        }
        if !state.lanes.contains_key(&lane) {
            state.started += 1;
            let (number, jobs) = (state.started, self.start_thread(state.started)?);
            state.lanes.insert(lane.clone(), Running { number, jobs, downloads: 0 });
        }
        let Some(running) = state.lanes.get_mut(&lane) else { return Ok(()) };
        running.downloads += 1;
        let stay = Stay { lanes: Arc::clone(self), lane, number: running.number };
        let job: Job = Box::new(move || {
            let download = download();
            Box::pin(async move {
                download.await;
                drop(stay);
            })
        });
        let sender = running.jobs.clone();
        drop(state);
        // Never full: whoever waits here holds one of `places::MOST` places, and the channel has as many. Never
        // closed: the thread receives until the last sender is gone, and this is one.
        sender.try_send(job).map_err(|_| io::Error::other("its folder takes no more downloads"))
    }

    /// Takes no more. What runs comes to its end.
    pub(crate) fn close(&self) {
        let lanes = {
            let mut state = self.lock();
            state.closed = true;
            std::mem::take(&mut state.lanes)
        };
        drop(lanes);
    }

    fn start_thread(&self, number: u64) -> io::Result<Sender<Job>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(places::MOST)
            // Before it sleeps, others get the processor: what they send now costs no wake-up (ADR 18).
            .on_thread_park(std::thread::yield_now)
            .thread_name(format!("cold-{number}-aside"))
            .build()?;
        let (sender, jobs) = channel(places::MOST);
        let threads = Arc::clone(&self.threads);
        self.threads.spawn(format!("cold-{number}"), move || {
            ERRANDS.set(Some(Errands { threads, sender: None }));
            let set = LocalSet::new();
            set.block_on(&runtime, take_jobs(jobs));
            // No more will come.
            runtime.block_on(set);
        })?;
        Ok(sender)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    static ERRANDS: RefCell<Option<Errands>> = const { RefCell::new(None) };
}

async fn take_jobs(mut jobs: Receiver<Job>) {
    while let Some(job) = jobs.recv().await {
        spawn_local(job());
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let mut state = self.lanes.lock();
        let Some(running) = state.lanes.get_mut(&self.lane).filter(|r| r.number == self.number) else {
            return;
        };
        running.downloads -= 1;
        let is_idle = running.downloads == 0;
        let idle = state.lanes.values().filter(|running| running.downloads == 0).count();
        if is_idle && (idle > MOST_IDLE || matches!(self.lane, Lane::Stream(_))) {
            state.lanes.remove(&self.lane);
        }
    }
}

/// Does what may take long, or wait for somebody, on a thread that is lent for it. A panic of it is one here.
pub(crate) async fn aside<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    let work = Arc::new(Mutex::new(Some(work)));
    let take = |work: &Mutex<Option<_>>| work.lock().unwrap_or_else(PoisonError::into_inner).take();
    let lent = Arc::clone(&work);
    // It panics where there can be no more threads, and may do the work later all the same.
    let begun = catch_unwind(AssertUnwindSafe(|| spawn_blocking(move || take(&lent).map(|work| work()))));
    let Ok(begun) = begun else {
        // Done here, at the cost of those who share this thread, and by nobody else.
        match take(&work) {
            Some(work) => return work(),
            None => return std::future::pending().await,
        }
    };
    match begun.await.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(Some(result)) => result,
        Err(Ok(panic)) => resume_unwind(panic),
        // Only a runtime that is being dropped refuses work, and the download is dropped with it.
        Ok(None) | Err(Err(_)) => std::future::pending().await,
    }
}

/// Something to be done again and again on the lane's thread for errands, and whom to tell.
pub(crate) type Errand = (Arc<dyn Fn() + Send + Sync>, Arc<Notify>);

/// Does what was agreed before, on a thread of the lane that does nothing else. Other than [`aside`], this
/// allocates nothing: it is for what comes every second while bytes flow.
pub(crate) async fn run_errand(errand: &Errand) {
    let sent = expect_errands().map(|thread| thread.try_send((Arc::clone(&errand.0), Arc::clone(&errand.1))));
    match sent {
        Some(Ok(())) => errand.1.notified().await,
        // There can be no thread: it is a moment's work as a rule.
        _ => (errand.0)(),
    }
}

/// Starts the thread for errands of this lane if there is none; `None` if there can be none.
pub(crate) fn expect_errands() -> Option<SyncSender<Errand>> {
    ERRANDS.with_borrow_mut(|errands| {
        let Errands { threads, sender } = errands.as_mut()?;
        if sender.is_none() {
            let (fresh, received) = sync_channel::<Errand>(places::MOST);
            let run = move || {
                while let Ok((work, done)) = received.recv() {
                    // Whoever waits is told, whatever comes of it.
                    let _ = catch_unwind(AssertUnwindSafe(|| work()));
                    done.notify_one();
                }
            };
            threads.spawn("cold-errands".to_owned(), run).ok()?;
            *sender = Some(fresh);
        }
        sender.clone()
    })
}

/// How a lane's thread reaches its thread for errands.
struct Errands {
    threads: Arc<Threads>,
    /// `None` until there is one.
    sender: Option<SyncSender<Errand>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::{ThreadId, current};

    /// The thread that a lane's downloads run on.
    fn thread_of(lanes: &Arc<Lanes>, lane: Lane) -> ThreadId {
        let (told, hear) = sync_channel(1);
        lanes
            .start(lane, move || async move {
                told.send(current().id()).unwrap();
            })
            .unwrap();
        hear.recv().unwrap()
    }

    #[test]
    fn downloads_into_one_folder_share_a_thread_that_waits_for_no_other_folder() {
        let threads = Arc::<Threads>::default();
        let lanes = Arc::new(Lanes::new(Arc::clone(&threads)));
        let (a, b) = (|| Lane::Folder("a".into()), || Lane::Folder("b".into()));
        let first = thread_of(&lanes, a());
        assert_eq!(thread_of(&lanes, a()), first);
        // Its disk hangs.
        let (thaw, frozen) = sync_channel::<()>(0);
        lanes
            .start(a(), move || async move {
                let _ = frozen.recv();
            })
            .unwrap();
        assert_ne!(thread_of(&lanes, b()), first);
        lanes.close();
        assert!(lanes.start(b(), || async {}).is_err());
        drop(thaw);
        assert!(threads.wait(None));
    }

    #[test]
    fn what_is_done_aside_holds_up_nobody_and_breaks_only_who_wanted_it() {
        let threads = Arc::<Threads>::default();
        let lanes = Arc::new(Lanes::new(Arc::clone(&threads)));
        let (done, wait) = sync_channel::<()>(0);
        let (told, hear) = sync_channel(2);
        let slow = told.clone();
        lanes
            .start(Lane::Nowhere, move || async move {
                aside(move || wait.recv().unwrap_err()).await;
                slow.send("slow").unwrap();
            })
            .unwrap();
        lanes
            .start(Lane::Nowhere, || async { aside(|| panic!("this test breaks a download")).await })
            .unwrap();
        lanes.start(Lane::Nowhere, move || async move { told.send("quick").unwrap() }).unwrap();
        assert_eq!(hear.recv().unwrap(), "quick");
        drop(done);
        assert_eq!(hear.recv().unwrap(), "slow");
        drop(lanes);
        assert!(threads.wait(None));
    }

    #[test]
    fn errands_are_run_each_time_on_one_thread_that_ends_with_its_lane() {
        let threads = Arc::<Threads>::default();
        let lanes = Arc::new(Lanes::new(Arc::clone(&threads)));
        let ran = Arc::new(Mutex::new(Vec::new()));
        let (done, hear) = sync_channel(1);
        let theirs = Arc::clone(&ran);
        let job = move || async move {
            let here = current().id();
            let note = Arc::clone(&theirs);
            let errand: Errand =
                (Arc::new(move || note.lock().unwrap().push(current().id())), Arc::default());
            for _ in 0..3 {
                run_errand(&errand).await;
            }
            let broken: Errand = (Arc::new(|| panic!("this test breaks an errand")), Arc::default());
            run_errand(&broken).await;
            run_errand(&errand).await;
            done.send(here).unwrap();
        };
        lanes.start(Lane::Nowhere, job).unwrap();
        let cold = hear.recv().unwrap();
        let ran = ran.lock().unwrap().clone();
        assert_eq!(ran.len(), 4);
        assert!(ran.iter().all(|thread| *thread == ran[0] && *thread != cold));
        drop(lanes);
        assert!(threads.wait(None));
    }

    #[test]
    fn no_more_than_a_few_threads_are_left_without_work() {
        let threads = Arc::<Threads>::default();
        let lanes = Arc::new(Lanes::new(Arc::clone(&threads)));
        for n in 0..20 {
            thread_of(&lanes, Lane::Folder(n.to_string().into()));
            thread_of(&lanes, Lane::Stream(DownloadId(n)));
        }
        // The last have told where they are, and may be about to leave.
        while lanes.lock().lanes.values().any(|running| running.downloads > 0) {
            std::thread::yield_now();
        }
        let left: Vec<Lane> = lanes.lock().lanes.keys().cloned().collect();
        assert!(left.len() <= MOST_IDLE && left.iter().all(|l| matches!(l, Lane::Folder(_))), "{left:?}");
        lanes.close();
        assert!(threads.wait(None));
    }
}
