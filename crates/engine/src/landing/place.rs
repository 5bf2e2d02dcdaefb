//! Choosing a part file: the first of `NAME.part`, `NAME.1.part` and so on that is free, ours and safe.

use super::folder::{Folder, Opened, same_file};
use super::names::{self, MOST_NUMBERS};
use super::{Found, disk_failure, read_full};
use crate::disk::OsDisk;
use crate::part_file::PartFile;
use crate::sys;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::sync::Arc;
use tidegate_core::checkpoint::{Checkpoint, CheckpointError, FILE_SIZE, Link, RequestKey};
use tidegate_core::request::Resume;
use tidegate_core::{Code, Failure};

/// One part of the numbered ones, opened and locked.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) number: u32,
    pub(super) part: Arc<PartFile>,
    pub(super) part_name: OsString,
    pub(super) checkpoint_name: OsString,
    pub(super) found: Found,
}

impl Place {
    /// Whether it is of a link that may or may not be this one.
    fn is_offered(&self) -> bool {
        matches!(self.found, Found::Recorded { link: Link::OtherQuery | Link::Other, .. })
    }
}

/// Whose parts are taken. All others are left alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Whose {
    /// Those of this very link.
    Own,
    /// And those of a link that differs in its query alone, to be offered.
    Similar,
    /// And those of every other link, to be offered.
    Any,
}

impl Whose {
    fn has(self, link: Link) -> bool {
        match link {
            Link::Same => true,
            Link::OtherQuery => self != Self::Own,
            Link::Other => self == Self::Any,
        }
    }
}

enum Candidate {
    Free(Box<Place>),
    /// Left alone, for this reason.
    Taken(&'static str, Code),
}

pub(super) fn find_place(
    folder: &Folder,
    name: &OsStr,
    from: u32,
    key: &RequestKey,
    resume: Resume,
    whose: Whose,
) -> Result<Place, Failure> {
    // Where what is there counts for nothing, it is wiped: nobody else's is.
    let whose = if resume == Resume::Never { Whose::Own } else { whose };
    let mut last = ("all numbers were tried", Code::Locked);
    for number in from..=MOST_NUMBERS {
        let (part_name, _) = names::part_names(name, number);
        let failure = |e: io::Error| disk_failure("open", &folder.join(&part_name), &e);
        match open_place(folder, name, number, key, resume, whose).map_err(failure)? {
            Candidate::Free(place) if place.is_offered() => {
                let own = find_own(folder, name, number + 1, key, resume).map_err(failure)?;
                return Ok(own.unwrap_or(*place));
            }
            Candidate::Free(place) => return Ok(*place),
            Candidate::Taken(why, code) => last = (why, code),
        }
    }
    let (why, code) = last;
    let shown = folder.join(name);
    let message = format!(
        "no part file for {} can be used: the last of {MOST_NUMBERS} was left alone because {why}; remove \
         old part files, or choose another name with -o",
        shown.display()
    );
    Err(Failure::new(code, message))
}

/// A part of this very link among the numbers that follow one of a similar link, if there is one.
fn find_own(
    folder: &Folder,
    name: &OsStr,
    from: u32,
    key: &RequestKey,
    resume: Resume,
) -> io::Result<Option<Place>> {
    for number in from..=MOST_NUMBERS {
        if folder.stat(&names::part_names(name, number).0)?.is_none() {
            break;
        }
        if let Candidate::Free(place) = open_place(folder, name, number, key, resume, Whose::Own)?
            && matches!(place.found, Found::Recorded { .. })
        {
            return Ok(Some(*place));
        }
    }
    Ok(None)
}

fn open_place(
    folder: &Folder,
    name: &OsStr,
    number: u32,
    key: &RequestKey,
    resume: Resume,
    whose: Whose,
) -> io::Result<Candidate> {
    // The name may change hands between opening and locking, as another download is published or removed.
    const TRIES: usize = 8;
    const IN_USE: Candidate = Candidate::Taken("another download is using it", Code::Locked);
    const NOT_OURS: Candidate = Candidate::Taken("it belongs to another download", Code::Locked);
    const UNSAFE: Candidate = Candidate::Taken("it is a link, or not a file of your own", Code::UnsafePart);
    let (part_name, checkpoint_name) = names::part_names(name, number);
    for _ in 0..TRIES {
        let (file, created) = match folder.open_own(&part_name, true)? {
            Some(Opened::Created(file)) => (file, true),
            Some(Opened::Existing(file)) => (file, false),
            Some(Opened::Linked(file)) => {
                if Folder::lock(&file)? && finish_publishing(folder, &file, &part_name, &checkpoint_name)? {
                    continue;
                }
                return Ok(UNSAFE);
            }
            Some(Opened::Unsafe) => return Ok(UNSAFE),
            None => continue,
        };
        if !Folder::lock(&file)? {
            return Ok(IN_USE);
        }
        if !folder.leads_to(&part_name, &file)? {
            continue;
        }
        let leave = |candidate: Candidate| {
            if created {
                folder.remove(&part_name)?;
            }
            Ok(candidate)
        };
        let checkpoint = match folder.open_own(&checkpoint_name, false)? {
            None => None,
            Some(Opened::Existing(file)) => Some(file),
            Some(Opened::Created(_) | Opened::Linked(_) | Opened::Unsafe) => return leave(UNSAFE),
        };
        let decoded = checkpoint.as_ref().map(read_checkpoint).transpose()?;
        if let Some(Err(CheckpointError::Newer(_))) = decoded {
            return leave(Candidate::Taken("a later version of this program made it", Code::Locked));
        }
        let here = sys::surroundings(&file)?;
        let length = file.metadata()?.len();
        let disk = |checkpoint| {
            OsDisk::new(folder.fd.clone(), file, part_name.clone(), checkpoint, checkpoint_name.clone())
        };
        let (part, found) = match decoded {
            // A part that has only now been made has nothing to do with a checkpoint that lies there: its
            // own part was published or removed. That must be durable before the new part has bytes that
            // it could seem to speak of.
            Some(_) if created => {
                folder.remove(&checkpoint_name)?;
                folder.sync()?;
                (PartFile::blank(disk(None), key.clone(), here), Found::Nothing)
            }
            Some(Ok(decoded)) => {
                if !whose.has(decoded.durable.about.key.compare(key)) {
                    return Ok(NOT_OURS);
                }
                let (part, belief) = PartFile::resume(disk(checkpoint), key.clone(), here, &decoded)?;
                let link = belief.key.compare(key);
                if !whose.has(link) {
                    return Ok(NOT_OURS);
                }
                let found = if belief.spans.is_empty() {
                    Found::Nothing
                } else {
                    Found::Recorded {
                        identity: belief.identity,
                        spans: belief.spans,
                        link,
                        promise: belief.promise,
                        moved: belief.moved,
                        done: belief.done.map(OsString::from),
                    }
                };
                (part, found)
            }
            Some(Err(_)) | None => {
                let part = PartFile::blank(disk(checkpoint), key.clone(), here);
                let found = if length == 0 { Found::Nothing } else { Found::Bare { length, adopted: false } };
                (part, found)
            }
        };
        let found = if resume == Resume::Never { Found::Nothing } else { found };
        let part = Arc::new(part);
        return Ok(Candidate::Free(Box::new(Place { number, part, part_name, checkpoint_name, found })));
    }
    Ok(IN_USE)
}

fn read_checkpoint(file: &File) -> io::Result<Result<Checkpoint, CheckpointError>> {
    let most = usize::try_from(FILE_SIZE.min(file.metadata()?.len())).unwrap_or(0);
    let mut bytes = vec![0; most];
    let count = read_full(file, 0, &mut bytes)?;
    Ok(Checkpoint::decode(&bytes[..count]))
}

/// A part with two names may be one whose publishing by link was interrupted before the part's name was
/// removed: then that is done now. `false` if it is something else.
fn finish_publishing(
    folder: &Folder,
    part: &File,
    part_name: &OsStr,
    checkpoint_name: &OsStr,
) -> io::Result<bool> {
    let Some(Opened::Existing(checkpoint)) = folder.open_own(checkpoint_name, false)? else {
        return Ok(false);
    };
    let Ok(decoded) = read_checkpoint(&checkpoint)? else { return Ok(false) };
    let Some(done) = decoded.durable.about.done else { return Ok(false) };
    let held = rustix::fs::fstat(part)?;
    let published = (0..=MOST_NUMBERS).any(|number| {
        let name = names::final_name(OsStr::new(&done), number);
        folder.stat(&name).is_ok_and(|stat| stat.is_some_and(|stat| same_file(&stat, &held)))
    });
    if held.st_nlink != 2 || !published || !folder.leads_to(part_name, part)? {
        return Ok(false);
    }
    folder.sync()?;
    folder.remove(part_name)?;
    folder.remove(checkpoint_name)?;
    Ok(true)
}
