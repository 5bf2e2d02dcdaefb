//! Remembering, on a finished file itself, where it came from; so the same request can say that it is
//! complete already.
//!
//! The attribute `user.tidegate.origin` holds hashes of the URL (a signed link's secret is not kept), the
//! validators, and the file's length and modification time when it was published: a file that was
//! changed since is not what the server sent.

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use tidegate_core::Identity;
use url::Url;

const NAME: &std::ffi::CStr = c"user.tidegate.origin";
const LONGEST: usize = 2048;

/// The hashes by which a URL is recognised.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Origin {
    /// Of the URL without credentials.
    url: String,
    /// Of the URL without credentials and query.
    link: String,
}

/// What a finished file says of its origin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Answer {
    /// It is this version of the file at this URL, and was not changed.
    Same,
    /// It is of this URL and has the same weak tag or date, and nothing stronger was known of it.
    SameDate,
    /// It is not, or does not say.
    No,
    /// This file system remembers no attributes.
    CannotSay,
}

impl Origin {
    pub(super) fn of(url: &Url) -> Self {
        let mut bare = url.clone();
        // These fail only for URLs that can have no credentials.
        let _ = bare.set_username("");
        let _ = bare.set_password(None);
        bare.set_fragment(None);
        let hash = |text: &str| {
            Sha256::digest(text.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            })
        };
        let whole = hash(bare.as_str());
        bare.set_query(None);
        Self { url: whole, link: hash(bare.as_str()) }
    }

    /// Notes on a file, whose times are final, which version of what it is. A file system that cannot
    /// remember it costs only that a second request fetches it again.
    pub(super) fn note(&self, file: &File, identity: &Identity) {
        let Ok(text) = file.metadata().map(|now| self.text(&now, identity)) else { return };
        if text.len() <= LONGEST {
            let _ = rustix::fs::fsetxattr(file, NAME, text.as_bytes(), XattrFlags::empty());
        }
    }

    /// Whether a file was noted to be this version. `identity` is what the server says now.
    pub(super) fn ask(&self, file: &File, identity: &Identity) -> Answer {
        let mut buffer = [0; LONGEST];
        let length = match rustix::fs::fgetxattr(file, NAME, &mut buffer[..]) {
            Ok(length) => length,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Answer::CannotSay,
            Err(_) => return Answer::No,
        };
        let Ok(now) = file.metadata() else { return Answer::No };
        let strong = identity.etag.as_ref().is_some_and(|tag| !tag.weak);
        let noted = &buffer[..length];
        let text = self.text(&now, identity);
        let fits = identity.length.is_none_or(|length| length == now.len());
        let weak = identity.weakened();
        // Another query may be a refreshed link or another file: only a strong tag can tell, and only that can
        // tell two files of one second.
        if fits && strong && without_first_line(noted) == without_first_line(text.as_bytes()) {
            Answer::Same
        } else if fits && !strong && identity.has_validator() && noted == text.as_bytes()
            || weak.has_validator()
                && identity.length == Some(now.len())
                && noted == self.text(&now, &weak).as_bytes()
        {
            Answer::SameDate
        } else {
            Answer::No
        }
    }

    /// Whether a file was noted to have come from this link, whatever its version.
    pub(super) fn is_of(&self, file: &File) -> bool {
        let mut buffer = [0; LONGEST];
        let Ok(length) = rustix::fs::fgetxattr(file, NAME, &mut buffer[..]) else { return false };
        let mut lines = buffer[..length].split(|byte| *byte == b'\n');
        lines.nth(1).is_some_and(|link| link == self.link.as_bytes())
    }

    fn text(&self, file: &std::fs::Metadata, identity: &Identity) -> String {
        // A strong tag is the word of the host that gave it, which a redirection may change.
        let tag = match (&identity.etag, identity.said_by) {
            (Some(tag), Some(host)) if !tag.weak => format!("{tag} {host:x}"),
            (Some(tag), _) => tag.to_string(),
            (None, _) => String::new(),
        };
        let modified = identity.last_modified.map(|seconds| seconds.to_string()).unwrap_or_default();
        let (seconds, nanoseconds) = (file.mtime(), file.mtime_nsec());
        format!(
            "1 {}\n{}\n{} {seconds}.{nanoseconds:09}\n{modified}\n{tag}\n",
            self.url,
            self.link,
            file.len()
        )
    }
}

fn without_first_line(text: &[u8]) -> &[u8] {
    text.iter().position(|b| *b == b'\n').map_or(&[], |at| &text[at..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use tidegate_core::EntityTag;

    fn identity(tag: &str) -> Identity {
        Identity {
            length: Some(3),
            etag: EntityTag::parse(tag),
            last_modified: Some(5),
            ..Identity::default()
        }
    }

    fn origin(url: &str) -> Origin {
        Origin::of(&Url::parse(url).unwrap())
    }

    #[test]
    fn a_file_is_recognised_by_link_and_validators_until_it_is_changed() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abc").unwrap();
        let here = origin("http://u:p@h/a?token=1");
        if here.ask(&file, &identity("\"x\"")) == Answer::CannotSay {
            return; // Nothing can be noted here, and it says so.
        }
        assert_eq!(here.ask(&file, &identity("\"x\"")), Answer::No);
        here.note(&file, &identity("\"x\""));
        assert_eq!(here.ask(&file, &identity("\"x\"")), Answer::Same);
        assert_eq!(here.ask(&file, &identity("\"y\"")), Answer::No);
        assert_eq!(here.ask(&file, &Identity { length: Some(4), ..identity("\"x\"") }), Answer::No);
        assert_eq!(origin("http://h/a?token=2").ask(&file, &identity("\"x\"")), Answer::Same);
        assert_eq!(origin("http://h/b?token=1").ask(&file, &identity("\"x\"")), Answer::No);
        file.write_all(b"d").unwrap();
        file.set_len(3).unwrap();
        assert_eq!(here.ask(&file, &identity("\"x\"")), Answer::No);
    }

    #[test]
    fn another_query_is_the_same_file_only_by_a_strong_tag() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abc").unwrap();
        let here = origin("http://h/get?id=1");
        here.note(&file, &identity("W/\"x\""));
        assert_ne!(origin("http://h/get?id=2").ask(&file, &identity("W/\"x\"")), Answer::Same);
    }

    #[test]
    fn a_tag_of_another_host_behind_the_same_link_says_nothing() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abc").unwrap();
        let here = origin("http://h/a");
        let said_by = |host| Identity { said_by: Some(host), ..identity("\"x\"") };
        here.note(&file, &said_by(1));
        assert!(matches!(here.ask(&file, &said_by(1)), Answer::Same | Answer::CannotSay));
        assert!(matches!(here.ask(&file, &said_by(2)), Answer::No | Answer::CannotSay));
    }

    #[test]
    fn a_weak_tag_or_a_date_says_less_than_a_strong_tag() {
        let dated = Identity { etag: None, ..identity("") };
        for identity in [identity("W/\"x\""), dated.clone(), Identity { date_is_strong: true, ..dated }] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(b"abc").unwrap();
            let here = origin("http://h/a");
            here.note(&file, &identity);
            assert!(matches!(here.ask(&file, &identity), Answer::SameDate | Answer::CannotSay), "{identity}");
        }
    }
}
