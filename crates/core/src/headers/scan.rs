//! The small grammar that header values share: tokens, quoted strings, lists, percent encoding.

/// The largest number that is believed: file offsets are signed 64-bit numbers.
const MAX_NUMBER: u64 = i64::MAX as u64;

/// Whether a byte may stand in a token (RFC 9110 section 5.6.2).
pub(crate) fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

/// Whether a byte is a blank (RFC 9110 `OWS`).
pub(crate) fn is_blank(b: u8) -> bool {
    b == b' ' || b == b'\t'
}

/// Without blanks on either side.
pub(crate) fn trim(value: &[u8]) -> &[u8] {
    let start = value.iter().position(|&b| !is_blank(b)).unwrap_or(value.len());
    let end = value.iter().rposition(|&b| !is_blank(b)).map_or(start, |last| last + 1);
    &value[start..end]
}

/// Only digits, and not more than fits a signed 64-bit number. No sign, no blanks.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, &b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit).filter(|n| *n <= MAX_NUMBER)
    })
}

/// The elements of a comma-separated list, without surrounding blanks and without empty ones.
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = value;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let (mut quoted, mut escaped) = (false, false);
            let end = rest.iter().position(|&b| {
                match b {
                    _ if escaped => escaped = false,
                    b'\\' if quoted => escaped = true,
                    b'"' => quoted = !quoted,
                    b',' if !quoted => return true,
                    _ => {}
                }
                false
            });
            let (element, after) = match end {
                Some(at) => (&rest[..at], &rest[at + 1..]),
                None => (rest, &rest[rest.len()..]),
            };
            rest = after;
            let element = trim(element);
            if !element.is_empty() {
                return Some(element);
            }
        }
        None
    })
}

/// The value of a `%XX` escape at the start of `bytes`.
pub(crate) fn escape_at(bytes: &[u8]) -> Option<u8> {
    let nibble = |b: &u8| char::from(*b).to_digit(16).and_then(|n| u8::try_from(n).ok());
    match bytes {
        [b'%', high, low, ..] => Some(nibble(high)? << 4 | nibble(low)?),
        _ => None,
    }
}

/// Undoes percent encoding once; `None` if a `%` is not followed by two hexadecimal digits.
pub(crate) fn percent_decode(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(bytes.len());
    while let Some((&first, rest)) = bytes.split_first() {
        if first == b'%' {
            decoded.push(escape_at(bytes)?);
            bytes = &bytes[3..];
        } else {
            decoded.push(first);
            bytes = rest;
        }
    }
    Some(decoded)
}

/// Reads a value from left to right.
#[derive(Clone, Copy)]
pub(crate) struct Scanner<'a> {
    rest: &'a [u8],
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(value: &'a [u8]) -> Self {
        Self { rest: value }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Passes over `byte` if it is next.
    pub(crate) fn eat(&mut self, byte: u8) -> bool {
        let here = self.peek() == Some(byte);
        if here {
            self.rest = &self.rest[1..];
        }
        here
    }

    pub(crate) fn skip_blanks(&mut self) {
        self.take_while(is_blank);
    }

    /// The longest run of bytes that `wanted` accepts, maybe empty.
    pub(crate) fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.rest.iter().position(|&b| !wanted(b)).unwrap_or(self.rest.len());
        let (run, rest) = self.rest.split_at(end);
        self.rest = rest;
        run
    }

    /// A token of at least one byte.
    pub(crate) fn token(&mut self) -> Option<&'a [u8]> {
        let token = self.take_while(is_token);
        (!token.is_empty()).then_some(token)
    }

    /// A quoted string, unescaped; `None` if none is here, it does not end, or it holds control bytes.
    pub(crate) fn quoted(&mut self) -> Option<Vec<u8>> {
        if !self.eat(b'"') {
            return None;
        }
        let mut text = Vec::new();
        loop {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            let byte = match byte {
                b'"' => return Some(text),
                b'\\' => {
                    let (&escaped, rest) = self.rest.split_first()?;
                    self.rest = rest;
                    escaped
                }
                other => other,
            };
            if byte.is_ascii_control() && byte != b'\t' {
                return None;
            }
            text.push(byte);
        }
    }

    /// A token or a quoted string.
    pub(crate) fn token_or_quoted(&mut self) -> Option<Vec<u8>> {
        if self.peek() == Some(b'"') { self.quoted() } else { self.token().map(<[u8]>::to_vec) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commas_in_quotes_do_not_separate() {
        let all: Vec<&[u8]> = list(br#", a ,"b,\",c" ; x,,d"#).collect();
        assert_eq!(all, [&b"a"[..], br#""b,\",c" ; x"#, b"d"]);
    }

    #[test]
    fn numbers_have_digits_only_and_a_bound() {
        for (text, expected) in [
            ("0", Some(0)),
            ("0007", Some(7)),
            ("9223372036854775807", Some(i64::MAX as u64)),
            ("9223372036854775808", None),
            ("99999999999999999999999", None),
            ("", None),
            ("-1", None),
            ("+1", None),
            (" 1", None),
            ("1x", None),
            ("*", None),
        ] {
            assert_eq!(number(text.as_bytes()), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn lists_and_escapes_take_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            for element in list(&bytes) {
                prop_assert!(!element.is_empty());
            }
            let _ = percent_decode(&bytes);
            let _ = Scanner::new(&bytes).quoted();
        }
    }
}
