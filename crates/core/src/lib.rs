//! The rules of a download.
//!
//! This crate decides and does nothing: it is told the time, the dice and the network's answers,
//! and returns what to do. It has no input or output, no clock, no async and no unsafe code, so
//! every rule in it can be tested as a list of inputs.

pub mod answer;
pub mod auth;
pub mod bucket;
pub mod checkpoint;
pub mod checksum_file;
pub mod cookies;
pub mod dice;
pub mod digest;
pub mod expand;
pub mod failure;
pub mod file_name;
pub mod frame;
pub mod headers;
pub mod id;
pub mod message;
pub mod metalink;
pub mod netrc;
pub mod no_proxy;
pub mod plan;
pub mod proof;
pub mod request;
pub mod retry;
pub mod span;
pub mod transfer;
pub mod units;
pub mod uri_list;
pub mod validator;
pub mod web_page;
pub mod written;

pub use answer::{Answer, Framing};
pub use dice::Dice;
pub use digest::{Algorithm, Digest};
pub use failure::{Code, Failure, Remedy};
pub use file_name::SafeName;
pub use headers::Headers;
pub use id::{DownloadId, MirrorId, SegmentId};
pub use request::{Mirror, Request};
pub use span::{Span, SpanSet};
pub use validator::{EntityTag, Identity, Likeness};
