//! A jar as it is written down, for another process of the same user. Holds secrets.

use super::{Cookie, CookieJar, MAX_COOKIE, MAX_COOKIES, domain};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::{Origin, Url};

#[derive(Serialize)]
struct Borrowed<'a> {
    name: &'a str,
    value: &'a str,
    domain: &'a str,
    host_only: bool,
    path: &'a str,
    secure: bool,
    http_only: bool,
    expires: Option<i64>,
    home: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    value: String,
    domain: String,
    host_only: bool,
    path: String,
    secure: bool,
    http_only: bool,
    expires: Option<i64>,
    home: Option<String>,
}

/// As a list of cookies, the oldest first.
impl Serialize for CookieJar {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.iter().map(|cookie| Borrowed {
            name: &cookie.name,
            value: &cookie.value,
            domain: &cookie.domain,
            host_only: cookie.host_only,
            path: &cookie.path,
            secure: cookie.secure,
            http_only: cookie.http_only,
            expires: cookie.expires,
            home: cookie.home.as_ref().map(Origin::ascii_serialization),
        }))
    }
}

/// Whatever is written, the jar keeps its bounds, and each cookie could have come from a server or a file: what
/// could not is passed over. The ages of cookies stay in their order; those that have expired are kept until they
/// are noticed.
impl<'de> Deserialize<'de> for CookieJar {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let written = Vec::<Written>::deserialize(from)?;
        if written.len() > MAX_COOKIES {
            return Err(D::Error::custom(format!("there are more than {MAX_COOKIES} cookies")));
        }
        let mut jar = Self::new();
        for cookie in written {
            if let Some(cookie) = cookie_of(cookie) {
                // Nothing has expired at the beginning of time.
                jar.store(cookie, i64::MIN);
            }
        }
        Ok(jar)
    }
}

fn cookie_of(written: Written) -> Option<Cookie> {
    let Written { name, value, domain, host_only, path, secure, http_only, expires, home } = written;
    let sendable = |text: &String| !text.chars().any(char::is_control) && text.trim_matches(' ') == text;
    let is_pair = !name.is_empty() && !name.contains(['=', ';']) && !value.contains(';');
    let is_text = path.starts_with('/') && [&name, &value, &path].into_iter().all(sendable);
    let fits = name.len() + value.len() <= MAX_COOKIE && path.len() <= MAX_COOKIE;
    let is_domain = domain::canonical(&domain).as_deref() == Some(domain.as_str());
    let is_for_one = domain::is_public_suffix(&domain) || domain::is_address(&domain);
    if !is_pair || !is_text || !fits || !is_domain || (is_for_one && !host_only) {
        return None;
    }
    let home = match home {
        Some(home) => Some(origin_of(&home)?),
        None => None,
    };
    let cookie =
        Cookie { name, value, domain, host_only, path, secure, http_only, expires, home, created: 0 };
    cookie.keeps_its_promise().then_some(cookie)
}

fn origin_of(text: &str) -> Option<Origin> {
    let url = Url::parse(text).ok()?;
    domain::of_url(&url)?;
    Some(url.origin()).filter(Origin::is_tuple)
}
