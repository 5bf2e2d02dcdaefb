//! Ctrl-C and the wish to end: what was made for a measurement, folders and lines, is taken away first.

use crate::trouble::Trouble;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on a signal is a wish; the second one ends the program as it always would.
///
/// # Errors
/// Those of `sigaction`.
pub(crate) fn watch() -> io::Result<()> {
    let asked = ASKED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(asked))?;
        signal_hook::flag::register(signal, Arc::clone(asked))?;
    }
    Ok(())
}

/// Whether the program is to end.
pub(crate) fn is_asked() -> bool {
    ASKED.get().is_some_and(|asked| asked.load(Ordering::Relaxed))
}

/// Fails if the program is to end.
///
/// # Errors
/// When it was asked to.
pub(crate) fn check() -> Result<(), Trouble> {
    if is_asked() { Err(Trouble::new("interrupted")) } else { Ok(()) }
}
