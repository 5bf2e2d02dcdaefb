//! Which proxy, if any, and how an HTTP proxy is asked.

use super::{Attempt, Endpoint, Stream, authority, tls};
use crate::failure::{FetchError, Step, shown};
use crate::http1::{HeadBuffer, read_head};
use base64::Engine as _;
use serde::{Deserialize, Serialize};
use std::fmt;
use tidegate_core::no_proxy::NoProxy;
use tidegate_core::{Code, Failure, Remedy};
use tokio::io::AsyncWriteExt;
use url::Url;

/// Most bytes of a user name or password (SOCKS has one byte for their lengths).
const MOST_SECRET: usize = 255;

/// Which proxies stand between us and what.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proxies {
    /// For `http` URLs.
    pub http: Option<Proxy>,
    /// For `https` URLs.
    pub https: Option<Proxy>,
    /// Hosts that are reached without a proxy.
    pub none_for: NoProxy,
}

impl Proxies {
    /// Reads the words of options or environment variables. An empty text is no proxy; one for a
    /// scheme beats `all`.
    ///
    /// # Errors
    /// `proxy-failed`, to give up, with what is wrong.
    pub fn parse(
        http: Option<&str>,
        https: Option<&str>,
        all: Option<&str>,
        none_for: Option<&str>,
    ) -> Result<Self, Failure> {
        let read = |text: Option<&str>| match text.or(all).map(str::trim) {
            None | Some("") => Ok(None),
            Some(text) => Proxy::parse(text).map(Some),
        };
        Ok(Self { http: read(http)?, https: read(https)?, none_for: NoProxy::parse(none_for.unwrap_or("")) })
    }

    /// The hosts of the proxies.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &str> {
        [&self.http, &self.https].into_iter().flatten().map(|proxy| proxy.host.as_str())
    }

    pub(super) fn choose(&self, endpoint: &Endpoint) -> Option<&Proxy> {
        let proxy = if endpoint.https { &self.https } else { &self.http };
        proxy.as_ref().filter(|_| !self.none_for.matches(&endpoint.host, endpoint.port))
    }
}

/// How a proxy is spoken to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Http,
    /// HTTP inside TLS.
    Https,
    /// SOCKS5 with addresses looked up here.
    Socks,
    /// SOCKS5 with names looked up by the proxy.
    SocksByName,
}

impl Kind {
    fn scheme(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Socks => "socks5",
            Self::SocksByName => "socks5h",
        }
    }
}

/// A proxy and the credentials for it. Shows no password.
#[derive(Clone, Eq, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WrittenProxy", into = "WrittenProxy")]
pub struct Proxy {
    kind: Kind,
    host: String,
    port: u16,
    credentials: Option<(String, String)>,
}

/// A proxy as it is written down: a URL, and apart from it the credentials, of which any text may be part.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenProxy {
    url: String,
    credentials: Option<(String, String)>,
}

impl From<Proxy> for WrittenProxy {
    fn from(Proxy { kind, host, port, credentials }: Proxy) -> Self {
        Self { url: format!("{}://{}", kind.scheme(), authority(&host, port)), credentials }
    }
}

impl TryFrom<WrittenProxy> for Proxy {
    type Error = Failure;
    fn try_from(WrittenProxy { url, credentials }: WrittenProxy) -> Result<Self, Failure> {
        let proxy = Self::parse(&url)?;
        match credentials {
            None => Ok(proxy),
            Some((user, password)) => proxy.with_credentials(&user, &password),
        }
    }
}

impl Proxy {
    /// Reads `[scheme://][user[:password]@]host[:port]`. Schemes: `http` (when none is given), `https`,
    /// `socks5`, `socks5h` (`socks` means the latter). Ports, when none is given: 80, 443, 1080.
    ///
    /// # Errors
    /// `proxy-failed`, to give up, with what is wrong. The message does not hold the text, which may
    /// hold a password.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let bad = |why: &str| {
            Failure::new(Code::ProxyFailed, format!("not a proxy: {why}")).with_remedy(Remedy::GiveUp)
        };
        let (scheme, rest) = text.trim().split_once("://").unwrap_or(("http", text.trim()));
        let (kind, usual_port) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (Kind::Http, 80),
            "https" => (Kind::Https, 443),
            "socks5" => (Kind::Socks, 1080),
            "socks5h" | "socks" => (Kind::SocksByName, 1080),
            "socks4" | "socks4a" => return Err(bad("SOCKS 4 is not spoken, only SOCKS 5")),
            _ => return Err(bad("the scheme must be http, https, socks5 or socks5h")),
        };
        // An `http` URL is parsed, whatever the scheme: hosts are normalised for those only.
        let url = Url::parse(&format!("http://{rest}")).map_err(|e| bad(&e.to_string()))?;
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err(bad("it has a path"));
        }
        // `Url` drops the port 80 as the usual one of `http`, whether it was written or not.
        let wrote_80 = rest.trim_end_matches('/').ends_with(":80");
        let port = url.port().unwrap_or(if wrote_80 { 80 } else { usual_port });
        let host = Endpoint::of(&url).map_err(|_| bad("it names no host"))?.host;
        let credentials = match (url.username(), url.password()) {
            ("", None) => None,
            (user, password) => {
                let plain = |text: &str| decode_percent(text).filter(|t| t.len() <= MOST_SECRET);
                let (Some(user), Some(password)) = (plain(user), plain(password.unwrap_or(""))) else {
                    return Err(bad("its user name or password cannot be sent"));
                };
                Some((user, password))
            }
        };
        let proxy = Self { kind, host, port, credentials: None };
        match credentials {
            None => Ok(proxy),
            Some((user, password)) => proxy.with_credentials(&user, &password),
        }
    }

    /// The same proxy with these credentials; an empty user name means none.
    ///
    /// # Errors
    /// `proxy-failed`, to give up, if they cannot be sent.
    pub fn with_credentials(mut self, user: &str, password: &str) -> Result<Self, Failure> {
        let fits = |t: &str| t.len() <= MOST_SECRET && !t.contains(['\r', '\n', '\0']);
        if !fits(user) || !fits(password) || (!self.is_socks() && user.contains(':')) {
            let why = "not a proxy: its user name or password cannot be sent";
            return Err(Failure::new(Code::ProxyFailed, why).with_remedy(Remedy::GiveUp));
        }
        self.credentials = (!user.is_empty()).then(|| (user.to_owned(), password.to_owned()));
        Ok(self)
    }

    /// Whether it speaks SOCKS rather than HTTP.
    pub(super) fn is_socks(&self) -> bool {
        matches!(self.kind, Kind::Socks | Kind::SocksByName)
    }

    /// Whether it looks up names.
    pub(super) fn resolves(&self) -> bool {
        self.kind == Kind::SocksByName
    }

    pub(super) fn credentials(&self) -> Option<(&str, &str)> {
        self.credentials.as_ref().map(|(user, password)| (user.as_str(), password.as_str()))
    }

    /// The value of `Proxy-Authorization`. Basic only: Digest would need a state that lives as long as
    /// the proxy's nonce, and proxies that ask for it are hardly met any more.
    pub(super) fn authorization(&self) -> Option<String> {
        let (user, password) = self.credentials()?;
        let token = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        Some(format!("Basic {token}"))
    }

    /// An error of this proxy; `why` goes on where its name ends.
    pub(super) fn failed(&self, why: impl Into<String>, status: Option<u16>) -> FetchError {
        FetchError::Proxy { proxy: self.to_string(), why: why.into(), status }
    }
}

/// Scheme, host and port.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.kind.scheme(), authority(&self.host, self.port))
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with = if self.credentials.is_some() { ", with credentials" } else { "" };
        write!(f, "Proxy({self}{with})")
    }
}

/// `None` if the result is not UTF-8. A `%` without two digits stays.
fn decode_percent(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = match after {
            [a, b, ..] if byte == b'%' => (*a as char).to_digit(16).zip((*b as char).to_digit(16)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => {
                out.push((high << 4 | low) as u8);
                rest = &after[2..];
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8(out).ok()
}

/// A connection to a proxy, TLS included if it wants that.
pub(super) async fn reach(attempt: &Attempt<'_>, proxy: &Proxy) -> Result<Stream, FetchError> {
    let stream = attempt.dial(&proxy.host, proxy.port).await.map_err(|error| match error {
        FetchError::Resolve { why, .. } => proxy.failed(format!("was not found: {why}"), None),
        FetchError::Connect { why, .. } => proxy.failed(format!("cannot be reached: {why}"), None),
        other => other,
    })?;
    match proxy.kind {
        Kind::Https => {
            attempt.at(Step::Securing);
            attempt.network.shared.tls.secure(stream, &proxy.host, tls::With::Proxy).await
        }
        Kind::Http | Kind::Socks | Kind::SocksByName => Ok(stream),
    }
}

/// A connection to the endpoint through an HTTP proxy, by CONNECT.
pub(super) async fn tunnel(
    attempt: &Attempt<'_>,
    proxy: &Proxy,
    endpoint: &Endpoint,
) -> Result<Stream, FetchError> {
    let mut stream = reach(attempt, proxy).await?;
    attempt.at(Step::AskingProxy);
    let to = endpoint.authority();
    let authorization =
        proxy.authorization().map_or_else(String::new, |a| format!("Proxy-Authorization: {a}\r\n"));
    let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{authorization}\r\n");
    let lost = |e: &dyn fmt::Display| proxy.failed(format!("was lost: {e}"), None);
    stream.write_all(request.as_bytes()).await.map_err(|e| lost(&e))?;
    stream.flush().await.map_err(|e| lost(&e))?;
    let mut buffer = HeadBuffer::new(false);
    let head = read_head(&mut stream, &proxy.host, &mut buffer).await.map_err(|error| match error {
        FetchError::ConnectionLost { source, .. } => lost(&source),
        other => proxy.failed(format!("did not answer as one: {other}"), None),
    })?;
    if !(200..300).contains(&head.status) {
        let reason = shown(head.reason.as_bytes());
        let hint = match (head.status, proxy.credentials.is_some()) {
            (407, false) => "; it wants a user name and a password",
            (407, true) => "; it does not accept the user name and password",
            _ => "",
        };
        return Err(proxy.failed(format!("answered {} {reason}{hint}", head.status), Some(head.status)));
    }
    // In TLS the client speaks first: whatever is there already is not from the origin.
    if !buffer.leftover().is_empty() {
        return Err(proxy.failed("sent bytes that belong to nothing", None));
    }
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_read_with_its_port_and_credentials() {
        let proxy = Proxy::parse("http://me:p%40ss%3a@Proxy.example:3128/").unwrap();
        assert_eq!(proxy.to_string(), "http://proxy.example:3128");
        assert_eq!(proxy.credentials(), Some(("me", "p@ss:")));
        assert_eq!(proxy.authorization().unwrap(), "Basic bWU6cEBzczo=");
        for (text, shown) in [
            ("proxy", "http://proxy:80"),
            ("proxy:8080", "http://proxy:8080"),
            ("https://proxy", "https://proxy:443"),
            ("https://proxy:80", "https://proxy:80"),
            ("socks5://[::1]", "socks5://[::1]:1080"),
            ("SOCKS5H://127.0.0.1:9050", "socks5h://127.0.0.1:9050"),
        ] {
            assert_eq!(Proxy::parse(text).unwrap().to_string(), shown);
        }
        for bad in ["", "http://", "ftp://p", "socks4://p", "http://p/path", "http://p:99999", "u:p@"] {
            assert_eq!(Proxy::parse(bad).unwrap_err().remedy, Remedy::GiveUp, "{bad:?}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        let proxy = Proxy::parse("http://me:hunter2@proxy").unwrap();
        let shown = format!("{proxy:?} {proxy} {}", proxy.failed("hung up", None));
        assert!(!shown.contains("hunter2"), "{shown}");
        let message = Proxy::parse("gopher://me:hunter2@proxy").unwrap_err().message;
        assert!(!message.contains("hunter2"), "{message}");
        assert!(Proxy::parse("http://me%0d%0aX:y@proxy").is_err());
    }

    #[test]
    fn a_proxy_for_a_scheme_beats_the_one_for_all() {
        let proxies = Proxies::parse(Some("a"), None, Some("b"), Some("direct.example")).unwrap();
        let chosen = |url: &str| {
            let endpoint = Endpoint::of(&Url::parse(url).unwrap()).unwrap();
            proxies.choose(&endpoint).map(ToString::to_string)
        };
        assert_eq!(chosen("http://h/").as_deref(), Some("http://a:80"));
        assert_eq!(chosen("https://h/").as_deref(), Some("http://b:80"));
        assert_eq!(chosen("https://direct.example/"), None);
        let off = Proxies::parse(Some(""), None, Some("b"), None).unwrap();
        assert!(off.http.is_none() && off.https.is_some());
    }
}
