//! Where the control thread's messages come from.

use super::Inbox;
use crate::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Brings the control thread's messages.
pub(crate) trait Source: Send {
    /// The next message that is there.
    fn next(&mut self) -> Option<Inbox>;

    /// The next message, waiting for it at most so long; less where nobody can tell.
    fn wait(&mut self, patience: Duration) -> Result<Inbox, RecvTimeoutError>;
}

/// From threads of this process.
impl Source for Receiver<Inbox> {
    fn next(&mut self) -> Option<Inbox> {
        self.try_recv().ok()
    }

    fn wait(&mut self, patience: Duration) -> Result<Inbox, RecvTimeoutError> {
        if let Ok(message) = self.try_recv() {
            return Ok(message);
        }
        // Whoever is about to send something does so now, and need not wake this thread.
        std::thread::yield_now();
        match self.try_recv() {
            Ok(message) => Ok(message),
            Err(_) => self.recv_timeout(patience),
        }
    }
}
