//! What went wrong, and what to do about it.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// A stable word for a kind of failure. Words are never reused for something else.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
        pub enum Code {
            $($(#[$doc])* #[serde(rename = $word)] $name,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word.
            pub fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

codes! {
    // The network.
    /// The host's name has no address, or the name servers did not answer.
    ResolveFailed = "resolve-failed",
    /// No address of the host accepted a connection.
    ConnectFailed = "connect-failed",
    /// A connection was not made in time.
    ConnectTimeout = "connect-timeout",
    /// The TLS handshake failed for a reason other than the certificate.
    TlsFailed = "tls-failed",
    /// The server's certificate is not trusted, or is for another name.
    CertificateRefused = "certificate-refused",
    /// The proxy could not be used.
    ProxyFailed = "proxy-failed",
    /// The connection ended in the middle of an answer.
    ConnectionLost = "connection-lost",
    /// Nothing came for as long as the time-out allows.
    Stalled = "stalled",
    /// Slower than `--speed-min` for longer than allowed.
    TooSlow = "too-slow",
    /// The body ended before its announced length.
    EndedEarly = "ended-early",
    /// The answer breaks HTTP.
    ProtocolError = "protocol-error",
    /// The head of the answer is too large.
    HeadTooLarge = "head-too-large",
    // The server's answer.
    /// The server says there is no such file (404, 410).
    NotFound = "not-found",
    /// The server refuses (403, or 401 after credentials were sent).
    Forbidden = "forbidden",
    /// The server or proxy wants credentials that it was not given (401, 407).
    AuthRequired = "auth-required",
    /// The server is busy or limits requests (429, 503).
    Busy = "busy",
    /// The server failed (other 5xx).
    ServerError = "server-error",
    /// Another status that is not an answer to the question.
    UnexpectedStatus = "unexpected-status",
    /// Too many redirects, or a circle of them.
    RedirectLoop = "redirect-loop",
    /// A redirect to something that cannot be fetched.
    RedirectInvalid = "redirect-invalid",
    /// The server answered with another range than was asked.
    RangeMismatch = "range-mismatch",
    /// The server does not serve ranges.
    RangesRefused = "ranges-refused",
    /// The body is encoded in a way that cannot be decoded here.
    EncodingUnknown = "encoding-unknown",
    /// The encoded body is damaged.
    DecodeFailed = "decode-failed",
    /// The encoded body grows beyond any honest ratio.
    DecodeBomb = "decode-bomb",
    // Which file is it?
    /// The remote file changed while it was fetched, or since.
    Changed = "changed",
    /// A web page, or something else, stands where the file was.
    NotTheFile = "not-the-file",
    /// The whole file does not have the digest that it should.
    DigestMismatch = "digest-mismatch",
    /// A piece does not have the digest that it should.
    PieceMismatch = "piece-mismatch",
    /// The file has another length than was promised.
    LengthMismatch = "length-mismatch",
    /// The file is larger than `--max-size` allows.
    TooLarge = "too-large",
    // This machine.
    /// No space left on the device (or quota used up).
    DiskFull = "disk-full",
    /// Not allowed to write there.
    PermissionDenied = "permission-denied",
    /// Reading or writing the disk failed.
    DiskError = "disk-error",
    /// The destination exists and was to be left alone.
    Exists = "exists",
    /// Another process is downloading into this part file.
    Locked = "locked",
    /// The part file is not one that can be written safely (a link, another owner).
    UnsafePart = "unsafe-part",
    // What was asked.
    /// Not a URL that can be fetched.
    BadUrl = "bad-url",
    /// Not a Metalink document, or one without a usable file.
    BadMetalink = "bad-metalink",
    /// Every place to fetch from has failed.
    NoMirrorLeft = "no-mirror-left",
    /// The queue has no such job, or it has ended.
    NoSuchJob = "no-such-job",
    /// Another worker has the job now, or it was paused or removed meanwhile.
    LeaseLost = "lease-lost",
    /// The queue holds as many jobs as it may.
    QueueFull = "queue-full",
    /// The queue's storage failed.
    QueueFailed = "queue-failed",
    /// Cancelled by the user.
    Cancelled = "cancelled",
    /// This engine has never started such a download.
    NoSuchDownload = "no-such-download",
    /// The engine runs as many downloads as it may.
    EngineFull = "engine-full",
    /// No engine is running and none will be started.
    EngineUnavailable = "engine-unavailable",
    /// The engine's process ended, or had to be ended, while it worked on this download.
    EngineCrash = "engine-crash",
    /// The engine's process said something that it cannot say in good order, and was ended.
    EngineProtocol = "engine-protocol",
    /// A bug of ours; nothing was lost.
    Internal = "internal",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What the machine must have before a download can go on.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Room on the disk.
    Space,
    /// Permission to write.
    Permission,
    /// A disk that works.
    Disk,
}

/// What to do about a failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Remedy {
    /// Ask the same mirror again, not before `after` has passed.
    Retry {
        /// How long the server asked us to wait, if it did.
        #[serde(default, deserialize_with = "crate::written::optional_duration")]
        after: Option<Duration>,
    },
    /// This mirror, or this redirect of it, is done: another, or the original link again.
    Elsewhere,
    /// It is another file now: from the beginning, once.
    Restart,
    /// The machine must change first.
    Wait {
        /// What it must have.
        on: Need,
    },
    /// It will never work as asked.
    GiveUp,
}

/// A failure in the one shape that crosses every boundary.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message} [{code}]")]
pub struct Failure {
    /// What kind of failure, as a stable word.
    pub code: Code,
    /// What to do about it.
    pub remedy: Remedy,
    /// A sentence for a person. Holds no secret: URLs in it are redacted.
    pub message: String,
}

impl Failure {
    /// A failure of this kind, with the remedy that this kind has when nothing more is known.
    ///
    /// Anything not known to be hopeless is retried: giving up is claimed, never assumed.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, remedy: usual_remedy(code), message: message.into() }
    }

    /// The same failure with another remedy.
    #[must_use]
    pub fn with_remedy(mut self, remedy: Remedy) -> Self {
        self.remedy = remedy;
        self
    }
}

fn usual_remedy(code: Code) -> Remedy {
    match code {
        Code::NotFound
        | Code::Forbidden
        | Code::CertificateRefused
        | Code::RangeMismatch
        | Code::RedirectLoop
        | Code::RedirectInvalid
        | Code::EncodingUnknown
        | Code::PieceMismatch
        | Code::LengthMismatch
        | Code::DecodeBomb
        | Code::UnexpectedStatus
        | Code::NotTheFile => Remedy::Elsewhere,
        Code::Changed => Remedy::Restart,
        Code::DiskFull => Remedy::Wait { on: Need::Space },
        Code::PermissionDenied => Remedy::Wait { on: Need::Permission },
        Code::DiskError => Remedy::Wait { on: Need::Disk },
        Code::AuthRequired
        | Code::DigestMismatch
        | Code::TooLarge
        | Code::Exists
        | Code::UnsafePart
        | Code::BadUrl
        | Code::BadMetalink
        | Code::NoMirrorLeft
        | Code::NoSuchJob
        | Code::LeaseLost
        | Code::QueueFull
        | Code::Cancelled
        | Code::NoSuchDownload
        | Code::EngineUnavailable
        | Code::EngineCrash
        | Code::EngineProtocol
        | Code::Internal => Remedy::GiveUp,
        Code::ResolveFailed
        | Code::ConnectFailed
        | Code::ConnectTimeout
        | Code::TlsFailed
        | Code::ProxyFailed
        | Code::ConnectionLost
        | Code::Stalled
        | Code::TooSlow
        | Code::EndedEarly
        | Code::ProtocolError
        | Code::HeadTooLarge
        | Code::Busy
        | Code::ServerError
        | Code::RangesRefused
        | Code::DecodeFailed
        | Code::QueueFailed
        | Code::EngineFull
        | Code::Locked => Remedy::Retry { after: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_word_and_no_word_is_used_twice() {
        let words: std::collections::BTreeSet<&str> = Code::ALL.iter().map(|c| c.word()).collect();
        assert_eq!(words.len(), Code::ALL.len());
        assert!(words.iter().all(|w| w.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')));
    }

    /// A remedy as the table for people has it.
    fn remedy_word(remedy: Remedy) -> &'static str {
        match remedy {
            Remedy::Retry { .. } => "retry",
            Remedy::Elsewhere => "elsewhere",
            Remedy::Restart => "restart",
            Remedy::Wait { on: Need::Space } => "wait (space)",
            Remedy::Wait { on: Need::Permission } => "wait (permission)",
            Remedy::Wait { on: Need::Disk } => "wait (disk)",
            Remedy::GiveUp => "give-up",
        }
    }

    #[test]
    fn the_table_for_people_has_every_code_with_its_remedy_and_no_other() {
        let table = include_str!("../../../docs/failures.md");
        let rows: Vec<(&str, &str)> = table
            .lines()
            .filter_map(|line| line.strip_prefix("| `"))
            .filter_map(|row| {
                let mut cells = row.split('|').map(str::trim);
                Some((cells.next()?.trim_end_matches('`'), cells.next()?))
            })
            .collect();
        let expected: Vec<(&str, &str)> =
            Code::ALL.iter().map(|c| (c.word(), remedy_word(usual_remedy(*c)))).collect();
        assert_eq!(rows, expected);
    }
}
