//! What a person sees of downloads: a board of what is known, lines made from it, and the place
//! that shows them.

mod board;
mod line;
mod map;
mod plain;
mod render;
mod terminal;

use std::io;

pub(crate) use board::{Board, Said, Weight, failed};
pub(crate) use plain::Plain;
pub(crate) use render::render;
pub(crate) use terminal::Terminal;

/// Columns and lines of the terminal that standard error is, or of one that every program fits.
pub(crate) fn size() -> (usize, usize) {
    terminal_size::terminal_size_of(io::stderr())
        .map_or((80, 24), |(width, height)| (usize::from(width.0).max(1), usize::from(height.0).max(1)))
}
