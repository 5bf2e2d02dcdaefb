//! A place for one answer at a time, which is used again: whoever asks often makes nobody allocate.
//!
//! Whoever waits here is woken by way of a pipe. The kernel takes that as the waker's being done for the moment, and
//! lets the other go on at once where it was; a thread that is woken by a lock's means is put on a processor that
//! sleeps, and to wake that takes longer than to answer (docs/performance.md).

use crate::sync::{Bell, Mutex};
use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// The place.
#[derive(Debug)]
pub(crate) struct AnswerSlot<T> {
    value: Mutex<Option<T>>,
    bell: Bell,
}

/// Gives the answer, or by being dropped says that there is none.
#[derive(Debug)]
pub(crate) struct Answerer<T>(Arc<AnswerSlot<T>>);

impl<T> AnswerSlot<T> {
    /// # Errors
    /// When there are too many descriptors.
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self { value: Mutex::new(None), bell: Bell::new()? }))
    }

    /// Whoever has this gives the next answer. There is no other at the same time.
    pub(crate) fn answerer(self: &Arc<Self>) -> Answerer<T> {
        Answerer(Arc::clone(self))
    }

    /// The answer, waiting for it at most so long; `None` if there will be none. Then it is not used again.
    pub(crate) fn wait(&self, most: Duration) -> Option<T> {
        if !self.bell.wait(most) {
            return None;
        }
        self.value.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<T> Answerer<T> {
    pub(crate) fn give(self, answer: T) {
        self.0.value.lock().unwrap_or_else(PoisonError::into_inner).replace(answer);
    }
}

impl<T> Drop for Answerer<T> {
    fn drop(&mut self) {
        self.0.bell.ring();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_from_another_thread_again_and_again_and_one_that_never_comes_is_known_at_once() {
        let slot = AnswerSlot::new().unwrap();
        for n in 0..100 {
            let answerer = slot.answerer();
            let gives = std::thread::spawn(move || answerer.give(n));
            assert_eq!(slot.wait(Duration::MAX), Some(n));
            gives.join().unwrap();
        }
        drop(slot.answerer());
        assert_eq!(slot.wait(Duration::MAX), None);
    }
}
