//! The rules of a download.
//!
//! This crate decides and does nothing: it is told the time, the dice and the network's answers,
//! and returns what to do. It has no input or output, no clock, no async and no unsafe code, so
//! every rule in it can be tested as a list of inputs.

pub mod checkpoint;
pub mod digest;
pub mod failure;
pub mod headers;
pub mod id;
pub mod message;
pub mod request;
pub mod span;
pub mod validator;

pub use digest::{Algorithm, Digest};
pub use failure::{Code, Failure, Remedy};
pub use id::{DownloadId, MirrorId, SegmentId};
pub use request::{Mirror, Request};
pub use span::{Span, SpanSet};
pub use validator::{EntityTag, Identity, Likeness};
