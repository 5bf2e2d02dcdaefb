//! The cold side of a file: finding and locking `NAME.part`, reading what its checkpoint promises, and
//! giving the whole file its final name.
//!
//! ```text
//! Landing::open ─▶ found() ─▶ (the server tells which file) ─▶ begin ─▶ part().write_at … ─▶ publish
//!                     └─▶ next_part() when it turned out to be another's        └─▶ keep / discard
//! ```
//!
//! Everything here may wait for the disk: call it from a thread that may.

mod failure;
mod folder;
mod names;
mod origin;
mod place;
mod publish;

pub use failure::disk_failure;

use crate::part_file::{Basis, PartFile, Version};
use crate::room::{self, Room};
use crate::syncs::SharedSyncs;
use failure::human_bytes;
use folder::Folder;
use names::MOST_NUMBERS;
use origin::Origin;
use place::{Place, Whose, find_place};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidegate_core::checkpoint::{Link, Promise, RequestKey};
use tidegate_core::message::Proof;
use tidegate_core::request::{OnExists, Options, Resume};
use tidegate_core::{Code, Failure, Identity, Span, SpanSet};
use url::Url;

/// What is to land where.
#[derive(Clone, Debug)]
pub struct LandingRequest {
    /// The directory; it is made if missing, and nothing is written outside it.
    pub dir: PathBuf,
    /// The file's name below `dir`, which may hold folders; they are made if missing.
    pub name: PathBuf,
    /// The user chose the name (`-o`), so a part of that name is meant, even if it came from another link.
    pub explicit_name: bool,
    /// The URL asked for. Its query and credentials are not recorded.
    pub url: Url,
    /// With [`Resume::Never`] whatever is there counts for nothing.
    pub resume: Resume,
    /// A leftover of another tool. It is only read.
    pub adopt: Option<PathBuf>,
}

/// What was there already.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Found {
    /// Nothing of use.
    Nothing,
    /// A part with a checkpoint that may be believed.
    Recorded {
        /// The version of the remote file that the bytes are of.
        identity: Identity,
        /// The bytes that are there.
        spans: SpanSet,
        /// Whether it was this URL. After [`Link::OtherQuery`] only an equal identity makes it the same
        /// request; else call [`Landing::next_part`]. [`Link::Other`] is offered only for an explicit name,
        /// and its bytes must be proved, or left alone by [`Landing::next_part`].
        link: Link,
        /// Why the bytes are believed.
        promise: Promise,
        /// The part is a copy, which may be older than its checkpoint: its bytes must be proved too.
        moved: bool,
        /// It was whole, verified and about to get this name: [`Landing::publish`] can go on after
        /// [`Landing::begin`] with the recorded identity, without asking the server again.
        done: Option<OsString>,
    },
    /// Bytes of which nothing is known: a part without a whole checkpoint, or the adopted file. They may be
    /// proved by comparing them (see [`Landing::read_found`]), never believed; the length means nothing
    /// either, since room is reserved ahead.
    Bare {
        /// Length of the file in bytes, not 0.
        length: u64,
        /// It is the adopted file. Else the part, which another program may have left there.
        adopted: bool,
    },
}

/// What to do after the server has told which file it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Begin {
    /// Fetch what [`PartFile::have`] lacks, and write with this version.
    Fetch(Version),
    /// The same version is here, whole, under its final name. The part is not needed:
    /// [`Landing::discard`].
    AlreadyComplete {
        /// Where.
        path: PathBuf,
        /// What was known of it when it got its name.
        proof: Proof,
    },
    /// A file is there and was to be left alone (`--on-exists skip`).
    Skip {
        /// Where.
        path: PathBuf,
    },
    /// The file that is there is not older than the server's (`--newer`).
    NotNewer {
        /// Where.
        path: PathBuf,
    },
}

/// What became of a whole file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Published {
    /// It has its name.
    Named {
        /// Where it is.
        path: PathBuf,
    },
    /// A file of that name came to be there during the download, and was to be left alone.
    LeftAlone {
        /// That file.
        path: PathBuf,
        /// Where the bytes stay.
        kept: PathBuf,
    },
}

/// A finished file that is there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Existing {
    /// Where.
    pub path: PathBuf,
    /// Its length in bytes.
    pub length: u64,
    /// When it was last modified, in whole seconds since 1970.
    pub modified: i64,
}

/// A place for one file, locked against other downloads until dropped.
#[derive(Debug)]
pub struct Landing {
    folder: Folder,
    name: OsString,
    explicit_name: bool,
    url: Url,
    resume: Resume,
    adopt: Option<File>,
    place: Place,
    syncs: Arc<SharedSyncs>,
    /// Finished files that are not the one that is wanted, whatever they say of themselves.
    not_wanted: Vec<PathBuf>,
}

impl Landing {
    /// Opens and locks the part for a request: `NAME.part`, or the first of `NAME.1.part`, `NAME.2.part`
    /// and so on that is not in use, does not belong to another request and is safe to write.
    ///
    /// # Errors
    /// `unsafe-part` for a name that leads out of the directory or through a link, or if every part is
    /// unsafe; `locked` if all are in use; `permission-denied`, `disk-full` or `disk-error` as the disk
    /// has it.
    pub fn open(request: LandingRequest) -> Result<Self, Failure> {
        let LandingRequest { dir, name, explicit_name, url, resume, adopt } = request;
        let adopt = adopt.as_deref().map(open_adopted).transpose()?;
        let (folder, name) = Folder::open(&dir, &name)?;
        let key = RequestKey::of(&url);
        let whose = if explicit_name { Whose::Any } else { Whose::Similar };
        let place = find_place(&folder, &name, 0, &key, resume, whose)?;
        let (syncs, not_wanted) = (Arc::default(), Vec::new());
        Ok(Self { folder, name, explicit_name, url, resume, adopt, place, syncs, not_wanted })
    }

    /// Syncs its directory together with others that do so there.
    #[must_use]
    pub fn sharing(mut self, syncs: &Arc<SharedSyncs>) -> Self {
        self.syncs = Arc::clone(syncs);
        self
    }

    /// What was there.
    pub fn found(&self) -> Found {
        let adopted = self.adopt.as_ref().and_then(|file| file.metadata().ok());
        match (&self.place.found, adopted) {
            (Found::Nothing | Found::Bare { .. }, Some(adopted)) if adopted.len() > 0 => {
                Found::Bare { length: adopted.len(), adopted: true }
            }
            (found, _) => found.clone(),
        }
    }

    /// Leaves this part as it was, and opens the next that is free or belongs to this very link.
    ///
    /// # Errors
    /// As [`Landing::open`].
    pub fn next_part(&mut self) -> Result<(), Failure> {
        let key = RequestKey::of(&self.url);
        let from = self.place.number + 1;
        self.place = find_place(&self.folder, &self.name, from, &key, self.resume, Whose::Own)?;
        Ok(())
    }

    /// The part file, for the threads that write and sync it.
    pub fn part(&self) -> &Arc<PartFile> {
        &self.place.part
    }

    /// Where the part is.
    pub fn part_path(&self) -> PathBuf {
        self.folder.join(&self.place.part_name)
    }

    /// Reads what [`Landing::found`] found, for proof. Short only at its end.
    ///
    /// # Errors
    /// Those of `pread`.
    pub fn read_found(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        match (self.found(), &self.adopt) {
            (Found::Bare { adopted: true, .. }, Some(file)) => read_full(file, offset, into),
            _ => self.place.part.read_at(offset, into),
        }
    }

    /// The finished file of this name, if there is one.
    ///
    /// # Errors
    /// `disk-error` or `unsafe-part` when that cannot be found out.
    pub fn existing(&self, final_name: &OsStr) -> Result<Option<Existing>, Failure> {
        let name = self.final_name(final_name)?;
        let path = self.folder.join(&name);
        let file = self.folder.open_finished(&name).map_err(|e| disk_failure("look at", &path, &e))?;
        let Some(file) = file else { return Ok(None) };
        let metadata = file.metadata().map_err(|e| disk_failure("look at", &path, &e))?;
        let modified = std::os::unix::fs::MetadataExt::mtime(&metadata);
        Ok(Some(Existing { path, length: metadata.len(), modified }))
    }

    /// A finished file that [`Landing::begin`] took for the one wanted is not: it has another digest.
    pub fn is_not_wanted(&mut self, path: PathBuf) {
        self.not_wanted.push(path);
    }

    /// Makes the part ready for this version of the file: nothing may be written before.
    ///
    /// `final_name` is what the file will be called if that is free; for an explicit name it is that. With
    /// an adopted leftover, [`Basis::Proved`] spans are copied from it into the part, which takes as long as
    /// the disk takes.
    ///
    /// After a failure it may be called again, for instance when there is room.
    ///
    /// # Errors
    /// `exists` when the name is taken and that is not wanted; `disk-full` when the file system has not
    /// room enough for the rest, before anything is fetched; or as the disk has it.
    pub fn begin(
        &mut self,
        identity: &Identity,
        final_name: &OsStr,
        basis: Basis,
        options: &Options,
    ) -> Result<Begin, Failure> {
        let name = self.final_name(final_name)?;
        if let Some(decided) = self.what_is_there(identity, &name, options)? {
            return Ok(decided);
        }
        if let Some(length) = identity.length {
            self.check_room(length)?;
        }
        let path = self.part_path();
        let (basis, adopted) = match (basis, self.found()) {
            (Basis::Proved(spans), Found::Bare { adopted: true, .. }) => (Basis::Nothing, Some(spans)),
            (basis, _) => (basis, None),
        };
        let part = &self.place.part;
        let version = part.begin(identity, basis).map_err(|e| disk_failure("begin", &path, &e))?;
        if let Some(length) = identity.length {
            part.reserve(length, options.preallocate)
                .map_err(|e| disk_failure("reserve room for", &path, &e))?;
        }
        if let Some(spans) = adopted {
            self.copy_adopted(&spans, version)?;
        }
        Ok(Begin::Fetch(version))
    }

    /// Makes what is here durable, and closes. The part and its checkpoint stay for another run.
    /// Returns the bytes that are kept.
    ///
    /// # Errors
    /// `disk-error` or `disk-full` when that fails; what was durable before stays so.
    pub fn keep(self) -> Result<u64, Failure> {
        let path = self.part_path();
        self.place.part.make_durable().map_err(|e| disk_failure("save", &path, &e))
    }

    /// Removes the part and its checkpoint.
    ///
    /// # Errors
    /// `permission-denied` or `disk-error` when they cannot be removed.
    pub fn discard(self) -> Result<(), Failure> {
        let path = self.part_path();
        let in_place = self.place.part.disk().part_is_in_place();
        // The part first: a checkpoint alone is cleaned up by the next run, a part alone is in its way.
        match in_place {
            Ok(true) => self.folder.remove(&self.place.part_name),
            Ok(false) => return Ok(()),
            Err(error) => Err(error),
        }
        .map_err(|e| disk_failure("remove", &path, &e))?;
        self.remove_checkpoint().map_err(|e| disk_failure("remove", &path, &e))
    }

    fn remove_checkpoint(&self) -> io::Result<()> {
        if self.place.part.has_checkpoint() || self.folder.stat(&self.place.checkpoint_name)?.is_some() {
            self.folder.remove(&self.place.checkpoint_name)?;
        }
        Ok(())
    }

    /// The name to use: a plain one, as given or as chosen by the user.
    fn final_name(&self, suggested: &OsStr) -> Result<OsString, Failure> {
        let name = if self.explicit_name { self.name.as_os_str() } else { suggested };
        if !names::is_plain(name) {
            let message = format!("{name:?} is not a name for a file; choose one with -o");
            return Err(Failure::new(Code::UnsafePart, message));
        }
        Ok(names::final_name(name, 0))
    }

    /// Looks at the final name before anything is fetched.
    fn what_is_there(
        &self,
        identity: &Identity,
        name: &OsStr,
        options: &Options,
    ) -> Result<Option<Begin>, Failure> {
        let look = |e: io::Error| disk_failure("look at", &self.folder.join(name), &e);
        let Some(first) = self.folder.stat(name).map_err(look)? else { return Ok(None) };
        if self.resume != Resume::Never {
            let origin = Origin::of(&self.url);
            // The same file may be here under a number, when another had the name already; but only where
            // it would get a number now. Else it is asked for under this very name.
            let numbered = options.on_exists == OnExists::Rename && !options.newer;
            for number in 0..=if numbered { MOST_NUMBERS } else { 0 } {
                let numbered = names::final_name(name, number);
                if self.folder.stat(&numbered).map_err(look)?.is_none() {
                    break;
                }
                let file = self.folder.open_finished(&numbered).map_err(look)?;
                let path = self.folder.join(&numbered);
                if let Some(proof) = file.and_then(|file| is_complete(&file, &origin, identity))
                    && !self.not_wanted.contains(&path)
                {
                    return Ok(Some(Begin::AlreadyComplete { path, proof }));
                }
            }
        }
        let path = self.folder.join(name);
        if options.newer {
            let not_newer = is_not_newer(identity, &first);
            return Ok(not_newer.then_some(Begin::NotNewer { path }));
        }
        match options.on_exists {
            OnExists::Rename | OnExists::Overwrite => Ok(None),
            OnExists::Skip => Ok(Some(Begin::Skip { path })),
            OnExists::Fail => Err(exists(&path)),
        }
    }

    /// Whether the disk has room for the rest of a file of this length in bytes; for one of unknown
    /// length, whether it has any to speak of beside the reserve. For a disk that cannot be asked: no.
    pub fn has_room(&self, length: Option<u64>) -> bool {
        let have = self.place.part.have_total();
        let beside_the_reserve = || match Room::of(self.place.part.disk().as_fd()) {
            Ok(room) => room.is_none_or(Room::is_worth_going_on),
            Err(_) => false,
        };
        let enough = length.is_some() || have < room::UNCHECKED || beside_the_reserve();
        enough && self.check_room(length.unwrap_or(have.saturating_add(1 << 20))).is_ok()
    }

    fn check_room(&self, length: u64) -> Result<(), Failure> {
        let path = self.part_path();
        let failure = |e: rustix::io::Errno| disk_failure("find out the free space for", &path, &e.into());
        let space = rustix::fs::fstatvfs(&*self.folder.fd).map_err(failure)?;
        if space.f_blocks == 0 {
            // A file system that does not tell.
            return Ok(());
        }
        let stat = rustix::fs::fstat(self.place.part.disk().part()).map_err(failure)?;
        // st_blocks counts in 512 bytes, whatever the file system's block.
        let taken = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
        let needed = length.saturating_sub(taken);
        let blocks = if rustix::process::geteuid().is_root() { space.f_bfree } else { space.f_bavail };
        let free = blocks.saturating_mul(space.f_frsize);
        if needed <= free {
            return Ok(());
        }
        let message = format!(
            "not enough room in {}: {} more are needed and {} are free; make room for {} (or choose another \
             folder with --dir), then resume",
            self.folder.path.display(),
            human_bytes(needed),
            human_bytes(free),
            human_bytes((needed - free).max(1024))
        );
        Err(Failure::new(Code::DiskFull, message))
    }

    /// Copies proved spans of the adopted file into the part, in the kernel where it can.
    fn copy_adopted(&self, spans: &SpanSet, version: Version) -> Result<(), Failure> {
        const STEP: u64 = 64 << 20;
        let Some(from) = &self.adopt else { return Ok(()) };
        let part = &self.place.part;
        let path = self.part_path();
        let failure = |e: io::Error| disk_failure("copy the adopted file into", &path, &e);
        let mut buffer = Vec::new();
        for span in spans.iter() {
            let mut at = span.start();
            while at < span.end() {
                let wanted = usize::try_from((span.end() - at).min(STEP)).unwrap_or(1 << 20);
                let (mut source, mut sink) = (at, at);
                let copied = rustix::fs::copy_file_range(
                    from,
                    Some(&mut source),
                    part.disk().part(),
                    Some(&mut sink),
                    wanted,
                );
                let count = match copied {
                    Ok(count) if count > 0 => {
                        if let Some(done) = Span::new(at, at + count as u64) {
                            part.written(version, done).map_err(|e| failure(io::Error::other(e)))?;
                        }
                        count
                    }
                    // Another file system, or one that cannot; through a buffer then. Also what looks like
                    // the end, since some virtual files say so of all they have.
                    _ => {
                        buffer.resize(1 << 20, 0);
                        let wanted = wanted.min(buffer.len());
                        let count = read_full(from, at, &mut buffer[..wanted]).map_err(failure)?;
                        if count == 0 {
                            // Cut since it was proved: the rest is fetched.
                            break;
                        }
                        part.write_at(version, at, &buffer[..count])
                            .map_err(|e| failure(io::Error::other(e)))?;
                        count
                    }
                };
                at += count as u64;
            }
        }
        Ok(())
    }
}

fn exists(path: &Path) -> Failure {
    let message = format!("{} exists already; choose another name with -o, or --on-exists", path.display());
    Failure::new(Code::Exists, message)
}

fn open_adopted(path: &Path) -> Result<File, Failure> {
    let failure = |e: io::Error| disk_failure("read the file to adopt,", path, &e);
    let file = File::open(path).map_err(failure)?;
    if !file.metadata().map_err(failure)?.is_file() {
        let message = format!("{} cannot be adopted: it is not a regular file", path.display());
        return Err(Failure::new(Code::UnsafePart, message));
    }
    Ok(file)
}

fn read_full(file: &File, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match file.read_at(&mut into[done..], offset.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Whether what the server has is no newer than what is here.
fn is_not_newer(identity: &Identity, here: &rustix::fs::Stat) -> bool {
    identity.last_modified.is_some_and(|modified| modified <= here.st_mtime)
}

/// Whether a finished file is this version of this request's file, and what it rests on.
fn is_complete(file: &File, origin: &Origin, identity: &Identity) -> Option<Proof> {
    match origin.ask(file, identity) {
        origin::Answer::Same => Some(Proof::Validator),
        // What rests on samples was noted without a tag; a date or a weak tag is no better.
        origin::Answer::SameDate => Some(Proof::Sampled),
        origin::Answer::No => None,
        origin::Answer::CannotSay => {
            let metadata = file.metadata().ok()?;
            let modified = identity.last_modified.and_then(time_of);
            let same = identity.length == Some(metadata.len())
                && modified.is_some()
                && metadata.modified().ok() == modified;
            same.then_some(Proof::Sampled)
        }
    }
}

/// The finished file of a name below `dir`, links not followed, and where it is.
///
/// # Errors
/// As [`Landing::open`].
pub(crate) fn open_finished(dir: &Path, name: &Path) -> Result<Option<(File, PathBuf)>, Failure> {
    let (folder, name) = Folder::open(dir, name)?;
    let path = folder.join(&name);
    let file = folder.open_finished(&name).map_err(|e| disk_failure("look at", &path, &e))?;
    Ok(file.map(|file| (file, path)))
}

/// Whether there may be a part of this name already, or something else in its place.
pub(crate) fn may_have_part(dir: &Path, name: &Path) -> bool {
    let Some(last) = name.file_name() else { return true };
    let part = dir.join(name).with_file_name(names::part_names(last, 0).0);
    !matches!(part.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

fn time_of(seconds: i64) -> Option<SystemTime> {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) }
}
