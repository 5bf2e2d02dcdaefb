//! Carries out what `tidegate-core` decides: sockets, part files, timers.
//!
//! Three kinds of thread: one *control thread* that owns every decision and never writes to a disk
//! (`engine`), one *data thread* for each file system that moves bytes (`data`, `fetch`), and one
//! *cold thread* for each folder or stream that may wait for its disk (`lanes`), where the downloads into that
//! folder live (`download`).

mod answer_slot;
mod child;
pub mod config;
pub mod connect;
mod data;
pub mod decode;
pub mod disk;
mod download;
mod engine;
mod events;
pub mod failure;
mod fetch;
mod gather;
pub mod handle;
mod hosts;
pub mod http1;
pub mod landing;
mod lanes;
pub mod limiter;
mod loan;
#[cfg(all(test, shuttle))]
mod model;
pub mod part_file;
mod places;
pub mod protocol;
mod room;
mod session;
mod splice;
mod supervisor;
mod sync;
pub mod syncs;
pub mod sys;
mod target;
mod threads;
pub mod verify;

pub use child::run_if_child;
pub use config::{Ask, Config, Isolation, Mode};
pub use failure::FetchError;
pub use handle::{Engine, EngineHandle};
pub use limiter::RateLimiter;
