//! Credentials that a resource asks for: gates for [`crate::Resource::gate`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use md5::Md5;
use sha2::{Digest as _, Sha256};

use crate::body::hex;
use crate::exchange::Answer;
use crate::request::RequestSeen;

/// The realm that is named in every challenge.
pub const REALM: &str = "testkit";
/// The nonce of Digest challenges. One is enough to test with; replay is not what is tested.
const NONCE: &str = "5ccc069c403ebaf9f0171e9517f40e41";

/// The hash of Digest authentication.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DigestHash {
    /// `algorithm=MD5`, named so.
    Md5,
    /// `algorithm=SHA-256`.
    Sha256,
}

impl DigestHash {
    fn name(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Sha256 => "SHA-256",
        }
    }

    fn hash(self, text: &str) -> String {
        match self {
            Self::Md5 => hex(&Md5::digest(text.as_bytes())),
            Self::Sha256 => hex(&Sha256::digest(text.as_bytes())),
        }
    }
}

/// Lets through who gives this user and password by Basic; 401 for all others.
pub fn basic(user: &str, password: &str) -> impl Fn(&RequestSeen) -> Option<Answer> + Send + Sync + use<> {
    let wanted = format!("Basic {}", BASE64.encode(format!("{user}:{password}")));
    move |request| {
        let right = request.field("authorization") == Some(wanted.as_str());
        (!right).then(|| challenge(&format!("Basic realm=\"{REALM}\", charset=\"UTF-8\"")))
    }
}

/// Lets through who gives this token by Bearer; 401 for all others.
pub fn bearer(token: &str) -> impl Fn(&RequestSeen) -> Option<Answer> + Send + Sync + use<> {
    let wanted = format!("Bearer {token}");
    move |request| {
        let right = request.field("authorization") == Some(wanted.as_str());
        (!right).then(|| challenge(&format!("Bearer realm=\"{REALM}\"")))
    }
}

/// Lets through who knows this user's password by Digest with `qop=auth`; 401 for all others.
pub fn digest(
    hash: DigestHash,
    user: &str,
    password: &str,
) -> impl Fn(&RequestSeen) -> Option<Answer> + Send + Sync + use<> {
    let (user, password) = (user.to_owned(), password.to_owned());
    move |request| {
        let right = request
            .field("authorization")
            .and_then(|value| value.strip_prefix("Digest "))
            .is_some_and(|value| digest_is_right(hash, &user, &password, request, value));
        (!right).then(|| {
            challenge(&format!(
                "Digest realm=\"{REALM}\", qop=\"auth\", algorithm={}, nonce=\"{NONCE}\", opaque=\"b3BhcXVl\"",
                hash.name()
            ))
        })
    }
}

fn challenge(value: &str) -> Answer {
    Answer::status(401).with("WWW-Authenticate", value)
}

fn digest_is_right(hash: DigestHash, user: &str, password: &str, request: &RequestSeen, value: &str) -> bool {
    let given = |name: &str| parameter(value, name).unwrap_or_default();
    // RFC 7616 3.4: without an algorithm it is MD5.
    let algorithm = parameter(value, "algorithm").unwrap_or_else(|| "MD5".to_owned());
    if given("username") != user
        || given("realm") != REALM
        || given("nonce") != NONCE
        || given("uri") != request.target
        || given("qop") != "auth"
        || given("cnonce").is_empty()
        || given("nc").len() != 8
        || !algorithm.eq_ignore_ascii_case(hash.name())
    {
        return false;
    }
    let secret = hash.hash(&format!("{user}:{REALM}:{password}"));
    let what = hash.hash(&format!("{}:{}", request.method, request.target));
    let proof = hash.hash(&format!("{secret}:{NONCE}:{}:{}:auth:{what}", given("nc"), given("cnonce")));
    given("response").eq_ignore_ascii_case(&proof)
}

/// The value of a parameter in a comma-separated list, unquoted.
fn parameter(list: &str, name: &str) -> Option<String> {
    let mut rest = list;
    loop {
        let (key, after) = rest.split_once('=')?;
        let (value, tail) = match after.trim_start().strip_prefix('"') {
            Some(quoted) => {
                let mut value = String::new();
                let mut letters = quoted.char_indices();
                loop {
                    match letters.next()? {
                        (at, '"') => break (value, &quoted[at + 1..]),
                        (_, '\\') => value.push(letters.next()?.1),
                        (_, letter) => value.push(letter),
                    }
                }
            }
            None => {
                let end = after.find(',').unwrap_or(after.len());
                (after[..end].trim().to_owned(), &after[end..])
            }
        };
        if key.trim().eq_ignore_ascii_case(name) {
            return Some(value);
        }
        rest = tail.trim_start().strip_prefix(',')?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_quoted_or_not() {
        let list = r#"username="a,b\"c", nc=00000001 , qop=auth,response="x""#;
        assert_eq!(parameter(list, "username").as_deref(), Some("a,b\"c"));
        assert_eq!(parameter(list, "NC").as_deref(), Some("00000001"));
        assert_eq!(parameter(list, "qop").as_deref(), Some("auth"));
        assert_eq!(parameter(list, "response").as_deref(), Some("x"));
        assert_eq!(parameter(list, "name"), None);
        assert_eq!(parameter("a=\"open", "a"), None);
    }

    #[test]
    fn hashes_are_the_standard_ones() {
        // RFC 7616 3.9.1: A1 of the worked example.
        let a1 = "Mufasa:http-auth@example.org:Circle of Life";
        assert_eq!(DigestHash::Md5.hash(a1), "3d78807defe7de2157e2b0b6573a855f");
        assert_eq!(
            DigestHash::Sha256.hash(a1),
            "7987c64c30e25f1b74be53f966b49b90f2808aa92faf9a00262392d7b4794232"
        );
    }
}
