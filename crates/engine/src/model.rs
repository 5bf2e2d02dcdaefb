//! The limiter, the queue of events and the shared syncs in many orders of their threads. Time stands still unless a model
//! moves it, so whoever is not woken by another thread waits for ever; and if all wait, the model checker says so.
#![allow(clippy::unwrap_used, reason = "a failure here is the failure of a test")]

use crate::events::{Events, MOST, Taken};
use crate::limiter::{ConnectionLimit, RateLimiter};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::time;
use crate::syncs::SharedSyncs;
use shuttle::future::block_on;
use shuttle::thread;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate_core::DownloadId;
use tidegate_core::message::{Event, EventKind, Limits};

/// Runs a model in many random orders, and in as many that change threads at few places, where most bugs need no
/// more.
pub(crate) fn explore(model: impl Fn() + Send + Sync + 'static) {
    let model = Arc::new(move || {
        time::reset();
        model();
    });
    let again = Arc::clone(&model);
    shuttle::check_random(move || model(), RUNS);
    shuttle::check_pct(move || again(), RUNS, 3);
}

const RUNS: usize = 3000;

fn total(rate: Option<u64>) -> Limits {
    Limits { total: rate, ..Limits::default() }
}

/// Asks once, and goes away if it has to wait.
fn try_take(limit: &mut ConnectionLimit, want: usize) -> Option<usize> {
    match pin!(limit.take(want)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(bytes) => Some(bytes),
        Poll::Pending => None,
    }
}

#[test]
fn a_limit_that_is_lifted_reaches_all_that_wait() {
    explore(|| {
        let limiter = RateLimiter::new(&total(Some(1)));
        let waiting: Vec<_> = (0..3)
            .map(|number| {
                let mut limit = limiter.register(DownloadId(number / 2), "h");
                thread::spawn(move || assert!(block_on(limit.take(1000)) > 0))
            })
            .collect();
        limiter.set_limits(&total(None));
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn a_limit_that_is_raised_gives_those_who_wait_a_new_time() {
    explore(|| {
        // A byte in a second, and then a thousand.
        let limiter = RateLimiter::new(&total(Some(1)));
        let mut limit = limiter.register(DownloadId(1), "h");
        let waits = thread::spawn(move || assert!(block_on(limit.take(1000)) > 0));
        limiter.set_limits(&total(Some(1000)));
        time::advance(Duration::from_millis(500));
        waits.join().unwrap();
    });
}

#[test]
fn limits_that_are_set_by_two_end_as_the_last_says() {
    explore(|| {
        let limiter = RateLimiter::new(&total(Some(1)));
        let mut limit = limiter.register(DownloadId(1), "h");
        let waits = thread::spawn(move || assert!(block_on(limit.take(1000)) > 0));
        let other = limiter.clone();
        let setter = thread::spawn(move || other.set_download_limit(DownloadId(1), Some(1)));
        limiter.set_limits(&total(None));
        setter.join().unwrap();
        limiter.set_download_limit(DownloadId(1), None);
        waits.join().unwrap();
    });
}

#[test]
fn a_limit_holds_whoever_lifts_another_at_the_same_time() {
    explore(|| {
        let limiter = RateLimiter::new(&total(None));
        limiter.set_download_limit(DownloadId(1), Some(5));
        let limit = limiter.register(DownloadId(1), "h");
        let lifts = {
            let limiter = limiter.clone();
            thread::spawn(move || limiter.set_download_limit(DownloadId(1), None))
        };
        limiter.set_limits(&total(Some(1000)));
        lifts.join().unwrap();
        assert_eq!(limit.share(), Some(1000));
    });
}

#[test]
fn what_is_given_back_reaches_who_waits_for_it() {
    explore(|| {
        let limiter = RateLimiter::new(&total(Some(100)));
        let [mut first, mut second, mut third] = [1, 2, 3].map(|n| limiter.register(DownloadId(n), "h"));
        time::advance(Duration::from_secs(60));
        // Two have all that there is.
        let held = try_take(&mut first, 1000).unwrap();
        while try_take(&mut third, 1000).is_some() {}
        let waits = thread::spawn(move || block_on(second.take(1)));
        first.give_back(held);
        assert_eq!(waits.join().unwrap(), 1);
    });
}

#[test]
fn a_turn_of_who_has_gone_goes_to_who_waits() {
    for whole in [false, true] {
        explore(move || {
            let limiter = RateLimiter::new(&total(Some(4)));
            let [mut first, mut second] = [1, 2].map(|n| limiter.register(DownloadId(n), "h"));
            let mut goes = Box::pin(first.take(1));
            assert!(goes.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            // Enough for one: it is set aside for the first as soon as anybody looks.
            time::advance(Duration::from_millis(300));
            let waits = thread::spawn(move || block_on(second.take(1)));
            drop(goes);
            if whole {
                drop(first);
            }
            assert_eq!(waits.join().unwrap(), 1);
        });
    }
}

#[test]
fn no_more_is_granted_than_came_in() {
    explore(|| {
        const RATE: u64 = 1000;
        let limiter = RateLimiter::new(&total(Some(RATE)));
        let granted = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..3)
            .map(|number| {
                let (mut limit, granted) = (limiter.register(DownloadId(number), "h"), Arc::clone(&granted));
                thread::spawn(move || {
                    for _ in 0..3 {
                        let Some(bytes) = try_take(&mut limit, 1000) else { continue };
                        limit.give_back(bytes / 2);
                        granted.fetch_add((bytes - bytes / 2) as u64, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        time::advance(Duration::from_millis(100));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(granted.load(Ordering::SeqCst) <= RATE / 10, "{granted:?}");
    });
}

#[test]
fn who_comes_while_limits_are_set_sees_them() {
    explore(|| {
        let limiter = RateLimiter::new(&total(None));
        let setter = {
            let limiter = limiter.clone();
            thread::spawn(move || limiter.set_limits(&total(Some(1000))))
        };
        let mut limit = limiter.register(DownloadId(1), "h");
        let before = limit.share();
        setter.join().unwrap();
        if before != Some(1000) {
            assert_eq!(limit.new_share(), Some(Some(1000)), "a change is told to who asks for changes");
        }
        assert_eq!(limit.share(), Some(1000));
        assert_eq!(try_take(&mut limit, 1), None, "a bucket begins empty");
    });
}

fn event(number: u64) -> Event {
    Event { id: DownloadId(number), kind: EventKind::Started { resumed_from: 0 } }
}

fn put(events: &Events, number: u64) {
    block_on(events.put(event(number), || {}));
}

#[test]
fn each_event_is_given_to_one_of_those_who_wait_and_the_end_to_all() {
    explore(|| {
        let events = Arc::new(Events::default());
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let events = Arc::clone(&events);
                thread::spawn(move || {
                    [(); 2].map(|()| match events.take(Duration::MAX) {
                        Taken::Event(event) => event.id.0,
                        other => panic!("{other:?} before the end"),
                    })
                })
            })
            .collect();
        let tellers: Vec<_> = (0..2)
            .map(|number| {
                let events = Arc::clone(&events);
                thread::spawn(move || (0..2).for_each(|n| put(&events, 10 * number + n)))
            })
            .collect();
        tellers.into_iter().for_each(|thread| thread.join().unwrap());
        let mut taken: Vec<u64> = takers.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 10, 11]);
        // Now they wait for the end.
        let takers = [(); 2].map(|()| {
            let events = Arc::clone(&events);
            thread::spawn(move || assert_eq!(events.take(Duration::MAX), Taken::Ended))
        });
        events.close();
        takers.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn who_finds_no_room_for_an_event_is_woken_by_room_and_by_the_end() {
    explore(|| {
        let events = Arc::new(Events::default());
        (0..MOST as u64).for_each(|number| put(&events, number));
        let teller = || {
            let events = Arc::clone(&events);
            thread::spawn(move || put(&events, 5000))
        };
        let [first, second] = [teller(), teller()];
        assert_eq!(events.take(Duration::ZERO), Taken::Event(event(0)));
        assert_eq!(events.take(Duration::ZERO), Taken::Event(event(1)));
        first.join().unwrap();
        second.join().unwrap();
        let third = teller();
        events.close();
        third.join().unwrap();
    });
}

#[test]
fn who_waits_for_a_sync_gets_one_that_began_after_the_call() {
    explore(|| {
        let syncs = Arc::new(SharedSyncs::default());
        let (written, durable) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let threads: Vec<_> = (0..3)
            .map(|number| {
                let syncs = Arc::clone(&syncs);
                let (written, durable) = (Arc::clone(&written), Arc::clone(&durable));
                thread::spawn(move || {
                    written.fetch_or(1 << number, Ordering::SeqCst);
                    let sync = || {
                        let begun_with = written.load(Ordering::SeqCst);
                        durable.fetch_or(begun_with, Ordering::SeqCst);
                        Ok(())
                    };
                    syncs.sync((1, 1), sync).unwrap();
                    assert!(durable.load(Ordering::SeqCst) & 1 << number != 0, "{number} is not saved");
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(syncs.present((1, 1)), 0);
    });
}
