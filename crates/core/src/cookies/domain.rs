//! Domains of cookies: what a host is below, and which domains many sites share.

use super::CookieError;
use url::{Host, Url};

/// What comes before a two-letter country code to make a suffix that anyone can register below: `co.uk`.
const SECOND_LEVEL: &[&str] = &[
    "ac", "asn", "com", "co", "ed", "edu", "go", "gob", "gouv", "gov", "gv", "id", "ind", "info", "ltd",
    "me", "mil", "muni", "ne", "net", "nhs", "nic", "nom", "or", "org", "plc", "police", "sch", "school",
    "web",
];

/// Domains below which strangers put their sites.
const SHARED: &[&str] = &[
    "amazonaws.com",
    "s3.amazonaws.com",
    "appspot.com",
    "azureedge.net",
    "azurewebsites.net",
    "b-cdn.net",
    "blob.core.windows.net",
    "blogspot.com",
    "cloudfront.net",
    "codeberg.page",
    "digitaloceanspaces.com",
    "duckdns.org",
    "dyndns.org",
    "fastly.net",
    "firebaseapp.com",
    "fly.dev",
    "github.io",
    "githubusercontent.com",
    "gitlab.io",
    "herokuapp.com",
    "netlify.app",
    "ngrok.io",
    "no-ip.org",
    "onrender.com",
    "pages.dev",
    "r2.dev",
    "readthedocs.io",
    "surge.sh",
    "vercel.app",
    "web.app",
    "workers.dev",
];

/// The host of an `http` or `https` URL as cookies know it.
pub(super) fn of_url(url: &Url) -> Option<String> {
    if !matches!(url.scheme(), "http" | "https") {
        return None;
    }
    let host = url.host_str()?.trim_end_matches('.').to_ascii_lowercase();
    (!host.is_empty()).then_some(host)
}

/// Whether `host` is `domain` or below it.
pub(super) fn matches(host: &str, domain: &str) -> bool {
    match host.strip_suffix(domain) {
        Some(rest) => rest.is_empty() || (rest.ends_with('.') && !is_address(host)),
        None => false,
    }
}

/// The host and every domain that it is below.
pub(super) fn and_above(host: &str) -> impl Iterator<Item = &str> {
    let dots = if is_address(host) { "" } else { host };
    std::iter::once(host).chain(dots.match_indices('.').map(|(at, _)| &host[at + 1..]))
}

/// A domain that was written somewhere, as it stands in a URL: lower case, ASCII, without dots around it.
pub(super) fn canonical(text: &str) -> Option<String> {
    let name = text.strip_prefix('.').unwrap_or(text);
    // Some programs write addresses of IPv6 without brackets.
    if let Ok(address) = name.parse::<std::net::Ipv6Addr>() {
        return Some(format!("[{address}]"));
    }
    let host = Host::parse(name.strip_suffix('.').unwrap_or(name)).ok()?;
    Some(host.to_string()).filter(|h| !h.is_empty() && !h.starts_with('.') && !h.ends_with('.'))
}

/// Which cookies a `Domain` attribute (canonical) asks for: `Ok(true)` for the host alone, `Ok(false)` for
/// the domain and all below.
pub(super) fn scope(host: &str, domain: &str) -> Result<bool, CookieError> {
    if !matches(host, domain) {
        return Err(CookieError::Domain);
    }
    match (is_address(host) || is_public_suffix(domain), host == domain) {
        (true, true) => Ok(true),
        (true, false) => Err(CookieError::PublicSuffix),
        (false, _) => Ok(false),
    }
}

/// Whether a host is an address; in URLs those of IPv6 stand in brackets.
pub(super) fn is_address(host: &str) -> bool {
    host.starts_with('[') || host.parse::<std::net::Ipv4Addr>().is_ok()
}

/// Whether sites of strangers are below a domain, as far as the rules here know: one without a dot, a usual
/// second level below a country, or one of [`SHARED`]. Not covered: what the public list knows beyond that,
/// as suffixes of single cities (`kawasaki.jp`), of companies that are not named here, and those of three levels.
pub(super) fn is_public_suffix(domain: &str) -> bool {
    match domain.split_once('.') {
        None => true,
        Some((second, top)) => (top.len() == 2 && SECOND_LEVEL.contains(&second)) || SHARED.contains(&domain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_below_its_domains_and_an_address_below_none() {
        for (host, domain, expected) in [
            // B28 and the list it is from.
            ("localhost", "localhost", true),
            ("192.168.0.1", "192.168.0.1", true),
            ("www.example.org", "example.org", true),
            ("192.168.0.1", "0.1", false),
            ("example.org", "example.com", false),
            ("example.org", "www.example.org", false),
            ("badexample.org", "example.org", false),
            ("[::1]", "[::1]", true),
        ] {
            assert_eq!(matches(host, domain), expected, "{host} {domain}");
        }
        assert_eq!(and_above("a.b.org").collect::<Vec<_>>(), ["a.b.org", "b.org", "org"]);
        assert_eq!(and_above("192.168.0.1").collect::<Vec<_>>(), ["192.168.0.1"]);
        assert_eq!(and_above("[::1.2.3.4]").collect::<Vec<_>>(), ["[::1.2.3.4]"]);
    }

    #[test]
    fn domains_that_strangers_share_are_known() {
        for suffix in ["com", "localhost", "co.uk", "com.au", "github.io", "s3.amazonaws.com"] {
            assert!(is_public_suffix(suffix), "{suffix}");
        }
        for domain in ["example.com", "example.co.uk", "t.co", "go.com", "me.github.io", "co.example"] {
            assert!(!is_public_suffix(domain), "{domain}");
        }
    }

    #[test]
    fn domains_are_read_as_urls_have_them() {
        for (text, expected) in [
            (".Example.ORG", Some("example.org")),
            ("example.org.", Some("example.org")),
            ("bücher.example", Some("xn--bcher-kva.example")),
            ("0x7f.1", Some("127.0.0.1")),
            ("[0:0::1]", Some("[::1]")),
            ("::1", Some("[::1]")),
            (".", None),
            ("", None),
            ("..example.org", None),
            ("a b", None),
        ] {
            assert_eq!(canonical(text).as_deref(), expected, "{text}");
        }
    }
}
