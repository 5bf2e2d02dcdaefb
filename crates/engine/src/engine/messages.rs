//! What the control thread is told, and what it tells the cold sides.

use crate::answer_slot::Answerer;
use crate::fetch::{FetchId, Report};
use crate::loan::Returned;
use crate::sync::mpsc::SyncSender;
use crate::target::Target;
use std::fmt;
use std::sync::Arc;
use tidegate_core::cookies::CookieJar;
use tidegate_core::message::{EventKind, Limits, Progress, Proof, Snapshot};
use tidegate_core::netrc::Netrc;
use tidegate_core::transfer::{Found, Preparation, Verified};
use tidegate_core::{Digest, DownloadId, Failure, Identity, Request, SpanSet};
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

/// Everything that the control thread can be told.
pub(crate) enum Inbox {
    /// A download exists; its cold side opens what it needs.
    Register {
        id: DownloadId,
        cold: Box<dyn ColdSide>,
    },
    /// It can begin.
    Start(Box<Start>),
    Report {
        id: FetchId,
        report: Report,
    },
    Cold {
        id: DownloadId,
        /// The number of the question that it answers.
        turn: u64,
        input: FromCold,
    },
    Pause {
        id: DownloadId,
        done: Reply<()>,
    },
    Resume {
        id: DownloadId,
    },
    /// Keep what it has, and go.
    Stop {
        id: DownloadId,
        done: Reply<()>,
    },
    Cancel {
        id: DownloadId,
    },
    SetLimits(Limits),
    SetDownloadLimit {
        id: DownloadId,
        limit: Option<u64>,
    },
    /// Bring this up to date and send it back.
    Snapshot(Asked),
    Progress {
        id: DownloadId,
        reply: Reply<Option<Progress>>,
    },
    Cookies {
        reply: Reply<CookieJar>,
    },
    /// What the user keeps for a host, which was asked for.
    Introduced {
        host: String,
        cookies: CookieJar,
        netrc: Option<Netrc>,
    },
    /// Is anybody there?
    Ping {
        reply: Reply<()>,
    },
    /// Tell what time it is, as an event of this download.
    TellTime {
        id: DownloadId,
    },
    /// Stop everything and end when all has been saved.
    Shutdown,
}

/// A snapshot on its way to be brought up to date, and the way back. It is used again, so that whoever asks again and
/// again makes nobody allocate.
pub(crate) struct Asked {
    pub(crate) snapshot: Snapshot,
    pub(crate) reply: Back,
}

/// The way back of a snapshot.
pub(crate) enum Back {
    To(Answerer<Snapshot>),
    /// It goes on to another process, as the answer to the question of this number.
    Across(Arc<dyn Fn(u64, Snapshot) + Send + Sync>, u64),
}

impl Asked {
    /// Sends it back.
    pub(crate) fn give(self) {
        match self.reply {
            Back::To(answerer) => answerer.give(self.snapshot),
            Back::Across(answer, call) => answer(call, self.snapshot),
        }
    }
}

/// Takes the answer to a question, without waiting for anybody.
pub(crate) struct Reply<T>(Box<dyn FnOnce(T) + Send>);

impl<T: Send + 'static> Reply<T> {
    /// Hands the answer to this.
    pub(crate) fn by(answer: impl FnOnce(T) + Send + 'static) -> Self {
        Self(Box::new(answer))
    }

    /// Sends it here, where there is room for it.
    pub(crate) fn to(sender: SyncSender<T>) -> Self {
        // Fails only when nobody waits any more.
        Self::by(move |answer| drop(sender.try_send(answer)))
    }

    pub(crate) fn give(self, answer: T) {
        (self.0)(answer);
    }
}

/// What may hold up a write: downloads that are held up together share a data thread.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Disk {
    /// Nothing is written.
    Nowhere,
    /// A file system, by its number.
    FileSystem(u64),
    /// The stream of this download. Whoever reads it may stop reading, and holds up nobody else.
    Stream(DownloadId),
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere => f.write_str("none"),
            Self::FileSystem(number) => write!(f, "{number}"),
            Self::Stream(id) => write!(f, "stream-{id}"),
        }
    }
}

/// A download that can begin.
pub(crate) struct Start {
    pub(crate) id: DownloadId,
    pub(crate) request: Request,
    pub(crate) found: Found,
    /// What was found lies in the part of another link.
    pub(crate) borrowed: bool,
    /// Where bytes go in order. A part is lent later, when it was prepared.
    pub(crate) target: Target,
    /// Where its bytes go.
    pub(crate) disk: Disk,
    /// How often its part was doubted so far.
    pub(crate) doubts: u64,
}

/// What a cold side is told.
pub(crate) enum ToCold {
    Tell(EventKind),
    /// The number of the question that comes next.
    Turn(u64),
    Prepare {
        preparation: Box<Preparation>,
        /// How often the part was doubted when this was decided.
        doubts: u64,
    },
    Learned {
        identity: Identity,
        /// As above.
        doubts: u64,
    },
    Verify {
        identity: Identity,
        digests: Vec<Digest>,
        proof: Proof,
        received: u64,
    },
    AwaitMachine(Failure),
    GiveUp(Failure),
    Paused,
    Cancel,
    /// Save and go.
    End,
    /// The target is not used here any more. Comes before each question about a part, since whoever
    /// answers it must have the part alone. Letting go of a file may wait for its disk, so the cold side
    /// does that, and waits until every fetch has returned it.
    Release {
        target: Target,
        returned: Option<Returned>,
    },
    /// As [`ToCold::Release`], from another process, which has closed it: what that says of the part.
    Returned {
        doubts: u64,
        have: SpanSet,
    },
    /// The control thread has let go of everything.
    Freed,
    /// The process that had the control thread has ended: nothing that was asked or said before counts. It is to be
    /// started again.
    Crashed {
        failure: Failure,
        /// The download may be what ended it.
        suspicious: bool,
    },
}

/// The way to a cold side, or to who stands for it.
pub(crate) trait ColdSide: Send {
    /// Tells it something without waiting, if there is room for it; else gives it back.
    #[expect(clippy::result_large_err, reason = "what does not fit is kept, and not moved about")]
    fn try_send(&self, message: ToCold) -> Result<(), TrySendError<ToCold>>;
}

impl ColdSide for Sender<ToCold> {
    fn try_send(&self, message: ToCold) -> Result<(), TrySendError<ToCold>> {
        Sender::try_send(self, message)
    }
}

/// What a cold side answers.
pub(crate) enum FromCold {
    /// With the part, where there is one.
    Prepared {
        target: Option<Target>,
    },
    /// With the part, unless all is well and nobody is to have it any more.
    Verified {
        verified: Verified,
        target: Option<Target>,
    },
    MachineReady,
    /// It has come to its outcome, which is told when everything was let go of.
    Over,
    /// It has told the outcome and is gone.
    Gone,
}
