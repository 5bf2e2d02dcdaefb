//! The thread that reads what the processes say, and starts and ends them.

use super::link::Link;
use super::overdue::{LOOK_EVERY, Overdue, waits_for_disk};
use super::watch::{Act, Watch};
use super::{MOST_STRANGERS, STRANGERS_EACH, State, Supervisor, unavailable};
use crate::config::Isolation;
use crate::engine::ToCold;
use crate::protocol::{FromChild, KindOf, ToChild, VERSION};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_confine::spawn::Program;
use tidegate_core::frame::Decoder;
use tidegate_core::{Code, DownloadId, Failure, Remedy};

/// How often a backlog is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// How long the first process has been running when a spare is started: a program that is done by then needs none.
const SPARE_AFTER: Duration = Duration::from_millis(500);

/// How long a process that was killed may take to be gone before the next is started. One of which a thread waits for
/// a disk may take as long as that.
const TO_GO: Duration = Duration::from_secs(1);

/// How long a process may take to end after everything was saved.
const TO_END: Duration = Duration::from_secs(10);

/// The thread's state.
pub(super) struct Watcher {
    supervisor: Arc<Supervisor>,
    program: Program,
    watch: Watch,
    current: Option<Reader>,
    spare: Option<Reader>,
    spare_at: Option<Instant>,
    /// When a process that is to end is not waited for any more.
    ends_at: Option<Instant>,
    /// The process is ended for not answering.
    hangs: bool,
    /// When it was found that the process is to end, which it has not.
    doomed: Option<Instant>,
    /// When what it owes is looked at next.
    look_at: Instant,
    buffer: Box<[u8]>,
}

/// A process that is read from.
pub(super) struct Reader {
    pub(super) link: Arc<Link>,
    decoder: Decoder,
    /// What it has said of its lock-down, once it is ready.
    pub(super) ready: Option<Isolation>,
}

/// What a process did that none does.
pub(super) struct Violation(pub(super) String);

impl Watcher {
    pub(super) fn new(supervisor: Arc<Supervisor>, program: Program) -> Self {
        Self {
            supervisor,
            program,
            watch: Watch::new(Instant::now()),
            current: None,
            spare: None,
            spare_at: None,
            ends_at: None,
            hangs: false,
            doomed: None,
            look_at: Instant::now(),
            buffer: vec![0; 64 << 10].into_boxed_slice(),
        }
    }

    pub(super) fn run(mut self) {
        loop {
            let now = Instant::now();
            let (ending, used, backlog) = self.flush();
            if ending && !used && self.has_wound_up(now) {
                return self.close();
            }
            let mut until = match self.watch.look(used, now) {
                Act::Wait(until) => until,
                // What is left to do is done here.
                Act::Start | Act::GiveUp if ending => None,
                Act::Start => {
                    self.begin(now);
                    continue;
                }
                Act::Ping => {
                    if let Some(reader) = &self.current {
                        let ping = &mut self.supervisor.lock().ping;
                        let call = *ping.get_or_insert_with(|| RandomState::new().hash_one(0));
                        reader.link.send(&ToChild::Ping { call }, &[]);
                    }
                    continue;
                }
                Act::Kill => {
                    // Its end is noticed as every other.
                    self.hangs = true;
                    self.current.iter().for_each(|reader| reader.link.kill());
                    self.doomed.get_or_insert(now);
                    Some(now + TO_GO)
                }
                Act::GiveUp => {
                    self.give_up();
                    continue;
                }
            };
            self.keep_a_spare(now);
            if self.has_gone_without_a_word(now) {
                continue;
            }
            let gone_by = self.doomed.map(|doomed| doomed + TO_GO);
            let look_at = self.look_for_overdue(now);
            let times = [self.spare_at, self.ends_at, gone_by, look_at, backlog.then(|| now + TRY_AGAIN)];
            until = times.into_iter().chain([until]).flatten().min();
            self.wait_and_read(until);
        }
    }

    /// One that was killed and is not gone, since a disk holds one of its threads: it does nothing more, and the next
    /// takes its place. Tells whether it was so.
    fn has_gone_without_a_word(&mut self, now: Instant) -> bool {
        let Some(current) = &self.current else { return false };
        if current.link.ended_for().is_some() {
            self.doomed.get_or_insert(now);
        }
        if self.doomed.is_none_or(|doomed| now < doomed + TO_GO) {
            return false;
        }
        if let Some(current) = self.current.take() {
            self.has_ended(&current, None);
        }
        true
    }

    /// Ends a process that owes something for too long. Tells when to look again.
    fn look_for_overdue(&mut self, now: Instant) -> Option<Instant> {
        let current = self.current.as_ref()?;
        let mut state = self.supervisor.lock();
        if !state.is_owed_anything() {
            return None;
        }
        if now >= self.look_at {
            self.look_at = now + LOOK_EVERY;
            let process = current.link.id();
            match state.look_for_overdue(|| waits_for_disk(process)) {
                Overdue::Nothing => {}
                Overdue::ForADisk => current.link.end("it did not give back what it was lent"),
                Overdue::ForNothing => current.link.end("it did not answer a question"),
            }
        }
        Some(self.look_at)
    }

    /// Everything was saved: the process is told to end. Tells whether it has.
    fn has_wound_up(&mut self, now: Instant) -> bool {
        let Some(current) = &self.current else { return true };
        match self.ends_at {
            None => {
                self.ends_at = Some(now + TO_END);
                current.link.hang_up();
                false
            }
            Some(at) => now >= at,
        }
    }

    /// Nothing more is said. Processes that are left end with their links.
    fn close(self) {
        let mut state = self.supervisor.lock();
        state.link = None;
        state.over.get_or_insert_with(|| Failure::new(Code::EngineUnavailable, "the engine has ended"));
        answer_all(&mut state);
        drop(state);
        self.supervisor.lookups.close();
    }

    /// There will be no other process: each download comes to its end, and then the engine does.
    fn give_up(&mut self) {
        let mut state = self.supervisor.lock();
        let failure = state.over.get_or_insert_with(unavailable).clone();
        state.ending = true;
        answer_all(&mut state);
        for entry in state.downloads.values_mut() {
            entry.push(ToCold::GiveUp(failure.clone()), 0);
        }
        if let Some(started) = state.started.take() {
            // Nobody may wait any more.
            let _ = started.try_send(Err(failure));
        }
    }

    /// Tells cold sides what there was no room for. Says whether the engine is to end, whether there are any downloads,
    /// and whether anything is left to tell.
    fn flush(&self) -> (bool, bool, bool) {
        let mut state = self.supervisor.lock();
        let (ending, used) = (state.ending, !state.downloads.is_empty());
        let mut left = false;
        for entry in state.downloads.values_mut() {
            entry.flush();
            left |= !entry.backlog.is_empty();
        }
        (ending, used, left)
    }

    /// Takes the spare, or starts a process.
    fn begin(&mut self, now: Instant) {
        self.watch.started(now);
        match self.spare.take() {
            Some(spare) => {
                self.current = Some(spare);
                self.if_ready(now);
            }
            None => match Link::start(&self.program, &self.supervisor.wake) {
                Ok(link) => self.current = Some(Reader::new(link)),
                Err(error) => {
                    let message = format!("the engine's process cannot be started: {error}");
                    self.first_failed(Failure::new(Code::EngineUnavailable, message));
                    self.watch.ended(false, now);
                }
            },
        }
    }

    /// The first process was to show that there can be one.
    fn first_failed(&self, failure: Failure) {
        let mut state = self.supervisor.lock();
        if let Some(started) = state.started.take() {
            // Nobody may wait any more.
            let _ = started.try_send(Err(failure));
            state.ending = true;
        }
    }

    /// The current process has said that it is ready: it is told how to be, and what was running.
    fn if_ready(&mut self, now: Instant) {
        let Some(Reader { link, ready: Some(isolation), .. }) = &self.current else { return };
        let mut state = self.supervisor.lock();
        if state.whole && !isolation.missing.is_empty() {
            let why = format!(
                "the engine's process cannot be isolated as required, this system lacks: {}; see tidegate doctor",
                isolation.missing.join(", ")
            );
            state.over.get_or_insert_with(|| Failure::new(Code::EngineUnavailable, why));
            drop(state);
            link.end("it is not isolated as required");
            return self.give_up();
        }
        state.met.clear();
        state.strangers_left = (STRANGERS_EACH * (1 + state.downloads.len())).min(MOST_STRANGERS);
        link.send(&ToChild::Hello { version: VERSION, setup: state.setup.clone() }, &[]);
        for (id, entry) in &mut state.downloads {
            link.send(&ToChild::Register { id: *id }, &[]);
            if let Some(limit) = entry.limit {
                link.send(&ToChild::SetDownloadLimit { id: *id, limit }, &[]);
            }
            if entry.paused {
                entry.was_paused = true;
                // Nobody waits for the answer.
                link.send(&ToChild::Pause { id: *id, call: 0 }, &[]);
            }
        }
        // What was to begin while there was no process; each after what the user keeps for its hosts.
        let ids: Vec<DownloadId> = state.downloads.keys().copied().collect();
        for id in ids {
            let Some((begins, pipe)) = state.downloads.get_mut(&id).and_then(|entry| entry.begins.take())
            else {
                continue;
            };
            if let ToChild::Start { request, .. } = &begins {
                for mirror in request.mirrors() {
                    let host = mirror.url().host_str().unwrap_or_default();
                    let introduction = self.supervisor.introduction(&mut state, host, mirror.named_by());
                    link.send(&introduction, &[]);
                }
            }
            let descriptors: Vec<BorrowedFd<'_>> = pipe.iter().map(|pipe| pipe.as_fd()).collect();
            link.send(&begins, &descriptors);
        }
        if state.ending {
            link.send(&ToChild::Shutdown {}, &[]);
        }
        state.link = Some(Arc::clone(link));
        if let Some(started) = state.started.take() {
            // Nobody may wait any more.
            let _ = started.try_send(Ok(isolation.clone()));
        }
        drop(state);
        self.watch.ready(now);
        self.spare_at = Some(now + SPARE_AFTER);
    }

    fn keep_a_spare(&mut self, now: Instant) {
        if self.spare_at.is_some_and(|at| now >= at) {
            self.spare_at = None;
            let wanted = {
                let state = self.supervisor.lock();
                state.link.is_some() && !state.ending
            };
            if wanted && self.spare.is_none() {
                // Without one the next is only started later.
                self.spare = Link::start(&self.program, &self.supervisor.wake).ok().map(Reader::new);
            }
        }
    }

    fn wait_and_read(&mut self, until: Option<Instant>) {
        let timeout = until.map(|until| {
            let left = until.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        let wake = Arc::clone(&self.supervisor);
        let links: Vec<Arc<Link>> = [&self.current, &self.spare]
            .into_iter()
            .flatten()
            .map(|reader| Arc::clone(&reader.link))
            .collect();
        let mut fds = vec![PollFd::from_borrowed_fd(wake.wake.as_fd(), PollFlags::IN)];
        fds.extend(links.iter().map(|link| {
            let more = if link.has_more() { PollFlags::OUT } else { PollFlags::empty() };
            PollFd::from_borrowed_fd(link.socket(), PollFlags::IN | more)
        }));
        // Interrupted or not: what there is, is read.
        let _ = poll(&mut fds, timeout.as_ref());
        let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        if !ready[0].is_empty() {
            let _ = rustix::io::read(&wake.wake, &mut [0; 8]);
        }
        let has_current = self.current.is_some();
        for (index, (link, ready)) in links.iter().zip(&ready[1..]).enumerate() {
            if ready.contains(PollFlags::OUT) {
                link.flush();
            }
            if ready.difference(PollFlags::OUT).is_empty() {
                continue;
            }
            if index == 0 && has_current { self.read_current() } else { self.read_spare() }
        }
    }

    fn read_current(&mut self) {
        let Some(mut reader) = self.current.take() else { return };
        reader.link.listen();
        let hear = |reader: &mut Reader, message, size| self.supervisor.hear(reader, message, size);
        match reader.read(&mut self.buffer, hear) {
            Ok(true) => {
                let was_ready = self.supervisor.lock().link.is_some();
                self.current = Some(reader);
                let now = Instant::now();
                if !was_ready {
                    self.if_ready(now);
                } else if self.supervisor.has_answered() {
                    self.watch.answered(now);
                }
            }
            Ok(false) => self.has_ended(&reader, None),
            Err(violation) => {
                reader.link.kill();
                self.has_ended(&reader, Some(violation));
            }
        }
    }

    /// A spare says only that it is ready.
    fn read_spare(&mut self) {
        let Some(mut spare) = self.spare.take() else { return };
        spare.link.listen();
        let ready = |reader: &mut Reader, message: FromChild, _| match message {
            FromChild::Ready { version: VERSION, layers, missing } if reader.ready.is_none() => {
                reader.ready = Some(Isolation { layers, missing });
                Ok(())
            }
            message => Err(Violation(format!("a spare said {}", message.kind().name))),
        };
        // One that has ended or said anything else is gone; it is tried again when it is needed.
        if let Ok(true) = spare.read(&mut self.buffer, ready) {
            self.spare = Some(spare);
        }
    }

    /// The process is no more: whoever waited for it hears of it, and goes on with the next.
    fn has_ended(&mut self, reader: &Reader, violation: Option<Violation>) {
        // It may have closed its socket only. One that a disk holds may take long to go, and is not waited for by
        // everybody: only by those whose parts it has.
        reader.link.kill();
        let to_go = Timespec { tv_sec: 1, tv_nsec: 0 };
        reader.link.wait_until_gone(Some(if self.doomed.take().is_some() {
            Timespec::default()
        } else {
            to_go
        }));
        self.supervisor.lookups.forget();
        let exit = reader.link.exit();
        let now = Instant::now();
        let code = if violation.is_some() { Code::EngineProtocol } else { Code::EngineCrash };
        let by_us = reader.link.ended_for();
        let how = match (violation, by_us, std::mem::take(&mut self.hangs), exit) {
            (Some(Violation(why)), ..) => format!("said what none says ({why})"),
            (None, Some(why), ..) => format!("was ended: {why}"),
            (None, None, true, _) => "was ended: it did not answer".to_owned(),
            (None, None, false, Ok(Some(exit))) => exit.to_string(),
            (None, None, false, Ok(None)) => "closed its socket and has not ended".to_owned(),
            (None, None, false, Err(error)) => format!("ended ({error})"),
        };
        let words = reader.link.last_words();
        let words = if words.is_empty() { String::new() } else { format!(": {words}") };
        let failure = Failure::new(code, format!("the engine's process {how}{words}"))
            .with_remedy(Remedy::Retry { after: None });
        let mut state = self.supervisor.lock();
        let was_ready = state.link.take().is_some();
        (state.ping, state.alive) = (None, false);
        answer_all(&mut state);
        let ending = state.ending;
        // Of one that was never ready no download knows anything.
        for entry in state.downloads.values_mut().filter(|_| was_ready) {
            let suspicious = std::mem::take(&mut entry.is_accused) || (by_us.is_none() && !entry.paused);
            entry.is_without_process();
            entry.push(ToCold::Crashed { failure: failure.clone(), suspicious }, 0);
            if ending {
                entry.push(ToCold::End, 0);
            } else if let Some(leaving) = entry.leaving {
                entry.goes(leaving);
            }
        }
        drop(state);
        if !was_ready {
            self.first_failed(Failure { code: Code::EngineUnavailable, ..failure });
        }
        self.spare_at = None;
        self.watch.ended(by_us.is_some(), now);
    }
}

/// Answers everybody who waits for an answer of a process that is no more.
fn answer_all(state: &mut State) {
    let calls = std::mem::take(&mut state.calls);
    calls.into_values().for_each(|asking| asking.call.answer_without(state));
}

impl Reader {
    fn new(link: Link) -> Self {
        Self { link: Arc::new(link), decoder: FromChild::decoder(), ready: None }
    }

    /// Hands on what there is to read; `Ok(false)` when there will be nothing more.
    fn read(
        &mut self,
        buffer: &mut [u8],
        mut hear: impl FnMut(&mut Self, FromChild, usize) -> Result<(), Violation>,
    ) -> Result<bool, Violation> {
        let count = match self.link.read(buffer) {
            Ok(0) => return Ok(false),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(_) => return Ok(false),
        };
        self.decoder.feed(&buffer[..count]);
        loop {
            let (message, size) = match self.decoder.message() {
                Ok(None) => return Ok(true),
                Ok(Some(message)) => (FromChild::decode(message.kind, message.body), message.body.len()),
                Err(error) => return Err(Violation(error.to_string())),
            };
            hear(self, message.map_err(|error| Violation(error.to_string()))?, size)?;
        }
    }
}
