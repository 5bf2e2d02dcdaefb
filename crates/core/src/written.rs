//! How values are written down that serde has no fitting writing for. Each module is for `#[serde(with = "…")]`.
//!
//! Whatever can be read here is valid: what would not be is refused, or brought into its bounds.

use crate::span::Span;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// The longest time that is read, 100 years: a longer one means this, so that it can be added to any clock.
pub const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The most spans of a set.
pub const MAX_SPANS: usize = 1 << 16;

/// The most spans in a list that is no set: as many as a file can have pieces whose digests are known.
pub const MAX_LISTED: usize = 1 << 18;

/// The most spans of a map for people.
pub const MAX_MAP: usize = 1024;

/// The longest URL that is read, in bytes.
pub const MAX_URL: usize = 64 << 10;

/// The longest path that is read, in bytes.
pub const MAX_PATH: usize = 64 << 10;

/// A time, at most [`LONGEST`] when it is read. For `deserialize_with`.
///
/// # Errors
/// When it is no time.
pub fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    Ok(Duration::deserialize(from)?.min(LONGEST))
}

/// As [`duration`], where there may be none.
///
/// # Errors
/// When it is no time.
pub fn optional_duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    Ok(Option::<Duration>::deserialize(from)?.map(|time| time.min(LONGEST)))
}

/// A path: its text, or, where that is not UTF-8, `{"bytes": …}` with its bytes in base64. No user's file is
/// lost for its name.
pub mod path {
    use super::{Deserialize, Deserializer, Error, MAX_PATH, Serialize, Serializer};
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use std::path::{Path, PathBuf};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Written<T> {
        Text(T),
        Bytes { bytes: String },
    }

    /// Writes a path.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        match path.to_str() {
            Some(text) => Written::Text(text),
            None => Written::Bytes { bytes: STANDARD.encode(bytes_of(path)) },
        }
        .serialize(to)
    }

    /// Reads a path.
    ///
    /// # Errors
    /// When it is none, or longer than [`MAX_PATH`].
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        let path = match Written::<String>::deserialize(from)? {
            Written::Text(text) => PathBuf::from(text),
            Written::Bytes { bytes } => {
                let bytes =
                    STANDARD.decode(bytes).map_err(|_| D::Error::custom("a path is not in base64"))?;
                path_of(bytes).ok_or_else(|| D::Error::custom("such a path cannot exist here"))?
            }
        };
        if path.as_os_str().len() > MAX_PATH {
            return Err(D::Error::custom(format!("a path is longer than {MAX_PATH} bytes")));
        }
        Ok(path)
    }

    #[cfg(unix)]
    fn bytes_of(path: &Path) -> &[u8] {
        std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())
    }

    #[cfg(unix)]
    fn path_of(bytes: Vec<u8>) -> Option<PathBuf> {
        let name: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(bytes);
        Some(name.into())
    }

    #[cfg(not(unix))]
    fn bytes_of(path: &Path) -> &[u8] {
        path.as_os_str().as_encoded_bytes()
    }

    #[cfg(not(unix))]
    fn path_of(bytes: Vec<u8>) -> Option<PathBuf> {
        String::from_utf8(bytes).ok().map(PathBuf::from)
    }
}

/// As [`path`], where there may be none.
pub mod optional_path {
    use super::{Deserialize, Deserializer, Serialize, Serializer, path};
    use std::path::PathBuf;

    #[derive(Deserialize)]
    struct Some_(#[serde(with = "path")] PathBuf);

    #[derive(Serialize)]
    struct Borrowed<'a>(#[serde(with = "path")] &'a PathBuf);

    /// Writes a path or `null`.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
        path.as_ref().map(Borrowed).serialize(to)
    }

    /// Reads a path or `null`.
    ///
    /// # Errors
    /// As [`path::deserialize`].
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<Some_>::deserialize(from)?.map(|Some_(path)| path))
    }
}

/// The URL of something that can be fetched: `http` or `https`, with a host. Not to be shown: it may hold secrets.
pub mod web_url {
    use super::{Deserialize, Deserializer, Error, MAX_URL, Serializer};
    use url::Url;

    /// Writes a URL.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(url: &Url, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(url.as_str())
    }

    /// Reads a URL.
    ///
    /// # Errors
    /// When it is none, not `http` or `https`, without a host, or longer than [`MAX_URL`]. The error does not
    /// hold the text.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Url, D::Error> {
        checked(&String::deserialize(from)?).map_err(D::Error::custom)
    }

    pub(super) fn checked(text: &str) -> Result<Url, &'static str> {
        if text.len() > MAX_URL {
            return Err("a URL is too long");
        }
        let url = Url::parse(text).map_err(|_| "a text is no URL")?;
        let has_host = url.host_str().is_some_and(|host| !host.is_empty());
        if !matches!(url.scheme(), "http" | "https") || !has_host {
            return Err("a URL is not http or https with a host");
        }
        Ok(url)
    }
}

/// As [`web_url`], where there may be none.
pub mod optional_web_url {
    use super::{Deserialize, Deserializer, Error, Serialize, Serializer, web_url};
    use url::Url;

    /// Writes a URL or `null`.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(url: &Option<Url>, to: S) -> Result<S::Ok, S::Error> {
        url.as_ref().map(Url::as_str).serialize(to)
    }

    /// Reads a URL or `null`.
    ///
    /// # Errors
    /// As [`web_url::deserialize`].
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Url>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.as_deref().map(web_url::checked).transpose().map_err(D::Error::custom)
    }
}

/// A number of 128 bits in hexadecimal: as a number, few readers of JSON would keep all of it.
pub mod hex {
    use super::{Deserialize, Deserializer, Error, Serializer};

    /// Writes a number.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(number: &u128, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{number:032x}"))
    }

    /// Reads a number.
    ///
    /// # Errors
    /// When it is none.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        checked(&String::deserialize(from)?).ok_or_else(|| D::Error::custom("no hexadecimal number"))
    }

    pub(super) fn checked(text: &str) -> Option<u128> {
        let is_digits = text.bytes().all(|b| b.is_ascii_hexdigit());
        u128::from_str_radix(text, 16).ok().filter(|_| is_digits)
    }
}

/// As [`hex`], where there may be none.
pub mod optional_hex {
    use super::{Deserialize, Deserializer, Error, Serializer, hex};

    /// Writes a number or `null`.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(number: &Option<u128>, to: S) -> Result<S::Ok, S::Error> {
        match number {
            Some(number) => hex::serialize(number, to),
            None => to.serialize_none(),
        }
    }

    /// Reads a number or `null`.
    ///
    /// # Errors
    /// When it is neither.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u128>, D::Error> {
        let number =
            |text: String| hex::checked(&text).ok_or_else(|| D::Error::custom("no hexadecimal number"));
        Option::<String>::deserialize(from)?.map(number).transpose()
    }
}

/// Spans in their order as one list of numbers, `[start, end, start, end, …]`: at most [`MAX_LISTED`] of them. Of
/// more the first are written.
pub mod spans {
    use super::{Deserializer, Flat, MAX_LISTED, Serializer, Span};

    /// Writes spans.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(spans: &[Span], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(spans.iter().take(MAX_LISTED).flat_map(|span| [span.start(), span.end()]))
    }

    /// Reads spans.
    ///
    /// # Errors
    /// When a span is empty or has no end, or when there are too many.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Span>, D::Error> {
        from.deserialize_seq(Flat { most: MAX_LISTED })
    }
}

/// A picture of a file for people, as [`spans`] but of at most [`MAX_MAP`] spans: of more the largest are written.
pub mod map {
    use super::{Deserializer, Flat, MAX_MAP, Serializer, Span, largest, spans};

    /// Writes spans.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(map: &[Span], to: S) -> Result<S::Ok, S::Error> {
        spans::serialize(&largest(map, MAX_MAP), to)
    }

    /// Reads spans.
    ///
    /// # Errors
    /// As [`spans::deserialize`].
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Span>, D::Error> {
        from.deserialize_seq(Flat { most: MAX_MAP })
    }
}

/// All of them, or the largest of too many, in order.
pub(crate) fn largest(spans: &[Span], most: usize) -> Cow<'_, [Span]> {
    if spans.len() <= most {
        return Cow::Borrowed(spans);
    }
    let mut largest = spans.to_vec();
    largest.sort_unstable_by_key(|span| std::cmp::Reverse(span.len()));
    largest.truncate(most);
    largest.sort_unstable();
    Cow::Owned(largest)
}

pub(crate) struct Flat {
    pub(crate) most: usize,
}

impl<'de> Visitor<'de> for Flat {
    type Value = Vec<Span>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of starts and ends of spans")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Span>, A::Error> {
        let mut spans = Vec::new();
        while let Some(start) = list.next_element::<u64>()? {
            let end = list.next_element::<u64>()?.ok_or_else(|| A::Error::custom("a span has no end"))?;
            if spans.len() == self.most {
                return Err(A::Error::custom(format!("there are more than {} spans", self.most)));
            }
            let span = Span::new(start, end);
            spans.push(span.ok_or_else(|| A::Error::custom(format!("{start}..{end} is no span")))?);
        }
        Ok(spans)
    }
}
