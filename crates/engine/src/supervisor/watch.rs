//! When a process is started again, and when one that says nothing is taken for dead. Told the time; does nothing.

use std::time::{Duration, Instant};

/// How often a process is asked whether it is alive.
const PING_EVERY: Duration = Duration::from_secs(1);

/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// When nobody looked for so long, it was this process that stood still.
const GAP: Duration = Duration::from_secs(2);

/// How long one may take to be locked down and ready.
const TO_START: Duration = Duration::from_secs(10);

/// How long one must have run for the next to be started at once: much longer than starting one takes.
const LONG_ENOUGH: Duration = Duration::from_millis(250);

/// How long the next one is waited with, the more often one ended soon.
const WAITS: [Duration; 7] = [
    Duration::ZERO,
    Duration::ZERO,
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(10),
];

/// After so many that were never ready there will be no other.
const MOST_FAILED: u32 = 5;

/// What is to be done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Act {
    /// Nothing before this time.
    Wait(Option<Instant>),
    /// Start a process.
    Start,
    /// Ask it whether it is alive.
    Ping,
    /// End it: it hangs.
    Kill,
    /// There will be no other.
    GiveUp,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Waiting { until: Instant },
    Starting { since: Instant },
    Running { since: Instant, ping: Ping },
    GivenUp,
}

#[derive(Clone, Copy, Debug)]
enum Ping {
    /// It was alive then.
    Answered(Instant),
    /// For so long an answer was waited for, as far as this process itself ran.
    Asked(Duration),
}

/// Watches one process after the other.
#[derive(Debug)]
pub(super) struct Watch {
    state: State,
    /// How many ended soon, in a row, and how many of them were never ready.
    soon: usize,
    failed: u32,
    looked: Instant,
    asked: Instant,
}

impl Watch {
    pub(super) fn new(now: Instant) -> Self {
        Self { state: State::Waiting { until: now }, soon: 0, failed: 0, looked: now, asked: now }
    }

    /// A process was started, or one that had been is taken.
    pub(super) fn started(&mut self, now: Instant) {
        self.state = State::Starting { since: now };
    }

    /// It is locked down and ready.
    pub(super) fn ready(&mut self, now: Instant) {
        self.failed = 0;
        self.state = State::Running { since: now, ping: Ping::Answered(now) };
    }

    /// It has answered.
    pub(super) fn answered(&mut self, now: Instant) {
        if let State::Running { ping, .. } = &mut self.state {
            *ping = Ping::Answered(now);
        }
    }

    /// It has ended, or could not be started; `by_us` if that was not its own doing.
    pub(super) fn ended(&mut self, by_us: bool, now: Instant) {
        match self.state {
            State::Running { .. } if by_us => self.soon = 0,
            State::Running { since, .. } if now.saturating_duration_since(since) >= LONG_ENOUGH => {
                self.soon = 0
            }
            State::Running { .. } => self.soon += 1,
            State::Starting { .. } | State::Waiting { .. } => {
                self.soon += 1;
                self.failed += 1;
            }
            State::GivenUp => return,
        }
        let wait = WAITS[self.soon.saturating_sub(1).min(WAITS.len() - 1)];
        self.state =
            if self.failed >= MOST_FAILED { State::GivenUp } else { State::Waiting { until: now + wait } };
    }

    /// What is to be done now. `used` says whether anybody would miss it.
    pub(super) fn look(&mut self, used: bool, now: Instant) -> Act {
        let passed = now.saturating_duration_since(self.looked);
        self.looked = now;
        match &mut self.state {
            State::GivenUp => Act::GiveUp,
            State::Waiting { until } if now >= *until => Act::Start,
            State::Waiting { until } => Act::Wait(Some(*until)),
            State::Starting { since } => {
                if passed >= GAP {
                    *since += passed;
                }
                let until = *since + TO_START;
                // Often enough to know that this process itself runs.
                if now >= until { Act::Kill } else { Act::Wait(Some(until.min(now + PING_EVERY))) }
            }
            State::Running { ping, .. } => match ping {
                Ping::Answered(_) if !used => Act::Wait(None),
                Ping::Answered(at) if now.saturating_duration_since(*at) >= PING_EVERY => {
                    *ping = Ping::Asked(Duration::ZERO);
                    self.asked = now;
                    Act::Ping
                }
                Ping::Answered(at) => Act::Wait(Some(*at + PING_EVERY)),
                Ping::Asked(waited) => {
                    if passed < GAP {
                        *waited += passed;
                    }
                    if *waited >= PATIENCE {
                        return Act::Kill;
                    }
                    if now.saturating_duration_since(self.asked) >= PING_EVERY {
                        // The first may not have reached it: somebody else was saying something.
                        self.asked = now;
                        return Act::Ping;
                    }
                    // As above.
                    Act::Wait(Some(now + PING_EVERY.min(PATIENCE - *waited)))
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn one_that_does_not_answer_for_five_seconds_is_ended_unless_it_was_us_who_stood_still() {
        let start = Instant::now();
        let mut watch = Watch::new(start);
        assert_eq!(watch.look(true, start), Act::Start);
        watch.started(start);
        watch.ready(start);
        assert_eq!(watch.look(true, start), Act::Wait(Some(start + PING_EVERY)));
        assert_eq!(watch.look(true, start + seconds(1)), Act::Ping);
        // A lid that was closed for an hour.
        let hour = start + seconds(3600);
        assert_eq!(
            watch.look(true, hour),
            Act::Ping,
            "it is asked again: the question may not have reached it"
        );
        for n in 1..5 {
            assert_eq!(watch.look(true, hour + seconds(n)), Act::Ping, "{n}");
        }
        assert_eq!(watch.look(true, hour + seconds(5)), Act::Kill);
    }

    #[test]
    fn one_that_answers_is_left_alone_and_one_that_nobody_uses_is_not_asked() {
        let mut now = Instant::now();
        let mut watch = Watch::new(now);
        watch.started(now);
        watch.ready(now);
        for _ in 0..100 {
            now += seconds(1);
            assert_eq!(watch.look(true, now), Act::Ping);
            watch.answered(now);
        }
        now += seconds(100);
        assert_eq!(watch.look(false, now), Act::Wait(None));
        assert_eq!(watch.look(true, now), Act::Ping);
    }

    #[test]
    fn the_more_often_one_ends_soon_the_longer_the_next_is_waited_with_and_one_that_ran_long_is_followed_at_once()
     {
        let mut now = Instant::now();
        let mut watch = Watch::new(now);
        let mut waits = Vec::new();
        for _ in 0..9 {
            watch.started(now);
            watch.ready(now);
            watch.ended(false, now);
            let Act::Wait(Some(until)) = watch.look(true, now) else {
                waits.push(Duration::ZERO);
                continue;
            };
            waits.push(until - now);
            now = until;
        }
        assert_eq!(waits[..7], WAITS);
        assert_eq!(waits[7..], [WAITS[6]; 2]);
        watch.started(now);
        watch.ready(now);
        now += LONG_ENOUGH;
        watch.ended(false, now);
        assert_eq!(watch.look(true, now), Act::Start);
    }

    #[test]
    fn where_none_becomes_ready_there_are_no_others() {
        let mut now = Instant::now();
        let mut watch = Watch::new(now);
        let mut started = 0;
        loop {
            match watch.look(true, now) {
                Act::Start => {
                    started += 1;
                    watch.started(now);
                    watch.ended(false, now);
                }
                Act::Wait(Some(until)) => now = until,
                Act::GiveUp => break,
                act => panic!("{act:?}"),
            }
        }
        assert_eq!(started, MOST_FAILED);
        assert_eq!(watch.look(true, now + seconds(3600)), Act::GiveUp);
    }

    #[test]
    fn one_that_never_becomes_ready_is_ended() {
        let now = Instant::now();
        let mut watch = Watch::new(now);
        watch.started(now);
        let mut at = now;
        while at < now + TO_START {
            let Act::Wait(Some(until)) = watch.look(true, at) else { panic!("{:?}", at - now) };
            at = until;
        }
        assert_eq!(watch.look(true, at), Act::Kill);
    }
}
