//! Dates of cookies: RFC 6265 section 5.1.1, which finds time, day, month and year in any order.

/// Unix seconds of a date, or `None` if it is none. The time zone is taken to be GMT.
pub(super) fn parse(text: &str) -> Option<i64> {
    let (mut time, mut day, mut month, mut year) = (None, None, None, None);
    for token in text.split(is_delimiter).filter(|t| !t.is_empty()) {
        if time.is_none()
            && let Some(found) = time_of(token)
        {
            time = Some(found);
        } else if day.is_none()
            && let Some(found) = leading_number(token, 1, 2)
        {
            day = Some(found);
        } else if month.is_none()
            && let Some(found) = month_of(token)
        {
            month = Some(found);
        } else if year.is_none()
            && let Some(found) = leading_number(token, 2, 4)
        {
            year = Some(found);
        }
    }
    let (hour, minute, second) = time?;
    let year = match year? {
        short @ 0..=69 => short + 2000,
        short @ 70..=99 => short + 1900,
        long => long,
    };
    let (month, day) = (month?, day?);
    let in_range = year >= 1601 && (1..=days_in(month, year)).contains(&day);
    if !in_range || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some(days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

fn is_delimiter(c: char) -> bool {
    matches!(c, '\t' | ' '..='/' | ';'..='@' | '['..='`' | '{'..='~')
}

/// The number of `least` to `most` digits that a token begins with; other text may follow it.
fn leading_number(token: &str, least: usize, most: usize) -> Option<i64> {
    let digits = token.bytes().take_while(u8::is_ascii_digit).count();
    (least..=most).contains(&digits).then(|| token[..digits].parse().ok()).flatten()
}

fn time_of(token: &str) -> Option<(i64, i64, i64)> {
    let mut parts = token.splitn(3, ':');
    let exact =
        |part: &str| part.bytes().all(|b| b.is_ascii_digit()).then(|| leading_number(part, 1, 2)).flatten();
    let hour = exact(parts.next()?)?;
    let minute = exact(parts.next()?)?;
    Some((hour, minute, leading_number(parts.next()?, 1, 2)?))
}

fn month_of(token: &str) -> Option<i64> {
    const MONTHS: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let name = token.get(..3)?.to_ascii_lowercase();
    MONTHS.iter().position(|m| *m == name).and_then(|at| i64::try_from(at + 1).ok())
}

fn days_in(month: i64, year: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days from 1970-01-01, counting years from March so that the leap day is the last of a year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 719468 days lie between 0000-03-01 and 1970-01-01.
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn dates_are_read_in_the_forms_that_servers_send() {
        for (text, seconds) in [
            // B27.
            ("Sat, 06 Sep 2008 15:26:33 GMT", 1_220_714_793),
            ("Saturday, 06-Sep-08 15:26:33 GMT", 1_220_714_793),
            ("Sun Sep  6 15:26:33 2008", 1_220_714_793),
            ("Thu Jan 1 0:0:0 1970", 0),
            ("Tue, 29 Feb 2000 00:00:00 GMT", 951_782_400),
            // B26.
            ("Sun, 10-Jun-2007 11:00:00 GMT", 1_181_473_200),
            // More.
            ("Fri, 31-Dec-9999 23:59:59 GMT", 253_402_300_799),
            ("Mon, 01 Jan 1601 00:00:00 GMT", -11_644_473_600),
            ("Sun, 01 Mar 2020 00:00:00 GMT", 1_583_020_800),
            ("Thu, 01 Jan 69 00:00:00 GMT", 3_124_224_000),
            ("Thu, 01 Jan 70 00:00:01 GMT", 1),
        ] {
            assert_eq!(parse(text), Some(seconds), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_date_is_none() {
        for text in [
            // B27.
            "Thu, 29 Feb 2001 00:00:00 GMT",
            "Thu Jan 1 1970 0:",
            "Thu Jan 1 1970 0:0",
            "Thu Jan 1 1970 0:0:",
            // B26.
            "2007-10-01 11:00:00 GMT",
            // More.
            "",
            "0",
            "-1",
            "Sun, 31 Apr 2020 00:00:00 GMT",
            "Sun, 00 Apr 2020 00:00:00 GMT",
            "Sun, 01 Apr 2020 24:00:00 GMT",
            "Sun, 01 Apr 2020 00:60:00 GMT",
            "Sun, 01 Apr 1600 00:00:00 GMT",
            "Sun, 01 Apr 20200 00:00:00 GMT",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in "([0-9]{1,5}|[:;, -]|Jan|Feb|é|GMT){0,16}") {
            let _ = parse(&text);
        }

        #[test]
        fn each_day_follows_the_one_before(year in 1601i64..9999, month in 1i64..=12, day in 1i64..=31) {
            let day = day.min(days_in(month, year));
            let (next_year, next_month, next_day) = if day < days_in(month, year) {
                (year, month, day + 1)
            } else if month < 12 {
                (year, month + 1, 1)
            } else {
                (year + 1, 1, 1)
            };
            let today = days_since_1970(year, month, day);
            prop_assert_eq!(days_since_1970(next_year, next_month, next_day), today + 1);
        }
    }
}
