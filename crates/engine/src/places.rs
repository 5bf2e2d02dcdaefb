//! The downloads that run in one engine, of which there are only so many, and their halts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidegate_core::DownloadId;

/// Downloads at a time, at most.
pub(crate) const MOST: usize = 1024;

/// Ends long computations of a download (a digest of a large file), which look at it meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Halt {
    now: AtomicBool,
    discard: AtomicBool,
}

impl Halt {
    /// Set when they should end.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.now
    }

    /// Whether they should end.
    pub(crate) fn is_set(&self) -> bool {
        self.now.load(Ordering::Acquire)
    }

    /// Whether the download was cancelled: then nothing is kept.
    pub(crate) fn discards(&self) -> bool {
        self.discard.load(Ordering::Acquire)
    }

    fn set(&self, discard: bool) {
        self.discard.fetch_or(discard, Ordering::AcqRel);
        self.now.store(true, Ordering::Release);
    }
}

/// The downloads that run.
#[derive(Debug, Default)]
pub(crate) struct Places {
    taken: Mutex<BTreeMap<DownloadId, Arc<Halt>>>,
}

/// The place of one download, given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    id: DownloadId,
    places: Arc<Places>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().remove(&self.id);
    }
}

impl Places {
    /// A place for this download, unless all are taken.
    pub(crate) fn take(self: &Arc<Self>, id: DownloadId, halt: &Arc<Halt>) -> Option<Place> {
        let mut taken = self.lock();
        if taken.len() >= MOST {
            return None;
        }
        taken.insert(id, Arc::clone(halt));
        Some(Place { id, places: Arc::clone(self) })
    }

    /// Ends the computations of this download, if it runs; with `discard` it keeps nothing.
    pub(crate) fn halt(&self, id: DownloadId, discard: bool) {
        if let Some(halt) = self.lock().get(&id) {
            halt.set(discard);
        }
    }

    /// Ends the computations of all.
    pub(crate) fn halt_all(&self) {
        self.lock().values().for_each(|halt| halt.set(false));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<DownloadId, Arc<Halt>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
