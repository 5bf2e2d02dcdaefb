//! `Location`: where a redirect leads.

use url::Url;

/// Longest target of a redirect, in bytes.
pub const MAX_LOCATION: usize = 16 * 1024;

/// Why a redirect cannot be followed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LocationError {
    /// It leads nowhere.
    #[error("the redirect has an empty Location")]
    Empty,
    /// It is longer than [`MAX_LOCATION`].
    #[error("the redirect's Location is too long")]
    TooLong,
    /// It is not a URL.
    #[error("the redirect's Location is not a URL: {0}")]
    Invalid(String),
    /// It leads to a scheme that is not spoken here.
    #[error("the redirect leads to {0:?}; only http and https are spoken")]
    Unsupported(String),
}

/// A `Location`, `Content-Location` or link target as text: blanks and bytes that are not UTF-8 are
/// percent-encoded, as browsers do. `None` if it is too long.
pub fn location_text(value: &[u8]) -> Option<String> {
    let value = value.trim_ascii();
    if value.len() > MAX_LOCATION {
        return None;
    }
    let keep_high = std::str::from_utf8(value).is_ok();
    let mut bytes = Vec::with_capacity(value.len());
    for &b in value {
        if b.is_ascii_whitespace() || (b >= 0x80 && !keep_high) {
            bytes.extend(format!("%{:02X}", if b >= 0x80 { b } else { b' ' }).bytes());
        } else {
            bytes.push(b);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Where `location` leads from `base`: an `http` or `https` URL with a host and without fragment.
/// It may hold a user name and password, which are then the server's own.
///
/// # Errors
/// If it leads nowhere that can be fetched.
pub fn resolve_location(base: &Url, location: &str) -> Result<Url, LocationError> {
    let text = location_text(location.as_bytes()).ok_or(LocationError::TooLong)?;
    if text.is_empty() {
        return Err(LocationError::Empty);
    }
    let mut url = base.join(&text).map_err(|e| LocationError::Invalid(e.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(LocationError::Unsupported(url.scheme().chars().take(32).collect()));
    }
    // Encoding may have made it longer, up to threefold.
    if url.as_str().len() > 3 * MAX_LOCATION {
        return Err(LocationError::TooLong);
    }
    url.set_fragment(None);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_location_is_resolved_as_browsers_do() {
        for (base, location, expected) in [
            ("http://h/", "http://example.org/white space#aria2", "http://example.org/white%20space"),
            ("http://h/", " http://example.org/a\tb ", "http://example.org/a%20b"),
            ("http://h:8080/aria2/index.html", "/foo", "http://h:8080/foo"),
            (
                "http://h:8080/abspath/to/file",
                "relativepath/to/file",
                "http://h:8080/abspath/to/relativepath/to/file",
            ),
            ("http://h:8080/aria2/index.html", "//host/to/file", "http://host/to/file"),
            ("https://h/a", "//host/to/file", "https://host/to/file"),
            ("http://h/a", "/abspath?uri=http://foo", "http://h/abspath?uri=http://foo"),
            ("http://h/a", "/redir4/gone/.././2nd/foo?a", "http://h/redir4/2nd/foo?a"),
            ("http://h/a", "../../../etc/passwd", "http://h/etc/passwd"),
            ("http://h/a/b?x=1", "?y=2", "http://h/a/b?y=2"),
            ("http://h/a/b?x=1", "#top", "http://h/a/b?x=1"),
            ("http://h/a", "/datei-ä", "http://h/datei-%C3%A4"),
        ] {
            let base = Url::parse(base).unwrap();
            assert_eq!(resolve_location(&base, location).unwrap().as_str(), expected, "{location}");
        }
    }

    #[test]
    fn a_location_that_cannot_be_fetched_is_an_error() {
        let base = Url::parse("http://h/a").unwrap();
        assert_eq!(resolve_location(&base, "  "), Err(LocationError::Empty));
        for scheme in ["unsupported", "file", "ftp", "javascript", "data"] {
            let found = resolve_location(&base, &format!("{scheme}://x/y"));
            assert_eq!(found, Err(LocationError::Unsupported(scheme.to_owned())));
        }
        for bad in ["http://", "http://h:99999/", "http://[::1/", "//"] {
            assert!(matches!(resolve_location(&base, bad), Err(LocationError::Invalid(_))), "{bad}");
        }
        let long = "a".repeat(MAX_LOCATION + 1);
        assert_eq!(resolve_location(&base, &long), Err(LocationError::TooLong));
    }

    #[test]
    fn bytes_of_unknown_encoding_stay_the_bytes_they_are() {
        assert_eq!(location_text(b"/f\xfcnf 5").as_deref(), Some("/f%FCnf%205"));
        assert_eq!(location_text("/fünf".as_bytes()).as_deref(), Some("/fünf"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..80), text in "(https?:)?/{0,3}[ -~]{0,40}") {
            let base = Url::parse("http://h/a").unwrap();
            let from_bytes = location_text(&bytes).unwrap_or_default();
            for location in [from_bytes, text] {
                if let Ok(url) = resolve_location(&base, &location) {
                    prop_assert!(url.has_host() && url.fragment().is_none());
                }
            }
        }
    }
}
