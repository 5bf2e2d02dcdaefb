//! What a transfer is told and what it wants done.

use crate::answer::Answer;
use crate::digest::Digest;
use crate::failure::{Failure, Need};
use crate::headers::Coding;
use crate::id::{MirrorId, SegmentId};
use crate::message::{EventKind, Proof};
use crate::span::{Span, SpanSet};
use crate::validator::Identity;
use serde::{Deserialize, Serialize};
use std::time::Instant;
use url::Url;

/// What is on the disk from before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Found {
    /// Nothing that can be used.
    #[default]
    Nothing,
    /// Bytes of the file with this identity.
    Recorded {
        /// Which version it was.
        identity: Identity,
        /// Which bytes are here.
        spans: SpanSet,
    },
    /// Bytes that somebody says are of this file: another tool's leftover.
    Adopted {
        /// Which bytes are here.
        spans: SpanSet,
    },
}

/// A request to send.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// The name of this fetch from now on.
    pub segment: SegmentId,
    /// From whom.
    pub mirror: MirrorId,
    /// What to ask for; not always the mirror's own URL, after redirects.
    pub url: Url,
    /// The bytes to ask for, the last exclusive; `None` asks without a range.
    pub range: Option<(u64, Option<u64>)>,
    /// A validator for `If-Range`.
    pub if_range: Option<String>,
}

/// What to do with the body of an accepted answer.
#[derive(Clone, Debug, PartialEq)]
pub struct BodyPlan {
    /// Where its first byte belongs in the file.
    pub offset: u64,
    /// Where to stop. May be moved by [`Action::End`]. `u64::MAX` reads to the end of the body.
    pub end: u64,
    /// How far beyond the end to compare with what is on the disk.
    pub seam: u64,
    /// Write bytes that are not on the disk. Without it everything is only compared.
    pub write: bool,
    /// Before its first byte is written, the record must cease to name a strong validator: these bytes are
    /// joined with others that it does not speak for.
    pub doubtful: bool,
    /// There was found to be room for the whole file before its first byte. Else its length was not told
    /// then, whatever was learnt since.
    pub measured: bool,
    /// How the body is coded, in the order in which the codings were applied.
    pub codings: Vec<Coding>,
}

/// What the cold side must do before the first byte is accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preparation {
    /// Which file it is.
    pub identity: Identity,
    /// Everything on the disk is of another version and must be forgotten first: why.
    pub restart: Option<Failure>,
    /// The name that the server suggests, as it came.
    pub disposition: Option<String>,
    /// The media type, as it came.
    pub content_type: Option<String>,
    /// Where the answer came from, after redirects.
    #[serde(with = "crate::written::web_url")]
    pub url: Url,
    /// Whether an interruption costs only what was in flight.
    pub resumable: bool,
    /// Whether the body is decoded on the way (then the length on the disk is not known yet).
    pub decoded: bool,
    /// Bytes from before are not proved yet to be of this version: until [`Action::Learned`] says
    /// so, nothing durable may.
    pub unproved: bool,
    /// What the server says of the whole file so far: a target that cannot be read again must take its
    /// digests as the bytes pass.
    pub digests: Vec<Digest>,
}

/// What a transfer wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send a request.
    Fetch(Order),
    /// The held answer is right: take its body so.
    Accept {
        /// Whose body.
        segment: SegmentId,
        /// How.
        body: BodyPlan,
    },
    /// Drop the fetch and its connection; nothing of it is wanted. Nothing is reported back.
    Drop {
        /// Which.
        segment: SegmentId,
    },
    /// Move where a fetch stops.
    End {
        /// Which.
        segment: SegmentId,
        /// The new end in bytes.
        at: u64,
    },
    /// Let the cold side prepare for this file and answer with [`Input::Prepared`].
    Prepare(Box<Preparation>),
    /// More is known of the file than when it was prepared for (its length).
    Learned(Identity),
    /// All bytes are here: let the cold side verify and publish, and answer with [`Input::Verified`].
    Verify {
        /// Which file it is.
        identity: Identity,
        /// Digests that a server sent; those of the request are known.
        digests: Vec<crate::Digest>,
        /// Why the bytes are believed so far.
        proof: Proof,
    },
    /// Tell those who listen.
    Tell(EventKind),
    /// The host of this URL does not want more connections than these.
    HostLimit {
        /// Any URL of the host.
        url: Url,
        /// At least 1.
        connections: usize,
    },
    /// Call [`Transfer::handle`](super::Transfer::handle) with [`Input::Tick`] at this time at the latest.
    WakeAt(Instant),
    /// Nothing is done until the machine has what it lacks: answer with [`Input::MachineReady`].
    AwaitMachine {
        /// What it lacks.
        need: Need,
        /// What went wrong.
        failure: Failure,
    },
    /// Given up. Everything of it has been dropped.
    GiveUp(Failure),
}

/// How far a running fetch is; newest wins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Count {
    /// Which fetch.
    pub segment: SegmentId,
    /// The bytes from the body's first up to this one are on the disk, or equal to what was there.
    pub pos: u64,
    /// Bytes received from the network by this fetch.
    pub received: u64,
    /// It has bytes to read but no tokens: silence is not its fault.
    pub limited: bool,
    /// Its connection was opened under a narrower limit and can never be as fast as it may be now.
    pub outgrown: bool,
}

/// How a fetch ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// It came to its end, or the body ended as it should.
    Finished {
        /// One past its last byte.
        pos: u64,
        /// The body ended as it should (and not just our interest in it).
        whole_body: bool,
        /// It only saw one repeated byte.
        flat: bool,
    },
    /// A byte on the disk is another than in the body.
    Differs {
        /// Where.
        at: u64,
    },
    /// It failed.
    Failed(Failure),
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input<'a> {
    /// Start.
    Begin,
    /// The head of an answer came; its body is held until told otherwise.
    Head {
        /// Whose.
        segment: SegmentId,
        /// What it says.
        answer: Box<Answer>,
    },
    /// A fetch ended.
    Ended {
        /// Which.
        segment: SegmentId,
        /// How.
        end: End,
        /// As in [`Count::pos`], at its end.
        pos: u64,
        /// Bytes received by it in all.
        received: u64,
    },
    /// Time has passed, and this is how far the fetches are.
    Tick {
        /// One for each running fetch.
        counts: &'a [Count],
        /// The disk has not taken bytes for a while.
        disk_blocked: bool,
    },
    /// How far the running fetches are, told before what may end them: of one that is dropped no more is heard.
    Counts(&'a [Count]),
    /// How many connections this download may have now.
    Allow(usize),
    /// The cold side is ready for the file.
    Prepared,
    /// The cold side has checked the bytes: these spans are wrong (none: all is well).
    Verified(Verified),
    /// The machine has again what it lacked.
    MachineReady,
    /// Stop, keeping everything.
    Pause,
    /// Go on after a pause.
    Resume,
}

/// What verifying found.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verified {
    /// All is well and the file is published.
    Right,
    /// These pieces have the wrong digest; the map on the disk has already lost them.
    BadPieces(#[serde(with = "crate::written::spans")] Vec<Span>),
    /// The whole has the wrong digest.
    Wrong(Failure),
    /// It could not be published.
    Failed(Failure),
}
