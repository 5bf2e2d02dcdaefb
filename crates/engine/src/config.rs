//! What an engine is told once, at its start.

use tidegate_core::message::Limits;

/// Settings of an engine. Nothing here is read from files, environment or arguments: whoever starts
/// the engine has read them.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Limits at the start; [`crate::EngineHandle::set_limits`] changes them later.
    pub limits: Limits,
}
