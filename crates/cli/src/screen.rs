//! Where a run is shown: pictures on a terminal, lines in a log, events as JSON, or only errors.

use crate::config::Output;
use crate::environment::Environment;
use crate::json;
use crate::progress::{self, Board, Plain, Said, Terminal, Weight};
use crate::style::{self, Style, Tone};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};
use tidegate_core::message::{EventKind, Progress};

/// The least time between two reports of progress as JSON.
const JSON_EVERY: Duration = Duration::from_secs(1);

/// A sentence as the lines that it takes on standard error: several only on a terminal.
pub(crate) fn lines(text: &str, terminal: bool) -> Vec<String> {
    if !terminal {
        return vec![text.to_owned()];
    }
    // The last column stays free, as in the picture.
    style::wrap(text, progress::size().0.saturating_sub(1).max(1), 2)
}

/// Shows a run.
pub(crate) struct Screen {
    board: Board,
    face: Face,
    style: Style,
    verbose: bool,
    terminal: bool,
    start: Instant,
    waiting_lines: Vec<String>,
    gone: bool,
}

enum Face {
    Quiet,
    Plain(Plain),
    Terminal(Terminal<io::Stderr>),
    Json { last: Option<Duration> },
}

impl Screen {
    /// A screen as wanted, for a board without downloads yet. A terminal that the file itself goes to is not
    /// drawn on.
    pub(crate) fn new(output: Output, board: Board, environment: &Environment) -> Self {
        let terminal = io::stderr().is_terminal();
        let style = Style::new(output.color, terminal, environment);
        let drawable = terminal
            && environment.text("TERM") != Some("dumb")
            && !(board.to_stdout && io::stdout().is_terminal());
        let face = if output.json {
            Face::Json { last: None }
        } else if output.quiet {
            Face::Quiet
        } else if drawable {
            Face::Terminal(Terminal::new(io::stderr()))
        } else {
            Face::Plain(Plain::default())
        };
        Self {
            board,
            face,
            style,
            verbose: output.verbose,
            terminal,
            start: Instant::now(),
            waiting_lines: Vec::new(),
            gone: false,
        }
    }

    /// Whether the one who read the events has gone away.
    pub(crate) fn reader_is_gone(&self) -> bool {
        self.gone
    }

    /// Adds a download.
    pub(crate) fn add(&mut self, job: u64, name: &str, line: impl FnOnce() -> serde_json::Value) {
        self.board.add(job, name);
        if matches!(self.face, Face::Json { .. }) {
            self.json(&line());
        }
    }

    /// Says a sentence about the run.
    pub(crate) fn say(&mut self, said: Said) {
        let most = match self.face {
            _ if self.verbose => Weight::Verbose,
            Face::Quiet => Weight::Always,
            Face::Terminal(_) => Weight::Usual,
            Face::Plain(_) => Weight::Log,
            // Failures are events.
            Face::Json { .. } => return,
        };
        if said.weight <= most {
            self.sentence(said.tone, &said.text);
        }
    }

    /// Says what a person should know before anything happens, on standard error even with JSON.
    pub(crate) fn note(&mut self, sentence: &str) {
        if !matches!(self.face, Face::Quiet) {
            self.sentence(Tone::Note, &format!("note: {}", crate::style::harmless(sentence)));
        }
    }

    /// Shows what happened.
    pub(crate) fn event(&mut self, job: u64, event: &EventKind) {
        if matches!(self.face, Face::Json { .. }) {
            self.json(&json::event(job, event));
        }
        for said in self.board.event(job, event, self.start.elapsed()) {
            self.say(said);
        }
    }

    /// Ends a download whose bytes went to standard output, which nobody reads any more.
    pub(crate) fn reader_left(&mut self, job: u64) {
        if let Some(said) = self.board.reader_left(job) {
            self.say(said);
        }
    }

    /// Whether it is time to ask how far everything is.
    pub(crate) fn wants_progress(&self) -> bool {
        let now = self.start.elapsed();
        match &self.face {
            Face::Quiet => false,
            Face::Plain(plain) => plain.is_due(now),
            Face::Terminal(terminal) => terminal.is_due(now),
            Face::Json { last } => last.is_none_or(|last| now >= last + JSON_EVERY),
        }
    }

    /// Shows how far everything is.
    pub(crate) fn progress(&mut self, all: Vec<(u64, Progress)>) {
        let now = self.start.elapsed();
        if let Face::Json { last } = &mut self.face {
            *last = Some(now);
            let lines: Vec<_> = all.iter().map(|(job, progress)| json::progress(*job, progress)).collect();
            lines.iter().for_each(|line| self.json(line));
            return;
        }
        for (job, progress) in all {
            self.board.progress(job, progress);
        }
        match &mut self.face {
            Face::Plain(plain) => {
                for line in plain.due(&self.board, now) {
                    self.line(line);
                }
            }
            Face::Terminal(terminal) => {
                let (width, height) = progress::size();
                // The last column stays free: a sign there would make some terminals begin a new line.
                let picture = progress::render(&self.board, width - 1, height - 1, self.verbose, self.style);
                let kept = std::mem::take(&mut self.waiting_lines);
                let _ = terminal.draw(&kept, &picture, width, now);
            }
            Face::Quiet | Face::Json { .. } => {}
        }
    }

    /// Whether nothing final has been told of a download.
    pub(crate) fn is_open(&self, job: u64) -> bool {
        self.board.name(job).is_some()
    }

    /// The name of a download of which nothing final has been told.
    pub(crate) fn name(&self, job: u64) -> String {
        self.board.name(job).unwrap_or_default().to_owned()
    }

    /// Takes the picture away and says what is to be said at the end.
    pub(crate) fn end(&mut self, last: Option<&serde_json::Value>) {
        if let Face::Terminal(terminal) = &mut self.face {
            let kept = std::mem::take(&mut self.waiting_lines);
            let _ = terminal.draw(&kept, &[], progress::size().0, self.start.elapsed());
        }
        // What is said from now on needs no picture to be above of.
        if matches!(self.face, Face::Terminal(_)) {
            self.face = Face::Plain(Plain::default());
        }
        if let (Face::Json { .. }, Some(line)) = (&self.face, last) {
            self.json(line);
        }
    }

    /// A sentence that stays. On a terminal it is broken between words; a log gets it whole, to be searched.
    fn sentence(&mut self, tone: Tone, text: &str) {
        for line in lines(text, self.terminal) {
            self.line(self.style.paint(tone, &line));
        }
    }

    fn line(&mut self, mut line: String) {
        match &self.face {
            Face::Terminal(_) => self.waiting_lines.push(line),
            // Nobody is left to be told that nobody is left.
            _ => {
                // In one piece: others may write there too.
                line.push('\n');
                let _ = io::stderr().write_all(line.as_bytes());
            }
        }
    }

    fn json(&mut self, line: &serde_json::Value) {
        let mut out = io::stdout().lock();
        if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            self.gone = true;
        }
    }
}
