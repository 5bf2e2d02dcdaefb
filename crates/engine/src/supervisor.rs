//! The parent's side of the engine's process: starts it, speaks with it, notices its end, and starts another with what
//! was running.
//!
//! Whatever a child says is what a stranger may have it say. So each message is checked by [`crate::protocol`] and once
//! more against what is known here; nothing of it makes anything grow without bound; and a child that says what no
//! child says is ended, and told of as the cause.
//!
//! One thread reads what it says and watches it. Whoever has something to say to it says so from its own thread.

mod hearing;
mod link;
mod lookups;
mod watch;
mod watcher;

use crate::config::{Config, Isolation};
use crate::engine::{Asked, Disk, Ended, FromCold, Inbox, Reply, Start, ToCold};
use crate::events::Events;
use crate::part_file::PartFile;
use crate::protocol::{Place, Saved, Setup, ToChild};
use crate::target::Target;
use crate::threads::Threads;
use link::Link;
use lookups::Lookups;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidegate_confine::spawn::Program;
use tidegate_core::cookies::CookieJar;
use tidegate_core::message::{EventKind, Phase, Progress, Snapshot};
use tidegate_core::netrc::Netrc;
use tidegate_core::request::Destination;
use tidegate_core::{Code, DownloadId, Failure, Request};
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;
use watcher::Watcher;

/// Messages for a cold side that waits for its disk, at most; of those that only tell, fewer.
const MOST_BACKLOG: usize = 512;
const MOST_TOLD: usize = 64;

/// Hosts to which answers may lead, for each download and in all, before that is taken for something else.
const STRANGERS_EACH: usize = 32;
const STRANGERS: usize = 64;

/// Speaks with the engine's process, whichever that is at the moment.
pub(crate) struct Supervisor {
    state: Mutex<State>,
    /// Wakes the thread that watches.
    wake: OwnedFd,
    threads: Arc<Threads>,
    lookups: Lookups,
    netrc: Option<Netrc>,
    proxies: Vec<String>,
}

struct State {
    setup: Setup,
    cookies: CookieJar,
    /// The process that is told things; `None` between two.
    link: Option<Arc<Link>>,
    /// What this process said of its lock-down.
    isolation: Isolation,
    downloads: BTreeMap<DownloadId, Entry>,
    /// The highest number of a download that there ever was.
    newest: DownloadId,
    calls: BTreeMap<u64, Call>,
    next_call: u64,
    /// Hosts that this process was told of.
    met: BTreeSet<String>,
    strangers: usize,
    /// How many downloads it was given.
    given: usize,
    /// Why it was ended by us.
    ended_for: Option<&'static str>,
    ending: bool,
    /// There will be no process any more.
    over: Option<Failure>,
    started: Vec<SyncSender<Result<Isolation, Failure>>>,
}

/// A download, as far as another process must be told of it.
struct Entry {
    cold: Sender<ToCold>,
    backlog: VecDeque<ToCold>,
    paused: bool,
    /// It was told to go, and how.
    leaving: Option<Leaving>,
    limit: Option<Option<u64>>,
}

#[derive(Clone, Copy)]
enum Leaving {
    Stop,
    Cancel,
}

/// Who waits for an answer.
enum Call {
    Done(Reply<()>),
    Saved(oneshot::Sender<Saved>),
    Snapshot(Asked),
    Progress(Reply<Option<Progress>>),
    Cookies(Reply<CookieJar>),
    Ping,
}

impl Supervisor {
    /// Starts the first process, and waits until it is ready.
    ///
    /// # Errors
    /// When none becomes ready, or it lacks something of its isolation that is required.
    pub(crate) fn start(
        config: Config,
        program: Program,
        threads: &Arc<Threads>,
        events: &Arc<Events>,
    ) -> Result<(Arc<Self>, Isolation), Failure> {
        let failed = |error: io::Error| {
            Failure::new(Code::EngineUnavailable, format!("the engine's process cannot be watched: {error}"))
        };
        let wake =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|e| failed(e.into()))?;
        let proxies = config.network.proxies.hosts().map(comparable).collect();
        let setup = Setup {
            limits: config.limits,
            network: config.network,
            user_agent: config.user_agent,
            referer: config.referer,
            buffered: config.buffered,
            seed: config.seed,
        };
        let (ready, started) = std::sync::mpsc::sync_channel(1);
        let state = State {
            setup,
            cookies: config.cookies,
            link: None,
            isolation: Isolation::default(),
            downloads: BTreeMap::new(),
            newest: DownloadId(0),
            calls: BTreeMap::new(),
            next_call: 0,
            met: BTreeSet::new(),
            strangers: 0,
            given: 0,
            ended_for: None,
            ending: false,
            over: None,
            started: vec![ready],
        };
        let supervisor = Arc::new(Self {
            state: Mutex::new(state),
            wake,
            threads: Arc::clone(threads),
            lookups: Lookups::new(threads),
            netrc: config.netrc,
            proxies,
        });
        let (watches, events) = (Arc::clone(&supervisor), Arc::clone(events));
        let body = move || {
            let _closing = crate::handle::Closing(events);
            Watcher::new(watches, program).run();
        };
        threads.spawn("supervisor".to_owned(), body).map_err(failed)?;
        let isolation = started.recv().unwrap_or_else(|_| Err(unavailable()))?;
        Ok((supervisor, isolation))
    }

    pub(crate) fn threads(&self) -> &Arc<Threads> {
        &self.threads
    }

    /// The number of the process that is told things, if there is one.
    pub(crate) fn process(&self) -> Option<u32> {
        self.lock().link.as_ref().map(|link| link.id())
    }

    /// Passes on what the control thread is to be told.
    pub(crate) fn send(&self, message: Inbox) -> Result<(), Ended> {
        let mut state = self.lock();
        if state.over.is_some() {
            return Err(Ended);
        }
        match message {
            Inbox::Register { id, cold } => {
                state.newest = state.newest.max(id);
                state.given += 1;
                let entry =
                    Entry { cold, backlog: VecDeque::new(), paused: false, leaving: None, limit: None };
                state.downloads.insert(id, entry);
                tell(state, ToChild::Register { id });
            }
            Inbox::Start(start) => self.begin(state, *start),
            Inbox::Cold { id, turn, input } => self.answer(state, id, turn, input),
            Inbox::Pause { id, done } => {
                if let Some(entry) = state.downloads.get_mut(&id) {
                    entry.paused = true;
                }
                ask(state, Call::Done(done), |call| ToChild::Pause { id, call });
            }
            Inbox::Resume { id } => {
                if let Some(entry) = state.downloads.get_mut(&id) {
                    entry.paused = false;
                }
                tell(state, ToChild::Resume { id });
            }
            Inbox::Stop { id, done } => {
                leave(&mut state, id, Leaving::Stop);
                ask(state, Call::Done(done), |call| ToChild::Stop { id, call });
            }
            Inbox::Cancel { id } => {
                leave(&mut state, id, Leaving::Cancel);
                tell(state, ToChild::Cancel { id });
            }
            Inbox::SetLimits(limits) => {
                state.setup.limits = limits;
                tell(state, ToChild::SetLimits { limits });
            }
            Inbox::SetDownloadLimit { id, limit } => {
                if let Some(entry) = state.downloads.get_mut(&id) {
                    entry.limit = Some(limit);
                }
                tell(state, ToChild::SetDownloadLimit { id, limit });
            }
            Inbox::Snapshot(asked) => ask(state, Call::Snapshot(asked), |call| ToChild::Snapshot { call }),
            Inbox::Progress { id, reply } => match state.downloads.contains_key(&id) {
                true => ask(state, Call::Progress(reply), |call| ToChild::Progress { call, id }),
                false => reply.give(None),
            },
            Inbox::Cookies { reply } => ask(state, Call::Cookies(reply), |call| ToChild::Cookies { call }),
            Inbox::Shutdown => {
                state.ending = true;
                if state.link.is_none() {
                    // The next process would only be told to end.
                    for entry in state.downloads.values_mut() {
                        entry.push(ToCold::End);
                    }
                }
                tell(state, ToChild::Shutdown {});
                self.wake();
            }
            // Said in the process that has the control thread.
            Inbox::Report { .. } | Inbox::Introduced { .. } | Inbox::Ping { .. } => {}
        }
        Ok(())
    }

    /// See [`crate::engine::ToControl::save`].
    pub(crate) async fn save(&self, id: DownloadId, durable: bool) -> Saved {
        let (sender, answer) = oneshot::channel();
        ask(self.lock(), Call::Saved(sender), |call| ToChild::Save { id, call, durable });
        // If the process ends before, so does the sender.
        answer.await.unwrap_or(Saved::Gone)
    }

    /// Ends the process, which did what none does, and waits until it is gone.
    pub(crate) fn end_child(&self, why: &'static str) {
        let link = {
            let mut state = self.lock();
            state.ended_for.get_or_insert(why);
            state.link.clone()
        };
        if let Some(link) = link {
            link.kill_and_wait();
        }
    }

    fn begin(&self, state: MutexGuard<'_, State>, start: Start) {
        let Start { id, request, found, borrowed, target, disk, doubts } = start;
        if state.downloads.get(&id).is_none_or(|entry| entry.leaving.is_some()) {
            return;
        }
        let state = self.introduce(state, &request);
        let request = without_place(request);
        let (place, descriptors) = match (target, disk) {
            (Target::Pipe { pipe, called }, _) => {
                (Place::Stream { called: called.to_owned() }, pipe.try_clone().into_iter().collect())
            }
            (_, Disk::FileSystem(file_system)) => (Place::Later { file_system, doubts }, Vec::new()),
            _ => (Place::Nowhere, Vec::new()),
        };
        let message = ToChild::Start { id, request, found, borrowed, place };
        tell_with(state, &message, &descriptors);
    }

    /// What a cold side answers.
    fn answer(&self, mut state: MutexGuard<'_, State>, id: DownloadId, turn: u64, input: FromCold) {
        match input {
            FromCold::Prepared { target } => match lend(target) {
                Ok((place, descriptors)) => {
                    tell_with(state, &ToChild::Prepared { id, turn, place }, &descriptors);
                }
                Err(error) => give_up(state, id, &error),
            },
            FromCold::Verified { verified, target } => match lend(target) {
                Ok((place, descriptors)) => {
                    tell_with(state, &ToChild::Verified { id, turn, verified, place }, &descriptors);
                }
                Err(error) => give_up(state, id, &error),
            },
            FromCold::MachineReady => tell(state, ToChild::MachineReady { id, turn }),
            FromCold::Over => {
                if state.link.is_none()
                    && let Some(entry) = state.downloads.get_mut(&id)
                {
                    entry.push(ToCold::Freed);
                }
                tell(state, ToChild::Over { id });
            }
            FromCold::Gone => {
                state.downloads.remove(&id);
                if state.ending {
                    self.wake();
                }
                tell(state, ToChild::Gone { id });
            }
        }
    }

    /// Tells the process what the user keeps for the hosts of a request.
    fn introduce<'a>(&'a self, mut state: MutexGuard<'a, State>, request: &Request) -> MutexGuard<'a, State> {
        for mirror in request.mirrors() {
            let host = mirror.url().host_str().unwrap_or_default();
            if !state.met.contains(&comparable(host)) {
                let message = self.introduction(&mut state, host);
                let link = state.link.clone();
                drop(state);
                if let Some(link) = link {
                    link.send(&message, &[]);
                }
                state = self.lock();
            }
        }
        state
    }

    fn introduction(&self, state: &mut State, host: &str) -> ToChild {
        state.met.insert(comparable(host));
        let cookies = state.cookies.of_host(host);
        let netrc = self.netrc.as_ref().map(|netrc| netrc.of_host(host));
        ToChild::Introduced { host: host.to_owned(), cookies, netrc }
    }

    fn wake(&self) {
        // Fails only when it is awake already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the process something, if there is one. Whoever has the lock gives it away: the process may take its time to
/// hear it, and must be heard meanwhile.
fn tell(state: MutexGuard<'_, State>, message: ToChild) {
    tell_with(state, &message, &[]);
}

fn tell_with(state: MutexGuard<'_, State>, message: &ToChild, descriptors: &[OwnedFd]) {
    let link = state.link.clone();
    drop(state);
    if let Some(link) = link {
        let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        link.send(message, &borrowed);
    }
}

/// Asks the process something; without one the answer is what can be said without it.
fn ask(mut state: MutexGuard<'_, State>, call: Call, question: impl FnOnce(u64) -> ToChild) {
    if state.link.is_none() {
        call.answer_without(&mut state);
        return;
    }
    state.next_call += 1;
    let number = state.next_call;
    state.calls.insert(number, call);
    tell(state, question(number));
}

fn leave(state: &mut State, id: DownloadId, how: Leaving) {
    let between = state.link.is_none();
    if let Some(entry) = state.downloads.get_mut(&id)
        && entry.leaving.is_none()
    {
        entry.leaving = Some(how);
        if between {
            entry.push(how.told());
        }
    }
}

fn give_up(mut state: MutexGuard<'_, State>, id: DownloadId, error: &io::Error) {
    let message = format!("the part could not be handed to the engine's process: {error}; try again");
    if let Some(entry) = state.downloads.get_mut(&id) {
        let nothing = ToCold::Returned { doubts: 0, have: tidegate_core::SpanSet::new() };
        entry.push(nothing);
        entry.push(ToCold::GiveUp(Failure::new(Code::DiskError, message)));
    }
}

/// A part as it is handed to another process: what is known of it, and descriptors of its own.
fn lend(target: Option<Target>) -> io::Result<(Option<Place>, Vec<OwnedFd>)> {
    let Some(Target::Part { part, path }) = target else { return Ok((None, Vec::new())) };
    let (file, checkpoint) = part.disk().reopen()?;
    let state = PartFile::state(&part);
    let checkpoint = checkpoint.filter(|_| state.recorded);
    let called = path.to_string_lossy().into_owned();
    let place = Place::Part { called, file_system: part.file_system()?, part: state };
    Ok((Some(place), [Some(file), checkpoint].into_iter().flatten().map(File::into).collect()))
}

/// What is asked for, but for what the child is not to know: where it goes.
fn without_place(mut request: Request) -> Request {
    if let Destination::File { .. } = request.destination {
        request.destination = Destination::File { dir: PathBuf::new(), name: None, adopt: None };
    }
    request
}

/// A host as it is compared: in lower case, without brackets and the last dot.
fn comparable(host: impl AsRef<str>) -> String {
    let host = host.as_ref();
    host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase()
}

fn unavailable() -> Failure {
    Failure::new(Code::EngineUnavailable, "no engine's process is running, and none will be started")
}

impl Leaving {
    fn told(self) -> ToCold {
        match self {
            Self::Stop => ToCold::End,
            Self::Cancel => ToCold::Cancel,
        }
    }
}

impl Call {
    /// The answer of a process that is not there.
    fn answer_without(self, state: &mut State) {
        match self {
            // It is noted here, and the next process is told.
            Self::Done(done) => done.give(()),
            Self::Saved(saved) => drop(saved.send(Saved::Gone)),
            Self::Snapshot(mut asked) => {
                let downloads = state.downloads.keys().map(|id| waiting(*id)).collect();
                asked.snapshot = Snapshot { downloads, speed: 0 };
                asked.give();
            }
            Self::Progress(reply) => reply.give(None),
            Self::Cookies(reply) => reply.give(state.cookies.clone()),
            Self::Ping => {}
        }
    }
}

/// How far a download is while there is no process.
fn waiting(id: DownloadId) -> Progress {
    Progress { phase: Phase::Queued, ..Progress::new(id) }
}

impl Entry {
    /// Passes something on to the cold side, or keeps it until there is room. Tells whether there was.
    fn push(&mut self, message: ToCold) -> bool {
        let only_tells =
            matches!(message, ToCold::Tell(EventKind::Notice { .. } | EventKind::Waiting { .. }));
        if only_tells && self.backlog.len() >= MOST_TOLD {
            return true;
        }
        if self.backlog.len() >= MOST_BACKLOG {
            return false;
        }
        self.backlog.push_back(message);
        self.flush();
        true
    }

    fn flush(&mut self) {
        while let Some(message) = self.backlog.pop_front() {
            match self.cold.try_send(message) {
                Ok(()) => {}
                Err(TrySendError::Full(message)) => {
                    self.backlog.push_front(message);
                    return;
                }
                Err(TrySendError::Closed(_)) => self.backlog.clear(),
            }
        }
    }
}
