//! What can go wrong with a fetch, with the facts, and one table from there to a [`Failure`].

use crate::decode::DecodeError;
use std::fmt;
use std::io;
use std::time::Duration;
use tidegate_core::{Code, Failure, Remedy};

/// How making a connection or reading an answer went wrong.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The name has no usable address.
    #[error("the address of {host} could not be found: {why}")]
    Resolve {
        /// The name asked for.
        host: String,
        /// What the resolver said.
        why: String,
        /// That is an answer: there is no such name, or it has no usable address. Else nobody answered.
        unknown: bool,
    },
    /// Every address refused.
    #[error("no connection to {host}: {why}")]
    Connect {
        /// Host and port.
        host: String,
        /// The last address tried and what it said.
        why: String,
        /// What the system said of the last address.
        source: io::Error,
    },
    /// Making a connection took longer than allowed.
    #[error("no connection to {host} within {after:.0?} ({during})")]
    ConnectTimeout {
        /// Host and port.
        host: String,
        /// The time allowed.
        after: Duration,
        /// What was being waited for.
        during: Step,
    },
    /// TLS failed, but not for the certificate.
    #[error("no secure connection to {host}: {why}")]
    Tls {
        /// The host's name.
        host: String,
        /// A reason for a person.
        why: String,
    },
    /// The certificate is not to be trusted for this host.
    #[error("the certificate of {host} is refused: {why}")]
    Certificate {
        /// The host's name.
        host: String,
        /// A reason for a person.
        why: String,
    },
    /// The proxy did not do what it is for.
    #[error("the proxy {proxy} {why}")]
    Proxy {
        /// The proxy's scheme, host and port, without credentials.
        proxy: String,
        /// What it said or did, as the end of a sentence that begins with its name.
        why: String,
        /// Its status, when it is an HTTP proxy that answered.
        status: Option<u16>,
    },
    /// The connection ended by something other than an orderly end.
    #[error("the connection was lost{}: {}", when(*.before_answer), in_words(.source))]
    ConnectionLost {
        /// The connection had carried an answer before.
        reused: bool,
        /// No byte of the answer to this request had come.
        before_answer: bool,
        /// What the system or TLS said; `UnexpectedEof` for an end in the middle.
        source: io::Error,
    },
    /// Nothing came for too long.
    #[error("nothing came for {after:.0?}")]
    Stalled {
        /// How long nothing came.
        after: Duration,
    },
    /// An orderly end before the end of the body.
    #[error("the answer ended after {got} bytes{}", of(*.expected))]
    EndedEarly {
        /// Bytes of content that came.
        got: u64,
        /// Bytes of content announced, if a length was.
        expected: Option<u64>,
    },
    /// The answer is not HTTP, or could be read in two ways.
    #[error("the server's answer breaks HTTP: {what}")]
    Protocol {
        /// What is wrong.
        what: String,
    },
    /// The head of the answer exceeds a bound.
    #[error("the head of the server's answer is too large: {what}")]
    HeadTooLarge {
        /// Which bound.
        what: String,
    },
    /// We were asked to send what cannot be sent.
    #[error("the request cannot be sent: {what}")]
    BadRequest {
        /// What is wrong. Holds no header value.
        what: String,
    },
    /// A content coding that is not known here.
    #[error("the server encoded the file in a way not known here: {coding:?}")]
    EncodingUnknown {
        /// The server's word for it, shortened.
        coding: String,
    },
    /// The encoded body could not be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

/// A step in making a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Step {
    /// Name to addresses.
    Resolving,
    /// TCP.
    Connecting,
    /// Asking the proxy.
    AskingProxy,
    /// TLS handshake.
    Securing,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resolving => "while looking up the name",
            Self::Connecting => "while connecting",
            Self::AskingProxy => "while asking the proxy",
            Self::Securing => "during the TLS handshake",
        })
    }
}

fn when(before_answer: bool) -> &'static str {
    if before_answer { " before an answer came" } else { "" }
}

fn of(expected: Option<u64>) -> String {
    expected.map_or_else(String::new, |n| format!(" of {n}"))
}

impl FetchError {
    /// An answer that breaks HTTP.
    pub(crate) fn protocol(what: impl Into<String>) -> Self {
        Self::Protocol { what: what.into() }
    }

    /// What a failed read or write on a connection to `host` means. TLS reports both broken records
    /// and the peer's alerts that way, so they are told from a lost connection here.
    pub fn from_io(error: io::Error, host: &str, reused: bool, before_answer: bool) -> Self {
        match crate::connect::tls::classify(&error, host) {
            Some(tls) => tls,
            // The words of libraries for this end in advice to programmers.
            None if error.kind() == io::ErrorKind::UnexpectedEof => {
                let source = io::Error::new(error.kind(), "it was closed without a proper end");
                Self::ConnectionLost { reused, before_answer, source }
            }
            None => Self::ConnectionLost { reused, before_answer, source: error },
        }
    }

    /// Whether the request may be sent again at once on a fresh connection: a kept connection was
    /// closed by the server before it answered, as servers do with idle ones.
    pub fn was_idle_close(&self) -> bool {
        matches!(self, Self::ConnectionLost { reused: true, before_answer: true, .. })
    }

    /// The stable word for it.
    pub fn code(&self) -> Code {
        match self {
            Self::Resolve { .. } => Code::ResolveFailed,
            Self::Connect { .. } => Code::ConnectFailed,
            Self::ConnectTimeout { .. } => Code::ConnectTimeout,
            Self::Tls { .. } => Code::TlsFailed,
            Self::Certificate { .. } => Code::CertificateRefused,
            Self::Proxy { status: Some(407), .. } => Code::AuthRequired,
            Self::Proxy { .. } => Code::ProxyFailed,
            Self::ConnectionLost { .. } => Code::ConnectionLost,
            Self::Stalled { .. } => Code::Stalled,
            Self::EndedEarly { .. } => Code::EndedEarly,
            Self::Protocol { .. } => Code::ProtocolError,
            Self::HeadTooLarge { .. } => Code::HeadTooLarge,
            Self::BadRequest { .. } => Code::BadUrl,
            Self::EncodingUnknown { .. } => Code::EncodingUnknown,
            Self::Decode(DecodeError::Damaged { .. }) => Code::DecodeFailed,
            Self::Decode(DecodeError::Bomb { .. }) => Code::DecodeBomb,
            Self::Decode(DecodeError::Sink(error)) => match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::DiskFull,
                io::ErrorKind::PermissionDenied => Code::PermissionDenied,
                _ => Code::DiskError,
            },
        }
    }

    /// The failure in the shape that crosses boundaries, with its remedy.
    pub fn failure(&self) -> Failure {
        let failure = Failure::new(self.code(), self.to_string());
        match self {
            // The same question gets the same answer from a server that does not speak HTTP; another
            // mirror may, and the original link may lead elsewhere.
            Self::HeadTooLarge { .. } => failure.with_remedy(Remedy::Elsewhere),
            // Whoever answered said that nobody is there. Of a host that was heard before, that is an
            // outage: the one who knows makes a retry of it.
            Self::Resolve { unknown: true, .. } => failure.with_remedy(Remedy::Elsewhere),
            Self::Connect { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused => {
                failure.with_remedy(Remedy::Elsewhere)
            }
            _ => failure,
        }
    }
}

impl From<FetchError> for Failure {
    fn from(error: FetchError) -> Self {
        error.failure()
    }
}

/// What the system said, without the number that the standard library puts behind it.
pub(crate) fn in_words(error: &io::Error) -> String {
    let said = error.to_string();
    match said.rsplit_once(" (os error ") {
        Some((words, _)) => words.to_lowercase(),
        None => said,
    }
}

/// Text from outside as it may be shown: one line, no control characters, at most 120 characters.
pub(crate) fn shown(text: &[u8]) -> String {
    const MOST: usize = 120;
    let text = String::from_utf8_lossy(&text[..text.len().min(4 * MOST)]);
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MOST)
        .collect::<String>()
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_that_wants_credentials_is_not_asked_again_without() {
        let refused =
            FetchError::Proxy { proxy: "http://p".into(), why: "answered 407".into(), status: Some(407) };
        assert_eq!(refused.failure().code, Code::AuthRequired);
        assert_eq!(refused.failure().remedy, Remedy::GiveUp);
        let broken = FetchError::Proxy { proxy: "http://p".into(), why: "hung up".into(), status: None };
        assert_eq!(broken.failure().remedy, Remedy::Retry { after: None });
    }

    #[test]
    fn a_name_that_is_unknown_and_a_port_that_refuses_are_not_asked_again_but_silence_is() {
        let resolve = |unknown| FetchError::Resolve { host: "h".into(), why: "no".into(), unknown };
        let connect = |kind: io::ErrorKind| FetchError::Connect {
            host: "h:80".into(),
            why: "no".into(),
            source: kind.into(),
        };
        let again = Remedy::Retry { after: None };
        for (error, remedy) in [
            (resolve(true), Remedy::Elsewhere),
            (resolve(false), again),
            (connect(io::ErrorKind::ConnectionRefused), Remedy::Elsewhere),
            (connect(io::ErrorKind::NetworkUnreachable), again),
            (connect(io::ErrorKind::HostUnreachable), again),
            (connect(io::ErrorKind::TimedOut), again),
        ] {
            assert_eq!(error.failure().remedy, remedy, "{error}");
        }
    }

    #[test]
    fn a_full_disk_met_while_decoding_waits_for_space() {
        let error = FetchError::Decode(DecodeError::Sink(io::ErrorKind::StorageFull.into()));
        assert_eq!(error.code(), Code::DiskFull);
    }

    #[test]
    fn text_from_outside_is_shown_short_and_without_control_characters() {
        assert_eq!(shown(b"a\x1b[31m\r\nb\xff"), "a [31m  b\u{fffd}");
        assert_eq!(shown(&[b'x'; 9000]).len(), 120);
    }
}
