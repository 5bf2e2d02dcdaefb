//! One directory, opened once, and what is done to the names in it. Nothing here follows a link below the
//! directory that the user chose, and no name has more than one component.

use super::failure::disk_failure;
use super::names::is_plain;
use crate::syncs::DirectoryId;
use crate::sys::FileSystem;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use tidegate_core::{Code, Failure, Remedy};

/// An open directory and how to call it.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) path: PathBuf,
}

/// What stands under a name.
#[derive(Debug)]
pub(super) enum Opened {
    /// There was nothing; an empty file was made.
    Created(File),
    /// A regular file of our own with this one name.
    Existing(File),
    /// A regular file of our own that has other names too.
    Linked(File),
    /// Something that must be left alone: a link, another's file, a pipe.
    Unsafe,
}

impl Folder {
    /// Opens `dir` and, one by one, the folders of `name` beneath it, making what is missing; and returns
    /// the last component of `name`.
    ///
    /// The chosen directory itself may be a link, or beneath one (`~/Downloads` often is). Below it each
    /// component is opened on its own with O_NOFOLLOW, which for plain components keeps to the same
    /// promise as openat2 with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS, on any kernel.
    pub(super) fn open(dir: &Path, name: &Path) -> Result<(Self, OsString), Failure> {
        let mut components = Vec::new();
        for component in name.components() {
            match component {
                Component::Normal(part) if is_plain(part) => components.push(part),
                Component::CurDir => {}
                _ => return Err(leaves(dir, name)),
            }
        }
        let Some(last) = components.pop() else { return Err(leaves(dir, name)) };
        if dir.as_os_str().is_empty() {
            return Self::open(Path::new("."), name);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = match rustix::fs::open(dir, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                std::fs::create_dir_all(dir).map_err(|e| disk_failure("create the folder", dir, &e))?;
                rustix::fs::open(dir, flags, Mode::empty())
            }
            other => other,
        };
        let mut fd = root.map_err(|e| disk_failure("open the folder", dir, &e.into()))?;
        let mut path = dir.to_owned();
        for component in components {
            path.push(component);
            match rustix::fs::mkdirat(&fd, component, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(disk_failure("create the folder", &path, &error.into())),
            }
            fd = rustix::fs::openat(&fd, component, flags | OFlags::NOFOLLOW, Mode::empty())
                .map_err(|error| disk_failure("open the folder", &path, &error.into()))?;
        }
        Ok((Self { fd: Arc::new(fd), path }, last.to_owned()))
    }

    /// Opens a part or checkpoint for reading and writing, if it may be.
    pub(super) fn open_own(&self, name: &OsStr, create: bool) -> io::Result<Option<Opened>> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        if create {
            let readable_by_all = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
            let flags = flags | OFlags::CREATE | OFlags::EXCL;
            match rustix::fs::openat(&*self.fd, name, flags, readable_by_all) {
                Ok(fd) => return Ok(Some(Opened::Created(File::from(fd)))),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let file = match rustix::fs::openat(&*self.fd, name, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            // Gone since, or never there.
            Err(Errno::NOENT) => return Ok(None),
            // A link, a directory, a socket, or a file that is not ours to write.
            Err(Errno::LOOP | Errno::MLINK | Errno::ISDIR | Errno::NXIO | Errno::ACCESS | Errno::PERM) => {
                return Ok(Some(Opened::Unsafe));
            }
            Err(error) => return Err(error.into()),
        };
        let stat = rustix::fs::fstat(&file)?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let ours =
            stat.st_uid == rustix::process::geteuid().as_raw() || !FileSystem::of(&file).keeps_owners();
        Ok(Some(match stat.st_nlink {
            _ if !regular || !ours => Opened::Unsafe,
            1 => Opened::Existing(file),
            _ => Opened::Linked(file),
        }))
    }

    /// Locks a file against other downloads, until the last descriptor of this opening is closed. `false`
    /// if another has it. Where the file system has no locks, there is none.
    pub(super) fn lock(file: &File) -> io::Result<bool> {
        loop {
            match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(true),
                Err(Errno::WOULDBLOCK) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// What a name leads to, links not followed.
    pub(super) fn stat(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&*self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a name leads to this open file.
    pub(super) fn leads_to(&self, name: &OsStr, file: &File) -> io::Result<bool> {
        let held = rustix::fs::fstat(file)?;
        Ok(self.stat(name)?.is_some_and(|named| same_file(&named, &held)))
    }

    /// Opens a finished file for reading; `None` if the name leads to no regular file.
    pub(super) fn open_finished(&self, name: &OsStr) -> io::Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&*self.fd, name, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT | Errno::LOOP | Errno::MLINK | Errno::NXIO | Errno::ACCESS) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(file.metadata()?.is_file().then_some(file))
    }

    /// Removes a name. That it is gone already is no error.
    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        match rustix::fs::unlinkat(&*self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the names here would survive a power loss.
    pub(super) fn sync(&self) -> io::Result<()> {
        match rustix::fs::fsync(&*self.fd) {
            Ok(()) | Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// What names this directory, whatever it is called.
    pub(super) fn id(&self) -> io::Result<DirectoryId> {
        let stat = rustix::fs::fstat(&*self.fd)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Gives a file another name, replacing what is there.
    pub(super) fn rename_over(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&*self.fd, from, &*self.fd, to)?)
    }

    /// Gives a file another name unless that is taken (`AlreadyExists`).
    pub(super) fn rename_new(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let (fd, taken) = (&*self.fd, RenameFlags::NOREPLACE);
        match rustix::fs::renameat_with(fd, from, fd, to, taken) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => self.rename_new_without_help(from, to),
            other => Ok(other?),
        }
    }

    /// [`Folder::rename_new`] for file systems that cannot rename without replacing.
    fn rename_new_without_help(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let fd = &*self.fd;
        match rustix::fs::linkat(fd, from, fd, to, AtFlags::empty()) {
            // A crash here leaves two names of one file; the next run finds that and removes the part's.
            Ok(()) => self.remove(from),
            // No links either: an empty file holds the name for the moment. (The one exception to "the
            // final name appears only whole".)
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::MLINK) => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                rustix::fs::openat(fd, to, flags, Mode::RUSR | Mode::WUSR)?;
                self.rename_over(from, to).inspect_err(|_| {
                    // The placeholder is ours and empty. The first error is the one to tell.
                    let _ = self.remove(to);
                })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The path of a name, for people.
    pub(super) fn join(&self, name: &OsStr) -> PathBuf {
        self.path.join(name)
    }
}

pub(super) fn same_file(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

fn leaves(dir: &Path, name: &Path) -> Failure {
    let message = format!(
        "{:?} is not a name for a file below {}; give a plain name, or choose the folder with --dir",
        name,
        dir.display()
    );
    Failure::new(Code::UnsafePart, message).with_remedy(Remedy::GiveUp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_is_not_replaced_even_without_help_from_the_kernel() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, _) = Folder::open(dir.path(), Path::new("x")).unwrap();
        std::fs::write(dir.path().join("a"), "new").unwrap();
        std::fs::write(dir.path().join("b"), "old").unwrap();
        for rename in [Folder::rename_new, Folder::rename_new_without_help] {
            let error = rename(&folder, OsStr::new("a"), OsStr::new("b")).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
            rename(&folder, OsStr::new("a"), OsStr::new("c")).unwrap();
            assert_eq!(std::fs::read(dir.path().join("c")).unwrap(), b"new");
            assert_eq!(std::fs::read(dir.path().join("b")).unwrap(), b"old");
            folder.rename_new(OsStr::new("c"), OsStr::new("a")).unwrap();
        }
    }
}
