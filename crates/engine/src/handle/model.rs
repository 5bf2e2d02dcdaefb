//! A handle that several threads use, in many orders, while the engine ends at any moment. Whoever asks is answered,
//! or told that the engine has ended: nobody waits for ever.
#![allow(clippy::unwrap_used, reason = "a failure here is the failure of a test")]

use super::*;
use crate::model::explore;
use crate::sync::mpsc::Receiver;
use shuttle::future::block_on;
use shuttle::thread::{self, JoinHandle};
use tidegate_core::message::EventKind;

/// A handle, with a control thread that answers `messages` messages and ends.
fn engine(messages: usize, inbox: usize) -> (EngineHandle, JoinHandle<()>) {
    let (control, messages_in) = sync_channel(inbox);
    let events = Arc::<Events>::default();
    let closing = Closing(Arc::clone(&events));
    let threads = Arc::<Threads>::default();
    let shared = Shared {
        control: ToControl::Here(control, Arc::clone(&threads)),
        isolation: Isolation::default(),
        events,
        next: AtomicU64::new(3),
        places: Arc::default(),
        lanes: Arc::new(Lanes::new(Arc::clone(&threads))),
        threads,
        syncs: Arc::default(),
        ask: None,
        slot: Mutex::default(),
    };
    let body = move || {
        let _closing = closing;
        answer(&messages_in, messages);
    };
    (EngineHandle { shared: Arc::new(shared) }, thread::spawn(body))
}

/// As the control thread answers.
fn answer(inbox: &Receiver<Inbox>, messages: usize) {
    for _ in 0..messages {
        let Ok(message) = inbox.recv() else { return };
        match message {
            Inbox::Snapshot(mut asked) => {
                asked.snapshot.speed += 1;
                asked.give();
            }
            Inbox::Pause { done, .. } | Inbox::Stop { done, .. } => done.give(()),
            Inbox::Progress { reply, .. } => reply.give(None),
            Inbox::Cookies { reply } => reply.give(CookieJar::default()),
            Inbox::Shutdown => return,
            _ => {}
        }
    }
}

/// Asks for a snapshot into one that is marked, and tells whether it came: only the own one is a good answer.
fn asks(handle: &EngineHandle, mark: u64) -> bool {
    let mut snapshot = Snapshot { speed: mark, ..Snapshot::default() };
    match handle.refresh(&mut snapshot) {
        Ok(()) => {
            assert_eq!(snapshot.speed, mark + 1, "the answer to another");
            true
        }
        Err(failure) => {
            assert_eq!(failure.code, Code::EngineUnavailable);
            assert_eq!(snapshot, Snapshot::default());
            false
        }
    }
}

#[test]
fn each_who_asks_at_once_gets_the_own_answer() {
    explore(|| {
        let (handle, control) = engine(usize::MAX, 2);
        let threads: Vec<_> = (1..4)
            .map(|number| {
                let handle = handle.clone();
                thread::spawn(move || (0..2).for_each(|n| assert!(asks(&handle, 100 * number + n))))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        // Tells the control thread to end.
        drop(handle);
        control.join().unwrap();
    });
}

#[test]
fn who_asks_an_engine_that_ends_meanwhile_is_told_so() {
    explore(|| {
        // The inbox is short, so that some wait for room when it ends.
        let (handle, control) = engine(2, 1);
        let askers: Vec<_> = (1..4)
            .map(|number| {
                let handle = handle.clone();
                thread::spawn(move || match number {
                    1 => handle.pause(DownloadId(1)).is_ok(),
                    2 => handle.progress(DownloadId(1)).is_ok(),
                    _ => asks(&handle, number),
                })
            })
            .collect();
        let answered = askers.into_iter().map(|thread| thread.join().unwrap());
        assert_eq!(answered.filter(|&answered| answered).count(), 2, "all that were taken were answered");
        control.join().unwrap();
        assert!(!asks(&handle, 9));
    });
}

#[test]
fn who_waits_for_news_hears_of_the_end_however_it_comes() {
    explore(|| {
        let (handle, control) = engine(2, 1);
        let waits: Vec<_> = (0..2)
            .map(|_| {
                let handle = handle.clone();
                thread::spawn(move || while handle.next_event(Duration::MAX).is_ok() {})
            })
            .collect();
        let tells = Arc::clone(&handle.shared.events);
        let told = Event { id: DownloadId(1), kind: EventKind::Started { resumed_from: 0 } };
        let teller = thread::spawn(move || block_on(tells.put(told, || {})));
        assert!(handle.stop(DownloadId(1)).is_ok());
        assert!(handle.shutdown(Duration::MAX).is_ok());
        waits.into_iter().for_each(|thread| thread.join().unwrap());
        teller.join().unwrap();
        control.join().unwrap();
    });
}
