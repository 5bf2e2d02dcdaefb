//! The programs that are measured, each run as its users would.

use crate::floor::Floor;
use crate::site::Site;
use crate::trouble::Trouble;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Another program that fetches files.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Peer {
    /// curl, one connection
    Curl,
    /// aria2
    Aria2c,
    /// Axel
    Axel,
    /// GNU Wget2
    Wget2,
}

impl Peer {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Curl, Self::Aria2c, Self::Axel, Self::Wget2];

    /// The name of its program.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::Aria2c => "aria2c",
            Self::Axel => "axel",
            Self::Wget2 => "wget2",
        }
    }

    /// Its version; `None` if it is not installed.
    pub(crate) fn version(self) -> Option<String> {
        version(&mut Command::new(self.word()))
    }
}

/// The version that a program tells.
pub(crate) fn version(command: &mut Command) -> Option<String> {
    let output = command.arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let digit = |word: &&str| word.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit());
    let word = text.lines().next()?.split_whitespace().find(digit)?;
    Some(word.trim_end_matches([',', ';']).to_owned())
}

/// What fetches a file in one arm of a comparison.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Client {
    /// tidegate without syncing, as no peer syncs.
    Ours,
    /// tidegate as it comes.
    OursSynced,
    /// Another program.
    Peer(Peer),
    /// A bare loop.
    Floor(Floor),
}

impl Client {
    /// The name of its arm.
    pub(crate) fn word(self) -> String {
        match self {
            Self::Ours => "ours".to_owned(),
            Self::OursSynced => "ours_synced".to_owned(),
            Self::Peer(peer) => peer.word().to_owned(),
            Self::Floor(floor) => format!("floor_{}", floor.word()),
        }
    }

    /// Whether it is the program that the figures are about.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::Ours | Self::OursSynced)
    }

    /// How many connections it uses when `wanted` are allowed.
    pub(crate) fn connections(self, wanted: u32) -> u32 {
        match self {
            Self::Peer(Peer::Curl) => 1,
            // It refuses more.
            Self::Peer(Peer::Aria2c) => wanted.min(16),
            _ => wanted,
        }
    }
}

/// One file to fetch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch<'a> {
    /// The `tidegate` to run.
    pub(crate) tidegate: &'a Path,
    /// From where.
    pub(crate) site: &'a Site,
    /// The file's name there.
    pub(crate) name: &'a str,
    /// Its length.
    pub(crate) size: u64,
    /// The folder that it goes into.
    pub(crate) dir: &'a Path,
    /// The name that it gets there.
    pub(crate) out: &'a str,
    /// Connections, at most.
    pub(crate) connections: u32,
    /// A folder for what programs keep at home.
    pub(crate) home: &'a Path,
}

/// A command that knows nothing of the settings of who measures.
pub(crate) fn bare(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("HOME", home).env("XDG_CONFIG_HOME", home).env("LC_ALL", "C.UTF-8");
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command.current_dir(home);
    command
}

impl Client {
    /// The command that fetches a file.
    ///
    /// # Errors
    /// When this program cannot find itself.
    pub(crate) fn command(self, fetch: &Fetch<'_>) -> Result<Command, Trouble> {
        let url = fetch.site.url(fetch.name);
        let authority = fetch.site.authority.as_deref();
        let (dir, out) = (fetch.dir, fetch.out);
        let whole = dir.join(out);
        let count = self.connections(fetch.connections).to_string();
        Ok(match self {
            Self::Ours | Self::OursSynced => {
                let mut command = bare(fetch.tidegate, fetch.home);
                command.args(["get", "--proxy", "none", "-x", &count, "-o", out, "-d"]).arg(dir);
                if self == Self::Ours {
                    command.args(["--sync", "none"]);
                }
                if let Some(authority) = authority {
                    command.arg("--ca-file").arg(authority);
                }
                command.arg(url);
                command
            }
            Self::Peer(peer) => {
                let mut command = bare(Path::new(peer.word()), fetch.home);
                match peer {
                    Peer::Curl => {
                        command.args(["-sS", "-f"]).arg("-o").arg(whole);
                        if let Some(authority) = authority {
                            command.arg("--cacert").arg(authority);
                        }
                    }
                    Peer::Aria2c => {
                        command.args([&format!("-x{count}"), &format!("-s{count}"), "-k1M", "-q"]);
                        command.args(["--no-conf", "--file-allocation=none", "-o", out, "-d"]).arg(dir);
                        if let Some(authority) = authority {
                            command.arg(format!("--ca-certificate={}", authority.display()));
                        }
                    }
                    Peer::Axel => {
                        command.args(["-q", "-n", &count, "-o"]).arg(whole);
                        if authority.is_some() {
                            // It cannot be told whom to trust.
                            command.arg("--insecure");
                        }
                    }
                    Peer::Wget2 => {
                        command.args(["-q", "--no-config", "--chunk-size=1M"]);
                        command.arg(format!("--max-threads={count}")).arg("-O").arg(whole);
                        if let Some(authority) = authority {
                            command.arg(format!("--ca-certificate={}", authority.display()));
                        }
                    }
                }
                command.arg(url);
                command
            }
            Self::Floor(floor) => {
                let program = this_program()?;
                let mut command = bare(&program, fetch.home);
                command.args(["floor", floor.word(), "--connections", &count]);
                command.args(["--server", &format!("{}:{}", fetch.site.address, fetch.site.port)]);
                command.args(["--path", &format!("/{}", fetch.name), "--size", &fetch.size.to_string()]);
                command.arg("--out").arg(whole);
                command
            }
        })
    }
}

/// This program's own path.
///
/// # Errors
/// When the system does not tell it.
pub(crate) fn this_program() -> Result<PathBuf, Trouble> {
    std::env::current_exe().map_err(|e| Trouble::failed("find this program", &e))
}

/// The `tidegate` to measure: the one given, or the one beside this program.
///
/// # Errors
/// When it is not there.
pub(crate) fn find_tidegate(given: Option<&Path>) -> Result<PathBuf, Trouble> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => this_program()?.with_file_name("tidegate"),
    };
    path.canonicalize().map_err(|error| {
        let path = path.display();
        Trouble::usage(format!(
            "{path} cannot be run ({error}): build it beside this program, or name one with --tidegate"
        ))
    })
}
