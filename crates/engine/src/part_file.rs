//! Positioned writes to an open part file, and the checkpoint that says what they have achieved.
//!
//! The bytes go first and the map follows: a span is in the map only after its bytes were taken by the
//! kernel, and in a durable slot only after they were synced. What stands on the disk at any moment, and
//! what may be believed of it later, is argued in [`tidegate_core::checkpoint`].
//!
//! Three kinds of thread use one part file: a data thread writes ([`PartFile::write_at`]), a background
//! thread syncs ([`PartFile::make_durable`]), and whoever owns the download decides about it. The data
//! thread never waits for a sync, except while bytes are taken back.
//!
//! | operation | steps, each finished before the next |
//! |---|---|
//! | `write_at` | bytes → map → after every [`SAVE_EVERY`] bytes, W (not synced) |
//! | `make_durable` | copy the map → sync part → older D → sync checkpoint |
//! | `forget` | map → W → older D → sync → other D → sync |
//! | `restart` | map → older D → sync → other D → sync → cut the part to nothing |
//!
//! After an error of a sync, or of a write that is not simply refused for lack of room, the page cache
//! may have lost what it took. Then both W slots are made void, the map falls back to what was synced, and
//! this part file takes nothing any more: open it again. (A process that is killed between the kernel's
//! report of such an error and its next system call cannot leave that note. Then only a failing disk and
//! a kill in the same microseconds can make W say too much.)

mod lending;
mod record;

pub use lending::State;

use crate::disk::{Disk, OsDisk, Target};
use crate::target::Here;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use tidegate_core::checkpoint::{About, Belief, Checkpoint, Promise, Record, RequestKey, Slot, Surroundings};
use tidegate_core::request::Preallocate;
use tidegate_core::{Identity, Span, SpanSet};

/// At most this many bytes are written before the map is saved, so at most these are fetched again after
/// `kill -9`.
pub const SAVE_EVERY: u64 = 256 << 10;

/// Files shorter than this have no checkpoint: after an interruption they are fetched again.
pub const SMALLEST_WITH_CHECKPOINT: u64 = 1 << 20;

/// Which version of the remote file a connection is fetching. Taken when its answer was checked, and
/// given with each write, so that bytes of an old version that arrive late are not taken for the new one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Version(u64);

/// Why bytes were not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// They are bytes of a version that has been given up, or no version was begun yet. Nothing is wrong
    /// with the disk: drop the connection that brought them.
    #[error("the bytes belong to a version of the file that has been given up")]
    Superseded,
    /// The disk did not take them, or not all of them. What it took is in the map.
    #[error(transparent)]
    Disk(#[from] io::Error),
}

/// What [`PartFile::begin`] starts from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Basis {
    /// What the checkpoint recorded, which is of this same version.
    Recorded,
    /// What this run has put into the part so far, for an identity that was decided upon when it had been
    /// doubted so often ([`PartFile::doubts`]).
    Continued {
        /// How often.
        doubts: u64,
    },
    /// These bytes, which lie in the part and were proved to be of this version.
    Proved(SpanSet),
    /// Nothing: whatever is in the part is dropped.
    Nothing,
}

/// A part file, open for writing. See the module's documentation.
#[derive(Debug)]
pub struct PartFile<D = OsDisk> {
    disk: D,
    key: RequestKey,
    /// Held by whoever is between two states of the checkpoint that must follow each other. Taken first.
    cycle: Mutex<Cycle>,
    /// Read by each write, written while bytes are taken back. Taken second.
    gate: RwLock<()>,
    /// Taken last, and never held during a sync (but for the one that clears a damaged checkpoint away
    /// before the first write).
    map: Mutex<Map>,
    /// 0 until begun.
    version: AtomicU64,
    have_total: AtomicU64,
    /// How often bytes were announced that the validator on record does not speak for. Changed only while
    /// the map is held.
    doubts: AtomicU64,
    /// As `Map::failed`, for those that do not take the map.
    failed: AtomicBool,
}

/// What the durability cycle reuses, and what it alone decides.
#[derive(Debug, Default)]
struct Cycle {
    copy: SpanSet,
    buffer: Vec<u8>,
    names_are_synced: bool,
    /// The newest D slot of the process before, until it is known to be on the disk.
    inherited: Option<(Slot, Record)>,
}

#[derive(Debug)]
struct Map {
    about: About,
    have: SpanSet,
    /// Of `have`, what was synced: all that a D slot may say.
    synced: SpanSet,
    generation: u64,
    sequence: u64,
    /// The slots to overwrite next: the older ones.
    next_durable: Slot,
    next_written: Slot,
    /// Whether the file holds at least one durable slot of ours.
    recorded: bool,
    /// Whether anything happened since the last D slot was written.
    changed: bool,
    unsaved: u64,
    buffer: Vec<u8>,
    /// An error was met after which the page cache is not believed.
    failed: bool,
}

impl<D: Disk> PartFile<D> {
    /// A part file of which nothing is believed. A checkpoint that lies beside it is replaced, once one is
    /// wanted.
    pub fn blank(disk: D, key: RequestKey, here: Surroundings) -> Self {
        let about = About { key: key.clone(), identity: Identity::default(), surroundings: here, done: None };
        let map = Map {
            about,
            have: SpanSet::new(),
            synced: SpanSet::new(),
            generation: 0,
            sequence: 0,
            next_durable: Slot::D0,
            next_written: Slot::W0,
            recorded: false,
            changed: false,
            unsaved: 0,
            // A page: enough for any usual slot, so that writing allocates nothing later.
            buffer: Vec::with_capacity(4096),
            failed: false,
        };
        Self::from_map(disk, key, map)
    }

    /// A part file with its checkpoint, and what is believed of it in these surroundings: what a page
    /// cache took only if a sync of the part succeeds now.
    ///
    /// # Errors
    /// When the part cannot be examined, or when something must not be believed any more and that cannot
    /// be made durable.
    pub fn resume(
        disk: D,
        key: RequestKey,
        here: Surroundings,
        checkpoint: &Checkpoint,
    ) -> io::Result<(Self, Belief)> {
        let mut belief = checkpoint.trusted(&here);
        let mut taken_back = false;
        if belief.promise == Promise::Written && disk.sync_data(Target::Part).is_err() {
            belief = checkpoint.durably_trusted(&here);
            taken_back = true;
        }
        // Bytes beyond the end cannot be there, whatever was recorded: somebody cut the file, or it is a
        // copy from before.
        if let Some(beyond) = Span::new(disk.part_len()?, u64::MAX)
            && belief.spans.total_within(beyond) > 0
        {
            belief.spans.remove(beyond);
            belief.done = None;
            taken_back = true;
        }
        let mut part = Self::blank(disk, key, here);
        {
            let map = part.map.get_mut().unwrap_or_else(PoisonError::into_inner);
            map.about.key = belief.key.clone();
            map.about.identity = belief.identity.clone();
            map.about.done.clone_from(&belief.done);
            map.have = belief.spans.clone();
            map.synced = belief.spans.clone();
            let written = checkpoint.written.as_ref().map_or(0, |w| w.generation);
            // Bytes taken back need a generation above that of any slot that still names them.
            map.generation = checkpoint.durable.generation.max(written) + u64::from(taken_back);
            map.sequence = checkpoint.sequence;
            map.next_durable = checkpoint.durable_slot.other();
            map.recorded = true;
            map.changed = true;
        }
        part.have_total = AtomicU64::new(belief.spans.total());
        part.cycle.get_mut().unwrap_or_else(PoisonError::into_inner).inherited =
            Some((checkpoint.durable_slot, checkpoint.durable.clone()));
        if taken_back {
            // Else the old slots would be believed next time, when other bytes have made the file long
            // enough, or when the failed sync has been forgotten.
            let mut cycle = lock(&part.cycle);
            part.take_back(&mut cycle).inspect_err(|_| part.fail())?;
            drop(cycle);
        }
        Ok((part, belief))
    }

    fn from_map(disk: D, key: RequestKey, map: Map) -> Self {
        Self {
            disk,
            key,
            cycle: Mutex::default(),
            gate: RwLock::default(),
            map: Mutex::new(map),
            version: AtomicU64::new(0),
            have_total: AtomicU64::new(0),
            doubts: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        }
    }

    /// Begins to take bytes of the file with this identity. Called once the server has told which file it
    /// is, and before the first write; a file of at least [`SMALLEST_WITH_CHECKPOINT`] or of unknown length
    /// gets its checkpoint now.
    ///
    /// # Errors
    /// When the disk fails; the part file is of no use then.
    pub fn begin(&self, identity: &Identity, basis: Basis) -> io::Result<Version> {
        let mut cycle = lock(&self.cycle);
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        // First, so that even when this fails nothing more is taken of what was fetched before.
        let version = Version(self.version.fetch_add(1, Ordering::AcqRel) + 1);
        match basis {
            Basis::Recorded | Basis::Continued { .. } => {
                let mut map = self.live_map()?;
                map.about.identity = match basis {
                    Basis::Continued { doubts } => self.unless_doubted_since(doubts, identity),
                    Basis::Recorded | Basis::Proved(_) | Basis::Nothing => identity.clone(),
                };
                map.about.key.clone_from(&self.key);
                map.about.done = None;
                map.changed = true;
                if let Some(beyond) = identity.length.and_then(|length| Span::new(length, u64::MAX)) {
                    map.have.remove(beyond);
                    map.synced.remove(beyond);
                    self.have_total.store(map.have.total(), Ordering::Relaxed);
                }
                drop(map);
                self.provide_checkpoint()?;
                self.save_written(&mut *self.live_map()?)?;
            }
            Basis::Proved(spans) => self.replace(&mut cycle, identity, spans)?,
            Basis::Nothing => {
                self.replace(&mut cycle, identity, SpanSet::new())?;
                if self.disk.part_len()? > 0 {
                    self.cut(0)?;
                }
            }
        }
        Ok(version)
    }

    /// Forgets everything and begins with another version of the file. When this returns, it is durable
    /// that nothing of the old version is believed, the part is empty, and writes of the old
    /// [`Version`] are refused.
    ///
    /// # Errors
    /// When the disk fails; the part file is of no use then.
    pub fn restart(&self, identity: &Identity) -> io::Result<Version> {
        self.begin(identity, Basis::Nothing)
    }

    /// The version that is being fetched now.
    pub fn version(&self) -> Version {
        Version(self.version.load(Ordering::Acquire))
    }

    /// Writes bytes at their place in the file.
    ///
    /// # Errors
    /// [`WriteError::Superseded`] for bytes of another version; [`WriteError::Disk`] when the disk does
    /// not take them. What it took is in the map.
    pub fn write_at(&self, version: Version, offset: u64, bytes: &[u8]) -> Result<(), WriteError> {
        self.put(version, offset, bytes.len(), |done| {
            self.disk.write_at(Target::Part, offset.saturating_add(done as u64), &bytes[done..])
        })
    }

    /// Writes `count` bytes that lie in a pipe at their place in the file. After an error some may still lie
    /// there.
    ///
    /// # Errors
    /// As [`PartFile::write_at`].
    pub fn splice_at(
        &self,
        version: Version,
        offset: u64,
        pipe: BorrowedFd<'_>,
        count: usize,
    ) -> Result<(), WriteError> {
        self.put(version, offset, count, |done| {
            self.disk.splice_at(pipe, offset.saturating_add(done as u64), count - done)
        })
    }

    /// Puts `count` bytes to `offset` by as many calls of `write` as that takes. It is told how many bytes
    /// are there already, and returns how many more are.
    fn put(
        &self,
        version: Version,
        offset: u64,
        count: usize,
        write: impl Fn(usize) -> io::Result<usize>,
    ) -> Result<(), WriteError> {
        let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        self.check_version(version)?;
        if self.failed.load(Ordering::Acquire) {
            drop(self.live_map()?);
        }
        let mut done = 0;
        let result = loop {
            if done >= count {
                break Ok(());
            }
            match write(done) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => done += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        let recorded = self.record(offset, done as u64);
        if let Err(error) = result {
            if !self.is_refusal(&error) {
                self.fail();
            }
            return Err(error.into());
        }
        recorded
    }

    /// Records bytes that were moved into the part in another way than by [`PartFile::write_at`], such as
    /// `copy_file_range` into [`PartFile::as_fd`]. They must be in the file already.
    ///
    /// # Errors
    /// As [`PartFile::write_at`]. After `Superseded` the bytes may have spoiled the file: check
    /// [`PartFile::version`] before moving them, and restart only while no such move is under way.
    pub fn written(&self, version: Version, span: Span) -> Result<(), WriteError> {
        let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        self.check_version(version)?;
        self.record(span.start(), span.len())
    }

    /// Reads what is in the part, also where the map has nothing. Short only at the end of the file.
    ///
    /// # Errors
    /// Those of `pread`.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.disk.read_at(Target::Part, offset.saturating_add(done as u64), &mut into[done..]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// The bytes that are here. After a failure of the disk: those that are known to have survived.
    pub fn have(&self) -> SpanSet {
        lock(&self.map).have.clone()
    }

    /// How many bytes are here. Waits for nobody.
    pub fn have_total(&self) -> u64 {
        self.have_total.load(Ordering::Relaxed)
    }

    /// Whether the byte at `offset` is here, and up to which offset the same is true of all.
    pub(crate) fn here(&self, offset: u64) -> Here {
        let map = lock(&self.map);
        match map.have.run_end(offset) {
            end if end > offset => Here::Known(end),
            _ => {
                let rest = Span::new(offset, u64::MAX);
                let gap = rest.and_then(|rest| map.have.gaps(rest).next());
                Here::Missing(gap.map_or(u64::MAX, Span::end))
            }
        }
    }

    /// Whether all of `span` is here.
    pub fn covers(&self, span: Span) -> bool {
        lock(&self.map).have.covers(span)
    }

    /// The version of the remote file that the bytes are of.
    pub fn identity(&self) -> Identity {
        lock(&self.map).about.identity.clone()
    }

    /// More is known of the same version (its length, a validator), or it was proved that an identity
    /// that reads differently is the same version. The bytes are kept. `doubts` is what
    /// [`PartFile::doubts`] said when that was decided: of bytes that came to be doubted since, it does not
    /// speak, and then its validator is not recorded.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn set_identity(&self, identity: &Identity, doubts: u64) -> io::Result<()> {
        let _cycle = lock(&self.cycle);
        {
            let mut map = self.live_map()?;
            let identity = self.unless_doubted_since(doubts, identity);
            if map.about.identity == identity {
                return Ok(());
            }
            map.about.identity.clone_from(&identity);
            map.changed = true;
            if let Some(beyond) = identity.length.and_then(|length| Span::new(length, u64::MAX)) {
                map.have.remove(beyond);
                map.synced.remove(beyond);
                self.have_total.store(map.have.total(), Ordering::Relaxed);
            }
        }
        self.provide_checkpoint()?;
        self.save_written(&mut *self.live_map()?)
    }

    /// Bytes are about to be written that the validator on record does not speak for: whatever is saved from
    /// now on, and so whatever names those bytes, does not name it. Nothing for another version.
    pub fn doubt(&self, version: Version) {
        let mut map = lock(&self.map);
        if version != self.version() {
            return;
        }
        // Also where nothing strong is on record: it may have been decided upon, and be on its way here.
        self.doubts.fetch_add(1, Ordering::AcqRel);
        let weakened = map.about.identity.weakened();
        if map.about.identity != weakened {
            map.about.identity = weakened;
            map.changed = true;
        }
    }

    /// How often there was a doubt so far. Waits for nobody.
    pub fn doubts(&self) -> u64 {
        self.doubts.load(Ordering::Acquire)
    }

    /// What may be recorded of an identity that was decided upon at so many doubts. The map must be held.
    fn unless_doubted_since(&self, doubts: u64, identity: &Identity) -> Identity {
        if self.doubts() == doubts { identity.clone() } else { identity.weakened() }
    }

    /// Takes spans out of the map, because their bytes turned out wrong. When this returns they are not
    /// believed after any crash, so they can be written anew.
    ///
    /// # Errors
    /// When the disk fails; the part file is of no use then.
    pub fn forget(&self, spans: &[Span]) -> io::Result<()> {
        let mut cycle = lock(&self.cycle);
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        {
            let mut map = self.live_map()?;
            for span in spans {
                map.have.remove(*span);
                map.synced.remove(*span);
            }
            map.generation += 1;
            map.about.done = None;
            map.changed = true;
            self.have_total.store(map.have.total(), Ordering::Relaxed);
            // Before the D slots, whose new generation makes the old W slots void: else a kill in between
            // would cost all that was written since the last durability cycle.
            self.save_written(&mut map)?;
        }
        self.take_back(&mut cycle).inspect_err(|_| self.fail())
    }

    /// The durability cycle: makes all that is here survive a power loss, and says how many bytes that
    /// are. Takes as long as the disk takes; writes go on meanwhile.
    ///
    /// # Errors
    /// When the disk fails. After a failed sync the part file is of no use; lack of room for the
    /// checkpoint only means that less is durable than could be.
    pub fn make_durable(&self) -> io::Result<u64> {
        let mut cycle = lock(&self.cycle);
        self.run_cycle(&mut cycle)
    }

    /// Sets the *done* mark, durably: the whole file is here and about to be published under this name in
    /// the part's directory. Or takes it back, with `None`; so do `begin`, `restart` and `forget`.
    ///
    /// # Errors
    /// As [`PartFile::make_durable`].
    pub fn mark_done(&self, name: Option<&str>) -> io::Result<()> {
        let mut cycle = lock(&self.cycle);
        {
            let mut map = self.live_map()?;
            map.about.done = name.map(str::to_owned);
            map.changed = true;
        }
        self.run_cycle(&mut cycle).map(|_| ())
    }

    /// Begins to write dirty pages to the disk, without waiting, so that the next cycle has less to do;
    /// and saves the map if anything was written since. To be called about once a second.
    pub fn start_writeback(&self) {
        self.disk.start_writeback();
        let mut map = lock(&self.map);
        if map.unsaved > 0 && !map.failed {
            // A failure is met again by the next write or cycle, which can report it.
            let _ = self.save_written(&mut map);
        }
    }

    /// Takes room on the disk, if the file system does so at once. Not for what is so short that it is on
    /// its way to the disk before that would be of use.
    ///
    /// # Errors
    /// Only for lack of room.
    pub fn reserve(&self, length: u64, how: Preallocate) -> io::Result<()> {
        if length < SMALLEST_WITH_CHECKPOINT {
            return Ok(());
        }
        self.disk.reserve(length, how)
    }

    /// Cuts what lies beyond the end of the file (room reserved for more than came).
    ///
    /// # Errors
    /// When the disk fails; `InvalidInput` if bytes that are here would be lost.
    pub fn truncate_to(&self, length: u64) -> io::Result<()> {
        let _cycle = lock(&self.cycle);
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(beyond) = Span::new(length, u64::MAX)
            && self.live_map()?.have.total_within(beyond) > 0
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if self.disk.part_len()? == length {
            return Ok(());
        }
        self.cut(length)
    }

    /// The disk beneath.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Whether a checkpoint is kept.
    pub fn has_checkpoint(&self) -> bool {
        lock(&self.map).recorded
    }
}

impl PartFile<OsDisk> {
    /// The part once more, for reading only.
    ///
    /// # Errors
    /// `NotFound` if the part's name leads elsewhere by now, or those of `openat`.
    pub fn read_only(&self) -> io::Result<File> {
        self.disk.reopen_read_only()
    }

    /// The number of the file system that the part is on (`st_dev`).
    ///
    /// # Errors
    /// Those of `fstat`.
    pub fn file_system(&self) -> io::Result<u64> {
        self.disk.device()
    }
}

impl<D: AsFd> AsFd for PartFile<D> {
    /// The part's descriptor. Bytes moved into it count once told by [`PartFile::written`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.disk.as_fd()
    }
}

/// A panic elsewhere does not make the map wrong: it is changed after the bytes, in one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
