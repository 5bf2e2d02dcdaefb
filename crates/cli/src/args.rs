//! The command line: words in, types out. Nothing here looks at files or the environment.

use crate::settings::{Kind, SETTINGS, Setting};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

const ABOUT: &str = "Fetches files whole, or not at all";

const EXAMPLES: &str = "\
Examples:
  tidegate https://example.org/big.iso          fetch a file; the same command goes on after a break
  tidegate -d ~/iso -o new.iso URL              into this folder, under this name
  tidegate --checksum sha-256=2c26b46b… URL     accept only these bytes
  tidegate --mirror URL2 URL1                   one file from two places
  tidegate -j 8 -i list.txt                     many files, eight at a time
  tidegate -M ubuntu.meta4                      what a Metalink file describes
  tidegate --limit 2M --expand 'https://h/[01-12].zip'
  tidegate -o - URL | tar x                     to standard output, in order
  tidegate URL --adopt big.iso.crdownload       go on from what a browser left

Every switch has an opposite (--no-json, --no-netrc, …) for what a file or variable turned on.
Sizes and rates: 500k, 1M, 2GiB (k, M, G are powers of 1024; kB, MB, GB of 1000).
Times: 500ms, 30s, 5m, 1h30m.";

const ENDINGS: &str = "\
Exit codes (of several files the gravest: a signal, then 4, 5, 2, 1, 3, 0):
  0 done
  1 gave up: the server or the network failed to the last, or it cannot work as asked
  2 wrong usage or configuration
  3 incomplete: this machine stopped it (disk full, …), or it had no turn; run again to go on
  4 not the bytes that it should be
  5 not used yet
  130 interrupted, all saved (128 and the signal's number; 141: nobody reads standard output)

Settings come from defaults, /etc/tidegate/config.toml, $XDG_CONFIG_HOME/tidegate/config.toml,
TIDEGATE_* and options, each over those before it. `tidegate config show --origin` tells which.";

const OFTEN: &str = "\
`tidegate URL` means `tidegate get URL`. Its options most used (`tidegate get --help` has them all):
  -d, --dir DIR            folder to put files into [default: .]
  -o, --output NAME        name of the file, or - for standard output
  -i, --input-file FILE    fetch what this file lists
  -x, --connections N      most connections for one file [default: 8]
  -j, --jobs N             files to fetch at a time [default: 4]
      --limit RATE         bytes a second, everything together [default: none]
      --checksum ALG=HEX   the digest that the file must have
      --json               one event a line on standard output
";

/// Options of wget and curl, and what is done here instead.
const HABITS: &[(&[&str], &str)] = &[
    (
        &["-c", "-C", "--continue", "--continue-at"],
        "leave it out: the same command goes on from what is here by itself",
    ),
    (
        &["-O", "--remote-name", "--output-document"],
        "the file gets the name of the link or the server; -o NAME gives it another",
    ),
    (&["-L", "--location"], "leave it out: redirects are followed"),
    (&["-P", "--directory-prefix", "--output-dir"], "-d DIR names the folder"),
    (&["-k", "--no-check-certificate"], "--insecure does not check certificates"),
];

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate",
    version,
    about = ABOUT,
    after_help = format!("{OFTEN}\n{EXAMPLES}\n\n{ENDINGS}"),
    override_usage = "tidegate [OPTIONS] URL...\n       tidegate <COMMAND>",
    disable_help_subcommand = true,
    arg_required_else_help = true,
    max_term_width = 110
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) task: Task,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Fetch files (the word `get` may be left out)
    #[command(after_help = format!("{EXAMPLES}\n\n{ENDINGS}"))]
    Get(Box<GetArgs>),
    /// Check that files here have the digests that they should
    #[command(after_help = "\
Examples:
  tidegate verify big.iso --checksum sha-256=2c26b46b…
  tidegate verify --checksum-file SHA256SUMS            every file that it lists
  tidegate verify -M ubuntu.meta4                       tells which pieces are wrong

Exit codes: 0 all are right · 1 a file cannot be read · 2 wrong usage · 4 a file is wrong")]
    Verify(VerifyArgs),
    /// Show the configuration
    #[command(subcommand)]
    Config(ConfigTask),
    /// Show how far this system isolates what talks to the network
    #[command(after_help = "\
Examples:
  tidegate doctor             each layer of the isolation, tried out, and what it takes to have those that are missing
  tidegate doctor --json      the same for a program
  tidegate doctor --rules     what the isolated process may do, and why

Exit codes: 0 every layer holds · 1 one is missing or does not hold · 2 wrong usage")]
    Doctor(DoctorArgs),
    /// Print completions for a shell
    #[command(after_help = "\
Examples:
  tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate
  tidegate completions fish > ~/.config/fish/completions/tidegate.fish
  tidegate completions zsh  > \"${fpath[1]}/_tidegate\"")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a manual page, or write all of them
    #[command(after_help = "\
Examples:
  tidegate man | man -l -           read the page of tidegate itself
  tidegate man get | man -l -       read the page of a command
  tidegate man --out ~/.local/share/man/man1")]
    Man {
        /// The command whose page to print, as source for `man -l -`; without it, the page of tidegate itself
        #[arg(conflicts_with = "out")]
        page: Option<String>,
        /// Write every page into this folder instead
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

/// What `get` is told.
#[derive(Args, Debug, Default)]
pub(crate) struct GetArgs {
    /// What to fetch (http or https)
    #[arg(value_name = "URL")]
    pub(crate) urls: Vec<String>,
    /// Name of the file (may hold folders), or - for standard output; for one URL only [default: the
    /// server's or the link's name]
    #[arg(short, long, value_name = "NAME", help_heading = "What to fetch")]
    pub(crate) output: Option<PathBuf>,
    /// Fetch what this file (- for standard input) lists: a line for each, places of the same file
    /// divided by tabs, indented lines below it for options (dir=, out=, checksum=, …)
    #[arg(short, long, value_name = "FILE", help_heading = "What to fetch")]
    pub(crate) input_file: Option<PathBuf>,
    /// Fetch what this Metalink file (version 3 or 4) describes
    #[arg(short = 'M', long, value_name = "FILE", help_heading = "What to fetch")]
    pub(crate) metalink: Vec<PathBuf>,
    /// Another place of the same file; may be given more than once
    #[arg(long, value_name = "URL", help_heading = "What to fetch")]
    pub(crate) mirror: Vec<String>,
    /// The digest that the file must have (md5, sha-1, sha-224, sha-256, sha-384, sha-512)
    #[arg(long, value_name = "ALG=HEX", help_heading = "What to fetch")]
    pub(crate) checksum: Vec<String>,
    /// Take digests from this file, as sha256sum and others write it
    #[arg(long, value_name = "FILE", help_heading = "What to fetch")]
    pub(crate) checksum_file: Option<PathBuf>,
    /// Go on from this leftover of another program, after comparing samples of it with the file; a damaged spot
    /// between two samples is only found with --checksum, and --resume strict takes nothing without a digest
    #[arg(long, value_name = "FILE", help_heading = "What to fetch")]
    pub(crate) adopt: Option<PathBuf>,
    /// Send this header to the host of the first URL; may be given more than once
    #[arg(short = 'H', long, value_name = "KEY: VALUE", help_heading = "What to fetch")]
    pub(crate) header: Vec<String>,
    /// Find out which file it is and what it would be called, and fetch nothing
    #[arg(long, help_heading = "What to fetch")]
    pub(crate) dry_run: bool,
    /// The settings.
    #[command(flatten)]
    pub(crate) settings: SettingArgs,
}

/// What `verify` is told.
#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    /// The files; without any, those that the checksum file or Metalink file names
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The digest that the file must have (for one FILE); may be given more than once
    #[arg(long, value_name = "ALG=HEX")]
    pub(crate) checksum: Vec<String>,
    /// Take digests from this file, as sha256sum and others write it
    #[arg(long, value_name = "FILE")]
    pub(crate) checksum_file: Option<PathBuf>,
    /// Take lengths and digests from this Metalink file
    #[arg(short = 'M', long, value_name = "FILE")]
    pub(crate) metalink: Option<PathBuf>,
    /// Say nothing but what is wrong
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Write one event for each file to standard output (docs/json.md) instead
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `doctor` is told.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Write what was found to standard output as one JSON object (docs/json.md)
    #[arg(long)]
    pub(crate) json: bool,
    /// List every rule for the isolated process with its reason instead; of system calls those that it may make
    /// (+), may make with some arguments (~), and that end it (!); all others fail
    #[arg(long, conflicts_with = "json")]
    pub(crate) rules: bool,
}

/// What `config` does.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigTask {
    /// Print every setting as it holds, in the form of a configuration file
    Show {
        /// Say where each was set
        #[arg(long)]
        origin: bool,
        /// The settings.
        #[command(flatten)]
        settings: SettingArgs,
    },
}

/// The settings given on the command line: key, option, value as written.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingArgs {
    /// In the order of the table.
    pub(crate) given: Vec<(&'static str, String, OsString)>,
}

impl Cli {
    /// Reads the command line, the program's own name first.
    ///
    /// # Errors
    /// What clap found wrong, or the help that was asked for.
    pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let matches =
            command().try_get_matches_from(with_get(words.into_iter().collect())).map_err(with_tip)?;
        Self::from_arg_matches(&matches)
    }
}

/// The whole command, for completions and manual pages too.
pub(crate) fn command() -> Command {
    Cli::command()
}

/// The same with a tip for options that other programs have.
fn with_tip(mut error: clap::Error) -> clap::Error {
    let tip = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(word)) => HABITS.iter().find(|(words, _)| words.contains(&word.as_str())),
        _ => None,
    };
    if let Some((_, tip)) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![(*tip).into()]));
    }
    error
}

/// Puts in the `get` that was left out, and makes `help COMMAND` the `--help` of that.
fn with_get(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|word| word == "help") {
        words.remove(1);
        words.push("--help".into());
        return words;
    }
    let ours = |word: &OsStr| {
        let known = |name: &str| command().get_subcommands().any(|c| c.get_name() == name);
        word.to_str().is_some_and(|w| matches!(w, "-h" | "--help" | "-V" | "--version") || known(w))
    };
    if words.get(1).is_some_and(|word| !ours(word)) {
        words.insert(1, "get".into());
    }
    words
}

impl Args for SettingArgs {
    fn augment_args(mut command: Command) -> Command {
        for setting in SETTINGS {
            command = command.args(options(setting));
        }
        for (id, letter, version) in IP_LETTERS {
            let arg = Arg::new(id)
                .short(letter)
                .action(ArgAction::SetTrue)
                .overrides_with_all(["ip", "ip-4", "ip-6"])
                .help(format!("The same as --ip {version}"));
            command = command.arg(arg.help_heading("Network"));
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let written = |id: &str| matches.value_source(id) == Some(clap::parser::ValueSource::CommandLine);
        let mut given = Vec::new();
        for setting in SETTINGS {
            let option = format!("--{}", setting.key);
            match setting.kind {
                Kind::Switch => {
                    if written(setting.key) {
                        given.push((setting.key, option, "true".into()));
                    } else if written(&opposite(setting)) {
                        given.push((setting.key, format!("--{}", opposite(setting)), "false".into()));
                    }
                }
                _ if written(setting.key) => {
                    let value = matches.get_raw(setting.key).and_then(Iterator::last).unwrap_or_default();
                    given.push((setting.key, option, value.to_owned()));
                }
                _ => {}
            }
        }
        for (id, letter, version) in IP_LETTERS {
            if written(id) {
                given.push(("ip", format!("-{letter}"), version.into()));
            }
        }
        Ok(Self { given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

const IP_LETTERS: [(&str, char, &str); 2] = [("ip-4", '4', "4"), ("ip-6", '6', "6")];

fn opposite(setting: &Setting) -> String {
    format!("no-{}", setting.key)
}

/// The options of a setting: its own, and for a switch its hidden opposite.
fn options(setting: &'static Setting) -> Vec<Arg> {
    let mut arg = Arg::new(setting.key).long(setting.key).help_heading(setting.heading);
    if let Some(letter) = setting.short {
        arg = arg.short(letter);
    }
    let help = match setting.kind {
        Kind::Switch => setting.help.to_owned(),
        _ => format!("{} [default: {}]", setting.help, setting.default),
    };
    arg = arg.help(help);
    match setting.kind {
        Kind::Switch => {
            let opposite = opposite(setting);
            let against =
                Arg::new(opposite.clone()).long(opposite.clone()).action(ArgAction::SetTrue).hide(true);
            vec![arg.action(ArgAction::SetTrue).overrides_with(opposite), against.overrides_with(setting.key)]
        }
        Kind::Choice(words) => {
            let arg = arg.value_name(words.join("|")).value_parser(words.to_vec()).hide_possible_values(true);
            vec![arg.overrides_with(setting.key)]
        }
        Kind::Value(name) => {
            let parser = clap::value_parser!(OsString);
            vec![arg.value_name(name).value_parser(parser).overrides_with(setting.key)]
        }
        Kind::Path(name) => {
            let hint = clap::ValueHint::AnyPath;
            let parser = clap::value_parser!(PathBuf);
            vec![arg.value_name(name).value_parser(parser).value_hint(hint).overrides_with(setting.key)]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(words: &[&str]) -> GetArgs {
        match Cli::read(words.iter().map(OsString::from)).unwrap().task {
            Task::Get(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    fn given(words: &[&str]) -> Vec<(&'static str, String)> {
        let args = get(&[&["tidegate", "http://h/a"], words].concat());
        args.settings.given.into_iter().map(|(key, _, value)| (key, value.into_string().unwrap())).collect()
    }

    #[test]
    fn the_definition_holds_together() {
        command().debug_assert();
    }

    #[test]
    fn get_may_be_left_out() {
        for words in [
            &["tidegate", "get", "-x", "4", "http://h/a"][..],
            &["tidegate", "-x", "4", "http://h/a"],
            &["tidegate", "http://h/a", "-x4"],
            &["tidegate", "http://h/a", "--connections=4"],
        ] {
            let args = get(words);
            assert_eq!(args.urls, ["http://h/a"], "{words:?}");
            assert_eq!(
                args.settings.given,
                [("connections", "--connections".into(), "4".into())],
                "{words:?}"
            );
        }
    }

    #[test]
    fn other_commands_and_help_are_not_taken_for_urls() {
        let with = |words: &[&str]| with_get(words.iter().map(OsString::from).collect()).len() - words.len();
        for words in [&["tidegate"][..], &["tidegate", "verify", "f"], &["tidegate", "--help"], &["t", "-V"]]
        {
            assert_eq!(with(words), 0, "{words:?}");
        }
        assert_eq!(with(&["tidegate", "-q", "http://h/a"]), 1);
    }

    #[test]
    fn help_is_a_word_too() {
        for words in [&["t", "help"][..], &["t", "help", "get"], &["t", "help", "config", "show"]] {
            let error = Cli::read(words.iter().map(OsString::from)).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::DisplayHelp, "{words:?}: {error}");
        }
        assert!(Cli::read(["t", "help", "verfy"].map(OsString::from)).unwrap_err().use_stderr());
    }

    #[test]
    fn habits_of_other_programs_get_a_tip() {
        for (word, tip) in
            [("-c", "goes on from what is here by itself"), ("-O", "-o NAME"), ("-L", "leave it out")]
        {
            let error = Cli::read(["t", word, "http://h/a"].map(OsString::from)).unwrap_err().to_string();
            assert!(error.contains(tip) && !error.contains("as a value"), "{word}: {error}");
        }
    }

    #[test]
    fn the_last_of_two_options_that_contradict_wins() {
        assert_eq!(given(&["-x", "4", "-x", "5"]), [("connections", "5".to_owned())]);
        assert_eq!(given(&["--json", "--no-json"]), [("json", "false".to_owned())]);
        assert_eq!(given(&["--no-json", "--json"]), [("json", "true".to_owned())]);
        assert_eq!(given(&["-4", "-6"]), [("ip", "6".to_owned())]);
        assert_eq!(given(&["-4", "--ip", "any"]), [("ip", "any".to_owned())]);
        assert_eq!(given(&["--ip", "any", "-4"]), [("ip", "4".to_owned())]);
        assert_eq!(given(&[]), []);
    }

    #[test]
    fn help_states_every_setting_with_its_default() {
        let mut command = command();
        let help = command.find_subcommand_mut("get").unwrap().render_help().to_string();
        let folded = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for setting in SETTINGS {
            assert!(folded.contains(&format!("--{}", setting.key)), "{}", setting.key);
            if !matches!(setting.kind, Kind::Switch) {
                let text = format!("{} [default: {}]", setting.help, setting.default);
                assert!(folded.contains(&text), "{text} in {help}");
            }
        }
        assert!(folded.contains("Examples:") && folded.contains("Exit codes"));
    }

    /// The words of a line of shell up to a pipe or comment. Knows single quotes and no more.
    fn words(line: &str) -> Vec<OsString> {
        let (mut words, mut quoted) = (vec![String::new()], false);
        for c in line.chars() {
            match (c, quoted) {
                ('\'', _) => quoted = !quoted,
                (' ', false) => words.push(String::new()),
                ('#' | '|', false) if words.last().is_some_and(String::is_empty) => break,
                (c, _) => words.last_mut().unwrap().push(c),
            }
        }
        words.into_iter().filter(|word| !word.is_empty()).map(OsString::from).collect()
    }

    #[test]
    fn every_command_of_the_readme_is_understood() {
        let readme = include_str!("../../../README.md");
        let blocks = readme.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
        let commands: Vec<&str> =
            blocks.flat_map(str::lines).filter(|line| line.starts_with("tidegate ")).collect();
        assert!(commands.len() >= 10, "{commands:?}");
        for command in commands {
            assert!(Cli::read(words(command)).is_ok(), "{command}");
        }
        assert!(Cli::read(words("tidegate get --no-such-option URL")).is_err());
    }
}
