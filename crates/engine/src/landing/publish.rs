//! Giving a whole file its final name.

use super::names::{self, MOST_NUMBERS};
use super::origin::Origin;
use super::{Landing, disk_failure, exists, time_of};
use std::ffi::{OsStr, OsString};
use std::fs::FileTimes;
use std::io;
use std::path::PathBuf;
use tidegate_core::request::{OnExists, Options, Sync};
use tidegate_core::{Code, Failure, Remedy, Span};

impl Landing {
    /// Gives the file its final name: NAME, or the first of `STEM.1.EXT` and so on that is free, as
    /// `options.on_exists` has it. Call it when every byte is here and verified; nobody may write any more.
    ///
    /// Unless `options.sync` says otherwise, the bytes are durable before the name appears, and the name is
    /// durable when this returns. A crash on the way is repaired by the next [`Landing::open`].
    ///
    /// `length` is the whole file's, in bytes. Returns where the file is. With [`OnExists::Skip`] that is
    /// the file that somebody else put there meanwhile, if so.
    ///
    /// # Errors
    /// `length-mismatch` if not exactly `length` bytes are here, `exists`, or as the disk has it. The part
    /// stays, and this can be tried again.
    pub fn publish(&self, final_name: &OsStr, length: u64, options: &Options) -> Result<PathBuf, Failure> {
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
            Sync::None => part.start_writeback(),
        }
        let path = self.give_name(&name, options)?;
        if options.sync == Sync::File {
            // Only now may the mark go that would have it published again.
            self.folder.sync().map_err(|e| disk_failure("save the name of", &path, &e))?;
        }
        // The file is in place, so what is left of the checkpoint is no failure: the next run cleans up.
        let _ = self.remove_checkpoint();
        Ok(path)
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

    fn give_name(&self, name: &OsStr, options: &Options) -> Result<PathBuf, Failure> {
        let part_name = &self.place.part_name;
        let path = self.folder.join(name);
        // `--newer` means to replace the older one.
        if options.newer || options.on_exists == OnExists::Overwrite {
            return match self.folder.rename_over(part_name, name) {
                Ok(()) => Ok(path),
                Err(e) if e.kind() == io::ErrorKind::IsADirectory => Err(exists(&path)),
                Err(e) => Err(disk_failure("publish", &path, &e)),
            };
        }
        for number in 0..=MOST_NUMBERS {
            let numbered: OsString = names::final_name(name, number);
            match (self.folder.rename_new(part_name, &numbered), options.on_exists) {
                (Ok(()), _) => return Ok(self.folder.join(&numbered)),
                (Err(e), OnExists::Rename) if e.kind() == io::ErrorKind::AlreadyExists => {}
                (Err(e), OnExists::Skip) if e.kind() == io::ErrorKind::AlreadyExists => {
                    self.folder.remove(part_name).map_err(|e| disk_failure("remove", &path, &e))?;
                    return Ok(path);
                }
                (Err(e), _) if e.kind() == io::ErrorKind::AlreadyExists => return Err(exists(&path)),
                (Err(e), _) => return Err(disk_failure("publish", &path, &e)),
            }
        }
        Err(exists(&path))
    }
}
