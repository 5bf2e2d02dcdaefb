//! What a person is told when something is wrong: a sentence, a stable word, and what to do next.

use crate::exit::Exit;
use std::fmt;
use std::io;
use tidegate_core::{Code, Failure};

/// Something that ends the program before or instead of a download.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Trouble {
    /// How the program ends.
    pub(crate) exit: Exit,
    /// A stable word.
    pub(crate) word: &'static str,
    /// A sentence without the full stop. Holds no secret.
    pub(crate) message: String,
    /// What to do next.
    pub(crate) next: Option<String>,
}

impl Trouble {
    /// The words of the command line make no sense.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, word: "usage", message: message.into(), next: None }
    }

    /// A setting or a file named on the command line cannot be used.
    pub(crate) fn configuration(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, word: "configuration", message: message.into(), next: None }
    }

    /// The same with what to do next.
    #[must_use]
    pub(crate) fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// The same with words before the sentence.
    #[must_use]
    pub(crate) fn prefixed(mut self, words: &str) -> Self {
        self.message.insert_str(0, words);
        self
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self {
            exit: Exit::of_failure(&failure),
            word: failure.code.word(),
            next: Some(advice(&failure).to_owned()),
            message: failure.message,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.message.trim_end_matches('.'), self.word)
    }
}

/// What the system said, in lower case and without the number that the standard library puts behind it:
/// it says nothing to a person that the words do not.
pub(crate) fn in_words(error: &io::Error) -> String {
    let said = error.to_string();
    match said.rsplit_once(" (os error ") {
        Some((words, _)) => words.to_lowercase(),
        None => said,
    }
}

/// What is true of a command that is run again only when something was kept.
pub(crate) const GOES_ON: &str = ": it goes on from what is here";

/// What to do next about a failure, as a sentence.
pub(crate) fn advice(failure: &Failure) -> &'static str {
    match failure.code {
        Code::TlsFailed if failure.message.contains("is not TLS") => {
            "What answers there does not speak TLS; perhaps the link should begin with http://."
        }
        code => usual_advice(code),
    }
}

fn usual_advice(code: Code) -> &'static str {
    match code {
        Code::ResolveFailed => {
            "Check the spelling of the host and the network, then run the same command again."
        }
        Code::ConnectFailed | Code::ConnectTimeout => {
            "Check the network and whether the server is up, then run the same command again."
        }
        Code::TlsFailed => {
            "The server or something on the way does not speak TLS properly; try another mirror."
        }
        Code::CertificateRefused => {
            "Check the clock of this machine; if the server has its own authority, name it with --ca-file."
        }
        Code::ProxyFailed => "Check --proxy and the variables http_proxy, https_proxy and all_proxy.",
        Code::ConnectionLost | Code::Stalled | Code::EndedEarly | Code::ServerError => {
            "Run the same command again: it goes on from what is here."
        }
        Code::TooSlow => "Run the same command again, or lower --speed-min.",
        Code::ProtocolError | Code::HeadTooLarge => {
            "What answers does not speak HTTP properly; check the URL and the port."
        }
        Code::NotFound => "Check the link; it may have moved or expired.",
        Code::Forbidden => "Check that you may have this file: the link may have expired or need a login.",
        Code::AuthRequired => "Give a login with --netrc, --user or --bearer-token-file.",
        Code::Busy => "Wait a while, then run the same command again; fewer connections (-x 1) may help.",
        Code::UnexpectedStatus => "Open the link in a browser to see what the server wants.",
        Code::RedirectLoop => "The server sends us in a circle; it may want cookies (--cookies).",
        Code::RedirectInvalid => "The link leads to something that is not on the web; ask for a fresh link.",
        Code::RangeMismatch => {
            "The server sends other bytes than were asked for; try -x 1 or another mirror."
        }
        Code::RangesRefused => {
            "The server cannot go on in the middle; run the command again with --resume never."
        }
        Code::EncodingUnknown | Code::DecodeFailed => {
            "The server packs the file in a way that cannot be unpacked; try another mirror."
        }
        Code::DecodeBomb => "What came unpacks to far more than any honest file; do not trust this link.",
        Code::Changed => "The file changes on the server while it is fetched; run the command again later.",
        Code::NotTheFile => {
            "A page came instead of the file: a login or a fresh link may be needed. Look at it in a browser."
        }
        Code::DigestMismatch | Code::PieceMismatch => {
            "Do not use it. Check that the checksum is for this version of the file; else try another mirror."
        }
        Code::LengthMismatch => {
            "The server has another file than was promised; check the link or try another mirror."
        }
        Code::TooLarge => {
            "If the link is to be trusted, run the command again with a larger --max-size, or with `none`."
        }
        Code::DiskFull => "Make room, then run the same command again: it goes on from what is here.",
        Code::PermissionDenied => "Choose another folder with -d, or get the right to write there.",
        Code::DiskError => "Check the disk and the system's log before you go on.",
        Code::Exists => "Choose another name with -o, or say what to do with --on-exists.",
        Code::Locked => "Another tidegate is fetching this; let it finish, or choose another name with -o.",
        Code::UnsafePart => {
            "What stands there is a link, or not yours: look at it and move it away, or choose another name with -o."
        }
        Code::BadUrl => "Write the URL as http://HOST/PATH or https://HOST/PATH.",
        Code::BadMetalink => "Fetch the Metalink file again from where you had it.",
        Code::NoMirrorLeft => "Every place failed; see the reasons above, or add one with --mirror.",
        Code::NoSuchJob | Code::LeaseLost => {
            "Somebody else took it or ended it; look there, or run the command again."
        }
        Code::QueueFull => "Ask for fewer files in one command.",
        Code::QueueFailed => "Check the disk, then run the same command again.",
        Code::Cancelled => "Run the same command again to begin anew.",
        Code::NoSuchDownload => "This is a mistake of ours: please report it.",
        Code::EngineFull => "Ask for fewer files at a time with --jobs.",
        Code::EngineCrash => {
            "What is here is safe. Run the same command again; if it stays, this server brings us down: please report it."
        }
        Code::EngineProtocol => {
            "Somebody may have tried to get at this machine through this download: fetch it from another place, and please report it."
        }
        Code::EngineUnavailable => "Run the same command again; if it stays, please report it.",
        Code::Internal => "This is a mistake of ours: please report it. What is here can be gone on with.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_says_what_to_do_next() {
        for code in Code::ALL {
            let advice = usual_advice(*code);
            assert_eq!(advice.contains("goes on from what is here"), advice.contains(GOES_ON), "{code}");
            assert!(advice.ends_with('.') && advice.len() > 20, "{code}: {advice}");
        }
    }

    #[test]
    fn who_asks_a_plain_server_for_tls_is_told_of_http() {
        let plain = Failure::new(Code::TlsFailed, "h: what it sent is not TLS (InvalidContentType)");
        assert!(advice(&plain).contains("begin with http://"));
        let other = Failure::new(Code::TlsFailed, "h: the server refused: it said HandshakeFailure");
        assert!(advice(&other).contains("another mirror"));
    }

    #[test]
    fn the_number_of_an_error_is_left_out() {
        assert_eq!(in_words(&io::Error::from_raw_os_error(2)), "no such file or directory");
        assert_eq!(in_words(&io::Error::other("It is larger than 64 MiB")), "It is larger than 64 MiB");
    }

    #[test]
    fn trouble_is_a_sentence_and_a_word() {
        let trouble: Trouble = Failure::new(Code::DiskFull, "no room on /data.").into();
        assert_eq!(trouble.to_string(), "no room on /data [disk-full]");
        assert!(trouble.next.is_some());
    }
}
