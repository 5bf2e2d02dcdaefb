//! Makes a process unable to do what it was not made for.
//!
//! A process that parses bytes from strangers may one day run a stranger's code. What that code can do then is
//! decided here, before it is there: a [`Profile`] says as data what a kind of process needs, [`begin`] and
//! [`Half::finish`] take everything else away in several [layers](Layer), and a [`Report`] tells which of them
//! this kernel gave. [`spawn`] starts such a process with nothing but what it is given, and [`probe`] shows each
//! layer at work on this machine.
//!
//! ```no_run
//! use tidegate_confine::{ENGINE, Layers, begin};
//!
//! // First thing in main: no other thread, nothing open but what this process was started with.
//! let half = begin(&ENGINE, Layers::ALL)?;
//! // Threads are started here, since none can be later, and have arrived before the next line.
//! let report = half.finish();
//! for (layer, state) in report.shortcomings() {
//!     // To the log: a layer is never missing in silence.
//!     let _ = format!("{layer}: {state}");
//! }
//! # Ok::<(), tidegate_confine::LockError>(())
//! ```
//!
//! It depends on nothing else of ours: it does not know what it confines.

mod filter;
mod level;
mod lock;
pub mod probe;
mod profile;
mod report;
pub mod spawn;
mod sys;

pub use level::{Level, Namespaces};
pub use lock::{Half, LockError, begin};
pub use profile::{ENGINE, Profile};
pub use report::{Layer, Layers, Report, State, Why};
