//! A part file in the hands of another process: what that must know of it, and what is believed of it after.
//!
//! The other process gets descriptors of its own, and everything that the map has. It writes, and saves the
//! map, as this one would. When it has closed them, or has died, its word counts for nothing: what is here
//! is read from the checkpoint, as after a crash of everything, but that the page cache is still the same.
//! (Only of a file that has no checkpoint the other process says what is here. It can do no more by that than
//! by writing wrong bytes: such a file has come whole, as far as it goes, and is checked as every other.)

use super::{Cycle, Map, PartFile, lock};
use crate::disk::{Disk, OsDisk, Target};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate_core::checkpoint::{About, Checkpoint, CheckpointError, FILE_SIZE, Record, Slot};
use tidegate_core::{Span, SpanSet};

/// All that is known of a part file besides its bytes.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The version that is being fetched.
    pub version: u64,
    /// What the spans are spans of.
    pub about: About,
    /// The bytes that are here.
    pub have: SpanSet,
    /// Of these, what was synced.
    pub synced: SpanSet,
    /// As in [`tidegate_core::checkpoint::Record`].
    pub generation: u64,
    /// As in [`tidegate_core::checkpoint::Record`].
    pub sequence: u64,
    /// The durable slot to overwrite next.
    pub next_durable: Slot,
    /// The written slot to overwrite next.
    pub next_written: Slot,
    /// Whether there is a checkpoint.
    pub recorded: bool,
    /// How often bytes were announced that the validator on record does not speak for.
    pub doubts: u64,
    /// The newest durable slot of a process before, until it is known to be on the disk: it must be written once
    /// more before the other one is overwritten.
    pub inherited: Option<(Slot, Record)>,
}

impl<D: Disk> PartFile<D> {
    /// What another process must know to go on with it. Nobody may write here until it has ended.
    pub fn state(&self) -> State {
        let inherited = lock(&self.cycle).inherited.clone();
        let map = lock(&self.map);
        State {
            version: self.version.load(Ordering::Acquire),
            about: map.about.clone(),
            have: map.have.clone(),
            synced: map.synced.clone(),
            generation: map.generation,
            sequence: map.sequence,
            next_durable: map.next_durable,
            next_written: map.next_written,
            recorded: map.recorded,
            doubts: self.doubts(),
            inherited,
        }
    }

    /// A part file as another process has left it.
    pub fn from_state(disk: D, state: State) -> Self {
        let State { version, about, have, synced, .. } = state;
        let (key, total) = (about.key.clone(), have.total());
        let map = Map {
            about,
            have,
            synced,
            generation: state.generation,
            sequence: state.sequence,
            next_durable: state.next_durable,
            next_written: state.next_written,
            recorded: state.recorded,
            changed: true,
            unsaved: 0,
            buffer: Vec::with_capacity(4096),
            failed: false,
        };
        let mut part = Self::from_map(disk, key, map);
        part.version = AtomicU64::new(version);
        part.have_total = AtomicU64::new(total);
        part.doubts = AtomicU64::new(state.doubts);
        // Whoever had it before has synced the names.
        part.cycle = Cycle { names_are_synced: true, inherited: state.inherited, ..Cycle::default() }.into();
        part
    }

    /// Saves the map if anything was written since it was saved last: the last thing before it is returned.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn save(&self) -> io::Result<()> {
        let mut map = self.live_map()?;
        if map.unsaved > 0 { self.save_written(&mut map) } else { Ok(()) }
    }

    /// Another process had it, and has closed it or died. `doubts` is what it said of them; `have` what it said
    /// is here, for a file without a checkpoint.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub fn come_back(&self, doubts: u64, have: SpanSet) -> io::Result<()> {
        let mut cycle = lock(&self.cycle);
        let _gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut map = self.live_map()?;
        self.doubts.fetch_max(doubts, Ordering::AcqRel);
        let found = if map.recorded { self.read_checkpoint()?.ok() } else { None };
        match found {
            Some(checkpoint) => {
                let belief = checkpoint.trusted(&map.about.surroundings);
                let written = checkpoint.written.as_ref().map_or(0, |w| w.generation);
                map.generation = checkpoint.durable.generation.max(written);
                map.sequence = checkpoint.sequence;
                map.next_durable = checkpoint.durable_slot.other();
                map.about.identity = belief.identity;
                map.have = belief.spans;
                // Bytes of an older generation were taken back since.
                let is_of_now = checkpoint.durable.generation == map.generation;
                map.synced = if is_of_now { checkpoint.durable.spans.clone() } else { SpanSet::new() };
                cycle.inherited = Some((checkpoint.durable_slot, checkpoint.durable));
            }
            None if map.recorded => {
                // It was spoilt. What the slots say, should they be read again, is of an older generation.
                map.generation += 1;
                (map.have, map.synced) = (SpanSet::new(), SpanSet::new());
            }
            None => (map.have, map.synced) = (have, SpanSet::new()),
        }
        map.about.done = None;
        map.changed = true;
        map.unsaved = 0;
        let end = self.disk.part_len()?.min(map.about.identity.length.unwrap_or(u64::MAX));
        if let Some(beyond) = Span::new(end, u64::MAX) {
            map.have.remove(beyond);
            map.synced.remove(beyond);
        }
        self.have_total.store(map.have.total(), Ordering::Relaxed);
        Ok(())
    }

    fn read_checkpoint(&self) -> io::Result<Result<Checkpoint, CheckpointError>> {
        let mut bytes = vec![0; usize::try_from(FILE_SIZE).unwrap_or(0)];
        let mut done = 0;
        while done < bytes.len() {
            match self.disk.read_at(Target::Checkpoint, done as u64, &mut bytes[done..]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Checkpoint::decode(&bytes[..done]))
    }
}

impl PartFile<OsDisk> {
    /// Whether no other process can write into it; `None` where that cannot be found out. Waits a moment for one that
    /// can: a program that is being started has copies of all descriptors of this process until it runs.
    ///
    /// # Errors
    /// When the part cannot be opened once more, or another process has taken its lock meanwhile.
    pub fn is_written_by_nobody_else(&self) -> io::Result<Option<bool>> {
        for _ in 0..10 {
            match self.disk.is_written_by_nobody_else() {
                Ok(Some(false)) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                known => return known,
            }
            // The kernel tells nobody when it is over.
            std::thread::sleep(Duration::from_millis(5));
        }
        self.disk.is_written_by_nobody_else()
    }
}
