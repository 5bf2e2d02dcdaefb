//! Every way of the standard library in which threads wait for each other, often enough to be contended; and a
//! counter that is raised outside the lock, if told `wrong`.

use std::cell::UnsafeCell;
use std::sync::{Arc, Condvar, Mutex, OnceLock, RwLock, mpsc};
use std::thread;
use std::time::Duration;

const TIMES: u64 = 2000;
const THREADS: u64 = 4;

/// A counter that is safe to use if one thread uses it at a time.
struct Counter(UnsafeCell<u64>);

unsafe impl Sync for Counter {}

impl Counter {
    fn raise(&self) {
        unsafe { *self.0.get() += 1 }
    }
}

fn main() {
    let wrong = std::env::args().nth(1).is_some_and(|word| word == "wrong");
    let counter = Arc::new(Counter(UnsafeCell::new(0)));
    let shared = Arc::new((Mutex::new(0), Condvar::new(), OnceLock::new(), RwLock::new(vec![0])));
    let (sender, receiver) = mpsc::sync_channel(1);
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let (counter, shared, sender) = (Arc::clone(&counter), Arc::clone(&shared), sender.clone());
            thread::spawn(move || {
                let (count, changed, first, list) = &*shared;
                for time in 0..TIMES {
                    let mut count = count.lock().unwrap();
                    *count += 1;
                    if wrong {
                        drop(count);
                        counter.raise();
                    } else {
                        counter.raise();
                        drop(count);
                    }
                    changed.notify_all();
                    let _: &Vec<u64> = first.get_or_init(|| vec![number]);
                    list.write().unwrap()[0] += 1;
                    if time % 100 == 0 {
                        sender.send(vec![list.read().unwrap()[0]]).unwrap();
                    }
                }
            })
        })
        .collect();
    drop(sender);
    assert_eq!(receiver.iter().flatten().count() as u64, THREADS * TIMES / 100);
    let (count, changed, ..) = &*shared;
    let mut count = count.lock().unwrap();
    while *count < THREADS * TIMES {
        count = changed.wait_timeout(count, Duration::from_millis(1)).unwrap().0;
    }
    drop(count);
    let mut local = 0;
    thread::scope(|scope| {
        scope.spawn(|| local += 1);
    });
    assert_eq!(local, 1);
    // The last owner frees it, whichever thread that is.
    drop((shared, counter));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
