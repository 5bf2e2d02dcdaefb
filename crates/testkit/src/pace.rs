//! Rates held by a timetable: a byte's time to leave is known in advance, so nobody turns round.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How much lateness is caught up. More would let a burst through after a pause.
const CATCH_UP: Duration = Duration::from_millis(50);

/// Bytes per second; at least one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rate(u64);

impl Rate {
    /// A rate in bytes per second. Zero becomes one: use [`crate::Ending::Stall`] for silence.
    pub fn bytes(per_second: u64) -> Self {
        Self(per_second.max(1))
    }

    /// A rate in KiB per second.
    pub fn kib(per_second: u64) -> Self {
        Self::bytes(per_second.saturating_mul(1024))
    }

    /// A rate in MiB per second.
    pub fn mib(per_second: u64) -> Self {
        Self::bytes(per_second.saturating_mul(1 << 20))
    }

    /// Bytes per second.
    pub fn per_second(self) -> u64 {
        self.0
    }

    /// The time that `bytes` take.
    pub fn time_for(self, bytes: u64) -> Duration {
        Duration::from_nanos(
            u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(self.0)).unwrap_or(u64::MAX),
        )
    }

    /// A write small enough that bytes leave at least 20 times a second.
    pub(crate) fn grain(self) -> usize {
        usize::try_from(self.0 / 20).unwrap_or(usize::MAX).max(1)
    }
}

/// Who shares a rate.
#[derive(Clone, Debug)]
pub enum Pace {
    /// Each response has it for itself.
    Response(Rate),
    /// Each connection has it for itself, over all its responses.
    Connection(Rate),
    /// All responses that carry the same pacer share it.
    Shared(Arc<Pacer>),
}

/// The timetable of one rate. Sharing it shares the rate, in order of asking.
#[derive(Debug)]
pub struct Pacer {
    rate: Rate,
    next: Mutex<Option<Instant>>,
}

impl Pacer {
    /// A timetable that begins with the first byte asked for.
    pub fn new(rate: Rate) -> Arc<Self> {
        Arc::new(Self { rate, next: Mutex::new(None) })
    }

    /// The rate that it holds.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Books `bytes` and returns when they may leave. Being a little late is made up for, so the rate
    /// is held over time; an idle pacer saves nothing up.
    pub fn book(&self, bytes: u64, now: Instant) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let at = match *next {
            Some(next) if next >= now => next,
            // Late by less than the catch-up: keep to the old timetable.
            Some(next) if now.duration_since(next) <= CATCH_UP => next,
            Some(_) | None => now,
        };
        // An absurdly slow rate saturates at a day, which no test waits for.
        let time = self.rate.time_for(bytes).min(Duration::from_secs(86_400));
        *next = Some(at + time);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_at_the_rate_and_lateness_is_made_up_for() {
        let pacer = Pacer::new(Rate::bytes(1000));
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(pacer.book(100, start), start);
        assert_eq!(pacer.book(100, after(10)), after(100));
        assert_eq!(pacer.book(100, after(240)), after(200), "40 ms late: the timetable stays");
        assert_eq!(pacer.book(100, after(5000)), after(5000), "idle time is not saved up");
        assert_eq!(pacer.book(100, after(5000)), after(5100));
    }

    #[test]
    fn a_shared_pacer_gives_all_its_users_the_rate_together() {
        let pacer = Pacer::new(Rate::kib(1));
        let start = Instant::now();
        let last = (0..9).map(|_| pacer.book(128, start)).max().unwrap();
        assert_eq!(last, start + Duration::from_secs(1));
    }

    #[test]
    fn extreme_rates_do_not_overflow() {
        let start = Instant::now();
        let slow = Pacer::new(Rate::bytes(0));
        slow.book(u64::MAX, start);
        assert_eq!(slow.book(1, start), start + Duration::from_secs(86_400));
        assert_eq!(Rate::mib(u64::MAX).grain(), usize::try_from(u64::MAX / 20).unwrap());
        assert_eq!(Rate::bytes(1).grain(), 1);
    }
}
