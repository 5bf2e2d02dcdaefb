//! `Content-Range`: which bytes of the file an answer carries.

use super::scan::{self, Scanner};
use crate::span::Span;
use std::fmt;

/// Files end here: offsets are signed 64-bit numbers.
const MAX_END: u64 = i64::MAX as u64;

/// What a `Content-Range` says. `*` is "not told", never 0.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ContentRange {
    /// `bytes a-b/N` or `bytes a-b/*`: the body is these bytes of the file.
    Part {
        /// The bytes.
        span: Span,
        /// Length of the whole file in bytes, if told.
        total: Option<u64>,
    },
    /// `bytes */N` or `bytes */*`: the body is no part of the file (with status 416).
    Unsatisfied {
        /// Length of the whole file in bytes, if told.
        total: Option<u64>,
    },
}

/// Why a `Content-Range` cannot be believed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ContentRangeError {
    /// Not of the form `bytes FIRST-LAST/TOTAL`.
    #[error("Content-Range is not of the form `bytes FIRST-LAST/TOTAL`")]
    Malformed,
    /// A unit other than bytes.
    #[error("Content-Range counts something other than bytes")]
    OtherUnit,
    /// The last byte comes before the first.
    #[error("Content-Range ends at byte {last}, before its beginning at {first}")]
    Backwards {
        /// First byte told.
        first: u64,
        /// Last byte told.
        last: u64,
    },
    /// The range goes beyond the length it tells.
    #[error("Content-Range has byte {last} of a file of {total} bytes")]
    BeyondTotal {
        /// Last byte told.
        last: u64,
        /// Length told.
        total: u64,
    },
    /// Several fields that differ.
    #[error("the answer has several Content-Range fields that differ")]
    Conflicting,
    /// The length of the body is not that of the range.
    #[error("Content-Range covers {span} bytes but the body has {body}")]
    BodyLength {
        /// Bytes in the range.
        span: u64,
        /// Bytes in the body.
        body: u64,
    },
}

impl ContentRange {
    /// Reads a field value.
    ///
    /// Forms of sloppy servers whose meaning is not in doubt are taken: `bytes=0-9/10`, no unit,
    /// blanks, and a last byte one too large (equal to the total), which is cut to the total.
    ///
    /// # Errors
    /// For everything that is malformed or contradicts itself. An answer with such a field must not
    /// be written.
    pub fn parse(value: &[u8]) -> Result<Self, ContentRangeError> {
        use ContentRangeError::{Backwards, BeyondTotal, Malformed, OtherUnit};
        let mut scanner = Scanner::new(value);
        scanner.skip_blanks();
        let unit = scanner.take_while(|b| b.is_ascii_alphabetic());
        if !unit.is_empty() && !unit.eq_ignore_ascii_case(b"bytes") {
            return Err(OtherUnit);
        }
        scanner.skip_blanks();
        if !unit.is_empty() && scanner.eat(b'=') {
            scanner.skip_blanks();
        }
        let slash = scanner.rest().iter().position(|&b| b == b'/').ok_or(Malformed)?;
        let (range, total) = (scan::trim(&scanner.rest()[..slash]), scan::trim(&scanner.rest()[slash + 1..]));
        let number = |digits: &[u8]| scan::number(scan::trim(digits)).ok_or(Malformed);
        let total = if total == b"*" { None } else { Some(number(total)?) };
        if range == b"*" {
            return Ok(Self::Unsatisfied { total });
        }
        let dash = range.iter().position(|&b| b == b'-').ok_or(Malformed)?;
        let (first, last) = (number(&range[..dash])?, number(&range[dash + 1..])?);
        if last < first {
            return Err(Backwards { first, last });
        }
        // The end, one past the last byte, must be an offset too.
        if last >= MAX_END {
            return Err(Malformed);
        }
        let end = match total {
            Some(total) if last == total => total,
            Some(total) if last > total => return Err(BeyondTotal { last, total }),
            _ => last + 1,
        };
        match Span::new(first, end) {
            Some(span) => Ok(Self::Part { span, total }),
            None => Err(BeyondTotal { last, total: end }),
        }
    }

    /// Length of the whole file in bytes, if told.
    pub fn total(self) -> Option<u64> {
        match self {
            Self::Part { total, .. } | Self::Unsatisfied { total } => total,
        }
    }

    /// The bytes that the body is, if it is any.
    pub fn span(self) -> Option<Span> {
        match self {
            Self::Part { span, .. } => Some(span),
            Self::Unsatisfied { .. } => None,
        }
    }
}

impl fmt::Display for ContentRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part { span, .. } => write!(f, "bytes {}-{}/", span.start(), span.end() - 1)?,
            Self::Unsatisfied { .. } => f.write_str("bytes */")?,
        }
        match self.total() {
            Some(total) => write!(f, "{total}"),
            None => f.write_str("*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ContentRangeError::{Backwards, BeyondTotal, Malformed, OtherUnit};
    use proptest::prelude::*;

    fn part(start: u64, end: u64, total: impl Into<Option<u64>>) -> Result<ContentRange, ContentRangeError> {
        Ok(ContentRange::Part { span: Span::new(start, end).unwrap(), total: total.into() })
    }

    #[test]
    fn content_range_is_read_or_refused() {
        let big = i64::MAX as u64;
        let rows: &[(&str, Result<ContentRange, ContentRangeError>)] = &[
            ("bytes 0-1023/1024", part(0, 1024, 1024)),
            ("bytes=0-1023/1024", part(0, 1024, 1024)),
            ("BYTES 0-1023/1024", part(0, 1024, 1024)),
            ("bytes: 0-1023/1024", Err(Malformed)),
            (" bytes  0 - 1023 / 1024 ", part(0, 1024, 1024)),
            ("9223372036854775800-9223372036854775801/9223372036854775807", part(big - 7, big - 5, big)),
            ("bytes 1-4294967296/4294967297", part(1, 4_294_967_297, 4_294_967_297)),
            ("bytes */1024", Ok(ContentRange::Unsatisfied { total: Some(1024) })),
            ("bytes */0", Ok(ContentRange::Unsatisfied { total: Some(0) })),
            ("bytes */*", Ok(ContentRange::Unsatisfied { total: None })),
            ("bytes 0-9/*", part(0, 10, None)),
            // aria2 reads these two as "unknown"; an answer that cannot say what it carries is refused
            // either way.
            ("bytes 0", Err(Malformed)),
            ("bytes 0/", Err(Malformed)),
            ("bytes 0-/3", Err(Malformed)),
            ("bytes -0/3", Err(Malformed)),
            // One too large: the total where the last byte should be.
            ("bytes 1048576-10485760/10485760", part(1_048_576, 10_485_760, 10_485_760)),
            ("bytes 0-10485760/10485761", part(0, 10_485_761, 10_485_761)),
            ("bytes 0-11/10", Err(BeyondTotal { last: 11, total: 10 })),
            ("bytes 10-10/10", Err(BeyondTotal { last: 10, total: 10 })),
            ("bytes 0-0/0", Err(BeyondTotal { last: 0, total: 0 })),
            ("bytes 9-3/10", Err(Backwards { first: 9, last: 3 })),
            ("bytes 0-9223372036854775806/*", part(0, big, None)),
            ("bytes 0-9223372036854775807/*", Err(Malformed)),
            ("bytes 0-9223372036854775808/*", Err(Malformed)),
            ("bytes 0-18446744073709551616/*", Err(Malformed)),
            ("bytes +0-9/10", Err(Malformed)),
            ("bytes 0-9/-10", Err(Malformed)),
            ("bytes 0--9/10", Err(Malformed)),
            ("bytes *-9/10", Err(Malformed)),
            ("bytes 0-9/10, bytes 20-29/30", Err(Malformed)),
            ("items 0-9/10", Err(OtherUnit)),
            ("=0-9/10", Err(Malformed)),
            ("", Err(Malformed)),
            ("bytes", Err(Malformed)),
        ];
        for (text, expected) in rows {
            assert_eq!(ContentRange::parse(text.as_bytes()), *expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(start in 0..1_u64 << 62, len in 1..1_u64 << 61, more in prop::option::of(0..1_u64 << 61)) {
            let span = Span::new(start, start + len).unwrap();
            let total = more.map(|more| start + len + more).filter(|t| *t <= i64::MAX as u64);
            let range = ContentRange::Part { span, total };
            prop_assert_eq!(ContentRange::parse(range.to_string().as_bytes()), Ok(range));
            let range = ContentRange::Unsatisfied { total };
            prop_assert_eq!(ContentRange::parse(range.to_string().as_bytes()), Ok(range));
        }

        #[test]
        fn no_bytes_make_a_range_beyond_its_total(text in "(bytes)?[ =]?[0-9*]{0,20}-?[0-9*]{0,20}/?[0-9*]{0,20}", noise in prop::collection::vec(any::<u8>(), 0..40)) {
            for value in [text.as_bytes(), &noise] {
                if let Ok(ContentRange::Part { span, total: Some(total) }) = ContentRange::parse(value) {
                    prop_assert!(span.end() <= total);
                }
            }
        }
    }
}
