//! Remembering, on a finished file itself, where it came from; so the same request can say that it is
//! complete already.
//!
//! The attribute `user.tidegate.origin` holds hashes: of the URL (a signed link's secret is not kept), of the
//! URL without its query, and of the validators with the file's length and modification time when it was
//! published, since a file that was changed is not what the server sent. It is so short that it fits beside
//! the inode of ext4, where a longer one costs each file a block of its own.

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use tidegate_core::Identity;
use url::Url;

const NAME: &std::ffi::CStr = c"user.tidegate.origin";

/// The form of what is noted.
const FORM: u8 = 2;

/// Bytes of each hash. Whoever can choose both of two links that meet in one can serve one file under both as
/// well, so nothing is won by that.
const HASH: usize = 16;

/// The form and three hashes.
const NOTE: usize = 1 + 3 * HASH;

type Hash = [u8; HASH];

/// The hashes by which a URL is recognised.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Origin {
    /// Of the URL without credentials.
    url: Hash,
    /// Of the URL without credentials and query.
    link: Hash,
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
        let url = hash(bare.as_str());
        bare.set_query(None);
        Self { url, link: hash(bare.as_str()) }
    }

    /// Notes on a file, whose times are final, which version of what it is. A file system that cannot
    /// remember it costs only that a second request fetches it again.
    pub(super) fn note(&self, file: &File, identity: &Identity) {
        let Ok(now) = file.metadata() else { return };
        let _ = rustix::fs::fsetxattr(file, NAME, &self.noted(&now, identity), XattrFlags::empty());
    }

    /// Whether a file was noted to be this version. `identity` is what the server says now.
    pub(super) fn ask(&self, file: &File, identity: &Identity) -> Answer {
        let noted = match read(file) {
            Ok(Some(noted)) => noted,
            Ok(None) => return Answer::No,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Answer::CannotSay,
            Err(_) => return Answer::No,
        };
        let Ok(now) = file.metadata() else { return Answer::No };
        let strong = identity.etag.as_ref().is_some_and(|tag| !tag.weak);
        let expected = self.noted(&now, identity);
        let fits = identity.length.is_none_or(|length| length == now.len());
        let weak = identity.weakened();
        // Another query may be a refreshed link or another file: only a strong tag can tell, and only that can
        // tell two files of one second.
        if fits && strong && without_url(&noted) == without_url(&expected) {
            Answer::Same
        } else if fits && !strong && identity.has_validator() && noted == expected
            || weak.has_validator() && identity.length == Some(now.len()) && noted == self.noted(&now, &weak)
        {
            Answer::SameDate
        } else {
            Answer::No
        }
    }

    /// Whether a file was noted to have come from this link, whatever its version.
    pub(super) fn is_of(&self, file: &File) -> bool {
        matches!(read(file), Ok(Some(noted)) if without_url(&noted).starts_with(&self.link))
    }

    fn noted(&self, file: &std::fs::Metadata, identity: &Identity) -> [u8; NOTE] {
        // A strong tag is the word of the host that gave it, which a redirection may change.
        let tag = match (&identity.etag, identity.said_by) {
            (Some(tag), Some(host)) if !tag.weak => format!("{tag} {host:x}"),
            (Some(tag), _) => tag.to_string(),
            (None, _) => String::new(),
        };
        let modified = identity.last_modified.map(|seconds| seconds.to_string()).unwrap_or_default();
        let (seconds, nanoseconds) = (file.mtime(), file.mtime_nsec());
        let version = hash(&format!("{} {seconds}.{nanoseconds:09}\n{modified}\n{tag}\n", file.len()));
        let mut noted = [FORM; NOTE];
        for (place, hash) in noted[1..].chunks_exact_mut(HASH).zip([self.url, self.link, version]) {
            place.copy_from_slice(&hash);
        }
        noted
    }
}

fn hash(text: &str) -> Hash {
    let mut short = [0; HASH];
    short.copy_from_slice(&Sha256::digest(text.as_bytes())[..HASH]);
    short
}

/// What is noted on a file, if it is of our form.
fn read(file: &File) -> rustix::io::Result<Option<[u8; NOTE]>> {
    let mut buffer = [0; NOTE];
    match rustix::fs::fgetxattr(file, NAME, &mut buffer[..]) {
        Ok(NOTE) if buffer[0] == FORM => Ok(Some(buffer)),
        // Another version of this program, or another program, has written it.
        Ok(_) | Err(Errno::RANGE) => Ok(None),
        Err(error) => Err(error),
    }
}

fn without_url(noted: &[u8; NOTE]) -> &[u8] {
    &noted[1 + HASH..]
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
