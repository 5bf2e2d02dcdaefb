//! Every message, with its number, its name, its descriptors and its length.

use super::kinds::{Kind, KindOf, messages};
use super::setup::{Place, Setup};
use super::{ProtocolError, bounds};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use tidegate_core::cookies::CookieJar;
use tidegate_core::message::{EventKind, Limits, Progress, Proof, Snapshot};
use tidegate_core::netrc::Netrc;
use tidegate_core::transfer::{Found, Preparation, Verified};
use tidegate_core::{Digest, DownloadId, Failure, Identity, Request, SpanSet};

messages! {
    /// What the parent says. Where it has a `call`, the answer has the same number; the parent gives each once.
    pub enum ToChild {
        /// The first message, after [`FromChild::Ready`]: how this engine is to be.
        1 "hello" 0 VERY_LONG Hello {
            /// The parent's [`VERSION`](super::VERSION).
            version: u32,
            /// All that an engine is told once.
            setup: Setup,
        }
        /// A download exists; its cold side opens what it needs.
        2 "register" 0 SHORT Register {
            /// Which, never used before.
            id: DownloadId,
        }
        /// It can begin. The descriptors of its place ride on this.
        3 "start" 2 VERY_LONG Start {
            /// Which.
            id: DownloadId,
            /// What was asked for. Where it goes is nothing to the child.
            request: Request,
            /// What is on the disk.
            found: Found,
            /// What was found lies in the part of another link.
            borrowed: bool,
            /// Where its bytes go. A part is lent later, when it was prepared.
            place: Place,
        }
        /// [`Cold::Prepare`] was done. The descriptors of a place ride on this.
        4 "prepared" 2 LONG Prepared {
            /// Which.
            id: DownloadId,
            /// The number of the question.
            turn: u64,
            /// The part, where there is one.
            place: Option<Place>,
        }
        /// [`Cold::Verify`] was done. The descriptors of a place ride on this.
        5 "verified" 2 LONG Verified {
            /// Which.
            id: DownloadId,
            /// The number of the question.
            turn: u64,
            /// What was found.
            verified: Verified,
            /// The part, unless all is well and nobody is to have it any more.
            place: Option<Place>,
        }
        /// The machine has again what [`Cold::AwaitMachine`] said that it lacks.
        6 "machine-ready" 0 SHORT MachineReady {
            /// Which.
            id: DownloadId,
            /// The number of the question.
            turn: u64,
        }
        /// The cold side has come to its outcome: let go of everything, and say [`Cold::Freed`].
        7 "over" 0 SHORT Over {
            /// Which.
            id: DownloadId,
        }
        /// The cold side is gone; nothing more is said of this download.
        8 "gone" 0 SHORT Gone {
            /// Which.
            id: DownloadId,
        }
        /// The record is to be brought up to date. Answered by [`FromChild::Saved`].
        10 "save" 0 SHORT Save {
            /// Which.
            id: DownloadId,
            /// The number of the question.
            call: u64,
            /// So that it survives a power loss, and not only the end of the child.
            durable: bool,
        }
        /// Asks for nothing more until it is resumed. Answered by [`FromChild::Done`].
        11 "pause" 0 SHORT Pause {
            /// Which.
            id: DownloadId,
            /// The number of the question.
            call: u64,
        }
        /// Goes on after a pause.
        12 "resume" 0 SHORT Resume {
            /// Which.
            id: DownloadId,
        }
        /// Keeps what it has, and goes. Answered by [`FromChild::Done`].
        13 "stop" 0 SHORT Stop {
            /// Which.
            id: DownloadId,
            /// The number of the question.
            call: u64,
        }
        /// Goes, and keeps nothing.
        14 "cancel" 0 SHORT Cancel {
            /// Which.
            id: DownloadId,
        }
        /// Limits of the whole engine from now on.
        15 "set-limits" 0 SHORT SetLimits {
            /// All of them.
            limits: Limits,
        }
        /// The limit of one download from now on.
        16 "set-download-limit" 0 SHORT SetDownloadLimit {
            /// Which.
            id: DownloadId,
            /// Bytes a second; `null` is no limit.
            limit: Option<u64>,
        }
        /// What is every download doing? Answered by [`FromChild::Snapshot`].
        17 "snapshot" 0 SHORT Snapshot {
            /// The number of the question.
            call: u64,
        }
        /// How far is one? Answered by [`FromChild::Progress`].
        18 "progress" 0 SHORT Progress {
            /// The number of the question.
            call: u64,
            /// Which.
            id: DownloadId,
        }
        /// Which cookies are there now? Answered by [`FromChild::Cookies`].
        19 "cookies" 0 SHORT Cookies {
            /// The number of the question.
            call: u64,
        }
        /// The answer to [`FromChild::Resolve`].
        20 "resolved" 0 SHORT Resolved {
            /// The number of the question, which the child gave.
            call: u64,
            /// What the name stands for.
            answer: Resolution,
        }
        /// Is the control thread alive? Answered by [`FromChild::Pong`].
        21 "ping" 0 SHORT Ping {
            /// The number of the question.
            call: u64,
        }
        /// Ends every download, saving what it has, and then the child.
        22 "shutdown" 0 SHORT Shutdown {}
        /// The answer to [`FromChild::Introduce`]: what the user keeps for a host.
        23 "introduced" 0 VERY_LONG Introduced {
            /// The host.
            host: String,
            /// The cookies for it.
            cookies: CookieJar,
            /// The logins for it.
            netrc: Option<Netrc>,
        }
        /// The answer to [`FromChild::WantRoots`].
        24 "roots" 0 VERY_LONG Roots {
            /// The number of the question, which the child gave.
            call: u64,
            /// The certificates.
            roots: Roots,
        }
        /// What time is it for the control thread? Answered by an event of this download, a notice, which goes the
        /// way of every other event.
        25 "tell-time" 0 SHORT TellTime {
            /// Which.
            id: DownloadId,
        }
    }
}

messages! {
    /// What the child says. The numbers of answers are those of the questions.
    pub enum FromChild {
        /// The first message: the process is locked down.
        1 "ready" 0 SHORT Ready {
            /// The child's [`VERSION`](super::VERSION).
            version: u32,
            /// The names of the layers of the lock-down that are in force, at least in part.
            layers: Vec<String>,
            /// Those of the layers that this system does not have, or not whole.
            missing: Vec<String>,
        }
        /// Something for the cold side of a download.
        2 "cold" 0 LONG Cold {
            /// Which.
            id: DownloadId,
            /// What.
            message: Cold,
        }
        /// [`ToChild::Pause`] or [`ToChild::Stop`] was done.
        3 "done" 0 SHORT Done {
            /// The number of the question.
            call: u64,
        }
        /// The answer to [`ToChild::Save`].
        4 "saved" 0 SHORT Saved {
            /// The number of the question.
            call: u64,
            /// How it went.
            result: Saved,
        }
        /// The answer to [`ToChild::Snapshot`].
        5 "snapshot" 0 VERY_LONG Snapshot {
            /// The number of the question.
            call: u64,
            /// What every download is doing.
            snapshot: Snapshot,
        }
        /// The answer to [`ToChild::Progress`].
        6 "progress" 0 LONG Progress {
            /// The number of the question.
            call: u64,
            /// How far it is; `null` if there is none of that number.
            progress: Option<Progress>,
        }
        /// The answer to [`ToChild::Cookies`].
        7 "cookies" 0 VERY_LONG Cookies {
            /// The number of the question.
            call: u64,
            /// All of them.
            cookies: CookieJar,
        }
        /// What does this name stand for? Answered by [`ToChild::Resolved`].
        8 "resolve" 0 SHORT Resolve {
            /// The number of the question, which the child gives.
            call: u64,
            /// The name, in lower case and ASCII; never an address.
            host: String,
            /// The port to put with each address.
            port: u16,
        }
        /// The answer to [`ToChild::Ping`].
        9 "pong" 0 SHORT Pong {
            /// The number of the question.
            call: u64,
            /// When the control thread answered, in nanoseconds of `CLOCK_MONOTONIC`.
            at_ns: u64,
        }
        /// What does the user keep for a host that an answer leads to? Asked before the first request to it, and
        /// before its name is looked up. Answered by [`ToChild::Introduced`].
        10 "introduce" 0 SHORT Introduce {
            /// The host as it stands in the URL.
            host: String,
        }
        /// Which certificates does the system trust? Answered by [`ToChild::Roots`].
        11 "want-roots" 0 SHORT WantRoots {
            /// The number of the question, which the child gives.
            call: u64,
        }
    }
}

/// What a cold side is told. See [`crate::protocol`] for what of it a child cannot say.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Cold {
    /// To be told as an event: that it started, waits, begins again or is paused, or a notice. All other events
    /// are the cold side's own.
    Tell(EventKind),
    /// The number of the question that comes next.
    Turn(u64),
    /// Prepare for this file; answered by [`ToChild::Prepared`].
    Prepare {
        /// Which file it is, and what the server says of it.
        preparation: Box<Preparation>,
        /// How often the part was doubted when this was decided.
        doubts: u64,
    },
    /// More is known of the file than when it was prepared for.
    Learned {
        /// All that is known now.
        identity: Identity,
        /// As above.
        doubts: u64,
    },
    /// All bytes are here: verify and publish; answered by [`ToChild::Verified`].
    Verify {
        /// Which file it is.
        identity: Identity,
        /// Digests that a server sent.
        digests: Vec<Digest>,
        /// Why the bytes are believed so far.
        proof: Proof,
        /// Bytes received from the network in this run.
        received: u64,
    },
    /// The machine lacks something; answered by [`ToChild::MachineReady`].
    AwaitMachine(Failure),
    /// Given up.
    GiveUp(Failure),
    /// It asks for nothing more until it is resumed.
    Paused,
    /// It was cancelled.
    Cancel,
    /// Save and go.
    End,
    /// The place is not used here any more; its descriptors are closed.
    Returned {
        /// How often the part was doubted by then.
        doubts: u64,
        /// The bytes that are here, of a part without a checkpoint. Empty for all else, where the checkpoint says it.
        have: SpanSet,
    },
    /// Everything was let go of.
    Freed,
}

/// How a record was brought up to date.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Saved {
    /// So many bytes of the file are here, and survive a power loss if that was asked for.
    Durable(u64),
    /// It was not.
    Failed(Failure),
    /// The child does not have the part any more.
    Gone,
}

/// What a name stands for.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resolution {
    /// These addresses, the preferred first, at most [`Resolution::MOST`].
    Found(Vec<SocketAddr>),
    /// There is no such name.
    Unknown,
    /// Nobody could tell; the reason in words.
    Failed(String),
}

/// The certificates that the system trusts.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Roots {
    /// These, each in base64 on a line of its own.
    Found(String),
    /// None; the reason in words.
    Failed(String),
}

impl Resolution {
    /// The most addresses of an answer.
    pub const MOST: usize = 64;
}

impl ToChild {
    /// Reads a message.
    ///
    /// # Errors
    /// When there is no such kind, or the body is not of that kind or out of its bounds.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Self, ProtocolError> {
        let message = Self::read(kind, body)?;
        let beyond = |what| ProtocolError::Beyond { kind: message.kind().name, what };
        bounds::of_parent(&message).map_err(beyond)?;
        Ok(message)
    }
}

impl KindOf for ToChild {
    fn kind(&self) -> &'static Kind {
        &Self::KINDS[self.index()]
    }

    fn descriptors(&self) -> RangeInclusive<usize> {
        match self {
            Self::Start { place, .. }
            | Self::Prepared { place: Some(place), .. }
            | Self::Verified { place: Some(place), .. } => place.descriptors(),
            _ => 0..=0,
        }
    }
}

/// Tells the name alone: messages hold secrets.
impl fmt::Debug for ToChild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ToChild({})", self.kind().name)
    }
}

impl FromChild {
    /// Reads a message.
    ///
    /// # Errors
    /// When there is no such kind, or the body is not of that kind, out of its bounds, or something that a child
    /// cannot say.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Self, ProtocolError> {
        let message = Self::read(kind, body)?;
        let beyond = |what| ProtocolError::Beyond { kind: message.kind().name, what };
        bounds::of_child(&message).map_err(beyond)?;
        Ok(message)
    }
}

impl KindOf for FromChild {
    fn kind(&self) -> &'static Kind {
        &Self::KINDS[self.index()]
    }

    fn descriptors(&self) -> RangeInclusive<usize> {
        0..=0
    }
}

/// Tells the name alone: messages hold secrets.
impl fmt::Debug for FromChild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FromChild({})", self.kind().name)
    }
}
