//! Carries out what `tidegate-core` decides: sockets, part files, timers.

pub mod config;
pub mod disk;
pub mod handle;
pub mod landing;
pub mod part_file;
pub mod sys;
pub mod verify;

pub use config::Config;
pub use handle::{Engine, EngineHandle};
