//! Stands in the child for the cold sides, which are in the parent: what they are told is passed on, and what of a part
//! must be done where it is written is done here.
//!
//! The control thread passes on what is told itself, as long as nothing before it waits. What concerns a part goes by
//! way of one thread, and with it what follows, in its order; that never waits for a disk either. What may wait for one
//! is done on a thread of that disk, one thing after the other.

use super::uplink::Uplink;
use crate::engine::{ColdSide, ToCold};
use crate::landing::disk_failure;
use crate::part_file::PartFile;
use crate::protocol::{Cold, FromChild, Saved};
use crate::target::Target;
use crate::threads::Threads;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tidegate_core::{Code, DownloadId, Failure, SpanSet};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local};

/// What waits for one disk, at most.
const MOST_WAITING: usize = 1024;

/// Something that may wait for a disk.
type Job = Box<dyn FnOnce() + Send>;

/// A part that was lent to this process.
struct Lent {
    /// Held by the control thread and by fetches, as long as they use it.
    part: Weak<PartFile>,
    path: Arc<PathBuf>,
    disk: u64,
}

/// Knows which parts are here, and the threads that may wait for their disks.
pub(super) struct Keeper {
    uplink: Arc<Uplink>,
    threads: Arc<Threads>,
    register: Sender<Registered>,
    state: Mutex<State>,
}

/// A download, and what is told of it by way of the keeper's thread.
struct Registered {
    id: DownloadId,
    from_control: Receiver<ToCold>,
    waiting: Arc<AtomicUsize>,
}

/// Passes on what the cold side of one download is told.
pub(super) struct Passing {
    id: DownloadId,
    uplink: Arc<Uplink>,
    to_keeper: Sender<ToCold>,
    /// How many messages the keeper has not passed on yet.
    waiting: Arc<AtomicUsize>,
}

#[derive(Default)]
struct State {
    lent: BTreeMap<DownloadId, Lent>,
    disks: BTreeMap<u64, SyncSender<Job>>,
}

impl Keeper {
    /// Starts the thread that passes on what is told.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(super) fn start(uplink: &Arc<Uplink>, threads: &Arc<Threads>) -> io::Result<Arc<Self>> {
        let (register, mut registered) = channel(crate::places::MOST);
        let (uplink, threads) = (Arc::clone(uplink), Arc::clone(threads));
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let keeper =
            Arc::new(Self { uplink, threads: Arc::clone(&threads), register, state: Mutex::default() });
        let ours = Arc::downgrade(&keeper);
        threads.spawn("keeper".to_owned(), move || {
            let set = LocalSet::new();
            set.block_on(&runtime, async move {
                while let Some(registered) = registered.recv().await {
                    let Some(keeper) = ours.upgrade() else { return };
                    spawn_local(keeper.pass_on(registered));
                }
            });
        })?;
        Ok(keeper)
    }

    /// A download exists: where the control thread tells its cold side.
    pub(super) fn register(&self, id: DownloadId) -> Option<Passing> {
        let (to_keeper, from_control) = channel(64);
        let waiting = Arc::<AtomicUsize>::default();
        // The parent has no more places than the channel.
        self.register.try_send(Registered { id, from_control, waiting: Arc::clone(&waiting) }).ok()?;
        Some(Passing { id, uplink: Arc::clone(&self.uplink), to_keeper, waiting })
    }

    /// A part was lent.
    pub(super) fn lend(&self, id: DownloadId, part: &Arc<PartFile>, path: &Arc<PathBuf>, disk: u64) {
        let lent = Lent { part: Arc::downgrade(part), path: Arc::clone(path), disk };
        self.lock().lent.insert(id, lent);
    }

    /// Brings the record of a part up to date, so that it survives a power loss or only the end of this process.
    pub(super) fn save(&self, id: DownloadId, call: u64, durable: bool) {
        let uplink = Arc::clone(&self.uplink);
        let tell = move |result| uplink.send(&FromChild::Saved { call, result });
        let here = {
            let state = self.lock();
            state
                .lent
                .get(&id)
                .and_then(|lent| Some((lent.part.upgrade()?, Arc::clone(&lent.path), lent.disk)))
        };
        let Some((part, path, disk)) = here else { return tell(Saved::Gone) };
        self.at(disk, move || {
            let saved = if durable {
                part.make_durable()
            } else {
                part.start_writeback();
                Ok(part.have_total())
            };
            // Closed before anybody hears of it.
            drop(part);
            tell(match saved {
                Ok(bytes) => Saved::Durable(bytes),
                Err(error) => Saved::Failed(disk_failure("save", &path, &error)),
            });
        });
    }

    /// Saves the maps of all parts: the parent is gone, and nobody will ask for it.
    pub(super) fn save_all(&self) {
        let parts: Vec<Arc<PartFile>> =
            self.lock().lent.values().filter_map(|lent| lent.part.upgrade()).collect();
        for part in parts {
            // There is nobody to tell if it fails.
            let _ = part.save();
        }
    }

    /// Passes on what one cold side is told.
    async fn pass_on(self: Arc<Self>, registered: Registered) {
        let Registered { id, mut from_control, waiting } = registered;
        while let Some(message) = from_control.recv().await {
            self.uplink.room().await;
            if let Some(message) = self.translate(id, message).await {
                self.uplink.send(&FromChild::Cold { id, message });
            }
            // Now what follows may go the short way.
            waiting.fetch_sub(1, Ordering::Release);
        }
        self.lock().lent.remove(&id);
    }

    async fn translate(&self, id: DownloadId, message: ToCold) -> Option<Cold> {
        Some(match at_once(message) {
            Ok(message) => message,
            Err(ToCold::Learned { identity, doubts }) => {
                let recorded = {
                    let identity = identity.clone();
                    self.with_part(id, move |part| part.set_identity(&identity, doubts)).await
                };
                match recorded {
                    Ok(()) => Cold::Learned { identity, doubts },
                    Err(failure) => Cold::GiveUp(failure),
                }
            }
            Err(ToCold::Release { target: Target::Part { part, .. }, returned }) => {
                if let Some(returned) = returned {
                    returned.wait().await;
                }
                let (doubts, have) = self.give_back(id, part).await;
                Cold::Returned { doubts, have }
            }
            // The end of a pipe is closed here. The others only a parent says.
            Err(_) => return None,
        })
    }

    /// Saves and closes a part that nobody here uses any more.
    async fn give_back(&self, id: DownloadId, part: Arc<PartFile>) -> (u64, SpanSet) {
        let disk = self.lock().lent.remove(&id).map_or(0, |lent| lent.disk);
        if !part.has_checkpoint() && Arc::strong_count(&part) == 1 {
            return (part.doubts(), part.have());
        }
        let close = move || {
            // Where that fails, less is known to be here.
            let _ = part.save();
            let have = if part.has_checkpoint() { SpanSet::new() } else { part.have() };
            (part.doubts(), have)
        };
        self.ask(disk, close).await.unwrap_or_default()
    }

    /// Does something with a part where it may wait for its disk; nothing if the part is not here.
    async fn with_part(
        &self,
        id: DownloadId,
        work: impl FnOnce(&PartFile) -> io::Result<()> + Send + 'static,
    ) -> Result<(), Failure> {
        let here = {
            let state = self.lock();
            state
                .lent
                .get(&id)
                .and_then(|lent| Some((lent.part.upgrade()?, Arc::clone(&lent.path), lent.disk)))
        };
        let Some((part, path, disk)) = here else { return Ok(()) };
        let done = self.ask(disk, move || work(&part).map_err(|error| disk_failure("save", &path, &error)));
        done.await.unwrap_or_else(|| Err(Failure::new(Code::Internal, "a thread of ours broke")))
    }

    async fn ask<R: Send + 'static>(
        &self,
        disk: u64,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Option<R> {
        let (sender, answer) = oneshot::channel();
        self.at(disk, move || drop(sender.send(work())));
        answer.await.ok()
    }

    /// Does something on the thread of a disk; here, if there can be none.
    fn at(&self, disk: u64, work: impl FnOnce() + Send + 'static) {
        let sender = {
            let mut state = self.lock();
            if !state.disks.contains_key(&disk)
                && let Some(thread) = self.start_disk(disk)
            {
                state.disks.insert(disk, thread);
            }
            // Where there are more disks than threads, some share one.
            state.disks.get(&disk).or_else(|| state.disks.values().next()).cloned()
        };
        match sender {
            Some(sender) => {
                if let Err(refused) = sender.send(Box::new(work)) {
                    (refused.0)();
                }
            }
            None => work(),
        }
    }

    fn start_disk(&self, disk: u64) -> Option<SyncSender<Job>> {
        let (sender, jobs) = sync_channel::<Job>(MOST_WAITING);
        let run = move || jobs.into_iter().for_each(|job| job());
        self.threads.spawn(format!("disk-{disk}"), run).ok()?;
        Some(sender)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ColdSide for Passing {
    fn try_send(&self, message: ToCold) -> Result<(), TrySendError<ToCold>> {
        let mut message = message;
        if self.waiting.load(Ordering::Acquire) == 0 && self.uplink.has_room() {
            match at_once(message) {
                Ok(message) => {
                    self.uplink.send(&FromChild::Cold { id: self.id, message });
                    return Ok(());
                }
                Err(other) => message = other,
            }
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let sent = self.to_keeper.try_send(message);
        if sent.is_err() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        sent
    }
}

/// What can be passed on as it is; gives back what concerns a part.
fn at_once(message: ToCold) -> Result<Cold, ToCold> {
    Ok(match message {
        ToCold::Tell(kind) => Cold::Tell(kind),
        ToCold::Turn(turn) => Cold::Turn(turn),
        ToCold::Prepare { preparation, doubts } => Cold::Prepare { preparation, doubts },
        ToCold::Verify { identity, digests, proof, received } => {
            Cold::Verify { identity, digests, proof, received }
        }
        ToCold::AwaitMachine(failure) => Cold::AwaitMachine(failure),
        ToCold::GiveUp(failure) => Cold::GiveUp(failure),
        ToCold::Paused => Cold::Paused,
        ToCold::Cancel => Cold::Cancel,
        ToCold::End => Cold::End,
        ToCold::Freed => Cold::Freed,
        of_a_part @ (ToCold::Learned { .. }
        | ToCold::Release { .. }
        | ToCold::Returned { .. }
        | ToCold::Crashed { .. }) => return Err(of_a_part),
    })
}
