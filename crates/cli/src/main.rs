//! The program `tidegate`. Only here are argv, the environment, the configuration's files and the exit
//! code touched; everything that is decided about a download is decided elsewhere.

mod args;
mod config;
mod doctor;
mod engine;
mod environment;
mod exit;
mod files;
mod generate;
mod get;
mod json;
mod progress;
mod raw;
mod requests;
mod screen;
mod settings;
mod show;
mod signals;
mod style;
mod trouble;
mod verify;

use args::{Cli, ConfigTask, Task};
use config::Color;
use environment::Environment;
use exit::Exit;
use raw::RawConfig;
use screen::lines;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use style::{Style, Tone, harmless};
use trouble::Trouble;

fn main() -> ExitCode {
    if tidegate_confine::probe::run_if_asked() {
        return ExitCode::SUCCESS;
    }
    if let Some(code) = tidegate_engine::run_if_child() {
        return code;
    }
    tidegate_engine::sys::raise_open_file_limit();
    let environment = Environment::of_this_process();
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody is left to be told that nobody is left.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let style = Style::new(Color::Auto, io::stderr().is_terminal(), &environment);
    let exit = run(cli.task, &environment, style).unwrap_or_else(|trouble| {
        let _ = tell(&trouble, style);
        trouble.exit
    });
    ExitCode::from(exit.code())
}

fn run(task: Task, environment: &Environment, style: Style) -> Result<Exit, Trouble> {
    match task {
        Task::Get(args) => get::get(&args, environment),
        Task::Verify(args) => verify::verify(&args, style, io::stderr().is_terminal()),
        Task::Config(ConfigTask::Show { origin, settings }) => {
            let raw = RawConfig::load(environment, &settings.given)?;
            for note in &raw.notes {
                for line in lines(&harmless(&format!("note: {note}")), io::stderr().is_terminal()) {
                    let _ = writeln!(io::stderr(), "{line}");
                }
            }
            emit(show::show(&raw, environment, origin)?.as_bytes())
        }
        Task::Doctor(args) => {
            let style = Style::new(Color::Auto, io::stdout().is_terminal(), environment);
            let (text, exit) = doctor::doctor(&args, style)?;
            emit(text.as_bytes()).map(|_| exit)
        }
        Task::Completions { shell } => emit(&generate::completions(shell)),
        Task::Man { page, out: None } => {
            let text = generate::man(page.as_deref())?;
            let exit = emit(&text)?;
            if io::stdout().is_terminal() {
                let words = page.map_or_else(|| "man".to_owned(), |page| format!("man {page}"));
                let _ = writeln!(
                    io::stderr(),
                    "note: this is the source of the page; to read it: tidegate {words} | man -l -"
                );
            }
            Ok(exit)
        }
        Task::Man { out: Some(folder), .. } => generate::write_all(&folder).map(|()| Exit::Done),
    }
}

/// Writes to standard output. A reader that has seen enough is no failure.
fn emit(bytes: &[u8]) -> Result<Exit, Trouble> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(Trouble::configuration(format!("standard output cannot be written: {e}")))
        }
        _ => Ok(Exit::Done),
    }
}

/// A sentence with its word, and what to do next.
fn tell(trouble: &Trouble, style: Style) -> io::Result<()> {
    let mut err = io::stderr().lock();
    let terminal = err.is_terminal();
    let name = "tidegate:";
    for (number, line) in
        lines(&format!("{name} {}", harmless(&trouble.to_string())), terminal).iter().enumerate()
    {
        match line.strip_prefix(name).filter(|_| number == 0) {
            Some(rest) => writeln!(err, "{}{rest}", style.paint(Tone::Bad, name))?,
            None => writeln!(err, "{line}")?,
        }
    }
    if let Some(next) = &trouble.next {
        for line in lines(&format!("  {}", harmless(next)), terminal) {
            writeln!(err, "{line}")?;
        }
    }
    Ok(())
}
