//! Ranges of bytes in a file.

use crate::written::{self, Flat};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A half-open range of bytes, `start..end`, never empty.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "(u64, u64)", into = "(u64, u64)")]
pub struct Span {
    start: u64,
    end: u64,
}

impl Span {
    /// The bytes from `start` up to but not including `end`; `None` if that is nothing.
    pub fn new(start: u64, end: u64) -> Option<Self> {
        (start < end).then_some(Self { start, end })
    }

    /// The first byte.
    pub fn start(self) -> u64 {
        self.start
    }

    /// One past the last byte.
    pub fn end(self) -> u64 {
        self.end
    }

    /// How many bytes, at least 1.
    #[allow(clippy::len_without_is_empty, reason = "a span is never empty")]
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    /// Whether every byte of `other` is in this span.
    pub fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// The bytes in both.
    pub fn intersect(self, other: Self) -> Option<Self> {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }
}

impl TryFrom<(u64, u64)> for Span {
    type Error = String;
    fn try_from((start, end): (u64, u64)) -> Result<Self, String> {
        Self::new(start, end).ok_or_else(|| format!("{start}..{end} is no span"))
    }
}

impl From<Span> for (u64, u64) {
    fn from(span: Span) -> Self {
        (span.start, span.end)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

/// A set of bytes of a file, kept as sorted spans that neither overlap nor touch.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct SpanSet {
    spans: Vec<Span>,
}

impl SpanSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the bytes of `span`.
    pub fn insert(&mut self, span: Span) {
        // The spans that overlap or touch the new one become one with it.
        let from = self.spans.partition_point(|s| s.end < span.start);
        let to = from + self.spans[from..].partition_point(|s| s.start <= span.end);
        if from == to {
            self.spans.insert(from, span);
            return;
        }
        let merged =
            Span { start: span.start.min(self.spans[from].start), end: span.end.max(self.spans[to - 1].end) };
        self.spans[from] = merged;
        self.spans.drain(from + 1..to);
    }

    /// Takes the bytes of `span` out.
    pub fn remove(&mut self, span: Span) {
        let from = self.spans.partition_point(|s| s.end <= span.start);
        let to = from + self.spans[from..].partition_point(|s| s.start < span.end);
        if from == to {
            return;
        }
        let left = Span::new(self.spans[from].start, span.start);
        let right = Span::new(span.end, self.spans[to - 1].end);
        self.spans.splice(from..to, left.into_iter().chain(right));
    }

    /// Whether every byte of `span` is in the set.
    pub fn covers(&self, span: Span) -> bool {
        let at = self.spans.partition_point(|s| s.end < span.end);
        self.spans.get(at).is_some_and(|s| s.contains(span))
    }

    /// How many bytes the set holds.
    pub fn total(&self) -> u64 {
        self.spans.iter().map(|s| s.len()).sum()
    }

    /// Whether the set holds no byte.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The number of spans.
    pub fn count(&self) -> usize {
        self.spans.len()
    }

    /// The spans in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Span> + ExactSizeIterator + '_ {
        self.spans.iter().copied()
    }

    /// The spans of `within` that are not in the set, in order.
    pub fn gaps(&self, within: Span) -> impl Iterator<Item = Span> + '_ {
        let first = self.spans.partition_point(|s| s.end <= within.start);
        let mut at = within.start;
        let mut inner = self.spans[first..].iter();
        let mut done = false;
        std::iter::from_fn(move || {
            while !done {
                let (gap_end, next) = match inner.next() {
                    Some(s) if s.start < within.end => (s.start, s.end),
                    _ => {
                        done = true;
                        (within.end, within.end)
                    }
                };
                let gap = Span::new(at, gap_end);
                at = next;
                if gap.is_some() {
                    return gap;
                }
            }
            None
        })
    }

    /// How many bytes of `within` are in the set.
    pub fn total_within(&self, within: Span) -> u64 {
        within.len() - self.gaps(within).map(Span::len).sum::<u64>()
    }

    /// Where the run of bytes that begins at `offset` ends, or `offset` if that byte is missing.
    pub fn run_end(&self, offset: u64) -> u64 {
        let at = self.spans.partition_point(|s| s.end <= offset);
        self.spans.get(at).filter(|s| s.start <= offset).map_or(offset, |s| s.end)
    }

    /// Where the run of bytes that ends at `offset` starts, or `offset` if the byte before is missing.
    pub fn run_start(&self, offset: u64) -> u64 {
        let at = self.spans.partition_point(|s| s.end < offset);
        self.spans.get(at).filter(|s| s.start < offset).map_or(offset, |s| s.start)
    }
}

impl FromIterator<Span> for SpanSet {
    fn from_iter<I: IntoIterator<Item = Span>>(iter: I) -> Self {
        let mut spans: Vec<Span> = iter.into_iter().collect();
        spans.sort_unstable();
        spans.dedup_by(|next, kept| {
            let joins = next.start <= kept.end;
            if joins {
                kept.end = kept.end.max(next.end);
            }
            joins
        });
        Self { spans }
    }
}

/// As one list of numbers: see [`written::spans`]. Of too many spans the largest are written: a set may say less
/// than the truth.
impl Serialize for SpanSet {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        written::spans::serialize(&written::largest(&self.spans, written::MAX_SPANS), to)
    }
}

/// From spans in any order, which may overlap.
impl<'de> Deserialize<'de> for SpanSet {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(from.deserialize_seq(Flat { most: written::MAX_SPANS })?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const SIZE: u64 = 64;

    fn span() -> impl Strategy<Value = Span> {
        (0..SIZE, 1..SIZE).prop_map(|(start, len)| Span::new(start, (start + len).min(SIZE)).unwrap())
    }

    fn bytes(set: &SpanSet) -> BTreeSet<u64> {
        set.iter().flat_map(|s| s.start()..s.end()).collect()
    }

    proptest! {
        #[test]
        fn a_span_set_is_the_set_of_its_bytes(steps in prop::collection::vec((any::<bool>(), span()), 0..40), probe in span()) {
            let mut set = SpanSet::new();
            let mut model = BTreeSet::new();
            for (add, span) in steps {
                let range = span.start()..span.end();
                if add {
                    set.insert(span);
                    model.extend(range);
                } else {
                    set.remove(span);
                    model.retain(|b| !range.contains(b));
                }
                prop_assert_eq!(&bytes(&set), &model);
                // Sorted, apart, not touching: there is one way to write each set.
                let spans: Vec<Span> = set.iter().collect();
                prop_assert!(spans.windows(2).all(|w| w[0].end() < w[1].start()));
            }
            let range = probe.start()..probe.end();
            prop_assert_eq!(set.covers(probe), range.clone().all(|b| model.contains(&b)));
            prop_assert_eq!(set.total(), model.len() as u64);
            prop_assert_eq!(set.total_within(probe), range.clone().filter(|b| model.contains(b)).count() as u64);
            let gaps: BTreeSet<u64> = set.gaps(probe).flat_map(|s| s.start()..s.end()).collect();
            prop_assert_eq!(gaps, range.filter(|b| !model.contains(b)).collect::<BTreeSet<u64>>());
            let mut end = probe.start();
            while model.contains(&end) { end += 1; }
            prop_assert_eq!(set.run_end(probe.start()), end);
            let mut start = probe.start();
            while start > 0 && model.contains(&(start - 1)) { start -= 1; }
            prop_assert_eq!(set.run_start(probe.start()), start);
        }
    }
}
