//! The engine as a process of its own, which is killed at any moment: what is fetched comes right, goes on without
//! anybody's help, and nothing is left behind.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says figures"
)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../mounts/mod.rs"]
mod mounts;

#[path = "../common/sys/old_kernel.rs"]
mod old_kernel;

mod endings;
mod kill_loop;
mod moments;
mod processes;
mod program;

use common::{Bench, LONGEST, embed};
use std::time::Instant;
use tidegate_core::DownloadId;
use tidegate_core::message::EventKind;
use tidegate_engine::{Config, Mode};

const MIB: u64 = 1 << 20;

/// What the end of a process may cost for each connection: the bytes between two records of the map, and what was on
/// its way.
const PRICE: u64 = MIB + (64 << 10);

/// A bench whose engine runs in a child, however these tests are run.
fn bench() -> Bench {
    let mode = Mode::Child { program: Some(embed()), whole: false };
    Bench::with(Config { seed: Some(1), mode, ..Config::default() })
}

/// The number of the engine's process, which is there.
fn process(bench: &Bench) -> u32 {
    let until = Instant::now() + LONGEST;
    loop {
        if let Some(number) = bench.engine.process() {
            return number;
        }
        assert!(Instant::now() < until, "there is no process");
        std::thread::yield_now();
    }
}

/// Follows a download until it tells that another process goes on with it; what it said, or how it ended before.
fn goes_on(bench: &Bench, id: DownloadId) -> Result<String, EventKind> {
    let until = Instant::now() + LONGEST;
    while Instant::now() < until {
        let Some(event) = bench.engine.next_event(std::time::Duration::from_secs(1)).unwrap() else {
            continue;
        };
        match event.kind {
            EventKind::Notice { message } if event.id == id && message.contains("going on") => {
                return Ok(message);
            }
            EventKind::Paused { .. } => {}
            kind if event.id == id && kind.is_final() => return Err(kind),
            _ => {}
        }
    }
    panic!("nothing goes on: {:?}", bench.engine.snapshot());
}
