//! Dates of HTTP, and `Retry-After`.

use super::scan;
use std::time::Duration;

/// The longest wait that a server is allowed to ask for: a day.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const DAY: i64 = 24 * 60 * 60;

/// Reads a date in any of the three formats of RFC 9110 section 5.6.7, in seconds since 1970.
///
/// Also taken: a numeric zone (`+0000`, `-0130`), `UTC`, four-digit years with dashes, and any or no
/// name of the week's day, which is not checked. Years of two digits are 1970 to 2069.
pub fn parse_http_date(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?.trim();
    if text.len() > 64 {
        return None;
    }
    let text = match text.split_once(',') {
        Some((day_name, rest)) if day_name.bytes().all(|b| b.is_ascii_alphabetic()) => rest,
        Some(_) => return None,
        None => text,
    };
    let mut words = text.split_ascii_whitespace();
    let first = words.next()?;
    if first.starts_with(|c: char| c.is_ascii_digit()) {
        // `06 Nov 1994 08:49:37 GMT`, or with dashes `06-Nov-94 08:49:37 GMT`.
        let (day, month, year) = match first.split_once('-') {
            Some((day, rest)) => {
                let (month, year) = rest.split_once('-')?;
                (day, month, year)
            }
            None => (first, words.next()?, words.next()?),
        };
        let time = words.next()?;
        let zone = zone_seconds(words.next()?)?;
        let seconds = seconds(year, month, day, time)? - zone;
        return words.next().is_none().then_some(seconds);
    }
    // `Sun Nov  6 08:49:37 1994`, with or without the day's name.
    let month = if month_number(first).is_some() { first } else { words.next()? };
    let (day, time, year) = (words.next()?, words.next()?, words.next()?);
    let seconds = if year.len() == 4 { seconds(year, month, day, time)? } else { return None };
    match words.next() {
        None => Some(seconds),
        Some(zone) => words.next().is_none().then_some(seconds - zone_seconds(zone)?),
    }
}

/// Writes seconds since 1970 as HTTP wants dates sent (`Sun, 06 Nov 1994 08:49:37 GMT`); `None`
/// outside the years 1 to 9999.
pub fn format_http_date(seconds: i64) -> Option<String> {
    let (days, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let (year, month, day) = date_of(days)?;
    let day_name = DAYS[usize::try_from((days + 3).rem_euclid(7)).ok()?];
    let month = MONTHS[usize::try_from(month - 1).ok()?];
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    Some(format!("{day_name}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT"))
}

/// How long a server asks to be left alone (seconds, or a date against `now_unix`, seconds since
/// 1970), at most [`MAX_RETRY_AFTER`]; a date that has passed is no wait.
pub fn parse_retry_after(value: &[u8], now_unix: i64) -> Option<Duration> {
    let value = scan::trim(value);
    let seconds = if !value.is_empty() && value.iter().all(u8::is_ascii_digit) {
        // More digits than fit a number are a long wait, not nonsense.
        scan::number(value).unwrap_or(u64::MAX)
    } else {
        u64::try_from(parse_http_date(value)?.saturating_sub(now_unix)).unwrap_or(0)
    };
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

fn month_number(name: &str) -> Option<i64> {
    let at = MONTHS.iter().position(|m| m.eq_ignore_ascii_case(name))?;
    i64::try_from(at + 1).ok()
}

/// A number of at most `digits` digits.
fn small(text: &str, digits: usize) -> Option<i64> {
    let fits = text.len() <= digits;
    scan::number(text.as_bytes()).filter(|_| fits).and_then(|n| i64::try_from(n).ok())
}

fn zone_seconds(zone: &str) -> Option<i64> {
    if ["GMT", "UTC", "Z"].iter().any(|z| z.eq_ignore_ascii_case(zone)) {
        return Some(0);
    }
    let (sign, digits) = match zone.as_bytes() {
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let number = i64::try_from(scan::number(digits).filter(|_| digits.len() == 4)?).ok()?;
    let (hours, minutes) = (number / 100, number % 100);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

fn seconds(year: &str, month: &str, day: &str, time: &str) -> Option<i64> {
    let year = match (year.len(), small(year, 4)?) {
        (2, year) => year + if year < 70 { 2000 } else { 1900 },
        (4, year) if year > 0 => year,
        _ => return None,
    };
    let (month, day) = (month_number(month)?, small(day, 2)?);
    let mut parts = time.split(':').map(|part| small(part, 2));
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    // 60 is a leap second.
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = days_of(year, month, day);
    // A day that the month does not have comes back as one of the next month.
    if date_of(days) != Some((year, month, day)) {
        return None;
    }
    Some(days * DAY + hour * 3600 + minute * 60 + second)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    // Years that begin in March put the leap day at their end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + day_of_year - 719_468
}

/// The date that is `days` after 1970-01-01; `None` outside the years 1 to 9999.
fn date_of(days: i64) -> Option<(i64, i64, i64)> {
    if !(-719_162..=2_932_896).contains(&days) {
        return None;
    }
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    Some((era * 400 + year_of_era + i64::from(month <= 2), month, day))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dates_are_read_in_every_format_that_servers_write() {
        for (text, expected) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(784_111_777)),
            ("Sun Nov  6 08:49:37 1994", Some(784_111_777)),
            ("Sat, 06 Sep 2008 15:26:33 GMT", Some(1_220_714_793)),
            ("Saturday, 06-Sep-08 15:26:33 GMT", Some(1_220_714_793)),
            ("Sat Sep 06 15:26:33 2008", Some(1_220_714_793)),
            ("Sun, 10-Jun-2007 11:00:00 GMT", Some(1_181_473_200)),
            ("Tue, 15 Nov 2022 12:45:26 +0000", Some(1_668_516_326)),
            ("Tue, 15 Nov 2022 12:45:26 -0000", Some(1_668_516_326)),
            ("Tue, 15 Nov 2022 13:45:26 +0100", Some(1_668_516_326)),
            ("Tue, 15 Nov 2022 12:45:26 UTC", Some(1_668_516_326)),
            ("15 Nov 2022 12:45:26 gmt", Some(1_668_516_326)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Wed, 31 Dec 1969 23:59:59 GMT", Some(-1)),
            ("Tue, 29 Feb 2000 00:00:00 GMT", Some(951_782_400)),
            ("Thu, 29 Feb 2001 00:00:00 GMT", None),
            ("Wed, 31 Apr 2024 00:00:00 GMT", None),
            ("Thu Jan 1 1970 0:0", None),
            ("Sat, 06 Sep 2008 25:26:33 GMT", None),
            ("Sat, 06 Sep 2008 15:26 GMT", None),
            ("Sat, 06 Sep 2008 15:26:33", None),
            ("Sat, 06 Sep 2008 15:26:33 GMT and more", None),
            ("Sat, 06 Sep 2008 15:26:33 +9900", None),
            ("Sat, 06 Foo 2008 15:26:33 GMT", None),
            ("Sat, -6 Sep 2008 15:26:33 GMT", None),
            ("0", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(parse_http_date(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn a_wait_is_seconds_or_a_date_and_never_longer_than_a_day() {
        let now = 784_111_777;
        for (text, expected) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(86_400)),
            ("604800", Some(86_400)),
            ("99999999999999999999999999", Some(86_400)),
            ("-5", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(
                parse_retry_after(text.as_bytes(), now),
                expected.map(Duration::from_secs),
                "{text:?}"
            );
        }
        assert_eq!(parse_retry_after(b"Sun, 06 Nov 1994 08:50:37 GMT", i64::MIN), Some(MAX_RETRY_AFTER));
    }

    proptest! {
        #[test]
        fn a_date_that_is_written_is_read_again(seconds in -62_135_596_800_i64..=253_402_300_799) {
            let text = format_http_date(seconds).unwrap();
            prop_assert_eq!(parse_http_date(text.as_bytes()), Some(seconds), "{}", text);
        }

        #[test]
        fn any_bytes_and_any_seconds_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..60), text in "[A-Za-z]{0,4},? ?[0-9]{0,3}[ -][A-Z][a-z]{2}[ -][0-9]{0,5} [0-9:]{0,9} [A-Z0-9+-]{0,6}", seconds in any::<i64>()) {
            let _ = (parse_retry_after(&bytes, seconds), parse_retry_after(text.as_bytes(), seconds));
            prop_assert_eq!(format_http_date(seconds).is_some(), (-62_135_596_800..=253_402_300_799).contains(&seconds));
        }
    }
}
