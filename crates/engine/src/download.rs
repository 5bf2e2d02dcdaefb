//! The cold side of one download, on a thread that may wait for its disk ([`crate::lanes`]).
//!
//! It reads as the story of a download: find the part, let the control thread fetch, answer its
//! questions (prepare, verify), save every ten seconds, publish, tell the outcome. It decides what
//! lands where, and nothing about the network.

mod file;
mod pump;

use self::file::FileSide;
use crate::config::Ask;
use crate::engine::{Disk, FromCold, Inbox, Start, ToCold, ToControl};
use crate::events::Events;
use crate::fetch::too_large;
use crate::landing::{LandingRequest, disk_failure};
use crate::lanes::aside;
use crate::loan::Returned;
use crate::places::{Halt, Place};
use crate::sync::Mutex;
use crate::syncs::SharedSyncs;
use crate::target::{StreamTarget, Target};
use crate::verify;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::future::poll_fn;
use std::io::Write;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tidegate_core::file_name::{Portability, relative_path};
use tidegate_core::message::{Event, EventKind, Proof};
use tidegate_core::request::{Destination, OnExists, redact};
use tidegate_core::transfer::{Found, Preparation, Verified};
use tidegate_core::web_page::{ending_of_another_kind, is_web_page};
use tidegate_core::{Code, Digest, DownloadId, Failure, Identity, Remedy, Request, SafeName, SpanSet};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, timeout_at};
use url::Url;

/// What is heard while something else is waited for, at most.
const MOST_UNHEARD: usize = 256;

/// How often somebody is asked for what one download lacks.
const MOST_ASKED: u32 = 5;

/// How often the engine's process may end while a download runs and makes no progress, before the download is taken
/// for the cause; and how many bytes are progress.
const MOST_CRASHES: u32 = 3;
const PROGRESS: u64 = 64 << 10;

/// How long others wait for one that may be what ends the process, at most.
const MOST_SUSPICION: Duration = Duration::from_secs(30);

/// The cold side of one download.
pub(crate) struct Download {
    pub(crate) id: DownloadId,
    pub(crate) request: Request,
    pub(crate) control: ToControl,
    /// Borrowed only while it is polled.
    pub(crate) from_control: RefCell<Receiver<ToCold>>,
    pub(crate) events: Arc<Events>,
    /// The number of the newest question, which its answer carries.
    pub(crate) turn: Cell<u64>,
    /// Set from outside when hashing should stop.
    pub(crate) halt: Arc<Halt>,
    /// Its place among those that run, until its outcome is told.
    pub(crate) place: Option<Place>,
    /// How often the part was lent to the control thread and not released yet.
    pub(crate) out: Cell<u32>,
    /// What another process said of the part when it returned it, or that it was there when that process
    /// ended; until that was taken into account.
    pub(crate) back: RefCell<Option<(u64, SpanSet)>>,
    /// What fetches were lent and may not have returned yet.
    pub(crate) lent: RefCell<Vec<Returned>>,
    /// Returned when all that went into a pipe has come out of it.
    pub(crate) pumped: RefCell<Option<Returned>>,
    /// What was heard while something else was waited for.
    pub(crate) unheard: RefCell<VecDeque<ToCold>>,
    /// The control thread has let go of everything.
    pub(crate) is_free: Cell<bool>,
    /// How often the engine's process ended while this was fetched, since there was progress; and how many bytes
    /// were here then.
    pub(crate) crashes: Cell<(u32, u64)>,
    /// Held while it runs though it may be what ends the engine's process, and from when on.
    pub(crate) suspect: RefCell<Option<(OwnedSemaphorePermit, Instant)>>,
    /// Bytes that were told to be kept.
    pub(crate) kept: Cell<u64>,
    /// Whom to ask for what it lacks.
    pub(crate) ask: Option<Arc<dyn Ask>>,
    /// Where it meets others that save names.
    pub(crate) syncs: Arc<SharedSyncs>,
    /// Where the bytes go in order, if not where the request says.
    pub(crate) output: Mutex<Option<Output>>,
}

/// Something that takes bytes in order.
pub(crate) type Output = Box<dyn Write + Send>;

/// Why the story ends before the file is whole.
enum Ending {
    Told(EventKind),
    /// It was told to go, and has saved what it has.
    Stopped,
    Failed(Failure),
}

/// The engine's process has ended.
#[derive(Clone)]
struct Crash {
    failure: Failure,
    /// This download may be what ended it.
    suspicious: bool,
}

impl From<Failure> for Ending {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// What the control thread wants next of the side that lands.
enum Wish {
    Prepare {
        preparation: Box<Preparation>,
        /// How often the part was doubted when this was decided.
        doubts: u64,
    },
    Learned {
        identity: Identity,
        /// As above.
        doubts: u64,
    },
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
    /// The engine's process has ended.
    StartAgain(Crash),
    /// Nothing for a while: time to save.
    Save,
}

impl Download {
    /// Runs the download to its outcome.
    pub(crate) async fn run(mut self) {
        // Whatever happens here, a panic of ours or of those we ask included, the outcome is told.
        let told = {
            let mut story = pin!(self.story());
            poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| story.as_mut().poll(cx))) {
                Ok(poll) => poll.map(Some),
                Err(_) => Poll::Ready(None),
            })
            .await
        };
        let kind = match told {
            Some(Ok(kind) | Err(Ending::Told(kind))) => kind,
            Some(Err(Ending::Failed(failure))) => EventKind::Failed { failure, kept: 0 },
            Some(Err(Ending::Stopped)) => EventKind::Stopped { kept: 0 },
            None => {
                let failure = Failure::new(Code::Internal, "a download of ours broke; nothing was lost");
                EventKind::Failed { failure, kept: self.kept.get() }
            }
        };
        self.let_go().await;
        // Whoever hears of the end finds the place free.
        let place = self.place.take();
        self.events.put(Event { id: self.id, kind }, || drop(place)).await;
        self.answer(FromCold::Gone);
    }

    /// Waits until nothing of this download is in other hands, so that its part is closed and another may
    /// have it. What they held is closed here, where a disk may be waited for.
    async fn let_go(&self) {
        if !self.is_free.replace(true) {
            self.answer(FromCold::Over);
            // Another process that has nothing of this download is not to hold up its end.
            while self.is_in_other_hands() {
                match self.hear().await {
                    Some(ToCold::Release { target, returned }) => self.take_back(target, returned),
                    Some(ToCold::Returned { doubts, have }) => self.comes_back(doubts, have),
                    Some(ToCold::Crashed { .. }) => {
                        self.lose_all();
                        break;
                    }
                    Some(ToCold::Freed) | None => break,
                    Some(_) => {}
                }
            }
        }
        self.wait_for_fetches().await;
    }

    /// Whether anything of this download may be where it is fetched.
    fn is_in_other_hands(&self) -> bool {
        !self.control.is_across() || self.out.get() > 0 || self.pumped.borrow().is_some()
    }

    /// Waits until the part is here alone, as it must be before anything of it is decided.
    async fn recall(&self) {
        let mut unheard = VecDeque::new();
        while self.out.get() > 0 {
            match self.hear().await {
                Some(ToCold::Release { target, returned }) => self.take_back(target, returned),
                Some(ToCold::Returned { doubts, have }) => self.comes_back(doubts, have),
                Some(crashed @ ToCold::Crashed { .. }) => {
                    self.lose_all();
                    stash(&mut unheard, crashed);
                }
                Some(message) => stash(&mut unheard, message),
                None => break,
            }
        }
        // All that was unheard before was heard again meanwhile, if anything was.
        unheard.append(&mut self.unheard.borrow_mut());
        self.unheard.replace(unheard);
        self.wait_for_fetches().await;
    }

    /// Waits until all that went into a pipe has come out of it, unless this download is to go before that; then
    /// tells how. Whoever takes the stream may never take the rest.
    async fn wait_for_pump(&self) -> Option<Wish> {
        let pumped = self.pumped.take()?;
        let mut pumped = pin!(pumped.wait());
        let mut unheard = VecDeque::new();
        let wish = poll_fn(|cx| {
            loop {
                match self.from_control.borrow_mut().poll_recv(cx) {
                    Poll::Ready(Some(ToCold::End) | None) => return Poll::Ready(Some(Wish::End)),
                    Poll::Ready(Some(ToCold::Cancel)) => return Poll::Ready(Some(Wish::Cancel)),
                    Poll::Ready(Some(message)) => stash(&mut unheard, message),
                    Poll::Pending => return pumped.as_mut().poll(cx).map(|()| None),
                }
            }
        })
        .await;
        self.unheard.borrow_mut().extend(unheard);
        wish
    }

    async fn wait_for_fetches(&self) {
        let lent = self.lent.take();
        for returned in lent {
            returned.wait().await;
        }
    }

    fn take_back(&self, target: Target, returned: Option<Returned>) {
        if matches!(target, Target::Part { .. }) {
            self.out.set(self.out.get().saturating_sub(1));
        }
        drop(target);
        self.lent.borrow_mut().extend(returned);
    }

    fn comes_back(&self, doubts: u64, have: SpanSet) {
        self.out.set(self.out.get().saturating_sub(1));
        self.back.replace(Some((doubts, have)));
    }

    /// The process that had what was lent has ended: it is here again, as that left it.
    fn lose_all(&self) {
        if self.out.replace(0) > 0 {
            self.back.replace(Some((0, SpanSet::new())));
        }
    }

    async fn story(&self) -> Result<EventKind, Ending> {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (self.request.destination.clone(), output) {
            _ if self.request.options.dry_run => self.only_ask().await,
            (_, Some(output)) => self.to_stream(output, "the stream").await,
            (Destination::Stdout, None) => {
                let failure =
                    |error: std::io::Error| disk_failure("write", Path::new("standard output"), &error);
                let out = std::io::stdout().as_fd().try_clone_to_owned().map_err(failure)?;
                self.to_stream(Box::new(File::from(out)), "standard output").await
            }
            (Destination::File { dir, name, adopt }, None) => self.to_file(dir, name, adopt).await,
        }
    }

    // ---- to a file ------------------------------------------------------------------------------

    async fn to_file(
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
        if let Some(done) = self.is_here_by_digest(&dir, &part_name).await? {
            return Ok(done);
        }
        let wanted = LandingRequest {
            dir,
            name: part_name.clone(),
            explicit_name,
            url: url.clone(),
            resume: self.request.options.resume,
            adopt,
        };
        let mut file = FileSide::open(self, wanted, explicit_name, part_name).await?;
        if let Some(done) = file.publish_what_was_verified().await? {
            return Ok(done);
        }
        let disk = file
            .landing
            .part()
            .file_system()
            .map_err(|e| disk_failure("look at", &file.landing.part_path(), &e))?;
        file.disk = Disk::FileSystem(disk);
        file.start();
        let outcome = file.follow().await;
        self.let_go().await;
        let outcome = match file.recall().await {
            Err(failure) if outcome.is_ok() => Err(failure.into()),
            Ok(()) | Err(_) => outcome,
        };
        file.close(outcome).await
    }

    /// With a digest given, a file of that name that has it is the file, whatever its history.
    async fn is_here_by_digest(&self, dir: &Path, name: &Path) -> Result<Option<EventKind>, Failure> {
        if self.request.digests.is_empty() || self.request.options.on_exists == OnExists::Overwrite {
            return Ok(None);
        }
        let (dir, name, halt) = (dir.to_owned(), name.to_owned(), Arc::clone(&self.halt));
        let (told, digests) = (self.request.length, self.request.digests.clone());
        aside(move || {
            let Some((file, path)) = crate::landing::open_finished(&dir, &name)? else { return Ok(None) };
            let Ok(length) = file.metadata().map(|metadata| metadata.len()) else { return Ok(None) };
            if told.is_some_and(|told| told != length) {
                return Ok(None);
            }
            // A file that cannot be read is not known to be this one.
            Ok(match verify::mismatch(&file, &digests, halt.flag(), |_| {}) {
                Ok(None) => {
                    let (path, proof) = (Some(path), Proof::Digest);
                    Some(EventKind::Completed { path, length, proof, already: true, received: 0 })
                }
                _ => None,
            })
        })
        .await
    }

    // ---- to a stream ----------------------------------------------------------------------------

    async fn to_stream(&self, output: Output, called: &'static str) -> Result<EventKind, Ending> {
        let stream = Arc::new(StreamTarget::new(output, called));
        stream.compute(self.request.digests.iter().map(Digest::algorithm));
        self.begin_stream(self.request.clone(), &stream, called)?;
        let mut asked = 0;
        loop {
            match self.next_wish(Duration::from_secs(60)).await {
                Wish::Prepare { preparation, .. } => {
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
                    )
                    .await;
                    self.check_size(preparation.identity.length)?;
                    stream.compute(preparation.digests.iter().map(Digest::algorithm));
                    self.answer(FromCold::Prepared { target: None });
                }
                Wish::Verify { identity, digests, proof, received } => {
                    if let Some(wish) = self.wait_for_pump().await {
                        return Err(ending_of_stream(wish, &stream));
                    }
                    let length = stream.written();
                    if identity.length.is_some_and(|told| told != length) {
                        let message =
                            format!("{length} bytes went out of {}", identity.length.unwrap_or_default());
                        return Err(Failure::new(Code::LengthMismatch, message).into());
                    }
                    let computed = stream.digests();
                    let mut proof = proof;
                    for expected in self.request.digests.iter().chain(&digests) {
                        // A server that tells its digest only later tells it too late to be checked.
                        match computed.iter().find(|d| d.algorithm() == expected.algorithm()) {
                            Some(found) if found != expected => {
                                return Err(digest_mismatch(expected, found).into());
                            }
                            Some(_) => proof = Proof::Digest,
                            None => {}
                        }
                    }
                    self.answer(FromCold::Verified { verified: Verified::Right, target: None });
                    return Ok(EventKind::Completed { path: None, length, proof, already: false, received });
                }
                Wish::GiveUp(failure) => {
                    // Of a pipe that is not read any more the other side knows no more than that.
                    let failure = stream.failure().unwrap_or(failure);
                    // What went out cannot be proved to be of another link's file.
                    let Some(request) = self.help(&failure, &mut asked).await else {
                        return Err(failure.into());
                    };
                    if let Some(wish) = self.wait_for_pump().await {
                        return Err(ending_of_stream(wish, &stream));
                    }
                    if stream.written() > 0 {
                        return Err(failure.into());
                    }
                    self.begin_stream(request, &stream, called)?;
                }
                Wish::StartAgain(crash) => {
                    self.survived(&crash, stream.written()).await?;
                    let failure = crash.failure;
                    // The pipe's end has gone with the process.
                    if let Some(wish) = self.wait_for_pump().await {
                        return Err(ending_of_stream(wish, &stream));
                    }
                    if stream.written() > 0 {
                        let message =
                            format!("{}; what went to {called} cannot be taken back", failure.message);
                        return Err(Failure { message, ..failure }.with_remedy(Remedy::GiveUp).into());
                    }
                    self.begin_stream(self.request.clone(), &stream, called)?;
                }
                Wish::AwaitMachine(failure) => return Err(failure.into()),
                wish @ (Wish::Cancel | Wish::End) => return Err(ending_of_stream(wish, &stream)),
                Wish::Paused => self.tell(EventKind::Paused { have: stream.written() }).await,
                Wish::Learned { identity, .. } => self.check_size(identity.length)?,
                Wish::Save => self.has_progressed(stream.written()),
            }
        }
    }

    // ---- to nowhere -----------------------------------------------------------------------------

    /// Asks which file it is, and stops before fetching it.
    async fn only_ask(&self) -> Result<EventKind, Ending> {
        self.begin(self.request.clone(), Found::Nothing, Target::Nowhere, Disk::Nowhere);
        let mut asked = 0;
        loop {
            match self.next_wish(Duration::from_secs(60)).await {
                Wish::Prepare { preparation, .. } => {
                    let Preparation { identity, url, resumable, content_type, disposition, .. } =
                        *preparation;
                    self.tell_identified(&identity, &url, resumable, content_type.as_ref()).await;
                    self.check_size(identity.length)?;
                    if let Destination::File { dir, name, .. } = &self.request.destination {
                        let chosen = SafeName::choose(
                            disposition.as_deref(),
                            self.url(),
                            &url,
                            Portability::default(),
                        );
                        let name = name.clone().unwrap_or_else(|| PathBuf::from(chosen.as_str()));
                        self.tell(EventKind::Named { path: dir.join(name) }).await;
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
                Wish::GiveUp(failure) => match self.help(&failure, &mut asked).await {
                    Some(request) => self.begin(request, Found::Nothing, Target::Nowhere, Disk::Nowhere),
                    None => return Err(failure.into()),
                },
                Wish::StartAgain(crash) => {
                    self.survived(&crash, 0).await?;
                    self.begin(self.request.clone(), Found::Nothing, Target::Nowhere, Disk::Nowhere);
                }
                Wish::AwaitMachine(failure) => return Err(failure.into()),
                Wish::Cancel => return Err(cancelled().into()),
                Wish::End => return Err(Ending::Stopped),
                Wish::Paused => self.tell(EventKind::Paused { have: 0 }).await,
                Wish::Learned { .. } | Wish::Verify { .. } | Wish::Save => {}
            }
        }
    }

    // ---- words with the control thread ----------------------------------------------------------

    fn url(&self) -> &Url {
        // A request has at least one mirror by construction.
        self.request.mirrors()[0].url()
    }

    /// Begins to fetch into a stream; where that is done in another process, by way of a pipe.
    fn begin_stream(
        &self,
        request: Request,
        stream: &Arc<StreamTarget>,
        called: &'static str,
    ) -> Result<(), Failure> {
        let target = if self.control.is_across() {
            let failed = |error: std::io::Error| disk_failure("make a pipe to", Path::new(called), &error);
            let (pipe, pumped) = pump::start(stream, self.control.threads()).map_err(failed)?;
            self.pumped.replace(Some(pumped));
            Target::Pipe { pipe: Arc::new(pipe), called }
        } else {
            Target::Stream(Arc::clone(stream))
        };
        self.begin(request, Found::Nothing, target, Disk::Stream(self.id));
        Ok(())
    }

    /// The engine's process has ended, when so many bytes were here. Returns when this download may begin again: one
    /// that may be what ends the process runs alone among its like, so that the next end tells which it is.
    ///
    /// # Errors
    /// When it ended so often without progress in between; or when this is to go meanwhile.
    async fn survived(&self, crash: &Crash, have: u64) -> Result<(), Ending> {
        self.turn.set(0);
        self.suspect.take();
        if !crash.suspicious {
            return Ok(());
        }
        let (crashes, had) = self.crashes.get();
        let crashes = if have >= had.saturating_add(PROGRESS) { 1 } else { crashes + 1 };
        self.crashes.set((crashes, have));
        if crashes >= MOST_CRASHES {
            let failure = &crash.failure;
            let message = format!("{failure}; that was {MOST_CRASHES} times in a row while this was fetched");
            return Err(Failure { message, ..failure.clone() }.with_remedy(Remedy::GiveUp).into());
        }
        if crashes + 1 == MOST_CRASHES {
            let permit = self.unless_told_to_go(self.control.suspect()).await?;
            self.suspect.replace(permit.map(|permit| (permit, Instant::now())));
        }
        Ok(())
    }

    /// So many bytes are here: others that may have ended the process need not wait for this one any more.
    fn has_progressed(&self, have: u64) {
        if have >= self.crashes.get().1.saturating_add(PROGRESS) {
            self.is_held_up();
            self.crashes.set((0, have));
        }
    }

    /// It does nothing for a while: others that may have ended the process need not wait for it.
    fn is_held_up(&self) {
        self.suspect.take();
    }

    /// Waits for something before this begins again. It is not in any process meanwhile, so the end of one is nothing
    /// to it.
    async fn unless_told_to_go<T>(&self, wanted: impl Future<Output = T>) -> Result<T, Ending> {
        let mut wanted = pin!(wanted);
        let mut unheard = VecDeque::new();
        let outcome = poll_fn(|cx| {
            loop {
                match self.from_control.borrow_mut().poll_recv(cx) {
                    Poll::Ready(Some(message @ (ToCold::End | ToCold::Cancel | ToCold::GiveUp(_)))) => {
                        return Poll::Ready(Err(message));
                    }
                    Poll::Ready(None) => return Poll::Ready(Err(ToCold::End)),
                    Poll::Ready(Some(ToCold::Crashed { .. })) => {}
                    Poll::Ready(Some(message)) => stash(&mut unheard, message),
                    Poll::Pending => return wanted.as_mut().poll(cx).map(Ok),
                }
            }
        })
        .await;
        self.unheard.borrow_mut().extend(unheard);
        match outcome {
            Ok(result) => Ok(result),
            Err(ToCold::Cancel) => Err(cancelled().into()),
            Err(ToCold::GiveUp(failure)) => Err(failure.into()),
            Err(_) => Err(Ending::Stopped),
        }
    }

    fn begin(&self, request: Request, found: Found, target: Target, disk: Disk) {
        self.start(Start { id: self.id, request, found, borrowed: false, target, disk, doubts: 0 });
    }

    fn start(&self, start: Start) {
        let _ = self.control.send(Inbox::Start(Box::new(start)));
    }

    fn answer(&self, input: FromCold) {
        let _ = self.control.send(Inbox::Cold { id: self.id, turn: self.turn.get(), input });
    }

    async fn tell(&self, kind: EventKind) {
        match kind {
            EventKind::Started { resumed_from: kept } | EventKind::Checkpointed { durable: kept } => {
                self.kept.set(kept);
            }
            EventKind::Restarted { .. } => self.kept.set(0),
            _ => {}
        }
        self.events.put(Event { id: self.id, kind }, || {}).await;
    }

    async fn tell_identified(
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
        })
        .await;
        // A login or an error, served as if it were the file. It may still be what is wanted, so it is kept.
        if let Some(page) = content_type.filter(|media_type| is_web_page(media_type))
            && let Some(ending) = ending_of_another_kind(&self.name_asked_for())
        {
            let message = format!(
                "the server sent a web page ({page}) where a .{ending} file was expected; it may be a login or an error"
            );
            self.tell(EventKind::Notice { message }).await;
        }
    }

    /// What the user calls the file: the name chosen, else the end of the link.
    fn name_asked_for(&self) -> String {
        match &self.request.destination {
            Destination::File { name: Some(name), .. } => name.to_string_lossy().into_owned(),
            Destination::File { name: None, .. } | Destination::Stdout => {
                SafeName::choose(None, self.url(), self.url(), Portability::default()).as_str().to_owned()
            }
        }
    }

    /// Refuses a file that is larger than it may be, as soon as its length is known.
    fn check_size(&self, length: Option<u64>) -> Result<(), Failure> {
        match (length, self.request.options.max_size) {
            (Some(length), Some(most)) if length > most => Err(too_large(Some(length), most)),
            _ => Ok(()),
        }
    }

    /// What somebody who was asked knows better, after the control thread gave up: the same request with
    /// a password or a fresh link. Asked a few times at most.
    async fn help(&self, failure: &Failure, asked: &mut u32) -> Option<Request> {
        let ask = Arc::clone(self.ask.as_ref().filter(|_| *asked < MOST_ASKED)?);
        *asked += 1;
        self.is_held_up();
        let (id, url, failure) = (self.id, self.url().clone(), failure.clone());
        match failure.code {
            Code::AuthRequired => {
                let credentials = Some(aside(move || ask.credentials(id, &url)).await?);
                let mut request = self.request.clone();
                request.credentials = credentials;
                Some(request)
            }
            Code::NotFound | Code::Forbidden => {
                let link = aside(move || ask.fresh_link(id, &failure)).await?;
                Some(self.request.with_link(link))
            }
            _ => None,
        }
    }

    /// The next message, waiting for it; `None` when there will be none.
    async fn hear(&self) -> Option<ToCold> {
        if let Some(message) = self.unheard.borrow_mut().pop_front() {
            return Some(message);
        }
        poll_fn(|cx| self.from_control.borrow_mut().poll_recv(cx)).await
    }

    /// The next thing to do; what is only to be told is told on the way.
    async fn next_wish(&self, patience: Duration) -> Wish {
        let until = Instant::now() + patience;
        if self.suspect.borrow().as_ref().is_some_and(|(_, since)| since.elapsed() >= MOST_SUSPICION) {
            self.is_held_up();
        }
        loop {
            match timeout_at(until, self.hear()).await {
                Ok(Some(ToCold::Tell(EventKind::Paused { .. }) | ToCold::Freed)) => {}
                Ok(Some(ToCold::Release { target, returned })) => self.take_back(target, returned),
                Ok(Some(ToCold::Returned { doubts, have })) => self.comes_back(doubts, have),
                Ok(Some(ToCold::Turn(turn))) => self.turn.set(turn),
                Ok(Some(ToCold::Tell(kind))) => {
                    if matches!(kind, EventKind::Waiting { .. }) {
                        self.is_held_up();
                    }
                    self.tell(kind).await;
                }
                Ok(Some(ToCold::Prepare { preparation, doubts })) => {
                    return Wish::Prepare { preparation, doubts };
                }
                Ok(Some(ToCold::Learned { identity, doubts })) => return Wish::Learned { identity, doubts },
                Ok(Some(ToCold::Verify { identity, digests, proof, received })) => {
                    return Wish::Verify { identity, digests, proof, received };
                }
                Ok(Some(ToCold::AwaitMachine(failure))) => return Wish::AwaitMachine(failure),
                Ok(Some(ToCold::GiveUp(failure))) => return Wish::GiveUp(failure),
                Ok(Some(ToCold::Paused)) => return Wish::Paused,
                Ok(Some(ToCold::Cancel)) => return Wish::Cancel,
                Ok(Some(ToCold::Crashed { failure, suspicious })) => {
                    self.lose_all();
                    return Wish::StartAgain(Crash { failure, suspicious });
                }
                Ok(Some(ToCold::End) | None) => return Wish::End,
                Err(_) => return Wish::Save,
            }
        }
    }
}

/// Keeps something that is heard at the wrong time; of what only tells, and of what no honest side says so much of, no
/// more than fits.
fn stash(unheard: &mut VecDeque<ToCold>, message: ToCold) {
    let most = if matches!(message, ToCold::Tell(_)) { MOST_UNHEARD / 4 } else { MOST_UNHEARD };
    if unheard.len() < most {
        unheard.push_back(message);
    }
}

/// How a download into a stream ends that is told to go.
fn ending_of_stream(wish: Wish, stream: &StreamTarget) -> Ending {
    match wish {
        Wish::Cancel => cancelled().into(),
        _ => Ending::Told(EventKind::Stopped { kept: stream.written() }),
    }
}

fn cancelled() -> Failure {
    Failure::new(Code::Cancelled, "cancelled")
}

fn digest_mismatch(expected: &Digest, found: &Digest) -> Failure {
    Failure::new(Code::DigestMismatch, format!("the file should have {expected}, but it has {found}"))
}

/// Why a long computation came to no end: it was halted, or it failed.
fn stopped(halt: &Halt, error: &std::io::Error, failed: impl Fn(std::io::Error) -> Failure) -> Ending {
    match (halt.is_set(), halt.discards()) {
        (true, true) => cancelled().into(),
        (true, false) => Ending::Stopped,
        (false, _) => failed(std::io::Error::from(error.kind())).into(),
    }
}
