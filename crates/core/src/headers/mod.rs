//! Header fields of an answer: bytes in, types out.
//!
//! Everything here reads what a server wrote, so everything here is total: any bytes give a value or
//! a clear error, in time linear in their number, and lists are cut at a bound.

mod content_range;
mod date;
mod digests;
mod disposition;
mod fields;
mod link;
mod location;
pub(crate) mod scan;
pub(crate) mod text;

pub use content_range::{ContentRange, ContentRangeError};
pub use date::{MAX_RETRY_AFTER, format_http_date, parse_http_date, parse_retry_after};
pub use digests::{agreed_digests, parse_content_md5, parse_digest, parse_structured_digest};
pub use disposition::{ContentDisposition, DispositionError};
pub use fields::{
    Coding, LengthError, MAX_CODINGS, parse_accept_ranges, parse_codings, parse_content_length,
    parse_media_type,
};
pub use link::{DescribedBy, Duplicate, LOWEST_PRIORITY, Links, MAX_LINKS};
pub use location::{LocationError, MAX_LOCATION, location_text, resolve_location};

/// Header fields in the order received. Names are kept in lower case, values as the bytes they are
/// (no encoding is promised), without surrounding blanks.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Headers {
    fields: Vec<(String, Vec<u8>)>,
}

impl Headers {
    /// No fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field at the end.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        self.fields.push((name.to_ascii_lowercase(), value.trim_ascii().to_vec()));
    }

    /// The first value of a field (`name` in any case).
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_slice())
    }

    /// The first value of a field, if it is UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|v| std::str::from_utf8(v).ok())
    }

    /// Every value of a field, in order.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.fields.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_slice())
    }

    /// The value of a field that may be sent once: `None` if it is missing, and also if it was sent
    /// with different values, of which none can be preferred to the others.
    pub fn sole<'a>(&'a self, name: &'a str) -> Option<&'a [u8]> {
        let mut values = self.get_all(name);
        let first = values.next()?;
        values.all(|v| v == first).then_some(first)
    }

    /// The elements of a field that is a comma-separated list, over all its values in order, without
    /// empty ones. Commas in quoted strings do not separate.
    pub fn list<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.get_all(name).flat_map(scan::list)
    }

    /// Whether a list field has this element, in any case: `has_token("connection", "close")`.
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        self.list(name).any(|element| element.eq_ignore_ascii_case(token.as_bytes()))
    }

    /// Every field, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter().map(|(n, v)| (n.as_str(), v.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&str, &str)]) -> Headers {
        let mut headers = Headers::new();
        fields.iter().for_each(|(n, v)| headers.push(n, v.as_bytes()));
        headers
    }

    #[test]
    fn elements_of_a_list_are_found_in_any_case_and_over_several_fields() {
        let h = headers(&[
            ("Connection", "Keep-Alive, Upgrade"),
            ("Sec-WebSocket-Version", "13"),
            ("sec-websocket-version", "8, 7"),
        ]);
        for (name, token, expected) in [
            ("connection", "upgrade", true),
            ("connection", "keep-alive", true),
            ("Connection", "close", false),
            ("Sec-WebSocket-Version", "13", true),
            ("Sec-WebSocket-Version", "8", true),
            ("Sec-WebSocket-Version", "6", false),
        ] {
            assert_eq!(h.has_token(name, token), expected, "{name}: {token}");
        }
    }

    #[test]
    fn a_field_sent_twice_counts_only_when_both_say_the_same() {
        let h = headers(&[("A", "x"), ("a", " x "), ("B", "x"), ("B", "y")]);
        assert_eq!(h.sole("a"), Some(&b"x"[..]));
        assert_eq!(h.sole("b"), None);
        assert_eq!(h.sole("c"), None);
        assert_eq!(h.get("b"), Some(&b"x"[..]));
    }
}
