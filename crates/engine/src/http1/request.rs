//! The bytes of a request.

use crate::failure::FetchError;
use url::Url;

/// Most bytes of a request's head. Servers commonly refuse more than 8 to 32 KiB.
const MOST: usize = 64 * 1024;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct RequestLine<'a> {
    /// The file. Its fragment, user name and password are not sent.
    pub url: &'a Url,
    /// The whole URL is sent instead of only its path: for `http` through an HTTP proxy.
    pub absolute_form: bool,
}

/// The bytes of a GET with these headers, in their order, after `Host`.
///
/// `Host` comes from the URL unless `headers` has one.
///
/// # Errors
/// [`FetchError::BadRequest`] if a name is no token, a value holds a control character (a line break
/// would add headers of its own), a header would announce a body that a GET does not have, or the
/// whole is above 64 KiB.
pub fn encode_request(line: &RequestLine<'_>, headers: &[(String, String)]) -> Result<Vec<u8>, FetchError> {
    let bad = |what: String| Err(FetchError::BadRequest { what });
    let url = line.url;
    let Some(host) = url.host_str().filter(|h| !h.is_empty()) else {
        return bad("the URL names no host".to_owned());
    };
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(b"GET ");
    let authority = |out: &mut Vec<u8>| {
        // `host_str` keeps the brackets of IPv6, and `port` is `None` for the scheme's own.
        out.extend_from_slice(host.as_bytes());
        if let Some(port) = url.port() {
            out.extend_from_slice(format!(":{port}").as_bytes());
        }
    };
    if line.absolute_form {
        out.extend_from_slice(url.scheme().as_bytes());
        out.extend_from_slice(b"://");
        authority(&mut out);
    }
    out.extend_from_slice(if url.path().is_empty() { b"/" } else { url.path().as_bytes() });
    if let Some(query) = url.query() {
        out.push(b'?');
        out.extend_from_slice(query.as_bytes());
    }
    // `Url` has encoded blanks and control characters; a line must not depend on that.
    if out[4..].iter().any(|b| *b <= b' ' || *b >= 0x7f) {
        return bad("the URL holds a character that cannot be sent".to_owned());
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        out.extend_from_slice(b"Host: ");
        authority(&mut out);
        out.extend_from_slice(b"\r\n");
    }
    for (name, value) in headers {
        if name.is_empty() || !name.bytes().all(is_token) {
            return bad(format!("{:?} is not the name of a header", crate::failure::shown(name.as_bytes())));
        }
        if value.bytes().any(|b| (b < b' ' && b != b'\t') || b == 0x7f) {
            return bad(format!("the value of {name} holds a control character"));
        }
        if ["content-length", "transfer-encoding"].iter().any(|n| name.eq_ignore_ascii_case(n)) {
            return bad(format!("{name} announces a body, and a download sends none"));
        }
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.trim_ascii().as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    if out.len() > MOST {
        return bad(format!("its head has {} bytes; {MOST} are allowed", out.len()));
    }
    Ok(out)
}

/// A `tchar` of RFC 9110.
pub(super) fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(url: &str, absolute_form: bool, headers: &[(&str, &str)]) -> Result<String, FetchError> {
        let url = Url::parse(url).unwrap();
        let headers: Vec<_> = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        encode_request(&RequestLine { url: &url, absolute_form }, &headers)
            .map(|b| String::from_utf8(b).unwrap())
    }

    #[test]
    fn a_request_names_its_host_and_leaves_secrets_and_the_fragment_out() {
        assert_eq!(
            encode("http://me:pw@h:8080/a b?q=1#frag", false, &[("Range", "bytes=1048576-")]).unwrap(),
            "GET /a%20b?q=1 HTTP/1.1\r\nHost: h:8080\r\nRange: bytes=1048576-\r\n\r\n"
        );
        assert_eq!(encode("https://h:443", false, &[]).unwrap(), "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    }

    #[test]
    fn an_ipv6_host_keeps_its_brackets() {
        let text = encode("http://[::1]:81/", false, &[]).unwrap();
        assert!(text.contains("\r\nHost: [::1]:81\r\n"), "{text}");
    }

    #[test]
    fn a_proxy_is_told_the_whole_url_without_credentials() {
        let text = encode("http://me:pw@h/a?b#c", true, &[]).unwrap();
        assert!(text.starts_with("GET http://h/a?b HTTP/1.1\r\nHost: h\r\n"), "{text}");
    }

    #[test]
    fn a_host_header_of_the_user_replaces_ours() {
        let text = encode("http://127.0.0.1/", false, &[("host", "example.org")]).unwrap();
        assert_eq!(text, "GET / HTTP/1.1\r\nhost: example.org\r\n\r\n");
    }

    #[test]
    fn no_header_can_smuggle_in_another_or_a_body() {
        for (name, value) in [
            ("X", "a\r\nY: b"),
            ("X", "a\nY: b"),
            ("X", "a\0"),
            ("X\r\nY", "a"),
            ("X: Y", "a"),
            ("", "a"),
            ("Content-Length", "5"),
            ("transfer-Encoding", "chunked"),
        ] {
            assert!(
                matches!(encode("http://h/", false, &[(name, value)]), Err(FetchError::BadRequest { .. })),
                "{name:?}"
            );
        }
        assert!(encode("http://h/", false, &[("X", &"y".repeat(70_000))]).is_err());
    }
}
