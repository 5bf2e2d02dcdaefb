//! Content codings.
use std::io;

/// How decoding went wrong.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The encoded bytes are damaged or cut.
    #[error("the {coding} encoding of the file is damaged: {why}")]
    Damaged {
        /// Which coding.
        coding: Coding,
        /// What is wrong.
        why: String,
    },
    /// More came out than an honest file has.
    #[error("the encoded file grows without bound: {input} bytes became more than {output}")]
    Bomb {
        /// Bytes of input so far.
        input: u64,
        /// Bytes of output at which it was stopped.
        output: u64,
    },
    /// Whoever takes the output failed.
    #[error("the decoded bytes could not be written: {0}")]
    Sink(#[source] io::Error),
}

/// A content coding.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950, or bare RFC 1951 as some servers send.
    Deflate,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
}

impl std::fmt::Display for Coding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        })
    }
}
