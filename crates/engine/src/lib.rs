//! Carries out what `tidegate-core` decides: sockets, part files, timers.

pub mod config;
pub mod handle;
pub mod limiter;

pub use config::Config;
pub use handle::{Engine, EngineHandle};
pub use limiter::RateLimiter;
