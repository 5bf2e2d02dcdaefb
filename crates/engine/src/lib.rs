//! Carries out what `tidegate-core` decides: sockets, part files, timers.

pub mod config;
pub mod connect;
pub mod decode;
pub mod disk;
pub mod failure;
pub mod handle;
pub mod http1;
pub mod landing;
pub mod limiter;
pub mod part_file;
pub mod sys;
pub mod verify;

pub use config::Config;
pub use failure::FetchError;
pub use handle::{Engine, EngineHandle};
pub use limiter::RateLimiter;
