//! The seam between what a part file means and the disk that holds it.
//!
//! [`crate::part_file::PartFile`] does everything through [`Disk`], so the tests can put a disk under it
//! that remembers each operation, loses unsynced writes and fails when told to.

use crate::splice;
use crate::sys::{self, FileSystem, Others};
use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, Mode, OFlags};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};
use tidegate_core::checkpoint::{SLOT_SIZE, Slot};
use tidegate_core::request::Preallocate;

/// Which of the two files of a download.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Target {
    /// The bytes.
    Part,
    /// Their map.
    Checkpoint,
}

/// The operations on the two files of a download. Offsets and lengths are in bytes.
///
/// Only `sync_data` makes anything durable; all that was done before it to that file is durable when it
/// returns `Ok`. After an error of it, anything not synced before may be lost.
pub trait Disk: Send + Sync {
    /// Reads some bytes; 0 at the end of the file.
    ///
    /// # Errors
    /// Those of `pread`.
    fn read_at(&self, target: Target, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Writes some bytes, at least one unless it fails.
    ///
    /// # Errors
    /// Those of `pwrite`.
    fn write_at(&self, target: Target, offset: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Writes some bytes that lie in a pipe into the part, at least one unless it fails.
    ///
    /// # Errors
    /// Those of `pwrite`.
    fn splice_at(&self, pipe: BorrowedFd<'_>, offset: u64, count: usize) -> io::Result<usize>;

    /// Waits until the content of a file, and its length, would survive a power loss.
    ///
    /// # Errors
    /// Those of `fdatasync`.
    fn sync_data(&self, target: Target) -> io::Result<()>;

    /// Waits until the names of both files would survive a power loss.
    ///
    /// # Errors
    /// Those of `fsync` on a directory.
    fn sync_names(&self) -> io::Result<()>;

    /// Cuts a file, or lengthens it with zeros.
    ///
    /// # Errors
    /// Those of `ftruncate`.
    fn set_len(&self, target: Target, length: u64) -> io::Result<()>;

    /// The length of the part.
    ///
    /// # Errors
    /// Those of `fstat`.
    fn part_len(&self) -> io::Result<u64>;

    /// Whether there is a checkpoint file.
    fn has_checkpoint(&self) -> bool;

    /// Makes an empty checkpoint file where there is none.
    ///
    /// # Errors
    /// Those of `openat`.
    fn create_checkpoint(&self) -> io::Result<()>;

    /// Takes room for the first `length` bytes of the part, where the file system does that at once.
    ///
    /// # Errors
    /// Only for lack of room.
    fn reserve(&self, length: u64, how: Preallocate) -> io::Result<()>;

    /// Begins to write the part's dirty pages to the disk, without waiting.
    fn start_writeback(&self);

    /// Whether a write that is refused for lack of room says nothing of the writes before it.
    fn refuses_at_once(&self) -> bool;
}

/// The real disk: open descriptors, and the directory they are in.
#[derive(Debug)]
pub struct OsDisk {
    part: File,
    checkpoint: OnceLock<File>,
    /// `None` in a process that was only given the descriptors.
    names: Option<Names>,
    /// Asked for when it first matters.
    file_system: OnceLock<FileSystem>,
}

#[derive(Debug)]
struct Names {
    dir: Arc<OwnedFd>,
    part: OsString,
    checkpoint: OsString,
}

impl OsDisk {
    /// The part, opened for reading and writing, and its checkpoint if there is one, in `dir`.
    pub fn new(
        dir: Arc<OwnedFd>,
        part: File,
        part_name: OsString,
        checkpoint: Option<File>,
        checkpoint_name: OsString,
    ) -> Self {
        Self::held(part, checkpoint, Some(Names { dir, part: part_name, checkpoint: checkpoint_name }))
    }

    /// Descriptors without names. Whoever gave them has the names, makes what must be made, and syncs them.
    pub fn received(part: File, checkpoint: Option<File>) -> Self {
        Self::held(part, checkpoint, None)
    }

    fn held(part: File, checkpoint: Option<File>, names: Option<Names>) -> Self {
        let checkpoint = checkpoint.map_or_else(OnceLock::new, OnceLock::from);
        Self { part, checkpoint, names, file_system: OnceLock::new() }
    }

    fn file_system(&self) -> FileSystem {
        *self.file_system.get_or_init(|| FileSystem::of(&self.part))
    }

    /// Both files once more, for another process to write, or only to read: what that does to its descriptors (their
    /// locks, their modes) concerns these here in nothing, and it is known when it has closed them.
    ///
    /// # Errors
    /// As [`OsDisk::reopen_read_only`].
    pub fn reopen(&self, only_to_read: bool) -> io::Result<(File, Option<File>)> {
        let Some(names) = &self.names else { return Err(io::ErrorKind::Unsupported.into()) };
        let access = if only_to_read { OFlags::RDONLY } else { OFlags::RDWR };
        let part = names.open(&names.part, access, &self.part)?;
        let checkpoint = self.checkpoint.get();
        let checkpoint = checkpoint.map(|held| names.open(&names.checkpoint, access, held)).transpose()?;
        Ok((part, checkpoint))
    }

    /// Whether nobody else can write into the part or its checkpoint by a descriptor, in any process. To be asked when
    /// nothing else is done with them here. `None` where that cannot be found out.
    ///
    /// # Errors
    /// When one cannot be opened once more, or another process has taken the part's lock meanwhile.
    pub fn is_written_by_nobody_else(&self) -> io::Result<Option<bool>> {
        // Whoever can still write into the map can say of bytes that they are another file's, or whole.
        for file in [Some(&self.part), self.checkpoint.get()].into_iter().flatten() {
            let alone = match sys::is_open_without(Others::Nobody, file) {
                // Somebody may only read: whoever indexes files, looks for viruses, or plays what is here so far.
                Some(false) => self.has_no_other_writers(file)?,
                known => known,
            };
            if alone != Some(true) {
                return Ok(alone);
            }
        }
        Ok(Some(true))
    }

    fn has_no_other_writers(&self, file: &File) -> io::Result<Option<bool>> {
        let Some(names) = &self.names else { return Ok(None) };
        let name = if std::ptr::eq(file, &self.part) { &names.part } else { &names.checkpoint };
        let lock = || match rustix::fs::flock(&self.part, FlockOperation::NonBlockingLockExclusive) {
            // A checkpoint has no lock, and whoever has the part's has it.
            Err(error @ rustix::io::Errno::WOULDBLOCK) => Err(io::Error::from(error)),
            _ => Ok(()),
        };
        // Our own writing would count too. The lock goes with it, and is taken again.
        let reader = names.open(name, OFlags::RDONLY, file)?;
        sys::reopen_as(file.as_fd(), reader.as_fd())?;
        drop(reader);
        lock()?;
        let without = sys::is_open_without(Others::NoWriters, file);
        let writer = names.open(name, OFlags::RDWR, file)?;
        sys::reopen_as(file.as_fd(), writer.as_fd())?;
        drop(writer);
        lock()?;
        Ok(without)
    }

    /// The part's descriptor, for moving bytes into it without a copy.
    pub fn part(&self) -> &File {
        &self.part
    }

    /// The number of the file system (`st_dev`).
    ///
    /// # Errors
    /// Those of `fstat`.
    pub fn device(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.part)?.st_dev)
    }

    /// Whether the part's name still leads to the part.
    ///
    /// # Errors
    /// Those of `fstat`; a name that is gone is `Ok(false)`.
    pub fn part_is_in_place(&self) -> io::Result<bool> {
        let Some(names) = &self.names else { return Err(io::ErrorKind::Unsupported.into()) };
        let held = rustix::fs::fstat(&self.part)?;
        match rustix::fs::statat(&*names.dir, &names.part, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) => Ok((named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)),
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The part once more, for reading only.
    ///
    /// # Errors
    /// Those of `openat`; `NotFound` if the name leads to another file by now.
    pub fn reopen_read_only(&self) -> io::Result<File> {
        let Some(names) = &self.names else { return Err(io::ErrorKind::Unsupported.into()) };
        names.open(&names.part, OFlags::RDONLY, &self.part)
    }

    fn file(&self, target: Target) -> io::Result<&File> {
        match target {
            Target::Part => Ok(&self.part),
            Target::Checkpoint => self.checkpoint.get().ok_or_else(|| io::ErrorKind::NotFound.into()),
        }
    }
}

impl Names {
    /// Opens a file of this directory if it is the one that is held.
    fn open(&self, name: &OsString, access: OFlags, held: &File) -> io::Result<File> {
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&*self.dir, name, flags, Mode::empty())?);
        let (held, named) = (rustix::fs::fstat(held)?, rustix::fs::fstat(&file)?);
        if (named.st_dev, named.st_ino) != (held.st_dev, held.st_ino) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(file)
    }
}

impl Drop for OsDisk {
    /// Gives the part's lock back at once. It would go when the last copy of the descriptor is closed, but
    /// a process that is being started elsewhere in this program has copies of all until it execs.
    fn drop(&mut self) {
        if self.names.is_none() {
            // The lock is held by whoever has the names.
            return;
        }
        let _ = rustix::fs::flock(&self.part, rustix::fs::FlockOperation::Unlock);
    }
}

impl AsFd for OsDisk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.part.as_fd()
    }
}

impl Disk for OsDisk {
    fn read_at(&self, target: Target, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file(target)?.read_at(into, offset)
    }

    fn write_at(&self, target: Target, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.file(target)?.write_at(bytes, offset)
    }

    fn splice_at(&self, pipe: BorrowedFd<'_>, offset: u64, count: usize) -> io::Result<usize> {
        splice::drain(pipe, self.part.as_fd(), offset, count)
    }

    fn sync_data(&self, target: Target) -> io::Result<()> {
        self.file(target)?.sync_data()
    }

    fn sync_names(&self) -> io::Result<()> {
        // Whoever gave the descriptors had synced the names before.
        let Some(names) = &self.names else { return Ok(()) };
        match rustix::fs::fsync(&*names.dir) {
            // Some file systems have no such thing as a directory to sync.
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn set_len(&self, target: Target, length: u64) -> io::Result<()> {
        self.file(target)?.set_len(length)
    }

    fn part_len(&self) -> io::Result<u64> {
        // Not by the standard library: that asks by an empty path, which a process without paths may not.
        let length = rustix::fs::fstat(&self.part)?.st_size;
        Ok(u64::try_from(length).unwrap_or(0))
    }

    fn has_checkpoint(&self) -> bool {
        self.checkpoint.get().is_some()
    }

    fn create_checkpoint(&self) -> io::Result<()> {
        if self.has_checkpoint() {
            return Ok(());
        }
        let Some(names) = &self.names else { return Err(io::ErrorKind::Unsupported.into()) };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // It tells where a file comes from, which is nobody else's business.
        let mode = Mode::RUSR | Mode::WUSR;
        let file = File::from(rustix::fs::openat(&*names.dir, &names.checkpoint, flags, mode)?);
        if self.file_system().reserves_at_once() {
            // The first page of each slot has its room from now on, so that progress can be recorded on
            // a full disk too. Where that fails, the write itself will tell.
            for slot in Slot::ALL {
                let length = SLOT_SIZE.min(4096);
                let _ = rustix::fs::fallocate(&file, FallocateFlags::empty(), slot.offset(), length);
            }
        }
        let _ = self.checkpoint.set(file);
        Ok(())
    }

    fn reserve(&self, length: u64, how: Preallocate) -> io::Result<()> {
        if how == Preallocate::None || length == 0 {
            return Ok(());
        }
        if self.file_system().is_memory() {
            return if self.part_len()? < length { self.part.set_len(length) } else { Ok(()) };
        }
        if !self.file_system().reserves_at_once() {
            return Ok(());
        }
        let before = self.part_len()?;
        match rustix::fs::fallocate(&self.part, FallocateFlags::empty(), 0, length) {
            Err(error @ (rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT | rustix::io::Errno::FBIG)) => {
                // It may have taken all the room that there was, which others need.
                if self.part_len()? > before {
                    self.part.set_len(before)?;
                }
                Err(error.into())
            }
            // An ext file system without extents, for one: it costs nothing but speed.
            _ => Ok(()),
        }
    }

    fn start_writeback(&self) {
        sys::start_writeback(self.part.as_fd());
    }

    fn refuses_at_once(&self) -> bool {
        self.file_system().refuses_at_once()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn open(dir: &Path) -> OsDisk {
        let fd = rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let part =
            File::options().read(true).write(true).create(true).truncate(false).open(dir.join("f.part"));
        let part = part.unwrap();
        rustix::fs::flock(&part, FlockOperation::NonBlockingLockExclusive).unwrap();
        OsDisk::new(Arc::new(fd.unwrap()), part, "f.part".into(), None, "f.part.tide".into())
    }

    #[test]
    fn whoever_reads_is_no_writer_and_whoever_writes_is_found_however_it_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let disk = open(dir.path());
        assert_eq!(disk.is_written_by_nobody_else().unwrap(), Some(true));
        let reader = File::open(dir.path().join("f.part")).unwrap();
        assert_eq!(disk.is_written_by_nobody_else().unwrap(), Some(true));
        // Everything is as before: it can be written to, and is locked.
        assert_eq!(disk.write_at(Target::Part, 3, b"abc").unwrap(), 3);
        assert!(rustix::fs::flock(&reader, FlockOperation::NonBlockingLockExclusive).is_err());
        let (lent, _) = disk.reopen(false).unwrap();
        assert_eq!(disk.is_written_by_nobody_else().unwrap(), Some(false));
        let kept = lent.try_clone().unwrap();
        drop((lent, reader));
        assert_eq!(disk.is_written_by_nobody_else().unwrap(), Some(false));
        drop(kept);
        assert_eq!(disk.is_written_by_nobody_else().unwrap(), Some(true));
    }

    #[test]
    fn whoever_can_still_write_into_the_map_is_found_as_well() {
        let dir = tempfile::tempdir().unwrap();
        let disk = open(dir.path());
        disk.create_checkpoint().unwrap();
        let (part, map) = disk.reopen(false).unwrap();
        drop(part);
        assert_eq!(disk.is_written_by_nobody_else().unwrap(), Some(false));
        drop(map);
        assert_eq!(disk.is_written_by_nobody_else().unwrap(), Some(true));
        let reader = File::open(dir.path().join("f.part.tide")).unwrap();
        assert_eq!(disk.is_written_by_nobody_else().unwrap(), Some(true));
        drop(reader);
        assert_eq!(disk.write_at(Target::Checkpoint, 0, b"map").unwrap(), 3);
    }

    #[test]
    fn what_is_lent_takes_no_lock_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let disk = open(dir.path());
        let (lent, _) = disk.reopen(false).unwrap();
        let _ = rustix::fs::flock(&lent, FlockOperation::Unlock);
        drop(OsDisk::received(lent, None));
        let other = File::open(dir.path().join("f.part")).unwrap();
        assert!(rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).is_err());
        drop(disk);
        assert!(rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).is_ok());
    }
}
