//! What to ask for next, and from whom.

use super::*;

impl Transfer {
    /// Finds out what to do next from nothing running.
    pub(super) fn go_on(&mut self, now: Instant, out: &mut Vec<Action>) {
        if self.owes_proof() {
            self.doubt();
        } else if self.fetches.is_empty() {
            self.state = match self.identity {
                Some(_) if self.unconfirmed && self.proving.is_some() => State::Proving,
                Some(_) if self.unconfirmed => State::Probing,
                Some(_) => State::Fetching,
                None => State::Probing,
            };
        }
        self.settle(out);
        self.replenish(now, out);
    }

    /// Starts as many fetches as are allowed and worth it.
    pub(super) fn replenish(&mut self, now: Instant, out: &mut Vec<Action>) {
        match &self.state {
            State::Probing if self.fetches.is_empty() && self.allow > 0 => self.probe(now, out),
            State::Proving => self.next_window(now, out),
            // While the disk takes nothing, more connections would only bring what cannot be written.
            State::Fetching if self.disk_blocked && !self.fetches.is_empty() => {}
            State::Fetching => {
                // Each turn starts at most one fetch; the bound only guards against a rule that loops.
                for _ in 0..64 {
                    if !self.start_one(now, out) {
                        break;
                    }
                }
                self.wait_if_nobody_may_be_asked(now, out);
            }
            _ => {}
        }
    }

    /// The request that shows which file it is.
    pub(super) fn probe(&mut self, now: Instant, out: &mut Vec<Action>) {
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

    /// The last fetch ended and no other can begin: every mirror rests, since it failed or asked for that
    /// beside the others, which is a wait like any other and is told; or none is left that could go on.
    fn wait_if_nobody_may_be_asked(&mut self, now: Instant, out: &mut Vec<Action>) {
        if !matches!(self.state, State::Fetching) || !self.fetches.is_empty() || self.allow == 0 {
            return;
        }
        let usable = || self.remotes.iter().filter(|r| r.is_usable());
        if !self.have.is_empty() && usable().next().is_some() && !usable().any(|r| self.can_join(r)) {
            // Those that are left can neither go on with what is here nor be compared with it.
            self.begin_again_from_the_others(now, out);
            return;
        }
        let first = usable().filter(|r| self.can_join(r)).min_by_key(|r| r.not_before);
        let Some(until) = first.map(|r| r.not_before).filter(|until| *until > now) else { return };
        let failure = first.and_then(|r| r.last_failure.clone());
        let failure = failure.unwrap_or_else(|| Failure::new(Code::Busy, "waiting for a server"));
        let retry_in = until.saturating_duration_since(now);
        out.push(Action::Tell(EventKind::Waiting { failure: failure.clone(), retry_in }));
        self.state = State::Waiting { until, failure };
        out.push(Action::WakeAt(until));
    }

    /// Starts one more fetch if it is allowed and worth it.
    pub(super) fn start_one(&mut self, now: Instant, out: &mut Vec<Action>) -> bool {
        if !self.unproved.is_empty() {
            // Somebody is comparing everything that is here.
            return false;
        }
        let many = self.length().is_some() && self.codings.is_empty() && self.may_join();
        let target = if many { self.ramp.target().min(self.request.options.connections) } else { 1 };
        let most = self.allow.min(target);
        let room = self.fetches.len() < self.allow.min(self.request.options.connections);
        // Beside those that are at work, or no mirror would ever be looked at.
        if let Some(mirror) = self.mirror_to_admit(now).filter(|_| many && room) {
            return self.admit(mirror, now, out);
        }
        if self.fetches.len() >= most {
            return self.ask_for_length(now, out);
        }
        if self.fetches.is_empty() && self.have_is_useless() {
            self.begin_again(now, out);
            return false;
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
        let terms = Terms {
            min_split: self.request.options.min_split,
            usual: self.usual,
            wait: self.wait,
            idle: most - self.fetches.len(),
        };
        let pick = self.with_running(now, |this, running| plan::pick(length, &this.have, running, &terms));
        let (span, hedge) = match pick {
            Some(Pick::Gap(span) | Pick::Split { span, .. }) => (span, false),
            Some(Pick::Hedge { span, .. }) => (span, true),
            None => return false,
        };
        let end = self.remotes[mirror].cap.map_or(span.end(), |cap| span.end().min(span.start() + cap));
        self.fetch_segment(mirror, (span.start(), end), hedge, now, out);
        true
    }

    pub(super) fn fetch_segment(
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
            if self.from_before.is_empty() { start } else { proof::overlap_start(&self.have, start, length) };
        let to = if self.has_digests() { end } else { end.saturating_add(SEAM).min(length) };
        let range = Some((from, Some(to)));
        self.fetch(mirror, Kind::Segment, range, self.validator(mirror), (start, end), now, out);
        if hedge && let Some(fetch) = self.fetches.values_mut().next_back() {
            fetch.hedge = true;
        }
    }

    /// The validator to send, where this mirror is known to keep to it.
    pub(super) fn validator(&self, mirror: usize) -> Option<String> {
        let remote = &self.remotes[mirror];
        remote.identity.as_ref().and_then(Identity::if_range).filter(|_| remote.if_range)
    }

    /// A body of unknown length may still be one that is served in ranges, and then a range tells
    /// the length: asked once, when enough has come to show that the file is not small.
    pub(super) fn ask_for_length(&mut self, now: Instant, out: &mut Vec<Action>) -> bool {
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
        let start = first.pos.saturating_add(min_split.saturating_mul(2));
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
    pub(super) fn fetch(
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
            counted_at: None,
            limited: false,
            outgrown: false,
            speed: 0.0,
            heard: self.flowing,
        };
        self.send(fetch, out);
    }

    pub(super) fn send(&mut self, fetch: Fetch, out: &mut Vec<Action>) {
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
}
