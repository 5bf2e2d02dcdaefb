//! Sizes, rates and durations as people write and read them.
//!
//! Units follow the GNU tools: `K`, `Ki` and `KiB` are 1024 bytes, `KB` is 1000, in any case and up to `E`.
//! Reading is exact: a number that cannot be kept is an error, never rounded to another.

use std::fmt;
use std::time::Duration;

/// The largest size or rate that is read: the largest offset that a file can have.
pub const MAX_SIZE: u64 = i64::MAX as u64;

/// The longest duration that is read, ten years: so that adding one to any clock is safe.
pub const MAX_DURATION: Duration = Duration::from_secs(3650 * 86_400);

/// Reads a size in bytes: `4096M`, `1k`, `1.5G`, `10MiB`, `512`.
///
/// # Errors
/// A sentence that says what is wrong with the text, and an example.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    read_size(text.trim()).map_err(|problem| UnitError::new(Quantity::Size, text, problem))
}

/// Reads a rate in bytes a second: a size with or without `/s`. `0` and `none` are no limit.
///
/// # Errors
/// A sentence that says what is wrong with the text, and an example.
pub fn parse_rate(text: &str) -> Result<Option<u64>, UnitError> {
    let trimmed = text.trim();
    if trimmed.eq_ignore_ascii_case("none") {
        return Ok(None);
    }
    let size = trimmed.strip_suffix("/s").or_else(|| trimmed.strip_suffix("/S")).unwrap_or(trimmed);
    let rate = read_size(size.trim_end()).map_err(|problem| UnitError::new(Quantity::Rate, text, problem))?;
    Ok((rate > 0).then_some(rate))
}

/// Reads a duration: `30s`, `500ms`, `2m`, `1h30m`, `1.5h`, `2d`; a plain number is seconds.
/// What is finer than a nanosecond is cut off.
///
/// # Errors
/// A sentence that says what is wrong with the text, and an example.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    read_duration(text.trim()).map_err(|problem| UnitError::new(Quantity::Duration, text, problem))
}

/// A size for people to read, with one decimal, cut off so that it never shows more than there is:
/// `511 B`, `1.5 MiB`.
pub fn show_size(bytes: u64) -> String {
    const NAMES: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = (bytes.ilog2() / 10).min(6);
    let unit = 1u128 << (10 * power);
    let tenths = u128::from(bytes) * 10 / unit;
    let name = NAMES[power as usize - 1];
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

/// A rate for people to read: `12.3 MiB/s`.
pub fn show_rate(bytes_per_second: u64) -> String {
    format!("{}/s", show_size(bytes_per_second))
}

/// A duration for people to read: `500ms`, `1.5s`, `1m59s`, `1h`, `2d3h`. From a minute up whole seconds
/// are shown, below it milliseconds; what is finer is cut off. [`parse_duration`] reads it back.
pub fn show_duration(duration: Duration) -> String {
    let total = duration.as_secs();
    if total < 60 {
        let millis = duration.subsec_millis();
        return match (total, millis) {
            (0, 1..) => format!("{millis}ms"),
            (_, 0) => format!("{total}s"),
            _ => format!("{}s", format!("{total}.{millis:03}").trim_end_matches('0')),
        };
    }
    let parts = [(total / 86_400, "d"), (total / 3600 % 24, "h"), (total / 60 % 60, "m"), (total % 60, "s")];
    parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect()
}

/// A size in the shortest form that [`parse_size`] reads back as the same number: `4G`, `1536K`, `1000`.
pub fn exact_size(bytes: u64) -> String {
    const NAMES: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let power = (bytes.trailing_zeros() / 10).min(6);
    let power = if bytes == 0 { 0 } else { power };
    format!("{}{}", bytes >> (10 * power), NAMES[power as usize])
}

/// A limit in the shortest form that [`parse_rate`] reads back as the same: `none`, `10M/s`.
pub fn exact_rate(limit: Option<u64>) -> String {
    limit.map_or_else(|| "none".to_owned(), |rate| format!("{}/s", exact_size(rate)))
}

/// What a text was read as.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Quantity {
    /// Bytes.
    Size,
    /// Bytes a second.
    Rate,
    /// Time.
    Duration,
}

impl Quantity {
    fn name(self) -> &'static str {
        match self {
            Self::Size => "a size",
            Self::Rate => "a rate",
            Self::Duration => "a duration",
        }
    }

    fn example(self) -> &'static str {
        match self {
            Self::Size => "write it like 512K, 10MiB or 1.5G",
            Self::Rate => "write it like 500K, 10M/s, or none for no limit",
            Self::Duration => "write it like 30s, 500ms or 1h30m",
        }
    }
}

/// What is wrong with a size, rate or duration.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum UnitProblem {
    /// Nothing there.
    #[error("it is empty")]
    Empty,
    /// It does not begin with a digit.
    #[error("it does not begin with a number")]
    NotANumber,
    /// It begins with a minus.
    #[error("it is negative")]
    Negative,
    /// The unit is not known.
    #[error("{0:?} is not a unit for it")]
    UnknownUnit(String),
    /// It is a number of bits.
    #[error("{0:?} counts bits, and bytes are meant here")]
    Bits(String),
    /// It asks for a part of a byte.
    #[error("there is no part of a byte")]
    PartOfAByte,
    /// More decimals than can be kept.
    #[error("it has more than 18 decimals")]
    TooPrecise,
    /// More than can be kept.
    #[error("it is too large")]
    TooLarge,
    /// The units of a duration do not go from large to small, or one of the numbers has none.
    #[error("its units do not go from large to small, each once")]
    UnitOrder,
}

/// A text that is not the quantity it should be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnitError {
    /// What the text was read as.
    pub quantity: Quantity,
    /// The text, cut off after 64 characters.
    pub text: String,
    /// What is wrong with it.
    pub problem: UnitProblem,
}

impl UnitError {
    fn new(quantity: Quantity, text: &str, problem: UnitProblem) -> Self {
        Self { quantity, text: shorten(text), problem }
    }
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { quantity, text, problem } = self;
        write!(f, "{text:?} is not {}: {problem}; {}", quantity.name(), quantity.example())
    }
}

impl std::error::Error for UnitError {}

fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}

/// A decimal number as it was written: `whole + fraction / 10^digits`.
struct Number {
    whole: u64,
    fraction: u64,
    digits: u32,
}

impl Number {
    /// `self * unit`, cut off to a whole number.
    fn times(&self, unit: u64) -> Option<u64> {
        let fraction = u128::from(self.fraction) * u128::from(unit) / 10u128.pow(self.digits);
        self.whole.checked_mul(unit)?.checked_add(u64::try_from(fraction).ok()?)
    }
}

/// Takes a decimal number off the front.
fn take_number(text: &str) -> Result<(Number, &str), UnitProblem> {
    match text.as_bytes().first() {
        None => return Err(UnitProblem::Empty),
        Some(b'-') => return Err(UnitProblem::Negative),
        Some(b'0'..=b'9') => {}
        Some(_) => return Err(UnitProblem::NotANumber),
    }
    let (whole, rest) = split_digits(text);
    let whole = whole.parse().map_err(|_| UnitProblem::TooLarge)?;
    let Some(after_dot) = rest.strip_prefix('.') else {
        return Ok((Number { whole, fraction: 0, digits: 0 }, rest));
    };
    let (decimals, rest) = split_digits(after_dot);
    if decimals.is_empty() {
        return Err(UnitProblem::NotANumber);
    }
    let decimals = decimals.trim_end_matches('0');
    if decimals.len() > 18 {
        return Err(UnitProblem::TooPrecise);
    }
    // At most 18 digits: both fit.
    let fraction = if decimals.is_empty() { 0 } else { decimals.parse().unwrap_or(0) };
    let digits = u32::try_from(decimals.len()).unwrap_or(0);
    Ok((Number { whole, fraction, digits }, rest))
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

fn read_size(text: &str) -> Result<u64, UnitProblem> {
    let (number, rest) = take_number(text)?;
    let unit = byte_unit(rest.trim_start())?;
    if unit == 1 && number.fraction > 0 {
        return Err(UnitProblem::PartOfAByte);
    }
    number.times(unit).filter(|&size| size <= MAX_SIZE).ok_or(UnitProblem::TooLarge)
}

fn byte_unit(name: &str) -> Result<u64, UnitProblem> {
    let lower = name.to_ascii_lowercase();
    if lower.ends_with("bit") || lower.ends_with("bits") || lower.ends_with("bps") {
        return Err(UnitProblem::Bits(shorten(name)));
    }
    let mut letters = lower.chars();
    let power = match letters.next() {
        None => return Ok(1),
        Some('b') if letters.as_str().is_empty() => return Ok(1),
        Some(letter) => "kmgtpe".find(letter).and_then(|at| u32::try_from(at + 1).ok()),
    };
    match (power, letters.as_str()) {
        (Some(power), "" | "i" | "ib") => Ok(1 << (10 * power)),
        (Some(power), "b") => Ok(1000u64.pow(power)),
        _ => Err(UnitProblem::UnknownUnit(shorten(name))),
    }
}

fn read_duration(text: &str) -> Result<Duration, UnitProblem> {
    const NANOS: u64 = 1_000_000_000;
    let mut total = Duration::ZERO;
    let mut rest = text;
    let mut last_unit = u64::MAX;
    loop {
        let (number, after) = take_number(rest)?;
        let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (name, after) = after.split_at(letters);
        let unit = match name.to_ascii_lowercase().as_str() {
            "ms" => 1_000_000,
            "s" => NANOS,
            "m" => 60 * NANOS,
            "h" => 3600 * NANOS,
            "d" => 86_400 * NANOS,
            // A number without a unit is seconds only when it stands alone.
            "" if after.is_empty() && last_unit == u64::MAX => NANOS,
            "" if after.is_empty() => return Err(UnitProblem::UnitOrder),
            "" => return Err(UnitProblem::UnknownUnit(shorten(after))),
            _ => return Err(UnitProblem::UnknownUnit(shorten(name))),
        };
        if unit >= last_unit {
            return Err(UnitProblem::UnitOrder);
        }
        last_unit = unit;
        let part = number.times(unit).ok_or(UnitProblem::TooLarge)?;
        total = total.checked_add(Duration::from_nanos(part)).ok_or(UnitProblem::TooLarge)?;
        if total > MAX_DURATION {
            return Err(UnitProblem::TooLarge);
        }
        rest = after.trim_start();
        if rest.is_empty() {
            return Ok(total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            // B31.
            ("4096M", 4_294_967_296),
            ("1K", 1024),
            ("1k", 1024),
            // The rest of the grammar.
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("1KiB", 1024),
            ("1 kib", 1024),
            ("1Ki", 1024),
            ("1KB", 1000),
            ("1.5G", 1_610_612_736),
            ("1.50G", 1_610_612_736),
            ("0.5k", 512),
            ("1.0", 1),
            (" 10MiB ", 10_485_760),
            ("7E", 7 << 60),
            ("9223372036854775807", MAX_SIZE),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text:?}");
        }
    }

    #[test]
    fn what_is_not_a_size_is_refused_with_the_reason() {
        for (text, problem) in [
            // B31.
            ("", UnitProblem::Empty),
            ("foo", UnitProblem::NotANumber),
            ("-1", UnitProblem::Negative),
            ("9223372036854775807K", UnitProblem::TooLarge),
            // The rest.
            ("  ", UnitProblem::Empty),
            ("+1", UnitProblem::NotANumber),
            ("K", UnitProblem::NotANumber),
            ("1x", UnitProblem::UnknownUnit("x".into())),
            ("1KK", UnitProblem::UnknownUnit("KK".into())),
            ("1K/s", UnitProblem::UnknownUnit("K/s".into())),
            ("1\u{212a}", UnitProblem::UnknownUnit("\u{212a}".into())),
            ("10Mbit", UnitProblem::Bits("Mbit".into())),
            ("1.5", UnitProblem::PartOfAByte),
            ("1.", UnitProblem::NotANumber),
            (".5K", UnitProblem::NotANumber),
            ("1.0000000000000000001K", UnitProblem::TooPrecise),
            ("8E", UnitProblem::TooLarge),
            ("9223372036854775808", UnitProblem::TooLarge),
            ("99999999999999999999999", UnitProblem::TooLarge),
        ] {
            assert_eq!(parse_size(text).unwrap_err().problem, problem, "{text:?}");
        }
    }

    #[test]
    fn an_error_is_a_sentence_with_an_example() {
        assert_eq!(
            parse_size("12x").unwrap_err().to_string(),
            "\"12x\" is not a size: \"x\" is not a unit for it; write it like 512K, 10MiB or 1.5G"
        );
        assert!(parse_size(&"9".repeat(1 << 20)).unwrap_err().to_string().len() < 256);
    }

    #[test]
    fn rates_are_sizes_and_nothing_is_no_limit() {
        for (text, rate) in [
            ("0", None),
            ("none", None),
            ("None", None),
            ("0/s", None),
            ("0K", None),
            ("500K", Some(512_000)),
            ("10M/s", Some(10_485_760)),
            ("10 MiB/s", Some(10_485_760)),
            ("1.5K /s", Some(1536)),
        ] {
            assert_eq!(parse_rate(text), Ok(rate), "{text:?}");
        }
        for bad in ["", "/s", "-1", "10Mbps", "10Mbit/s", "1/m", "unlimited", "0.5"] {
            assert_eq!(parse_rate(bad).unwrap_err().quantity, Quantity::Rate, "{bad:?}");
        }
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in [
            ("30s", 30_000),
            ("30", 30_000),
            ("1.5", 1500),
            ("500ms", 500),
            ("2m", 120_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("1d", 86_400_000),
            ("1m1s1ms", 61_001),
            ("0", 0),
            ("2M", 120_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text:?}");
        }
        for (text, problem) in [
            ("", UnitProblem::Empty),
            ("-1s", UnitProblem::Negative),
            ("s", UnitProblem::NotANumber),
            ("1h30", UnitProblem::UnitOrder),
            ("1m1h", UnitProblem::UnitOrder),
            ("1m1m", UnitProblem::UnitOrder),
            ("1w", UnitProblem::UnknownUnit("w".into())),
            ("1 s", UnitProblem::UnknownUnit(" s".into())),
            ("1é", UnitProblem::UnknownUnit("é".into())),
            ("99999999999999999999s", UnitProblem::TooLarge),
            ("3650d1s", UnitProblem::TooLarge),
            ("999999999d", UnitProblem::TooLarge),
        ] {
            assert_eq!(parse_duration(text).unwrap_err().problem, problem, "{text:?}");
        }
    }

    #[test]
    fn what_is_shown_is_short_and_never_more_than_there_is() {
        for (bytes, text) in [
            (0, "0 B"),
            (511, "511 B"),
            (1023, "1023 B"),
            (1127, "1.1 KiB"),
            (1_048_575, "1023.9 KiB"),
            (1_572_864, "1.5 MiB"),
            (4 << 30, "4.0 GiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(show_size(bytes), text);
        }
        assert_eq!(show_rate(12_950_000), "12.3 MiB/s");
        for (millis, text) in [
            (0, "0s"),
            (500, "500ms"),
            (1500, "1.5s"),
            (1050, "1.05s"),
            (59_999, "59.999s"),
            (60_000, "1m"),
            (119_000, "1m59s"),
            (119_999, "1m59s"),
            (3_600_000, "1h"),
            (90_000_000, "1d1h"),
        ] {
            assert_eq!(show_duration(Duration::from_millis(millis)), text);
        }
        assert_eq!(show_duration(Duration::from_nanos(1)), "0s");
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in "\\PC*") {
            let _ = (parse_size(&text), parse_rate(&text), parse_duration(&text));
        }

        #[test]
        fn nothing_that_looks_like_a_quantity_panics(text in "[-0-9.]{0,24} ?[kKmMgGtTpPeEiIbBsShHdD/]{0,4}") {
            let _ = (parse_size(&text), parse_rate(&text), parse_duration(&text));
        }

        #[test]
        fn an_exact_size_is_read_back_as_itself(bytes in 0..=MAX_SIZE, shift in 0u32..62) {
            for size in [bytes, bytes >> shift << shift, bytes >> shift] {
                prop_assert_eq!(parse_size(&exact_size(size)), Ok(size));
                let limit = (size > 0).then_some(size);
                prop_assert_eq!(parse_rate(&exact_rate(limit)), Ok(limit));
            }
        }

        #[test]
        fn a_shown_size_is_read_back_within_a_tenth_of_its_unit(bytes in 0..=MAX_SIZE, shift in 0u32..62) {
            let size = bytes >> shift;
            let back = parse_size(&show_size(size)).unwrap();
            prop_assert!(back <= size);
            prop_assert!(u128::from(size - back) * 10 <= u128::from(size).max(1024));
        }

        #[test]
        fn a_shown_duration_is_read_back_as_far_as_it_was_shown(millis in 0..MAX_DURATION.as_millis() as u64, shift in 0u32..40) {
            let millis = millis >> shift;
            let shown = if millis < 60_000 { millis } else { millis / 1000 * 1000 };
            let text = show_duration(Duration::from_millis(millis));
            prop_assert_eq!(parse_duration(&text), Ok(Duration::from_millis(shown)));
        }
    }
}
