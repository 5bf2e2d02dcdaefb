//! Rates: the token bucket, and how several users share the same ones fairly.
//!
//! Time is told, in nanoseconds since any fixed moment. A clock that goes backwards is as good as
//! one that stands still.

mod fair_share;

pub use fair_share::{ConnectionId, FairShare, Grant};

/// Nanoseconds in a second: a bucket counts in billionths of a byte, so that nothing is rounded away.
const SECOND: u128 = 1_000_000_000;

/// Lets bytes through at a rate: in any time `t`, at most `rate × t + burst`.
///
/// It begins empty, so setting a limit never lets a burst through, and it is never negative: nobody
/// pays for what another took.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate: u64,
    /// Billionths of bytes, at most `burst` bytes.
    level: u128,
    /// When `level` was true.
    at: u64,
}

impl TokenBucket {
    /// An empty bucket that fills at `rate` bytes a second; 0 counts as 1.
    pub fn new(rate: u64, now: u64) -> Self {
        Self { rate: rate.max(1), level: 0, at: now }
    }

    /// Bytes a second, at least 1.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// The most bytes that it holds, at least 1: 40 ms worth, and up to half a second worth (but no
    /// more than 8 KiB) so that a slow rate need not be served byte by byte.
    pub fn burst(&self) -> u64 {
        self.rate / 25 + 2 * (self.rate / 4).min(4096) + 1
    }

    /// Changes the rate from now on; 0 counts as 1. What is there stays, up to the new burst.
    pub fn set_rate(&mut self, rate: u64, now: u64) {
        self.refill(now);
        self.rate = rate.max(1);
        self.level = self.level.min(self.brim());
    }

    /// Lets in what has come since the last time.
    pub fn refill(&mut self, now: u64) {
        if let Some(elapsed) = now.checked_sub(self.at) {
            // Two 64-bit factors fit; what is above the brim is lost in any case.
            let come = u128::from(self.rate) * u128::from(elapsed);
            self.level = self.level.saturating_add(come).min(self.brim());
            self.at = now;
        }
    }

    /// Whole bytes that can be taken now, as of the last [`refill`](Self::refill).
    pub fn available(&self) -> u64 {
        u64::try_from(self.level / SECOND).unwrap_or(u64::MAX)
    }

    /// Takes up to `bytes`, as much as is there; tells how much.
    pub fn take(&mut self, bytes: u64) -> u64 {
        let taken = bytes.min(self.available());
        self.level -= u128::from(taken) * SECOND;
        taken
    }

    /// Puts back bytes that were taken and not used. What does not fit is lost, as it would have been
    /// had it not been taken.
    pub fn give_back(&mut self, bytes: u64) {
        self.level = (self.level + u128::from(bytes) * SECOND).min(self.brim());
    }

    /// When `bytes` could be taken if nobody takes any before, even if they are more than it can hold;
    /// never before the last refill.
    pub fn ready_at(&self, bytes: u64) -> u64 {
        let missing = (u128::from(bytes) * SECOND).saturating_sub(self.level);
        let wait = missing.div_ceil(u128::from(self.rate));
        self.at.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX))
    }

    fn brim(&self) -> u128 {
        u128::from(self.burst()) * SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_rate() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), Just(1), Just(u64::MAX), 1..=1_000_000_u64, any::<u64>()]
    }

    proptest! {
        #[test]
        fn no_window_lets_through_more_than_the_rate_and_a_burst(
            rate in any_rate(),
            steps in prop::collection::vec((0..2_000_000_000_u64, any::<u64>()), 1..60),
        ) {
            let mut bucket = TokenBucket::new(rate, 0);
            let mut now = 0_u64;
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (wait, bytes) in steps {
                now += wait;
                bucket.refill(now);
                taken.push((now, bucket.take(bytes)));
            }
            for (from, &(start, _)) in taken.iter().enumerate() {
                let mut sum = 0_u128;
                for &(end, bytes) in &taken[from..] {
                    sum += u128::from(bytes);
                    let allowed = u128::from(rate.max(1)) * u128::from(end - start) / SECOND
                        + u128::from(bucket.burst());
                    prop_assert!(sum <= allowed, "{sum} > {allowed}");
                }
            }
        }

        #[test]
        fn whoever_comes_when_told_gets_the_rate_exactly(rate in any_rate(), bytes in 1..5000_u64) {
            let mut bucket = TokenBucket::new(rate, 7);
            let bytes = bytes.min(bucket.burst());
            let mut now = 7;
            for turn in 1..=50_u64 {
                now = bucket.ready_at(bytes);
                bucket.refill(now);
                prop_assert_eq!(bucket.take(bytes), bytes);
                // No more than a nanosecond is lost in each turn.
                let exact = u128::from(bytes) * u128::from(turn) * SECOND / u128::from(rate.max(1));
                prop_assert!(u128::from(now - 7) <= exact + u128::from(turn));
            }
            bucket.refill(now);
            prop_assert!(bucket.available() <= u64::from(rate > 1_000_000) * bucket.burst());
        }

        #[test]
        fn nothing_is_made_by_clocks_that_go_back_or_by_changing_the_rate(
            steps in prop::collection::vec((any::<u64>(), any_rate()), 1..50),
        ) {
            let mut bucket = TokenBucket::new(1, u64::MAX);
            for (now, rate) in steps {
                bucket.set_rate(rate, now);
                prop_assert_eq!(bucket.available(), 0);
            }
        }

        #[test]
        fn what_is_given_back_can_be_taken_again_and_no_more(rate in any_rate(), bytes in any::<u64>()) {
            let mut bucket = TokenBucket::new(rate, 0);
            bucket.refill(u64::MAX);
            let before = bucket.available();
            prop_assert_eq!(before, bucket.burst());
            let taken = bucket.take(bytes);
            bucket.give_back(taken);
            prop_assert_eq!(bucket.available(), before);
            bucket.give_back(u64::MAX);
            prop_assert_eq!(bucket.available(), before);
        }
    }

    #[test]
    fn the_first_second_is_held() {
        for rate in [1, 10, 1000, 65_536, 1 << 20, 1 << 30, u64::MAX / 2] {
            let mut bucket = TokenBucket::new(rate, 0);
            let mut sum = 0_u128;
            for millis in 0..=1000 {
                bucket.refill(millis * 1_000_000);
                sum += u128::from(bucket.take(u64::MAX));
            }
            assert!(sum <= u128::from(rate) + u128::from(rate) / 20 + 65_536, "{rate}: {sum}");
            assert!(sum >= u128::from(rate) * 95 / 100, "{rate}: {sum}");
        }
    }
}
