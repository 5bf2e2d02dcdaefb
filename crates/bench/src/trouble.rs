//! Why a command could not do what it is for.

use std::fmt;
use std::io;

/// A sentence for the person who asked.
#[derive(Debug)]
pub(crate) struct Trouble {
    message: String,
    /// The command as it was given makes no sense.
    pub(crate) is_usage: bool,
}

impl Trouble {
    /// Something that could not be done.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_usage: false }
    }

    /// A command that makes no sense.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_usage: true }
    }

    /// What the system refused.
    pub(crate) fn failed(what: &str, error: &io::Error) -> Self {
        Self::new(format!("could not {what}: {error}"))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
