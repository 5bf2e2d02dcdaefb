//! Giving a whole file its final name.

use super::names::{self, MOST_NUMBERS};
use super::origin::Origin;
use super::{Landing, Published, disk_failure, exists, is_not_newer, time_of};
use crate::part_file::SMALLEST_WITH_CHECKPOINT;
use std::ffi::{OsStr, OsString};
use std::fs::FileTimes;
use std::io;
use tidegate_core::request::{OnExists, Options, Sync};
use tidegate_core::{Code, Failure, Remedy, Span};

impl Landing {
    /// Gives the file its final name: NAME, or the first of `STEM.1.EXT` and so on that is free, as
    /// `options.on_exists` has it. Call it when every byte is here and verified; nobody may write any more.
    ///
    /// Unless `options.sync` says otherwise, the bytes are durable before the name appears, and the name is
    /// durable when this returns. A crash on the way is repaired by the next [`Landing::open`].
    ///
    /// `length` is the whole file's, in bytes. A file that somebody else put there meanwhile, and that is to
    /// be left alone ([`OnExists::Skip`], or newer with `options.newer`), leaves the part where it is.
    ///
    /// # Errors
    /// `length-mismatch` if not exactly `length` bytes are here, `exists`, or as the disk has it. The part
    /// stays, and this can be tried again.
    pub fn publish(&self, final_name: &OsStr, length: u64, options: &Options) -> Result<Published, Failure> {
        let name = self.final_name(final_name)?;
        let part_path = self.part_path();
        self.check_whole(length)?;
        let part = &self.place.part;
        let failure = |doing: &'static str| {
            let path = part_path.clone();
            move |error: io::Error| disk_failure(doing, &path, &error)
        };
        part.truncate_to(length).map_err(failure("cut"))?;
        self.check_in_place()?;
        self.set_attributes(options);
        match options.sync {
            Sync::File => part.mark_done(name.to_str()).map_err(failure("save"))?,
            // By wish of the user: a kill still costs nothing, a power loss may.
            // One that is short the kernel writes with others, when it writes.
            Sync::None if length < SMALLEST_WITH_CHECKPOINT => {}
            Sync::None => part.start_writeback(),
        }
        let published = self.give_name(&name, options)?;
        let path = match &published {
            Published::Named { path } => path,
            Published::LeftAlone { .. } => {
                // Another run finds the bytes, but must not give them a name of its own accord.
                part.mark_done(None).map_err(failure("save"))?;
                return Ok(published);
            }
        };
        if options.sync == Sync::File {
            // Only now may the mark go that would have it published again.
            let sync = || self.folder.sync();
            self.folder
                .id()
                .and_then(|directory| self.syncs.sync(directory, sync))
                .map_err(|e| disk_failure("save the name of", path, &e))?;
        }
        // The file is in place, so what is left of the checkpoint is no failure: the next run cleans up.
        let _ = self.remove_checkpoint();
        Ok(published)
    }

    /// The map must have every byte and the disk must agree; a length that merely looks right is nothing.
    fn check_whole(&self, length: u64) -> Result<(), Failure> {
        let part = &self.place.part;
        let whole = Span::new(0, length).is_none_or(|all| part.covers(all)) && part.have_total() == length;
        let on_disk = part.disk().part().metadata().map(|m| m.len());
        let on_disk = on_disk.map_err(|e| disk_failure("look at", &self.part_path(), &e))?;
        if whole && on_disk >= length {
            return Ok(());
        }
        let message = format!(
            "{} is not whole: {} of {length} bytes are here; resume to fetch the rest",
            self.part_path().display(),
            part.have_total().min(on_disk)
        );
        Err(Failure::new(Code::LengthMismatch, message).with_remedy(Remedy::Retry { after: None }))
    }

    /// Another program may have moved or replaced the part; its file must not get our name.
    fn check_in_place(&self) -> Result<(), Failure> {
        let path = self.part_path();
        match self.place.part.disk().part_is_in_place() {
            Ok(true) => Ok(()),
            Ok(false) => {
                let message = format!(
                    "{} was moved, removed or replaced by another program; put it back, or start again",
                    path.display()
                );
                Err(Failure::new(Code::DiskError, message).with_remedy(Remedy::GiveUp))
            }
            Err(error) => Err(disk_failure("look at", &path, &error)),
        }
    }

    /// The server's time, if asked for, and where the file came from. Neither is worth a failure.
    fn set_attributes(&self, options: &Options) {
        let part = &self.place.part;
        let identity = part.identity();
        if let Some(time) = identity.last_modified.filter(|_| options.remote_time).and_then(time_of) {
            let _ = part.disk().part().set_times(FileTimes::new().set_modified(time));
        }
        Origin::of(&self.url).note(part.disk().part(), &identity);
    }

    fn give_name(&self, name: &OsStr, options: &Options) -> Result<Published, Failure> {
        let part_name = &self.place.part_name;
        let path = self.folder.join(name);
        let left_alone = |path| Ok(Published::LeftAlone { path, kept: self.part_path() });
        // `--newer` means to replace the older one.
        let replace = options.newer || options.on_exists == OnExists::Overwrite;
        if replace && self.may_replace(name) {
            if options.newer {
                // It may have become newer during the download.
                let here = self.folder.stat(name).map_err(|e| disk_failure("look at", &path, &e))?;
                if here.is_some_and(|here| is_not_newer(&self.place.part.identity(), &here)) {
                    return left_alone(path);
                }
            }
            return match self.folder.rename_over(part_name, name) {
                Ok(()) => Ok(Published::Named { path }),
                Err(e) if e.kind() == io::ErrorKind::IsADirectory => Err(exists(&path)),
                Err(e) => Err(disk_failure("publish", &path, &e)),
            };
        }
        for number in 0..=MOST_NUMBERS {
            let numbered: OsString = names::final_name(name, number);
            match (self.folder.rename_new(part_name, &numbered), options.on_exists) {
                (Ok(()), _) => return Ok(Published::Named { path: self.folder.join(&numbered) }),
                (Err(e), OnExists::Rename | OnExists::Overwrite)
                    if e.kind() == io::ErrorKind::AlreadyExists => {}
                (Err(e), OnExists::Skip) if e.kind() == io::ErrorKind::AlreadyExists => {
                    return left_alone(path);
                }
                (Err(e), _) if e.kind() == io::ErrorKind::AlreadyExists => return Err(exists(&path)),
                (Err(e), _) => return Err(disk_failure("publish", &path, &e)),
            }
        }
        Err(exists(&path))
    }

    /// Whether a file of this name may be replaced where that was asked for. A name that only the server
    /// chose could be that of any file here: then only one that came from the same link.
    fn may_replace(&self, name: &OsStr) -> bool {
        let chosen_here = self.explicit_name || *name == *names::final_name(&self.name, 0);
        chosen_here
            || match self.folder.open_finished(name) {
                Ok(Some(file)) => Origin::of(&self.url).is_of(&file),
                Ok(None) | Err(_) => false,
            }
    }
}
