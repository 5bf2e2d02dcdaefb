//! The cold side of one download: a thread that may wait for its disk.
//!
//! It reads as the story of a download: find the part, let the control thread fetch, answer its
//! questions (prepare, verify), save every ten seconds, publish, tell the outcome. It decides what
//! lands where, and nothing about the network.

use crate::config::Ask;
use crate::engine::{FromCold, Inbox, Start, ToCold};
use crate::landing::{Begin, Found as Landed, Landing, LandingRequest, disk_failure};
use crate::part_file::Basis;
use crate::target::{StreamTarget, Target};
use crate::verify;
use std::cell::Cell;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidegate_core::checkpoint::Link;
use tidegate_core::failure::Need;
use tidegate_core::file_name::{Portability, relative_path};
use tidegate_core::message::{Event, EventKind, Proof};
use tidegate_core::request::{Destination, OnExists, redact};
use tidegate_core::transfer::{Found, Preparation, Verified};
use tidegate_core::{Code, Digest, DownloadId, Failure, Identity, Remedy, Request, SafeName, Span, SpanSet};
use url::Url;

/// How often everything is made to survive a power loss.
const DURABLE_EVERY: Duration = Duration::from_secs(10);

/// How often the kernel is asked to begin writing to the disk.
const WRITEBACK_EVERY: Duration = Duration::from_secs(1);

/// How often a full disk is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A block of another tool's leftover that holds only zeros is taken for room that was reserved.
const BLOCK: usize = 4 << 10;

/// How often somebody is asked for what one download lacks.
const MOST_ASKED: u32 = 5;

/// Names the disk of downloads that write to none.
const NO_DISK: u64 = u64::MAX;

/// The cold side of one download.
pub(crate) struct Download {
    pub(crate) id: DownloadId,
    pub(crate) request: Request,
    pub(crate) control: SyncSender<Inbox>,
    pub(crate) from_control: Receiver<ToCold>,
    pub(crate) events: SyncSender<Event>,
    /// The number of the newest question, which its answer carries.
    pub(crate) turn: Cell<u64>,
    /// Set from outside when hashing should stop.
    pub(crate) cancel: Arc<AtomicBool>,
    /// Whom to ask for what it lacks.
    pub(crate) ask: Option<Arc<dyn Ask>>,
    /// Where the bytes go in order, if not where the request says.
    pub(crate) output: Mutex<Option<Output>>,
}

/// Something that takes bytes in order.
pub(crate) type Output = Box<dyn Write + Send>;

/// Why the story ends before the file is whole.
enum Ending {
    Told(EventKind),
    Failed(Failure),
}

impl From<Failure> for Ending {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// What the control thread wants next of the side that lands.
enum Wish {
    Prepare(Box<Preparation>),
    Learned(Identity),
    Verify {
        identity: Identity,
        digests: Vec<Digest>,
        proof: Proof,
        received: u64,
    },
    AwaitMachine(Failure),
    GiveUp(Failure),
    Cancel,
    Paused,
    End,
    /// Nothing for a while: time to save.
    Save,
}

impl Download {
    /// Runs the download to its outcome.
    pub(crate) fn run(self) {
        let kind = match self.story() {
            Ok(kind) | Err(Ending::Told(kind)) => kind,
            Err(Ending::Failed(failure)) => EventKind::Failed { failure, kept: 0 },
        };
        self.tell(kind);
        let _ = self.control.send(Inbox::Cold { id: self.id, turn: self.turn.get(), input: FromCold::Gone });
        // Until the control thread has let go: what it held is closed here, where a disk may be waited for.
        while self.from_control.recv().is_ok() {}
    }

    fn story(&self) -> Result<EventKind, Ending> {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (self.request.destination.clone(), output) {
            _ if self.request.options.dry_run => self.only_ask(),
            (_, Some(output)) => self.to_stream(output, "the stream"),
            (Destination::Stdout, None) => {
                let failure =
                    |error: std::io::Error| disk_failure("write", Path::new("standard output"), &error);
                let out = std::io::stdout().as_fd().try_clone_to_owned().map_err(failure)?;
                self.to_stream(Box::new(File::from(out)), "standard output")
            }
            (Destination::File { dir, name, adopt }, None) => self.to_file(dir, name, adopt),
        }
    }

    // ---- to a file ------------------------------------------------------------------------------

    fn to_file(
        &self,
        dir: PathBuf,
        name: Option<PathBuf>,
        adopt: Option<PathBuf>,
    ) -> Result<EventKind, Ending> {
        let url = self.url();
        let explicit_name = name.is_some();
        let part_name = match name {
            Some(name) => relative_path(&name).map_err(|why| {
                Failure::new(
                    Code::UnsafePart,
                    format!("{} is not a name below the folder: {why}", name.display()),
                )
            })?,
            None => PathBuf::from(SafeName::choose(None, url, url, Portability::default()).as_str()),
        };
        if let Some(done) = self.is_here_by_digest(&dir.join(&part_name)) {
            return Ok(done);
        }
        let landing = Landing::open(LandingRequest {
            dir,
            name: part_name.clone(),
            explicit_name,
            url: url.clone(),
            resume: self.request.options.resume,
            adopt,
        })?;
        let mut file = FileSide::new(self, landing, explicit_name, part_name)?;
        if let Some(done) = file.publish_what_was_verified()? {
            return Ok(done);
        }
        let disk = file
            .landing
            .part()
            .file_system()
            .map_err(|e| disk_failure("look at", &file.landing.part_path(), &e))?;
        file.disk = disk;
        self.begin(self.request.clone(), file.found.clone(), file.target(), disk);
        let outcome = file.follow();
        file.close(outcome)
    }

    /// With a digest given, a file of that name that has it is the file, whatever its history.
    fn is_here_by_digest(&self, path: &Path) -> Option<EventKind> {
        if self.request.digests.is_empty() || self.request.options.on_exists == OnExists::Overwrite {
            return None;
        }
        let metadata = std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        if self.request.length.is_some_and(|length| length != metadata.len()) {
            return None;
        }
        let file = File::open(path).ok()?;
        match verify::mismatch(&file, &self.request.digests, &self.cancel, |_| {}) {
            Ok(None) => Some(EventKind::Completed {
                path: Some(path.to_owned()),
                length: metadata.len(),
                proof: Proof::Digest,
                already: true,
                received: 0,
            }),
            _ => None,
        }
    }

    // ---- to a stream ----------------------------------------------------------------------------

    fn to_stream(&self, output: Output, called: &'static str) -> Result<EventKind, Ending> {
        let stream = Arc::new(StreamTarget::new(output, called));
        stream.compute(self.request.digests.iter().map(Digest::algorithm));
        self.begin(self.request.clone(), Found::Nothing, Target::Stream(Arc::clone(&stream)), NO_DISK);
        let mut asked = 0;
        loop {
            match self.next_wish(Duration::from_secs(60)) {
                Wish::Prepare(preparation) => {
                    if let Some(failure) = preparation.restart.filter(|_| stream.written() > 0) {
                        let message =
                            format!("{}; what went to standard output cannot be taken back", failure.message);
                        return Err(Failure { message, ..failure }.with_remedy(Remedy::GiveUp).into());
                    }
                    self.tell_identified(
                        &preparation.identity,
                        &preparation.url,
                        preparation.resumable,
                        preparation.content_type.as_ref(),
                    );
                    stream.compute(preparation.digests.iter().map(Digest::algorithm));
                    self.answer(FromCold::Prepared { target: None });
                }
                Wish::Verify { identity, digests, proof, received } => {
                    let length = stream.written();
                    if identity.length.is_some_and(|told| told != length) {
                        let message =
                            format!("{length} bytes went out of {}", identity.length.unwrap_or_default());
                        return Err(Failure::new(Code::LengthMismatch, message).into());
                    }
                    let found = stream.digests();
                    for expected in self.request.digests.iter().chain(&digests) {
                        let other = |d: &&Digest| d.algorithm() == expected.algorithm() && *d != expected;
                        if let Some(found) = found.iter().find(other) {
                            return Err(digest_mismatch(expected, found).into());
                        }
                    }
                    self.answer(FromCold::Verified(Verified::Right));
                    let proof = if found.is_empty() { proof } else { Proof::Digest };
                    return Ok(EventKind::Completed { path: None, length, proof, already: false, received });
                }
                Wish::GiveUp(failure) => {
                    // What went out cannot be proved to be of another link's file.
                    let help = self.help(&failure, &mut asked).filter(|_| stream.written() == 0);
                    let Some(request) = help else { return Err(failure.into()) };
                    self.begin(request, Found::Nothing, Target::Stream(Arc::clone(&stream)), NO_DISK);
                }
                Wish::AwaitMachine(failure) => return Err(failure.into()),
                Wish::Cancel => return Err(cancelled().into()),
                Wish::Paused => self.tell(EventKind::Paused { have: stream.written() }),
                Wish::End => return Err(Ending::Told(EventKind::Paused { have: stream.written() })),
                Wish::Learned(_) | Wish::Save => {}
            }
        }
    }

    // ---- to nowhere -----------------------------------------------------------------------------

    /// Asks which file it is, and stops before fetching it.
    fn only_ask(&self) -> Result<EventKind, Ending> {
        self.begin(self.request.clone(), Found::Nothing, Target::Nowhere, NO_DISK);
        let mut asked = 0;
        loop {
            match self.next_wish(Duration::from_secs(60)) {
                Wish::Prepare(preparation) => {
                    let Preparation { identity, url, resumable, content_type, disposition, .. } =
                        *preparation;
                    self.tell_identified(&identity, &url, resumable, content_type.as_ref());
                    if let Destination::File { dir, name, .. } = &self.request.destination {
                        let chosen = SafeName::choose(
                            disposition.as_deref(),
                            self.url(),
                            &url,
                            Portability::default(),
                        );
                        let name = name.clone().unwrap_or_else(|| PathBuf::from(chosen.as_str()));
                        self.tell(EventKind::Named { path: dir.join(name) });
                    }
                    let length = identity.length.unwrap_or_default();
                    let proof = Proof::Answers;
                    return Ok(EventKind::Completed {
                        path: None,
                        length,
                        proof,
                        already: false,
                        received: 0,
                    });
                }
                Wish::GiveUp(failure) => match self.help(&failure, &mut asked) {
                    Some(request) => self.begin(request, Found::Nothing, Target::Nowhere, NO_DISK),
                    None => return Err(failure.into()),
                },
                Wish::AwaitMachine(failure) => return Err(failure.into()),
                Wish::Cancel => return Err(cancelled().into()),
                Wish::End => return Err(Ending::Told(EventKind::Paused { have: 0 })),
                Wish::Paused => self.tell(EventKind::Paused { have: 0 }),
                Wish::Learned(_) | Wish::Verify { .. } | Wish::Save => {}
            }
        }
    }

    // ---- words with the control thread ----------------------------------------------------------

    fn url(&self) -> &Url {
        // A request has at least one mirror by construction.
        self.request.mirrors()[0].url()
    }

    fn begin(&self, request: Request, found: Found, target: Target, disk: u64) {
        let start = Start { id: self.id, request, found, target, disk };
        let _ = self.control.send(Inbox::Start(Box::new(start)));
    }

    fn answer(&self, input: FromCold) {
        let _ = self.control.send(Inbox::Cold { id: self.id, turn: self.turn.get(), input });
    }

    fn tell(&self, kind: EventKind) {
        // Fails only when nobody listens any more.
        let _ = self.events.send(Event { id: self.id, kind });
    }

    fn tell_identified(
        &self,
        identity: &Identity,
        url: &Url,
        resumable: bool,
        content_type: Option<&String>,
    ) {
        self.tell(EventKind::Identified {
            url: redact(url),
            length: identity.length,
            resumable,
            content_type: content_type.cloned(),
        });
    }

    /// What somebody who was asked knows better, after the control thread gave up: the same request with
    /// a password or a fresh link. Asked a few times at most.
    fn help(&self, failure: &Failure, asked: &mut u32) -> Option<Request> {
        let ask = self.ask.as_ref().filter(|_| *asked < MOST_ASKED)?;
        *asked += 1;
        match failure.code {
            Code::AuthRequired => {
                let credentials = Some(ask.credentials(self.id, self.url())?);
                let mut request = self.request.clone();
                request.credentials = credentials;
                Some(request)
            }
            Code::NotFound | Code::Forbidden => {
                Some(self.request.with_link(ask.fresh_link(self.id, failure)?))
            }
            _ => None,
        }
    }

    /// The next thing to do; what is only to be told is told on the way.
    fn next_wish(&self, patience: Duration) -> Wish {
        let until = Instant::now() + patience;
        loop {
            match self.from_control.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(ToCold::Tell(EventKind::Paused { .. }) | ToCold::Resumed) => {}
                Ok(ToCold::Release(target)) => drop(target),
                Ok(ToCold::Turn(turn)) => self.turn.set(turn),
                Ok(ToCold::Tell(kind)) => self.tell(kind),
                Ok(ToCold::Prepare(preparation)) => return Wish::Prepare(preparation),
                Ok(ToCold::Learned(identity)) => return Wish::Learned(identity),
                Ok(ToCold::Verify { identity, digests, proof, received }) => {
                    return Wish::Verify { identity, digests, proof, received };
                }
                Ok(ToCold::AwaitMachine(failure)) => return Wish::AwaitMachine(failure),
                Ok(ToCold::GiveUp(failure)) => return Wish::GiveUp(failure),
                Ok(ToCold::Paused) => return Wish::Paused,
                Ok(ToCold::Cancel) => return Wish::Cancel,
                Ok(ToCold::End) | Err(RecvTimeoutError::Disconnected) => return Wish::End,
                Err(RecvTimeoutError::Timeout) => return Wish::Save,
            }
        }
    }
}

/// The cold side of a download that becomes a file.
struct FileSide<'a> {
    download: &'a Download,
    landing: Landing,
    explicit_name: bool,
    part_name: PathBuf,
    found: Found,
    /// Whose bytes were found, if anybody's that a checkpoint told of.
    link: Option<Link>,
    /// The name that the file will have, once the server was heard.
    final_name: Option<OsString>,
    /// It was prepared, so there may be something to save.
    ready: bool,
    /// Names the disk that the part is on.
    disk: u64,
    /// How often somebody was asked for what it lacks.
    asked: u32,
    last_durable: Instant,
}

impl<'a> FileSide<'a> {
    fn new(
        download: &'a Download,
        landing: Landing,
        explicit_name: bool,
        part_name: PathBuf,
    ) -> Result<Self, Failure> {
        let (found, link) = match landing.found() {
            Landed::Nothing => (Found::Nothing, None),
            // A copied part may lack what its checkpoint says.
            Landed::Recorded { spans, link, moved: true, .. } => {
                (Found::Adopted { spans: without_reserved_room(&landing, &spans)? }, Some(link))
            }
            Landed::Recorded { identity, spans, link, .. } => {
                (Found::Recorded { identity, spans }, Some(link))
            }
            Landed::Bare { length, adopted } => (by_content(download, &landing, length, adopted)?, None),
        };
        Ok(Self {
            download,
            landing,
            explicit_name,
            part_name,
            found,
            link,
            final_name: None,
            ready: false,
            disk: NO_DISK,
            asked: 0,
            last_durable: Instant::now(),
        })
    }

    fn target(&self) -> Target {
        Target::Part { part: Arc::clone(self.landing.part()), path: Arc::new(self.landing.part_path()) }
    }

    /// A run before this one had verified the file and was about to give it its name.
    fn publish_what_was_verified(&mut self) -> Result<Option<EventKind>, Failure> {
        let Landed::Recorded { identity, done: Some(name), link: Link::Same, moved: false, .. } =
            self.landing.found()
        else {
            return Ok(None);
        };
        let Some(length) = identity.length else { return Ok(None) };
        let options = &self.download.request.options;
        // Digests given now may be others than those of then.
        if !self.download.request.digests.is_empty() || self.download.request.pieces.is_some() {
            return Ok(None);
        }
        match self.landing.begin(&identity, &name, Basis::Recorded, options)? {
            Begin::Fetch(_) => {
                let path = self.landing.publish(&name, length, options)?;
                // What rests on samples was recorded without a strong validator.
                let proof = if identity.if_range().is_some() { Proof::Validator } else { Proof::Sampled };
                Ok(Some(EventKind::Completed { path: Some(path), length, proof, already: true, received: 0 }))
            }
            begin => Ok(Some(self.already(begin, length))),
        }
    }

    /// Follows the download until it is whole or will not be.
    fn follow(&mut self) -> Result<EventKind, Ending> {
        loop {
            match self.download.next_wish(WRITEBACK_EVERY) {
                Wish::Prepare(preparation) => {
                    if let Some(done) = self.prepare(&preparation)? {
                        return Ok(done);
                    }
                }
                Wish::Learned(identity) => self.learned(&identity)?,
                Wish::Verify { identity, digests, proof, received } => {
                    if let Some(done) = self.verify(&identity, digests, proof, received)? {
                        return Ok(done);
                    }
                }
                Wish::AwaitMachine(failure) => self.await_machine(failure)?,
                Wish::GiveUp(failure) => self.go_on_with_help(failure)?,
                Wish::Cancel => return Err(cancelled().into()),
                Wish::Paused => {
                    self.make_durable()?;
                    self.download.tell(EventKind::Paused { have: self.have() });
                }
                Wish::End => {
                    self.make_durable()?;
                    return Err(Ending::Told(EventKind::Paused { have: self.have() }));
                }
                Wish::Save if self.ready => {
                    self.landing.part().start_writeback();
                    if self.last_durable.elapsed() >= DURABLE_EVERY {
                        self.make_durable()?;
                    }
                }
                Wish::Save => {}
            }
        }
    }

    /// Goes on where it stopped, with what somebody knows better.
    fn go_on_with_help(&mut self, failure: Failure) -> Result<(), Ending> {
        let Some(request) = self.download.help(&failure, &mut self.asked) else { return Err(failure.into()) };
        if self.ready {
            let part = self.landing.part();
            self.found = Found::Recorded { identity: part.identity(), spans: part.have() };
        }
        self.download.begin(request, self.found.clone(), self.target(), self.disk);
        Ok(())
    }

    /// The server has told which file it is: makes the part ready for it, before its first byte.
    fn prepare(&mut self, preparation: &Preparation) -> Result<Option<EventKind>, Ending> {
        let Preparation { identity, restart, disposition, content_type, url, resumable, unproved, .. } =
            preparation;
        let download = self.download;
        let name = match (self.explicit_name, self.part_name.file_name()) {
            (true, Some(name)) => name.to_owned(),
            _ => SafeName::choose(disposition.as_deref(), download.url(), url, Portability::default())
                .as_str()
                .into(),
        };
        if restart.is_some() && matches!(self.link, Some(Link::Other | Link::OtherQuery)) {
            // Another link's bytes, and of another file: they are not ours to spoil.
            self.landing.next_part()?;
        }
        let part = Arc::clone(self.landing.part());
        let (identity, basis) = match (&self.found, restart) {
            // Asked once more for the same version, since a pause came before the answer: what was made
            // ready stays so.
            (_, None) if self.ready && *unproved => (part.identity(), Basis::Recorded),
            (_, None) if self.ready => (identity.clone(), Basis::Recorded),
            (_, Some(_)) | (Found::Nothing, _) => (identity.clone(), Basis::Nothing),
            // Until the bytes are proved to be of this version, the record must not say so; nor may it
            // go on naming the old one, since bytes of this answer may come to lie beside them.
            (Found::Recorded { identity: recorded, .. }, None) if *unproved => {
                let doubtful = Identity { etag: None, date_is_strong: false, ..recorded.clone() };
                (doubtful, Basis::Recorded)
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
        self.link = None;
        download.tell_identified(&preparation.identity, url, *resumable, content_type.as_ref());
        let begun = loop {
            match self.landing.begin(&identity, &name, basis.clone(), &download.request.options) {
                Ok(begun) => break begun,
                Err(failure) => {
                    if let Stopped::Paused = self.wait_for(&failure)? {
                        return Ok(None);
                    }
                }
            }
        };
        if !matches!(begun, Begin::Fetch(_)) {
            return Ok(Some(self.already(begun, identity.length.unwrap_or_default())));
        }
        self.ready = true;
        let folder = self.landing.part_path();
        download.tell(EventKind::Named { path: folder.with_file_name(&name) });
        self.final_name = Some(name);
        self.found = Found::Nothing;
        download.answer(FromCold::Prepared { target: Some(self.target()) });
        Ok(None)
    }

    fn already(&self, begun: Begin, length: u64) -> EventKind {
        let (path, proof) = match begun {
            Begin::AlreadyComplete { path } => (Some(path), Proof::Validator),
            Begin::Skip { path } | Begin::NotNewer { path } => (Some(path), Proof::Untouched),
            Begin::Fetch(_) => (None, Proof::Untouched),
        };
        let length = path.as_ref().and_then(|p| p.metadata().ok()).map_or(length, |m| m.len());
        EventKind::Completed { path, length, proof, already: true, received: 0 }
    }

    fn learned(&mut self, identity: &Identity) -> Result<(), Failure> {
        let path = self.landing.part_path();
        let part = self.landing.part();
        part.set_identity(identity).map_err(|e| disk_failure("save", &path, &e))?;
        if let Some(length) = identity.length {
            part.reserve(length, self.download.request.options.preallocate)
                .map_err(|e| disk_failure("reserve room for", &path, &e))?;
        }
        Ok(())
    }

    /// All bytes are here: checks them by digest where there is one, and publishes.
    fn verify(
        &mut self,
        identity: &Identity,
        server: Vec<Digest>,
        proof: Proof,
        received: u64,
    ) -> Result<Option<EventKind>, Ending> {
        let request = &self.download.request;
        let part = Arc::clone(self.landing.part());
        let path = self.landing.part_path();
        let failed = |error: std::io::Error| disk_failure("read", &path, &error);
        let length = identity.length.unwrap_or_else(|| part.have_total());
        let file = part.read_only().map_err(failed)?;
        if let Some(pieces) = &request.pieces {
            let bad = verify::bad_pieces(&file, length, pieces, &self.download.cancel)
                .map_err(|e| self.stopped(&e, failed))?;
            if !bad.is_empty() {
                part.forget(&bad).map_err(failed)?;
                self.download.answer(FromCold::Verified(Verified::BadPieces(bad)));
                return Ok(None);
            }
        }
        let mut digests = request.digests.clone();
        digests.extend(server.into_iter().filter(|d| !request.digests.contains(d)));
        if !digests.is_empty() {
            let wrong = verify::mismatch(&file, &digests, &self.download.cancel, |_| {})
                .map_err(|e| self.stopped(&e, failed))?;
            if let Some((expected, found)) = wrong {
                self.download.answer(FromCold::Verified(Verified::Wrong(digest_mismatch(&expected, &found))));
                return Ok(None);
            }
        }
        drop(file);
        let proof = if digests.is_empty() && request.pieces.is_none() { proof } else { Proof::Digest };
        let name = self.final_name.clone().unwrap_or_else(|| self.part_name.clone().into_os_string());
        loop {
            match self.landing.publish(&name, length, &request.options) {
                Ok(path) => {
                    self.download.answer(FromCold::Verified(Verified::Right));
                    let path = Some(path);
                    return Ok(Some(EventKind::Completed { path, length, proof, already: false, received }));
                }
                Err(failure) => {
                    if let Stopped::Paused = self.wait_for(&failure)? {
                        // The bytes stay; resuming finds them whole.
                        return Err(Ending::Told(EventKind::Paused { have: self.have() }));
                    }
                }
            }
        }
    }

    fn stopped(&self, error: &std::io::Error, failed: impl Fn(std::io::Error) -> Failure) -> Failure {
        if self.download.cancel.load(Ordering::Relaxed) {
            return cancelled();
        }
        failed(std::io::Error::from(error.kind()))
    }

    /// The disk is full: until there is room, unless somebody stops it.
    fn await_machine(&mut self, failure: Failure) -> Result<(), Ending> {
        match self.wait_for(&failure)? {
            Stopped::Paused => {}
            Stopped::No => self.download.answer(FromCold::MachineReady),
        }
        Ok(())
    }

    /// Waits a while after a failure of this machine that may pass; gives every other one back.
    fn wait_for(&mut self, failure: &Failure) -> Result<Stopped, Ending> {
        if failure.remedy != (Remedy::Wait { on: Need::Space }) {
            return Err(failure.clone().into());
        }
        self.download.tell(EventKind::Waiting { failure: failure.clone(), retry_in: LOOK_AGAIN });
        loop {
            match self.download.next_wish(LOOK_AGAIN) {
                Wish::Save => {
                    let length = self.landing.part().identity().length;
                    if self.landing.has_room(length) {
                        return Ok(Stopped::No);
                    }
                }
                Wish::Paused => {
                    self.download.tell(EventKind::Paused { have: self.have() });
                    return Ok(Stopped::Paused);
                }
                Wish::End => return Err(Ending::Told(EventKind::Paused { have: self.have() })),
                Wish::Cancel => return Err(cancelled().into()),
                Wish::GiveUp(failure) => return Err(failure.into()),
                // What it wanted before the wait began comes again after it.
                Wish::Prepare(_) | Wish::Learned(_) | Wish::Verify { .. } | Wish::AwaitMachine(_) => {}
            }
        }
    }

    fn make_durable(&mut self) -> Result<(), Failure> {
        self.last_durable = Instant::now();
        if !self.ready {
            return Ok(());
        }
        let path = self.landing.part_path();
        match self.landing.part().make_durable() {
            Ok(durable) => {
                self.download.tell(EventKind::Checkpointed { durable });
                Ok(())
            }
            Err(error) => {
                let failure = disk_failure("save", &path, &error);
                // No room for a few bytes of checkpoint: the next write will say so better.
                if failure.code == Code::DiskFull { Ok(()) } else { Err(failure) }
            }
        }
    }

    fn have(&self) -> u64 {
        self.landing.part().have_total()
    }

    /// Leaves the part as the outcome wants it.
    fn close(self, outcome: Result<EventKind, Ending>) -> Result<EventKind, Ending> {
        let have = self.have();
        let Self { landing, ready, found, .. } = self;
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
                landing.discard()?;
                Err(Ending::Told(EventKind::Failed { failure, kept: 0 }))
            }
            Err(Ending::Failed(failure)) => {
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
                Err(Ending::Told(EventKind::Failed { failure, kept }))
            }
        }
    }
}

/// Whether a wait was ended by a pause.
enum Stopped {
    No,
    Paused,
}

fn cancelled() -> Failure {
    Failure::new(Code::Cancelled, "cancelled")
}

fn digest_mismatch(expected: &Digest, found: &Digest) -> Failure {
    Failure::new(Code::DigestMismatch, format!("the file should have {expected}, but it has {found}"))
}

/// What of a file without a checkpoint may be proposed for proof: for a part of ours only what piece
/// digests vouch for; for a leftover of another tool whatever is not reserved room.
fn by_content(download: &Download, landing: &Landing, length: u64, adopted: bool) -> Result<Found, Failure> {
    let Some(all) = Span::new(0, length) else { return Ok(Found::Nothing) };
    if adopted {
        let spans = without_reserved_room(landing, &[all].into_iter().collect())?;
        return Ok(if spans.is_empty() { Found::Nothing } else { Found::Adopted { spans } });
    }
    let (Some(pieces), Some(whole)) = (&download.request.pieces, download.request.length) else {
        return Ok(Found::Nothing);
    };
    let path = landing.part_path();
    let failed = |error: std::io::Error| disk_failure("read", &path, &error);
    let file = landing.part().read_only().map_err(failed)?;
    let bad = verify::bad_pieces(&file, whole, pieces, &download.cancel).map_err(failed)?;
    let mut spans: SpanSet = Span::new(0, whole).into_iter().collect();
    bad.into_iter().for_each(|span| spans.remove(span));
    Ok(if spans.is_empty() { Found::Nothing } else { Found::Adopted { spans } })
}

/// The given spans without blocks of zeros, and without the block before such a block, which the other
/// tool may have left half written.
fn without_reserved_room(landing: &Landing, spans: &SpanSet) -> Result<SpanSet, Failure> {
    let path = landing.part_path();
    let mut kept = SpanSet::new();
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
    Ok(kept)
}
