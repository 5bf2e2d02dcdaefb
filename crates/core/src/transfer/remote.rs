//! What is known of one mirror.

use crate::failure::Failure;
use crate::proof::Sampling;
use crate::span::SpanSet;
use crate::validator::Identity;
use std::time::Instant;
use url::Url;

/// Whether a mirror may supply bytes of this file.
#[derive(Clone, Debug)]
pub(super) enum Admission {
    /// Nothing is known of it.
    Unknown,
    /// Its bytes are being compared with those that are here.
    Sampling(Box<Sampling>),
    /// It serves the file.
    Admitted,
    /// Nothing speaks against it, but nothing could be shown either: only used alone, from zero.
    Unprovable,
    /// It is not used any more.
    Dropped(Failure),
}

/// One mirror and what it taught us in this run.
#[derive(Clone, Debug)]
pub struct Remote {
    original: Url,
    /// Where redirects led to, while that works.
    pub(super) current: Option<Url>,
    /// The target of a redirect died and the original link was tried again since the last progress.
    pub(super) went_back: bool,
    pub(super) admission: Admission,
    /// What it says of the file; entity tags of different hosts cannot be compared.
    pub(super) identity: Option<Identity>,
    /// Whether it serves ranges; `None` until it did or did not.
    pub(super) ranges: Option<bool>,
    /// Answers that broke a rule of ranges although others kept them.
    pub(super) strikes: u32,
    /// Answers to ranges that held next to nothing of what was asked for.
    pub(super) crumbs: u32,
    /// Whether it keeps to `If-Range`.
    pub(super) if_range: bool,
    /// Most connections that it took.
    pub(super) ceiling: usize,
    pub(super) refusals: u32,
    /// When a connection was lost that had delivered: what fails at the same time says nothing of how many
    /// it takes.
    pub(super) lost: Option<Instant>,
    /// No new request before this.
    pub(super) not_before: Instant,
    /// Why it rests.
    pub(super) last_failure: Option<Failure>,
    /// Most bytes that it gives for one request.
    pub(super) cap: Option<u64>,
    /// Which bytes it gave.
    pub(super) supplied: SpanSet,
}

impl Remote {
    pub(super) fn new(original: Url, now: Instant) -> Self {
        Self {
            original,
            current: None,
            went_back: false,
            admission: Admission::Unknown,
            identity: None,
            ranges: None,
            strikes: 0,
            crumbs: 0,
            if_range: true,
            ceiling: usize::MAX,
            refusals: 0,
            lost: None,
            not_before: now,
            last_failure: None,
            cap: None,
            supplied: SpanSet::new(),
        }
    }

    /// What to ask: where redirects led to, else the link itself.
    pub fn url(&self) -> &Url {
        self.current.as_ref().unwrap_or(&self.original)
    }

    /// The link itself.
    pub fn original(&self) -> &Url {
        &self.original
    }

    pub(super) fn is_usable(&self) -> bool {
        !matches!(self.admission, Admission::Dropped(_))
    }

    pub(super) fn is_admitted(&self) -> bool {
        matches!(self.admission, Admission::Admitted)
    }
}
