//! What comparing and verifying mean: samples, mirrors, changes, digests.

use super::remote::{Admission, Remote};
use super::standing::Standing;
use super::{Action, Fetch, Kind, Ramp, SEAM, State, Transfer, Verified};
use crate::dice::Dice;
use crate::failure::{Code, Failure};
use crate::id::SegmentId;
use crate::message::EventKind;
use crate::proof::{Sampling, Verdict};
use crate::span::{Span, SpanSet};
use std::time::{Duration, Instant};

/// How many times a file may turn out to be another in one run before that is the failure.
const MOST_CHANGES: u32 = 1;

/// How many windows are compared at a time.
const WINDOWS_AT_ONCE: usize = 2;

/// A second mirror is looked at when this much is here to compare it with.
const ENOUGH_TO_COMPARE: u64 = 1 << 20;

impl Transfer {
    // ---- samples of the bytes from before -------------------------------------------------------

    pub(super) fn next_window(&mut self, now: Instant, out: &mut Vec<Action>) {
        for _ in 0..WINDOWS_AT_ONCE {
            if self.fetches.len() >= WINDOWS_AT_ONCE.min(self.allow) {
                return;
            }
            let Some(mirror) = self.choose_mirror(now) else { return };
            if self.remotes[mirror].ranges == Some(false) {
                // No windows then, but the whole: what is here is compared as it passes.
                if self.fetches.is_empty() {
                    let end = self.length().unwrap_or(u64::MAX);
                    self.fetch(mirror, Kind::Segment, None, None, (0, end), now, out);
                }
                return;
            }
            let Some(window) = self.proving.as_mut().and_then(Sampling::next_window) else { break };
            self.fetch_window(mirror, window, now, out);
        }
        self.conclude_proving(now, out);
    }

    /// The comparing that windows of this mirror are for: of the bytes from before, else of the mirror.
    pub(super) fn sampling_of(&mut self, mirror: usize) -> Option<&mut Sampling> {
        match (&mut self.proving, &mut self.remotes[mirror].admission) {
            (Some(sampling), _) => Some(sampling),
            (None, Admission::Sampling(sampling)) => Some(sampling),
            _ => None,
        }
    }

    fn fetch_window(&mut self, mirror: usize, window: Span, now: Instant, out: &mut Vec<Action>) {
        let range = Some((window.start(), Some(window.end())));
        let bounds = (window.start(), window.end());
        self.fetch(mirror, Kind::Window(window), range, None, bounds, now, out);
    }

    pub(super) fn window_ended(
        &mut self,
        mirror: usize,
        window: Span,
        pos: u64,
        flat: bool,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        // A server that gives less at a time gives smaller samples; a few bytes are none.
        let whole = pos >= window.end() || pos >= window.start() + SEAM;
        let Some(sampling) = self.sampling_of(mirror) else { return };
        if !whole {
            sampling.put_back(window);
            let failure = Failure::new(Code::EndedEarly, "the answer was shorter than what was asked for");
            let fetch = Fetch {
                mirror,
                url: self.remotes[mirror].url().clone(),
                kind: Kind::Window(window),
                hops: 0,
                range: Some((window.start(), Some(window.end()))),
                if_range: None,
                hedge: false,
                start: window.start(),
                end: window.end(),
                pos,
                accepted: true,
                received: 0,
                asked_at: now,
                last_heard: now,
                accepted_at: Some(now),
                counted_at: None,
                limited: false,
                outgrown: false,
                speed: 0.0,
                heard: self.flowing,
            };
            self.after_failure(&fetch, failure, now, out);
            return;
        }
        sampling.equal(flat);
        // Windows are finite, and each that was compared is compared for good.
        self.retry.progress();
        if matches!(self.state, State::Proving) {
            self.conclude_proving(now, out);
        } else {
            self.conclude_admission(mirror, now);
        }
    }

    fn conclude_proving(&mut self, now: Instant, out: &mut Vec<Action>) {
        let Some(sampling) = self.proving.as_ref().filter(|_| matches!(self.state, State::Proving)) else {
            return;
        };
        if self.fetches.values().any(|f| matches!(f.kind, Kind::Window(_))) {
            return;
        }
        match sampling.verdict() {
            Verdict::Open => {}
            Verdict::Alike => {
                self.unconfirmed = false;
                self.standing = Standing::Samples;
                self.unproved = SpanSet::new();
                self.proving = None;
                self.unrecorded = false;
                self.widen(now);
                // The bytes before each gap are still compared when the gap is fetched.
                self.prepare_proved(out);
            }
            Verdict::Unproved => {
                let message = "the bytes here are too alike everywhere to prove that they are of this file";
                self.begin_again_because(Failure::new(Code::Changed, message), now, out);
            }
        }
    }

    // ---- mirrors --------------------------------------------------------------------------------

    /// The mirror to ask next: admitted, not resting, with the fewest connections.
    pub(super) fn choose_mirror(&self, now: Instant) -> Option<usize> {
        let active = |mirror: usize| self.fetches.values().filter(|f| f.mirror == mirror).count();
        let fits = |mirror: &usize| {
            let remote = &self.remotes[*mirror];
            remote.is_usable()
                && now >= remote.not_before
                && active(*mirror) < remote.ceiling
                && self.only_mirror.is_none_or(|only| only == *mirror)
        };
        let all = 0..self.remotes.len();
        let admitted = all
            .clone()
            .filter(fits)
            .filter(|m| self.remotes[*m].is_admitted())
            .min_by_key(|m| (active(*m), *m));
        admitted.or_else(|| {
            let none_admitted = !self.remotes.iter().any(|r| r.is_usable() && r.is_admitted());
            // The first to answer shows which file it is; with bytes here it must prove itself.
            let free = none_admitted && (self.have.is_empty() || self.unconfirmed || self.identity.is_none());
            all.filter(fits).find(|m| free && !matches!(self.remotes[*m].admission, Admission::Dropped(_)))
        })
    }

    /// A mirror whose bytes should be compared now with those that are here.
    pub(super) fn mirror_to_admit(&self, now: Instant) -> Option<usize> {
        if self.length().is_none() || self.only_mirror.is_some() || self.have.is_empty() || self.is_strict() {
            return None;
        }
        let any_admitted = self.remotes.iter().any(|r| r.is_usable() && r.is_admitted());
        let enough = self.have.total() >= ENOUGH_TO_COMPARE || !any_admitted;
        if !enough {
            return None;
        }
        let busy = |mirror: usize| self.fetches.values().any(|f| f.mirror == mirror);
        (0..self.remotes.len())
            .filter(|m| now >= self.remotes[*m].not_before && !busy(*m))
            .find(|m| matches!(self.remotes[*m].admission, Admission::Unknown | Admission::Sampling(_)))
    }

    /// Whether there is a mirror of which nothing is known yet, or not enough.
    pub(super) fn has_mirror_to_admit(&self) -> bool {
        self.remotes.len() > 1
            && !self.is_strict()
            && self.only_mirror.is_none()
            && self.remotes.iter().any(|r| match &r.admission {
                Admission::Unknown => true,
                Admission::Sampling(sampling) => sampling.verdict() == Verdict::Open,
                _ => false,
            })
    }

    /// Compares one more window of a mirror's file with the bytes here.
    pub(super) fn admit(&mut self, mirror: usize, now: Instant, out: &mut Vec<Action>) -> bool {
        let length = self.length().unwrap_or_default();
        if matches!(self.remotes[mirror].admission, Admission::Unknown) {
            let seed = self.dice.next_u64();
            let sampling = Sampling::new(&self.have, length, Dice::new(seed)).brief();
            self.remotes[mirror].admission = Admission::Sampling(Box::new(sampling));
        }
        let Admission::Sampling(sampling) = &mut self.remotes[mirror].admission else { return false };
        match sampling.next_window() {
            Some(window) => {
                self.fetch_window(mirror, window, now, out);
                true
            }
            None => {
                self.conclude_admission(mirror, now);
                false
            }
        }
    }

    fn conclude_admission(&mut self, mirror: usize, now: Instant) {
        let Admission::Sampling(sampling) = &self.remotes[mirror].admission else { return };
        self.remotes[mirror].admission = match sampling.verdict() {
            Verdict::Open => return,
            Verdict::Alike => Admission::Admitted,
            // Digests will tell. (Either way its validator is no word on what others gave: see `join`.)
            Verdict::Unproved if self.has_digests() => Admission::Admitted,
            Verdict::Unproved => Admission::Unprovable,
        };
        if self.remotes[mirror].is_admitted() {
            // It may bring what the others could not: worth another connection, and another try.
            self.ramp.another_mirror(self.speed, self.request.options.connections, now);
        }
    }

    // ---- another file ---------------------------------------------------------------------------

    /// A byte on the disk is another than in an answer.
    pub(super) fn differs(&mut self, segment: SegmentId, at: u64, now: Instant, out: &mut Vec<Action>) {
        let Some(fetch) = self.remove(segment) else { return };
        let byte = Span::new(at, at + 1);
        let from_before = byte.is_some_and(|byte| self.from_before.covers(byte));
        let others_gave_it = self
            .remotes
            .iter()
            .enumerate()
            .any(|(index, r)| index != fetch.mirror && byte.is_some_and(|byte| r.supplied.covers(byte)));
        let newcomer = matches!(self.remotes[fetch.mirror].admission, Admission::Sampling(_));
        if newcomer || (others_gave_it && !from_before) {
            let message =
                format!("a mirror holds other bytes from {at} on: {}", crate::request::redact(&fetch.url));
            if newcomer && self.has_digests() {
                // Who of the two is right will be told by the digest; until then this one waits.
                self.remotes[fetch.mirror].admission = Admission::Unprovable;
                let message = format!("setting a mirror aside: {message}");
                out.push(Action::Tell(EventKind::Notice { message }));
                if !self.remotes.iter().any(|r| r.is_admitted()) {
                    self.begin_again_from_the_others(now, out);
                }
                return;
            }
            self.leave_for_good(fetch.mirror, Failure::new(Code::NotTheFile, message), now, out);
            return;
        }
        let failure = Failure::new(
            Code::Changed,
            format!("the bytes here and those of the server differ at byte {at}"),
        );
        if from_before {
            self.begin_again_because(failure, now, out);
        } else if self.changed(failure, None, out) {
            self.replenish(now, out);
        }
    }

    /// Whether bytes of this mirror could still be joined with those here.
    pub(super) fn can_join(&self, remote: &Remote) -> bool {
        match remote.admission {
            Admission::Admitted => true,
            // To compare with windows, the length must be known.
            Admission::Unknown | Admission::Sampling(_) => {
                !self.is_strict() && self.length().is_some() && self.only_mirror.is_none()
            }
            Admission::Unprovable | Admission::Dropped(_) => false,
        }
    }

    /// A mirror answers windows with the whole, so nothing can be compared but all of it.
    pub(super) fn set_aside(&mut self, mirror: usize, now: Instant, out: &mut Vec<Action>) {
        self.remotes[mirror].admission = Admission::Unprovable;
        let shown = crate::request::redact(self.remotes[mirror].url());
        let message = format!("setting a mirror aside: {shown} serves no ranges to compare it by");
        out.push(Action::Tell(EventKind::Notice { message }));
        if !self.remotes.iter().any(|r| self.can_join(r)) {
            self.begin_again_from_the_others(now, out);
        }
    }

    /// Only mirrors are left that could not be shown to have what is here.
    pub(super) fn begin_again_from_the_others(&mut self, now: Instant, out: &mut Vec<Action>) {
        let message = "the mirrors that are left cannot be shown to have the file of which this is a part";
        self.begin_again_because(Failure::new(Code::Changed, message), now, out);
    }

    fn leave_for_good(&mut self, mirror: usize, failure: Failure, now: Instant, out: &mut Vec<Action>) {
        self.remotes[mirror].current = None;
        let lost: Vec<SegmentId> =
            self.fetches.iter().filter(|(_, f)| f.mirror == mirror).map(|(segment, _)| *segment).collect();
        for segment in lost {
            out.push(Action::Drop { segment });
            self.remove(segment);
        }
        if self.fetches.is_empty() {
            self.remotes[mirror].went_back = true;
            self.leave(mirror, failure, now, out);
        } else {
            out.push(Action::Tell(EventKind::Notice { message: format!("leaving a mirror: {failure}") }));
            self.remotes[mirror].admission = Admission::Dropped(failure);
        }
    }

    /// The file is another now. `keep` is a fetch that is already about the new one. False when that
    /// has happened too often and the download has ended.
    pub(super) fn changed(
        &mut self,
        failure: Failure,
        keep: Option<SegmentId>,
        out: &mut Vec<Action>,
    ) -> bool {
        // Between two runs a file may change; in one run, once.
        if !self.unconfirmed || self.have != self.from_before {
            self.restarts += 1;
            if self.restarts > MOST_CHANGES {
                let message = format!("the file on the server keeps changing: {}", failure.message);
                self.give_up(Failure { message, ..failure }.with_remedy(crate::failure::Remedy::GiveUp), out);
                return false;
            }
        }
        let kept = keep.and_then(|segment| self.fetches.remove(&segment).map(|fetch| (segment, fetch)));
        self.drop_all(out);
        self.fetches.extend(kept);
        self.high_water = 0;
        self.forget_everything(failure, out);
        true
    }

    /// From the first byte, with whatever the server has.
    pub(super) fn begin_again_because(&mut self, failure: Failure, now: Instant, out: &mut Vec<Action>) {
        self.drop_all(out);
        self.forget_everything(failure, out);
        self.replenish(now, out);
    }

    fn forget_everything(&mut self, failure: Failure, out: &mut Vec<Action>) {
        if !self.have.is_empty() || !self.codings.is_empty() {
            out.push(Action::Tell(EventKind::Restarted { failure: failure.clone() }));
        }
        self.must_restart = Some(failure);
        self.found = super::Found::Nothing;
        self.unrecorded = false;
        self.wrote = false;
        self.proving = None;
        self.have = SpanSet::new();
        self.unproved = SpanSet::new();
        self.unconfirmed = false;
        self.identity = None;
        self.codings.clear();
        self.server_digests.clear();
        self.content_type = None;
        self.from_before = SpanSet::new();
        self.standing = Standing::OneAnswer;
        self.voice = None;
        self.asked_length = false;
        self.ramp = Ramp::new();
        for remote in &mut self.remotes {
            remote.identity = None;
            remote.supplied = SpanSet::new();
            if !matches!(remote.admission, Admission::Dropped(_)) {
                remote.admission = Admission::Unknown;
            }
        }
        self.state = State::Probing;
    }

    /// What is here cannot be joined with another answer: a decoded body, or strict mode without
    /// anything that vouches.
    pub(super) fn have_is_useless(&self) -> bool {
        let incomplete = self.length().is_none_or(|length| self.have.total() < length);
        incomplete && !self.have.is_empty() && (!self.codings.is_empty() || !self.may_join())
    }

    pub(super) fn begin_again(&mut self, now: Instant, out: &mut Vec<Action>) {
        let message = "what came before the interruption cannot be joined with another answer";
        self.begin_again_because(Failure::new(Code::Changed, message), now, out);
    }

    // ---- verifying ------------------------------------------------------------------------------

    pub(super) fn on_verified(&mut self, verified: Verified, now: Instant, out: &mut Vec<Action>) {
        if !matches!(self.state, State::Verifying) {
            return;
        }
        match verified {
            Verified::Right => self.state = State::Ended,
            Verified::Failed(failure) => match failure.remedy {
                crate::failure::Remedy::Wait { on } => {
                    self.state = State::Machine { failure: failure.clone() };
                    out.push(Action::Tell(EventKind::Waiting {
                        failure: failure.clone(),
                        retry_in: Duration::ZERO,
                    }));
                    out.push(Action::AwaitMachine { need: on, failure });
                }
                _ => self.give_up(failure, out),
            },
            Verified::BadPieces(spans) => self.bad_pieces(&spans, now, out),
            Verified::Wrong(failure) => self.wrong_whole(failure, now, out),
        }
    }

    /// Only these pieces are fetched again, from those who did not give them.
    fn bad_pieces(&mut self, spans: &[Span], now: Instant, out: &mut Vec<Action>) {
        let mut guilty = Vec::new();
        for (index, remote) in self.remotes.iter_mut().enumerate() {
            if spans.iter().any(|bad| remote.supplied.total_within(*bad) > 0) {
                guilty.push(index);
            }
            for bad in spans {
                remote.supplied.remove(*bad);
            }
        }
        for bad in spans {
            self.have.remove(*bad);
        }
        // What is left here has its digests: mirrors that were set aside may be compared with it.
        for remote in &mut self.remotes {
            if matches!(remote.admission, Admission::Unprovable) {
                remote.admission = Admission::Unknown;
            }
        }
        self.bad_rounds += 1;
        let count = spans.len();
        let failure = Failure::new(Code::PieceMismatch, format!("{count} pieces have the wrong digest"));
        let innocent = self.remotes.iter().enumerate().any(|(i, r)| r.is_usable() && !guilty.contains(&i));
        if innocent {
            for index in guilty {
                out.push(Action::Tell(EventKind::Notice { message: format!("leaving a mirror: {failure}") }));
                self.remotes[index].admission = Admission::Dropped(failure.clone());
                if self.only_mirror == Some(index) {
                    self.only_mirror = None;
                }
            }
        } else if self.bad_rounds > 2 {
            let message = format!("{count} pieces keep having the wrong digest");
            self.give_up(Failure::new(Code::DigestMismatch, message), out);
            return;
        }
        out.push(Action::Tell(EventKind::Notice { message: format!("fetching again: {failure}") }));
        self.high_water = 0;
        self.state = State::Fetching;
        self.replenish(now, out);
    }

    /// The whole is wrong, and it is not known where: from the beginning, one mirror at a time,
    /// unless all of it came from one mirror in one run; then that is what the mirror has.
    fn wrong_whole(&mut self, failure: Failure, now: Instant, out: &mut Vec<Action>) {
        let length = self.length().unwrap_or_default();
        let givers = self.remotes.iter().filter(|r| !r.supplied.is_empty()).count();
        let all_from_one = self.remotes.iter().position(|r| r.supplied.total() >= length);
        if let (Some(one), true) = (all_from_one, givers <= 1) {
            let tried_twice = self.bad_rounds > 0 && self.only_mirror == Some(one);
            self.remotes[one].admission = Admission::Dropped(failure.clone());
            self.only_mirror = None;
            if !self.remotes.iter().any(|r| r.is_usable()) || tried_twice && self.remotes.len() == 1 {
                self.give_up(failure, out);
                return;
            }
        }
        self.bad_rounds += 1;
        if self.bad_rounds > 1 + u32::try_from(self.remotes.len()).unwrap_or(u32::MAX) {
            self.give_up(failure, out);
            return;
        }
        self.only_mirror = self.remotes.iter().position(|r| r.is_usable());
        self.high_water = 0;
        self.begin_again_because(failure, now, out);
    }
}
