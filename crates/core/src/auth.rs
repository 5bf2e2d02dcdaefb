//! Passwords over HTTP: challenges in, `Authorization` values out (RFC 7617 Basic, RFC 7616 Digest).

use crate::headers::scan::{self, Scanner};
use crate::headers::text;
use base64::Engine as _;
use md5::Digest as _;
use md5::Md5;
use sha2::Sha256;
use std::fmt::Write as _;

/// Challenges that are read of one answer, at most.
pub const MAX_CHALLENGES: usize = 16;

/// Parameters that are read of one challenge, at most.
const MAX_PARAMETERS: usize = 32;

/// One way to authenticate that a server or proxy offers (`WWW-Authenticate`, `Proxy-Authenticate`).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Challenge {
    /// The scheme in lower case: `basic`, `digest`, `negotiate`, …
    pub scheme: String,
    /// What stands in place of parameters in some schemes.
    pub token68: Option<String>,
    /// Parameters in the order told, names in lower case, values without quotes.
    pub parameters: Vec<(String, String)>,
}

/// Why no `Authorization` can be made.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AuthError {
    /// Basic cannot carry a colon in the user's name.
    #[error("a user name for Basic authentication cannot have a colon")]
    ColonInUser,
    /// Control characters would break the header.
    #[error("a user name or password cannot have control characters")]
    ControlCharacter,
    /// Not a Digest challenge with what Digest needs, in a form that is spoken here.
    #[error("the server's Digest challenge cannot be answered")]
    Unanswerable,
}

/// How good a way to authenticate is, the best the greatest.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Strength {
    /// Basic: the password itself is sent.
    Basic,
    /// Digest with MD5.
    DigestMd5,
    /// Digest with SHA-256.
    DigestSha256,
}

impl Challenge {
    /// Reads every challenge in the values of a header. One value may hold several; what is not a
    /// challenge is passed over.
    pub fn parse_all<'a>(values: impl Iterator<Item = &'a [u8]>) -> Vec<Self> {
        let mut challenges: Vec<Self> = Vec::new();
        for value in values {
            // A parameter never belongs to a challenge of another field.
            let first = challenges.len();
            for element in scan::list(value) {
                let belongs_to_last = match parse_element(element) {
                    Some(Element::Challenge(_)) if challenges.len() == MAX_CHALLENGES => return challenges,
                    Some(Element::Challenge(challenge)) => {
                        challenges.push(challenge);
                        None
                    }
                    Some(Element::Parameter(name, value)) => Some((name, value)),
                    None => None,
                };
                if let Some(parameter) = belongs_to_last
                    && let Some(challenge) = challenges[first..].last_mut()
                    && challenge.parameters.len() < MAX_PARAMETERS
                {
                    challenge.parameters.push(parameter);
                }
            }
        }
        challenges
    }

    /// The value of a parameter (`name` in lower case), if it is told once.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let mut values = self.parameters.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let value = values.next()?;
        values.next().is_none().then_some(value)
    }

    /// Whether a Digest answer was right but for its nonce: the same password is to be tried again.
    pub fn is_stale(&self) -> bool {
        self.parameter("stale").is_some_and(|v| v.eq_ignore_ascii_case("true"))
    }

    /// How good this way is, or `None` if it is not spoken here.
    pub fn strength(&self) -> Option<Strength> {
        match self.scheme.as_str() {
            "basic" => Some(Strength::Basic),
            "digest" => Terms::of(self).map(|terms| match terms.hash {
                Hash::Md5 => Strength::DigestMd5,
                Hash::Sha256 => Strength::DigestSha256,
            }),
            _ => None,
        }
    }
}

/// The best of the challenges that is spoken here: Digest with SHA-256, Digest with MD5, Basic. Of
/// equals the first.
pub fn strongest(challenges: &[Challenge]) -> Option<&Challenge> {
    let ranked = challenges.iter().filter_map(|c| Some((c.strength()?, c)));
    ranked.rev().max_by_key(|(strength, _)| *strength).map(|(_, challenge)| challenge)
}

/// The value of `Authorization` (or `Proxy-Authorization`) for Basic.
///
/// # Errors
/// If user or password cannot be carried.
pub fn basic(user: &str, password: &str) -> Result<String, AuthError> {
    if user.contains(':') {
        return Err(AuthError::ColonInUser);
    }
    if user.chars().chain(password.chars()).any(char::is_control) {
        return Err(AuthError::ControlCharacter);
    }
    let pair = format!("{user}:{password}");
    Ok(format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair)))
}

/// What an answer to a Digest challenge is made for.
#[derive(Clone, Copy, Debug)]
pub struct DigestUse<'a> {
    /// The method of the request.
    pub method: &'a str,
    /// Its target exactly as in the request line.
    pub uri: &'a str,
    /// A text that is never used twice and that nobody can guess; token characters only.
    pub cnonce: &'a str,
    /// How often this nonce was used, this time included: from 1.
    pub count: u32,
}

/// The value of `Authorization` (or `Proxy-Authorization`) for Digest.
///
/// # Errors
/// If the challenge is not one that [`Challenge::strength`] knows, or user or password cannot be
/// carried.
pub fn digest(
    challenge: &Challenge,
    user: &str,
    password: &str,
    request: DigestUse<'_>,
) -> Result<String, AuthError> {
    let terms = Terms::of(challenge).ok_or(AuthError::Unanswerable)?;
    let DigestUse { method, uri, cnonce, count } = request;
    let texts = [user, password, method, uri, cnonce];
    if texts.iter().any(|text| text.chars().any(char::is_control)) {
        return Err(AuthError::ControlCharacter);
    }
    let hash = |text: &str| terms.hash.hex(text);
    let Terms { realm, nonce, .. } = terms;
    let mut secret = hash(&format!("{user}:{realm}:{password}"));
    if terms.session {
        secret = hash(&format!("{secret}:{nonce}:{cnonce}"));
    }
    let what = hash(&format!("{method}:{uri}"));
    let response = if terms.qop_auth {
        hash(&format!("{secret}:{nonce}:{count:08x}:{cnonce}:auth:{what}"))
    } else {
        hash(&format!("{secret}:{nonce}:{what}"))
    };

    let mut value = String::from("Digest ");
    if terms.hides_user {
        let _ = write!(value, "username=\"{}\", userhash=true", hash(&format!("{user}:{realm}")));
    } else if user.is_ascii() {
        let _ = write!(value, "username={}", quote(user));
    } else {
        let _ = write!(value, "username*=UTF-8''{}", percent_encode(user));
    }
    let _ = write!(value, ", realm={}, nonce={}, uri={}", quote(realm), quote(nonce), quote(uri));
    if let Some(algorithm) = challenge.parameter("algorithm") {
        let _ = write!(value, ", algorithm={algorithm}");
    }
    if terms.qop_auth {
        let _ = write!(value, ", qop=auth, nc={count:08x}");
    }
    if terms.qop_auth || terms.session {
        let _ = write!(value, ", cnonce={}", quote(cnonce));
    }
    let _ = write!(value, ", response=\"{response}\"");
    if let Some(opaque) = challenge.parameter("opaque") {
        let _ = write!(value, ", opaque={}", quote(opaque));
    }
    Ok(value)
}

/// What a Digest challenge asks for.
struct Terms<'a> {
    hash: Hash,
    session: bool,
    realm: &'a str,
    nonce: &'a str,
    /// `qop=auth`; else the older form without `qop` (RFC 2069).
    qop_auth: bool,
    hides_user: bool,
}

impl<'a> Terms<'a> {
    fn of(challenge: &'a Challenge) -> Option<Self> {
        if challenge.scheme != "digest" {
            return None;
        }
        let told = |name| challenge.parameters.iter().any(|(n, _)| n == name);
        let (hash, session) = match challenge.parameter("algorithm") {
            None if told("algorithm") => return None,
            None => (Hash::Md5, false),
            Some(name) => match name.to_ascii_lowercase().as_str() {
                "md5" => (Hash::Md5, false),
                "md5-sess" => (Hash::Md5, true),
                "sha-256" => (Hash::Sha256, false),
                "sha-256-sess" => (Hash::Sha256, true),
                _ => return None,
            },
        };
        let qop_auth = match challenge.parameter("qop") {
            None if told("qop") => return None,
            None => false,
            // `auth-int` alone would sign a body, and a download sends none.
            Some(list) => list.split(',').any(|q| q.trim().eq_ignore_ascii_case("auth")).then_some(true)?,
        };
        let hides_user = challenge.parameter("userhash").is_some_and(|v| v.eq_ignore_ascii_case("true"));
        let (realm, nonce) = (challenge.parameter("realm")?, challenge.parameter("nonce")?);
        Some(Self { hash, session, realm, nonce, qop_auth, hides_user })
    }
}

#[derive(Clone, Copy)]
enum Hash {
    Md5,
    Sha256,
}

impl Hash {
    fn hex(self, text: &str) -> String {
        let bytes = match self {
            Self::Md5 => Md5::digest(text).to_vec(),
            Self::Sha256 => Sha256::digest(text).to_vec(),
        };
        bytes.iter().fold(String::new(), |mut hex, b| {
            let _ = write!(hex, "{b:02x}");
            hex
        })
    }
}

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn percent_encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, b| {
        if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
            encoded.push(char::from(b));
        } else {
            let _ = write!(encoded, "%{b:02X}");
        }
        encoded
    })
}

enum Element {
    Challenge(Challenge),
    Parameter(String, String),
}

/// One element between commas: `SCHEME`, `SCHEME TOKEN68`, `SCHEME NAME=VALUE` or `NAME=VALUE`.
fn parse_element(element: &[u8]) -> Option<Element> {
    let mut scanner = Scanner::new(element);
    let word = lower(scanner.token()?);
    let before_blanks = scanner;
    scanner.skip_blanks();
    if scanner.peek() == Some(b'=') {
        let value = parse_value(&mut scanner)?;
        return Some(Element::Parameter(word, value));
    }
    let mut challenge = Challenge { scheme: word, token68: None, parameters: Vec::new() };
    if scanner.at_end() {
        return Some(Element::Challenge(challenge));
    }
    if before_blanks.rest().len() == scanner.rest().len() {
        // Something other than a blank after the scheme: this is no challenge.
        return None;
    }
    let rest = scanner.rest();
    if let Some(name) = scanner.token() {
        scanner.skip_blanks();
        if let Some(value) = parse_value(&mut scanner) {
            challenge.parameters.push((lower(name), value));
            return Some(Element::Challenge(challenge));
        }
    }
    let unpadded = rest.iter().rposition(|&b| b != b'=').map_or(0, |last| last + 1);
    let is_token68 =
        unpadded > 0 && rest[..unpadded].iter().all(|&b| b.is_ascii_alphanumeric() || b"-._~+/".contains(&b));
    if is_token68 {
        challenge.token68 = Some(String::from_utf8_lossy(rest).into_owned());
    }
    Some(Element::Challenge(challenge))
}

/// `=VALUE` up to the end of the element. Tokens are read to the end as they are: some servers leave
/// out the quotes that a value needs (`realm=My realm`, `nonce=abc==`).
fn parse_value(scanner: &mut Scanner<'_>) -> Option<String> {
    if !scanner.eat(b'=') {
        return None;
    }
    scanner.skip_blanks();
    let value = if scanner.peek() == Some(b'"') {
        scanner.quoted()?
    } else {
        let value = scanner.rest();
        if value.is_empty() || value.iter().all(|&b| b == b'=') || value.contains(&b'"') {
            return None;
        }
        value.to_vec()
    };
    let value = text::decode(&value);
    (!value.chars().any(char::is_control)).then_some(value)
}

fn lower(token: &[u8]) -> String {
    String::from_utf8_lossy(token).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(value: &str) -> Vec<Challenge> {
        Challenge::parse_all([value.as_bytes()].into_iter())
    }

    fn one(value: &str) -> Challenge {
        let mut all = parse(value);
        assert_eq!(all.len(), 1, "{value}");
        all.remove(0)
    }

    #[test]
    fn several_challenges_in_one_field_are_told_apart() {
        let all = parse(
            r#"Newauth realm="apps, \"all\"", type=1, title="Login = x", Basic realm="simple",Negotiate , NTLM TlRMTVNTUAAC==, digest  nonce = "n" , realm=r"#,
        );
        let shown: Vec<_> =
            all.iter().map(|c| (c.scheme.as_str(), c.token68.as_deref(), c.parameters.len())).collect();
        assert_eq!(
            shown,
            [
                ("newauth", None, 3),
                ("basic", None, 1),
                ("negotiate", None, 0),
                ("ntlm", Some("TlRMTVNTUAAC=="), 0),
                ("digest", None, 2),
            ]
        );
        assert_eq!(all[0].parameter("realm"), Some("apps, \"all\""));
        assert_eq!(all[0].parameter("title"), Some("Login = x"));
        assert_eq!((all[4].parameter("nonce"), all[4].parameter("realm")), (Some("n"), Some("r")));
    }

    #[test]
    fn what_is_no_challenge_is_passed_over() {
        for value in ["", ",,,", "realm=\"x\"", "=", "\"Basic\"", "<>", "Basic\u{1}realm=x"] {
            assert_eq!(parse(value), [], "{value}");
        }
        // A field's parameters do not wander to the challenge of another field.
        let all = Challenge::parse_all([&b"Basic"[..], b"realm=\"x\""].into_iter());
        assert_eq!(all[0].parameters, []);
        assert_eq!(parse(&"Basic, ".repeat(1000)).len(), MAX_CHALLENGES);
    }

    #[test]
    fn the_strongest_way_is_chosen() {
        let sha = r#"Digest realm="r", nonce="n", qop="auth, auth-int", algorithm=SHA-256"#;
        let md5 = r#"Digest realm="r", nonce="n""#;
        let basic = r#"Basic realm="b""#;
        let only_int = r#"Digest realm="r", nonce="n", qop="auth-int""#;
        let unknown = r#"Digest realm="r", nonce="n", algorithm=FOO"#;
        for (values, expected) in [
            (vec![basic, md5, sha], Some(Strength::DigestSha256)),
            (vec![sha, md5, basic], Some(Strength::DigestSha256)),
            (vec![basic, md5], Some(Strength::DigestMd5)),
            (vec![only_int, unknown, basic], Some(Strength::Basic)),
            (vec!["Digest realm=\"r\"", "Negotiate", "Bearer realm=\"x\""], None),
            (vec![], None),
        ] {
            let all = Challenge::parse_all(values.iter().map(|v| v.as_bytes()));
            assert_eq!(strongest(&all).and_then(Challenge::strength), expected, "{values:?}");
        }
        let two = parse(r#"Basic realm="first", Basic realm="second""#);
        assert_eq!(strongest(&two).and_then(|c| c.parameter("realm")), Some("first"));
    }

    #[test]
    fn basic_is_that_of_rfc_7617() {
        assert_eq!(basic("Aladdin", "open sesame").as_deref(), Ok("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
        assert_eq!(basic("test", "123£").as_deref(), Ok("Basic dGVzdDoxMjPCow=="));
        assert_eq!(basic("a:b", "c"), Err(AuthError::ColonInUser));
        assert_eq!(basic("a", "b\r\nX: y"), Err(AuthError::ControlCharacter));
    }

    #[test]
    fn digest_is_that_of_the_rfcs() {
        // RFC 7616 section 3.9.1, the two `-sess` ones computed apart.
        for (algorithm, expected) in [
            ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
            ("MD5-sess", "e783283f46242139c486a698fec7211d"),
            ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
            ("SHA-256-sess", "2fd51b3a77ad75bad6afad6003e818d767133c46d9e2749e7f5232ae1ea3efd7"),
        ] {
            let challenge = one(&format!(
                r#"Digest realm="http-auth@example.org", qop="auth, auth-int", algorithm={algorithm}, nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS""#
            ));
            let request = DigestUse {
                method: "GET",
                uri: "/dir/index.html",
                cnonce: "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
                count: 1,
            };
            let value = digest(&challenge, "Mufasa", "Circle of Life", request).unwrap();
            assert_eq!(
                value,
                format!(
                    "Digest username=\"Mufasa\", realm=\"http-auth@example.org\", \
                     nonce=\"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v\", uri=\"/dir/index.html\", \
                     algorithm={algorithm}, qop=auth, nc=00000001, \
                     cnonce=\"f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ\", response=\"{expected}\", \
                     opaque=\"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS\""
                )
            );
        }
        // RFC 2617 section 3.5, and the same without `qop` (RFC 2069, with its erratum 749).
        let nonce = r#"Digest realm="testrealm@host.com", nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093""#;
        let request = DigestUse { method: "GET", uri: "/dir/index.html", cnonce: "0a4f113b", count: 1 };
        for (more, password, expected) in [
            (r#", qop="auth,auth-int""#, "Circle Of Life", "6629fae49393a05397450978507c4ef1"),
            ("", "CircleOfLife", "1949323746fe6a43ef61f9606e7febea"),
        ] {
            let value = digest(&one(&format!("{nonce}{more}")), "Mufasa", password, request).unwrap();
            assert!(value.contains(&format!("response=\"{expected}\"")), "{value}");
            assert_eq!(value.contains("cnonce"), !more.is_empty());
        }
    }

    #[test]
    fn a_user_can_be_hidden_or_beyond_ascii_and_never_breaks_the_header() {
        let request = DigestUse { method: "GET", uri: "/a", cnonce: "c", count: 0x1f };
        let sha = r#"Digest realm="http-auth@example.org", nonce="n\"\\", qop=auth, algorithm=SHA-256"#;
        let hidden = digest(&one(&format!("{sha}, userhash=true")), "Mufasa", "p", request).unwrap();
        assert!(hidden.contains(
            "username=\"a947aad205e80e429958a387394944c6b496301e79f89d35a4cc23b6ee12b5b6\", userhash=true"
        ));
        assert!(hidden.contains("nc=0000001f"));
        assert!(hidden.contains(r#"nonce="n\"\\""#));
        let value = digest(&one(sha), "Jäsøn Doe", "p", request).unwrap();
        assert!(value.contains("username*=UTF-8''J%C3%A4s%C3%B8n%20Doe"), "{value}");
        assert_eq!(digest(&one(sha), "a\r\nb", "p", request), Err(AuthError::ControlCharacter));
        assert_eq!(digest(&one("Basic realm=x"), "a", "p", request), Err(AuthError::Unanswerable));
    }

    #[test]
    fn a_stale_nonce_is_known() {
        assert!(one(r#"Digest realm="r", nonce="n", stale=TRUE"#).is_stale());
        assert!(!one(r#"Digest realm="r", nonce="n""#).is_stale());
    }

    proptest! {
        #[test]
        fn no_challenge_breaks_the_answer(noise in prop::collection::vec(any::<u8>(), 0..80), text in "(Digest|Basic|X)? ?((realm|nonce|qop|algorithm|opaque|userhash) ?= ?\"?[ -~é]{0,8}\"?,? ?){0,6}", user in any::<String>()) {
            for challenge in Challenge::parse_all([noise.as_slice(), text.as_bytes()].into_iter()) {
                let request = DigestUse { method: "GET", uri: "/", cnonce: "c", count: 1 };
                let value = digest(&challenge, &user, "p", request);
                prop_assert!(value.is_ok() || challenge.strength() < Some(Strength::DigestMd5) || user.contains(char::is_control));
                prop_assert!(value.is_err() || challenge.strength() >= Some(Strength::DigestMd5));
                if let Ok(value) = value {
                    prop_assert!(!value.contains(char::is_control));
                }
            }
        }
    }
}
