//! Cookies (RFC 6265 and its revision): which of them a server may set, and which are sent where.
//!
//! A jar is bounded, is told the time, and sends a cookie only where it belongs:
//!
//! - `Secure` cookies are set and sent over `https` only, `http://localhost` included, and what comes over
//!   `http` can neither replace one nor push one out.
//! - `__Secure-` and `__Host-` names must keep what they promise.
//! - A cookie for a whole public suffix (`com`, `co.uk`, `github.io`) is refused. The list here is a rule and a
//!   few names, not the whole public list: see `domain`'s source for what it covers. Where it misses one,
//!   sites below that suffix can set cookies for each other.
//! - An address, and a host without a dot, only ever get their own cookies.
//!
//! What a server sets belongs to the server: it goes back to the origin (scheme, host and port) that set it,
//! and to no other, though RFC 6265 would send it to every port of the host. Only a cookie that was set over
//! `https` for a whole domain, as by a site where one logs in for others, goes to that domain's other hosts too,
//! and then over `https` at its usual port. Cookies from a file follow the RFC as it is: a file names no ports,
//! and the user chose to send what is in it.
//!
//! What differs from browsers besides: a cookie whose `Max-Age` or `Expires` cannot be read is refused (a browser
//! ignores the attribute), and `SameSite` and `Partitioned` mean nothing, as there are no pages.

mod date;
mod domain;
mod netscape;
mod set_cookie;
mod written;

pub use netscape::{FromNetscape, MAX_FILE_BYTES};

use std::collections::BTreeMap;
use std::fmt;
use url::{Origin, Url};

/// The longest name and value together, in bytes.
pub const MAX_COOKIE: usize = 4096;
/// The most cookies of one domain.
pub const MAX_PER_DOMAIN: usize = 50;
/// The most cookies of a jar.
pub const MAX_COOKIES: usize = 3000;
/// The longest `Cookie` header that is sent, in bytes; cookies that do not fit are left out.
pub const MAX_HEADER: usize = 16 << 10;

/// The cookies of one user.
#[derive(Clone, Default)]
pub struct CookieJar {
    /// By domain; in each domain in the order of their creation.
    domains: BTreeMap<String, Vec<Cookie>>,
    /// How many there are in all domains.
    count: usize,
    /// How many were ever put in.
    created: u64,
}

/// One cookie. Its `Debug` does not show its value.
#[derive(Clone, Eq, PartialEq)]
pub struct Cookie {
    name: String,
    value: String,
    domain: String,
    host_only: bool,
    path: String,
    secure: bool,
    http_only: bool,
    /// Unix seconds.
    expires: Option<i64>,
    /// Who set it; `None` for one from a file, which does not tell.
    home: Option<Origin>,
    /// Its place among all cookies that the jar ever took.
    created: u64,
}

impl CookieJar {
    /// No cookies.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the value of a `Set-Cookie` field of an answer from `url`, at `now` (unix seconds). One that
    /// has expired removes the cookie that it would replace.
    ///
    /// # Errors
    /// Why the cookie is not taken. The jar is as it was, and the answer as good as without it.
    pub fn set(&mut self, url: &Url, set_cookie: &[u8], now: i64) -> Result<(), CookieError> {
        let cookie = set_cookie::parse(url, set_cookie, now)?;
        let over_tls = url.scheme() == "https";
        if !over_tls && self.hides_a_secure_one(&cookie, now) {
            return Err(CookieError::NotSecure);
        }
        self.store(cookie, now);
        Ok(())
    }

    /// The value of the `Cookie` field for a request to `url` at `now` (unix seconds): longer paths first,
    /// then older cookies.
    pub fn cookie_header(&self, url: &Url, now: i64) -> Option<String> {
        let host = domain::of_url(url)?;
        let over_tls = url.scheme() == "https";
        let mut fitting: Vec<&Cookie> = domain::and_above(&host)
            .filter_map(|domain| self.domains.get(domain))
            .flatten()
            .filter(|c| !c.host_only || c.domain == host)
            .filter(|c| !c.secure || over_tls)
            .filter(|c| c.is_at_home_at(url))
            .filter(|c| c.is_alive(now) && path_matches(url.path(), &c.path))
            .collect();
        fitting.sort_by_key(|c| (std::cmp::Reverse(c.path.len()), c.created));
        let mut header = String::new();
        for cookie in fitting {
            let gap = if header.is_empty() { "" } else { "; " };
            if header.len() + gap.len() + cookie.name.len() + 1 + cookie.value.len() <= MAX_HEADER {
                header.extend([gap, &cookie.name, "=", &cookie.value]);
            }
        }
        (!header.is_empty()).then_some(header)
    }

    /// Those that may be sent to this host, whatever the scheme, the port and the path, but to none of those `but`.
    #[must_use]
    pub fn of_host<'a>(&self, host: &str, but: impl IntoIterator<Item = &'a str>) -> Self {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let but: Vec<&str> = but.into_iter().collect();
        let known = |c: &Cookie| but.iter().any(|host| c.is_for(host));
        let domains = domain::and_above(&host).filter_map(|domain| self.domains.get_key_value(domain));
        let for_it = |cookies: &Vec<Cookie>| {
            cookies.iter().filter(|c| c.is_for(&host) && !known(c)).cloned().collect::<Vec<_>>()
        };
        let mut jar = Self { created: self.created, ..Self::default() };
        jar.domains = domains.map(|(domain, cookies)| (domain.clone(), for_it(cookies))).collect();
        jar.keep(|_| true);
        jar
    }

    /// Takes from another jar what it has for these hosts, in place of what is here for them.
    pub fn replace<'a>(&mut self, hosts: impl IntoIterator<Item = &'a str>, jar: Self, now: i64) {
        let hosts: Vec<String> = hosts.into_iter().map(str::to_ascii_lowercase).collect();
        let is_theirs = |c: &Cookie| hosts.iter().any(|host| c.is_for(host));
        self.keep(|c| !is_theirs(c));
        let theirs: Vec<Cookie> = jar.iter().filter(|c| is_theirs(c)).cloned().collect();
        for cookie in theirs {
            self.store(cookie, now);
        }
    }

    /// Takes all that another jar has.
    pub fn add(&mut self, jar: Self, now: i64) {
        let theirs: Vec<Cookie> = jar.iter().cloned().collect();
        for cookie in theirs {
            self.store(cookie, now);
        }
    }

    /// Every cookie, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Cookie> {
        let mut all: Vec<&Cookie> = self.domains.values().flatten().collect();
        all.sort_by_key(|c| c.created);
        all.into_iter()
    }

    /// How many cookies there are, expired ones that were not yet noticed included.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }

    /// Whether a cookie from an insecure connection would stand in for a secure one: of the same name,
    /// where their domains and paths overlap (RFC 6265bis section 5.7 step 15).
    fn hides_a_secure_one(&self, new: &Cookie, now: i64) -> bool {
        let overlaps = |old: &Cookie| {
            old.secure
                && old.name == new.name
                && old.is_alive(now)
                && (domain::matches(&old.domain, &new.domain) || domain::matches(&new.domain, &old.domain))
                && path_matches(&new.path, &old.path)
        };
        self.domains.values().flatten().any(overlaps)
    }

    /// Puts a cookie in, or takes out what it replaces if it has expired. Returns how many others that are
    /// alive had to go for it.
    fn store(&mut self, mut cookie: Cookie, now: i64) -> usize {
        let mut pushed_out = 0;
        let domain = cookie.domain.clone();
        let of_domain = self.domains.entry(domain.clone()).or_default();
        let count_before = of_domain.len();
        // What one port sets does not take the place of what another did. It does take that of one from a
        // file, or two of one name would be sent; what others were to get of that is stale by now.
        let same = |c: &Cookie| {
            c.name == cookie.name
                && c.path == cookie.path
                && c.host_only == cookie.host_only
                && (c.home.is_none() || c.home == cookie.home)
        };
        let before = of_domain.iter().position(same).map(|at| of_domain.remove(at));
        if cookie.is_alive(now) {
            cookie.created = before.map_or(self.created, |old| old.created);
            self.created += 1;
            let at = of_domain.partition_point(|c| c.created < cookie.created);
            of_domain.insert(at, cookie);
        }
        if of_domain.len() > MAX_PER_DOMAIN {
            of_domain.retain(|c| c.is_alive(now));
        }
        if of_domain.len() > MAX_PER_DOMAIN {
            // What came over http may not push out what came over https.
            let out = of_domain.iter().position(|c| !c.secure).unwrap_or(0);
            of_domain.remove(out);
            pushed_out += 1;
        }
        self.count = self.count + of_domain.len() - count_before;
        if of_domain.is_empty() {
            self.domains.remove(&domain);
        }
        if self.count > MAX_COOKIES {
            self.keep(|c| c.is_alive(now));
        }
        if self.count > MAX_COOKIES {
            let out = self.domains.values().flatten().map(|c| (c.secure, c.created)).min();
            self.keep(|c| Some((c.secure, c.created)) != out);
            pushed_out += 1;
        }
        pushed_out
    }

    fn keep(&mut self, wanted: impl Fn(&Cookie) -> bool) {
        self.domains.retain(|_, list| {
            list.retain(&wanted);
            !list.is_empty()
        });
        self.count = self.domains.values().map(Vec::len).sum();
    }
}

impl fmt::Debug for CookieJar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Cookie {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its value, without the double quotes that may stand around it. They are sent, since some servers
    /// read what is quoted in another way.
    pub fn value(&self) -> &str {
        self.value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(&self.value)
    }

    /// The host that it belongs to, in lower case, without a leading dot.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Whether it is for that host alone, and not for hosts below it.
    pub fn is_host_only(&self) -> bool {
        self.host_only
    }

    /// The path that it is for, and all below.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether it is sent over `https` only.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Whether it was to be hidden from scripts; kept for other programs.
    pub fn is_http_only(&self) -> bool {
        self.http_only
    }

    /// The last second at which it is sent, in unix seconds; `None` until the session ends.
    pub fn expires(&self) -> Option<i64> {
        self.expires
    }

    /// Whether it may be sent to this host in lower case, as far as its domain says.
    fn is_for(&self, host: &str) -> bool {
        match self.host_only {
            true => self.domain == host,
            false => domain::and_above(host).any(|domain| domain == self.domain),
        }
    }

    fn is_alive(&self, now: i64) -> bool {
        self.expires.is_none_or(|expires| now <= expires)
    }

    /// Whether it may go where this URL leads, as far as that depends on who set it.
    fn is_at_home_at(&self, url: &Url) -> bool {
        let Some(home) = &self.home else { return true };
        let for_others = !self.host_only && matches!(home, Origin::Tuple(scheme, ..) if scheme == "https");
        // No port in an `https` URL is 443: another may be somebody else's on the same machine.
        *home == url.origin() || (for_others && url.scheme() == "https" && url.port().is_none())
    }

    /// What its name promises (RFC 6265bis section 4.1.3).
    fn keeps_its_promise(&self) -> bool {
        let begins = |prefix: &str| {
            self.name
                .as_bytes()
                .get(..prefix.len())
                .is_some_and(|p| p.eq_ignore_ascii_case(prefix.as_bytes()))
        };
        if begins("__Host-") {
            self.secure && self.host_only && self.path == "/"
        } else {
            self.secure || !begins("__Secure-")
        }
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.host_only { "" } else { "." };
        write!(f, "Cookie({}=… for {dot}{}{})", self.name, self.domain, self.path)
    }
}

/// Why a cookie is not taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CookieError {
    /// The answer's URL is not `http` or `https` with a host.
    #[error("cookies are taken from http and https only")]
    NotHttp,
    /// No name before an equals sign.
    #[error("the cookie has no name")]
    NoName,
    /// Name and value, or the path, are longer than [`MAX_COOKIE`].
    #[error("the cookie is longer than {MAX_COOKIE} bytes")]
    TooLong,
    /// Bytes that are not UTF-8, or control characters.
    #[error("the cookie has bytes that cannot be sent back")]
    NotText,
    /// `Max-Age` is not a number of seconds.
    #[error("the cookie's Max-Age is not a number of seconds")]
    MaxAge,
    /// `Expires` is not a date.
    #[error("the cookie's Expires is not a date")]
    Expires,
    /// `Domain` is not the host nor one that the host is below, or is no domain at all.
    #[error("the cookie is for another domain than the server's")]
    Domain,
    /// `Domain` is one that many sites are below.
    #[error("the cookie is for a whole public suffix")]
    PublicSuffix,
    /// A `Secure` cookie, or one that would stand in for one, over `http`.
    #[error("the cookie may only come over https")]
    NotSecure,
    /// A `__Secure-` or `__Host-` name without what it promises.
    #[error("the cookie's name promises what its attributes do not keep")]
    Prefix,
}

/// Whether a request's path is a cookie's or below it (RFC 6265 section 5.1.4).
fn path_matches(request: &str, cookie: &str) -> bool {
    match request.strip_prefix(cookie) {
        Some(rest) => rest.is_empty() || rest.starts_with('/') || cookie.ends_with('/'),
        None => false,
    }
}

#[cfg(test)]
mod tests;
