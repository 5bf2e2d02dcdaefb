//! Which bytes next: gaps first, then a part of what would be here last, then the tail of the slow.
//!
//! A part is worth a connection in time, not in bytes: the rules are in [`pick`].

use crate::id::SegmentId;
use crate::span::{Span, SpanSet};
use std::time::Duration;

/// Splits happen at multiples of this, so that neighbours do not write the same page of the disk.
const ALIGN: u64 = 4 << 10;

/// What is left of a slow connection is divided down to this, and below it repeated whole.
const SMALLEST_STEAL: u64 = 128 << 10;

/// What a connection must save to be asked for: a request, perhaps a connection, and what its victim
/// receives beyond its new end cost something too.
const WORTH: f64 = 0.1;

/// What it must save to take less than the smallest part that the request wants, or bytes a second time.
const WORTH_MORE: f64 = 0.15;

/// A repetition shows so long what it can do before another is tried beside it.
const HEDGE_PATIENCE: Duration = Duration::from_millis(300);

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
    /// The next byte that it will bring, as it last told.
    pub pos: u64,
    /// Where it probably is by now.
    pub ahead: u64,
    /// Where it was told to end.
    pub end: u64,
    /// Bytes a second lately, 0 if it is silent beside the others; `None` until there is something to measure.
    pub speed: Option<f64>,
    /// How long it has been delivering (or asked to).
    pub age: Duration,
}

/// What planning needs to know of the rest.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The smallest part worth a connection, in bytes.
    pub min_split: u64,
    /// What connections of this download bring, in bytes a second, 0.0 if nothing is known: near the end
    /// only the slow are left to compare with.
    pub usual: f64,
    /// From asking to the first byte.
    pub wait: Duration,
    /// How many connections are to be given something now, at least 1.
    pub idle: usize,
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

/// Where this running fetch will stop: at its end, or at the beginning of the next one ahead of it.
pub fn effective_end(one: &Running, running: &[Running]) -> u64 {
    let ahead = running.iter().filter(|other| other.start > one.pos && other.segment != one.segment);
    ahead.map(|other| other.start).min().unwrap_or(u64::MAX).min(one.end)
}

/// The largest span of the file that is neither here nor being fetched, the first of equals.
fn largest_gap(length: u64, have: &SpanSet, running: &[Running]) -> Option<Span> {
    let mut largest: Option<Span> = None;
    for missing in have.gaps(Span::new(0, length)?) {
        let mut at = missing.start();
        while at < missing.end() {
            let covers = |one: &&Running| one.pos <= at;
            let taken = running.iter().filter(covers).map(|one| effective_end(one, running)).max();
            if let Some(end) = taken.filter(|end| *end > at) {
                at = end;
                continue;
            }
            let later = running.iter().filter(|one| one.pos > at && effective_end(one, running) > one.pos);
            let next = later.map(|one| one.pos).min();
            let free = Span::new(at, next.unwrap_or(u64::MAX).min(missing.end()));
            if free.map(Span::len) > largest.map(Span::len) {
                largest = free;
            }
            at = free.map_or(u64::MAX, Span::end);
        }
    }
    largest
}

/// What one more connection should do, or nothing if none is worth it.
///
/// - Bytes that nobody fetches come first, the most of them together.
/// - Else whoever would be done last gives a part to the newcomer, so that both are done at once, the
///   newcomer's wait for its first byte included; and no more than would let all be done at once, so that
///   several newcomers take what they keep.
/// - It must save 0.1 s. A part below `min_split` must save 0.15 s, and is not below an eighth
///   of it unless the victim is slow.
/// - What is left of a slow one and is too little to divide is repeated, where that saves 0.15 s.
///
/// Pure, and allocates nothing: the same facts give the same pick.
pub fn pick(length: u64, have: &SpanSet, running: &[Running], terms: &Terms) -> Option<Pick> {
    if let Some(gap) = largest_gap(length, have, running) {
        return Some(Pick::Gap(gap));
    }
    // What one more connection is expected to bring, and what one of which nothing is known.
    let typical = typical_speed(running);
    let newcomer = typical.unwrap_or(0.0).max(terms.usual).max(ASSUMED_SPEED);
    let speed_of = |one: &Running| one.speed.or(typical).unwrap_or(newcomer).max(1.0);
    let wait = terms.wait.as_secs_f64();
    let left_of = |one: &Running| {
        let end = effective_end(one, running).min(length);
        missing(have, Span::new(one.ahead.max(one.pos), end)?)
    };
    let left = running.iter().filter_map(left_of).map(|left| left.len() as f64).sum::<f64>();
    let speeds = running.iter().filter(|one| left_of(one).is_some()).map(speed_of).sum::<f64>();
    let newcomers = newcomer * terms.idle.max(1) as f64;
    // When all would be done, were everything divided well.
    let at_best = (left + newcomers * wait) / (speeds + newcomers);
    let judge = |victim: &Running| {
        let left = left_of(victim)?;
        let own = speed_of(victim);
        let seconds = left.len() as f64 / own;
        let together = (left.len() as f64 + newcomer * wait) / (own + newcomer);
        let saves = seconds - together;
        let slow = own * 2.0 < newcomer;
        let smallest = terms.min_split.max(ALIGN);
        let least = match victim.speed.or(typical) {
            None => smallest,
            Some(_) if slow => SMALLEST_STEAL,
            Some(_) => smallest / 8,
        };
        let most = newcomer * (together - wait);
        let part = match terms.idle {
            0 | 1 if typical.is_some() => most,
            _ => (newcomer * (at_best - wait)).max(least as f64).min(most),
        };
        if part >= least as f64 && saves >= if part >= smallest as f64 { WORTH } else { WORTH_MORE } {
            // To the nearest, so that none is left more than the others by each division.
            let at = left.end() - (part as u64).clamp(1, left.len());
            let at = align(at.saturating_sub(ALIGN / 2)).max(align(left.start() + 1));
            let span = Span::new(at, left.end()).filter(|span| !have.covers(*span))?;
            return Some((seconds, left.len(), Pick::Split { victim: victim.segment, span }));
        }
        let again = wait + left.len() as f64 / newcomer;
        // A repetition may have met a slow connection too; then one more is worth trying.
        let beside = |o: &&Running| o.segment != victim.segment && o.pos < left.end() && o.end > left.start();
        let crowded = running.iter().filter(beside).any(|o| o.age < HEDGE_PATIENCE)
            || running.iter().filter(beside).count() >= MOST_REPEATED;
        let hedge = victim.speed.is_some() && slow && seconds - again >= WORTH_MORE && !crowded;
        hedge.then_some((seconds, left.len(), Pick::Hedge { victim: victim.segment, span: left }))
    };
    // The one that would be the last to finish, the largest of equals.
    let last = running
        .iter()
        .filter_map(judge)
        .reduce(|a, b| if b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)).is_gt() { b } else { a });
    last.map(|(.., pick)| pick)
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
    let measured = measured.filter_map(|one| Some((one, one.speed?)));
    let (slowest, own) = measured.min_by(|a, b| a.1.total_cmp(&b.1))?;
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

    const TERMS: Terms = Terms { min_split: MIB, usual: 0.0, wait: Duration::ZERO, idle: 1 };

    fn one(segment: u64, start: u64, pos: u64, end: u64, speed: Option<f64>) -> Running {
        Running {
            segment: SegmentId(segment),
            start,
            pos,
            ahead: pos,
            end,
            speed,
            age: Duration::from_secs(5),
        }
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
        assert_eq!(pick(8 * MIB, &SpanSet::new(), &[], &TERMS), Some(Pick::Gap(all)));
        let running = [one(1, 0, 0, 8 * MIB, None)];
        let half = Span::new(4 * MIB, 8 * MIB).unwrap();
        let expected = Pick::Split { victim: SegmentId(1), span: half };
        assert_eq!(pick(8 * MIB, &SpanSet::new(), &running, &TERMS), Some(expected));
    }

    /// What the newcomer takes of one that has so much left at such a speed.
    fn part(left: u64, speed: f64, terms: Terms) -> Option<u64> {
        let running = [one(1, 0, 0, left, Some(speed)), one(2, left, left, left, Some(speed))];
        match pick(left, &SpanSet::new(), &running, &terms) {
            Some(Pick::Split { span, .. }) => Some(span.len()),
            other => {
                assert_eq!(other, None);
                None
            }
        }
    }

    #[test]
    fn what_will_be_here_soon_is_left_to_the_one_that_fetches_it_however_large_it_is() {
        assert_eq!(part(190 * MIB, 1000.0 * MIB as f64, TERMS), None);
        assert_eq!(part(210 * MIB, 1000.0 * MIB as f64, TERMS), Some(105 * MIB));
    }

    #[test]
    fn a_part_below_the_smallest_must_save_more_and_is_not_below_an_eighth_of_it() {
        let rate = MIB as f64;
        assert_eq!(part(MIB, rate, TERMS), Some(MIB / 2));
        assert_eq!(part(MIB / 4, rate, TERMS), None);
        assert_eq!(part(8 * MIB, rate, Terms { min_split: 64 * MIB, ..TERMS }), None);
    }

    #[test]
    fn the_wait_for_the_first_byte_is_not_worth_what_is_here_meanwhile() {
        let far = Terms { wait: Duration::from_secs(3), ..TERMS };
        assert_eq!(part(3 * MIB, MIB as f64, far), None);
        // Both are done after ten seconds: one brings ten parts, the other seven.
        assert_eq!(part(17 * MIB, MIB as f64, far), Some(7 * MIB));
    }

    #[test]
    fn several_that_come_at_once_take_equal_parts() {
        let mut running = vec![one(0, 0, 0, 80 * MIB, None)];
        for idle in (1..8).rev() {
            let picked = pick(80 * MIB, &SpanSet::new(), &running, &Terms { idle, ..TERMS });
            let Some(Pick::Split { span, victim: SegmentId(0) }) = picked else { panic!("{picked:?}") };
            assert!(span.len().abs_diff(10 * MIB) <= 2 * ALIGN, "{span}");
            running.push(one(idle as u64, span.start(), span.start(), span.end(), None));
        }
    }

    #[test]
    fn nothing_is_taken_of_what_is_probably_here_by_now() {
        let victim = Running { ahead: 60 * MIB, ..one(1, 0, 0, 80 * MIB, Some(MIB as f64)) };
        let picked = pick(80 * MIB, &SpanSet::new(), &[victim], &TERMS);
        let span = Span::new(70 * MIB, 80 * MIB).unwrap();
        assert_eq!(picked, Some(Pick::Split { victim: SegmentId(1), span }));
    }

    #[test]
    fn the_tail_of_a_crawler_is_taken_by_a_fast_one() {
        let have: SpanSet =
            [Span::new(0, 100_000), Span::new(MIB, 4 * MIB - 1)].into_iter().flatten().collect();
        let running = [one(1, 0, 100_000, MIB, Some(16e3)), one(2, 3 * MIB, 4 * MIB - 1, 4 * MIB, Some(2e6))];
        match pick(4 * MIB, &have, &running, &TERMS) {
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
        let hedges = |running: &[Running]| matches!(pick(4 * MIB, &have, running, &TERMS), Some(Pick::Hedge { span, .. }) if span.len() == 10_000);
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
        #[test]
        fn the_largest_gap_is_the_largest_that_nobody_has_or_fetches(
            length in 1u64..200,
            have in prop::collection::vec((0u64..200, 1u64..40), 0..6),
            running in prop::collection::vec((0u64..200, 0u64..30, 0u64..60), 0..6),
        ) {
            let have: SpanSet = have.into_iter().filter_map(|(at, len)| Span::new(at, at + len)).collect();
            let running: Vec<Running> = running
                .into_iter()
                .enumerate()
                .map(|(n, (start, done, left))| one(n as u64, start, start + done, start + done + left, None))
                .collect();
            let mut taken = have.clone();
            for one in &running {
                Span::new(one.pos, effective_end(one, &running)).into_iter().for_each(|span| taken.insert(span));
            }
            let gaps = || taken.gaps(Span::new(0, length).unwrap());
            let largest = gaps().map(Span::len).max();
            let expected = gaps().find(|gap| Some(gap.len()) == largest);
            prop_assert_eq!(largest_gap(length, &have, &running), expected);
        }

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
                    let Some(pick) = pick(length, &have, &running, &TERMS) else { break };
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
                        segment: SegmentId(next), start: span.start(), pos: span.start(), ahead: span.start(), end: span.end(),
                        speed: None, age: Duration::ZERO,
                    });
                    next += 1;
                }
                let ends: Vec<u64> = running.iter().map(|one| effective_end(one, &running)).collect();
                for (one, end) in running.iter_mut().zip(ends) {
                    let speed = [0, 1 << 14, 1 << 18, 1 << 21][dice.below(4) as usize];
                    let to = (one.pos + speed).min(end.max(one.pos));
                    if let Some(span) = Span::new(one.pos, to) { have.insert(span); }
                    (one.pos, one.ahead) = (to, to);
                    one.speed = Some(speed as f64);
                    one.age += Duration::from_secs(1);
                    if dice.below(50) == 0 { one.end = one.pos; }
                }
                let ends: Vec<u64> = running.iter().map(|one| effective_end(one, &running)).collect();
                let mut ends = ends.into_iter();
                running.retain(|one| one.pos < ends.next().unwrap());
            }
            prop_assert_eq!(have.total(), length);
        }
    }
}
