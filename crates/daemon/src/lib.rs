//! The manager: claims jobs from a queue, has an engine carry them out, and records how they ended.
//!
//! Nothing here touches a terminal, arguments, the environment or an exit code: several managers can
//! live in one process.

mod downloads;
mod manager;

pub use downloads::Downloads;
pub use manager::{Manager, Notice, Settings, Stopper, Summary, WaitPolicy};
pub use tidegate_queue::{JobId, MemoryStore, Outcome};
