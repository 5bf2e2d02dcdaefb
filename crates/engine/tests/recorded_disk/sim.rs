//! The simulated machine: dice that can be thrown again, a disk that records what is asked of it, and a
//! kernel that replays the record with writeback at any time.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use tidegate_core::SpanSet;
use tidegate_core::request::Preallocate;
use tidegate_engine::disk::{Disk, Target};

const PAGE: usize = 4096;
const SECTOR: usize = 512;

/// splitmix64.
#[derive(Clone)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.throw() % n
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What the test knows to be true while an operation is under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Truth {
    pub(crate) version: u64,
    /// Bytes acknowledged as written, of this version.
    pub(crate) written: SpanSet,
    /// Bytes acknowledged as durable.
    pub(crate) durable: SpanSet,
    /// Bad bytes may be believed here: they came, and were not yet forgotten.
    pub(crate) spoiled: SpanSet,
    /// Everything is being thrown away: nothing is promised.
    pub(crate) restarting: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Write(Target, u64, Vec<u8>),
    SetLen(Target, u64),
    Create,
    Sync(Target),
    SyncNames,
    /// The process was told of an error of the disk; of a sync, if a file is named.
    Fail(Option<Target>),
    Now(Truth),
}

/// A rule that the disk breaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Lie {
    /// A sync of this file does nothing.
    NoSync(Target),
    /// Bytes are held back until something else is asked of the disk: the map runs ahead of them.
    LateBytes,
    /// After a failed sync nothing reaches the checkpoint, as if nobody noted the failure.
    NoNote,
}

#[derive(Default)]
pub(crate) struct Record {
    pub(crate) ops: Vec<Op>,
    pub(crate) part_len: u64,
    pub(crate) has_checkpoint: bool,
    pub(crate) fail_next_sync: Option<Target>,
    /// With this error number.
    pub(crate) fail_next_write: Option<i32>,
    /// What another thread does after the next sync of the part has done its work, and before it returns.
    pub(crate) during_next_sync: Option<Box<dyn FnOnce() + Send>>,
    pub(crate) lie: Option<Lie>,
    pub(crate) dice: u64,
    pub(crate) held_back: Option<(u64, Vec<u8>)>,
    pub(crate) failed: bool,
}

/// Records each operation. (It is never read: nothing that is tested here reads.)
#[derive(Clone)]
pub(crate) struct RecordingDisk(Arc<Mutex<Record>>);

impl RecordingDisk {
    pub(crate) fn new(record: Record) -> Self {
        Self(Arc::new(Mutex::new(record)))
    }

    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut Record) -> T) -> T {
        f(&mut self.0.lock().unwrap())
    }

    pub(crate) fn note(&self, truth: &Truth) {
        self.with(|r| r.ops.push(Op::Now(truth.clone())));
    }

    pub(crate) fn take(&self) -> Vec<Op> {
        self.with(|r| std::mem::take(&mut r.ops))
    }
}

impl Record {
    fn release(&mut self) {
        if let Some((offset, bytes)) = self.held_back.take() {
            self.ops.push(Op::Write(Target::Part, offset, bytes));
        }
    }
}

impl Disk for RecordingDisk {
    fn read_at(&self, _: Target, _: u64, _: &mut [u8]) -> io::Result<usize> {
        Ok(0)
    }

    fn write_at(&self, target: Target, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.with(|r| {
            if target == Target::Part
                && let Some(errno) = r.fail_next_write.take()
            {
                if errno == 5 {
                    r.ops.push(Op::Fail(None));
                }
                return Err(io::Error::from_raw_os_error(errno));
            }
            if r.failed && r.lie == Some(Lie::NoNote) && target == Target::Checkpoint {
                return Err(io::Error::from_raw_os_error(5));
            }
            // Short writes happen.
            let mut dice = Dice(r.dice);
            r.dice = dice.throw();
            let count = if bytes.len() > 1 && dice.one_in(8) { bytes.len() / 2 } else { bytes.len() };
            let bytes = bytes[..count].to_vec();
            if target == Target::Part {
                r.part_len = r.part_len.max(offset + count as u64);
                if r.lie == Some(Lie::LateBytes) {
                    r.release();
                    r.held_back = Some((offset, bytes));
                    return Ok(count);
                }
            }
            r.ops.push(Op::Write(target, offset, bytes));
            r.release();
            Ok(count)
        })
    }

    fn splice_at(&self, pipe: BorrowedFd<'_>, offset: u64, count: usize) -> io::Result<usize> {
        let mut bytes = vec![0; count];
        let count = rustix::io::read(pipe, &mut bytes)?;
        let mut done = 0;
        while done < count {
            done += self.write_at(Target::Part, offset + done as u64, &bytes[done..count])?;
        }
        Ok(count)
    }

    fn sync_data(&self, target: Target) -> io::Result<()> {
        self.with(|r| {
            r.release();
            if r.fail_next_sync == Some(target) {
                r.fail_next_sync = None;
                r.failed = true;
                r.ops.push(Op::Fail(Some(target)));
                return Err(io::Error::from_raw_os_error(5));
            }
            if r.lie != Some(Lie::NoSync(target)) {
                r.ops.push(Op::Sync(target));
            }
            Ok(())
        })?;
        let meanwhile = (target == Target::Part).then(|| self.with(|r| r.during_next_sync.take())).flatten();
        meanwhile.into_iter().for_each(|act| act());
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        self.with(|r| r.ops.push(Op::SyncNames));
        Ok(())
    }

    fn set_len(&self, target: Target, length: u64) -> io::Result<()> {
        self.with(|r| {
            r.release();
            if target == Target::Part {
                r.part_len = length;
            }
            r.ops.push(Op::SetLen(target, length));
        });
        Ok(())
    }

    fn part_len(&self) -> io::Result<u64> {
        Ok(self.with(|r| r.part_len))
    }

    fn has_checkpoint(&self) -> bool {
        self.with(|r| r.has_checkpoint)
    }

    fn create_checkpoint(&self) -> io::Result<()> {
        self.with(|r| {
            r.has_checkpoint = true;
            r.ops.push(Op::Create);
        });
        Ok(())
    }

    fn reserve(&self, _: u64, _: Preallocate) -> io::Result<()> {
        Ok(())
    }

    fn start_writeback(&self) {}

    fn refuses_at_once(&self) -> bool {
        true
    }
}

/// The bytes of a file in pages, which copies share until one changes them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    pages: Vec<Arc<[u8; PAGE]>>,
    len: usize,
}

impl Pages {
    pub(crate) fn len(&self) -> u64 {
        self.len as u64
    }

    pub(crate) fn byte(&self, at: usize) -> u8 {
        self.pages[at / PAGE][at % PAGE]
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.pages.len() * PAGE);
        self.pages.iter().for_each(|page| bytes.extend_from_slice(page.as_slice()));
        bytes.truncate(self.len);
        bytes
    }

    /// Whether these bytes stand there.
    pub(crate) fn has(&self, start: usize, bytes: &[u8]) -> bool {
        parts(start, bytes.len()).all(|(index, within, from)| {
            self.pages[index][within.clone()] == bytes[from..from + within.len()]
        })
    }

    fn write(&mut self, start: usize, bytes: &[u8]) {
        self.resize(self.len.max(start + bytes.len()));
        for (index, within, from) in parts(start, bytes.len()) {
            let count = within.len();
            Arc::make_mut(&mut self.pages[index])[within].copy_from_slice(&bytes[from..from + count]);
        }
    }

    fn resize(&mut self, len: usize) {
        if len < self.len && !len.is_multiple_of(PAGE) {
            Arc::make_mut(&mut self.pages[len / PAGE])[len % PAGE..].fill(0);
        }
        self.pages.resize(len.div_ceil(PAGE), Arc::new([0; PAGE]));
        self.len = len;
    }

    /// Zeros where the file has none.
    fn page(&self, index: usize) -> Arc<[u8; PAGE]> {
        self.pages.get(index).cloned().unwrap_or_else(|| Arc::new([0; PAGE]))
    }

    fn put_page(&mut self, index: usize, page: Arc<[u8; PAGE]>) {
        if let Some(place) = self.pages.get_mut(index) {
            *place = page;
        }
    }
}

/// Which page, which bytes in it, and how many bytes come before, for each page of a range.
fn parts(start: usize, len: usize) -> impl Iterator<Item = (usize, Range<usize>, usize)> {
    let end = start + len;
    (start / PAGE..end.div_ceil(PAGE)).filter(move |_| len > 0).map(move |index| {
        let (from, to) = (start.max(index * PAGE), end.min((index + 1) * PAGE));
        (index, from - index * PAGE..to - index * PAGE, from - start)
    })
}

/// One file: what the page cache has, what the disk has, and which pages they may differ in.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimFile {
    pub(crate) cache: Pages,
    disk: Pages,
    dirty: BTreeSet<usize>,
}

impl SimFile {
    /// A file that a machine finds when it starts.
    pub(crate) fn found(disk: Pages) -> Self {
        Self { cache: disk.clone(), disk, dirty: BTreeSet::new() }
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.cache.write(offset as usize, bytes);
        self.dirty.extend(parts(offset as usize, bytes.len()).map(|(index, ..)| index));
    }

    fn set_len(&mut self, length: u64) {
        let pages = self.cache.pages.len().max((length as usize).div_ceil(PAGE));
        self.cache.resize(length as usize);
        self.dirty.extend(length as usize / PAGE..pages);
    }

    /// One page goes to the disk, and with it as much length as it needs.
    fn write_back(&mut self, index: usize, page: Arc<[u8; PAGE]>) {
        let end = ((index + 1) * PAGE).min(self.cache.len);
        self.disk.resize(self.disk.len.max(end));
        self.disk.put_page(index, page);
    }

    fn sync(&mut self) {
        for index in std::mem::take(&mut self.dirty) {
            self.write_back(index, self.cache.page(index));
        }
        self.disk.resize(self.cache.len);
    }

    /// Some dirty pages are written, others are lost, some of these also from the cache; none is dirty.
    fn fail_sync(&mut self, dice: &mut Dice) {
        for index in std::mem::take(&mut self.dirty) {
            if dice.one_in(2) {
                self.write_back(index, self.cache.page(index));
            } else if dice.one_in(2) {
                let old = self.disk.page(index);
                self.cache.put_page(index, old);
            }
        }
    }

    /// The kernel writes what it likes when it likes.
    fn some_writeback(&mut self, dice: &mut Dice) {
        if dice.one_in(4) {
            let chosen: Vec<usize> = self.dirty.iter().copied().filter(|_| dice.one_in(3)).collect();
            for index in chosen {
                self.write_back(index, self.cache.page(index));
                self.dirty.remove(&index);
            }
        }
    }

    /// What the disk has when the power is gone: each dirty page may have reached it, whole or by sectors.
    pub(crate) fn lose_power(mut self, dice: &mut Dice) -> Pages {
        let rate = dice.below(4) + 1;
        let tears = dice.one_in(2);
        for index in std::mem::take(&mut self.dirty) {
            let new = self.cache.page(index);
            if tears {
                let mut mixed = self.disk.page(index);
                for at in (0..PAGE).step_by(SECTOR).filter(|_| dice.one_in(rate)) {
                    Arc::make_mut(&mut mixed)[at..at + SECTOR].copy_from_slice(&new[at..at + SECTOR]);
                }
                self.write_back(index, mixed);
            } else if dice.one_in(rate) {
                self.write_back(index, new);
            }
        }
        if dice.one_in(2) {
            self.disk.resize(self.cache.len);
        }
        self.disk
    }
}

/// The machine as far as one download is concerned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sim {
    pub(crate) boot: u128,
    pub(crate) part: SimFile,
    pub(crate) checkpoint: Option<SimFile>,
    pub(crate) names_are_durable: bool,
    pub(crate) truth: Truth,
    /// The disk has failed, so only what is durable is promised.
    pub(crate) failed: bool,
    /// The process has met that just now, and is about to note it. Between a failed sync and that note lies
    /// a window of microseconds in which a kill is not covered; so here the next that asks is told again.
    pub(crate) untold: bool,
}

impl Sim {
    pub(crate) fn file(&mut self, target: Target) -> &mut SimFile {
        match target {
            Target::Part => &mut self.part,
            Target::Checkpoint => self.checkpoint.as_mut().expect("it is made before it is used"),
        }
    }

    pub(crate) fn apply(&mut self, op: &Op, dice: &mut Dice) {
        match op {
            Op::Write(target, offset, bytes) => self.file(*target).write(*offset, bytes),
            Op::SetLen(target, length) => self.file(*target).set_len(*length),
            Op::Create => self.checkpoint = Some(SimFile::default()),
            Op::Sync(target) => self.file(*target).sync(),
            Op::SyncNames => self.names_are_durable = true,
            Op::Fail(target) => {
                if let Some(target) = target {
                    self.file(*target).fail_sync(dice);
                }
                self.failed = true;
                self.untold = true;
            }
            Op::Now(truth) => {
                self.truth = truth.clone();
                self.untold = false;
            }
        }
        self.part.some_writeback(dice);
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.some_writeback(dice);
        }
    }
}
