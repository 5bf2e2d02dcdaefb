//! From a `Set-Cookie` field to a cookie (RFC 6265 sections 5.2 and 5.3).

use super::{Cookie, CookieError, MAX_COOKIE, date, domain};
use url::Url;

/// The longest attribute value that is looked at; a longer one is ignored (RFC 6265bis section 5.6).
const MAX_ATTRIBUTE: usize = 1024;

/// Before every `now`: the cookie is to be removed.
const LONG_AGO: i64 = i64::MIN;

pub(super) fn parse(url: &Url, set_cookie: &[u8], now: i64) -> Result<Cookie, CookieError> {
    let host = domain::of_url(url).ok_or(CookieError::NotHttp)?;
    // Blanks around it may be tabs; control characters anywhere else spoil it.
    let text = std::str::from_utf8(set_cookie.trim_ascii()).map_err(|_| CookieError::NotText)?;
    let (pair, attributes) = text.split_once(';').unwrap_or((text, ""));
    let (name, value) = pair.split_once('=').ok_or(CookieError::NoName)?;
    let (name, value) = (trim(name), trim(value));
    if text.chars().any(|c| c.is_control() && c != '\t') || name.contains('\t') || value.contains('\t') {
        return Err(CookieError::NotText);
    }
    if name.is_empty() {
        return Err(CookieError::NoName);
    }
    if name.len() + value.len() > MAX_COOKIE {
        return Err(CookieError::TooLong);
    }
    let asked = attributes_of(attributes, now)?;
    let (domain, host_only) = match asked.domain {
        None => (host, true),
        Some(text) => {
            let domain = domain::canonical(text).ok_or(CookieError::Domain)?;
            let host_only = domain::scope(&host, &domain)?;
            (domain, host_only)
        }
    };
    // `Domain` with the name of the host itself is one attribute too many for `__Host-`.
    let names_a_domain = asked.domain.is_some();
    let cookie = Cookie {
        name: name.to_owned(),
        value: value.to_owned(),
        domain,
        host_only,
        path: asked.path.map_or_else(|| default_path(url), str::to_owned),
        secure: asked.secure,
        http_only: asked.http_only,
        expires: asked.max_age.or(asked.expires),
        home: Some(url.origin()),
        created: 0,
    };
    if cookie.path.len() > MAX_COOKIE {
        return Err(CookieError::TooLong);
    }
    if cookie.secure && url.scheme() != "https" {
        return Err(CookieError::NotSecure);
    }
    let is_host_prefixed = name.len() >= 7 && name.as_bytes()[..7].eq_ignore_ascii_case(b"__Host-");
    if !cookie.keeps_its_promise() || (is_host_prefixed && names_a_domain) {
        return Err(CookieError::Prefix);
    }
    Ok(cookie)
}

/// What the attributes say; of each the last one counts.
#[derive(Default)]
struct Attributes<'a> {
    expires: Option<i64>,
    max_age: Option<i64>,
    domain: Option<&'a str>,
    path: Option<&'a str>,
    secure: bool,
    http_only: bool,
}

fn attributes_of(text: &str, now: i64) -> Result<Attributes<'_>, CookieError> {
    let mut found = Attributes::default();
    for attribute in text.split(';') {
        let (name, value) = attribute.split_once('=').unwrap_or((attribute, ""));
        let value = trim(value);
        if value.len() > MAX_ATTRIBUTE {
            continue;
        }
        match trim(name).to_ascii_lowercase().as_str() {
            "expires" => found.expires = Some(date::parse(value).ok_or(CookieError::Expires)?),
            "max-age" => found.max_age = Some(expiry_after(value, now)?),
            "domain" => found.domain = Some(value).filter(|v| !v.is_empty()),
            // A tab would end the field in a cookie file.
            "path" if value.contains('\t') => return Err(CookieError::NotText),
            "path" => found.path = Some(value).filter(|v| v.starts_with('/')),
            "secure" => found.secure = true,
            "httponly" => found.http_only = true,
            _ => {}
        }
    }
    Ok(found)
}

fn expiry_after(max_age: &str, now: i64) -> Result<i64, CookieError> {
    let digits = max_age.strip_prefix('-').unwrap_or(max_age);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(CookieError::MaxAge);
    }
    let no_time_left = digits.len() < max_age.len() || digits.bytes().all(|b| b == b'0');
    Ok(if no_time_left {
        LONG_AGO
    } else {
        // More digits than fit are for ever.
        now.saturating_add(digits.parse().unwrap_or(i64::MAX))
    })
}

/// The folder of the request's path.
fn default_path(url: &Url) -> String {
    match url.path().rfind('/') {
        None | Some(0) => "/".to_owned(),
        Some(at) => url.path()[..at].to_owned(),
    }
}

fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}
