//! What a child is given: how to be, and where bytes go.

use crate::connect::NetworkConfig;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;
use tidegate_core::checkpoint::{Record, RequestKey, Slot, Surroundings};
use tidegate_core::cookies::CookieJar;
use tidegate_core::message::Limits;
use tidegate_core::netrc::Netrc;
use tidegate_core::{Identity, SpanSet, written};
use url::Url;

/// The part of [`Config`](crate::Config) that a child needs.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Limits at the start.
    pub limits: Limits,
    /// How to reach the network.
    pub network: NetworkConfig,
    /// Cookies at the start.
    pub cookies: CookieJar,
    /// Passwords by host.
    pub netrc: Option<Netrc>,
    /// Another user agent than ours.
    pub user_agent: Option<String>,
    /// The page that a download is said to come from.
    #[serde(with = "written::optional_web_url")]
    pub referer: Option<Url>,
    /// Every body passes through memory.
    pub buffered: bool,
    /// Decides whatever is left to chance.
    pub seed: Option<u64>,
}

/// Shows nothing: it is full of secrets.
impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Setup(…)")
    }
}

/// Where the bytes of a download go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[allow(clippy::large_enum_variant, reason = "there is one at a time, once for each download")]
pub enum Place {
    /// Nowhere: the answer's head is all that is wanted. No descriptor.
    Nowhere,
    /// In order to a stream. One descriptor: the stream's.
    Stream {
        /// Its name for messages.
        called: String,
    },
    /// At their offsets into a part file. One descriptor, the part's; and a second one, the checkpoint's, if it has
    /// one.
    Part {
        /// Its path for messages, never to be opened. What is not UTF-8 in it is replaced.
        called: String,
        /// The number of the file system. Downloads to one of them may hold up each other.
        file_system: u64,
        /// What is in it.
        part: PartState,
    },
}

impl Place {
    /// How many descriptors ride on a message with this place.
    pub fn descriptors(&self) -> RangeInclusive<usize> {
        match self {
            Self::Nowhere => 0..=0,
            Self::Stream { .. } => 1..=1,
            Self::Part { .. } => 1..=2,
        }
    }
}

/// What is known of a part file, so that another process can go on with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartState {
    /// Which version is being fetched; 0 before any was begun.
    pub version: u64,
    /// The request that the part belongs to.
    pub key: RequestKey,
    /// What the record says of the version of the file.
    pub identity: Identity,
    /// Where and when the part is.
    pub surroundings: Surroundings,
    /// The bytes that were taken by the kernel.
    pub have: SpanSet,
    /// Of these, those that were synced.
    pub synced: SpanSet,
    /// Goes up whenever bytes are taken back.
    pub generation: u64,
    /// Goes up with every slot written.
    pub sequence: u64,
    /// The durable slot to overwrite next: D0 or D1.
    pub next_durable: Slot,
    /// The written slot to overwrite next: W0 or W1.
    pub next_written: Slot,
    /// Whether the checkpoint holds at least one durable slot of ours.
    pub recorded: bool,
    /// How often the validator on record was doubted.
    pub doubts: u64,
    /// The newest durable slot of the process before, until it is known to be on the disk: it must be written
    /// again before the other one is overwritten.
    pub inherited: Option<Inherited>,
}

/// A slot of a checkpoint, and what is in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inherited {
    /// Which: D0 or D1.
    pub slot: Slot,
    /// What it says.
    pub record: Record,
}
