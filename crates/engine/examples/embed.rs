//! The engine in a program of one's own: `embed [--in-process] URL FOLDER`.
//!
//! By default it runs in a process of its own, for which this program is started once more: the first line of `main`
//! is all that takes. With `--in-process` it runs on threads of this program, and nothing keeps what comes from the
//! network from the user's files.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tidegate_core::Failure;
use tidegate_core::message::EventKind;
use tidegate_core::request::{Destination, Mirror, Request};
use tidegate_engine::config::{Config, Mode};
use tidegate_engine::{Engine, run_if_child};

fn main() -> ExitCode {
    if let Some(code) = run_if_child() {
        return code;
    }
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let in_process = words.first().is_some_and(|word| word == "--in-process");
    words.drain(..usize::from(in_process));
    let [url, folder] = words.as_slice() else {
        eprintln!("usage: embed [--in-process] URL FOLDER");
        return ExitCode::from(2);
    };
    let mode = if in_process { Mode::InProcess } else { Mode::Child { program: None, whole: false } };
    match fetch(url, folder.into(), mode) {
        Ok(path) => {
            println!("{}", path.display());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn fetch(url: &str, dir: PathBuf, mode: Mode) -> Result<PathBuf, Failure> {
    let engine = Engine::start(Config { mode, ..Config::default() })?;
    for layer in &engine.isolation().missing {
        eprintln!("note: this system does not have the layer {layer}");
    }
    let destination = Destination::File { dir, name: None, adopt: None };
    engine.start(Request::new(vec![Mirror::parse(url)?], destination)?)?;
    let outcome = loop {
        let Some(event) = engine.next_event(Duration::MAX)? else { continue };
        match event.kind {
            EventKind::Completed { path: Some(path), .. } => break Ok(path),
            EventKind::Failed { failure, .. } => break Err(failure),
            told => eprintln!("{told:?}"),
        }
    };
    engine.shutdown(Duration::from_secs(10))?;
    outcome
}
