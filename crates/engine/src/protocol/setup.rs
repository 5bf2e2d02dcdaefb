//! What a child is given: how to be, and where bytes go.

use crate::connect::NetworkConfig;
use crate::part_file::State;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::RangeInclusive;
use tidegate_core::message::Limits;
use tidegate_core::written;
use url::Url;

/// The part of [`Config`](crate::Config) that a child needs.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Limits at the start.
    pub limits: Limits,
    /// How to reach the network.
    pub network: NetworkConfig,
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
    /// Into a part file, which is lent when it was prepared. No descriptor.
    Later {
        /// The number of the file system. Downloads to one of them may hold up each other.
        file_system: u64,
        /// How often the part was doubted so far.
        doubts: u64,
    },
    /// At their offsets into a part file. One descriptor, the part's; and a second one, the checkpoint's, if it has
    /// one.
    Part {
        /// Its path for messages, never to be opened. What is not UTF-8 in it is replaced.
        called: String,
        /// As above.
        file_system: u64,
        /// What is in it.
        part: State,
    },
}

impl Place {
    /// How many descriptors ride on a message with this place.
    pub fn descriptors(&self) -> RangeInclusive<usize> {
        match self {
            Self::Nowhere | Self::Later { .. } => 0..=0,
            Self::Stream { .. } => 1..=1,
            Self::Part { .. } => 1..=2,
        }
    }
}
