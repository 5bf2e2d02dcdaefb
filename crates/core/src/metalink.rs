//! Metalink documents, version 4 (RFC 5854) and 3: which files, from where, with which digests.
//!
//! A document is hostile until read: it may not define a document type (so no entities), its size, depth
//! and number of elements, attributes and namespaces are bounded, and a name may not lead out of the
//! directory that files go to. Whatever is left out while the rest is kept is listed with the reason.
//!
//! Only `http` and `https` mirrors are kept. Version 4 is read strictly: what the RFC does not allow
//! spoils the document. Version 3, which is written by hand more often, loses what is wrong and keeps the rest.

mod guard;
mod read;

use crate::digest::{Digest, Pieces};
use crate::failure::{Code, Failure};
use crate::request::Mirror;
use url::Url;

/// The largest document that is read, in bytes.
pub const MAX_BYTES: usize = 8 << 20;
/// The most files in a document.
pub const MAX_FILES: usize = 10_000;
/// The most mirrors of a file; more are left out.
pub const MAX_MIRRORS: usize = 1000;

/// The priority of a mirror of which nothing is said: the last.
pub const LAST_PRIORITY: i32 = 999_999;

/// What a document says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Metalink {
    /// The files, in order, at least one.
    pub files: Vec<MetalinkFile>,
    /// What was left out of the document, other than inside its files.
    pub skipped: Vec<Skipped>,
}

/// One file of a document.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct MetalinkFile {
    /// Its name: a relative path that stays below the directory it is put into, with `/` between folders.
    pub name: String,
    /// Its length in bytes.
    pub size: Option<u64>,
    /// Digests of the whole file, the strongest first.
    pub digests: Vec<Digest>,
    /// Digests of its pieces; their number fits `size`, if that is known.
    pub pieces: Option<Pieces>,
    /// Where it may be fetched from, the preferred first. May be empty: then `skipped` says why.
    pub mirrors: Vec<MetalinkMirror>,
    /// Its version.
    pub version: Option<String>,
    /// The languages that it is for.
    pub languages: Vec<String>,
    /// The operating systems that it is for.
    pub os: Vec<String>,
    /// What was left out.
    pub skipped: Vec<Skipped>,
}

/// A place to fetch a file from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MetalinkMirror {
    /// The place.
    pub mirror: Mirror,
    /// Lower is preferred: 1 to 999999 from a document, less after [`MetalinkFile::prefer`].
    pub priority: i32,
    /// The country that it is in, as a lower-case code (`jp`).
    pub location: Option<String>,
}

/// Something that was left out, and why.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Skipped {
    /// What: a URL (without secrets), a name or a kind of element.
    pub what: String,
    /// Why, as the rest of a sentence that begins with it.
    pub why: String,
}

/// Which files of a document are wanted; what is `None` is not asked.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Filter {
    /// Exactly this version.
    pub version: Option<String>,
    /// Exactly this language among its languages.
    pub language: Option<String>,
    /// Exactly this operating system among its own.
    pub os: Option<String>,
}

/// Reads a document. Relative URLs in it are taken from `base`, and left out without one.
///
/// # Errors
/// What is wrong with the document.
pub fn parse(bytes: &[u8], base: Option<&Url>) -> Result<Metalink, MetalinkError> {
    if bytes.len() > MAX_BYTES {
        return Err(MetalinkError::TooLarge { most: MAX_BYTES });
    }
    let text = std::str::from_utf8(bytes).map_err(|_| MetalinkError::NotUtf8)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    guard::check(text)?;
    read::document(text, base)
}

impl MetalinkFile {
    /// Whether the file is one of those wanted.
    pub fn matches(&self, filter: &Filter) -> bool {
        filter.version.as_ref().is_none_or(|v| self.version.as_ref() == Some(v))
            && filter.language.as_ref().is_none_or(|l| self.languages.contains(l))
            && filter.os.as_ref().is_none_or(|o| self.os.contains(o))
    }

    /// Puts mirrors in one of these countries, and those of this scheme (`http` or `https`), before others
    /// (by 100 each), and sorts the mirrors anew.
    pub fn prefer(&mut self, locations: &[String], scheme: Option<&str>) {
        for place in &mut self.mirrors {
            let near = place
                .location
                .as_ref()
                .is_some_and(|here| locations.iter().any(|l| l.eq_ignore_ascii_case(here)));
            let liked = scheme.is_some_and(|s| s.eq_ignore_ascii_case(place.mirror.url().scheme()));
            place.priority = place.priority.saturating_sub(100 * (i32::from(near) + i32::from(liked)));
        }
        self.sort_mirrors();
    }

    fn sort_mirrors(&mut self) {
        // Stable: of the same priority, the document's order.
        self.mirrors.sort_by_key(|m| m.priority);
    }
}

/// Why a document cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MetalinkError {
    /// More bytes than are read.
    #[error("the Metalink document is larger than {most} bytes")]
    TooLarge {
        /// How many are read.
        most: usize,
    },
    /// Text in another encoding.
    #[error("the Metalink document is not text in UTF-8")]
    NotUtf8,
    /// It defines a document type, which could hold entities that grow without bound.
    #[error("the Metalink document has a DOCTYPE, which is refused")]
    Doctype,
    /// Deeper or wider than any honest document.
    #[error("the Metalink document has too many {what}")]
    TooComplex {
        /// Too many of what.
        what: &'static str,
    },
    /// Not XML, or cut off.
    #[error("the Metalink document is damaged: {why}")]
    Damaged {
        /// What the XML reader says.
        why: String,
    },
    /// XML, but not Metalink.
    #[error("the document is not Metalink of version 3 or 4")]
    NotMetalink,
    /// A name that leads out of the directory, or none.
    #[error("the Metalink document names a file {name:?}: {why}")]
    Name {
        /// The name, cut off.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Something that must be there is missing, or has a value that it cannot have.
    #[error("in the Metalink document, {what} {why}")]
    Invalid {
        /// The element or attribute.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// No file is left.
    #[error("the Metalink document has no file that can be used{}", .why.as_ref().map(|w| format!(": {w}")).unwrap_or_default())]
    NoFile {
        /// Why the first one was left out.
        why: Option<String>,
    },
}

impl From<MetalinkError> for Failure {
    fn from(error: MetalinkError) -> Self {
        Self::new(Code::BadMetalink, error.to_string())
    }
}

/// What is wrong with the name of a file that a document suggests, if anything.
fn name_problem(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("it is empty");
    }
    if name.len() > 4096 || name.split('/').any(|part| part.len() > 255) {
        return Some("it is too long");
    }
    if name.chars().any(char::is_control) {
        return Some("it has control characters");
    }
    if name.contains('\\') {
        return Some("it has a backslash, which other systems take for a folder");
    }
    if name.starts_with('/') {
        return Some("it begins at the root of the file system");
    }
    if name.ends_with('/') {
        return Some("it is a folder");
    }
    match name.split('/').find(|part| matches!(*part, "" | "." | "..")) {
        Some("..") => Some("it leads out of the directory"),
        Some(_) => Some("it has an empty or a dot folder in it"),
        None => None,
    }
}

/// As much of a text as an error message should show.
fn shorten(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests;
