//! How a server says which version of a file it is serving.

use crate::headers::format_http_date;
use std::fmt;

/// An entity tag (RFC 9110 section 8.8.3), without its quotes.
#[derive(Clone, Debug, Eq, Hash, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "WrittenTag")]
pub struct EntityTag {
    /// Sent as `W/"…"`: says that two versions mean the same, not that they are the same bytes.
    pub weak: bool,
    /// What stood between the quotes.
    pub value: String,
}

/// A tag as it is written down.
#[derive(serde::Deserialize)]
struct WrittenTag {
    weak: bool,
    value: String,
}

impl TryFrom<WrittenTag> for EntityTag {
    type Error = &'static str;
    fn try_from(WrittenTag { weak, value }: WrittenTag) -> Result<Self, &'static str> {
        // It stands in a header field of later requests.
        if !is_printable(&value) {
            return Err("an entity tag has bytes that cannot be sent");
        }
        Ok(Self { weak, value })
    }
}

fn is_printable(value: &str) -> bool {
    value.bytes().all(|b| b > 0x20 && b != b'"' && b != 0x7f)
}

impl EntityTag {
    /// Reads `"abc"` or `W/"abc"`. Tags without quotes, which some servers send, are taken as weak:
    /// they can tell that a file changed but are not fit for `If-Range`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (weak, rest) = match text.strip_prefix("W/").or_else(|| text.strip_prefix("w/")) {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        match rest.strip_prefix('"').and_then(|r| r.strip_suffix('"')) {
            Some(value) if is_printable(value) => Some(Self { weak, value: value.to_owned() }),
            None if !rest.is_empty() && is_printable(rest) => {
                Some(Self { weak: true, value: rest.to_owned() })
            }
            _ => None,
        }
    }
}

impl fmt::Display for EntityTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\"{}\"", if self.weak { "W/" } else { "" }, self.value)
    }
}

/// What a server said of the version of a file that it serves.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Identity {
    /// Length of the whole file in bytes, if told.
    pub length: Option<u64>,
    /// Entity tag, if told.
    pub etag: Option<EntityTag>,
    /// `Last-Modified` in seconds since 1970, if told.
    pub last_modified: Option<i64>,
    /// Whether `last_modified` is a strong validator by RFC 9110 section 8.8.2.2: the server's own
    /// `Date` was at least a second (we ask for sixty) later.
    #[serde(default)]
    pub date_is_strong: bool,
    /// Who said so: a hash of the origin that answered, after all redirects. A tag of one host is no word of
    /// another, even where a link leads to both.
    #[serde(default)]
    pub said_by: Option<u64>,
}

/// How two identities of the same link compare.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Likeness {
    /// The same strong entity tag (and no length that contradicts it): the same bytes.
    Same,
    /// Nothing contradicts, nothing proves: the bytes themselves must be compared.
    Unproved,
    /// Another version of the file.
    Different,
}

impl Identity {
    /// A validator that RFC 9110 section 13.1.5 allows in `If-Range`.
    pub fn if_range(&self) -> Option<String> {
        match &self.etag {
            Some(tag) if !tag.weak => Some(tag.to_string()),
            _ => self.last_modified.filter(|_| self.date_is_strong).and_then(format_http_date),
        }
    }

    /// Compares what was recorded (`self`) with what the server says now.
    ///
    /// | now, against the recorded | then |
    /// |---|---|
    /// | said by another origin, and the length does not differ | unproved |
    /// | length or Last-Modified differs | different |
    /// | same strong tag, or same strong date and no tag that differs | same |
    /// | tag differs, Last-Modified the same and present | unproved (nodes of a delivery network) |
    /// | tag differs, no Last-Modified | different |
    /// | weak or no validator | unproved |
    pub fn compare(&self, now: &Self) -> Likeness {
        let differs = |a: Option<u64>, b: Option<u64>| matches!((a, b), (Some(a), Some(b)) if a != b);
        if differs(self.length, now.length) {
            return Likeness::Different;
        }
        if matches!((self.said_by, now.said_by), (Some(was), Some(is)) if was != is) {
            return Likeness::Unproved;
        }
        let same_tag = match (&self.etag, &now.etag) {
            (Some(was), Some(is)) => Some(was.value == is.value),
            _ => None,
        };
        let strong = |tag: &Option<EntityTag>| tag.as_ref().is_some_and(|t| !t.weak);
        if same_tag == Some(true) && strong(&self.etag) && strong(&now.etag) {
            return Likeness::Same;
        }
        match (self.last_modified, now.last_modified) {
            (Some(was), Some(is)) if was != is => Likeness::Different,
            (Some(_), Some(_)) if self.date_is_strong && now.date_is_strong && same_tag != Some(false) => {
                Likeness::Same
            }
            (Some(_), Some(_)) => Likeness::Unproved,
            _ if same_tag == Some(false) => Likeness::Different,
            _ => Likeness::Unproved,
        }
    }

    /// The same without what could prove two versions the same. What can tell them apart stays: the length
    /// and the date.
    #[must_use]
    pub fn weakened(&self) -> Self {
        Self { etag: None, date_is_strong: false, ..self.clone() }
    }

    /// Whether the server gave anything that tells versions apart, apart from the length.
    pub fn has_validator(&self) -> bool {
        self.etag.is_some() || self.last_modified.is_some()
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.length {
            Some(length) => write!(f, "{length} bytes")?,
            None => f.write_str("unknown length")?,
        }
        if let Some(tag) = &self.etag {
            write!(f, ", ETag {tag}")?;
        }
        if let Some(seconds) = self.last_modified {
            write!(f, ", modified {seconds}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(length: u64, tag: &str, modified: Option<i64>) -> Identity {
        Identity {
            length: Some(length),
            etag: EntityTag::parse(tag),
            last_modified: modified,
            date_is_strong: false,
            said_by: None,
        }
    }

    #[test]
    fn the_table_of_likeness_holds() {
        let rows = [
            (identity(9, "\"a\"", None), identity(9, "\"a\"", None), Likeness::Same),
            (identity(9, "\"a\"", None), identity(8, "\"a\"", None), Likeness::Different),
            (identity(9, "\"a\"", Some(1)), identity(9, "\"a\"", Some(1)), Likeness::Same),
            (identity(9, "\"a\"", Some(1)), identity(9, "\"b\"", Some(1)), Likeness::Unproved),
            (identity(9, "\"a\"", Some(1)), identity(9, "\"b\"", Some(2)), Likeness::Different),
            (identity(9, "\"a\"", None), identity(9, "\"b\"", None), Likeness::Different),
            (identity(9, "W/\"a\"", None), identity(9, "W/\"a\"", None), Likeness::Unproved),
            (identity(9, "W/\"a\"", None), identity(9, "\"a\"", None), Likeness::Unproved),
            (identity(9, "", Some(1)), identity(9, "", Some(1)), Likeness::Unproved),
            (identity(9, "", Some(1)), identity(9, "", Some(2)), Likeness::Different),
            (identity(9, "", None), identity(9, "", None), Likeness::Unproved),
            (identity(9, "\"a\"", Some(1)), identity(9, "\"b\"", None), Likeness::Different),
        ];
        for (was, is, expected) in rows {
            assert_eq!(was.compare(&is), expected, "{was} against {is}");
        }
    }

    #[test]
    fn a_tag_is_no_word_of_another_host() {
        let said_by = |host, length| Identity { said_by: Some(host), ..identity(length, "\"a\"", Some(1)) };
        assert_eq!(said_by(1, 9).compare(&said_by(1, 9)), Likeness::Same);
        assert_eq!(said_by(1, 9).compare(&said_by(2, 9)), Likeness::Unproved);
        assert_eq!(said_by(1, 9).compare(&said_by(2, 8)), Likeness::Different);
    }

    #[test]
    fn a_tag_is_strong_only_with_quotes_and_without_w() {
        assert_eq!(EntityTag::parse("\"a b\""), None);
        assert_eq!(EntityTag::parse("\"ab\"").map(|t| t.weak), Some(false));
        assert_eq!(EntityTag::parse("W/\"ab\"").map(|t| t.weak), Some(true));
        assert_eq!(EntityTag::parse("ab").map(|t| t.weak), Some(true));
        assert_eq!(EntityTag::parse(""), None);
        assert_eq!(EntityTag::parse("\"a\"b\""), None);
    }
}
