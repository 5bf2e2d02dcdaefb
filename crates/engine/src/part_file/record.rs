//! How the map reaches the checkpoint: the order of writes and syncs on which everything rests.
//!
//! `cycle` is held by every caller that passes it, so the D slots have one writer at a time.

use super::SAVE_EVERY;
use super::{Cycle, Map, PartFile, SMALLEST_WITH_CHECKPOINT, Version, WriteError, lock};
use crate::disk::{Disk, Target};
use rustix::io::Errno;
use std::io;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use tidegate_core::checkpoint::{self, FILE_SIZE, Record, Slot, VOID_LEN};
use tidegate_core::{Identity, Span, SpanSet};

impl<D: Disk> PartFile<D> {
    pub(super) fn run_cycle(&self, cycle: &mut Cycle) -> io::Result<u64> {
        {
            let mut map = self.live_map()?;
            if !map.changed {
                return Ok(map.synced.total());
            }
            map.changed = false;
            cycle.copy.clone_from(&map.have);
        }
        if let Err(error) = self.disk.sync_data(Target::Part) {
            self.fail();
            return Err(error);
        }
        let recorded = {
            let mut map = self.live_map()?;
            map.synced.clone_from(&cycle.copy);
            map.recorded
        };
        let outcome = if recorded { self.write_durable(cycle) } else { Ok(()) };
        if outcome.is_err() {
            lock(&self.map).changed = true;
        }
        outcome.map(|()| cycle.copy.total())
    }

    /// Writes the older D slot with what is synced, and syncs it.
    pub(super) fn write_durable(&self, cycle: &mut Cycle) -> io::Result<()> {
        if let Some((slot, Record { sequence, generation, about, spans })) = &cycle.inherited {
            // The process before may have been killed, or told of an error, before this slot was on the
            // disk: then only the other one is, which must not be touched yet. Writing the same bytes
            // again changes nothing if they are there.
            checkpoint::encode(&mut cycle.buffer, *slot, *sequence, *generation, about, spans);
            self.put_durable(*slot, &cycle.buffer)?;
            cycle.inherited = None;
        }
        let slot = {
            let mut map = self.live_map()?;
            map.sequence += 1;
            checkpoint::encode(
                &mut cycle.buffer,
                map.next_durable,
                map.sequence,
                map.generation,
                &map.about,
                &map.synced,
            );
            map.next_durable
        };
        self.put_durable(slot, &cycle.buffer)?;
        if !cycle.names_are_synced {
            self.disk.sync_names().inspect_err(|_| self.fail())?;
            cycle.names_are_synced = true;
        }
        // Only now may the other slot be overwritten.
        lock(&self.map).next_durable = slot.other();
        Ok(())
    }

    pub(super) fn put_durable(&self, slot: Slot, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.write_all(slot.offset(), bytes) {
            if !self.is_refusal(&error) {
                self.fail();
            }
            return Err(error);
        }
        self.disk.sync_data(Target::Checkpoint).inspect_err(|_| self.fail())
    }

    /// Makes both D slots say no more than what is synced, under a generation that the caller has put up;
    /// so a single slot that is lost later cannot bring back what was taken back.
    pub(super) fn take_back(&self, cycle: &mut Cycle) -> io::Result<()> {
        if !self.live_map()?.recorded {
            return Ok(());
        }
        self.write_durable(cycle)?;
        self.write_durable(cycle)
    }

    pub(super) fn replace(&self, cycle: &mut Cycle, identity: &Identity, spans: SpanSet) -> io::Result<()> {
        {
            let mut map = self.live_map()?;
            map.generation += 1;
            map.have = SpanSet::new();
            map.synced = SpanSet::new();
            map.unsaved = 0;
            map.about.identity.clone_from(identity);
            map.about.key.clone_from(&self.key);
            map.about.done = None;
            self.have_total.store(0, Ordering::Relaxed);
        }
        self.take_back(cycle).inspect_err(|_| self.fail())?;
        self.provide_checkpoint()?;
        let mut map = self.live_map()?;
        map.changed = true;
        map.have = spans;
        self.have_total.store(map.have.total(), Ordering::Relaxed);
        self.save_written(&mut map)
    }

    /// Makes the checkpoint file if the length asks for one and there is none of ours.
    pub(super) fn provide_checkpoint(&self) -> io::Result<()> {
        let mut map = self.live_map()?;
        let small = map.about.identity.length.is_some_and(|length| length < SMALLEST_WITH_CHECKPOINT);
        if map.recorded || small {
            return Ok(());
        }
        if self.disk.has_checkpoint() {
            // A damaged one. Nothing in it may come back to life beside our slots.
            self.disk.set_len(Target::Checkpoint, 0)?;
            self.disk.sync_data(Target::Checkpoint)?;
        } else {
            self.disk.create_checkpoint()?;
        }
        self.disk.set_len(Target::Checkpoint, FILE_SIZE)?;
        let map = &mut *map;
        map.generation += 1;
        map.sequence += 1;
        // It says that nothing is durable, which is true, so it needs no sync.
        let nothing = SpanSet::new();
        checkpoint::encode(
            &mut map.buffer,
            map.next_durable,
            map.sequence,
            map.generation,
            &map.about,
            &nothing,
        );
        self.write_all(map.next_durable.offset(), &map.buffer)?;
        map.next_durable = map.next_durable.other();
        map.recorded = true;
        map.changed = true;
        Ok(())
    }

    pub(super) fn record(&self, offset: u64, length: u64) -> Result<(), WriteError> {
        let mut map = self.live_map()?;
        // Nothing beyond the end of the file can be bytes of it.
        let end = offset.saturating_add(length).min(map.about.identity.length.unwrap_or(u64::MAX));
        let Some(span) = Span::new(offset, end) else { return Ok(()) };
        let new = span.len() - map.have.total_within(span);
        map.have.insert(span);
        map.changed = true;
        map.unsaved += new;
        self.have_total.fetch_add(new, Ordering::Relaxed);
        if map.unsaved >= SAVE_EVERY {
            self.save_written(&mut map)?;
        }
        Ok(())
    }

    /// Overwrites the older W slot with the map, not synced.
    pub(super) fn save_written(&self, map: &mut Map) -> io::Result<()> {
        if !map.recorded {
            map.unsaved = 0;
            return Ok(());
        }
        map.sequence += 1;
        let slot = map.next_written;
        checkpoint::encode(&mut map.buffer, slot, map.sequence, map.generation, &map.about, &map.have);
        match self.write_all(slot.offset(), &map.buffer) {
            Ok(()) => {
                map.next_written = slot.other();
                map.unsaved = 0;
                Ok(())
            }
            Err(error) => {
                if !self.is_refusal(&error) {
                    self.fail_map(map);
                }
                Err(error)
            }
        }
    }

    pub(super) fn write_all(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.disk.write_at(Target::Checkpoint, offset + done as u64, &bytes[done..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) fn cut(&self, length: u64) -> io::Result<()> {
        self.disk.set_len(Target::Part, length).inspect_err(|_| self.fail())
    }

    pub(super) fn check_version(&self, version: Version) -> Result<(), WriteError> {
        if version.0 == 0 || version != self.version() { Err(WriteError::Superseded) } else { Ok(()) }
    }

    /// Whether a write failed only because there is no room for it, which says nothing of what was
    /// written before.
    pub(super) fn is_refusal(&self, error: &io::Error) -> bool {
        let no_room = [Errno::NOSPC, Errno::DQUOT, Errno::FBIG].map(|errno| errno.raw_os_error());
        error.raw_os_error().is_some_and(|raw| no_room.contains(&raw)) && self.disk.refuses_at_once()
    }

    /// The map, unless the disk has failed before.
    pub(super) fn live_map(&self) -> io::Result<MutexGuard<'_, Map>> {
        let map = lock(&self.map);
        if map.failed {
            // Not the error of then: that there is room again, for instance, does not mend this.
            return Err(io::Error::other("the disk failed before, and the part must be opened again"));
        }
        Ok(map)
    }

    pub(super) fn fail(&self) {
        self.fail_map(&mut lock(&self.map));
    }

    /// The page cache may have lost what it took: back to what was synced.
    pub(super) fn fail_map(&self, map: &mut Map) {
        if map.failed {
            return;
        }
        self.failed.store(true, Ordering::Release);
        map.failed = true;
        map.have.clone_from(&map.synced);
        self.have_total.store(map.have.total(), Ordering::Relaxed);
        if !map.recorded {
            return;
        }
        // There is nobody to tell if these fail too; but the pages were written lately, so they are in the
        // page cache, and overwriting them needs nothing of the disk. One small write of a D slot with a
        // higher generation voids both W slots in one step; a durability cycle that is under way may
        // overwrite that, so they are made void themselves as well.
        map.about.done = None;
        map.generation += 1;
        map.sequence += 1;
        let slot = map.next_durable;
        checkpoint::encode(&mut map.buffer, slot, map.sequence, map.generation, &map.about, &map.synced);
        let _ = self.write_all(slot.offset(), &map.buffer);
        for slot in [map.next_written.other(), map.next_written] {
            let _ = self.write_all(slot.offset(), &[0; VOID_LEN]);
        }
    }
}
