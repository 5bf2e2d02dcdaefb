//! How a program speaks to an engine.
//!
//! ```no_run
//! use std::time::Duration;
//! use tidegate_core::request::{Destination, Mirror, Request};
//! use tidegate_engine::{Config, Engine};
//!
//! # fn main() -> Result<(), tidegate_core::Failure> {
//! let engine = Engine::start(Config::default())?;
//! let place = Destination::File { dir: "downloads".into(), name: None, adopt: None };
//! let request = Request::new(vec![Mirror::parse("https://example.org/disk.iso")?], place)?;
//! engine.start(request)?;
//! while let Some(event) = engine.next_event(Duration::MAX)? {
//!     println!("{:?}", event.kind);
//!     if event.kind.is_final() {
//!         break;
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use crate::answer_slot::AnswerSlot;
use crate::child;
use crate::config::{Ask, Config, Isolation, Mode};
use crate::connect::Network;
use crate::download::{Download, Output};
use crate::engine::{Asked, Back, Control, Inbox, Reply, ToControl};
use crate::events::{Events, Taken};
use crate::lanes::{Lane, Lanes};
use crate::places::{self, Halt, Places};
use crate::supervisor::Supervisor;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::mpsc::{SyncSender, sync_channel};
use crate::sync::{Mutex, MutexGuard};
use crate::syncs::SharedSyncs;
use crate::threads::Threads;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tidegate_confine::spawn::Program;
use tidegate_core::cookies::CookieJar;
use tidegate_core::message::{Event, Limits, Progress, Snapshot};
use tidegate_core::request::Destination;
use tidegate_core::{Code, DownloadId, Failure, Request};

/// Messages to the control thread that wait, at most.
pub(crate) const INBOX: usize = 4096;

/// Messages to a cold side, at most.
const COLD: usize = 64;

/// How long the control thread may take to answer before it is taken for dead.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts engines.
#[derive(Debug)]
pub struct Engine {}

impl Engine {
    /// Starts an engine in this process.
    ///
    /// # Errors
    /// When a thread cannot be started or a certificate cannot be used.
    pub fn start(config: Config) -> Result<EngineHandle, Failure> {
        let network = Network::new(config.network.clone())?;
        match config.mode.clone() {
            Mode::InProcess => Self::start_with(config, network),
            Mode::Child { program, whole } => Self::start_child(config, program, whole),
        }
    }

    fn start_child(
        config: Config,
        program: Option<std::path::PathBuf>,
        whole: bool,
    ) -> Result<EngineHandle, Failure> {
        let unavailable = |why: String| Failure::new(Code::EngineUnavailable, why);
        if child::is_wanted() {
            let why = "this process was started to be an engine's: its main must begin with run_if_child";
            return Err(unavailable(why.to_owned()));
        }
        let opened = program.as_deref().map_or_else(Program::this, Program::open);
        let program =
            opened.map_err(|error| unavailable(format!("the engine's program cannot be opened: {error}")))?;
        let (events, threads) = (Arc::<Events>::default(), Arc::<Threads>::default());
        let ask = config.ask.clone();
        let (supervisor, isolation) = Supervisor::start(config, program, whole, &threads, &events)?;
        Ok(EngineHandle::new(ToControl::Across(supervisor), events, threads, ask, isolation))
    }

    /// Starts an engine on a network of the caller's, which may be simulated.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start_with(config: Config, network: Network) -> Result<EngineHandle, Failure> {
        let (control, inbox) = sync_channel(INBOX);
        let (events, threads) = (Arc::<Events>::default(), Arc::<Threads>::default());
        let (sender, ask) = (control.clone(), config.ask.clone());
        let (closing, of_control) = (Closing(Arc::clone(&events)), Arc::clone(&threads));
        let body = move || {
            let _closing = closing;
            // Fails only when the control thread has ended, and then nobody wants to know.
            let tell = move |message| drop(sender.send(message));
            Control::new(config, network, Box::new(inbox), tell, of_control).run();
        };
        threads
            .spawn("control".to_owned(), body)
            .map_err(|error| Failure::new(Code::Internal, format!("no thread could be started: {error}")))?;
        let control = ToControl::Here(control, Arc::clone(&threads));
        Ok(EngineHandle::new(control, events, threads, ask, Isolation::default()))
    }
}

/// Closes the queue of events, as the last thing that the control thread does, however it ends.
pub(crate) struct Closing(pub(crate) Arc<Events>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Speaks to a running engine. Usable from any thread, and from any async runtime or none; only
/// [`EngineHandle::next_event`] and [`EngineHandle::shutdown`] wait for longer than a moment.
///
/// When the last handle is dropped the engine saves what is running and ends.
#[derive(Clone)]
pub struct EngineHandle {
    shared: Arc<Shared>,
}

struct Shared {
    control: ToControl,
    isolation: Isolation,
    events: Arc<Events>,
    next: AtomicU64,
    places: Arc<Places>,
    threads: Arc<Threads>,
    lanes: Arc<Lanes>,
    syncs: Arc<SharedSyncs>,
    ask: Option<Arc<dyn Ask>>,
    /// Where the answer to the next question for a snapshot comes to.
    slot: Mutex<Option<Arc<AnswerSlot<Snapshot>>>>,
}

impl fmt::Debug for EngineHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EngineHandle")
    }
}

impl EngineHandle {
    fn new(
        control: ToControl,
        events: Arc<Events>,
        threads: Arc<Threads>,
        ask: Option<Arc<dyn Ask>>,
        isolation: Isolation,
    ) -> Self {
        let lanes = Arc::new(Lanes::new(Arc::clone(&threads)));
        let (next, places, slot) = (AtomicU64::new(1), Arc::default(), Mutex::default());
        let syncs = Arc::default();
        let shared = Shared { control, isolation, events, next, places, threads, lanes, syncs, ask, slot };
        Self { shared: Arc::new(shared) }
    }

    /// What the engine's process has given up; nothing, of an engine in this process.
    pub fn isolation(&self) -> &Isolation {
        &self.shared.isolation
    }

    /// The number of the engine's process; `None` for an engine in this process, and between two.
    pub fn process(&self) -> Option<u32> {
        match &self.shared.control {
            ToControl::Here(..) => None,
            ToControl::Across(supervisor) => supervisor.process(),
        }
    }

    /// Starts a download. Everything that follows is told by events.
    ///
    /// # Errors
    /// `engine-unavailable` when the engine has ended, `engine-full` when 1,024 downloads are running: each
    /// until its outcome is told, paused ones too.
    pub fn start(&self, request: Request) -> Result<DownloadId, Failure> {
        self.start_download(request, None)
    }

    /// Starts a download whose bytes go to `output` in their order, whatever the request's destination
    /// says: a pipe, an open file, a decoder. What went out cannot be taken back, so a file that changes
    /// in the middle is a failure, and nothing is kept for another run.
    ///
    /// # Errors
    /// As [`EngineHandle::start`].
    pub fn start_into(
        &self,
        request: Request,
        output: impl Write + Send + 'static,
    ) -> Result<DownloadId, Failure> {
        self.start_download(request, Some(Box::new(output)))
    }

    fn start_download(&self, request: Request, output: Option<Output>) -> Result<DownloadId, Failure> {
        let shared = &*self.shared;
        let id = DownloadId(shared.next.fetch_add(1, Ordering::Relaxed));
        let halt = Arc::<Halt>::default();
        let Some(place) = shared.places.take(id, &halt) else {
            let message = format!("{} downloads are running; start more when some have ended", places::MOST);
            return Err(Failure::new(Code::EngineFull, message));
        };
        let (cold, from_control) = tokio::sync::mpsc::channel(COLD);
        let lane = lane(id, &request, output.is_some());
        self.send(Inbox::Register { id, cold: Box::new(cold) })?;
        let (control, events) = (shared.control.clone(), Arc::clone(&shared.events));
        let (ask, output) = (shared.ask.clone(), Mutex::new(output));
        let download = Download {
            id,
            request,
            control,
            from_control: RefCell::new(from_control),
            events,
            turn: Cell::new(0),
            halt,
            place: Some(place),
            out: Cell::new(0),
            back: RefCell::default(),
            lent: RefCell::default(),
            pumped: RefCell::default(),
            unheard: RefCell::default(),
            is_free: Cell::new(false),
            crashes: Cell::new((0, 0)),
            suspect: RefCell::default(),
            kept: Cell::new(0),
            ask,
            syncs: Arc::clone(&shared.syncs),
            output,
        };
        match shared.lanes.start(lane, move || download.run()) {
            Ok(()) => Ok(id),
            Err(error) => {
                self.send(Inbox::Cold { id, turn: 0, input: crate::engine::FromCold::Gone })?;
                Err(Failure::new(Code::Internal, format!("no thread could be started: {error}")))
            }
        }
    }

    /// Holds a download up, keeping its bytes, its files and its place. When this returns nothing more is
    /// asked for; `Paused` is told when everything is saved, or the outcome if that came first.
    ///
    /// Nothing is done for a download that has ended, as it may just before: its outcome says so.
    ///
    /// # Errors
    /// `no-such-download` for one that was never started here, `engine-unavailable` when the engine has
    /// ended.
    pub fn pause(&self, id: DownloadId) -> Result<(), Failure> {
        self.known(id)?;
        self.ask(|done| Inbox::Pause { id, done: Reply::to(done) })
    }

    /// Goes on with a paused download. Nothing is done for one that is not paused, or has ended.
    ///
    /// # Errors
    /// As [`EngineHandle::pause`].
    pub fn resume(&self, id: DownloadId) -> Result<(), Failure> {
        self.known(id)?;
        self.send(Inbox::Resume { id })
    }

    /// Ends a download, keeping its bytes for another run. When this returns nothing more is asked for;
    /// `Stopped` is told when everything is saved, its files are closed and its place is free, or another
    /// outcome if that came first. From then on the same request goes on where this one stopped.
    ///
    /// Nothing is done for a download that has ended.
    ///
    /// # Errors
    /// As [`EngineHandle::pause`].
    pub fn stop(&self, id: DownloadId) -> Result<(), Failure> {
        self.known(id)?;
        self.shared.places.halt(id, false);
        self.ask(|done| Inbox::Stop { id, done: Reply::to(done) })
    }

    /// Ends a download and removes its part file. Told by `Failed` with code `cancelled`, or by another
    /// outcome if that came first. Nothing is done for a download that has ended, or was stopped.
    ///
    /// # Errors
    /// As [`EngineHandle::pause`].
    pub fn cancel(&self, id: DownloadId) -> Result<(), Failure> {
        self.known(id)?;
        self.shared.places.halt(id, true);
        self.send(Inbox::Cancel { id })
    }

    /// Changes the limits of the whole engine.
    ///
    /// # Errors
    /// `engine-unavailable` when the engine has ended.
    pub fn set_limits(&self, limits: Limits) -> Result<(), Failure> {
        self.send(Inbox::SetLimits(limits))
    }

    /// Changes the limit of one download, in bytes a second. Nothing is done for one that has ended.
    ///
    /// # Errors
    /// As [`EngineHandle::pause`].
    pub fn set_download_limit(&self, id: DownloadId, limit: Option<u64>) -> Result<(), Failure> {
        self.known(id)?;
        self.send(Inbox::SetDownloadLimit { id, limit })
    }

    /// What every download is doing right now.
    ///
    /// # Errors
    /// `engine-unavailable` when the engine has ended.
    pub fn snapshot(&self) -> Result<Snapshot, Failure> {
        let mut snapshot = Snapshot::default();
        self.refresh(&mut snapshot)?;
        Ok(snapshot)
    }

    /// The same, into a snapshot of before: while bytes flow and nothing else changes, nothing is allocated,
    /// however often this is asked.
    ///
    /// # Errors
    /// `engine-unavailable` when the engine has ended; then the snapshot is empty.
    pub fn refresh(&self, snapshot: &mut Snapshot) -> Result<(), Failure> {
        // Several may ask at once: each has its own.
        let kept = self.slot().take();
        let slot = match kept.map_or_else(AnswerSlot::new, Ok) {
            Ok(slot) => slot,
            Err(error) => {
                let why = format!("no answer can be waited for: {error}; close some files");
                return Err(Failure::new(Code::Internal, why));
            }
        };
        let reply = Back::To(slot.answerer());
        self.send(Inbox::Snapshot(Asked { snapshot: std::mem::take(snapshot), reply }))?;
        *snapshot = slot.wait(PATIENCE).ok_or_else(ended)?;
        *self.slot() = Some(slot);
        Ok(())
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<AnswerSlot<Snapshot>>>> {
        self.shared.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far one download is; `None` if it is over or was never started.
    ///
    /// # Errors
    /// `engine-unavailable` when the engine has ended.
    pub fn progress(&self, id: DownloadId) -> Result<Option<Progress>, Failure> {
        self.ask(|reply| Inbox::Progress { id, reply: Reply::to(reply) })
    }

    /// Has the engine tell what time it is, as an event of this download: a notice with the nanoseconds of
    /// `CLOCK_MONOTONIC` at which it was told, and nothing else. It goes the way of every other event, so whoever
    /// takes it knows how long events take, in whichever process the engine is. For measurements.
    ///
    /// # Errors
    /// As [`EngineHandle::pause`].
    pub fn tell_time(&self, id: DownloadId) -> Result<(), Failure> {
        self.known(id)?;
        self.send(Inbox::TellTime { id })
    }

    /// The cookies as they are now.
    ///
    /// # Errors
    /// `engine-unavailable` when the engine has ended.
    pub fn cookies(&self) -> Result<CookieJar, Failure> {
        self.ask(|reply| Inbox::Cookies { reply: Reply::to(reply) })
    }

    /// The next event, waiting at most `patience` for it, `Duration::MAX` for ever. `Ok(None)` when there
    /// was none. Several may wait at once; each event is given to one of them.
    ///
    /// # Errors
    /// `engine-unavailable` when the engine has ended and all its events were taken.
    pub fn next_event(&self, patience: Duration) -> Result<Option<Event>, Failure> {
        match self.shared.events.take(patience) {
            Taken::Event(event) => Ok(Some(event)),
            Taken::Nothing => Ok(None),
            Taken::Ended => Err(ended()),
        }
    }

    /// Stops every download, waits until each has saved what it has and its threads have ended (at most
    /// `patience`, `Duration::MAX` for ever), and ends. Events told meanwhile can still be taken. Not to
    /// be called by what the engine calls, an [`Ask`] or a writer: that would wait for itself.
    ///
    /// # Errors
    /// `engine-unavailable` when the engine had ended already.
    pub fn shutdown(&self, patience: Duration) -> Result<(), Failure> {
        self.shared.places.halt_all();
        self.send(Inbox::Shutdown)?;
        self.shared.lanes.close();
        // A disk that hangs is not waited for beyond the patience, nor are events that nobody takes.
        self.shared.threads.wait(Instant::now().checked_add(patience));
        Ok(())
    }

    /// Numbers are given in order, and never twice.
    fn known(&self, id: DownloadId) -> Result<(), Failure> {
        if (1..self.shared.next.load(Ordering::Relaxed)).contains(&id.0) {
            return Ok(());
        }
        Err(Failure::new(Code::NoSuchDownload, format!("there was never a download {id} in this engine")))
    }

    fn send(&self, message: Inbox) -> Result<(), Failure> {
        self.shared.control.send(message).map_err(|_| ended())
    }

    fn ask<T>(&self, question: impl FnOnce(SyncSender<T>) -> Inbox) -> Result<T, Failure> {
        let (reply, answer) = sync_channel(1);
        self.send(question(reply))?;
        answer.recv_timeout(PATIENCE).map_err(|_| ended())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.places.halt_all();
        // Waits a moment at most: the control thread takes its messages whatever the disks do.
        let _ = self.control.send(Inbox::Shutdown);
        self.lanes.close();
        // Nobody takes events any more, so nobody is to wait with telling them.
        self.events.close();
    }
}

/// What may hold up the cold side of a download.
fn lane(id: DownloadId, request: &Request, has_output: bool) -> Lane {
    match &request.destination {
        _ if request.options.dry_run => Lane::Nowhere,
        Destination::File { dir, name, .. } if !has_output => {
            // Folders below may be on other disks.
            let below = name.as_deref().and_then(Path::parent);
            Lane::Folder(below.map_or_else(|| dir.clone(), |below| dir.join(below)))
        }
        Destination::File { .. } | Destination::Stdout => Lane::Stream(id),
    }
}

#[cfg(all(test, shuttle))]
mod model;

fn ended() -> Failure {
    Failure::new(Code::EngineUnavailable, "the engine has ended")
}
