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

mod heads;
mod messages;
mod remote;
#[cfg(test)]
mod simulation;
mod verdicts;

pub use messages::{Action, BodyPlan, Count, End, Found, Input, Order, Preparation, Verified};
pub use remote::Remote;

use crate::dice::Dice;
use crate::failure::{Code, Failure, Remedy};
use crate::headers::Coding;
use crate::id::{DownloadId, MirrorId, SegmentId};
use crate::message::{EventKind, Phase, Progress, Proof, SegmentProgress};
use crate::plan::{self, Pick, Running};
use crate::proof::{self, Sampling};
use crate::request::{Request, Resume};
use crate::retry::Retry;
use crate::span::{Span, SpanSet};
use crate::validator::Identity;
use remote::Admission;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use url::Url;

/// How far a fetch reads into its right neighbour's first bytes, to compare them.
pub const SEAM: u64 = 4 << 10;

/// The first request of a resume asks for no more than this, so that little is wasted if the file
/// turns out to be another.
const FIRST_RESUME: u64 = 1 << 20;

/// How long the speed is measured before connections are added or not.
const RAMP_INTERVAL: Duration = Duration::from_millis(300);

/// How long a connection may show what it can before it is judged against its siblings.
const CRAWL_PATIENCE: Duration = Duration::from_secs(1);

/// How many connections are replaced for crawling in one download, at most.
const MOST_REPLACED: u32 = 64;

/// How many answers may hold less than [`SEAM`] although more was asked for, before a mirror's ranges are
/// not used any more.
const MOST_CRUMBS: u32 = 8;

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
    limited: bool,
    speed: f64,
}

/// How many connections are worth having, found by trying.
#[derive(Clone, Copy, Debug)]
struct Ramp {
    target: usize,
    settled: bool,
    since: Option<Instant>,
    received: u64,
    speed: f64,
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
    /// Bytes from before that no answer of this run has vouched for.
    unproved: SpanSet,
    have: SpanSet,
    codings: Vec<Coding>,
    content_type: Option<String>,
    server_digests: Vec<crate::Digest>,
    /// Something rests on samples.
    sampled: bool,
    /// Answers whose bytes are part of the file, and whether all carried the same strong validator.
    answers: u32,
    all_validated: bool,
    retry: Retry,
    allow: usize,
    ramp: Ramp,
    restarts: u32,
    bad_rounds: u32,
    /// Only this mirror may be used, since mixing gave a wrong file.
    only_mirror: Option<usize>,
    replaced: u32,
    requests: u64,
    received_before: u64,
    high_water: u64,
    disk_blocked: bool,
    last_tick: Option<Instant>,
    speed: f64,
    asked_length: bool,
    /// What is on the disk is of another version: the cold side must forget it before anything else.
    must_restart: Option<Failure>,
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
            have: SpanSet::new(),
            codings: Vec::new(),
            content_type: None,
            server_digests: Vec::new(),
            sampled: false,
            answers: 0,
            all_validated: true,
            retry,
            allow: 1,
            ramp: Ramp { target: 1, settled: false, since: None, received: 0, speed: 0.0 },
            restarts: 0,
            bad_rounds: 0,
            only_mirror: None,
            replaced: 0,
            requests: 0,
            received_before: 0,
            high_water: 0,
            disk_blocked: false,
            last_tick: None,
            speed: 0.0,
            asked_length: false,
            must_restart: None,
            found,
            proving: None,
            unrecorded: false,
            request,
        };
        transfer.start_from_found();
        transfer
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
        self.unconfirmed = identity.is_some() || !have.is_empty();
        self.unproved = have.clone();
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
            State::Fetching => self.ramp.target.min(self.request.options.connections).max(1),
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
            Input::Ended { segment, end, received, pos } => {
                self.on_end(segment, end, received, pos, now, &mut out)
            }
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
        out
    }

    /// How far it is.
    pub fn progress(&self, now: Instant) -> Progress {
        let length = self.length();
        let have = self.have.total();
        let running = self.running(now);
        let segments = running
            .iter()
            .filter_map(|one| {
                let end = one.end.min(length.unwrap_or(one.pos.saturating_add(1)));
                let span = Span::new(one.start, end)?;
                let done = one.pos.clamp(one.start, end) - one.start;
                Some(SegmentProgress { span, done, speed: one.speed.unwrap_or(0.0) as u64 })
            })
            .collect();
        let left =
            length.filter(|_| self.speed >= 1.0 && matches!(self.state, State::Fetching)).map(|length| {
                Duration::from_secs_f64((length.saturating_sub(have) as f64 / self.speed).min(1e8))
            });
        Progress {
            id: self.id,
            phase: self.phase(now),
            have,
            received: self.received(),
            length,
            speed: self.speed as u64,
            left,
            connections: self.fetches.len(),
            segments,
            map: self.have.iter().collect(),
            requests: self.requests,
        }
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

    fn received(&self) -> u64 {
        self.received_before + self.fetches.values().map(|f| f.received).sum::<u64>()
    }

    fn running(&self, now: Instant) -> Vec<Running> {
        self.fetches
            .iter()
            .filter(|(_, f)| f.kind != Kind::Probe && !matches!(f.kind, Kind::Window(_)))
            .map(|(segment, f)| Running {
                segment: *segment,
                start: f.start,
                pos: f.pos,
                end: f.end,
                speed: f.accepted_at.filter(|at| now.duration_since(*at) >= RAMP_INTERVAL).map(|_| f.speed),
                age: now.saturating_duration_since(f.accepted_at.unwrap_or(f.asked_at)),
            })
            .collect()
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

    // ---- going on -------------------------------------------------------------------------------

    /// Finds out what to do next from nothing running.
    fn go_on(&mut self, now: Instant, out: &mut Vec<Action>) {
        if self.fetches.is_empty() {
            self.state = match self.identity {
                Some(_) if self.unconfirmed && self.proving.is_some() => State::Proving,
                Some(_) if self.unconfirmed => State::Probing,
                Some(_) => State::Fetching,
                None => State::Probing,
            };
        }
        self.settle(now, out);
        self.replenish(now, out);
    }

    /// Starts as many fetches as are allowed and worth it.
    fn replenish(&mut self, now: Instant, out: &mut Vec<Action>) {
        match &self.state {
            State::Probing if self.fetches.is_empty() && self.allow > 0 => self.probe(now, out),
            State::Proving => self.next_window(now, out),
            State::Fetching => {
                // Each turn starts at most one fetch; the bound only guards against a rule that loops.
                for _ in 0..64 {
                    if !self.start_one(now, out) {
                        break;
                    }
                }
            }
            _ => {}
        }
    }

    /// The request that shows which file it is.
    fn probe(&mut self, now: Instant, out: &mut Vec<Action>) {
        let Some(mirror) = self.choose_mirror(now) else { return };
        let remote = &self.remotes[mirror];
        let validator = remote.identity.as_ref().and_then(Identity::if_range).filter(|_| remote.if_range);
        let first_gap = match (&self.identity, self.length()) {
            (Some(_), Some(length)) => Span::new(0, length).and_then(|all| self.have.gaps(all).next()),
            _ => None,
        };
        match first_gap {
            _ if self.remotes[mirror].ranges == Some(false) || self.have.is_empty() => {
                let (start, end) = (0, u64::MAX);
                self.fetch(mirror, Kind::Probe, None, None, (start, end), now, out);
            }
            // A validator can vouch for the bytes here: ask for what is missing at once.
            Some(gap) if validator.is_some() => {
                let end = gap.end().min(gap.start() + FIRST_RESUME);
                let range = Some((gap.start(), Some(end)));
                self.fetch(mirror, Kind::Probe, range, validator, (gap.start(), end), now, out);
            }
            // Only the bytes can: begin with the first of them. (Also when all bytes are here, and
            // for a leftover of another tool.)
            _ => {
                let length = self.length().unwrap_or(u64::MAX);
                let window = proof::window_len(length);
                let first = self
                    .have
                    .iter()
                    .next()
                    .and_then(|s| Span::new(s.start(), s.end().min(s.start() + window)));
                let Some(first) = first else { return };
                let range = Some((first.start(), Some(first.end())));
                self.fetch(mirror, Kind::Probe, range, validator, (first.start(), first.end()), now, out);
            }
        }
    }

    /// Starts one more fetch if it is allowed and worth it.
    fn start_one(&mut self, now: Instant, out: &mut Vec<Action>) -> bool {
        let many = self.length().is_some() && self.codings.is_empty() && self.may_join();
        let target = if many { self.ramp.target.min(self.request.options.connections) } else { 1 };
        let most = self.allow.min(target);
        if self.fetches.len() >= most {
            return self.ask_for_length(now, out);
        }
        if self.fetches.is_empty() && self.have_is_useless() {
            self.begin_again(now, out);
            return false;
        }
        if let Some(mirror) = self.mirror_to_admit(now) {
            return self.admit(mirror, now, out);
        }
        let Some(mirror) = self.choose_mirror(now) else { return false };
        let Some(length) = self.length() else {
            if !self.fetches.is_empty() {
                return false;
            }
            // Unknown length: go on from where the bytes end, or from the beginning where ranges
            // are not served; bytes that are here are compared on the way.
            let from = self.have.run_end(0);
            let ranged = from > 0 && self.remotes[mirror].ranges == Some(true);
            let range = ranged.then_some((from, None));
            let start = if ranged { from } else { 0 };
            self.fetch(mirror, Kind::Segment, range, self.validator(mirror), (start, u64::MAX), now, out);
            return true;
        };
        if self.remotes[mirror].ranges == Some(false) {
            if self.fetches.is_empty() && self.have.total() < length {
                self.fetch(mirror, Kind::Segment, None, None, (0, length), now, out);
                return true;
            }
            return false;
        }
        let running = self.running(now);
        let min_split = self.request.options.min_split;
        let (span, hedge) = match plan::pick(length, &self.have, &running, min_split) {
            Some(Pick::Gap(span) | Pick::Split { span, .. }) => (span, false),
            Some(Pick::Hedge { span, .. }) => (span, true),
            None => return false,
        };
        let end = self.remotes[mirror].cap.map_or(span.end(), |cap| span.end().min(span.start() + cap));
        self.fetch_segment(mirror, (span.start(), end), hedge, now, out);
        true
    }

    fn fetch_segment(
        &mut self,
        mirror: usize,
        (start, end): (u64, u64),
        hedge: bool,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        let length = self.length().unwrap_or(u64::MAX);
        // Bytes before that rest on nothing are compared on the way.
        let from =
            if self.unproved.is_empty() { start } else { proof::overlap_start(&self.have, start, length) };
        let to = if self.has_digests() { end } else { end.saturating_add(SEAM).min(length) };
        let range = Some((from, Some(to)));
        self.fetch(mirror, Kind::Segment, range, self.validator(mirror), (start, end), now, out);
        if hedge && let Some(fetch) = self.fetches.values_mut().next_back() {
            fetch.hedge = true;
        }
    }

    /// The validator to send, where this mirror is known to keep to it.
    fn validator(&self, mirror: usize) -> Option<String> {
        let remote = &self.remotes[mirror];
        remote.identity.as_ref().and_then(Identity::if_range).filter(|_| remote.if_range)
    }

    /// A body of unknown length may still be one that is served in ranges, and then a range tells
    /// the length: asked once, when enough has come to show that the file is not small.
    fn ask_for_length(&mut self, now: Instant, out: &mut Vec<Action>) -> bool {
        let min_split = self.request.options.min_split;
        let wanted = self.length().is_none()
            && self.identity.is_some()
            && self.codings.is_empty()
            && !self.asked_length
            && self.may_join()
            && self.request.options.connections > 1
            && self.allow > 1
            && self.fetches.len() == 1;
        let Some(first) = self.fetches.values().next().filter(|_| wanted) else { return false };
        let remote = &self.remotes[first.mirror];
        let enough = remote.ranges == Some(true) || first.pos >= min_split;
        if !first.accepted || remote.ranges == Some(false) || !enough {
            return false;
        }
        self.asked_length = true;
        let start = first.pos + 2 * min_split;
        let mirror = first.mirror;
        self.fetch(
            mirror,
            Kind::Segment,
            Some((start, None)),
            self.validator(mirror),
            (start, u64::MAX),
            now,
            out,
        );
        true
    }

    #[allow(clippy::too_many_arguments, reason = "the one place where a fetch is made")]
    fn fetch(
        &mut self,
        mirror: usize,
        kind: Kind,
        range: Option<(u64, Option<u64>)>,
        if_range: Option<String>,
        (start, end): (u64, u64),
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        let url = self.remotes[mirror].url().clone();
        let if_range = if_range.filter(|_| range.is_some());
        let fetch = Fetch {
            mirror,
            url,
            kind,
            hops: 0,
            range,
            if_range,
            hedge: false,
            start,
            end,
            pos: start,
            accepted: false,
            received: 0,
            asked_at: now,
            last_heard: now,
            accepted_at: None,
            limited: false,
            speed: 0.0,
        };
        self.send(fetch, out);
    }

    fn send(&mut self, fetch: Fetch, out: &mut Vec<Action>) {
        let segment = SegmentId(self.next_segment);
        self.next_segment += 1;
        self.requests += 1;
        out.push(Action::Fetch(Order {
            segment,
            mirror: MirrorId(fetch.mirror as u64),
            url: fetch.url.clone(),
            range: fetch.range,
            if_range: fetch.if_range.clone(),
        }));
        self.fetches.insert(segment, fetch);
    }

    // ---- time -----------------------------------------------------------------------------------

    fn on_tick(&mut self, counts: &[Count], disk_blocked: bool, now: Instant, out: &mut Vec<Action>) {
        self.disk_blocked = disk_blocked;
        for count in counts {
            self.count(*count, now);
        }
        let elapsed = self.last_tick.map_or(Duration::ZERO, |then| now.saturating_duration_since(then));
        self.last_tick = Some(now);
        if disk_blocked {
            // Time blocked in a write is nobody's silence.
            for fetch in self.fetches.values_mut() {
                fetch.last_heard += elapsed;
            }
        }
        match &self.state {
            State::Waiting { until, .. } => {
                if now >= *until {
                    self.go_on(now, out);
                } else {
                    out.push(Action::WakeAt(*until));
                }
            }
            State::Probing | State::Preparing { .. } | State::Proving | State::Fetching => {
                if !disk_blocked {
                    self.drop_the_silent(now, out);
                    self.replace_a_crawler(now, out);
                    self.measure(now);
                }
                self.settle(now, out);
                self.replenish(now, out);
            }
            _ => {}
        }
    }

    fn count(&mut self, count: Count, now: Instant) {
        let Some(fetch) = self.fetches.get_mut(&count.segment) else { return };
        if count.received > fetch.received || count.limited {
            fetch.last_heard = now;
        }
        fetch.limited = count.limited;
        let since = now.saturating_duration_since(self.last_tick.unwrap_or(fetch.asked_at)).as_secs_f64();
        if since > 0.0 && fetch.accepted {
            let rate = count.received.saturating_sub(fetch.received) as f64 / since;
            // The last second or so counts; a long gap between ticks counts whole.
            let weight = since.min(1.0);
            fetch.speed += (rate - fetch.speed) * weight;
        }
        fetch.received = count.received;
        let (kind, mirror, from, to) = (fetch.kind, fetch.mirror, fetch.pos, count.pos);
        fetch.pos = fetch.pos.max(count.pos);
        if let (false, Some(span)) = (matches!(kind, Kind::Window(_)), Span::new(from, to)) {
            self.landed(mirror, span);
        }
    }

    /// These bytes are on the disk and an answer of this run vouches for them.
    fn landed(&mut self, mirror: usize, span: Span) {
        self.have.insert(span);
        self.unproved.remove(span);
        self.remotes[mirror].supplied.insert(span);
        let total = self.have.total();
        if total > self.high_water {
            self.high_water = total;
            self.retry.progress();
            self.remotes[mirror].went_back = false;
        }
    }

    fn drop_the_silent(&mut self, now: Instant, out: &mut Vec<Action>) {
        let stall = self.request.options.stall;
        let silent: Vec<SegmentId> = self
            .fetches
            .iter()
            .filter(|(segment, f)| {
                !self.is_held(**segment) && now.saturating_duration_since(f.last_heard) >= stall
            })
            .map(|(segment, _)| *segment)
            .collect();
        for segment in silent {
            out.push(Action::Drop { segment });
            let failure = Failure::new(Code::Stalled, format!("nothing came for {} s", stall.as_secs()));
            self.failed(segment, failure, now, out);
        }
        let Some(floor) = self.request.options.speed_min else { return };
        let slow: Vec<SegmentId> = self
            .fetches
            .iter()
            .filter(|(_, f)| f.accepted_at.is_some_and(|at| now.saturating_duration_since(at) >= stall))
            .filter(|(_, f)| !f.limited && f.speed < floor as f64)
            .map(|(segment, _)| *segment)
            .collect();
        for segment in slow {
            out.push(Action::Drop { segment });
            let failure = Failure::new(Code::TooSlow, format!("slower than {floor} bytes a second"));
            self.failed(segment, failure, now, out);
        }
    }

    /// A connection that crawls beside its siblings gives its place to a new one.
    fn replace_a_crawler(&mut self, now: Instant, out: &mut Vec<Action>) {
        let busy =
            self.fetches.len() >= self.allow.min(self.ramp.target.min(self.request.options.connections));
        if !matches!(self.state, State::Fetching) || !busy || self.replaced >= MOST_REPLACED {
            return;
        }
        let limited = self.fetches.values().any(|f| f.limited);
        let Some(segment) = plan::crawler(&self.running(now), CRAWL_PATIENCE).filter(|_| !limited) else {
            return;
        };
        self.replaced += 1;
        out.push(Action::Drop { segment });
        self.remove(segment);
    }

    /// Adds connections while each addition brings speed.
    fn measure(&mut self, now: Instant) {
        let received = self.received();
        if let Some(since) = self.ramp.since {
            let elapsed = now.saturating_duration_since(since);
            if elapsed < RAMP_INTERVAL {
                return;
            }
            let speed = received.saturating_sub(self.ramp.received) as f64 / elapsed.as_secs_f64();
            self.speed = if self.speed == 0.0 { speed } else { self.speed * 0.7 + speed * 0.3 };
            let full = self.fetches.values().filter(|f| f.accepted).count() >= self.ramp.target;
            if full && !self.ramp.settled && self.ramp.target > 1 {
                if speed > self.ramp.speed * 1.1 {
                    self.ramp.speed = speed;
                    self.ramp.target = (self.ramp.target * 2).min(self.request.options.connections.max(1));
                } else {
                    self.ramp.settled = true;
                }
            } else if full {
                self.ramp.speed = self.ramp.speed.max(speed);
            }
        }
        self.ramp.since = Some(now);
        self.ramp.received = received;
    }

    /// Ends fetches whose bytes have come another way, and the download when all are here.
    fn settle(&mut self, now: Instant, out: &mut Vec<Action>) {
        if !matches!(self.state, State::Fetching) {
            return;
        }
        let lost: Vec<SegmentId> = self
            .fetches
            .iter()
            .filter(|(_, f)| f.kind == Kind::Segment && f.end != u64::MAX)
            .filter(|(_, f)| Span::new(f.pos, f.end).is_some_and(|left| self.have.covers(left)))
            .filter(|(_, f)| !self.compares(f))
            .map(|(segment, _)| *segment)
            .collect();
        for segment in lost {
            out.push(Action::Drop { segment });
            self.remove(segment);
        }
        let Some(length) = self.length() else { return };
        let Some(all) = Span::new(0, length) else {
            self.finish(out);
            return;
        };
        if self.have.covers(all) && !self.fetches.values().any(|f| self.compares(f)) {
            self.finish(out);
        }
        let _ = now;
    }

    /// Whether this fetch still compares bytes that rest on nothing else.
    fn compares(&self, fetch: &Fetch) -> bool {
        fetch.range.is_none()
            && Span::new(fetch.pos, fetch.end).is_some_and(|left| self.unproved.total_within(left) > 0)
    }

    fn finish(&mut self, out: &mut Vec<Action>) {
        self.drop_all(out);
        if std::mem::take(&mut self.unrecorded) {
            // Every byte from before was compared on the way, or a digest will tell.
            out.push(Action::Learned(self.record()));
        }
        self.state = State::Verifying;
        let proof = if self.sampled {
            Proof::Sampled
        } else if self.answers > 0 && self.all_validated {
            Proof::Validator
        } else if self.answers <= 1 {
            Proof::Answers
        } else {
            Proof::Sampled
        };
        out.push(Action::Verify {
            identity: self.identity.clone().unwrap_or_default(),
            digests: self.server_digests.clone(),
            proof,
        });
    }

    // ---- ends -----------------------------------------------------------------------------------

    fn on_end(
        &mut self,
        segment: SegmentId,
        end: End,
        received: u64,
        pos: Option<u64>,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        if !self.fetches.contains_key(&segment) {
            return;
        }
        if let Some(fetch) = self.fetches.get_mut(&segment) {
            fetch.received = fetch.received.max(received);
        }
        match end {
            End::Finished { pos, whole_body, flat } => {
                self.finished(segment, pos, whole_body, flat, now, out)
            }
            End::Differs { at } => self.differs(segment, at, now, out),
            End::Failed(failure) => {
                // What came since the last count is here too, and is progress.
                if let Some(pos) = pos {
                    self.count(Count { segment, pos, received, limited: false }, now);
                }
                self.failed(segment, failure, now, out);
            }
        }
        self.settle(now, out);
        self.replenish(now, out);
    }

    fn finished(
        &mut self,
        segment: SegmentId,
        pos: u64,
        whole_body: bool,
        flat: bool,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        let Some(fetch) = self.fetches.get(&segment).cloned() else { return };
        if let Kind::Window(window) = fetch.kind {
            self.remove(segment);
            self.window_ended(fetch.mirror, window, pos, flat, now, out);
            return;
        }
        self.count(Count { segment, pos, received: fetch.received, limited: false }, now);
        self.remove(segment);
        let open = self.length().is_none();
        if open && whole_body && fetch.end == u64::MAX && self.have.run_end(0) >= pos {
            // The body ended as it should: now the length is known.
            if let Some(identity) = &mut self.identity {
                identity.length = Some(pos);
                self.codings.clear();
                out.push(Action::Learned(self.record()));
            }
            if self.have.is_empty() {
                self.finish(out);
            }
        } else if whole_body && pos < fetch.end && pos > fetch.start && fetch.range.is_some() {
            // Less than was asked: what came is kept, and no more is asked at a time.
            let cap = (pos - fetch.start).max(SEAM);
            let remote = &mut self.remotes[fetch.mirror];
            remote.cap = Some(cap);
            if pos - fetch.start < SEAM {
                // A few bytes a request would take requests without number.
                remote.crumbs += 1;
                if remote.crumbs >= MOST_CRUMBS {
                    remote.ranges = Some(false);
                }
            }
        } else if whole_body
            && fetch.range.is_none()
            && self.remotes[fetch.mirror].ranges == Some(false)
            && self.length().is_some_and(|length| pos < length)
        {
            let failure = Failure::new(Code::EndedEarly, "a part came where the whole was asked for");
            self.after_failure(&fetch, failure, now, out);
        } else if whole_body && pos <= fetch.start && Some(pos) != self.length() {
            let failure = Failure::new(Code::EndedEarly, "the answer held nothing of what was asked for");
            self.after_failure(&fetch, failure, now, out);
        }
    }

    /// A fetch failed: first what it means for the mirror, then whether to wait or give up.
    fn failed(&mut self, segment: SegmentId, failure: Failure, now: Instant, out: &mut Vec<Action>) {
        let Some(fetch) = self.remove(segment) else { return };
        if let State::Preparing { held: Some((held, _)) } = &self.state
            && *held == segment
        {
            self.state = State::Preparing { held: None };
            return;
        }
        if let Kind::Window(window) = fetch.kind {
            if let Some(sampling) = self.sampling_of(fetch.mirror) {
                sampling.put_back(window);
            }
        }
        self.after_failure(&fetch, failure, now, out);
    }

    fn after_failure(&mut self, fetch: &Fetch, failure: Failure, now: Instant, out: &mut Vec<Action>) {
        if let Remedy::Wait { on } = failure.remedy {
            self.drop_all(out);
            self.state = State::Machine { failure: failure.clone() };
            out.push(Action::Tell(EventKind::Waiting { failure: failure.clone(), retry_in: Duration::ZERO }));
            out.push(Action::AwaitMachine { need: on, failure });
            return;
        }
        let alone = self.fetches.is_empty();
        let asked = match failure.remedy {
            Remedy::Retry { after } => after,
            _ => None,
        };
        let ranged = fetch.range.is_some();
        let remote = &mut self.remotes[fetch.mirror];
        match failure.code {
            // Ranges are refused: nothing of the kind is asked again in this run.
            Code::RangeMismatch | Code::RangesRefused if ranged && remote.ranges != Some(true) => {
                remote.ranges = Some(false);
            }
            Code::RangeMismatch | Code::RangesRefused if ranged => {
                remote.strikes += 1;
                if remote.strikes >= 3 {
                    remote.ranges = Some(false);
                }
            }
            _ => {}
        }
        if !alone {
            self.secondary_failure(fetch, &failure, asked, now, out);
            return;
        }
        match failure.remedy {
            Remedy::Elsewhere
                if matches!(failure.code, Code::RangeMismatch | Code::RangesRefused) && ranged =>
            {
                self.wait_or_leave(fetch.mirror, failure, asked, now, out);
            }
            Remedy::Elsewhere | Remedy::GiveUp | Remedy::Restart => {
                self.leave(fetch.mirror, failure, now, out)
            }
            Remedy::Retry { .. } | Remedy::Wait { .. } => {
                self.wait_or_leave(fetch.mirror, failure, asked, now, out);
            }
        }
    }

    /// One connection of several failed: the others go on, and this mirror gets no more than them
    /// for a while.
    fn secondary_failure(
        &mut self,
        fetch: &Fetch,
        failure: &Failure,
        asked: Option<Duration>,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        let alive = self.fetches.values().filter(|f| f.mirror == fetch.mirror).count();
        let accepted = self.fetches.values().filter(|f| f.mirror == fetch.mirror && f.accepted).count();
        let first_wait = self.request.options.retry_wait;
        let pause = asked.unwrap_or(first_wait).max(first_wait.min(Duration::from_millis(500)));
        let remote = &mut self.remotes[fetch.mirror];
        let refused = match failure.code {
            Code::Busy => true,
            Code::NotFound | Code::Forbidden | Code::AuthRequired | Code::UnexpectedStatus => true,
            Code::ConnectFailed | Code::ConnectionLost | Code::ProtocolError => !fetch.accepted,
            _ => false,
        };
        remote.not_before = remote.not_before.max(now + pause);
        if refused {
            if failure.code == Code::Busy || remote.refusals >= 2 {
                remote.ceiling = remote.ceiling.min(accepted.max(1));
                out.push(Action::HostLimit { url: fetch.url.clone(), connections: remote.ceiling });
            }
            remote.refusals += 1;
            if matches!(failure.code, Code::NotFound | Code::Forbidden | Code::AuthRequired) {
                // A link that is good for one request, perhaps: what is alive is all there will be.
                remote.ceiling = remote.ceiling.min(alive.max(1));
            }
            self.ramp.settled = true;
            self.ramp.target = self.ramp.target.min(accepted.max(1)).max(1);
        }
        out.push(Action::WakeAt(now + pause));
    }

    fn wait_or_leave(
        &mut self,
        mirror: usize,
        failure: Failure,
        asked: Option<Duration>,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        let dead_redirect =
            matches!(failure.code, Code::ResolveFailed | Code::ConnectFailed | Code::ConnectTimeout);
        if dead_redirect {
            self.remotes[mirror].current = None;
        }
        let wait = self.retry.failed(asked, now, &mut self.dice);
        let Some(wait) = wait else {
            self.leave(mirror, failure, now, out);
            return;
        };
        self.remotes[mirror].not_before = now + wait;
        // Connections are added again from the beginning once something answers.
        self.ramp = Ramp { target: 1, settled: false, since: None, received: 0, speed: 0.0 };
        self.remotes[mirror].refusals = 0;
        if self.choose_mirror(now).is_some() {
            self.go_on(now, out);
            return;
        }
        let failure = self.say_how_far(failure);
        let until =
            self.remotes.iter().filter(|r| r.is_usable()).map(|r| r.not_before).min().unwrap_or(now + wait);
        let retry_in = until.saturating_duration_since(now);
        out.push(Action::Tell(EventKind::Waiting { failure: failure.clone(), retry_in }));
        self.state = State::Waiting { until, failure };
        out.push(Action::WakeAt(until));
    }

    /// This mirror, or this redirect of it, is done.
    fn leave(&mut self, mirror: usize, failure: Failure, now: Instant, out: &mut Vec<Action>) {
        let remote = &mut self.remotes[mirror];
        if remote.current.is_some() && !remote.went_back {
            // The target of a redirect died: the original link may lead to a living one.
            remote.went_back = true;
            remote.current = None;
            self.go_on(now, out);
            return;
        }
        remote.admission = Admission::Dropped(failure.clone());
        if self.only_mirror == Some(mirror) {
            self.only_mirror = None;
        }
        self.retry.progress();
        if self.remotes.iter().any(Remote::is_usable) {
            if self.remotes.len() > 1 {
                out.push(Action::Tell(EventKind::Notice { message: format!("leaving a mirror: {failure}") }));
            }
            self.after_leaving(now, out);
            return;
        }
        let failure = self.say_how_far(failure);
        self.give_up(self.of_all_mirrors(failure), out);
    }

    /// The last mirror's failure, with what the others had to say.
    fn of_all_mirrors(&self, last: Failure) -> Failure {
        let others: Vec<String> = self
            .remotes
            .iter()
            .filter_map(|remote| match &remote.admission {
                Admission::Dropped(failure) if failure.message != last.message => {
                    Some(failure.message.clone())
                }
                _ => None,
            })
            .take(4)
            .collect();
        if others.is_empty() || last.message.contains(&others[0]) {
            return last;
        }
        Failure { message: format!("{}; before that: {}", last.message, others.join("; ")), ..last }
    }

    fn after_leaving(&mut self, now: Instant, out: &mut Vec<Action>) {
        let can_join = |r: &Remote| r.is_usable() && !matches!(r.admission, Admission::Unprovable);
        if !self.have.is_empty() && !self.unconfirmed && !self.remotes.iter().any(can_join) {
            self.begin_again_from_the_others(now, out);
            return;
        }
        if self.choose_mirror(now).is_some() {
            self.go_on(now, out);
        } else {
            let until =
                self.remotes.iter().filter(|r| r.is_usable()).map(|r| r.not_before).min().unwrap_or(now);
            let failure = Failure::new(Code::NoMirrorLeft, "waiting for another mirror");
            self.state = State::Waiting { until, failure };
            out.push(Action::WakeAt(until));
        }
    }

    fn give_up(&mut self, failure: Failure, out: &mut Vec<Action>) {
        self.drop_all(out);
        self.state = State::Ended;
        out.push(Action::GiveUp(failure));
    }

    /// A lost connection says how much came: that is what a person wants to know.
    fn say_how_far(&self, failure: Failure) -> Failure {
        let cut = matches!(failure.code, Code::ConnectionLost | Code::EndedEarly | Code::Stalled);
        match self.length().filter(|_| cut) {
            Some(length) => Failure {
                message: format!(
                    "ended early, {} of {length} bytes are here: {}",
                    self.have.total(),
                    failure.message
                ),
                ..failure
            },
            None => failure,
        }
    }

    /// Goes back to before the answer that was being prepared for.
    fn unprepare(&mut self) {
        for remote in &mut self.remotes {
            remote.identity = None;
            if remote.is_admitted() {
                remote.admission = Admission::Unknown;
            }
        }
        self.codings.clear();
        self.server_digests.clear();
        self.answers = 0;
        self.all_validated = true;
        self.unrecorded = false;
        self.proving = None;
        self.start_from_found();
    }

    /// What may be recorded of the version of this run. While bytes from before are unproved it is
    /// nothing; after a proof by samples it is nothing that a later run would take for a proof.
    fn record(&self) -> Identity {
        let identity = self.identity.clone().unwrap_or_default();
        if self.unrecorded {
            Identity { length: identity.length, ..Identity::default() }
        } else if self.sampled {
            Identity { etag: None, date_is_strong: false, ..identity }
        } else {
            identity
        }
    }

    // ---- small things ---------------------------------------------------------------------------

    fn remove(&mut self, segment: SegmentId) -> Option<Fetch> {
        let fetch = self.fetches.remove(&segment)?;
        self.received_before += fetch.received;
        Some(fetch)
    }

    fn drop_all(&mut self, out: &mut Vec<Action>) {
        let all: Vec<SegmentId> = self.fetches.keys().copied().collect();
        for segment in all {
            out.push(Action::Drop { segment });
            self.remove(segment);
        }
        if let State::Preparing { held } = &mut self.state {
            *held = None;
        }
    }

    fn is_held(&self, segment: SegmentId) -> bool {
        matches!(&self.state, State::Preparing { held: Some((held, _)) } if *held == segment)
    }
}
