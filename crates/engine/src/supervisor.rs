//! The parent's side of the engine's process: starts it, speaks with it, notices its end, and starts another with what
//! was running.
//!
//! Whatever a child says is what a stranger may have it say. So each message is checked by [`crate::protocol`] and once
//! more against what is known here; nothing of it makes anything grow without bound; and a child that says what no
//! child says is ended, and told of as the cause.
//!
//! One thread reads what it says and watches it. Whoever has something to say to it says so from its own thread, with
//! the state in hand, so that what is said is in the order of what it is about; nobody waits until it is heard
//! ([`link`]).

mod hearing;
mod link;
mod lookups;
mod overdue;
mod watch;
mod watcher;

use crate::config::{Config, Isolation};
use crate::engine::{
    Asked, ColdSide, Disk, Ended, FromCold, Inbox, Reply, Start, ToCold, is_ended_by_a_pause,
};
use crate::events::Events;
use crate::part_file::PartFile;
use crate::protocol::{Place, Saved, Setup, ToChild};
use crate::target::Target;
use crate::threads::Threads;
use link::Link;
use lookups::Lookups;
use overdue::Debt;
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
use tidegate_core::request::{Destination, NamedBy};
use tidegate_core::{Code, DownloadId, Failure, Request, SpanSet};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use watcher::Watcher;

/// Messages for a cold side that waits for its disk, at most; of those that only tell, fewer.
const MOST_BACKLOG: usize = 512;
const MOST_TOLD: usize = 64;

/// Bytes that all such messages had on their way here, at most.
const MOST_BACKLOG_BYTES: usize = 32 << 20;

/// To how many hosts that answers lead to a process may be introduced: so many more for each download that it is
/// given, and never more than so many at a time.
const STRANGERS_EACH: usize = 32;
const MOST_STRANGERS: usize = 256;

/// Speaks with the engine's process, whichever that is at the moment.
pub(crate) struct Supervisor {
    state: Mutex<State>,
    /// Wakes the thread that watches.
    wake: Arc<OwnedFd>,
    threads: Arc<Threads>,
    lookups: Lookups,
    netrc: Option<Netrc>,
    proxies: Vec<String>,
    /// Held by the one download at a time that runs though it may be what ends the process.
    suspects: Arc<Semaphore>,
}

struct State {
    setup: Setup,
    cookies: CookieJar,
    /// The process that is told things; `None` between two.
    link: Option<Arc<Link>>,
    downloads: BTreeMap<DownloadId, Entry>,
    /// The highest number of a download that there ever was.
    newest: DownloadId,
    calls: BTreeMap<u64, Asking>,
    next_call: u64,
    /// The number of the question whether it is alive, while that is not answered. It cannot be guessed.
    ping: Option<u64>,
    /// Hosts that this process was told of.
    met: BTreeSet<String>,
    /// To how many more it may be introduced because it says that an answer leads there.
    strangers_left: usize,
    /// It has answered since that was looked at last.
    alive: bool,
    ending: bool,
    /// A process that lacks a layer of its isolation is none.
    whole: bool,
    /// There will be no process any more.
    over: Option<Failure>,
    /// Who waits for the first process.
    started: Option<SyncSender<Result<Isolation, Failure>>>,
}

/// A download, as far as another process must be told of it.
struct Entry {
    cold: Box<dyn ColdSide>,
    backlog: VecDeque<(ToCold, usize)>,
    paused: bool,
    /// The process that is told things was told to pause it.
    was_paused: bool,
    /// It was told to go, and how.
    leaving: Option<Leaving>,
    /// What the process owes of it.
    debt: Debt,
    limit: Option<Option<u64>>,
    /// What begins it, with its descriptor, until there is a process to be told.
    begins: Option<(ToChild, Option<Arc<OwnedFd>>)>,
    /// Whether the process that is told things has asked its cold side anything: what answers nothing that this one
    /// asked is not told to it.
    was_asked: bool,
    /// The process that its part was lent to last.
    lent_to: Option<Arc<Link>>,
    /// The process is ended for what it did with the part of this one.
    is_accused: bool,
    /// How far it was when that was told last.
    last: Option<Progress>,
}

/// A question to the process.
struct Asking {
    call: Call,
    /// How often it was seen to be open.
    looks: u32,
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
    Progress(DownloadId, Reply<Option<Progress>>),
    Cookies(Reply<CookieJar>),
}

impl Supervisor {
    /// Starts the first process, and waits until it is ready.
    ///
    /// # Errors
    /// When none becomes ready, or it lacks something of its isolation that is required.
    pub(crate) fn start(
        config: Config,
        program: Program,
        whole: bool,
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
            downloads: BTreeMap::new(),
            newest: DownloadId(0),
            calls: BTreeMap::new(),
            next_call: 0,
            met: BTreeSet::new(),
            strangers_left: 0,
            alive: false,
            ping: None,
            ending: false,
            whole,
            over: None,
            started: Some(ready),
        };
        let supervisor = Arc::new(Self {
            state: Mutex::new(state),
            wake: Arc::new(wake),
            threads: Arc::clone(threads),
            lookups: Lookups::default(),
            netrc: config.netrc,
            proxies,
            suspects: Arc::new(Semaphore::new(1)),
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
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.over.is_some() && !matches!(message, Inbox::Cold { .. }) {
            return Err(Ended);
        }
        match message {
            Inbox::Register { id, cold } => {
                state.newest = state.newest.max(id);
                state.strangers_left = (state.strangers_left + STRANGERS_EACH).min(MOST_STRANGERS);
                if state.downloads.is_empty() {
                    // From now on somebody would miss the process.
                    self.wake();
                }
                state.downloads.insert(id, Entry::new(cold));
                state.tell(&ToChild::Register { id });
            }
            Inbox::Start(start) => self.begin(state, *start),
            Inbox::Cold { id, turn, input } => self.answer(state, id, turn, input),
            Inbox::Pause { id, done } => {
                if let Some(entry) = state.downloads.get_mut(&id) {
                    (entry.paused, entry.was_paused) = (true, true);
                }
                state.ask(Call::Done(done), |call| ToChild::Pause { id, call });
            }
            Inbox::Resume { id } => {
                if let Some(entry) = state.downloads.get_mut(&id) {
                    entry.paused = false;
                }
                state.tell(&ToChild::Resume { id });
            }
            Inbox::Stop { id, done } => {
                state.leave(id, Leaving::Stop);
                state.ask(Call::Done(done), |call| ToChild::Stop { id, call });
            }
            Inbox::Cancel { id } => {
                state.leave(id, Leaving::Cancel);
                state.tell(&ToChild::Cancel { id });
            }
            Inbox::SetLimits(limits) => {
                state.setup.limits = limits;
                state.tell(&ToChild::SetLimits { limits });
            }
            Inbox::SetDownloadLimit { id, limit } => {
                if let Some(entry) = state.downloads.get_mut(&id) {
                    entry.limit = Some(limit);
                }
                state.tell(&ToChild::SetDownloadLimit { id, limit });
            }
            Inbox::Snapshot(asked) => state.ask(Call::Snapshot(asked), |call| ToChild::Snapshot { call }),
            Inbox::Progress { id, reply } => match state.downloads.contains_key(&id) {
                true => state.ask(Call::Progress(id, reply), |call| ToChild::Progress { call, id }),
                false => reply.give(None),
            },
            Inbox::TellTime { id } => state.tell(&ToChild::TellTime { id }),
            Inbox::Cookies { reply } => state.ask(Call::Cookies(reply), |call| ToChild::Cookies { call }),
            Inbox::Shutdown => {
                state.ending = true;
                if state.link.is_none() {
                    // The next process would only be told to end.
                    for entry in state.downloads.values_mut() {
                        entry.push(ToCold::End, 0);
                    }
                }
                state.tell(&ToChild::Shutdown {});
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
        self.lock().ask(Call::Saved(sender), |call| ToChild::Save { id, call, durable });
        // If the process ends before, so does the sender.
        answer.await.unwrap_or(Saved::Gone)
    }

    /// Ends the process that has or had the part of a download, for this reason, and waits until it is gone.
    pub(crate) fn end_child(&self, id: DownloadId, why: &'static str) -> bool {
        let link = self.lock().downloads.get_mut(&id).and_then(|entry| {
            entry.is_accused = true;
            entry.lent_to.clone()
        });
        link.is_some_and(|link| {
            link.end(why);
            link.wait_until_gone(None)
        })
    }

    /// Waits until no other download runs that may be what ends the process.
    pub(crate) async fn suspect(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        Arc::clone(&self.suspects).acquire_owned().await.ok()
    }

    fn begin(&self, state: &mut State, start: Start) {
        let Start { id, request, found, borrowed, target, disk, doubts } = start;
        for mirror in request.mirrors() {
            let host = mirror.url().host_str().unwrap_or_default();
            if !state.met.contains(&comparable(host)) {
                let introduction = self.introduction(state, host, mirror.named_by());
                state.tell(&introduction);
            }
        }
        let Some(entry) = state.downloads.get(&id).filter(|entry| entry.leaving.is_none()) else { return };
        let mut request = without_place(request);
        if let Some(limit) = entry.limit {
            // What was said of it since holds.
            request.options.limit = limit;
        }
        let (place, pipe) = match (target, disk) {
            (Target::Pipe { pipe, called }, _) => (Place::Stream { called: called.to_owned() }, Some(pipe)),
            (_, Disk::FileSystem(file_system)) => (Place::Later { file_system, doubts }, None),
            _ => (Place::Nowhere, None),
        };
        state.begin(id, ToChild::Start { id, request, found, borrowed, place }, pipe);
    }

    /// What a cold side answers.
    fn answer(&self, state: &mut State, id: DownloadId, turn: u64, input: FromCold) {
        let link = state.link.clone();
        let Some(entry) = state.downloads.get_mut(&id) else { return };
        if !entry.was_asked && !matches!(input, FromCold::Over | FromCold::Gone) {
            // The process that had asked is gone, and what was lent with this never left.
            if matches!(
                input,
                FromCold::Prepared { target: Some(_) } | FromCold::Verified { target: Some(_), .. }
            ) {
                entry.push(ToCold::Returned { doubts: 0, have: SpanSet::new() }, 0);
            }
            return;
        }
        match input {
            FromCold::Prepared { target } => match lend(target) {
                Ok((place, descriptors)) => {
                    entry.lends(link, place.is_some());
                    state.tell_with(&ToChild::Prepared { id, turn, place }, &borrowed(&descriptors));
                }
                Err(error) => give_up(entry, &error),
            },
            FromCold::Verified { verified, target } => match lend(target) {
                Ok((place, descriptors)) => {
                    entry.lends(link, place.is_some());
                    let message = ToChild::Verified { id, turn, verified, place };
                    state.tell_with(&message, &borrowed(&descriptors));
                }
                Err(error) => give_up(entry, &error),
            },
            FromCold::MachineReady => state.tell(&ToChild::MachineReady { id, turn }),
            FromCold::Over => {
                entry.debt.over();
                if link.is_none() {
                    entry.debt.freed();
                    entry.push(ToCold::Freed, 0);
                }
                state.tell(&ToChild::Over { id });
            }
            FromCold::Gone => {
                state.downloads.remove(&id);
                if state.downloads.is_empty() {
                    self.wake();
                }
                state.tell(&ToChild::Gone { id });
            }
        }
    }

    /// What the user keeps for a host: for one that the user named all of it, for another only what stands under its
    /// very name.
    fn introduction(&self, state: &mut State, host: &str, by: NamedBy) -> ToChild {
        // What it was told for another host it may have changed since.
        let cookies = state.cookies.of_host(host, state.met.iter().map(String::as_str));
        state.met.insert(comparable(host));
        let netrc = self.netrc.as_ref().map(|netrc| match by {
            NamedBy::User => netrc.of_host(host),
            NamedBy::Document => netrc.of_very_host(host),
        });
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

impl State {
    /// Tells the process something, if there is one.
    fn tell(&self, message: &ToChild) {
        self.tell_with(message, &[]);
    }

    fn tell_with(&self, message: &ToChild, descriptors: &[BorrowedFd<'_>]) {
        if let Some(link) = &self.link {
            link.send(message, descriptors);
        }
    }

    /// Tells the process to begin with a download; without one, the next is told.
    fn begin(&mut self, id: DownloadId, message: ToChild, pipe: Option<Arc<OwnedFd>>) {
        let between = self.link.is_none();
        let Some(entry) = self.downloads.get_mut(&id) else { return };
        if between {
            entry.begins = Some((message, pipe));
        } else {
            let descriptors: Vec<BorrowedFd<'_>> = pipe.iter().map(|pipe| pipe.as_fd()).collect();
            self.tell_with(&message, &descriptors);
        }
    }

    /// Asks the process something; without one the answer is what can be said without it.
    fn ask(&mut self, call: Call, question: impl FnOnce(u64) -> ToChild) {
        if self.link.is_none() {
            call.answer_without(self);
            return;
        }
        self.next_call += 1;
        self.calls.insert(self.next_call, Asking { call, looks: 0 });
        self.tell(&question(self.next_call));
    }

    /// Bytes that all that waits for cold sides had on its way here.
    fn backlog_bytes(&self) -> usize {
        self.downloads.values().flat_map(|entry| &entry.backlog).map(|(_, size)| size).sum()
    }

    fn leave(&mut self, id: DownloadId, how: Leaving) {
        let between = self.link.is_none();
        if let Some(entry) = self.downloads.get_mut(&id)
            && entry.leaving.is_none()
        {
            entry.leaving = Some(how);
            entry.begins = None;
            if between {
                entry.goes(how);
            }
        }
    }
}

fn borrowed(descriptors: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    descriptors.iter().map(AsFd::as_fd).collect()
}

fn give_up(entry: &mut Entry, error: &io::Error) {
    let message = format!("the part could not be handed to the engine's process: {error}; try again");
    entry.push(ToCold::Returned { doubts: 0, have: SpanSet::new() }, 0);
    entry.push(ToCold::GiveUp(Failure::new(Code::DiskError, message)), 0);
}

/// A part as it is handed to another process: what is known of it, and descriptors of its own.
fn lend(target: Option<Target>) -> io::Result<(Option<Place>, Vec<OwnedFd>)> {
    let Some(Target::Part { part, path, only_to_read }) = target else { return Ok((None, Vec::new())) };
    let (file, checkpoint) = part.disk().reopen(only_to_read)?;
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
                let downloads = state.downloads.iter().map(|(id, entry)| entry.between(*id)).collect();
                asked.snapshot = Snapshot { downloads, speed: 0 };
                asked.give();
            }
            Self::Progress(id, reply) => {
                reply.give(state.downloads.get(&id).map(|entry| entry.between(id)));
            }
            Self::Cookies(reply) => reply.give(state.cookies.clone()),
        }
    }
}

impl Entry {
    fn new(cold: Box<dyn ColdSide>) -> Self {
        Self {
            cold,
            backlog: VecDeque::new(),
            paused: false,
            was_paused: false,
            leaving: None,
            debt: Debt::default(),
            limit: None,
            begins: None,
            was_asked: false,
            lent_to: None,
            is_accused: false,
            last: None,
        }
    }

    /// How far it is while there is no process: as far as it was, and nothing moves.
    fn between(&self, id: DownloadId) -> Progress {
        let last = self.last.clone().unwrap_or_else(|| Progress::new(id));
        let phase = if self.paused { Phase::Paused } else { Phase::Queued };
        Progress { phase, speed: 0, left: None, connections: 0, segments: Vec::new(), ..last }
    }

    /// It was answered, and its part was lent with that to this process, if it was.
    fn lends(&mut self, link: Option<Arc<Link>>, lends: bool) {
        self.lent_to = link;
        if lends {
            self.debt.lent();
        }
    }

    /// The process that was told of it is no more.
    fn is_without_process(&mut self) {
        (self.was_asked, self.was_paused, self.debt) = (false, false, Debt::default());
        self.backlog.clear();
    }

    /// Tells the cold side that it is to go, which no process needs to do.
    fn goes(&mut self, how: Leaving) {
        self.debt.says_goodbye();
        self.push(how.told(), 0);
    }

    /// Passes something on to the cold side, or keeps it until there is room. `size` is how many bytes it had on its
    /// way here. Tells whether there was room.
    fn push(&mut self, message: ToCold, size: usize) -> bool {
        let only_tells =
            matches!(message, ToCold::Tell(EventKind::Notice { .. } | EventKind::Waiting { .. }));
        if only_tells && self.backlog.len() >= MOST_TOLD {
            return true;
        }
        if matches!(message, ToCold::Paused) {
            self.backlog.retain(|(message, _)| !is_ended_by_a_pause(message));
        }
        if self.backlog.len() >= MOST_BACKLOG {
            return false;
        }
        self.backlog.push_back((message, size));
        self.flush();
        true
    }

    fn flush(&mut self) {
        while let Some((message, size)) = self.backlog.pop_front() {
            match self.cold.try_send(message) {
                Ok(()) => {}
                Err(TrySendError::Full(message)) => {
                    self.backlog.push_front((message, size));
                    return;
                }
                Err(TrySendError::Closed(_)) => self.backlog.clear(),
            }
        }
    }
}
