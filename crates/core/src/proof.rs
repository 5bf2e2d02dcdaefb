//! Do the bytes on disk belong to this remote file?
//!
//! One question with five uses: a resume, a fresh link to the same file, the admission of a mirror,
//! `verify`, and the leftover of another tool. Validators answer it where they can
//! ([`crate::Identity::compare`]), digests where there are any; otherwise the bytes themselves are
//! compared, in samples. A sample proves that it is equal, not that everything is: what rests on
//! samples is called [`crate::message::Proof::Sampled`] to the end.

use crate::dice::Dice;
use crate::span::{Span, SpanSet};

/// How many windows at random places are compared, beside the first and the last.
const RANDOM_WINDOWS: usize = 8;

/// How many windows that hold one repeated byte are passed over before giving up: such a window is
/// equal in almost every file of zeros, so it proves nothing.
const FLAT_LIMIT: usize = 24;

/// How many windows with content must agree.
const ENOUGH: usize = 2;

/// How much is compared at one place, in bytes: 64 KiB, and less in small files, where ten windows
/// would be a good part of the file.
pub fn window_len(length: u64) -> u64 {
    if length >= 16 << 20 { 64 << 10 } else { 16 << 10 }
}

/// A proof by samples in progress.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// Where samples may be taken: the bytes that are here from before.
    from: SpanSet,
    window: u64,
    pending: Vec<Span>,
    told: usize,
    flat: usize,
    dice: Dice,
}

/// What the samples say so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// More windows are to be compared.
    Open,
    /// Enough windows with content agree.
    Alike,
    /// Nothing could be shown: too little content, or only repeated bytes.
    Unproved,
}

impl Sampling {
    /// Samples of the bytes `from`, of a file of `length` bytes, at most `windows` at random places
    /// beside the first and last.
    pub fn new(from: &SpanSet, length: u64, dice: Dice) -> Self {
        let mut sampling = Self {
            from: from.clone(),
            window: window_len(length),
            pending: Vec::new(),
            told: 0,
            flat: 0,
            dice,
        };
        let first = from.iter().next();
        let last = from.iter().next_back();
        if let Some(span) = first {
            sampling.push(span.start(), span);
        }
        if let Some(span) = last {
            sampling.push(span.end().saturating_sub(sampling.window).max(span.start()), span);
        }
        for _ in 0..RANDOM_WINDOWS {
            sampling.push_random();
        }
        sampling
    }

    /// Fewer samples, for admitting a mirror.
    #[must_use]
    pub fn brief(mut self) -> Self {
        self.pending.truncate(4);
        self
    }

    fn push(&mut self, at: u64, within: Span) {
        let window = Span::new(at, (at + self.window).min(within.end()));
        if let Some(window) = window.filter(|w| !self.pending.contains(w)) {
            self.pending.push(window);
        }
    }

    fn push_random(&mut self) {
        let total = self.from.total();
        if total == 0 {
            return;
        }
        let mut skip = self.dice.below(total);
        for span in self.from.clone().iter() {
            if skip < span.len() {
                let at = (span.start() + skip).min(span.end().saturating_sub(self.window)).max(span.start());
                self.push(at, span);
                return;
            }
            skip -= span.len();
        }
    }

    /// The next window to compare; it will not be given out again.
    pub fn next_window(&mut self) -> Option<Span> {
        self.pending.pop()
    }

    /// Gives a window back that could not be compared because the connection failed.
    pub fn put_back(&mut self, window: Span) {
        self.pending.push(window);
    }

    /// A window was equal; `flat` says that it held one repeated byte.
    pub fn equal(&mut self, flat: bool) {
        if flat {
            self.flat += 1;
            if self.flat < FLAT_LIMIT {
                self.push_random();
            }
        } else {
            self.told += 1;
        }
    }

    /// What can be said when no window is under way.
    pub fn verdict(&self) -> Verdict {
        if !self.pending.is_empty() {
            Verdict::Open
        } else if self.told >= ENOUGH || (self.told >= 1 && self.from.total() <= 2 * self.window) {
            Verdict::Alike
        } else {
            Verdict::Unproved
        }
    }
}

/// Where to begin a request that needs `start`, so that the bytes before it are compared on the way.
pub fn overlap_start(have: &SpanSet, start: u64, length: u64) -> u64 {
    start - (start - have.run_start(start)).min(window_len(length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(spans: &[(u64, u64)]) -> SpanSet {
        spans.iter().filter_map(|(a, b)| Span::new(*a, *b)).collect()
    }

    #[test]
    fn windows_of_one_repeated_byte_prove_nothing() {
        let mut sampling = Sampling::new(&set(&[(0, 64 << 20)]), 64 << 20, Dice::new(1));
        let mut windows = 0;
        while let Some(_window) = sampling.next_window() {
            windows += 1;
            sampling.equal(true);
        }
        assert_eq!(sampling.verdict(), Verdict::Unproved);
        assert!(windows <= 2 + RANDOM_WINDOWS + FLAT_LIMIT);
    }

    #[test]
    fn two_windows_with_content_are_enough() {
        let mut sampling = Sampling::new(&set(&[(0, 64 << 20)]), 64 << 20, Dice::new(1));
        let mut told = 0;
        while let Some(_window) = sampling.next_window() {
            sampling.equal(told >= 2);
            told += 1;
        }
        assert_eq!(sampling.verdict(), Verdict::Alike);
    }

    #[test]
    fn nothing_from_before_is_nothing_to_prove() {
        let mut sampling = Sampling::new(&SpanSet::new(), 64 << 20, Dice::new(1));
        assert_eq!(sampling.next_window(), None);
        assert_eq!(sampling.verdict(), Verdict::Unproved);
    }

    proptest! {
        #[test]
        fn every_window_lies_in_the_bytes_that_are_here(
            spans in prop::collection::vec((0u64..1 << 26, 1u64..1 << 22), 1..8), seed in any::<u64>()
        ) {
            let have: SpanSet = spans.into_iter().filter_map(|(s, l)| Span::new(s, s + l)).collect();
            let mut sampling = Sampling::new(&have, 1 << 27, Dice::new(seed));
            while let Some(window) = sampling.next_window() {
                prop_assert!(have.covers(window), "{} not in {:?}", window, have);
                sampling.equal(false);
            }
            for span in have.iter() {
                let start = overlap_start(&have, span.end(), 1 << 27);
                prop_assert!(start < span.end() && start >= span.start());
            }
        }
    }
}
