//! Fields small enough for one function each.

use super::scan::{self, Scanner};

/// Codings that are taken off a body, one after the other, at most. Nobody honest uses more than two;
/// each more multiplies what a small body can grow to.
pub const MAX_CODINGS: usize = 4;

/// How a body is encoded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Coding {
    /// `gzip` or `x-gzip`.
    Gzip,
    /// `deflate`: zlib's format (some send a raw deflate stream).
    Deflate,
    /// `br`.
    Brotli,
    /// `zstd`.
    Zstd,
    /// Any other, in lower case: cannot be decoded here.
    Unknown(String),
}

/// Reads `Content-Encoding` or `Transfer-Encoding` elements, the first applied first; `identity` is
/// left out, since it does nothing. More than [`MAX_CODINGS`] become a last, unknown one.
pub fn parse_codings<'a>(elements: impl Iterator<Item = &'a [u8]>) -> Vec<Coding> {
    let mut codings = Vec::new();
    for element in elements {
        let name = element.split(|&b| b == b';').next().unwrap_or(element);
        let name = String::from_utf8_lossy(scan::trim(name)).to_ascii_lowercase();
        let coding = match name.as_str() {
            "identity" => continue,
            "gzip" | "x-gzip" => Coding::Gzip,
            "deflate" => Coding::Deflate,
            "br" => Coding::Brotli,
            "zstd" => Coding::Zstd,
            _ => Coding::Unknown(name.chars().take(64).collect()),
        };
        if codings.len() == MAX_CODINGS {
            codings.push(Coding::Unknown(format!("more than {MAX_CODINGS} codings")));
            break;
        }
        codings.push(coding);
    }
    codings
}

/// Why `Content-Length` or `Transfer-Encoding` leave the end of the body in doubt. What follows on
/// such a connection must not be read as another answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LengthError {
    /// Not a number.
    #[error("Content-Length is not a number")]
    NotANumber,
    /// Below zero.
    #[error("Content-Length is negative")]
    Negative,
    /// More than a file can hold.
    #[error("Content-Length is beyond any file")]
    TooLarge,
    /// Several that differ.
    #[error("the answer has several Content-Length values that differ")]
    Conflicting,
    /// `chunked` applied twice.
    #[error("the answer is chunked twice")]
    ChunkedTwice,
}

/// Reads the elements of every `Content-Length` field, in bytes; the same length may be told again.
pub fn parse_content_length<'a>(
    elements: impl Iterator<Item = &'a [u8]>,
) -> Result<Option<u64>, LengthError> {
    let mut length = None;
    for element in elements {
        let digits = element.strip_prefix(b"-").unwrap_or(element);
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(LengthError::NotANumber);
        }
        if digits.len() < element.len() {
            return Err(LengthError::Negative);
        }
        let told = scan::number(digits).ok_or(LengthError::TooLarge)?;
        if length.replace(told).is_some_and(|before| before != told) {
            return Err(LengthError::Conflicting);
        }
    }
    Ok(length)
}

/// Reads `Accept-Ranges` elements: whether ranges of bytes are served; `None` if nothing is said.
pub fn parse_accept_ranges<'a>(elements: impl Iterator<Item = &'a [u8]>) -> Option<bool> {
    elements.fold(None, |said, element| Some(said == Some(true) || element.eq_ignore_ascii_case(b"bytes")))
}

/// Reads `Content-Type`: the type without parameters, in lower case (`application/metalink4+xml`).
pub fn parse_media_type(value: &[u8]) -> Option<String> {
    let mut scanner = Scanner::new(scan::trim(value));
    let main = scanner.token()?;
    let sub = if scanner.eat(b'/') { scanner.token()? } else { return None };
    scanner.skip_blanks();
    let ends = scanner.at_end() || matches!(scanner.peek(), Some(b';' | b','));
    let text = |token: &[u8]| String::from_utf8_lossy(token).to_ascii_lowercase();
    (ends && main.len() + sub.len() < 256).then(|| format!("{}/{}", text(main), text(sub)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn codings_are_told_apart() {
        let codings = |value: &str| parse_codings(scan::list(value.as_bytes()));
        let unknown = |name: &str| Coding::Unknown(name.to_owned());
        for (value, expected) in [
            ("", vec![]),
            ("identity", vec![]),
            ("gzip", vec![Coding::Gzip]),
            ("X-GZip", vec![Coding::Gzip]),
            ("deflate", vec![Coding::Deflate]),
            ("bzip2", vec![unknown("bzip2")]),
            ("br, identity, zstd", vec![Coding::Brotli, Coding::Zstd]),
            ("gzip;q=1", vec![Coding::Gzip]),
        ] {
            assert_eq!(codings(value), expected, "{value}");
        }
        let many = codings(&"gzip,".repeat(1000));
        assert_eq!(many.len(), MAX_CODINGS + 1);
        assert!(matches!(many.last(), Some(Coding::Unknown(_))));
    }

    #[test]
    fn a_length_is_a_number_told_once_or_always_the_same() {
        let length = |value: &str| parse_content_length(scan::list(value.as_bytes()));
        for (value, expected) in [
            ("", Ok(None)),
            ("0", Ok(Some(0))),
            ("4294967296", Ok(Some(4_294_967_296))),
            ("5, 5", Ok(Some(5))),
            ("5, 6", Err(LengthError::Conflicting)),
            ("-1", Err(LengthError::Negative)),
            ("-", Err(LengthError::NotANumber)),
            ("+1", Err(LengthError::NotANumber)),
            ("0x10", Err(LengthError::NotANumber)),
            ("1 0", Err(LengthError::NotANumber)),
            ("9223372036854775808", Err(LengthError::TooLarge)),
            ("18446744073709551616", Err(LengthError::TooLarge)),
        ] {
            assert_eq!(length(value), expected, "{value:?}");
        }
    }

    #[test]
    fn ranges_are_served_not_served_or_not_spoken_of() {
        let accept = |value: &str| parse_accept_ranges(scan::list(value.as_bytes()));
        for (value, expected) in [
            ("bytes", Some(true)),
            ("Bytes", Some(true)),
            ("none", Some(false)),
            ("items", Some(false)),
            ("none, bytes", Some(true)),
            ("", None),
        ] {
            assert_eq!(accept(value), expected, "{value}");
        }
    }

    #[test]
    fn a_media_type_is_read_without_its_parameters() {
        for (value, expected) in [
            ("application/metalink+xml; charset=UTF-8", Some("application/metalink+xml")),
            ("Text/HTML;charset=x", Some("text/html")),
            ("text/html, text/html", Some("text/html")),
            ("text", None),
            ("text/", None),
            ("/html", None),
            ("text/html x", None),
            ("", None),
        ] {
            assert_eq!(parse_media_type(value.as_bytes()).as_deref(), expected, "{value}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse_media_type(&bytes);
            prop_assert!(parse_codings(scan::list(&bytes)).len() <= MAX_CODINGS + 1);
            let _ = parse_accept_ranges(scan::list(&bytes));
            if let Ok(Some(n)) = parse_content_length(scan::list(&bytes)) {
                prop_assert!(n <= i64::MAX as u64);
            }
        }
    }
}
