//! The thread that reads what the processes say, and starts and ends them.

use super::link::Link;
use super::watch::{Act, Watch};
use super::{Call, Supervisor, unavailable};
use crate::config::Isolation;
use crate::engine::ToCold;
use crate::protocol::{FromChild, KindOf, ToChild, VERSION};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_confine::spawn::Program;
use tidegate_core::frame::Decoder;
use tidegate_core::{Code, Failure, Remedy};

/// How often a backlog is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// How long the first process has been running when a spare is started: a program that is done by then needs none.
const SPARE_AFTER: Duration = Duration::from_millis(500);

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
            buffer: vec![0; 64 << 10].into_boxed_slice(),
        }
    }

    pub(super) fn run(mut self) {
        loop {
            let now = Instant::now();
            if self.is_done(now) {
                return self.close();
            }
            let (used, backlog) = self.flush();
            let mut until = match self.watch.look(used, now) {
                Act::Wait(until) => until,
                Act::Start => {
                    self.begin(now);
                    continue;
                }
                Act::Ping => {
                    self.ping();
                    continue;
                }
                Act::Kill => {
                    self.supervisor.lock().ended_for.get_or_insert("it did not answer for 5 seconds");
                    self.current.iter().for_each(|reader| reader.link.kill());
                    // Its end is noticed as every other.
                    Some(now + Duration::from_millis(100))
                }
                Act::GiveUp => return self.give_up(),
            };
            self.keep_a_spare(now);
            let times = [self.spare_at, self.ends_at, backlog.then(|| now + TRY_AGAIN)];
            until = times.into_iter().chain([until]).flatten().min();
            self.wait_and_read(until);
        }
    }

    /// Whether everything was saved and the process has ended.
    fn is_done(&mut self, now: Instant) -> bool {
        let done = {
            let state = self.supervisor.lock();
            state.ending && state.downloads.is_empty()
        };
        if !done {
            return false;
        }
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
        state.over = Some(Failure::new(Code::EngineUnavailable, "the engine has ended"));
        let calls = std::mem::take(&mut state.calls);
        calls.into_values().for_each(|call| call.answer_without(&mut state));
    }

    fn give_up(self) {
        let mut state = self.supervisor.lock();
        let failure = state.over.get_or_insert_with(unavailable).clone();
        state.link = None;
        let calls = std::mem::take(&mut state.calls);
        calls.into_values().for_each(|call| call.answer_without(&mut state));
        for entry in state.downloads.values_mut() {
            entry.push(ToCold::Crashed(failure.clone()));
            entry.push(ToCold::GiveUp(failure.clone()));
            entry.push(ToCold::Freed);
        }
        for started in std::mem::take(&mut state.started) {
            let _ = started.try_send(Err(failure.clone()));
        }
    }

    /// Tells cold sides what there was no room for. Says whether there are any downloads, and anything left.
    fn flush(&self) -> (bool, bool) {
        let mut state = self.supervisor.lock();
        let used = !state.downloads.is_empty();
        let mut left = false;
        for entry in state.downloads.values_mut() {
            entry.flush();
            left |= !entry.backlog.is_empty();
        }
        (used, left)
    }

    /// Takes the spare, or starts a process.
    fn begin(&mut self, now: Instant) {
        self.watch.started(now);
        match self.spare.take() {
            Some(spare) => {
                self.current = Some(spare);
                self.if_ready(now);
            }
            None => match Link::start(&self.program) {
                Ok(link) => self.current = Some(Reader::new(link)),
                Err(error) => {
                    let message = format!("the engine's process cannot be started: {error}");
                    self.note(Failure::new(Code::EngineUnavailable, message));
                    self.watch.ended(now);
                }
            },
        }
    }

    /// What is told if there will be no other process.
    fn note(&self, failure: Failure) {
        let mut state = self.supervisor.lock();
        if state.link.is_none() && !state.started.is_empty() {
            for started in std::mem::take(&mut state.started) {
                let _ = started.try_send(Err(failure.clone()));
            }
            state.ending = true;
        }
    }

    /// The current process has said that it is ready: it is told how to be, and what was running.
    fn if_ready(&mut self, now: Instant) {
        let Some(Reader { link, ready: Some(isolation), .. }) = &self.current else { return };
        let mut state = self.supervisor.lock();
        state.isolation = isolation.clone();
        state.met.clear();
        state.strangers = 0;
        state.given = state.downloads.len();
        link.send(&ToChild::Hello { version: VERSION, setup: state.setup.clone() }, &[]);
        for (id, entry) in &state.downloads {
            link.send(&ToChild::Register { id: *id }, &[]);
            if let Some(limit) = entry.limit {
                link.send(&ToChild::SetDownloadLimit { id: *id, limit }, &[]);
            }
            if entry.paused {
                // Nobody waits for the answer.
                link.send(&ToChild::Pause { id: *id, call: 0 }, &[]);
            }
        }
        if state.ending {
            link.send(&ToChild::Shutdown {}, &[]);
        }
        state.link = Some(Arc::clone(link));
        for started in std::mem::take(&mut state.started) {
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
                self.spare = Link::start(&self.program).ok().map(Reader::new);
            }
        }
    }

    fn ping(&mut self) {
        let call = {
            let mut state = self.supervisor.lock();
            state.next_call += 1;
            let call = state.next_call;
            state.calls.retain(|_, call| !matches!(call, Call::Ping));
            state.calls.insert(call, Call::Ping);
            call
        };
        if let Some(reader) = &self.current {
            reader.link.send_without_waiting(&ToChild::Ping { call });
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
        fds.extend(links.iter().map(|link| PollFd::from_borrowed_fd(link.socket(), PollFlags::IN)));
        // Interrupted or not: what there is, is read.
        let _ = poll(&mut fds, timeout.as_ref());
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if ready[0] {
            let _ = rustix::io::read(&wake.wake, &mut [0; 8]);
        }
        let has_current = self.current.is_some();
        for (index, _) in ready[1..].iter().enumerate().filter(|(_, ready)| **ready) {
            if index == 0 && has_current { self.read_current() } else { self.read_spare() }
        }
    }

    fn read_current(&mut self) {
        let Some(mut reader) = self.current.take() else { return };
        reader.link.listen();
        match reader.read(&mut self.buffer, |reader, message| self.supervisor.hear(reader, message)) {
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
        let ready = |reader: &mut Reader, message: FromChild| match message {
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
        // It may have closed its socket only.
        reader.link.kill();
        let exit = reader.link.wait();
        let now = Instant::now();
        let mut state = self.supervisor.lock();
        let was_ready = state.link.take().is_some();
        let code = match violation {
            Some(_) => Code::EngineProtocol,
            None => Code::EngineCrash,
        };
        let how = match (violation, state.ended_for.take(), exit) {
            (Some(Violation(why)), ..) => format!("said what none says ({why})"),
            (None, Some(why), _) => format!("was ended: {why}"),
            (None, None, Ok(exit)) => exit.to_string(),
            (None, None, Err(error)) => format!("ended ({error})"),
        };
        let words = reader.link.last_words();
        let words = if words.is_empty() { String::new() } else { format!(": {words}") };
        let failure = Failure::new(code, format!("the engine's process {how}{words}"))
            .with_remedy(Remedy::Retry { after: None });
        let calls = std::mem::take(&mut state.calls);
        calls.into_values().for_each(|call| call.answer_without(&mut state));
        let ending = state.ending;
        for entry in state.downloads.values_mut() {
            entry.backlog.clear();
            entry.push(ToCold::Crashed(failure.clone()));
            if ending {
                entry.push(ToCold::End);
            } else if let Some(leaving) = entry.leaving {
                entry.push(leaving.told());
            }
        }
        drop(state);
        if !was_ready {
            self.note(Failure { code: Code::EngineUnavailable, ..failure });
        }
        self.spare_at = None;
        self.watch.ended(now);
        if was_ready && ending {
            // Nobody needs another.
            self.ends_at = Some(now);
        }
    }
}

impl Reader {
    fn new(link: Link) -> Self {
        Self { link: Arc::new(link), decoder: FromChild::decoder(), ready: None }
    }

    /// Hands on what there is to read; `Ok(false)` when there will be nothing more.
    fn read(
        &mut self,
        buffer: &mut [u8],
        mut hear: impl FnMut(&mut Self, FromChild) -> Result<(), Violation>,
    ) -> Result<bool, Violation> {
        let count = match self.link.read(buffer) {
            Ok(0) => return Ok(false),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(_) => return Ok(false),
        };
        self.decoder.feed(&buffer[..count]);
        loop {
            let message = match self.decoder.message() {
                Ok(None) => return Ok(true),
                Ok(Some(message)) => FromChild::decode(message.kind, message.body),
                Err(error) => return Err(Violation(error.to_string())),
            };
            hear(self, message.map_err(|error| Violation(error.to_string()))?)?;
        }
    }
}
