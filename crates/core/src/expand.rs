//! URLs with ranges and alternatives: `http://{jp,us}.example.org/cd[000-012].iso`.
//!
//! | pattern | stands for |
//! |---|---|
//! | `[1-3]`, `[001-100]`, `[5-12:3]` | numbers, padded with zeros to the width of the first, by a step |
//! | `[a-z]`, `[C-E]`, `[v-z:2]` | letters |
//! | `[aa-ba]` | letters as digits: aa, ab, … az, ba |
//! | `{a,b}`, `file{,.asc}` | alternatives, which may be empty |
//!
//! The last one varies fastest. An IPv6 address in brackets is left as it is. A range that runs
//! backwards is an error (some programs make one empty text of it): a wrong URL that nobody notices is
//! worse than none.

use std::net::Ipv6Addr;

/// The most URLs that one pattern may stand for.
pub const MAX_RESULTS: usize = 65_536;

/// The most bytes that the URLs of one pattern may have together.
pub const MAX_BYTES: usize = 16 << 20;

/// The most digits or letters that one end of a range may have.
const MAX_WIDTH: usize = 64;

/// The greatest step of a range, and the greatest value of a range of letters (`dsyp`).
const MAX_VALUE: u64 = 65_535;

/// Every URL that a pattern stands for, in order; a text without brackets or braces stands for itself.
///
/// # Errors
/// What is wrong, or that there would be too many.
pub fn expand(pattern: &str) -> Result<Vec<String>, ExpandError> {
    let parts = read(pattern)?;
    let mut count = 1usize;
    for part in &parts {
        count = count
            .checked_mul(part.len())
            .filter(|&c| c <= MAX_RESULTS)
            .ok_or(ExpandError::TooMany { most: MAX_RESULTS })?;
    }
    let longest = parts.iter().fold(0usize, |sum, part| sum.saturating_add(part.longest()));
    if count.saturating_mul(longest) > MAX_BYTES {
        return Err(ExpandError::TooLong { most: MAX_BYTES });
    }
    let mut results = Vec::with_capacity(count);
    for index in 0..count {
        // The digits of the index, last part fastest.
        let mut left = count;
        let mut rest = index;
        let mut text = String::new();
        for part in &parts {
            left /= part.len();
            part.push(rest / left, &mut text);
            rest %= left;
        }
        results.push(text);
    }
    Ok(results)
}

/// Why a pattern stands for nothing.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ExpandError {
    /// A bracket or brace is never closed.
    #[error("the {open:?} at character {at} is never closed")]
    Unclosed {
        /// `[` or `{`.
        open: char,
        /// Where, counted from 1.
        at: usize,
    },
    /// Braces or brackets within braces, or braces with nothing in them.
    #[error("{{{inside}}} is not a list of alternatives; write it like {{jp,us}}")]
    Alternatives {
        /// What is between the braces, cut off.
        inside: String,
    },
    /// Not a range.
    #[error("[{inside}] is not a range; write it like [001-100], [a-z] or [0-20:5]")]
    NotARange {
        /// What is between the brackets, cut off.
        inside: String,
    },
    /// A range whose end is before its beginning.
    #[error("the range [{inside}] runs backwards: it must go from small to large")]
    Backwards {
        /// What is between the brackets, cut off.
        inside: String,
    },
    /// A number, a step or letters beyond what is counted.
    #[error("the range [{inside}] goes beyond what can be counted")]
    TooLarge {
        /// What is between the brackets, cut off.
        inside: String,
    },
    /// More URLs than allowed.
    #[error("the pattern stands for more than {most} URLs")]
    TooMany {
        /// How many are allowed.
        most: usize,
    },
    /// More bytes than allowed.
    #[error("the pattern stands for more than {most} bytes of URLs")]
    TooLong {
        /// How many are allowed.
        most: usize,
    },
}

/// A piece of a pattern. None stands for nothing: `len` is at least 1.
enum Part<'a> {
    Literal(&'a str),
    Alternatives(Vec<&'a str>),
    Numbers { first: u64, step: u64, count: usize, width: usize },
    Letters { first: u64, step: u64, count: usize, width: usize, a: u8 },
}

impl Part<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Literal(_) => 1,
            Self::Alternatives(list) => list.len(),
            Self::Numbers { count, .. } | Self::Letters { count, .. } => *count,
        }
    }

    /// At least as long as any text that it stands for.
    fn longest(&self) -> usize {
        match self {
            Self::Literal(text) => text.len(),
            Self::Alternatives(list) => list.iter().map(|text| text.len()).max().unwrap_or(0),
            Self::Numbers { width, .. } | Self::Letters { width, .. } => (*width).max(20),
        }
    }

    fn push(&self, index: usize, out: &mut String) {
        match self {
            Self::Literal(text) => out.push_str(text),
            Self::Alternatives(list) => out.push_str(list[index]),
            Self::Numbers { first, step, width, .. } => {
                let value = first + index as u64 * step;
                out.push_str(&format!("{value:0width$}"));
            }
            Self::Letters { first, step, width, a, .. } => {
                let mut value = first + index as u64 * step;
                let mut digits = Vec::new();
                while value > 0 || digits.len() < *width {
                    // Less than 26: fits.
                    digits.push(char::from(a + u8::try_from(value % 26).unwrap_or(0)));
                    value /= 26;
                }
                out.extend(digits.iter().rev());
            }
        }
    }
}

fn read(pattern: &str) -> Result<Vec<Part<'_>>, ExpandError> {
    let mut parts = Vec::new();
    let mut literal = 0;
    let mut at = 0;
    while let Some(found) = pattern[at..].find(['[', '{']) {
        let open_at = at + found;
        let (open, close) = if pattern.as_bytes()[open_at] == b'[' { ('[', ']') } else { ('{', '}') };
        let unclosed = || ExpandError::Unclosed { open, at: pattern[..open_at].chars().count() + 1 };
        let length = pattern[open_at + 1..].find(close).ok_or_else(unclosed)?;
        let inside = &pattern[open_at + 1..open_at + 1 + length];
        at = open_at + 1 + length + 1;
        if open == '[' && inside.parse::<Ipv6Addr>().is_ok() {
            continue;
        }
        if literal < open_at {
            parts.push(Part::Literal(&pattern[literal..open_at]));
        }
        literal = at;
        parts.push(if open == '[' { range(inside)? } else { alternatives(inside)? });
    }
    if literal < pattern.len() {
        parts.push(Part::Literal(&pattern[literal..]));
    }
    Ok(parts)
}

fn shorten(inside: &str) -> String {
    inside.chars().take(64).collect()
}

fn alternatives(inside: &str) -> Result<Part<'_>, ExpandError> {
    if inside.is_empty() || inside.contains(['{', '[', ']']) {
        return Err(ExpandError::Alternatives { inside: shorten(inside) });
    }
    let list: Vec<&str> = inside.split(',').take(MAX_RESULTS + 1).collect();
    if list.len() > MAX_RESULTS {
        return Err(ExpandError::TooMany { most: MAX_RESULTS });
    }
    Ok(Part::Alternatives(list))
}

fn range(inside: &str) -> Result<Part<'_>, ExpandError> {
    let not_a_range = || ExpandError::NotARange { inside: shorten(inside) };
    let too_large = || ExpandError::TooLarge { inside: shorten(inside) };
    let (ends, step) = match inside.split_once(':') {
        None => (inside, 1),
        Some((ends, step)) if all(step, u8::is_ascii_digit) => {
            let step = step.parse().ok().filter(|&s| s <= MAX_VALUE).ok_or_else(too_large)?;
            (ends, step)
        }
        Some(_) => return Err(not_a_range()),
    };
    if step == 0 {
        return Err(not_a_range());
    }
    let (from, to) = ends.split_once('-').ok_or_else(not_a_range)?;
    let width = from.len();
    let both = |class: fn(&u8) -> bool| all(from, class) && all(to, class);
    let letters = if both(u8::is_ascii_lowercase) {
        Some(b'a')
    } else if both(u8::is_ascii_uppercase) {
        Some(b'A')
    } else if both(u8::is_ascii_digit) {
        None
    } else {
        return Err(not_a_range());
    };
    let value = |text: &str| match letters {
        // `i64` leaves room for the sums above.
        None => text.parse::<i64>().ok().and_then(|v| u64::try_from(v).ok()),
        Some(a) => text
            .bytes()
            .try_fold(0u64, |sum, b| Some(sum * 26 + u64::from(b - a)).filter(|&v| v <= MAX_VALUE)),
    };
    if width > MAX_WIDTH {
        return Err(too_large());
    }
    let first = value(from).ok_or_else(too_large)?;
    let last = value(to).ok_or_else(too_large)?;
    let distance =
        last.checked_sub(first).ok_or_else(|| ExpandError::Backwards { inside: shorten(inside) })?;
    let count = usize::try_from(distance / step)
        .ok()
        .filter(|&c| c < MAX_RESULTS)
        .ok_or(ExpandError::TooMany { most: MAX_RESULTS })?
        + 1;
    Ok(match letters {
        None => Part::Numbers { first, step, count, width },
        Some(a) => Part::Letters { first, step, count, width, a },
    })
}

fn all(text: &str, class: fn(&u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(|b| class(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_stand_for_what_people_expect() {
        for (pattern, expected) in [
            // B23.
            (
                "alpha:{01,02,03}:bravo:{001,002}",
                "alpha:01:bravo:001 alpha:01:bravo:002 alpha:02:bravo:001 alpha:02:bravo:002 \
                 alpha:03:bravo:001 alpha:03:bravo:002",
            ),
            ("[1-3]", "1 2 3"),
            ("[5-12:3]", "5 8 11"),
            ("[05-12:3]", "05 08 11"),
            ("[c-e]", "c d e"),
            ("[C-E]", "C D E"),
            ("[v-z:2]", "v x z"),
            ("[aa-ba]", "aa ab ac ad ae af ag ah ai aj ak al am an ao ap aq ar as at au av aw ax ay az ba"),
            ("[a-ba]", "a b c d e f g h i j k l m n o p q r s t u v w x y z ba"),
            (
                "http://{jp,us}.mirror/image_cd[000-001].iso",
                "http://jp.mirror/image_cd000.iso http://jp.mirror/image_cd001.iso \
                 http://us.mirror/image_cd000.iso http://us.mirror/image_cd001.iso",
            ),
            // More.
            ("http://h/plain", "http://h/plain"),
            ("[98-101]", "98 99 100 101"),
            ("[7-7]", "7"),
            ("[a-a]", "a"),
            ("[1-10:65535]", "1"),
            ("file{,.asc}", "file file.asc"),
            ("a]b}c", "a]b}c"),
            ("http://[::1]:80/[1-2]", "http://[::1]:80/1 http://[::1]:80/2"),
            ("[2024000-2024001]", "2024000 2024001"),
        ] {
            let expected: Vec<&str> = expected.split_whitespace().collect();
            assert_eq!(expand(pattern).unwrap(), expected, "{pattern}");
        }
    }

    #[test]
    fn what_is_not_a_pattern_is_refused() {
        let inside = |pattern: &str| pattern[1..pattern.len() - 1].to_owned();
        // B23: errors. Ranges that run backwards are errors here, too.
        for pattern in ["[1-]", "[-1]", "[1-3a]", "[1-2:]", "[a-Z]", "[]", "[1]", "[1-3:0]", "[1-2-3]"] {
            assert_eq!(expand(pattern), Err(ExpandError::NotARange { inside: inside(pattern) }), "{pattern}");
        }
        for pattern in ["[99-00]", "[z-a]", "[2-1]"] {
            assert_eq!(expand(pattern), Err(ExpandError::Backwards { inside: inside(pattern) }));
        }
        for pattern in ["[0-1:65536]", "[dsyo-dsyq]", "[0-99999999999999999999]"] {
            assert_eq!(expand(pattern), Err(ExpandError::TooLarge { inside: inside(pattern) }));
        }
        assert!(matches!(expand(&format!("[{}1-2]", "0".repeat(70_000))), Err(ExpandError::TooLarge { .. })));
        for pattern in ["[0-65536]", "[0-9][0-9][0-9][0-9][0-9]", "[0-9223372036854775807]"] {
            assert_eq!(expand(pattern), Err(ExpandError::TooMany { most: MAX_RESULTS }), "{pattern}");
        }
        for pattern in ["{}", "{a,{b}", "{[1-2]}"] {
            assert!(matches!(expand(pattern), Err(ExpandError::Alternatives { .. })), "{pattern}");
        }
        assert_eq!(expand("é[1-2"), Err(ExpandError::Unclosed { open: '[', at: 2 }));
        assert_eq!(expand("{a,b"), Err(ExpandError::Unclosed { open: '{', at: 1 }));
    }

    #[test]
    fn the_most_is_allowed_and_no_more() {
        assert_eq!(expand("[0-65535]").unwrap().len(), MAX_RESULTS);
        assert_eq!(expand("[dsyn-dsyp]").unwrap(), ["dsyn", "dsyo", "dsyp"]);
        let long = format!("[0-65535]{}", "x".repeat(300));
        assert_eq!(expand(&long), Err(ExpandError::TooLong { most: MAX_BYTES }));
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in "\\PC*") {
            let _ = expand(&text);
        }

        #[test]
        fn nothing_that_looks_like_a_pattern_panics(text in "([\\[{]([0-9]{1,4}|[a-cA-C]{1,3}|[-,:é]){0,5}[\\]}]|[a-z:]){0,4}") {
            let _ = expand(&text);
        }

        #[test]
        fn a_range_holds_every_number_once(first in 0u64..2000, count in 1u64..200, step in 1u64..50) {
            let last = first + (count - 1) * step + step / 2;
            let texts = expand(&format!("x[{first}-{last}:{step}]")).unwrap();
            let numbers: Vec<u64> = texts.iter().map(|t| t[1..].parse().unwrap()).collect();
            let expected: Vec<u64> = (0..).map(|i| first + i * step).take_while(|&n| n <= last).collect();
            prop_assert_eq!(numbers, expected);
        }
    }
}
