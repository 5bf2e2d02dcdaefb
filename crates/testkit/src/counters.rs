//! What a server has seen and done, for tests to look at.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::request::RequestSeen;

/// Counts since the server began. Each is raised before the bytes it counts are written, so whoever
/// has received a byte finds it counted.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Requests whose head was read to its end.
    pub requests: u64,
    /// The same by method.
    pub by_method: BTreeMap<String, u64>,
    /// Answers begun, by status; interim ones (1xx) are not counted.
    pub by_status: BTreeMap<u16, u64>,
    /// Bytes of content handed to sockets: not heads, not chunk framing. May run ahead of what was sent
    /// by one write (64 KiB) for each connection that ends in the middle of one.
    pub body_bytes: u64,
    /// The same by path.
    pub body_bytes_by_path: BTreeMap<String, u64>,
    /// Connections accepted and served.
    pub connects: u64,
    /// Connections reset as they were accepted, because of a limit or because the network is down.
    pub refused: u64,
    /// Connections open now.
    pub open: u64,
    /// The most connections that were open at once.
    pub peak_open: u64,
    /// Requests being answered now.
    pub in_flight: u64,
    /// The most requests that were being answered at once.
    pub peak_in_flight: u64,
    /// Connections that we ended by a reset.
    pub resets: u64,
    /// TLS handshakes that failed.
    pub tls_failures: u64,
    /// Heads that were no HTTP.
    pub malformed: u64,
    /// Connection threads that ended in a panic (a hook of a test, most likely). Should be zero.
    pub panics: u64,
}

impl Counters {
    /// Requests with this method, written in capitals.
    pub fn method(&self, method: &str) -> u64 {
        self.by_method.get(method).copied().unwrap_or(0)
    }

    /// Answers with this status.
    pub fn status(&self, status: u16) -> u64 {
        self.by_status.get(&status).copied().unwrap_or(0)
    }

    /// Bytes of content sent for this path.
    pub fn path(&self, path: &str) -> u64 {
        self.body_bytes_by_path.get(path).copied().unwrap_or(0)
    }
}

/// One request and what became of it.
#[derive(Clone, Debug)]
pub struct Exchanged {
    /// The request.
    pub request: Arc<RequestSeen>,
    /// The status of the answer, once it has begun (0 for an answer that has none).
    pub status: Option<u16>,
    /// Bytes of content handed over so far.
    pub body_bytes: u64,
    /// Whether the answer was given to its intended end: an answer cut on purpose is not, and neither is
    /// one whose client went away.
    pub whole: bool,
    /// Whether nothing more will come of it.
    pub over: bool,
}
