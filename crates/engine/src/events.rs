//! The queue of events, from the cold sides to whoever takes them.
//!
//! Bounded: a download whose news nobody takes waits with telling more. The control thread's last act
//! closes it, so whoever waits for an event hears of the end of the engine at once.

use crate::sync::{Condvar, Mutex, MutexGuard, Notify};
use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use tidegate_core::message::Event;

/// Events that nobody has taken yet, at most; then downloads wait with telling more. Few in a model, where each
/// costs time in every run.
pub(crate) const MOST: usize = if cfg!(all(test, shuttle)) { 2 } else { 1024 };

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Events {
    state: Mutex<State>,
    /// There is room for one more, or nothing is to be told any more.
    room: Notify,
    /// There is an event, or there will be none any more.
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Event>,
    /// How many wait for an event: nobody else has to be woken.
    waiting: usize,
    /// Nothing can be added any more.
    closed: bool,
}

/// What was there to take.
#[derive(Debug, PartialEq)]
pub(crate) enum Taken {
    Event(Event),
    /// Nothing came in time.
    Nothing,
    /// All was taken, and nothing will come any more.
    Ended,
}

impl Events {
    /// Adds an event, and waits for room if there is none. After the end it is thrown away.
    ///
    /// `before` is run at the moment when it is certain, before anybody can take the event.
    pub(crate) async fn put(&self, event: Event, before: impl FnOnce()) {
        let (mut event, mut before) = (Some(event), Some(before));
        loop {
            if self.put_now(&mut event, &mut before) {
                return;
            }
            // Room that there came to be since then is remembered.
            self.room.notified().await;
        }
    }

    fn put_now(&self, event: &mut Option<Event>, before: &mut Option<impl FnOnce()>) -> bool {
        let mut state = self.lock();
        if state.queue.len() >= MOST && !state.closed {
            return false;
        }
        if let Some(before) = before.take() {
            before();
        }
        if !state.closed {
            state.queue.extend(event.take());
        }
        // Whoever else waits for room is to know of it, or of the end.
        let (room, waiting) = (state.closed || state.queue.len() < MOST, state.waiting > 0);
        drop(state);
        if room {
            self.room.notify_one();
        }
        if waiting {
            self.news.notify_one();
        }
        true
    }

    /// The next event, waiting at most `patience` for it, however many others wait too.
    pub(crate) fn take(&self, patience: Duration) -> Taken {
        // A time that no clock reaches is no bound.
        let until = Instant::now().checked_add(patience);
        let mut state = self.lock();
        let mut yielded = patience.is_zero();
        loop {
            if let Some(event) = state.queue.pop_front() {
                drop(state);
                self.room.notify_one();
                return Taken::Event(event);
            }
            if state.closed {
                return Taken::Ended;
            }
            if !yielded {
                // Whoever is about to tell something does so now, and need not wake anybody.
                yielded = true;
                drop(state);
                std::thread::yield_now();
                state = self.lock();
                continue;
            }
            state.waiting += 1;
            state = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => self.news.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => {
                    state.waiting -= 1;
                    return Taken::Nothing;
                }
                Some(left) => self.news.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
            state.waiting -= 1;
        }
    }

    /// Nothing is told any more. What was told before can still be taken.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.news.notify_all();
        self.room.notify_waiters();
        self.room.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::DownloadId;
    use tidegate_core::message::EventKind;

    /// Adds an event, and waits until there is room for it.
    fn put(events: &Events, event: Event) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(events.put(event, || {}));
    }

    fn event(n: u64) -> Event {
        Event { id: DownloadId(n), kind: EventKind::Started { resumed_from: 0 } }
    }

    #[test]
    fn events_come_in_their_order_and_those_from_before_the_end_can_be_taken_after_it() {
        let events = Events::default();
        (1..4).for_each(|n| put(&events, event(n)));
        assert_eq!(events.take(Duration::ZERO), Taken::Event(event(1)));
        events.close();
        put(&events, event(9));
        assert_eq!(events.take(Duration::MAX), Taken::Event(event(2)));
        assert_eq!(events.take(Duration::ZERO), Taken::Event(event(3)));
        assert_eq!(events.take(Duration::MAX), Taken::Ended);
    }

    #[test]
    fn who_finds_no_room_waits_until_an_event_is_taken_or_all_has_ended() {
        let events = Events::default();
        (0..MOST as u64).for_each(|n| put(&events, event(n)));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| put(&events, event(5000)));
            assert_eq!(events.take(Duration::ZERO), Taken::Event(event(0)));
            waits.join().unwrap();
            let waits = scope.spawn(|| put(&events, event(5001)));
            events.close();
            waits.join().unwrap();
        });
        let mut last = None;
        while let Taken::Event(event) = events.take(Duration::MAX) {
            last = Some(event.id.0);
        }
        assert_eq!(last, Some(5000), "what found no room before the end is not told");
    }
}
