//! Where locks, channels, atomics and timers come from: the standard library and tokio. Only when the crate's own
//! tests are compiled with `--cfg shuttle` do they come from a model checker, which runs threads one at a time in
//! as many orders as it is given time for (`scripts/sanitizers.sh model`).

#[cfg(not(all(test, shuttle)))]
mod bell;
#[cfg(not(all(test, shuttle)))]
pub(crate) use self::bell::Bell;
#[cfg(not(all(test, shuttle)))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic, mpsc};
#[cfg(not(all(test, shuttle)))]
pub(crate) use tokio::{sync::Notify, time};

#[cfg(all(test, shuttle))]
mod model;
#[cfg(all(test, shuttle))]
pub(crate) use self::model::{Bell, Notify, mpsc, time};
#[cfg(all(test, shuttle))]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};
