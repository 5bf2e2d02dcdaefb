//! How many connections are worth having, found by trying.
//!
//! - Two as soon as an answer shows a file that is large enough, and then twice as many as long as that brings
//!   [`GAIN`], each level measured once its newcomers have had time to come up to speed.
//! - Where an answer takes [`FAR`] or more, or less than [`SLOW`] comes, measuring each level would cost more time
//!   than it could save, and more connections cost neither end much: all that are allowed are asked for at once.
//!   What is slow shows long before it can be measured, so the two are looked at as soon as both are up to speed,
//!   and twice more, for the servers that begin with a burst.
//! - No gain in [`NO_GAIN`] measurements in a row: the line is full. Nobody is dropped, but no one is added
//!   beyond what sufficed; and one more is tried now and then, since lines change.
//! - On a full line each connection gets something all the time. Where one gets nothing for [`BURSTS`], a server
//!   holds a rate by bursts, between which nothing can be measured: all that are allowed are tried.
//! - Newcomers that bring next to nothing say that they are slow, and not that the line is full.
//! - A refusal ends it.

use std::time::{Duration, Instant};

/// The least time over which the speed is measured. (The turns of the clock that measure it are this long,
/// and are not exact.)
const SAMPLE: Duration = Duration::from_millis(90);

/// An answer that takes longer comes from far away.
const FAR: Duration = Duration::from_millis(50);

/// Where less comes in a second, all connections that are allowed may come at once: 32 Mbit/s.
const SLOW: f64 = 4.0 * 1024.0 * 1024.0;

/// How long connections deliver before they are looked at, or longer if they need that to come up to speed.
const LOOK: Duration = Duration::from_millis(10);

/// The wait for a first answer holds a round trip for the connection too: so many waits are twice as many.
const LOOK_AFTER: u32 = 3;

/// How long after that they are looked at again, for what came since then.
const LOOK_AGAIN: Duration = Duration::from_millis(25);

/// How often they are looked at.
const LOOKS: u32 = 3;

/// How many round trips a newcomer has to come up to speed.
const COMING_UP: u32 = 6;

/// What a level must bring, compared with the one before.
const GAIN: f64 = 1.1;

/// How many measurements in a row without gain show that there is none.
const NO_GAIN: u32 = 3;

/// A pause that shows bursts.
const BURSTS: Duration = Duration::from_millis(150);

/// The part of the speed that newcomers must have if it is they who are to show that the line is full.
const FAIR: f64 = 0.1;

/// When one more is tried after the line was found full; it doubles.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// What is known when a turn of the clock measures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub(super) now: Instant,
    /// Bytes received in all.
    pub(super) received: u64,
    /// Connections that deliver.
    pub(super) delivering: usize,
    /// Since when the youngest of them does.
    pub(super) all_since: Option<Instant>,
    /// The part of the speed that those have which came after the last step, from 0.0 to 1.0.
    pub(super) newcomers: f64,
    /// The longest that one of them brought nothing.
    pub(super) pause: Duration,
    /// A limit of ours holds somebody: that shows nothing of the line.
    pub(super) limited: bool,
    /// From asking to the first byte.
    pub(super) wait: Duration,
    /// The most connections that are wanted.
    pub(super) most: usize,
}

/// How far the trying has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ramp {
    target: usize,
    settled: bool,
    /// When this level was first asked for.
    stepped: Option<Instant>,
    /// The level before, and what it brought in bytes a second; 0.0 if that was not measured.
    before: (usize, f64),
    without_gain: u32,
    again: Option<Instant>,
    again_after: Duration,
    /// The beginning of the running measurement: when, and how much had come.
    since: Option<(Instant, u64)>,
    /// When the two are looked at next, how often yet, and since when and how much had come then.
    look: Option<Instant>,
    looks: u32,
    looked: Option<(Instant, u64)>,
}

impl Ramp {
    pub(super) fn new() -> Self {
        Self {
            target: 1,
            settled: false,
            stepped: None,
            before: (1, 0.0),
            without_gain: 0,
            again: None,
            again_after: TRY_AGAIN,
            since: None,
            look: None,
            looks: LOOKS,
            looked: None,
        }
    }

    /// How many are worth having, as far as is known.
    pub(super) fn target(&self) -> usize {
        self.target
    }

    /// When the last step was made, for telling newcomers.
    pub(super) fn stepped(&self) -> Option<Instant> {
        self.stepped
    }

    /// When a turn of the clock is wanted, beside those that come anyway.
    pub(super) fn look(&self) -> Option<Instant> {
        self.look
    }

    fn step(&mut self, to: usize, speed: f64, most: usize, now: Instant) {
        let to = to.min(most.max(1));
        if to > self.target {
            self.before = (self.target, speed);
            self.target = to;
            self.stepped = Some(now);
            self.without_gain = 0;
        } else {
            self.settled = true;
        }
    }

    /// An answer was accepted, of a file of which there is enough for more connections.
    pub(super) fn widen(&mut self, received: u64, wait: Duration, most: usize, now: Instant) {
        self.since.get_or_insert((now, received));
        if !self.settled && self.target < 2 {
            self.step(if wait >= FAR { most } else { 2 }, 0.0, most, now);
            self.looked = Some((now, received));
        }
        let is_new = !self.settled && self.target == 2 && self.looks == LOOKS;
        self.look = is_new.then(|| now + LOOK.max(wait * LOOK_AFTER)).or(self.look);
    }

    /// Another mirror may bring what those before could not.
    pub(super) fn another_mirror(&mut self, speed: f64, most: usize, now: Instant) {
        self.settled = false;
        self.step(self.target + 1, speed, most, now);
    }

    /// A limit of ours was lifted: where no gain was found, that may have been it.
    pub(super) fn limit_lifted(&mut self) {
        if self.again.take().is_some() {
            self.settled = false;
            self.before = (self.target, 0.0);
            self.without_gain = 0;
        }
    }

    /// A server refused: no more than are left.
    pub(super) fn refused(&mut self, left: usize) {
        self.settled = true;
        self.again = None;
        self.target = self.target.min(left).max(1);
    }

    /// A turn of the clock. Answers with the speed, in bytes a second, where it was measured.
    pub(super) fn measure(&mut self, m: Measured) -> Option<f64> {
        if self.look.is_some_and(|at| m.now >= at) {
            self.look = None;
            self.look_at(m);
        }
        let (since, received) = self.since.unwrap_or((m.now, m.received));
        let elapsed = m.now.saturating_duration_since(since);
        if self.since.is_some() && elapsed < SAMPLE {
            return None;
        }
        self.since = Some((m.now, m.received));
        if elapsed.is_zero() {
            return None;
        }
        let speed = m.received.saturating_sub(received) as f64 / elapsed.as_secs_f64();
        self.judge(m, since, speed);
        Some(speed)
    }

    /// Too early to measure, but not to see that little comes.
    fn look_at(&mut self, m: Measured) {
        let undecided = !self.settled && self.target == 2 && self.looks > 0;
        // Looked at again when the second one delivers.
        if !undecided || m.limited || m.delivering < self.target {
            return;
        }
        self.looks -= 1;
        let Some((since, received)) = self.looked.replace((m.now, m.received)) else { return };
        let elapsed = m.now.saturating_duration_since(since).as_secs_f64();
        if m.received.saturating_sub(received) as f64 >= SLOW * elapsed {
            self.look = (self.looks > 0).then(|| m.now + LOOK_AGAIN);
        } else if m.most > self.target {
            self.step(m.most, 0.0, m.most, m.now);
            self.since = Some((m.now, m.received));
        }
    }

    fn judge(&mut self, m: Measured, since: Instant, speed: f64) {
        if m.limited || m.delivering < self.target {
            return;
        }
        if self.settled {
            if m.delivering < m.most && self.again.is_some_and(|at| m.now >= at) {
                self.again = None;
                let sufficed = self.target;
                (self.settled, self.target) = (false, m.delivering);
                self.step(m.delivering + 1, speed, m.most, m.now);
                self.before.0 = sufficed;
            }
            return;
        }
        // Newcomers may miss the first part of what is measured.
        let missed = m.now.saturating_duration_since(since) / 4;
        let up = m.all_since.map(|at| at + m.wait * COMING_UP);
        if self.target < 2 || up.is_some_and(|up| up > since + missed) {
            return;
        }
        if speed > self.before.1 * GAIN {
            let to = if speed < SLOW { m.most } else { self.target * 2 };
            self.step(to, speed, m.most, m.now);
        } else if m.pause >= BURSTS {
            self.step(m.most, speed, m.most, m.now);
        } else if m.newcomers >= FAIR {
            self.without_gain += 1;
            if self.without_gain >= NO_GAIN {
                self.settled = true;
                self.target = self.before.0;
                self.again = Some(m.now + self.again_after);
                self.again_after *= 2;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test begins at some time")]
mod tests {
    use super::*;

    const TURN: Duration = Duration::from_millis(100);

    /// What a fast line brings in a second.
    const FAST: u64 = 100_000_000;

    /// Lets turns pass in which so many connections bring so much together.
    fn pass(ramp: &mut Ramp, at: &mut Measured, turns: u32, speed: u64) {
        for _ in 0..turns {
            at.now += TURN;
            at.received += speed / 10;
            at.delivering = ramp.target();
            let _ = ramp.measure(*at);
        }
    }

    fn begin(wait: Duration) -> (Ramp, Measured) {
        let now = Instant::now();
        let mut ramp = Ramp::new();
        ramp.widen(0, wait, 8, now);
        let at = Measured {
            now,
            received: 0,
            delivering: 1,
            all_since: None,
            newcomers: 0.5,
            pause: Duration::ZERO,
            limited: false,
            wait,
            most: 8,
        };
        (ramp, at)
    }

    #[test]
    fn twice_as_many_are_wanted_as_long_as_that_brings_more() {
        let (mut ramp, mut at) = begin(Duration::ZERO);
        for target in [2, 4, 8, 8, 8] {
            assert_eq!(ramp.target(), target);
            pass(&mut ramp, &mut at, 1, FAST * target as u64);
        }
    }

    #[test]
    fn a_full_line_needs_no_more_than_filled_it_and_is_tried_again_later_and_later() {
        let (mut ramp, mut at) = begin(Duration::ZERO);
        pass(&mut ramp, &mut at, 1 + NO_GAIN, FAST);
        assert_eq!(ramp.target(), 2);
        for wait in [100, 200, 400] {
            pass(&mut ramp, &mut at, wait - NO_GAIN, FAST);
            assert_eq!(ramp.target(), 2);
            pass(&mut ramp, &mut at, NO_GAIN, FAST);
            assert_eq!(ramp.target(), 3);
            pass(&mut ramp, &mut at, NO_GAIN, FAST);
            assert_eq!(ramp.target(), 2);
        }
    }

    #[test]
    fn nothing_is_concluded_from_newcomers_that_crawl_or_while_a_limit_holds() {
        let (mut ramp, mut at) = begin(Duration::ZERO);
        pass(&mut ramp, &mut at, 1, FAST);
        at.newcomers = 0.05;
        pass(&mut ramp, &mut at, 100, FAST);
        assert_eq!(ramp.target(), 4);
        (at.newcomers, at.limited) = (0.5, true);
        pass(&mut ramp, &mut at, 100, FAST);
        assert_eq!(ramp.target(), 4);
    }

    #[test]
    fn from_afar_and_where_it_comes_in_bursts_all_are_wanted_at_once() {
        assert_eq!(begin(FAR).0.target(), 8);
        let (mut ramp, mut at) = begin(Duration::ZERO);
        pass(&mut ramp, &mut at, 1, FAST);
        at.pause = BURSTS;
        pass(&mut ramp, &mut at, 1, FAST);
        assert_eq!(ramp.target(), 8);
    }

    /// Lets the clock turn when the ramp wants to look, so many bytes having come.
    fn look(ramp: &mut Ramp, at: &mut Measured, bytes: u64) {
        at.now = ramp.look().unwrap();
        at.received += bytes;
        let _ = ramp.measure(*at);
    }

    #[test]
    fn where_little_comes_all_are_wanted_at_the_first_look_and_none_after_it() {
        let (mut ramp, mut at) = begin(Duration::ZERO);
        at.delivering = 2;
        look(&mut ramp, &mut at, 20_000);
        assert_eq!((ramp.target(), ramp.look()), (8, None));
        // Nothing was measured before, so that a first measurement shows no lack of gain.
        pass(&mut ramp, &mut at, 100, 1000);
        assert_eq!(ramp.target(), 8);
    }

    #[test]
    fn a_burst_at_the_beginning_hides_a_slow_line_only_until_the_next_look() {
        let (mut ramp, mut at) = begin(Duration::ZERO);
        at.delivering = 2;
        look(&mut ramp, &mut at, 1 << 20);
        assert_eq!(ramp.target(), 2);
        look(&mut ramp, &mut at, 20_000);
        assert_eq!(ramp.target(), 8);
    }

    #[test]
    fn a_fast_line_is_looked_at_a_few_times_and_then_measured() {
        let (mut ramp, mut at) = begin(Duration::ZERO);
        at.delivering = 2;
        for _ in 0..LOOKS {
            look(&mut ramp, &mut at, FAST / 40);
            assert_eq!(ramp.target(), 2);
        }
        assert_eq!(ramp.look(), None);
    }

    #[test]
    fn nothing_is_seen_in_two_that_have_not_had_time_or_are_held_by_a_limit() {
        let wait = Duration::from_millis(20);
        let (mut ramp, mut at) = begin(wait);
        // The second one delivers later, and has round trips to make too.
        look(&mut ramp, &mut at, 1000);
        assert_eq!((ramp.target(), ramp.look()), (2, None));
        ramp.widen(at.received, wait, 8, at.now);
        assert_eq!(ramp.look(), Some(at.now + wait * LOOK_AFTER));
        (at.delivering, at.limited) = (2, true);
        look(&mut ramp, &mut at, 1000);
        assert_eq!(ramp.target(), 2);
    }

    #[test]
    fn after_a_refusal_none_is_added() {
        let (mut ramp, mut at) = begin(Duration::ZERO);
        pass(&mut ramp, &mut at, 1, FAST);
        ramp.refused(3);
        assert_eq!(ramp.target(), 3);
        pass(&mut ramp, &mut at, 1000, 9 * FAST);
        assert_eq!(ramp.target(), 3);
    }
}
