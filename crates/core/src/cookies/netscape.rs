//! The cookie file of Netscape, which curl, wget, yt-dlp and browsers' exports use.
//!
//! Each line has seven fields, apart by tabs: domain, whether it is for hosts below it too, path, whether
//! it is for `https` only, unix seconds of expiry (0: with the session), name, value. A domain with a leading
//! dot is for hosts below it, too. `#HttpOnly_` before the domain marks a cookie that scripts may not see;
//! other lines with `#` are comments. It has no place for a port: what is written is for every port of its
//! host when it is read again.

use super::{Cookie, CookieJar, MAX_COOKIE, domain};
use std::fmt::Write as _;

/// The largest file that is read, in bytes; what is beyond is left out.
pub const MAX_FILE_BYTES: usize = 4 << 20;

/// The most lines that are told as skipped.
const MAX_SKIPPED: usize = 1000;

/// What was read from a file.
#[derive(Clone, Debug, Default)]
pub struct FromNetscape {
    /// The cookies.
    pub jar: CookieJar,
    /// Lines that are no cookies, counted from 1, and why. Expired cookies are not among them.
    pub skipped: Vec<(usize, &'static str)>,
    /// How many cookies were pushed out by later ones, because a jar holds only so many.
    pub pushed_out: usize,
}

impl CookieJar {
    /// Reads a cookie file at `now` (unix seconds). A line that is no cookie is passed over, as every
    /// program does with these files.
    pub fn from_netscape(text: &str, now: i64) -> FromNetscape {
        let mut read = FromNetscape::default();
        let mut bytes = 0usize;
        for (index, line) in text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate() {
            bytes = bytes.saturating_add(line.len() + 1);
            if bytes > MAX_FILE_BYTES {
                read.skipped.push((index + 1, "the file is too large; the rest is left out"));
                break;
            }
            match cookie(line) {
                Ok(Some(cookie)) => read.pushed_out += read.jar.store(cookie, now),
                Ok(None) => {}
                Err(why) if read.skipped.len() < MAX_SKIPPED => read.skipped.push((index + 1, why)),
                Err(_) => {}
            }
        }
        read
    }

    /// The cookies that are alive at `now` (unix seconds) as a cookie file, the oldest first. Holds
    /// secrets: it is for the user alone to read.
    pub fn to_netscape(&self, now: i64) -> String {
        let mut text = String::from("# Netscape HTTP Cookie File\n\n");
        let truth = |yes: bool| if yes { "TRUE" } else { "FALSE" };
        for cookie in self.iter().filter(|c| c.is_alive(now)) {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{}{}{}\t{}\t{}\t{}\t{}\t{}\t{}",
                if cookie.http_only { "#HttpOnly_" } else { "" },
                if cookie.host_only { "" } else { "." },
                cookie.domain,
                truth(!cookie.host_only),
                cookie.path,
                truth(cookie.secure),
                // An expiry at 0 itself is in the past by now.
                cookie.expires.unwrap_or(0),
                cookie.name,
                cookie.value,
            );
        }
        text
    }
}

fn cookie(line: &str) -> Result<Option<Cookie>, &'static str> {
    let (line, http_only) = match line.strip_prefix("#HttpOnly_") {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    if line.trim().is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let fields: Vec<&str> = line.splitn(8, '\t').collect();
    let (written, below, path, secure, expiry, name, value) = match fields[..] {
        [written, below, path, secure, expiry, name, value] => {
            (written, below, path, secure, expiry, name, value)
        }
        // An empty value at the end, with its tab cut off by some editor.
        [written, below, path, secure, expiry, name] => (written, below, path, secure, expiry, name, ""),
        _ => return Err("it has not seven fields apart by tabs"),
    };
    let domain = domain::canonical(written).ok_or("its domain is none")?;
    let asks_for_below = written.starts_with('.') || below.eq_ignore_ascii_case("TRUE");
    let host_only = !asks_for_below || domain::is_address(&domain) || !domain.contains('.');
    if !host_only && domain::is_public_suffix(&domain) {
        return Err("it is for a whole public suffix");
    }
    if !path.starts_with('/') {
        return Err("its path does not begin with a slash");
    }
    if name.is_empty() || name.contains(['=', ';']) || value.contains(';') {
        return Err("its name or value cannot be sent");
    }
    let unsendable = |text: &str| text.chars().any(char::is_control) || text.trim_matches(' ') != text;
    if [path, name, value].iter().any(|text| unsendable(text)) {
        return Err("it has control characters, or blanks around a field");
    }
    if name.len() + value.len() > MAX_COOKIE || path.len() > MAX_COOKIE {
        return Err("it is too long");
    }
    let cookie = Cookie {
        name: name.to_owned(),
        value: value.to_owned(),
        domain,
        host_only,
        path: path.to_owned(),
        secure: secure.eq_ignore_ascii_case("TRUE"),
        http_only,
        expires: expiry_of(expiry).ok_or("its expiry is not a number")?,
        home: None,
        created: 0,
    };
    if cookie.keeps_its_promise() { Ok(Some(cookie)) } else { Err("its name promises what it does not keep") }
}

/// Unix seconds, of which a fraction is cut off; `Some(None)` for 0, the end of the session.
fn expiry_of(text: &str) -> Option<Option<i64>> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    // More digits than fit are for ever.
    let seconds = sign * whole.parse().unwrap_or(i64::MAX);
    Some((seconds != 0).then_some(seconds))
}
