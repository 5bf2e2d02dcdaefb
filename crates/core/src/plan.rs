//! Which bytes next: gaps first, then the half of the largest remainder, then the tail of the slowest.

use crate::id::SegmentId;
use crate::span::{Span, SpanSet};
use std::time::Duration;

/// Splits happen at multiples of this, so that neighbours do not write the same page of the disk.
const ALIGN: u64 = 16 << 10;

/// A crawling connection's remainder below this is repeated whole and not divided again.
const SMALLEST_STEAL: u64 = 128 << 10;

/// A remainder that will be here this soon is not worth another connection.
const SOON: Duration = Duration::from_millis(600);

/// How many repetitions of one tail may run beside it.
const MOST_REPEATED: usize = 2;

/// What a connection is expected to bring where none has brought anything yet, in bytes a second.
const ASSUMED_SPEED: f64 = 65_536.0;

/// What planning needs to know of one fetch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Running {
    /// Which fetch.
    pub segment: SegmentId,
    /// Where its bytes began.
    pub start: u64,
    /// The next byte that it will bring.
    pub pos: u64,
    /// Where it was told to end.
    pub end: u64,
    /// Bytes a second lately; `None` until there is something to measure.
    pub speed: Option<f64>,
    /// How long it has been delivering (or asked to).
    pub age: Duration,
}

/// What an idle connection should do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pick {
    /// Fetch bytes that nobody fetches.
    Gap(Span),
    /// Take the end of what `victim` was to fetch. It keeps its end until the newcomer is accepted.
    Split {
        /// Who loses it.
        victim: SegmentId,
        /// What the newcomer fetches.
        span: Span,
    },
    /// Repeat the tail of `victim`; the first to finish wins.
    Hedge {
        /// Who is slow.
        victim: SegmentId,
        /// What both fetch.
        span: Span,
    },
}

/// Where each running fetch will stop: at its end, or at the beginning of the next one ahead of it.
pub fn effective_ends(running: &[Running]) -> Vec<u64> {
    running
        .iter()
        .map(|one| {
            let ahead = running.iter().filter(|other| other.start > one.pos && other.segment != one.segment);
            ahead.map(|other| other.start).min().unwrap_or(u64::MAX).min(one.end)
        })
        .collect()
}

/// The bytes of the file that are neither here nor being fetched, largest first.
pub fn gaps(length: u64, have: &SpanSet, running: &[Running]) -> Vec<Span> {
    let mut taken = have.clone();
    for (one, end) in running.iter().zip(effective_ends(running)) {
        if let Some(span) = Span::new(one.pos, end.min(length)) {
            taken.insert(span);
        }
    }
    let mut gaps: Vec<Span> = Span::new(0, length).map(|all| taken.gaps(all).collect()).unwrap_or_default();
    gaps.sort_by_key(|gap| (std::cmp::Reverse(gap.len()), gap.start()));
    gaps
}

/// What one more connection should do, or nothing if none is worth it.
///
/// `min_split` is the smallest span worth a connection, `usual` what connections of this download
/// brought so far, in bytes a second (0.0 if nothing is known): near the end only the slow are left to
/// compare with. Pure: the same facts give the same pick.
pub fn pick(length: u64, have: &SpanSet, running: &[Running], min_split: u64, usual: f64) -> Option<Pick> {
    if let Some(gap) = gaps(length, have, running).first() {
        return Some(Pick::Gap(*gap));
    }
    // What one more connection is expected to bring.
    let typical = typical_speed(running);
    let newcomer = typical.unwrap_or(0.0).max(usual).max(ASSUMED_SPEED);
    let ends = effective_ends(running);
    let mut victims: Vec<(Running, Span, f64)> = running
        .iter()
        .zip(ends)
        .filter_map(|(one, end)| Some((*one, missing(have, Span::new(one.pos, end.min(length))?)?)))
        .map(|(one, left)| {
            let speed = one.speed.or(typical).unwrap_or(newcomer).max(1.0);
            (one, left, left.len() as f64 / speed)
        })
        .collect();
    // The one that would be the last to finish, the largest where nothing is measured yet.
    victims.sort_by(|a, b| b.2.total_cmp(&a.2).then(b.1.len().cmp(&a.1.len())));
    victims.into_iter().find_map(|(victim, left, seconds)| {
        let own = victim.speed.or(typical).unwrap_or(newcomer);
        let take = |share: f64| {
            let at = align(left.start() + ((left.len() as f64 * share) as u64).max(1));
            let span = Span::new(at, left.end()).filter(|span| !have.covers(*span))?;
            Some(Pick::Split { victim: victim.segment, span })
        };
        if left.len() >= min_split.max(ALIGN).saturating_mul(2) {
            return take((own / (own + newcomer)).clamp(0.02, 0.5));
        }
        let soon = SOON.as_secs_f64().max(2.0 * left.len() as f64 / newcomer);
        // A repetition may have met a slow connection too; then one more is worth trying.
        let beside = |o: &&Running| o.segment != victim.segment && o.pos < left.end() && o.end > left.start();
        let crowded = running.iter().filter(beside).any(|o| o.age < 2 * SOON)
            || running.iter().filter(beside).count() >= MOST_REPEATED;
        if victim.age < SOON || seconds <= soon || crowded {
            return None;
        }
        let stolen = if left.len() >= SMALLEST_STEAL { take(own / (own + newcomer)) } else { None };
        Some(stolen.unwrap_or(Pick::Hedge { victim: victim.segment, span: left }))
    })
}

/// From the first to the last byte of `span` that is not here; `None` if all are.
fn missing(have: &SpanSet, span: Span) -> Option<Span> {
    let first = have.gaps(span).next()?;
    let last = have.gaps(span).last()?;
    Span::new(first.start(), last.end())
}

/// The speed of the connection in the middle of those measured.
pub fn typical_speed(running: &[Running]) -> Option<f64> {
    // Asked ten times a second of a few connections: counted, so that nothing is allocated to sort them.
    let speeds = || running.iter().filter_map(|one| one.speed);
    // The upper middle: with one honest and one crawling connection the honest one is typical.
    let middle = speeds().count() / 2;
    speeds().find(|speed| {
        let less = speeds().filter(|other| other.total_cmp(speed).is_lt()).count();
        let same = speeds().filter(|other| other.total_cmp(speed).is_eq()).count();
        (less..less + same).contains(&middle)
    })
}

/// A connection so slow beside its siblings that a new one should take its place, if any.
///
/// `patience` is how long a connection is given to show what it can do.
pub fn crawler(running: &[Running], patience: Duration) -> Option<SegmentId> {
    let typical = typical_speed(running)?;
    let measured = running.iter().filter(|one| one.age >= patience && one.end > one.pos);
    let slowest = measured.min_by(|a, b| a.speed.unwrap_or(0.0).total_cmp(&b.speed.unwrap_or(0.0)))?;
    let own = slowest.speed.unwrap_or(0.0);
    let left = (slowest.end - slowest.pos) as f64;
    (running.len() > 1 && own * 8.0 < typical && left / own.max(1.0) > 3.0).then_some(slowest.segment)
}

fn align(offset: u64) -> u64 {
    offset.div_ceil(ALIGN) * ALIGN
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn one(segment: u64, start: u64, pos: u64, end: u64, speed: Option<f64>) -> Running {
        Running { segment: SegmentId(segment), start, pos, end, speed, age: Duration::from_secs(5) }
    }

    proptest! {
        #[test]
        fn the_typical_speed_is_the_upper_middle(speeds in prop::collection::vec(prop::option::of(0u32..9), 0..12)) {
            let running: Vec<Running> =
                speeds.iter().map(|speed| one(1, 0, 1, 2, speed.map(f64::from))).collect();
            let mut sorted: Vec<u32> = speeds.into_iter().flatten().collect();
            sorted.sort_unstable();
            let middle = sorted.get(sorted.len() / 2).copied().map(f64::from);
            prop_assert_eq!(typical_speed(&running), middle);
        }
    }

    #[test]
    fn the_first_connection_takes_everything_and_the_second_half_of_it() {
        let all = Span::new(0, 8 * MIB).unwrap();
        assert_eq!(pick(8 * MIB, &SpanSet::new(), &[], MIB, 0.0), Some(Pick::Gap(all)));
        let running = [one(1, 0, 0, 8 * MIB, None)];
        let half = Span::new(4 * MIB, 8 * MIB).unwrap();
        let expected = Pick::Split { victim: SegmentId(1), span: half };
        assert_eq!(pick(8 * MIB, &SpanSet::new(), &running, MIB, 0.0), Some(expected));
    }

    #[test]
    fn what_is_too_small_to_split_is_left_to_the_one_that_fetches_it() {
        let running = [one(1, 0, 0, 2 * MIB - 1, Some(4e6))];
        assert_eq!(pick(2 * MIB - 1, &SpanSet::new(), &running, MIB, 0.0), None);
    }

    #[test]
    fn the_tail_of_a_crawler_is_taken_by_a_fast_one() {
        let have: SpanSet =
            [Span::new(0, 100_000), Span::new(MIB, 4 * MIB - 1)].into_iter().flatten().collect();
        let running = [one(1, 0, 100_000, MIB, Some(16e3)), one(2, 3 * MIB, 4 * MIB - 1, 4 * MIB, Some(2e6))];
        match pick(4 * MIB, &have, &running, MIB, 0.0) {
            Some(Pick::Split { victim, span }) => {
                assert_eq!(victim, SegmentId(1));
                assert!(span.len() > 900_000, "{span}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_silent_tail_is_repeated_and_again_only_if_that_is_slow_too() {
        let have: SpanSet = Span::new(0, 4 * MIB - 10_000).into_iter().collect();
        let tail = |segment, start| one(segment, start, 4 * MIB - 10_000, 4 * MIB, Some(0.0));
        let silent = tail(1, 3 * MIB);
        let hedges = |running: &[Running]| matches!(pick(4 * MIB, &have, running, MIB, 0.0), Some(Pick::Hedge { span, .. }) if span.len() == 10_000);
        assert!(hedges(&[silent]));
        let second = tail(2, 4 * MIB - 10_000);
        let fresh = Running { age: Duration::ZERO, speed: None, ..second };
        assert!(!hedges(&[silent, fresh]));
        assert!(hedges(&[silent, second]));
        assert!(!hedges(&[silent, second, tail(3, 4 * MIB - 10_000)]));
    }

    #[test]
    fn only_a_connection_much_slower_than_its_siblings_crawls() {
        let fair = [one(1, 0, 0, MIB, Some(1e6)), one(2, MIB, MIB, 2 * MIB, Some(5e5))];
        assert_eq!(crawler(&fair, Duration::from_secs(1)), None);
        let unfair = [one(1, 0, 0, MIB, Some(1e6)), one(2, MIB, MIB, 2 * MIB, Some(1e4))];
        assert_eq!(crawler(&unfair, Duration::from_secs(1)), Some(SegmentId(2)));
        assert_eq!(crawler(&unfair[1..], Duration::from_secs(1)), None);
    }

    proptest! {
        /// The world is a for-loop: connections come, run at odd speeds, die; every schedule ends
        /// with the whole file, and no pick lies outside it or covers nothing new.
        #[test]
        fn segments_partition_what_is_left_and_every_schedule_ends(
            length in 1u64..64 * MIB,
            slots in 1usize..9,
            seed in any::<u64>(),
        ) {
            let mut dice = crate::dice::Dice::new(seed);
            let mut have = SpanSet::new();
            let mut running: Vec<Running> = Vec::new();
            let mut next = 0u64;
            for step in 0..20_000u64 {
                if have.total() == length { break; }
                prop_assert!(step < 19_999, "the schedule does not end");
                while running.len() < slots {
                    let Some(pick) = pick(length, &have, &running, MIB, 0.0) else { break };
                    let span = match pick {
                        Pick::Gap(span) | Pick::Split { span, .. } | Pick::Hedge { span, .. } => span,
                    };
                    prop_assert!(span.end() <= length);
                    prop_assert!(!have.covers(span));
                    if let Pick::Split { victim, .. } = pick {
                        let victim = running.iter_mut().find(|r| r.segment == victim).unwrap();
                        prop_assert!(victim.pos < span.start());
                        // Accepted at once, sometimes; else the end stays until later.
                        if dice.below(2) == 0 { victim.end = span.start(); }
                    }
                    running.push(Running {
                        segment: SegmentId(next), start: span.start(), pos: span.start(), end: span.end(),
                        speed: None, age: Duration::ZERO,
                    });
                    next += 1;
                }
                let ends = effective_ends(&running);
                for (one, end) in running.iter_mut().zip(ends) {
                    let speed = [0, 1 << 14, 1 << 18, 1 << 21][dice.below(4) as usize];
                    let to = (one.pos + speed).min(end.max(one.pos));
                    if let Some(span) = Span::new(one.pos, to) { have.insert(span); }
                    one.pos = to;
                    one.speed = Some(speed as f64);
                    one.age += Duration::from_secs(1);
                    if dice.below(50) == 0 { one.end = one.pos; }
                }
                let ends = effective_ends(&running);
                let mut ends = ends.into_iter();
                running.retain(|one| one.pos < ends.next().unwrap());
            }
            prop_assert_eq!(have.total(), length);
        }
    }
}
