//! What is sent along with requests: cookies, credentials, the user's headers; and to whom.
//!
//! A secret belongs to an origin (scheme, host and port) and never leaves for another: not by a
//! redirect, not by a mirror, not from https to http.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use tidegate_core::auth::{self, Challenge, DigestUse, Strength};
use tidegate_core::cookies::CookieJar;
use tidegate_core::netrc::Netrc;
use tidegate_core::request::{Credentials, NamedBy};
use tidegate_core::transfer::Order;
use tidegate_core::{Answer, Request};
use url::{Origin, Url};

/// The user agent, unless the user says otherwise.
pub(crate) const USER_AGENT: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"));

/// Challenges remembered, at most.
const MOST_CHALLENGES: usize = 256;

/// Headers of the user that say nothing about the user, and so go to every server of a download.
const HARMLESS: [&str; 5] = ["accept", "accept-language", "cache-control", "pragma", "user-agent"];

/// The user's logins, found by host.
#[derive(Default)]
pub(crate) struct Logins {
    pub(crate) netrc: Option<Netrc>,
    /// Whether a certificate shows that an `https` host is the one that it is called.
    pub(crate) certificates_are_checked: bool,
}

impl Logins {
    /// The login for where a URL leads. A host that the user named with this scheme and port gets what
    /// netrc has for it. One that only an answer or a document leads to gets no more than what stands
    /// under its very name, and only where its certificate shows that it is that host: then nobody
    /// learns a password but who has it already.
    fn find(&self, url: &Url, named_by_user: bool) -> Option<Credentials> {
        let (netrc, host) = (self.netrc.as_ref()?, url.host_str()?);
        // No port in an `https` URL is 443: another may be somebody else's on the same machine.
        let shows_its_name = self.certificates_are_checked && url.scheme() == "https" && url.port().is_none();
        let entry = match (named_by_user, shows_its_name) {
            (true, _) => netrc.lookup(host),
            (false, true) => netrc.lookup_exact(host),
            (false, false) => None,
        };
        entry?.credentials()
    }
}

/// What is sent along with requests, for the whole engine.
pub(crate) struct Session {
    pub(crate) cookies: CookieJar,
    logins: Logins,
    user_agent: Option<String>,
    referer: Option<Url>,
    /// What an origin asked for, so that it need not ask again; with how often the nonce was used.
    challenges: BTreeMap<String, (Challenge, u32)>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session")
    }
}

impl Session {
    pub(crate) fn new(
        cookies: CookieJar,
        logins: Logins,
        user_agent: Option<String>,
        referer: Option<Url>,
    ) -> Self {
        Self { cookies, logins, user_agent, referer, challenges: BTreeMap::new() }
    }

    /// Takes what the user keeps for a host.
    pub(crate) fn meet(&mut self, cookies: CookieJar, netrc: Option<Netrc>, now_unix: i64) {
        self.cookies.add(cookies, now_unix);
        if let Some(netrc) = netrc {
            self.logins.netrc.get_or_insert_default().extend(netrc);
        }
    }

    /// All headers of a request but `Host`.
    pub(crate) fn headers(
        &mut self,
        request: &Request,
        order: &Order,
        now_unix: i64,
    ) -> Vec<(String, String)> {
        let url = &order.url;
        let home = request.mirrors().first().map(|m| m.url().origin());
        let at_home = home.as_ref() == Some(&url.origin());
        let mut headers: Vec<(String, String)> = Vec::with_capacity(8);
        let mut add = |name: &str, value: String| headers.push((name.to_owned(), value));
        add("User-Agent", self.user_agent.clone().unwrap_or_else(|| USER_AGENT.to_owned()));
        add("Accept", "*/*".to_owned());
        add("Accept-Encoding", "identity".to_owned());
        if let Some((start, end)) = order.range {
            let last = end.map(|end| (end.saturating_sub(1)).to_string()).unwrap_or_default();
            add("Range", format!("bytes={start}-{last}"));
            if let Some(validator) = &order.if_range {
                add("If-Range", validator.clone());
            }
        }
        if let Some(referer) =
            self.referer.as_ref().filter(|r| r.scheme() == "http" || url.scheme() == "https")
        {
            add("Referer", shown_to_servers(referer));
        }
        if let Some(value) = self.cookies.cookie_header(url, now_unix) {
            add("Cookie", value);
        }
        if let Some(value) = self.authorization(request, url) {
            add("Authorization", value);
        }
        for (name, value) in &request.headers {
            let harmless = HARMLESS.iter().any(|h| name.eq_ignore_ascii_case(h));
            // Ranges are ours: a user's own would make every answer a wrong one.
            let ours = name.eq_ignore_ascii_case("range") || name.eq_ignore_ascii_case("if-range");
            if !ours && (at_home || harmless) {
                headers.retain(|(ours, _)| !ours.eq_ignore_ascii_case(name));
                headers.push((name.clone(), value.clone()));
            }
        }
        headers
    }

    /// Takes note of what an answer wants remembered.
    pub(crate) fn take_note(&mut self, url: &Url, answer: &Answer, now_unix: i64) {
        for cookie in &answer.set_cookies {
            // A cookie that is refused is no concern of the download.
            let _ = self.cookies.set(url, cookie, now_unix);
        }
    }

    /// After a 401: whether the request is worth sending again, with credentials this time.
    pub(crate) fn can_answer(&mut self, request: &Request, url: &Url, answer: &Answer) -> bool {
        let Some(Credentials::Password { .. }) = self.credentials(request, url) else { return false };
        let Some(challenge) = auth::strongest(&answer.challenges) else { return false };
        if self.challenges.len() >= MOST_CHALLENGES {
            self.challenges.clear();
        }
        self.challenges.insert(key(&url.origin()), (challenge.clone(), 0));
        true
    }

    fn authorization(&mut self, request: &Request, url: &Url) -> Option<String> {
        match self.credentials(request, url)? {
            Credentials::Bearer(token) => Some(format!("Bearer {token}")),
            // A password is only sent when asked for, and in the safest way of those offered.
            Credentials::Password { user, password } => {
                let (challenge, used) = self.challenges.get_mut(&key(&url.origin()))?;
                if challenge.strength()? == Strength::Basic {
                    return auth::basic(&user, &password).ok();
                }
                *used += 1;
                let target = match url.query() {
                    Some(query) => format!("{}?{query}", url.path()),
                    None => url.path().to_owned(),
                };
                // Two random keys of the standard library: never used twice, and not to be guessed.
                let cnonce = format!(
                    "{:016x}{:016x}",
                    RandomState::new().hash_one(*used),
                    RandomState::new().hash_one(1)
                );
                let what = DigestUse { method: "GET", uri: &target, cnonce: &cnonce, count: *used };
                auth::digest(challenge, &user, &password, what).ok()
            }
        }
    }

    /// The credentials for a URL: those given with the request for its first mirror's origin, those in
    /// a mirror's own URL for that, else the user's login for the host.
    fn credentials(&self, request: &Request, url: &Url) -> Option<Credentials> {
        let origin = url.origin();
        let mut of_origin = request.mirrors().iter().filter(|m| m.url().origin() == origin);
        let first = request.mirrors().first().is_some_and(|m| m.url().origin() == origin);
        if let Some(given) = request.credentials.as_ref().filter(|_| first) {
            return Some(given.clone());
        }
        if let Some(own) = of_origin.clone().next().map(tidegate_core::Mirror::url)
            && (!own.username().is_empty() || own.password().is_some())
        {
            let decoded = |text: &str| percent_decode(text);
            return Some(Credentials::Password {
                user: decoded(own.username()),
                password: decoded(own.password().unwrap_or_default()),
            });
        }
        self.logins.find(url, of_origin.any(|m| m.named_by() == NamedBy::User))
    }
}

fn key(origin: &Origin) -> String {
    origin.ascii_serialization()
}

/// A referer without user, password and fragment.
fn shown_to_servers(url: &Url) -> String {
    let mut url = url.clone();
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_fragment(None);
    url.into()
}

fn percent_decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let pair = bytes.get(at + 1..at + 3).and_then(|p| std::str::from_utf8(p).ok());
        match pair.filter(|_| bytes[at] == b'%').and_then(|p| u8::from_str_radix(p, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::headers::Headers;
    use tidegate_core::request::{Destination, Mirror};
    use tidegate_core::{MirrorId, SegmentId};

    fn request(urls: &[&str]) -> Request {
        let mirrors = urls.iter().map(|u| Mirror::parse(u).unwrap()).collect();
        Request::new(mirrors, Destination::Stdout).unwrap()
    }

    fn order(url: &str) -> Order {
        let url = Url::parse(url).unwrap();
        Order { segment: SegmentId(1), mirror: MirrorId(0), url, range: None, if_range: None }
    }

    fn session() -> Session {
        Session::new(CookieJar::new(), Logins::default(), None, None)
    }

    fn get<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
        headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    fn challenge(value: &str) -> Answer {
        let mut headers = Headers::new();
        headers.push("www-authenticate", value.as_bytes());
        Answer::parse(401, false, &headers, 0)
    }

    #[test]
    fn secrets_stay_with_their_origin() {
        let mut session = session();
        let mut request = request(&["https://h/a"]);
        request.credentials = Some(Credentials::Bearer("s3cret".to_owned()));
        request.headers = vec![("X-Api-Key".into(), "s3cret".into()), ("Accept".into(), "x/y".into())];
        let home = session.headers(&request, &order("https://h/b"), 0);
        assert_eq!(get(&home, "authorization"), Some("Bearer s3cret"));
        assert_eq!(get(&home, "x-api-key"), Some("s3cret"));
        for elsewhere in ["https://other/a", "http://h/a", "https://h:8443/a"] {
            let away = session.headers(&request, &order(elsewhere), 0);
            assert!(away.iter().all(|(_, v)| !v.contains("s3cret")), "{elsewhere}: {away:?}");
            assert_eq!(get(&away, "accept"), Some("x/y"));
        }
    }

    #[test]
    fn a_password_is_sent_only_when_asked_for_and_by_digest_where_that_is_offered() {
        let mut session = session();
        let request = request(&["http://me:p%40ss@h/a"]);
        let order = order("http://me:p%40ss@h/a");
        assert_eq!(get(&session.headers(&request, &order, 0), "authorization"), None);
        assert!(session.can_answer(&request, &order.url, &challenge("Basic realm=\"x\"")));
        let basic = auth::basic("me", "p@ss").unwrap();
        assert_eq!(get(&session.headers(&request, &order, 0), "authorization"), Some(basic.as_str()));
        let both = challenge("Basic realm=\"x\", Digest realm=\"x\", nonce=\"n\", qop=\"auth\"");
        assert!(session.can_answer(&request, &order.url, &both));
        let first = session.headers(&request, &order, 0);
        assert!(get(&first, "authorization").unwrap().starts_with("Digest "));
        let second = session.headers(&request, &order, 0);
        assert!(get(&second, "authorization").unwrap().contains("nc=00000002"));
    }

    /// Whether a login of this netrc is given to `asked` for a request for `urls`.
    fn gives(netrc: &str, checked: bool, request: &Request, asked: &str) -> bool {
        let netrc = Some(Netrc::parse(netrc).unwrap());
        let logins = Logins { netrc, certificates_are_checked: checked };
        let mut session = Session::new(CookieJar::new(), logins, None, None);
        let order = order(asked);
        let can = session.can_answer(request, &order.url, &challenge("Basic realm=\"x\""));
        let sent = get(&session.headers(request, &order, 0), "authorization").is_some();
        assert_eq!(can, sent, "{asked}");
        sent
    }

    const EXACT: &str = "machine other login me password s3cret\n";
    const DOMAIN: &str = "machine .example.org login me password s3cret\n";
    const DEFAULT: &str = "default login me password s3cret\n";

    #[test]
    fn a_host_that_the_user_named_gets_its_netrc_login_on_that_scheme_and_port() {
        for (netrc, url) in [
            (EXACT, "http://other/a"),
            (EXACT, "http://other:8080/a"),
            (EXACT, "https://other:8443/a"),
            (DOMAIN, "http://www.example.org/a"),
            (DEFAULT, "http://anything/a"),
        ] {
            assert!(gives(netrc, true, &request(&[url]), url), "{url}");
            assert!(gives(netrc, false, &request(&["https://h/a", url]), url), "as a mirror: {url}");
        }
        for (named, asked) in [
            ("http://other/a", "http://other:8080/a"),
            ("http://other:8080/a", "http://other/a"),
            ("https://other/a", "http://other/a"),
            ("https://other/a", "https://other:8443/a"),
        ] {
            assert!(!gives(EXACT, true, &request(&[named]), asked), "{named} leads to {asked}");
        }
    }

    #[test]
    fn a_redirect_target_gets_a_netrc_login_only_under_its_very_name_and_with_a_certificate() {
        let home = request(&["http://h/a"]);
        assert!(gives(EXACT, true, &home, "https://other/a"));
        assert!(gives(EXACT, true, &request(&["http://other/a"]), "https://other/a"), "an upgrade");
        assert!(!gives(EXACT, false, &home, "https://other/a"), "--insecure");
        assert!(!gives(EXACT, true, &home, "https://other:8443/a"), "a port of somebody else's");
        assert!(!gives(EXACT, true, &home, "http://other/a"), "plain http");
        assert!(!gives(EXACT, true, &home, "http://other:443/a"), "plain http");
        assert!(!gives(DOMAIN, true, &home, "https://www.example.org/a"), "a domain");
        assert!(!gives(DEFAULT, true, &home, "https://other/a"), "the default");
    }

    #[test]
    fn a_mirror_that_only_a_document_names_gets_no_more_than_a_redirect_target() {
        let by_document = |url: &str| {
            let mirror = Mirror::parse(url).unwrap().named_by_document();
            Request::new(vec![mirror], Destination::Stdout).unwrap()
        };
        for (netrc, url, given) in [
            (EXACT, "http://other/a", false),
            (EXACT, "http://other:8080/a", false),
            (EXACT, "https://other:8443/a", false),
            (DOMAIN, "https://www.example.org/a", false),
            (DEFAULT, "https://other/a", false),
            (EXACT, "https://other/a", true),
        ] {
            assert_eq!(gives(netrc, true, &by_document(url), url), given, "{url}");
        }
        // The user naming the same origin is what counts.
        let mut mirrors = by_document("http://other/a").mirrors().to_vec();
        mirrors.push(Mirror::parse("http://other/b").unwrap());
        let both = Request::new(mirrors, Destination::Stdout).unwrap();
        assert!(gives(EXACT, true, &both, "http://other/a"));
    }
}
