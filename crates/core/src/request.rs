//! What a person asked for.

use crate::digest::{Digest, Pieces};
use crate::failure::{Code, Failure};
use crate::written;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use url::Url;

/// The most connections that one file may be fetched over.
pub const MAX_CONNECTIONS: usize = 64;

/// One file to fetch: from where, what it must be, where it goes and how to behave meanwhile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    #[serde(deserialize_with = "some_mirrors")]
    mirrors: Vec<Mirror>,
    /// Where the file goes.
    pub destination: Destination,
    /// Digests that the whole file must have.
    pub digests: Vec<Digest>,
    /// Digests of its pieces, if known.
    pub pieces: Option<Pieces>,
    /// The length that it must have in bytes, if known.
    pub length: Option<u64>,
    /// Headers added to each request to a mirror of the first mirror's origin; one of the same name
    /// replaces ours.
    pub headers: Vec<(String, String)>,
    /// Credentials for the first mirror's origin.
    pub credentials: Option<Credentials>,
    /// How to behave.
    pub options: Options,
}

impl Request {
    /// A request for the file at `mirrors`, into `destination`.
    ///
    /// # Errors
    /// `bad-url` if there is no mirror.
    pub fn new(mirrors: Vec<Mirror>, destination: Destination) -> Result<Self, Failure> {
        if mirrors.is_empty() {
            return Err(Failure::new(Code::BadUrl, "no URL was given"));
        }
        Ok(Self {
            mirrors,
            destination,
            digests: Vec::new(),
            pieces: None,
            length: None,
            headers: Vec::new(),
            credentials: None,
            options: Options::default(),
        })
    }

    /// The same request for a fresh link to the same file.
    #[must_use]
    pub fn with_link(&self, link: Mirror) -> Self {
        Self { mirrors: vec![link], ..self.clone() }
    }

    /// Where the file may be fetched from, at least one place, the preferred first.
    pub fn mirrors(&self) -> &[Mirror] {
        &self.mirrors
    }
}

/// Who named a place. What the user keeps for a host is meant for places that the user named.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NamedBy {
    /// The user: on a command line, or in a list of URLs.
    #[default]
    User,
    /// A document from somewhere, such as a Metalink file.
    Document,
}

/// A place that a file may be fetched from: an `http` or `https` URL with a host.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WrittenMirror", into = "WrittenMirror")]
pub struct Mirror {
    url: Url,
    named_by: NamedBy,
}

/// A mirror as it is written down.
#[derive(Serialize, Deserialize)]
struct WrittenMirror {
    url: String,
    #[serde(default)]
    named_by: NamedBy,
}

impl Mirror {
    /// Reads a URL that the user named. A text without a scheme that looks like a host
    /// (`example.org/file`) means `http`.
    ///
    /// # Errors
    /// `bad-url` with what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let bad = |why: String| {
            Failure::new(Code::BadUrl, format!("{:?} cannot be fetched: {why}", redact_text(text)))
        };
        let text = text.trim();
        let with_scheme;
        let full = if text.contains("://") {
            text
        } else {
            with_scheme = format!("http://{text}");
            &with_scheme
        };
        let mut url = Url::parse(full).map_err(|e| bad(e.to_string()))?;
        match url.scheme() {
            "http" | "https" => {}
            other => return Err(bad(format!("only http and https are spoken, not {other}"))),
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(bad("it names no host".to_owned()));
        }
        url.set_fragment(None);
        Ok(Self { url, named_by: NamedBy::User })
    }

    /// The same place, but only a document names it.
    #[must_use]
    pub fn named_by_document(self) -> Self {
        Self { named_by: NamedBy::Document, ..self }
    }

    /// Who named it.
    pub fn named_by(&self) -> NamedBy {
        self.named_by
    }

    /// The URL, which may hold a user name and password: see [`redact`].
    pub fn url(&self) -> &Url {
        &self.url
    }
}

impl TryFrom<WrittenMirror> for Mirror {
    type Error = Failure;
    fn try_from(written: WrittenMirror) -> Result<Self, Failure> {
        Ok(Self { named_by: written.named_by, ..Self::parse(&written.url)? })
    }
}

impl From<Mirror> for WrittenMirror {
    fn from(mirror: Mirror) -> Self {
        Self { url: mirror.url.into(), named_by: mirror.named_by }
    }
}

/// The URL as it may be shown or logged: without password, and with the values of its query hidden,
/// since signed links carry their secret there.
pub fn redact(url: &Url) -> String {
    let mut shown = url.clone();
    if !shown.username().is_empty() || shown.password().is_some() {
        // These only fail for URLs without a host, which have no credentials either.
        let _ = shown.set_username("");
        let _ = shown.set_password(None);
    }
    if shown.query().is_some() {
        shown.set_query(Some("…"));
        return shown.as_str().replace("?%E2%80%A6", "?…");
    }
    shown.into()
}

fn redact_text(text: &str) -> String {
    match Url::parse(text) {
        Ok(url) => redact(&url),
        Err(_) => match (text.find("://"), text.rfind('@')) {
            (Some(scheme), Some(at)) if at > scheme => format!("{}…{}", &text[..scheme + 3], &text[at..]),
            _ => text.to_owned(),
        },
    }
}

/// Where a file goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Destination {
    /// Beneath a directory.
    File {
        /// The directory; nothing is ever written outside it.
        #[serde(with = "written::path")]
        dir: PathBuf,
        /// The name asked for (may hold folders below `dir`); else the server's or the link's.
        #[serde(with = "written::optional_path")]
        name: Option<PathBuf>,
        /// A leftover of another tool to go on from.
        #[serde(with = "written::optional_path")]
        adopt: Option<PathBuf>,
    },
    /// In order to standard output.
    Stdout,
}

/// A secret for a server. Has no `Display`, and its `Debug` shows nothing.
#[derive(Clone, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Credentials {
    /// User and password, for Basic and Digest.
    Password {
        /// The user's name.
        user: String,
        /// The password, maybe empty.
        password: String,
    },
    /// A bearer token.
    Bearer(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

/// What to do with bytes that are already there.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resume {
    /// Go on when validators, digests or an overlap say that it is the same file.
    #[default]
    Auto,
    /// Go on only when a strong validator or a digest says so; else from the beginning.
    Strict,
    /// From the beginning.
    Never,
}

/// What to do when the final name exists.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnExists {
    /// Use `NAME.1.EXT`, `NAME.2.EXT` and so on.
    #[default]
    Rename,
    /// Leave it and report success.
    Skip,
    /// Replace it, once the new file is whole.
    Overwrite,
    /// Leave it and fail with `exists`.
    Fail,
}

/// When to reserve a file's room on the disk.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preallocate {
    /// Where the file system does it at once.
    #[default]
    Auto,
    /// Never.
    None,
}

/// When a finished file is forced to the disk.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sync {
    /// Before it gets its final name.
    #[default]
    File,
    /// Never: a power loss may leave a final name with missing bytes.
    None,
}

/// How to behave while fetching. Rates are bytes a second; `None` is no limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// Most connections for this file, 1 to [`MAX_CONNECTIONS`].
    #[serde(deserialize_with = "within_bounds")]
    pub connections: usize,
    /// Smallest span worth a connection of its own, in bytes; down to an eighth of it where a span that will be
    /// here last is divided because that saves time.
    pub min_split: u64,
    /// What to do with bytes already there.
    pub resume: Resume,
    /// Attempts without progress before giving up, beyond the first.
    pub retries: u32,
    /// First wait between attempts; it doubles up to a bound.
    #[serde(deserialize_with = "written::duration")]
    pub retry_wait: Duration,
    /// Silence on a connection after which it is dropped.
    #[serde(deserialize_with = "written::duration")]
    pub stall: Duration,
    /// How long a connection may take to be made.
    #[serde(deserialize_with = "written::duration")]
    pub connect_timeout: Duration,
    /// Limit of this download.
    pub limit: Option<u64>,
    /// Give up a connection that stays slower than this.
    pub speed_min: Option<u64>,
    /// The most bytes that the file may have.
    pub max_size: Option<u64>,
    /// What to do when the final name exists.
    pub on_exists: OnExists,
    /// Fetch only if the server's file is newer than the one here.
    pub newer: bool,
    /// Give the file the server's modification time.
    pub remote_time: bool,
    /// When to reserve room.
    pub preallocate: Preallocate,
    /// When to force to the disk.
    pub sync: Sync,
    /// Ask which file it is, then stop before fetching it.
    pub dry_run: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections: 8,
            min_split: 1 << 20,
            resume: Resume::Auto,
            retries: 10,
            retry_wait: Duration::from_secs(1),
            stall: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(15),
            limit: None,
            speed_min: None,
            max_size: None,
            on_exists: OnExists::Rename,
            newer: false,
            remote_time: false,
            preallocate: Preallocate::Auto,
            sync: Sync::File,
            dry_run: false,
        }
    }
}

fn some_mirrors<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Mirror>, D::Error> {
    let mirrors = Vec::<Mirror>::deserialize(from)?;
    if mirrors.is_empty() {
        return Err(D::Error::custom("a request names no URL"));
    }
    Ok(mirrors)
}

fn within_bounds<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    Ok(usize::deserialize(from)?.clamp(1, MAX_CONNECTIONS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_and_https_with_a_host_are_mirrors() {
        assert_eq!(Mirror::parse("example.org/a").unwrap().url().as_str(), "http://example.org/a");
        assert_eq!(Mirror::parse("https://h/a#b").unwrap().url().as_str(), "https://h/a");
        for bad in [
            "ftp://h/a",
            "file:///etc/passwd",
            "http://",
            "http://:8080",
            "http://h:65536/",
            "http://h:8080a/",
            "",
        ] {
            assert_eq!(Mirror::parse(bad).unwrap_err().code, Code::BadUrl, "{bad}");
        }
    }

    #[test]
    fn what_is_shown_of_a_url_holds_no_secret() {
        let mirror = Mirror::parse("https://me:hunter2@h/a?token=s3cret&x=1").unwrap();
        assert_eq!(redact(mirror.url()), "https://h/a?…");
        let message = Mirror::parse("gopher://me:hunter2@h/a?token=s3cret").unwrap_err().message;
        assert!(!message.contains("hunter2") && !message.contains("s3cret"), "{message}");
        let message = Mirror::parse("http://me:hunter2@h:99999/a").unwrap_err().message;
        assert!(!message.contains("hunter2"), "{message}");
    }
}
