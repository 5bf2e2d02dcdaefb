//! What passing time shows: silence, crawling, speed.

use super::*;

impl Transfer {
    pub(super) fn on_tick(
        &mut self,
        counts: &[Count],
        disk_blocked: bool,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        self.disk_blocked = disk_blocked;
        for count in counts {
            self.count(*count, now);
        }
        let elapsed = self.last_tick.map_or(Duration::ZERO, |then| now.saturating_duration_since(then));
        self.last_tick = Some(now);
        // One hiccup is no rhythm: half of it is forgotten in some seven seconds.
        self.pause = self.pause.mul_f64(0.99);
        if self.fetches.values().any(|f| f.last_heard == now) {
            self.flowing += elapsed;
            let flowing = self.flowing;
            self.fetches.values_mut().filter(|f| f.last_heard == now).for_each(|f| f.heard = flowing);
        }
        if disk_blocked {
            // Time blocked in a write is nobody's silence, nor is what passed before that was clear.
            for fetch in self.fetches.values_mut() {
                fetch.last_heard = now;
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
                    self.replace_an_outgrown(now, out);
                    self.measure(now);
                }
                self.settle(out);
                self.replenish(now, out);
            }
            _ => {}
        }
    }

    pub(super) fn count(&mut self, count: Count, now: Instant) {
        let Some(fetch) = self.fetches.get_mut(&count.segment) else { return };
        if count.received > fetch.received && fetch.received > 0 && !fetch.limited && !self.disk_blocked {
            let pause = now.saturating_duration_since(fetch.last_heard);
            self.pause = if pause > LONGEST_PAUSE { self.pause } else { self.pause.max(pause) };
        }
        if count.received > fetch.received || count.limited {
            fetch.last_heard = now;
        }
        fetch.limited = count.limited;
        fetch.outgrown = count.outgrown;
        let began = fetch.accepted_at.unwrap_or(now);
        let since = fetch.counted_at.replace(now).map_or(began, |then| then.max(began));
        let since = now.saturating_duration_since(since);
        if !since.is_zero() && !self.disk_blocked {
            let (since, age) = (since.as_secs_f64(), now.saturating_duration_since(began).as_secs_f64());
            let rate = count.received.saturating_sub(fetch.received) as f64 / since;
            // All since it began, then the last second or so; a long gap between ticks counts whole.
            let weight = since / age.min(1.0).max(since);
            fetch.speed += (rate - fetch.speed) * weight;
        }
        fetch.received = fetch.received.max(count.received);
        let (kind, mirror, from, to) = (fetch.kind, fetch.mirror, fetch.pos, count.pos);
        fetch.pos = fetch.pos.max(count.pos);
        if let (false, Some(span)) = (matches!(kind, Kind::Window(_)), Span::new(from, to)) {
            self.landed(mirror, span);
        }
    }

    /// These bytes are on the disk and an answer of this run vouches for them.
    pub(super) fn landed(&mut self, mirror: usize, span: Span) {
        self.have.insert(span);
        self.unproved.remove(span);
        self.from_before.remove(span);
        self.remotes[mirror].supplied.insert(span);
        let total = self.have.total();
        if total > self.high_water {
            self.high_water = total;
            self.retry.progress();
            self.remotes[mirror].went_back = false;
        }
    }

    pub(super) fn drop_the_silent(&mut self, now: Instant, out: &mut Vec<Action>) {
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
    pub(super) fn replace_a_crawler(&mut self, now: Instant, out: &mut Vec<Action>) {
        // Where there is room for another anyway, that takes what the crawler should have brought; and where
        // there are more than are wanted, none would take its place.
        let busy =
            self.fetches.len() == self.allow.min(self.ramp.target().min(self.request.options.connections));
        if !matches!(self.state, State::Fetching) || !busy || self.replaced >= MOST_REPLACED {
            return;
        }
        let limited = self.fetches.values().any(|f| f.limited);
        let patience = PATIENCE.max(self.wait * 4);
        let crawler = self.with_running(now, |_, running| plan::crawler(running, patience));
        let Some(segment) = crawler.filter(|_| !limited) else { return };
        self.replaced += 1;
        if let Some(late) = self.fetches.get(&segment).filter(|f| !f.accepted) {
            // So late may answers be here: the next one is given more time.
            self.wait = self.wait.max(now.saturating_duration_since(late.asked_at));
        }
        out.push(Action::Drop { segment });
        self.remove(segment);
    }

    /// A connection that was opened under a narrower limit gives its place to one that can be as fast as it may
    /// be now: one at a time, the next only when the newcomer delivers, so that the others go on meanwhile; and
    /// none any more once that went wrong, for a server may have ceased to take new connections.
    pub(super) fn replace_an_outgrown(&mut self, now: Instant, out: &mut Vec<Action>) {
        // What is dropped must be had again from where it stopped.
        let Some(length) = self.length().filter(|_| matches!(self.state, State::Fetching) && self.may_join())
        else {
            return;
        };
        let settled = |f: &Fetch| {
            f.accepted && f.accepted_at.is_some_and(|at| now.saturating_duration_since(at) >= OUTGROWN_AFTER)
        };
        let may = !self.keeps_outgrown && self.outgrown < MOST_REPLACED && self.fetches.len() > 1;
        if !may || !self.fetches.values().all(settled) {
            return;
        }
        let left = |f: &Fetch| f.end.min(length).saturating_sub(f.pos);
        let mut outgrown = self.fetches.iter().filter(|(_, f)| {
            let remote = &self.remotes[f.mirror];
            let may_be_asked = remote.is_usable() && now >= remote.not_before;
            f.outgrown && remote.ranges == Some(true) && may_be_asked && left(f) > WORTH_REPLACING
        });
        let Some((segment, _)) = outgrown.next() else { return };
        let segment = *segment;
        self.outgrown += 1;
        out.push(Action::Drop { segment });
        self.remove(segment);
        // What was measured under the limit is no measure of the line.
        self.ramp.limit_lifted();
    }

    /// Measures what the line gives, and whether more connections are worth it.
    pub(super) fn measure(&mut self, now: Instant) {
        let typical = self.with_running(now, |_, running| {
            let typical = plan::typical_speed(running);
            typical.filter(|_| running.len() > 1)
        });
        if let Some(typical) = typical
            && self.fetches.len() * 2 > self.ramp.target()
        {
            self.usual = if self.usual == 0.0 { typical } else { self.usual * 0.8 + typical * 0.2 };
        }
        let stepped = self.ramp.stepped();
        let delivering = || self.fetches.values().filter(|f| f.accepted);
        let all: f64 = delivering().map(|f| f.speed).sum();
        let new: f64 = delivering().filter(|f| f.accepted_at > stepped).map(|f| f.speed).sum();
        let measured = Measured {
            now,
            received: self.received(),
            delivering: delivering().count(),
            all_since: delivering().filter_map(|f| f.accepted_at).max(),
            newcomers: if all > 0.0 { new / all } else { 0.0 },
            pause: delivering()
                .map(|f| now.saturating_duration_since(f.last_heard))
                .max()
                .unwrap_or_default()
                .max(self.pause),
            limited: self.fetches.values().any(|f| f.limited || f.outgrown),
            wait: self.wait,
            most: self.request.options.connections,
        };
        if let Some(speed) = self.ramp.measure(measured) {
            self.speed = if self.speed == 0.0 { speed } else { self.speed * 0.9 + speed * 0.1 };
        }
    }

    /// Ends fetches whose bytes have come another way, and the download when all are here.
    pub(super) fn settle(&mut self, out: &mut Vec<Action>) {
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
        if self.owes_proof() {
            self.doubt();
            return;
        }
        self.record_if_proved(out);
        let Some(length) = self.length().filter(|_| self.unproved.is_empty()) else { return };
        if Span::new(0, length).is_none_or(|all| self.have.covers(all)) {
            self.finish(out);
        }
    }

    /// Whether this fetch still compares bytes that rest on nothing else.
    pub(super) fn compares(&self, fetch: &Fetch) -> bool {
        fetch.range.is_none()
            && Span::new(fetch.pos, fetch.end).is_some_and(|left| self.unproved.total_within(left) > 0)
    }

    pub(super) fn finish(&mut self, out: &mut Vec<Action>) {
        self.drop_all(out);
        if std::mem::take(&mut self.unrecorded) {
            // A digest will tell.
            out.push(Action::Learned(self.record()));
        }
        self.state = State::Verifying;
        out.push(Action::Verify {
            identity: self.identity.clone().unwrap_or_default(),
            digests: self.server_digests.clone(),
            proof: self.standing.proof(),
        });
    }
}
