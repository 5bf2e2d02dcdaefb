//! The side of a download that becomes a file: what was there, preparing, verifying, publishing.

use super::{Crash, Download, Ending, Wish, cancelled, digest_mismatch, stopped};
use crate::disk::Disk as _;
use crate::engine::{Disk, FromCold, Start, ToCold};
use crate::landing::{self, Begin, Found as Landed, Landing, LandingRequest, Published, disk_failure};
use crate::lanes::{Errand, aside, expect_errands, run_errand};
use crate::part_file::{Basis, PartFile, SMALLEST_WITH_CHECKPOINT};
use crate::places::Halt;
use crate::protocol::Saved;
use crate::target::Target;
use crate::verify;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_core::checkpoint::Link;
use tidegate_core::digest::Pieces;
use tidegate_core::failure::Need;
use tidegate_core::file_name::{ChosenBy, Portability};
use tidegate_core::message::{EventKind, Proof};
use tidegate_core::request::Sync;
use tidegate_core::transfer::{Found, Preparation, Verified};
use tidegate_core::{Code, Digest, Failure, Identity, Remedy, Request, SafeName, Span, SpanSet};

/// How often everything is made to survive a power loss.
const DURABLE_EVERY: Duration = Duration::from_secs(10);

/// A file that will be whole so soon is made to survive with its name: a cycle that had begun before would
/// hold that up. No cycle is later than this.
const SOON: Duration = Duration::from_secs(2);

/// How often the kernel is asked to begin writing to the disk.
const WRITEBACK_EVERY: Duration = Duration::from_secs(1);

/// How often a full disk is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A block of another tool's leftover that holds only zeros is taken for room that was reserved.
const BLOCK: usize = 4 << 10;

/// Runs of data in such a leftover, at most: each costs memory, room in the checkpoint and perhaps a request.
const MOST_RUNS: usize = 4096;

/// Where there would be more, runs shorter than this many bytes are fetched again.
const SHORT: u64 = 64 << 10;

/// The cold side of a download that becomes a file.
pub(super) struct FileSide<'a> {
    download: &'a Download,
    pub(super) landing: Held,
    explicit_name: bool,
    part_name: PathBuf,
    /// There was no part.
    fresh: bool,
    pub(super) found: Found,
    /// Whose bytes were found, if anybody's that a checkpoint told of.
    link: Option<Link>,
    /// What is asked for, with what somebody knew better since.
    request: Request,
    /// The name that the file will have, once the server was heard.
    final_name: Option<OsString>,
    /// It was prepared, so there may be something to save.
    ready: bool,
    /// Names the disk that the part is on.
    pub(super) disk: Disk,
    /// How often somebody was asked for what it lacks.
    asked: u32,
    /// When what is here was last made to survive, and how many bytes that were.
    last_durable: (Instant, u64),
    /// The names of the part and its checkpoint survive a power loss.
    names_are_synced: bool,
    /// What is done each second, and for which part.
    writeback: Option<(Arc<PartFile>, Errand)>,
}

/// A landing that is away while something is done with it aside.
pub(super) struct Held(Option<Landing>);

impl Deref for Held {
    type Target = Landing;

    fn deref(&self) -> &Landing {
        #[expect(clippy::expect_used, reason = "whoever takes it away waits until it is back")]
        self.0.as_ref().expect("the landing is here")
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Landing {
        #[expect(clippy::expect_used, reason = "as above")]
        self.0.as_mut().expect("the landing is here")
    }
}

impl Held {
    /// Does something with it: here if that is `quick`, else aside.
    async fn with<R: Send + 'static>(
        &mut self,
        quick: bool,
        work: impl FnOnce(&mut Landing) -> R + Send + 'static,
    ) -> R {
        match self.0.take() {
            Some(mut landing) if !quick => {
                let (landing, result) = aside(move || {
                    let result = work(&mut landing);
                    (landing, result)
                })
                .await;
                self.0 = Some(landing);
                result
            }
            landing => {
                self.0 = landing;
                work(&mut *self)
            }
        }
    }
}

impl<'a> FileSide<'a> {
    pub(super) async fn open(
        download: &'a Download,
        wanted: LandingRequest,
        explicit_name: bool,
        part_name: PathBuf,
    ) -> Result<Self, Ending> {
        let fresh = wanted.adopt.is_none() && !landing::may_have_part(&wanted.dir, &part_name);
        let (landing, found, link) = if fresh {
            open_landing(wanted, &download.request, &download.halt)?
        } else {
            let (request, halt) = (download.request.clone(), Arc::clone(&download.halt));
            aside(move || open_landing(wanted, &request, &halt)).await?
        };
        let had = landing.part().have_total();
        Ok(Self {
            download,
            landing: Held(Some(landing.sharing(&download.syncs))),
            explicit_name,
            part_name,
            fresh,
            found,
            link,
            request: download.request.clone(),
            final_name: None,
            ready: false,
            disk: Disk::Nowhere,
            asked: 0,
            last_durable: (Instant::now(), had),
            names_are_synced: false,
            writeback: None,
        })
    }

    pub(super) fn target(&self) -> Target {
        let (part, path) = (Arc::clone(self.landing.part()), Arc::new(self.landing.part_path()));
        Target::Part { part, path, only_to_read: self.is_borrowed() }
    }

    /// Whether what is done with a file of this length takes no longer than handing it to another thread.
    fn is_quick(&self, length: Option<u64>) -> bool {
        self.fresh && length.is_some_and(|length| length < SMALLEST_WITH_CHECKPOINT)
    }

    /// A run before this one had verified the file and was about to give it its name.
    pub(super) async fn publish_what_was_verified(&mut self) -> Result<Option<EventKind>, Failure> {
        let Landed::Recorded { identity, done: Some(name), link: Link::Same, moved: false, .. } =
            self.landing.found()
        else {
            return Ok(None);
        };
        let Some(length) = identity.length else { return Ok(None) };
        // The engine's process can write into the checkpoint: what stands there is a name that a server may choose,
        // or it is none.
        if !self.explicit_name && !self.is_a_name_for_us(&name) {
            return Ok(None);
        }
        let options = self.download.request.options.clone();
        // Digests given now may be others than those of then.
        if has_digests(&self.download.request) {
            return Ok(None);
        }
        // What rests on samples was recorded without a strong validator.
        let proof = if identity.if_range().is_some() { Proof::Validator } else { Proof::Sampled };
        let publish = move |landing: &mut Landing| {
            Ok::<_, Failure>(match landing.begin(&identity, &name, Basis::Recorded, &options)? {
                Begin::Fetch(_) => Ok(landing.publish(&name, length, &options)?),
                begin => Err(begin),
            })
        };
        match self.landing.with(false, publish).await? {
            Ok(published) => Ok(Some(self.published(published, length, proof, true, 0).await)),
            Err(begin) => Ok(Some(self.already(begin, length))),
        }
    }

    fn is_a_name_for_us(&self, name: &OsStr) -> bool {
        let safe = |name: &str| SafeName::new(name, ChosenBy::Server, Portability::default());
        self.part_name.file_name() == Some(name)
            || name.to_str().is_some_and(|name| safe(name).is_some_and(|safe| safe.as_str() == name))
    }

    /// Follows the download until it is whole or will not be.
    pub(super) async fn follow(&mut self) -> Result<EventKind, Ending> {
        loop {
            let wish = self.download.next_wish(WRITEBACK_EVERY).await;
            if !matches!(wish, Wish::StartAgain(_)) {
                self.take_up().await?;
            }
            match wish {
                Wish::Prepare { preparation, doubts } => {
                    if let Some(done) = self.prepare(&preparation, doubts).await? {
                        return Ok(done);
                    }
                }
                Wish::Learned { identity, doubts } => self.learned(&identity, doubts).await?,
                Wish::Verify { identity, digests, proof, received } => {
                    if let Some(done) = self.verify(&identity, digests, proof, received).await? {
                        return Ok(done);
                    }
                }
                Wish::AwaitMachine(failure) => self.await_machine(failure).await?,
                Wish::GiveUp(failure) => self.go_on_with_help(failure).await?,
                Wish::StartAgain(crash) => self.start_again(&crash).await?,
                Wish::Cancel => return Err(cancelled().into()),
                Wish::Paused => {
                    let have = self.make_durable().await?;
                    self.download.is_held_up();
                    self.download.tell(EventKind::Paused { have }).await;
                }
                Wish::End => {
                    self.recall().await?;
                    self.make_durable().await?;
                    return Err(Ending::Stopped);
                }
                Wish::Save if self.ready => {
                    if self.is_across() {
                        if let Saved::Durable(have) =
                            self.download.control.save(self.download.id, false).await
                        {
                            self.download.has_progressed(have);
                        }
                    } else {
                        // It waits where the disk's queue is full.
                        run_errand(self.writeback()).await;
                    }
                    if self.is_cycle_due() {
                        self.make_durable().await?;
                    }
                }
                Wish::Save => {}
            }
        }
    }

    /// Goes on where it stopped, with what somebody knows better.
    async fn go_on_with_help(&mut self, failure: Failure) -> Result<(), Ending> {
        let Some(request) = self.download.help(&failure, &mut self.asked).await else {
            return Err(failure.into());
        };
        self.recall().await?;
        self.request = request;
        self.go_on();
        Ok(())
    }

    /// Goes on with what the engine's process has left here, in another one.
    async fn start_again(&mut self, crash: &Crash) -> Result<(), Ending> {
        let message = format!("{}; going on from what is here", crash.failure);
        self.download.tell(EventKind::Notice { message }).await;
        self.recall().await?;
        self.download.survived(crash, self.have()).await?;
        self.go_on();
        Ok(())
    }

    fn go_on(&mut self) {
        if self.ready {
            let part = self.landing.part();
            self.found = Found::Recorded { identity: part.identity(), spans: part.have() };
        }
        self.start();
    }

    /// Whether the part is in the hands of another process.
    fn is_across(&self) -> bool {
        self.download.control.is_across() && self.download.out.get() > 0
    }

    /// Waits until the part is here alone, and knows then what is in it.
    pub(super) async fn recall(&mut self) -> Result<(), Failure> {
        self.download.recall().await;
        self.take_up().await
    }

    /// If another process has given the part back, finds out what is in it: nothing is done with it before.
    async fn take_up(&mut self) -> Result<(), Failure> {
        if self.download.out.get() > 0 {
            return Ok(());
        }
        let Some((doubts, have)) = self.download.back.take() else { return Ok(()) };
        let (part, path) = (Arc::clone(self.landing.part()), self.landing.part_path());
        let quick = self.is_quick(part.identity().length);
        let (id, control) = (self.download.id, self.download.control.clone());
        let come_back = move || {
            let failed = |error: std::io::Error| disk_failure("read the checkpoint of", &path, &error);
            if part.is_written_by_nobody_else().map_err(failed)? != Some(true) {
                let why = "a file that it had returned could still be written to, or nobody can say whether";
                if !control.end_child(id, why) {
                    return Err(written_by_others(&path));
                }
                // If it was not that process, what is here could be believed for no longer than a moment.
                if part.is_written_by_nobody_else().map_err(failed)? == Some(false) {
                    return Err(written_by_others(&path));
                }
            }
            part.come_back(doubts, have).map_err(failed)
        };
        if quick { come_back() } else { aside(come_back).await }
    }

    pub(super) fn start(&self) {
        let request = self.request.clone();
        let (id, found, disk) = (self.download.id, self.found.clone(), self.disk);
        let (borrowed, doubts) = (self.is_borrowed(), self.landing.part().doubts());
        self.download.start(Start { id, request, found, borrowed, target: Target::Nowhere, disk, doubts });
    }

    /// The part, lent to the control thread until it releases it.
    fn lend(&self) -> Option<Target> {
        self.download.out.set(self.download.out.get() + 1);
        Some(self.target())
    }

    /// Whether the part is another link's, and not proved to be of this file.
    fn is_borrowed(&self) -> bool {
        !self.ready && matches!(self.link, Some(Link::Other | Link::OtherQuery))
    }

    /// The server has told which file it is: makes the part ready for it, before its first byte.
    async fn prepare(&mut self, preparation: &Preparation, doubts: u64) -> Result<Option<EventKind>, Ending> {
        let Preparation { identity, restart, disposition, content_type, url, resumable, unproved, .. } =
            preparation;
        let download = self.download;
        self.recall().await?;
        let name = match (self.explicit_name, self.part_name.file_name()) {
            (true, Some(name)) => name.to_owned(),
            _ => SafeName::choose(disposition.as_deref(), download.url(), url, Portability::default())
                .as_str()
                .into(),
        };
        if self.is_borrowed() {
            if restart.is_some() {
                // Another link's bytes, and of another file: they are not ours to spoil.
                self.landing.with(false, Landing::next_part).await?;
                self.link = None;
            } else if *unproved {
                // Only read until it is known that they are of this file too.
                download.tell_identified(&preparation.identity, url, *resumable, content_type.as_ref()).await;
                download.answer(FromCold::Prepared { target: self.lend() });
                return Ok(None);
            }
        }
        let part = Arc::clone(self.landing.part());
        let (identity, basis) = match (&self.found, restart) {
            // Asked once more for the same version, since a pause came before the answer: what was made
            // ready stays so.
            (_, None) if self.ready && *unproved => (part.identity(), Basis::Continued { doubts }),
            (_, None) if self.ready => (identity.clone(), Basis::Continued { doubts }),
            (_, Some(_)) | (Found::Nothing, _) => (identity.clone(), Basis::Nothing),
            // Until the bytes are proved to be of this version, the record must not say so; nor may it
            // go on naming the old one, since bytes of this answer may come to lie beside them.
            (Found::Recorded { identity: recorded, .. }, None) if *unproved => {
                (recorded.weakened(), Basis::Recorded)
            }
            (Found::Recorded { .. }, None) => (identity.clone(), Basis::Recorded),
            (Found::Adopted { spans }, None) => {
                let known = if *unproved {
                    Identity { length: identity.length, ..Identity::default() }
                } else {
                    identity.clone()
                };
                (known, Basis::Proved(spans.clone()))
            }
        };
        download.tell_identified(&preparation.identity, url, *resumable, content_type.as_ref()).await;
        download.check_size(preparation.identity.length)?;
        let quick = self.is_quick(identity.length);
        let begun = loop {
            let begin = {
                let (identity, name, basis) = (identity.clone(), name.clone(), basis.clone());
                let options = download.request.options.clone();
                move |landing: &mut Landing| landing.begin(&identity, &name, basis, &options)
            };
            match self.landing.with(quick, begin).await {
                Ok(Begin::AlreadyComplete { path, .. }) if has_digests(&download.request) => {
                    match self.has_digests_wanted(&path).await? {
                        true => break Begin::AlreadyComplete { path, proof: Proof::Digest },
                        false => self.landing.is_not_wanted(path),
                    }
                }
                Ok(begun) => break begun,
                Err(failure) => {
                    if let Stopped::Paused = self.wait_for(&failure).await? {
                        return Ok(None);
                    }
                }
            }
        };
        if !matches!(begun, Begin::Fetch(_)) {
            return Ok(Some(self.already(begun, identity.length.unwrap_or_default())));
        }
        self.ready = true;
        self.link = None;
        if !quick {
            // Now, so that nothing is made while bytes flow.
            expect_errands();
            self.writeback();
        }
        let folder = self.landing.part_path();
        download.tell(EventKind::Named { path: folder.with_file_name(&name) }).await;
        self.final_name = Some(name);
        self.found = Found::Nothing;
        download.answer(FromCold::Prepared { target: self.lend() });
        Ok(None)
    }

    /// Whether a finished file has every digest that the user gave.
    async fn has_digests_wanted(&self, path: &Path) -> Result<bool, Ending> {
        let (request, halt) = (self.download.request.clone(), Arc::clone(&self.download.halt));
        let path = path.to_owned();
        aside(move || {
            let Request { digests, pieces, .. } = &request;
            let read = || {
                let file = File::open(&path)?;
                let length = file.metadata()?.len();
                let whole = match pieces {
                    Some(pieces) => verify::bad_pieces(&file, length, pieces, halt.flag())?.is_empty(),
                    None => true,
                };
                Ok(whole && verify::mismatch(&file, digests, halt.flag(), |_| {})?.is_none())
            };
            match read() {
                Ok(right) => Ok(right),
                Err(error) if halt.is_set() => {
                    Err(stopped(&halt, &error, |error| disk_failure("read", &path, &error)))
                }
                // A file that cannot be read is not known to be this one.
                Err(_) => Ok(false),
            }
        })
        .await
    }

    fn already(&self, begun: Begin, length: u64) -> EventKind {
        let (path, proof) = match begun {
            Begin::AlreadyComplete { path, proof } => (Some(path), proof),
            Begin::Skip { path } | Begin::NotNewer { path } => (Some(path), Proof::Untouched),
            Begin::Fetch(_) => (None, Proof::Untouched),
        };
        let length = path.as_ref().and_then(|p| p.metadata().ok()).map_or(length, |m| m.len());
        EventKind::Completed { path, length, proof, already: true, received: 0 }
    }

    async fn learned(&mut self, identity: &Identity, doubts: u64) -> Result<(), Failure> {
        self.download.check_size(identity.length)?;
        if !self.ready {
            // It is told again when the part is made ready.
            return Ok(());
        }
        let (identity, how) = (identity.clone(), self.download.request.options.preallocate);
        // Whoever has the part has recorded it.
        let records = !self.is_across();
        let learn = move |landing: &mut Landing| {
            let (part, path) = (landing.part(), landing.part_path());
            if records {
                part.set_identity(&identity, doubts).map_err(|e| disk_failure("save", &path, &e))?;
            }
            if let Some(length) = identity.length {
                part.reserve(length, how).map_err(|e| disk_failure("reserve room for", &path, &e))?;
            }
            Ok(())
        };
        self.landing.with(false, learn).await
    }

    /// All bytes are here: checks them by digest where there is one, and publishes.
    async fn verify(
        &mut self,
        identity: &Identity,
        server: Vec<Digest>,
        proof: Proof,
        received: u64,
    ) -> Result<Option<EventKind>, Ending> {
        self.recall().await?;
        let request = &self.download.request;
        let length = identity.length.unwrap_or_else(|| self.have());
        // None of this can be so unless somebody has taken the engine's process over.
        let pieces = |pieces: &Pieces| length.div_ceil(pieces.length) == pieces.digests.len() as u64;
        let is_as_asked =
            request.length.is_none_or(|told| told == length) && request.pieces.as_ref().is_none_or(pieces);
        if !self.ready || self.is_borrowed() || !is_as_asked {
            let message = format!("{length} bytes are said to be all of a file of which that cannot be true");
            return Err(Failure::new(Code::EngineProtocol, message).with_remedy(Remedy::GiveUp).into());
        }
        self.download.check_size(Some(length))?;
        let mut digests = request.digests.clone();
        digests.extend(server.into_iter().filter(|d| !request.digests.contains(d)));
        let quick = self.is_quick(Some(length));
        let proof = if digests.is_empty() && request.pieces.is_none() { proof } else { Proof::Digest };
        if proof == Proof::Digest {
            let (pieces, halt) = (request.pieces.clone(), Arc::clone(&self.download.halt));
            let check = move |landing: &mut Landing| check(landing, length, pieces.as_ref(), &digests, &halt);
            match self.landing.with(quick, check).await? {
                Verified::Right => {}
                wrong => {
                    self.download.answer(FromCold::Verified { verified: wrong, target: self.lend() });
                    return Ok(None);
                }
            }
        }
        let name = self.final_name.clone().unwrap_or_else(|| self.part_name.clone().into_os_string());
        // A sync takes as long as the disk wants.
        let quick = quick && request.options.sync == Sync::None;
        loop {
            let (name, options) = (name.clone(), request.options.clone());
            let publish = move |landing: &mut Landing| landing.publish(&name, length, &options);
            match self.landing.with(quick, publish).await {
                Ok(published) => {
                    self.download.answer(FromCold::Verified { verified: Verified::Right, target: None });
                    // Nobody has anything of it any more.
                    self.download.is_free.set(true);
                    return Ok(Some(self.published(published, length, proof, false, received).await));
                }
                Err(failure) => {
                    if let Stopped::Paused = self.wait_for(&failure).await? {
                        // The bytes stay; after the pause they are verified once more.
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// What is told of a file that has its name, or that was left without because another has it.
    async fn published(
        &self,
        published: Published,
        length: u64,
        proof: Proof,
        already: bool,
        received: u64,
    ) -> EventKind {
        match published {
            Published::Named { path } => {
                EventKind::Completed { path: Some(path), length, proof, already, received }
            }
            Published::LeftAlone { path, kept } => {
                let message = format!(
                    "{} appeared during the download and was left alone; what was fetched is kept in {}",
                    path.display(),
                    kept.display()
                );
                self.download.tell(EventKind::Notice { message }).await;
                let length = path.metadata().map_or(0, |metadata| metadata.len());
                let (path, proof) = (Some(path), Proof::Untouched);
                EventKind::Completed { path, length, proof, already: true, received }
            }
        }
    }

    /// The disk is full: until there is room, unless somebody stops it.
    async fn await_machine(&mut self, failure: Failure) -> Result<(), Ending> {
        match self.wait_for(&failure).await? {
            Stopped::Paused => {}
            Stopped::No => self.download.answer(FromCold::MachineReady),
        }
        Ok(())
    }

    /// Waits a while after a failure of this machine that may pass; gives every other one back.
    async fn wait_for(&mut self, failure: &Failure) -> Result<Stopped, Ending> {
        if failure.remedy != (Remedy::Wait { on: Need::Space }) {
            return Err(failure.clone().into());
        }
        self.download.tell(EventKind::Waiting { failure: failure.clone(), retry_in: LOOK_AGAIN }).await;
        self.download.is_held_up();
        loop {
            let wish = self.download.next_wish(LOOK_AGAIN).await;
            self.take_up().await?;
            match wish {
                Wish::Save => {
                    let length = self.landing.part().identity().length;
                    if self.landing.has_room(length) {
                        return Ok(Stopped::No);
                    }
                }
                Wish::Paused => {
                    let have = self.have_now().await;
                    self.download.tell(EventKind::Paused { have }).await;
                    return Ok(Stopped::Paused);
                }
                Wish::StartAgain(Crash { failure, suspicious }) => {
                    // First this comes to its end.
                    self.download.unheard.borrow_mut().push_front(ToCold::Crashed { failure, suspicious });
                    return Ok(Stopped::Paused);
                }
                Wish::End => {
                    self.recall().await?;
                    self.make_durable().await?;
                    return Err(Ending::Stopped);
                }
                Wish::Cancel => return Err(cancelled().into()),
                Wish::GiveUp(failure) => return Err(failure.into()),
                // What it wanted before the wait began comes again after it.
                Wish::Prepare { .. } | Wish::Learned { .. } | Wish::Verify { .. } | Wish::AwaitMachine(_) => {
                }
            }
        }
    }

    /// Begins to write back what the part has, each second while bytes flow.
    fn writeback(&mut self) -> &Errand {
        let part = self.landing.part();
        // A download may come to have another part.
        if !self.writeback.as_ref().is_some_and(|(of, _)| Arc::ptr_eq(of, part)) {
            let (of, part) = (Arc::clone(part), Arc::clone(part));
            self.writeback = Some((of, (Arc::new(move || part.start_writeback()), Arc::default())));
        }
        #[expect(clippy::expect_used, reason = "it was put there just now")]
        let (_, errand) = self.writeback.as_ref().expect("an errand");
        errand
    }

    /// Makes what is here survive a power loss, and says how many bytes are here.
    async fn make_durable(&mut self) -> Result<u64, Failure> {
        self.last_durable = (Instant::now(), self.have());
        if !self.ready {
            return Ok(self.have());
        }
        let part = Arc::clone(self.landing.part());
        let saved = if self.is_across() {
            self.save_across(part).await
        } else {
            let saved = aside(move || part.make_durable()).await;
            saved.map(Some).map_err(|error| disk_failure("save", &self.landing.part_path(), &error))
        };
        match saved {
            Ok(Some(durable)) => {
                self.download.tell(EventKind::Checkpointed { durable }).await;
                Ok(durable)
            }
            Ok(None) => Ok(self.have_now().await),
            // No room for a few bytes of checkpoint: the next write will say so better.
            Err(failure) if failure.code == Code::DiskFull => Ok(self.have_now().await),
            Err(failure) => Err(failure),
        }
    }

    /// As [`Self::make_durable`], by the process that has the part; `None` if that has given it back or ended
    /// meanwhile.
    async fn save_across(&mut self, part: Arc<PartFile>) -> Result<Option<u64>, Failure> {
        if !std::mem::replace(&mut self.names_are_synced, true) {
            // It cannot do that, and relies on it.
            let synced = aside(move || part.disk().sync_names()).await;
            synced.map_err(|error| disk_failure("save the name of", &self.landing.part_path(), &error))?;
        }
        match self.download.control.save(self.download.id, true).await {
            Saved::Durable(bytes) => Ok(Some(bytes)),
            Saved::Failed(failure) => Err(failure),
            Saved::Gone => Ok(None),
        }
    }

    /// How many bytes are here, as far as it is known where this is asked.
    fn is_cycle_due(&self) -> bool {
        let (since, had) = self.last_durable;
        let length = || self.landing.part().identity().length;
        is_due(since.elapsed(), had, self.have(), length)
    }

    fn have(&self) -> u64 {
        self.landing.part().have_total()
    }

    /// How many bytes are here, wherever the part is.
    async fn have_now(&self) -> u64 {
        if self.is_across()
            && let Saved::Durable(have) = self.download.control.save(self.download.id, false).await
        {
            return have;
        }
        self.have()
    }

    /// Leaves the part as the outcome wants it.
    pub(super) async fn close(self, outcome: Result<EventKind, Ending>) -> Result<EventKind, Ending> {
        let (have, borrowed) = (self.have(), self.is_borrowed());
        let published = matches!(&outcome, Ok(EventKind::Completed { already: false, .. }));
        let quick = published && self.is_quick(Some(have));
        let Self { landing: Held(landing), ready, found, .. } = self;
        let Some(landing) = landing else { return outcome };
        if quick {
            // There is nothing to do but to let go of it.
            return outcome;
        }
        aside(move || close(landing, (have, borrowed), ready, &found, outcome)).await
    }
}

/// Some other process can write into a part, and it is not the engine's.
fn written_by_others(path: &Path) -> Failure {
    let path = path.display();
    let message = format!("another program has {path} open and may change it; close that, and resume");
    Failure::new(Code::DiskError, message).with_remedy(Remedy::GiveUp)
}

/// As [`FileSide::close`], for a part of which so many bytes are here, and which may be another link's.
fn close(
    landing: Landing,
    (have, borrowed): (u64, bool),
    ready: bool,
    found: &Found,
    outcome: Result<EventKind, Ending>,
) -> Result<EventKind, Ending> {
    let nothing = have == 0
        && !matches!(landing.found(), Landed::Recorded { .. } | Landed::Bare { adopted: false, .. });
    match outcome {
        Ok(kind) => {
            // A file that was here already needs no part; one that was published has none.
            if matches!(kind, EventKind::Completed { already: true, .. }) && nothing {
                let _ = landing.discard();
            }
            Ok(kind)
        }
        Err(Ending::Told(kind)) => Err(Ending::Told(kind)),
        Err(Ending::Failed(failure)) if failure.code == Code::Cancelled => {
            if !borrowed {
                landing.discard()?;
            }
            Err(Ending::Told(EventKind::Failed { failure, kept: 0 }))
        }
        Err(ending @ (Ending::Failed(_) | Ending::Stopped)) => {
            let kept = match (ready, found) {
                // Never prepared: what was there is as it was.
                (false, Found::Recorded { spans, .. }) => spans.total(),
                (false, _) => 0,
                (true, _) => have,
            };
            if kept == 0 && nothing {
                let _ = landing.discard();
            } else if ready {
                // The failure that is told is the one that ended it.
                let _ = landing.keep();
            }
            Err(Ending::Told(match ending {
                Ending::Failed(failure) => EventKind::Failed { failure, kept },
                Ending::Told(_) | Ending::Stopped => EventKind::Stopped { kept },
            }))
        }
    }
}

/// Opens the part, and finds out what may be gone on from.
fn open_landing(
    wanted: LandingRequest,
    request: &Request,
    halt: &Halt,
) -> Result<(Landing, Found, Option<Link>), Ending> {
    let landing = Landing::open(wanted)?;
    let (found, link) = what_to_go_on_from(request, halt, &landing)?;
    Ok((landing, found, link))
}

/// Whether a part that is all here has the digests that it should.
fn check(
    landing: &Landing,
    length: u64,
    pieces: Option<&Pieces>,
    digests: &[Digest],
    halt: &Halt,
) -> Result<Verified, Ending> {
    let (part, path) = (landing.part(), landing.part_path());
    let failed = |error: std::io::Error| disk_failure("read", &path, &error);
    let file = part.read_only().map_err(failed)?;
    if let Some(pieces) = pieces {
        let bad =
            verify::bad_pieces(&file, length, pieces, halt.flag()).map_err(|e| stopped(halt, &e, failed))?;
        if !bad.is_empty() {
            part.forget(&bad).map_err(failed)?;
            return Ok(Verified::BadPieces(bad));
        }
    }
    if !digests.is_empty() {
        let wrong =
            verify::mismatch(&file, digests, halt.flag(), |_| {}).map_err(|e| stopped(halt, &e, failed))?;
        if let Some((expected, found)) = wrong {
            return Ok(Verified::Wrong(digest_mismatch(&expected, &found)));
        }
    }
    Ok(Verified::Right)
}

/// What was found, as it is proposed, and whose it is if a checkpoint told of it.
fn what_to_go_on_from(
    request: &Request,
    halt: &Halt,
    landing: &Landing,
) -> Result<(Found, Option<Link>), Ending> {
    Ok(match landing.found() {
        Landed::Nothing => (Found::Nothing, None),
        // A copied part may lack what its checkpoint says.
        Landed::Recorded { spans, link, moved: true, .. } => {
            (Found::Adopted { spans: without_reserved_room(landing, &spans)? }, Some(link))
        }
        // Another link's bytes, for a name that the user chose: whatever that server said of them, a
        // tag of one host is no word of another. They are proposed for proof.
        Landed::Recorded { spans, link: Link::Other, .. } => (Found::Adopted { spans }, Some(Link::Other)),
        // Two files of one host may have the same date: only a tag says that they are one.
        Landed::Recorded { identity, spans, link: Link::OtherQuery, .. } => {
            let identity = Identity { date_is_strong: false, ..identity };
            (Found::Recorded { identity, spans }, Some(Link::OtherQuery))
        }
        Landed::Recorded { identity, spans, link: Link::Same, .. } => {
            (Found::Recorded { identity, spans }, Some(Link::Same))
        }
        Landed::Bare { length, adopted } => (by_content(request, halt, landing, length, adopted)?, None),
    })
}

/// Whether the user says what the bytes must be.
fn has_digests(request: &Request) -> bool {
    !request.digests.is_empty() || request.pieces.is_some()
}

/// Whether a wait was ended by a pause.
enum Stopped {
    No,
    Paused,
}

/// What of a file without a checkpoint may be proposed for proof: for a part of ours only what piece
/// digests vouch for; for a leftover of another tool whatever is not reserved room.
fn by_content(
    request: &Request,
    halt: &Halt,
    landing: &Landing,
    length: u64,
    adopted: bool,
) -> Result<Found, Ending> {
    let Some(all) = Span::new(0, length) else { return Ok(Found::Nothing) };
    if adopted {
        let spans = without_reserved_room(landing, &[all].into_iter().collect())?;
        return Ok(if spans.is_empty() { Found::Nothing } else { Found::Adopted { spans } });
    }
    let (Some(pieces), Some(whole)) = (&request.pieces, request.length) else {
        return Ok(Found::Nothing);
    };
    let path = landing.part_path();
    let failed = |error: std::io::Error| disk_failure("read", &path, &error);
    let file = landing.part().read_only().map_err(failed)?;
    let bad = verify::bad_pieces(&file, whole, pieces, halt.flag()).map_err(|e| stopped(halt, &e, failed))?;
    let mut spans: SpanSet = Span::new(0, whole).into_iter().collect();
    bad.into_iter().for_each(|span| spans.remove(span));
    Ok(if spans.is_empty() { Found::Nothing } else { Found::Adopted { spans } })
}

/// The given spans without blocks of zeros, and without the block before such a block, which the other
/// tool may have left half written.
fn without_reserved_room(landing: &Landing, spans: &SpanSet) -> Result<SpanSet, Failure> {
    let path = landing.part_path();
    let mut kept = Runs::default();
    let mut buffer = vec![0; 256 * BLOCK];
    for span in spans.iter() {
        let mut at = span.start();
        let mut before: Option<Span> = None;
        while at < span.end() {
            let wanted = buffer.len().min(usize::try_from(span.end() - at).unwrap_or(usize::MAX));
            let count =
                landing.read_found(at, &mut buffer[..wanted]).map_err(|e| disk_failure("read", &path, &e))?;
            if count == 0 {
                break;
            }
            for block in buffer[..count].chunks(BLOCK) {
                let here = Span::new(at, at + block.len() as u64);
                if block.iter().all(|b| *b == 0) {
                    before = None;
                } else if let Some(whole) = std::mem::replace(&mut before, here) {
                    kept.insert(whole);
                }
                at += block.len() as u64;
            }
        }
        // The last block of a leftover is where it was cut: whole as far as it goes.
        before.into_iter().for_each(|block| kept.insert(block));
    }
    Ok(kept.spans)
}

/// Runs of data that are found one after the other. Where there are very many the short ones are left out.
#[derive(Default)]
struct Runs {
    spans: SpanSet,
    /// How short they must be for that, in bytes.
    short: u64,
}

impl Runs {
    fn insert(&mut self, span: Span) {
        self.spans.insert(span);
        while self.spans.count() > MOST_RUNS {
            self.short = self.short.saturating_mul(2).max(SHORT);
            // The last may go on.
            let long = self.spans.iter().filter(|run| run.len() >= self.short || run.end() == span.end());
            self.spans = long.collect();
        }
    }
}

/// Whether a cycle is due, so long after the last one, when so many bytes were here then and are now.
fn is_due(passed: Duration, had: u64, have: u64, length: impl FnOnce() -> Option<u64>) -> bool {
    if passed < DURABLE_EVERY || passed >= DURABLE_EVERY + SOON {
        return passed >= DURABLE_EVERY;
    }
    let brought = have.saturating_sub(had) as f64 / passed.as_secs_f64();
    length().is_none_or(|length| length.saturating_sub(have) as f64 > brought * SOON.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_nearly_whole_is_not_held_up_by_a_cycle_and_one_that_stalls_there_is_saved() {
        let due = |passed, had, have, length| is_due(Duration::from_secs(passed), had, have, || length);
        // A hundred bytes a second.
        assert!(!due(9, 0, 900, Some(5000)));
        assert!(due(10, 0, 1000, Some(5000)));
        assert!(due(10, 0, 1000, None));
        assert!(!due(10, 0, 1000, Some(1100)));
        assert!(!due(11, 0, 1000, Some(1100)));
        assert!(due(12, 0, 1000, Some(1100)));
        // What was here before says nothing of how fast the rest comes.
        assert!(due(10, 1000, 1010, Some(1100)));
    }

    fn runs(spans: impl IntoIterator<Item = (u64, u64)>) -> Vec<Span> {
        let mut runs = Runs::default();
        spans.into_iter().filter_map(|(start, end)| Span::new(start, end)).for_each(|span| runs.insert(span));
        runs.spans.iter().collect()
    }

    #[test]
    fn a_leftover_of_a_million_pieces_costs_no_more_than_a_few_thousand() {
        const BLOCK: u64 = super::BLOCK as u64;
        // Every other block, and a long run in blocks at the end.
        let many = (0..100_000).map(|n| (2 * n * BLOCK, (2 * n + 1) * BLOCK));
        let first = 200_000 * BLOCK;
        let long = (0..64).map(|n| (first + n * BLOCK, first + (n + 1) * BLOCK));
        let found = runs(many.chain(long));
        assert!(found.len() <= MOST_RUNS, "{}", found.len());
        assert_eq!(found.last().copied(), Span::new(first, first + 64 * BLOCK));
        // Few are all kept, however short.
        let few = || (0..1000).map(|n| (2 * n * BLOCK, (2 * n + 1) * BLOCK));
        assert_eq!(runs(few()), few().filter_map(|(start, end)| Span::new(start, end)).collect::<Vec<_>>());
        // Nor do long ones come to more.
        let step = 3 * SHORT;
        let found = runs((0..20_000).map(|n| (n * step, n * step + 2 * SHORT)));
        assert!(!found.is_empty() && found.len() <= MOST_RUNS, "{}", found.len());
    }
}
