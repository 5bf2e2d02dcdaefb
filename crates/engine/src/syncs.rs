//! Syncs of directories that several downloads wait for, made once for all of them.
//!
//! Each download that gives a file its name waits until that name would survive a power loss. A sync of a
//! directory saves every name in it, so those who come while one runs are served together by the next: the one
//! that runs may have begun before their names were there. Whoever is alone waits for nobody.

use crate::sync::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, OnceLock, PoisonError};

/// Names a directory: the numbers of its file system and of its inode.
pub type DirectoryId = (u64, u64);

/// Where the downloads of an engine meet to sync directories.
#[derive(Debug, Default)]
pub struct SharedSyncs {
    directories: Mutex<BTreeMap<DirectoryId, Directory>>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Directory {
    /// A sync runs.
    running: bool,
    /// How many are here.
    present: usize,
    /// Those who wait for the next one.
    next: Arc<Batch>,
}

/// Those who are served by one sync.
#[derive(Debug, Default)]
struct Batch {
    outcome: OnceLock<Result<(), Error>>,
}

/// An error that can be told to several.
#[derive(Clone, Copy, Debug)]
enum Error {
    System(i32),
    Other(io::ErrorKind),
}

impl From<&io::Error> for Error {
    fn from(error: &io::Error) -> Self {
        error.raw_os_error().map_or(Self::Other(error.kind()), Self::System)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::System(number) => Self::from_raw_os_error(number),
            Error::Other(kind) => kind.into(),
        }
    }
}

impl SharedSyncs {
    /// Waits until a sync of this directory that began after this call has ended: by `sync`, or by that of
    /// another who waits with the caller.
    ///
    /// # Errors
    /// Those of the sync, told to everybody whom it was to serve.
    pub fn sync(&self, directory: DirectoryId, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut directories = self.lock();
        let here = directories.entry(directory).or_default();
        here.present += 1;
        let batch = Arc::clone(&here.next);
        let leads = loop {
            if batch.outcome.get().is_some() {
                break false;
            }
            match directories.get_mut(&directory) {
                // One of those who wait makes it for all.
                Some(here) if !here.running && Arc::ptr_eq(&here.next, &batch) => {
                    here.running = true;
                    here.next = Arc::default();
                    break true;
                }
                _ => directories = self.changed.wait(directories).unwrap_or_else(PoisonError::into_inner),
            }
        };
        drop(directories);
        // Leaves in the end, also when `sync` panics.
        let _leave = Leave { syncs: self, directory, batch: &batch, leads };
        if leads {
            let outcome = sync();
            // It is empty: only who leads fills it.
            let _ = batch.outcome.set(outcome.as_ref().copied().map_err(Error::from));
            return outcome;
        }
        batch
            .outcome
            .get()
            .copied()
            .unwrap_or(Err(Error::Other(io::ErrorKind::Other)))
            .map_err(io::Error::from)
    }

    /// How many wait for the next sync of a directory, or for the one that runs.
    pub fn present(&self, directory: DirectoryId) -> usize {
        self.lock().get(&directory).map_or(0, |here| here.present)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<DirectoryId, Directory>> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends somebody's part in a directory.
struct Leave<'a> {
    syncs: &'a SharedSyncs,
    directory: DirectoryId,
    batch: &'a Batch,
    leads: bool,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if self.leads {
            // Set already, unless it panicked: then nobody may think that it was done.
            let _ = self.batch.outcome.set(Err(Error::Other(io::ErrorKind::Other)));
        }
        let mut directories = self.syncs.lock();
        if let Some(here) = directories.get_mut(&self.directory) {
            here.present -= 1;
            here.running &= !self.leads;
            if here.present == 0 {
                directories.remove(&self.directory);
            }
        }
        drop(directories);
        if self.leads {
            self.syncs.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::sync_channel;

    const HERE: DirectoryId = (1, 2);
    const EIO: i32 = 5;

    /// Has `count` come while a first sync runs, lets that go on, and returns how often `sync` was called after
    /// it and what each of them was told.
    fn meet(count: usize, sync: impl Fn() -> io::Result<()> + Sync) -> (usize, Vec<io::Result<()>>) {
        let (syncs, calls) = (SharedSyncs::default(), AtomicUsize::new(0));
        let (began, first_runs) = sync_channel(1);
        let (go_on, may_go_on) = sync_channel::<()>(1);
        let told = std::thread::scope(|scope| {
            scope.spawn(|| {
                let first = move || {
                    began.send(()).unwrap();
                    may_go_on.recv().map_err(io::Error::other)
                };
                syncs.sync(HERE, first).unwrap();
            });
            first_runs.recv().unwrap();
            let one = || {
                syncs.sync(HERE, || {
                    calls.fetch_add(1, Ordering::Relaxed);
                    sync()
                })
            };
            let all: Vec<_> = (0..count).map(|_| scope.spawn(one)).collect();
            while syncs.present(HERE) < count + 1 {
                std::thread::yield_now();
            }
            assert_eq!(calls.load(Ordering::Relaxed), 0, "one began while the first runs");
            go_on.send(()).unwrap();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(syncs.present(HERE), 0);
        assert!(syncs.lock().is_empty(), "nothing is remembered of directories that nobody waits for");
        (calls.into_inner(), told)
    }

    #[test]
    fn those_who_come_while_one_runs_are_served_by_one_more() {
        let (calls, told) = meet(20, || Ok(()));
        assert_eq!(calls, 1);
        assert!(told.iter().all(Result::is_ok), "{told:?}");
    }

    #[test]
    fn a_failure_is_told_to_all_whom_it_was_to_serve_and_to_no_other() {
        let (calls, told) = meet(7, || Err(io::Error::from_raw_os_error(EIO)));
        assert_eq!(calls, 1);
        assert!(told.iter().all(|told| told.as_ref().unwrap_err().raw_os_error() == Some(EIO)), "{told:?}");
        let syncs = SharedSyncs::default();
        assert!(syncs.sync(HERE, || Err(io::Error::from_raw_os_error(EIO))).is_err());
        assert!(syncs.sync(HERE, || Ok(())).is_ok());
    }

    #[test]
    fn a_sync_that_breaks_leaves_nobody_waiting_and_nobody_deceived() {
        let syncs = SharedSyncs::default();
        let broken = || syncs.sync(HERE, || panic!("this test breaks a sync"));
        assert!(std::thread::scope(|scope| scope.spawn(broken).join()).is_err());
        assert!(syncs.sync(HERE, || Ok(())).is_ok());
        assert!(syncs.lock().is_empty());
    }

    #[test]
    fn a_sync_of_one_directory_waits_for_no_other() {
        let syncs = SharedSyncs::default();
        let (began, runs) = sync_channel(1);
        let (go_on, may_go_on) = sync_channel::<()>(1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let frozen = move || {
                    began.send(()).unwrap();
                    may_go_on.recv().map_err(io::Error::other)
                };
                syncs.sync(HERE, frozen).unwrap();
            });
            runs.recv().unwrap();
            syncs.sync((1, 3), || Ok(())).unwrap();
            go_on.send(()).unwrap();
        });
    }
}
