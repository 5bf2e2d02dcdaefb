//! What the end of a fetch means, and what a failure does to the rest.

use super::*;
use crate::retry::LONGEST_ASKED;

/// Connections that cannot be made so soon after others were lost are of the same outage.
const OUTAGE: Duration = Duration::from_secs(2);

/// A connection that brought as many bytes before it was cut is replaced at once.
const WORTH_A_CONNECTION: u64 = 256 << 10;

impl Transfer {
    pub(super) fn on_end(&mut self, segment: SegmentId, end: End, now: Instant, out: &mut Vec<Action>) {
        if !self.fetches.contains_key(&segment) {
            return;
        }
        match end {
            End::Finished { pos, whole_body, flat } => {
                self.finished(segment, pos, whole_body, flat, now, out)
            }
            End::Differs { at } => self.differs(segment, at, now, out),
            End::Failed(failure) => self.failed(segment, failure, now, out),
        }
        self.settle(out);
        self.replenish(now, out);
    }

    pub(super) fn finished(
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
        self.remove(segment);
        let open = self.length().is_none();
        // The end of a part says nothing of the end of the whole.
        if open && whole_body && fetch.range.is_none() && fetch.end == u64::MAX && self.have.run_end(0) >= pos
        {
            if self.have.total() > pos {
                let message = format!("{} bytes are here, the server has {pos}", self.have.total());
                self.begin_again_because(Failure::new(Code::Changed, message), now, out);
                return;
            }
            // The body ended as it should: now the length is known.
            if let Some(identity) = &mut self.identity {
                identity.length = Some(pos);
                self.codings.clear();
                Span::new(pos, u64::MAX).into_iter().for_each(|beyond| self.unproved.remove(beyond));
                out.push(Action::Learned(self.record()));
            }
            if self.have.is_empty() {
                self.finish(out);
            }
        } else if whole_body && pos < fetch.end && pos > fetch.start && fetch.range.is_some() {
            // Less than was asked: what came is kept, and no more is asked at a time.
            let brought = pos - fetch.start;
            let remote = &mut self.remotes[fetch.mirror];
            remote.cap = Some(brought.max(CRUMB));
            if brought < CRUMB {
                remote.crumbs += 1;
                if remote.crumbs >= MOST_CRUMBS {
                    remote.ranges = Some(false);
                }
            }
        } else if whole_body
            && fetch.range.is_none()
            && (self.remotes[fetch.mirror].ranges == Some(false) || !self.unproved.is_empty())
            && self.length().is_some_and(|length| pos < length)
        {
            let failure = Failure::new(Code::EndedEarly, "a part came where the whole was asked for");
            self.after_failure(&fetch, failure, now, out);
        } else if fetch.range.is_some() && pos.saturating_sub(fetch.start) >= CRUMB {
            // One that ends its answers at the borders of blocks gives a crumb now and then.
            let remote = &mut self.remotes[fetch.mirror];
            if remote.crumbs < MOST_CRUMBS {
                remote.crumbs = remote.crumbs.saturating_sub(1);
            }
        } else if whole_body && pos <= fetch.start && Some(pos) != self.length() {
            let failure = Failure::new(Code::EndedEarly, "the answer held nothing of what was asked for");
            self.after_failure(&fetch, failure, now, out);
        }
    }

    /// A fetch failed: first what it means for the mirror, then whether to wait or give up.
    pub(super) fn failed(
        &mut self,
        segment: SegmentId,
        failure: Failure,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        let Some(fetch) = self.remove(segment) else { return };
        self.keeps_outgrown |= self.outgrown > 0;
        if self.is_held(segment) {
            // Counted once the cold side is ready, so that nobody asks before.
            self.state = State::Preparing { held: None, lost: Some(Box::new((fetch, failure))) };
            return;
        }
        if let Kind::Window(window) = fetch.kind
            && let Some(sampling) = self.sampling_of(fetch.mirror)
        {
            sampling.put_back(window);
        }
        self.after_failure(&fetch, failure, now, out);
    }

    pub(super) fn after_failure(
        &mut self,
        fetch: &Fetch,
        failure: Failure,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        if let Remedy::Wait { on } = failure.remedy {
            self.drop_all(out);
            // It may lack it still or again: one connection finds that out as well as all.
            self.ramp = Ramp::new();
            self.state = State::Machine { failure: failure.clone() };
            out.push(Action::Tell(EventKind::Waiting { failure: failure.clone(), retry_in: Duration::ZERO }));
            out.push(Action::AwaitMachine { need: on, failure });
            return;
        }
        if failure.code == Code::TooLarge {
            // It is the file that is refused, and other mirrors have the same.
            self.give_up(failure, out);
            return;
        }
        let alone = self.fetches.is_empty();
        let asked = match failure.remedy {
            Remedy::Retry { after } => after,
            _ => None,
        };
        let ranged = fetch.range.is_some();
        let remote = &mut self.remotes[fetch.mirror];
        remote.last_failure = Some(failure.clone());
        match failure.code {
            // Ranges are refused: nothing of the kind is asked again in this run.
            Code::RangeMismatch | Code::RangesRefused if ranged && remote.ranges != Some(true) => {
                remote.ranges = Some(false);
            }
            Code::RangeMismatch | Code::RangesRefused if ranged => {
                remote.strikes += 1;
                if remote.strikes >= MOST_STRIKES {
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
    pub(super) fn secondary_failure(
        &mut self,
        fetch: &Fetch,
        failure: &Failure,
        asked: Option<Duration>,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        let alive = self.fetches.values().filter(|f| f.mirror == fetch.mirror).count();
        let first_wait = self.request.options.retry_wait;
        let pause =
            asked.unwrap_or(first_wait).min(LONGEST_ASKED).max(first_wait.min(Duration::from_millis(500)));
        let brought = fetch.pos.saturating_sub(fetch.start);
        let cut = matches!(failure.code, Code::ConnectionLost | Code::EndedEarly) && asked.is_none();
        if cut && fetch.accepted {
            self.remotes[fetch.mirror].lost = Some(now);
        }
        if cut && fetch.accepted && brought >= WORTH_A_CONNECTION {
            // Some servers cut every connection after a while: another one brings as much.
            return;
        }
        if alive == 0 {
            // Another mirror than those at work: what it lacks is no reason to slow them down.
            self.other_mirror_failed(fetch.mirror, failure, pause, now, out);
            return;
        }
        let remote = &mut self.remotes[fetch.mirror];
        let refused = match failure.code {
            Code::Busy => true,
            Code::NotFound | Code::Forbidden | Code::AuthRequired | Code::UnexpectedStatus => true,
            Code::ConnectFailed | Code::ConnectionLost | Code::ProtocolError => {
                let outage = remote.lost.is_some_and(|at| now.saturating_duration_since(at) < OUTAGE);
                !fetch.accepted && !outage
            }
            _ => false,
        };
        remote.not_before = remote.not_before.max(now + pause);
        if refused {
            if failure.code == Code::Busy || remote.refusals >= 2 {
                // Others that were asked with it may be accepted yet; each refusal leaves one less.
                remote.ceiling = remote.ceiling.min(alive.max(1));
                out.push(Action::HostLimit { url: fetch.url.clone(), connections: remote.ceiling });
            }
            remote.refusals += 1;
            if matches!(failure.code, Code::NotFound | Code::Forbidden | Code::AuthRequired) {
                // A link that is good for one request, perhaps: what is alive is all there will be.
                remote.ceiling = remote.ceiling.min(alive.max(1));
            }
            self.ramp.refused(alive);
        }
        out.push(Action::WakeAt(now + pause));
    }

    /// A mirror failed while others are at work.
    fn other_mirror_failed(
        &mut self,
        mirror: usize,
        failure: &Failure,
        pause: Duration,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        let remote = &mut self.remotes[mirror];
        if matches!(failure.remedy, Remedy::Elsewhere | Remedy::GiveUp) {
            if remote.current.take().is_some() && !remote.went_back {
                remote.went_back = true;
                return;
            }
            out.push(Action::Tell(EventKind::Notice { message: format!("leaving a mirror: {failure}") }));
            remote.admission = Admission::Dropped(failure.clone());
            return;
        }
        // Asked again more and more seldom, as long as the others bring the file.
        remote.refusals = (remote.refusals + 1).min(6);
        remote.not_before = now + pause.saturating_mul(1 << remote.refusals).min(LONGEST_ASKED);
        out.push(Action::WakeAt(remote.not_before));
    }

    pub(super) fn wait_or_leave(
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
        self.ramp = Ramp::new();
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
    pub(super) fn leave(&mut self, mirror: usize, failure: Failure, now: Instant, out: &mut Vec<Action>) {
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
    pub(super) fn of_all_mirrors(&self, last: Failure) -> Failure {
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

    pub(super) fn after_leaving(&mut self, now: Instant, out: &mut Vec<Action>) {
        if !self.have.is_empty() && !self.unconfirmed && !self.remotes.iter().any(|r| self.can_join(r)) {
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

    pub(super) fn give_up(&mut self, failure: Failure, out: &mut Vec<Action>) {
        self.drop_all(out);
        self.state = State::Ended;
        out.push(Action::GiveUp(failure));
    }

    /// A lost connection says how much came: that is what a person wants to know.
    pub(super) fn say_how_far(&self, failure: Failure) -> Failure {
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
    pub(super) fn unprepare(&mut self) {
        for remote in &mut self.remotes {
            remote.identity = None;
            if remote.is_admitted() {
                remote.admission = Admission::Unknown;
            }
        }
        self.codings.clear();
        self.server_digests.clear();
        self.standing = Standing::OneAnswer;
        self.unrecorded = false;
        self.proving = None;
        self.start_from_found();
    }
}
