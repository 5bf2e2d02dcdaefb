//! HTTP/1.1 as a client speaks it: one request out, one answer in.
//!
//! The head of an answer is read into a buffer of the request, never more than 16 KiB at a time and
//! 64 KiB in all. What of the body came with it stays there for the caller; the rest of the body is
//! read by the caller into a buffer of its own and passed through [`Body`], which does no input or
//! output and copies nothing.
//!
//! Where real servers deviate without being ambiguous they are understood (bare line feeds in heads,
//! folded lines, several blanks in the status line, lines that are no fields). Whatever could be read
//! in two ways, so that two readers would see two different files, is refused.

mod body;
mod head;
mod request;

pub use body::{Body, InPlace, Step};
pub use head::{Framing, Head, HeadBuffer, read_head};
pub use request::{RequestLine, encode_request};
