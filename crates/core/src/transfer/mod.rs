//! The life of one download: told what happened, answers what to do.
//!
//! [`Transfer`] owns every decision about one file: which bytes are asked from whom, whether an
//! answer is about the same file, what a failure means. It performs nothing itself. Each call to
//! [`Transfer::handle`] is one input; what it wants done comes back as [`Action`]s in order.
//!
//! The rules that keep a file right (`docs/design.md` cites them by number):
//! no byte is accepted before the head of its answer was checked against what is known of the file;
//! a byte that is on the disk is never overwritten by another answer but compared with it; a
//! difference means another version, never a splice.

mod ends;
mod heads;
#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "virtual time begins at some time")]
mod line;
mod messages;
mod next;
mod ramp;
mod remote;
#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a course of events begins at some time")]
mod scenarios;
#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a simulation begins at some time")]
mod simulation;
mod standing;
mod time;
mod verdicts;

pub use messages::{Action, BodyPlan, Count, End, Found, Input, Order, Preparation, Verified};
pub use remote::Remote;

use crate::dice::Dice;
use crate::failure::{Code, Failure, Remedy};
use crate::headers::Coding;
use crate::id::{DownloadId, MirrorId, SegmentId};
use crate::message::{EventKind, Phase, Progress, Proof, SegmentProgress};
use crate::plan::{self, Pick, Running, Terms};
use crate::proof::{self, Sampling};
use crate::request::{Request, Resume};
use crate::retry::Retry;
use crate::span::{Span, SpanSet};
use crate::validator::Identity;
use ramp::{Measured, Ramp};
use remote::Admission;
use standing::Standing;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use url::Url;

/// How far a fetch reads into its right neighbour's first bytes, to compare them.
pub const SEAM: u64 = 4 << 10;

/// The first request of a resume asks for no more than this, so that little is wasted if the file
/// turns out to be another.
const FIRST_RESUME: u64 = 1 << 20;

/// How long a connection must have delivered before its speed means anything.
const MEASURABLE: Duration = Duration::from_millis(200);

/// How long a connection may show what it can before it is judged against its siblings, and how long it may
/// be silent while they are not; or as long as four answers take, if that is more.
const PATIENCE: Duration = Duration::from_millis(300);
const SILENCE: Duration = Duration::from_millis(500);

/// A pause that is longer is an outage, and not the rhythm of a server.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How long an answer may be late; or as long as eight others took, if that is more.
const LATE: Duration = Duration::from_secs(2);

/// How many connections are replaced for crawling in one download, at most.
const MOST_REPLACED: u32 = 64;

/// What is left to a connection that could be replaced by a faster one must be more than this: less than the
/// smallest part that is worth a connection by default is soon here anyway.
const WORTH_REPLACING: u64 = 1 << 20;

/// How long a connection runs before it is replaced for that, so that nobody is replaced as soon as it is there.
const OUTGROWN_AFTER: Duration = Duration::from_secs(2);

/// The least that a request for more than that is to bring; and no request asks for less because a mirror
/// gives so little. Else a large file would take requests without number.
const CRUMB: u64 = 16 << 10;

/// How many answers may hold less than [`CRUMB`], not counting one for each that held as much, before a
/// mirror's ranges are not used any more.
const MOST_CRUMBS: u32 = 8;

/// How many answers may break the rules of ranges, of a mirror that kept them before.
const MOST_STRIKES: u32 = 3;

/// Redirects followed for one request, at most.
const MOST_HOPS: u8 = 20;

#[derive(Clone, Debug)]
enum State {
    New,
    /// Asking which file it is.
    Probing,
    /// The cold side prepares; the first answer may be held meanwhile.
    Preparing {
        held: Option<(SegmentId, BodyPlan)>,
        /// It was held, and failed meanwhile.
        lost: Option<Box<(Fetch, Failure)>>,
    },
    /// Comparing the bytes from before in samples.
    Proving,
    Fetching,
    Waiting {
        until: Instant,
        failure: Failure,
    },
    /// Waiting for room, permission or a disk.
    Machine {
        failure: Failure,
    },
    Verifying,
    Paused,
    Ended,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// The first request for a file of which nothing is known.
    Probe,
    /// Bytes that are needed.
    Segment,
    /// Bytes that are only compared.
    Window(Span),
}

#[derive(Clone, Debug)]
struct Fetch {
    mirror: usize,
    url: Url,
    kind: Kind,
    hops: u8,
    range: Option<(u64, Option<u64>)>,
    if_range: Option<String>,
    hedge: bool,
    /// Where the bytes begin that it is to bring.
    start: u64,
    end: u64,
    pos: u64,
    accepted: bool,
    received: u64,
    asked_at: Instant,
    last_heard: Instant,
    accepted_at: Option<Instant>,
    counted_at: Option<Instant>,
    limited: bool,
    outgrown: bool,
    /// Bytes a second: since it delivers, then lately.
    speed: f64,
    /// How long bytes had been flowing when it last brought some: see [`Transfer::flowing`].
    heard: Duration,
}

/// The life of one download.
#[derive(Debug)]
pub struct Transfer {
    id: DownloadId,
    request: Request,
    remotes: Vec<Remote>,
    state: State,
    dice: Dice,
    next_segment: u64,
    fetches: BTreeMap<SegmentId, Fetch>,
    identity: Option<Identity>,
    /// The identity is known from before and no answer of this run has confirmed it.
    unconfirmed: bool,
    /// Bytes that must be compared before anything is done: no answer and no sample vouches for them.
    unproved: SpanSet,
    /// Bytes from before this run that samples vouch for at most: those beside a gap are compared as the gap
    /// is fetched, and a difference in them is no change of the file in this run.
    from_before: SpanSet,
    have: SpanSet,
    codings: Vec<Coding>,
    content_type: Option<String>,
    server_digests: Vec<crate::Digest>,
    /// What the bytes here rest on.
    standing: Standing,
    /// The mirror whose validator speaks for the bytes here.
    voice: Option<usize>,
    /// Some body was accepted for writing since the beginning, so more may be on the disk than was counted:
    /// what a dropped fetch wrote last is told to nobody.
    wrote: bool,
    /// The cold side was told the length when it prepared, and so has found room for it.
    measured: bool,
    /// The bytes leave in order and cannot be read again, so no answer can be compared with all of them.
    goes_out: bool,
    /// What was found lies in the part of another link.
    borrowed: bool,
    retry: Retry,
    allow: usize,
    ramp: Ramp,
    restarts: u32,
    bad_rounds: u32,
    /// Only this mirror may be used, since mixing gave a wrong file.
    only_mirror: Option<usize>,
    replaced: u32,
    /// A connection broke or was refused after one had been replaced for being outgrown: no more are.
    keeps_outgrown: bool,
    /// How many were replaced for that.
    outgrown: u32,
    requests: u64,
    received_before: u64,
    high_water: u64,
    disk_blocked: bool,
    last_tick: Option<Instant>,
    scratch: Vec<Running>,
    speed: f64,
    /// What a connection brought while most of them ran, in bytes a second.
    usual: f64,
    /// From asking to an answer, lately.
    wait: Duration,
    /// How long any bytes flowed at all: the clock by which one is silent beside the others. While nobody
    /// brings anything it is the network, the disk or this machine that waits, and it stands still.
    flowing: Duration,
    /// The longest pause after which a connection went on: servers that hold a rate by bursts make such.
    pause: Duration,
    asked_length: bool,
    /// What is on the disk is of another version: the cold side must forget it before anything else.
    must_restart: Option<Failure>,
    /// What was prepared for, while bytes from before are compared.
    preparation: Option<Box<Preparation>>,
    /// What was found at the start, until the part was prepared with it.
    found: Found,
    /// The comparing of the bytes from before, also while it waits for another attempt.
    proving: Option<Sampling>,
    /// Bytes from before are not proved yet, so no record may name the version of this run.
    unrecorded: bool,
}

impl Transfer {
    /// A download that has not begun. `seed` decides everything that is left to chance.
    pub fn new(id: DownloadId, request: Request, found: Found, seed: u64, now: Instant) -> Self {
        let mut dice = Dice::new(seed);
        let remotes = request.mirrors().iter().map(|m| Remote::new(m.url().clone(), now)).collect();
        let found = if request.options.resume == Resume::Never { Found::Nothing } else { found };
        let retry = Retry::new(request.options.retries, request.options.retry_wait);
        // Two transfers with the same seed must not pick the same windows for the same reason.
        let dice_seed = dice.next_u64() ^ id.0;
        let mut transfer = Self {
            id,
            remotes,
            state: State::New,
            dice: Dice::new(dice_seed),
            next_segment: 0,
            fetches: BTreeMap::new(),
            unconfirmed: false,
            identity: None,
            unproved: SpanSet::new(),
            from_before: SpanSet::new(),
            have: SpanSet::new(),
            codings: Vec::new(),
            content_type: None,
            server_digests: Vec::new(),
            standing: Standing::OneAnswer,
            voice: None,
            wrote: false,
            measured: false,
            goes_out: false,
            borrowed: false,
            retry,
            allow: 1,
            ramp: Ramp::new(),
            restarts: 0,
            bad_rounds: 0,
            only_mirror: None,
            replaced: 0,
            keeps_outgrown: false,
            outgrown: 0,
            requests: 0,
            received_before: 0,
            high_water: 0,
            disk_blocked: false,
            last_tick: None,
            scratch: Vec::new(),
            speed: 0.0,
            usual: 0.0,
            wait: Duration::ZERO,
            flowing: Duration::ZERO,
            pause: Duration::ZERO,
            asked_length: false,
            must_restart: None,
            preparation: None,
            found,
            proving: None,
            unrecorded: false,
            request,
        };
        transfer.start_from_found();
        transfer
    }

    /// The same for bytes that leave in order and cannot be read again.
    #[must_use]
    pub fn going_out(mut self) -> Self {
        self.goes_out = true;
        self
    }

    /// The same where what was found lies in the part of another link, which must stay as it is until its
    /// bytes are proved to be of this file too.
    #[must_use]
    pub fn borrowing(mut self) -> Self {
        self.borrowed = true;
        self
    }

    /// The state of a download of which only what was found is known.
    fn start_from_found(&mut self) {
        let (identity, have) = match self.found.clone() {
            Found::Nothing => (None, SpanSet::new()),
            Found::Recorded { identity, spans } => (Some(identity), spans),
            Found::Adopted { spans } => (None, spans),
        };
        // What was recorded is what the first mirror said, or one like it: its answer decides.
        if let Some(first) = self.remotes.first_mut() {
            first.identity.clone_from(&identity);
        }
        self.voice = identity.is_some().then_some(0);
        self.unconfirmed = identity.is_some() || !have.is_empty();
        self.unproved = have.clone();
        self.from_before = have.clone();
        self.identity = identity;
        self.have = have;
    }

    /// Its name.
    pub fn id(&self) -> DownloadId {
        self.id
    }

    /// What was asked for.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// How many connections it could use now; the engine shares them out by [`Input::Allow`].
    pub fn wants(&self) -> usize {
        match self.state {
            State::New | State::Probing | State::Preparing { .. } | State::Proving => 1,
            State::Fetching => {
                let target = self.ramp.target() + usize::from(self.has_mirror_to_admit());
                target.min(self.request.options.connections).max(1)
            }
            _ => 0,
        }
    }

    /// The host it is talking to, for limits by host.
    pub fn url(&self) -> &Url {
        let remote = self.remotes.iter().find(|r| r.is_usable()).unwrap_or(&self.remotes[0]);
        remote.url()
    }

    /// How many fetches there are now.
    pub fn connections(&self) -> usize {
        self.fetches.len()
    }

    /// Whether it has ended, one way or the other.
    pub fn is_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// The bytes that are here.
    pub fn have(&self) -> &SpanSet {
        &self.have
    }

    /// Takes one input and returns what to do, in order.
    pub fn handle(&mut self, input: Input<'_>, now: Instant) -> Vec<Action> {
        let mut out = Vec::new();
        match input {
            Input::Begin => {
                if matches!(self.state, State::New) {
                    out.push(Action::Tell(EventKind::Started { resumed_from: self.have.total() }));
                    self.go_on(now, &mut out);
                }
            }
            Input::Head { segment, answer } => self.on_head(segment, *answer, now, &mut out),
            Input::Ended { segment, end, pos, received } => {
                self.count(Count { segment, pos, received, limited: false, outgrown: false }, now);
                self.on_end(segment, end, now, &mut out);
            }
            Input::Counts(counts) => counts.iter().for_each(|count| self.count(*count, now)),
            Input::Tick { counts, disk_blocked } => self.on_tick(counts, disk_blocked, now, &mut out),
            Input::Allow(connections) => {
                self.allow = connections;
                self.replenish(now, &mut out);
            }
            Input::Prepared => self.on_prepared(now, &mut out),
            Input::Verified(verified) => self.on_verified(verified, now, &mut out),
            Input::MachineReady => {
                if matches!(self.state, State::Machine { .. }) {
                    self.go_on(now, &mut out);
                }
            }
            Input::Pause => {
                if !matches!(self.state, State::Ended | State::Paused) {
                    self.drop_all(&mut out);
                    if matches!(self.state, State::Preparing { .. }) {
                        // The cold side may never have got ready: asked again after the pause.
                        self.unprepare();
                    }
                    self.state = State::Paused;
                    out.push(Action::Tell(EventKind::Paused { have: self.have.total() }));
                }
            }
            Input::Resume => {
                if matches!(self.state, State::Paused) {
                    self.retry.progress();
                    self.go_on(now, &mut out);
                }
            }
        }
        let is_fetching = matches!(self.state, State::Fetching);
        let look = self.ramp.look().filter(|at| is_fetching && *at > now);
        out.extend(look.map(Action::WakeAt));
        out
    }

    /// How far it is.
    pub fn progress(&self, now: Instant) -> Progress {
        let mut progress = Progress::new(self.id);
        self.tell_progress(&mut progress, now);
        progress
    }

    /// The same into one that is there already: while bytes flow, nothing is allocated.
    pub fn tell_progress(&self, into: &mut Progress, now: Instant) {
        let length = self.length();
        let have = self.have.total();
        into.segments.clear();
        into.segments.extend(self.each_running(now).filter_map(|one| {
            let end = one.end.min(length.unwrap_or(one.pos.saturating_add(1)));
            let span = Span::new(one.start, end)?;
            let done = one.pos.clamp(one.start, end) - one.start;
            Some(SegmentProgress { span, done, speed: one.speed.unwrap_or(0.0) as u64 })
        }));
        into.map.clear();
        into.map.extend(self.have.iter());
        into.id = self.id;
        into.phase = self.phase(now);
        into.have = have;
        into.received = self.received();
        into.length = length;
        into.speed = self.speed as u64;
        into.left =
            length.filter(|_| self.speed >= 1.0 && matches!(self.state, State::Fetching)).map(|length| {
                Duration::from_secs_f64((length.saturating_sub(have) as f64 / self.speed).min(1e8))
            });
        into.connections = self.fetches.len();
        into.requests = self.requests;
    }

    fn phase(&self, now: Instant) -> Phase {
        match &self.state {
            State::New => Phase::Queued,
            State::Probing | State::Preparing { .. } if self.fetches.is_empty() && self.allow == 0 => {
                Phase::Queued
            }
            State::Probing | State::Preparing { .. } => Phase::Probing,
            State::Proving => Phase::Proving,
            State::Fetching if self.disk_blocked => Phase::WaitingForDisk,
            State::Fetching => Phase::Fetching,
            State::Waiting { until, failure } => {
                Phase::Waiting { failure: failure.clone(), retry_in: until.saturating_duration_since(now) }
            }
            State::Machine { failure } => {
                Phase::Waiting { failure: failure.clone(), retry_in: Duration::ZERO }
            }
            State::Verifying => Phase::Verifying,
            State::Paused => Phase::Paused,
            State::Ended => Phase::Completed,
        }
    }

    fn length(&self) -> Option<u64> {
        self.identity.as_ref().and_then(|i| i.length).filter(|_| self.codings.is_empty())
    }

    /// Bytes of content received so far, in this run.
    pub fn received(&self) -> u64 {
        self.received_before + self.fetches.values().map(|f| f.received).sum::<u64>()
    }

    /// What runs, in a list that is used again and again, where this is asked in every turn.
    fn with_running<R>(&mut self, now: Instant, f: impl FnOnce(&Self, &[Running]) -> R) -> R {
        let mut running = std::mem::take(&mut self.scratch);
        running.clear();
        running.extend(self.each_running(now));
        let result = f(self, &running);
        self.scratch = running;
        result
    }

    fn each_running(&self, now: Instant) -> impl Iterator<Item = Running> + '_ {
        let unseen = move |f: &Fetch| {
            let since = f.counted_at.map_or(Duration::ZERO, |then| now.saturating_duration_since(then));
            (f.speed * since.as_secs_f64().min(1.0)) as u64
        };
        let is_of_use = |f: &Fetch| f.kind != Kind::Probe && !matches!(f.kind, Kind::Window(_));
        self.fetches.iter().filter(move |(_, f)| is_of_use(f)).map(move |(segment, f)| Running {
            segment: *segment,
            start: f.start,
            pos: f.pos,
            ahead: f.pos.saturating_add(unseen(f)).min(f.end).max(f.pos),
            end: f.end,
            speed: self.speed_of(f, now),
            age: now.saturating_duration_since(f.accepted_at.unwrap_or(f.asked_at)),
        })
    }

    /// What a fetch brings, in bytes a second: 0 if it is silent, `None` if it is too early to tell.
    fn speed_of(&self, f: &Fetch, now: Instant) -> Option<f64> {
        let silence = SILENCE.max(self.wait.min(LONGEST_PAUSE) * 4).max(self.pause * 2);
        let Some(accepted_at) = f.accepted_at else {
            let late = LATE.max(self.wait.min(LONGEST_PAUSE) * 8);
            return (now.saturating_duration_since(f.asked_at) >= late).then_some(0.0);
        };
        // The last one has nobody to be compared with.
        let alone = self.fetches.len() == 1 && now.saturating_duration_since(f.last_heard) >= silence;
        let silent = (alone || self.flowing.saturating_sub(f.heard) >= silence) && !f.limited;
        let measurable = now.saturating_duration_since(accepted_at) >= MEASURABLE;
        measurable.then_some(if silent { 0.0 } else { f.speed })
    }

    /// Whether anything other than samples can tell two versions apart: then no samples are needed.
    fn has_digests(&self) -> bool {
        !self.request.digests.is_empty() || self.request.pieces.is_some()
    }

    /// In strict mode bytes of two answers may be joined only if a validator or digest vouches.
    fn may_join(&self) -> bool {
        self.request.options.resume != Resume::Strict
            || self.has_digests()
            || self.identity.as_ref().is_some_and(|i| i.if_range().is_some())
    }

    fn remove(&mut self, segment: SegmentId) -> Option<Fetch> {
        let fetch = self.fetches.remove(&segment)?;
        self.received_before += fetch.received;
        Some(fetch)
    }

    fn drop_all(&mut self, out: &mut Vec<Action>) {
        let all: Vec<SegmentId> = self.fetches.keys().copied().collect();
        for segment in all {
            out.push(Action::Drop { segment });
            if let Some(Fetch { kind: Kind::Window(window), mirror, .. }) = self.remove(segment)
                && let Some(sampling) = self.sampling_of(mirror)
            {
                // It is compared another time.
                sampling.put_back(window);
            }
        }
        if let State::Preparing { held, lost } = &mut self.state {
            (*held, *lost) = (None, None);
        }
    }

    fn is_held(&self, segment: SegmentId) -> bool {
        matches!(&self.state, State::Preparing { held: Some((held, _)), .. } if *held == segment)
    }
}
