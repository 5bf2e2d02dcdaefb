//! How long to wait between attempts, and when to stop.

use crate::dice::Dice;
use std::time::{Duration, Instant};

/// The longest wait of our own choosing.
const LONGEST: Duration = Duration::from_secs(60);

/// While every connection fails, the wait stays short for this long: networks come back.
const OUTAGE_PATIENCE: Duration = Duration::from_secs(60);
const OUTAGE_WAIT: Duration = Duration::from_secs(2);

/// A server that asks for more than this is not waited for.
pub const LONGEST_ASKED: Duration = Duration::from_secs(15 * 60);

/// Attempts without progress, and the wait before the next.
///
/// An attempt is one round in which nothing was alive any more, not one connection: eight
/// connections cut together are one failure. Progress, which is bytes not had before, starts anew.
#[derive(Clone, Debug)]
pub struct Retry {
    allowed: u32,
    first_wait: Duration,
    failures: u32,
    since: Option<Instant>,
}

impl Retry {
    /// `allowed` attempts beyond the first, the first after `first_wait`.
    pub fn new(allowed: u32, first_wait: Duration) -> Self {
        Self { allowed, first_wait, failures: 0, since: None }
    }

    /// Bytes came that were not here before.
    pub fn progress(&mut self) {
        self.failures = 0;
        self.since = None;
    }

    /// Everything has failed. How long to wait, or `None` when the attempts are used up.
    ///
    /// `asked` is what the server asked for (`Retry-After`), which is kept unless it is absurd.
    pub fn failed(&mut self, asked: Option<Duration>, now: Instant, dice: &mut Dice) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        let since = *self.since.get_or_insert(now);
        if self.failures > self.allowed || asked.is_some_and(|asked| asked > LONGEST_ASKED) {
            return None;
        }
        let longest = if now.saturating_duration_since(since) < OUTAGE_PATIENCE {
            OUTAGE_WAIT.max(self.first_wait)
        } else {
            LONGEST
        };
        Some(self.backoff(self.failures, longest, dice).max(asked.unwrap_or_default()))
    }

    /// The wait before the `n`-th attempt (from 1), at most `longest`, with a fifth of jitter upwards.
    fn backoff(&self, n: u32, longest: Duration, dice: &mut Dice) -> Duration {
        let doubled = self.first_wait.saturating_mul(1u32 << n.saturating_sub(1).min(16));
        // Jitter keeps many clients of one server from coming back in step; never earlier than said.
        doubled.min(longest).mul_f64(1.0 + dice.fraction() / 5.0)
    }

    /// How many failures there were since the last progress.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test begins at some time")]
mod tests {
    use super::*;

    #[test]
    fn attempts_count_only_without_progress() {
        let (mut retry, mut dice, now) =
            (Retry::new(2, Duration::from_secs(1)), Dice::new(1), Instant::now());
        for _ in 0..10 {
            assert!(retry.failed(None, now, &mut dice).is_some());
            assert!(retry.failed(None, now, &mut dice).is_some());
            retry.progress();
        }
        assert!(retry.failed(None, now, &mut dice).is_some());
        assert!(retry.failed(None, now, &mut dice).is_some());
        assert_eq!(retry.failed(None, now, &mut dice), None);
    }

    #[test]
    fn the_wait_is_short_in_the_first_minute_and_longer_later() {
        let (mut retry, mut dice, now) =
            (Retry::new(100, Duration::from_secs(1)), Dice::new(1), Instant::now());
        let mut at = now;
        let mut longest = Duration::ZERO;
        while at < now + Duration::from_secs(58) {
            let wait = retry.failed(None, at, &mut dice).unwrap();
            assert!(wait >= Duration::from_secs(1) && wait <= Duration::from_millis(2_400), "{wait:?}");
            at += wait;
        }
        at = now + Duration::from_secs(120);
        for _ in 0..10 {
            longest = longest.max(retry.failed(None, at, &mut dice).unwrap());
        }
        assert!(longest >= Duration::from_secs(60) && longest <= Duration::from_secs(72), "{longest:?}");
    }

    #[test]
    fn what_the_server_asks_is_kept_unless_it_is_absurd() {
        let (mut retry, mut dice, now) =
            (Retry::new(9, Duration::from_secs(1)), Dice::new(1), Instant::now());
        let asked = Duration::from_secs(90);
        assert!(retry.failed(Some(asked), now, &mut dice).unwrap() >= asked);
        assert_eq!(retry.failed(Some(Duration::from_secs(86_400)), now, &mut dice), None);
    }
}
