//! `tidegate get`: requests in, files out, one exit code.

use crate::args::GetArgs;
use crate::config::{self, Config};
use crate::engine;
use crate::environment::Environment;
use crate::exit::Exit;
use crate::json;
use crate::progress::{Board, Said, Weight, failed};
use crate::raw::RawConfig;
use crate::requests::{requests, working_name};
use crate::screen::Screen;
use crate::signals::{SIGPIPE, nobody_reads_stdout, on_stop};
use crate::style::Tone;
use crate::trouble::Trouble;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Duration;
use tidegate_core::message::{EventKind, Limits};
use tidegate_core::request::Destination;
use tidegate_core::units::show_rate;
use tidegate_core::{Code, Failure};
use tidegate_daemon::{Manager, MemoryStore, Notice, Outcome, Settings, WaitPolicy};
use tidegate_engine::{Engine, Isolation};

/// How long the engine may take to end when all downloads have.
const TO_END: Duration = Duration::from_secs(1);

/// Fetches what was asked for.
///
/// # Errors
/// When the command or the configuration makes no sense; failures of downloads are in the exit code.
pub(crate) fn get(args: &GetArgs, environment: &Environment) -> Result<Exit, Trouble> {
    let raw = RawConfig::load(environment, &args.settings.given)?;
    let config = Config::new(&raw, environment)?;
    let asked = requests(args, &raw, &config, environment)?;
    let (settings, notes) = engine::settings(&config)?;

    let to_stdout = asked.requests.iter().any(|r| r.destination == Destination::Stdout);
    if to_stdout && !args.dry_run && io::stdout().is_terminal() {
        return Err(Trouble::usage("-o - would write the file to this terminal, which could garble it")
            .next(
                "Name a file with -o, or lead the bytes elsewhere; for a text, `-o - URL | cat` shows it.",
            ));
    }
    let mut board = Board::default();
    (board.dry_run, board.to_stdout) = (args.dry_run, to_stdout);
    board.waits_for_machine = config.wait_for_disk;
    let mut screen = Screen::new(config.output, board, environment);
    for note in raw.notes.iter().chain(&asked.notes).chain(&notes).chain(&slow_limits(&config.limits)) {
        screen.note(note);
    }

    let engine = Engine::start(settings)?;
    if let Some(note) = about_isolation(engine.isolation(), config.network.engine, config.output.verbose) {
        screen.note(&note);
    }
    let wait = if config.wait_for_disk { WaitPolicy::Hold } else { WaitPolicy::Fail };
    let settings = Settings { jobs: config.jobs, wait, stop_after_failure: config.fail_fast };
    let manager = Manager::new(engine.clone(), Arc::new(MemoryStore::new()), settings);
    let stopper = manager.stopper();
    let stopped = on_stop(move || stopper.stop())?;
    let added = asked.requests.len();
    for request in asked.requests {
        let name = working_name(&request);
        let described = request.clone();
        let job = manager.add(request)?;
        screen.add(job.0, &name, || json::added(job.0, &described));
    }

    let stopper = manager.stopper();
    let mut reader_left = false;
    let summary = manager.run(&mut |notice| {
        match notice {
            Notice::Event { job, event } if to_stdout && is_of_the_disk(&event) && nobody_reads_stdout() => {
                // What could not be written to nobody is no trouble with a disk.
                reader_left = true;
                screen.reader_left(job.0);
                stopper.stop();
            }
            Notice::Event { job, event } => screen.event(job.0, &event),
            Notice::Tick => {}
        }
        if screen.wants_progress() {
            let mut all = Vec::new();
            if manager.look(&mut |job, progress| all.push((job.0, progress.clone()))).is_ok() {
                screen.progress(all);
            }
        }
        if screen.reader_is_gone() {
            stopped.note(SIGPIPE);
            stopper.stop();
        }
    });

    let ended = summary.failure.as_ref();
    let signal = stopped.by().filter(|_| summary.interrupted);
    let count = |is: fn(&Outcome) -> bool| summary.outcomes.iter().filter(|(_, o)| is(o)).count();
    let completed = count(|o| matches!(o, Outcome::Completed { .. }));
    let given_up = count(|o| matches!(o, Outcome::Failed { .. }) || exit_of(o) == Exit::GaveUp);
    // Those that never began have no outcome.
    let incomplete = added.saturating_sub(completed + given_up);
    let of_the_run = [
        signal.map(Exit::Signal),
        reader_left.then_some(Exit::Signal(SIGPIPE)),
        ended.map(Exit::of_failure),
        (incomplete > 0).then_some(Exit::Incomplete),
    ];
    let outcomes = summary.outcomes.iter().map(|(_, outcome)| exit_of(outcome));
    let exit = Exit::gravest(outcomes.chain(of_the_run.into_iter().flatten()));
    let last = json::finished(completed, given_up, incomplete, exit);
    screen.end(Some(&last));
    for (job, outcome) in &summary.outcomes {
        for said in unsaid(&screen, job.0, outcome) {
            screen.say(said);
        }
    }
    let told = |failure| summary.outcomes.iter().any(|(_, o)| failure_of(o) == Some(failure));
    if let Some(failure) = ended.filter(|failure| !told(failure)) {
        failed("tidegate", failure, 0).into_iter().for_each(|said| screen.say(said));
    }
    if added > 1 && given_up > 0 {
        // Which ones was said above, perhaps long ago.
        let text = if args.dry_run {
            format!("{completed} of {added} could be fetched, {given_up} could not (see above)")
        } else {
            format!("{completed} of {added} done, {given_up} given up (see above)")
        };
        screen.say(Said::new(Tone::Bad, Weight::Usual, text));
    }
    if incomplete > 0 {
        let some = !to_stdout && summary.outcomes.iter().any(|(_, outcome)| kept(outcome) > 0);
        let why_is_told = summary.outcomes.iter().any(|(_, outcome)| failure_of(outcome).is_some());
        let text = match some {
            // Of a single one all is said already.
            _ if added == 1 && why_is_told => None,
            false if added == 1 => None,
            true => Some(format!("{incomplete} not complete; the same command goes on from what is here")),
            false if args.dry_run => Some(format!("{incomplete} not asked about")),
            false => Some(format!("{incomplete} not complete, and nothing of it is here yet")),
        };
        text.into_iter().for_each(|text| screen.say(Said::new(Tone::Note, Weight::Usual, text)));
    }
    if let Some(path) = &config.asking.save_cookies {
        engine::save_cookies(&engine.cookies()?, path)?;
    }
    // Everything has ended by now, so there is nothing to wait for but a disk that hangs.
    let _ = engine.shutdown(TO_END);
    Ok(exit)
}

/// What a person should know of how far what talks to the network is isolated.
fn about_isolation(isolation: &Isolation, engine: config::Engine, verbose: bool) -> Option<String> {
    let missing = isolation.missing.join(", ");
    match engine {
        config::Engine::InProcess => None,
        config::Engine::Child { .. } if !isolation.holds() => Some(format!(
            "what talks to the network could see your files if it were taken over: this system lacks {missing} (see \
             `tidegate doctor`)"
        )),
        // The layers that are there refuse all of it; those would do so once more.
        config::Engine::Child { .. } => (verbose && !missing.is_empty())
            .then(|| format!("this system lacks layers of isolation: {missing} (see `tidegate doctor`)")),
    }
}

/// What a person should know of limits below any that is meant: `--limit 8` for 8 MiB a second.
fn slow_limits(limits: &Limits) -> Vec<String> {
    const HARDLY_MEANT: u64 = 1 << 10;
    let all = [("--limit", limits.total), ("--limit-each", limits.each), ("--limit-host", limits.host)];
    let slow =
        all.into_iter().filter_map(|(option, limit)| Some((option, limit.filter(|l| *l < HARDLY_MEANT)?)));
    slow.map(|(option, limit)| format!("{option} {limit} is {}; {limit}M is {limit} MiB/s", show_rate(limit)))
        .collect()
}

/// How a download's outcome ends the program.
fn exit_of(outcome: &Outcome) -> Exit {
    match outcome {
        Outcome::Completed { .. } => Exit::Done,
        Outcome::Failed { failure, .. } => Exit::of_failure(failure),
        // Nothing is there to go on from, and the same command cannot work as things are.
        Outcome::Incomplete { failure: Some(failure), kept: 0 } if failure.code == Code::PermissionDenied => {
            Exit::GaveUp
        }
        Outcome::Incomplete { .. } => Exit::Incomplete,
    }
}

/// Whether this tells that writing failed.
fn is_of_the_disk(event: &EventKind) -> bool {
    matches!(event, EventKind::Waiting { failure, .. } | EventKind::Failed { failure, .. } if failure.code == Code::DiskError)
}

/// What must still be said of a download that no event has ended.
fn unsaid(screen: &Screen, job: u64, outcome: &Outcome) -> Vec<Said> {
    if !screen.is_open(job) {
        return Vec::new();
    }
    failure_of(outcome).map(|failure| failed(&screen.name(job), failure, kept(outcome))).unwrap_or_default()
}

/// Bytes that another run can go on from.
fn kept(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::Failed { kept, .. } | Outcome::Incomplete { kept, .. } => *kept,
        Outcome::Completed { .. } => 0,
    }
}

fn failure_of(outcome: &Outcome) -> Option<&Failure> {
    match outcome {
        Outcome::Failed { failure, .. } => Some(failure),
        Outcome::Incomplete { failure, .. } => failure.as_ref(),
        Outcome::Completed { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::message::Proof;

    #[test]
    fn a_limit_that_lacks_its_unit_is_pointed_out() {
        let limits = Limits { total: Some(8), each: Some(1 << 20), ..Limits::default() };
        assert_eq!(slow_limits(&limits), ["--limit 8 is 8 B/s; 8M is 8 MiB/s"]);
        assert_eq!(slow_limits(&Limits::default()), Vec::<String>::new());
    }

    #[test]
    fn each_outcome_has_its_exit_code() {
        let failed = |code| Outcome::Failed { failure: Failure::new(code, ""), kept: 0 };
        let table = [
            (
                Outcome::Completed {
                    path: None,
                    length: 1,
                    proof: Proof::Sampled,
                    already: false,
                    received: 1,
                },
                0,
            ),
            (failed(Code::NotFound), 1),
            (failed(Code::Exists), 1),
            (failed(Code::Cancelled), 1),
            (failed(Code::BadUrl), 2),
            (failed(Code::DigestMismatch), 4),
            (failed(Code::LengthMismatch), 4),
            (Outcome::Incomplete { failure: Some(Failure::new(Code::DiskFull, "")), kept: 9 }, 3),
            (Outcome::Incomplete { failure: Some(Failure::new(Code::PermissionDenied, "")), kept: 0 }, 1),
            (Outcome::Incomplete { failure: None, kept: 0 }, 3),
        ];
        for (outcome, code) in table {
            assert_eq!(exit_of(&outcome).code(), code);
        }
    }
}
