//! Settings as they were written, each with where it was written.
//!
//! defaults ← `/etc/tidegate/config.toml` ← `$XDG_CONFIG_HOME/tidegate/config.toml` ← `TIDEGATE_*` ←
//! options of the command line. A later one replaces an earlier one.

use crate::environment::Environment;
use crate::settings::{self, Reach, SETTINGS, Setting};
use crate::trouble::{Trouble, in_words};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// The configuration of the whole machine.
const SYSTEM_FILE: &str = "/etc/tidegate/config.toml";
/// No honest configuration is larger, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Where a value was written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Origin {
    /// Nowhere: it holds when nobody says otherwise.
    Default,
    /// In a configuration file.
    File {
        /// Which.
        path: PathBuf,
        /// On which line, from 1.
        line: usize,
    },
    /// In a variable of the environment.
    Variable(String),
    /// On the command line.
    Option(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Option(name) => f.write_str(name),
        }
    }
}

/// A value and where it was written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Sourced {
    /// As written.
    pub(crate) value: OsString,
    /// Where.
    pub(crate) origin: Origin,
}

/// The value of every setting, as written.
#[derive(Clone, Debug)]
pub(crate) struct RawConfig {
    values: BTreeMap<&'static str, Sourced>,
    /// What a person should know about what was read: sentences.
    pub(crate) notes: Vec<String>,
}

impl RawConfig {
    /// Only defaults.
    pub(crate) fn defaults() -> Self {
        let values = SETTINGS
            .iter()
            .map(|s| (s.key, Sourced { value: s.default.into(), origin: Origin::Default }))
            .collect();
        Self { values, notes: Vec::new() }
    }

    /// All layers, the command line's `options` (key, option as written, value) on top.
    ///
    /// # Errors
    /// When a file cannot be read or makes no sense. A missing file is none.
    pub(crate) fn load(
        environment: &Environment,
        options: &[(&'static str, String, OsString)],
    ) -> Result<Self, Trouble> {
        let mut raw = Self::defaults();
        raw.read_file(Path::new(SYSTEM_FILE), true)?;
        if let Some((folder, usual)) = environment.config_home() {
            raw.read_file(&folder.join("tidegate/config.toml"), usual)?;
        }
        raw.read_environment(environment);
        for (key, option, value) in options {
            raw.set(key, value.clone(), Origin::Option(option.clone()));
        }
        Ok(raw)
    }

    /// The value of a setting.
    pub(crate) fn get(&self, setting: &Setting) -> &Sourced {
        static NOTHING: Sourced = Sourced { value: OsString::new(), origin: Origin::Default };
        self.values.get(setting.key).unwrap_or(&NOTHING)
    }

    /// Sets a value on top of what is there.
    pub(crate) fn set(&mut self, key: &'static str, value: OsString, origin: Origin) {
        self.values.insert(key, Sourced { value, origin });
    }

    fn read_environment(&mut self, environment: &Environment) {
        for (name, value) in environment.variables_with_prefix("TIDEGATE_") {
            match SETTINGS.iter().find(|s| s.variable() == name) {
                // As with the usual variables for proxies, an empty one is as if it were not there.
                Some(_) if value.is_empty() => {}
                Some(setting) => self.set(setting.key, value.to_owned(), Origin::Variable(name.to_owned())),
                // For tests and comparisons alone, and obeyed.
                None if name == crate::engine::BUFFERED => {}
                None => self.notes.push(format!("{name} is no setting of tidegate and is ignored")),
            }
        }
    }

    /// Reads a configuration file; `usual` says that it is looked for without anybody naming it.
    fn read_file(&mut self, path: &Path, usual: bool) -> Result<(), Trouble> {
        let trouble =
            |why: String| Trouble::configuration(format!("{} cannot be used: {why}", path.display()));
        let file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(e)
                if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) =>
            {
                return Ok(());
            }
            // Nobody asked for it by name, and under `sudo -u` HOME is often somebody else's: that must not
            // stand in the way of a download.
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied && usual => {
                self.notes.push(format!("{} may not be read and is ignored", path.display()));
                return Ok(());
            }
            Err(e) => return Err(trouble(in_words(&e))),
        };
        let mut text = String::new();
        file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(|e| trouble(in_words(&e)))?;
        if text.len() as u64 > MAX_FILE {
            return Err(trouble(format!("it is larger than {MAX_FILE} bytes")));
        }
        self.read_text(path, &text)
    }

    fn read_text(&mut self, path: &Path, text: &str) -> Result<(), Trouble> {
        let line_at =
            |offset: usize| text.as_bytes().iter().take(offset).filter(|b| **b == b'\n').count() + 1;
        let at = |offset: usize, why: String| {
            Trouble::configuration(format!("{}:{}: {why}", path.display(), line_at(offset)))
                .next("Correct the file, or move it away; `tidegate config show` prints every setting.")
        };
        let table =
            DeTable::parse(text).map_err(|e| at(e.span().map_or(0, |s| s.start), e.message().to_owned()))?;
        for (key, value) in table.get_ref() {
            let offset = key.span().start;
            let name: &str = key.get_ref();
            let setting = settings::find(name).ok_or_else(|| {
                let near = nearest(name).map_or_else(String::new, |s| format!("; did you mean {s:?}?"));
                at(offset, format!("there is no setting {name:?}{near}"))
            })?;
            if setting.reach == Reach::Secret {
                let why = format!(
                    "{name:?} is not read from files, since it would be sent to any host; use --netrc instead"
                );
                return Err(at(offset, why));
            }
            let written = match value.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Boolean(yes) => yes.to_string(),
                DeValue::Integer(number) => number.to_string(),
                DeValue::Float(number) => number.to_string(),
                _ => return Err(at(offset, format!("{name:?} takes one text, number, true or false"))),
            };
            let origin = Origin::File { path: path.to_owned(), line: line_at(offset) };
            self.set(setting.key, written.into(), origin);
        }
        Ok(())
    }
}

/// The key that was probably meant.
fn nearest(name: &str) -> Option<&'static str> {
    let folded = name.to_ascii_lowercase().replace('_', "-");
    SETTINGS
        .iter()
        .map(|s| (distance(&folded, s.key), s.key))
        .min()
        .filter(|(distance, key)| *distance <= key.len() / 3)
        .map(|(_, key)| key)
}

/// The edit distance of two short texts (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    // A key in a file may be as long as the file.
    if a.len() > 64 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replace = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<RawConfig, Trouble> {
        let mut raw = RawConfig::defaults();
        raw.read_text(Path::new("/c.toml"), text).map(|()| raw)
    }

    fn value<'a>(raw: &'a RawConfig, key: &str) -> &'a Sourced {
        raw.get(settings::find(key).unwrap())
    }

    #[test]
    fn each_value_remembers_where_it_was_written() {
        let raw = read("# mine\nlimit = \"2M\"\n\nconnections = 4\nexpand = true\n").unwrap();
        let expected = |value: &str, line| Sourced {
            value: value.into(),
            origin: Origin::File { path: "/c.toml".into(), line },
        };
        assert_eq!(*value(&raw, "limit"), expected("2M", 2));
        assert_eq!(*value(&raw, "connections"), expected("4", 4));
        assert_eq!(*value(&raw, "expand"), expected("true", 5));
        assert_eq!(value(&raw, "jobs").origin, Origin::Default);
    }

    #[test]
    fn later_layers_win() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("tidegate")).unwrap();
        std::fs::write(folder.path().join("tidegate/config.toml"), "jobs = 2\nretries = 3\nlimit = '1M'")
            .unwrap();
        let environment = Environment::of([
            ("XDG_CONFIG_HOME", folder.path().to_str().unwrap()),
            ("TIDEGATE_RETRIES", "5"),
            ("TIDEGATE_LIMIT", "2M"),
            ("TIDEGATE_LIMIT_EACH", ""),
            ("TIDEGATE_LIMITS", "2M"),
        ]);
        let raw = RawConfig::load(&environment, &[("limit", "--limit".into(), "3M".into())]).unwrap();
        assert_eq!(value(&raw, "jobs").value, "2");
        assert_eq!(value(&raw, "retries").origin, Origin::Variable("TIDEGATE_RETRIES".into()));
        assert_eq!(value(&raw, "limit").value, "3M");
        assert_eq!(value(&raw, "limit").origin, Origin::Option("--limit".into()));
        assert_eq!(value(&raw, "limit-each").origin, Origin::Default);
        assert_eq!(raw.notes, ["TIDEGATE_LIMITS is no setting of tidegate and is ignored"]);
    }

    #[test]
    fn a_mistake_in_a_file_is_told_with_its_line() {
        let table = [
            ("a = [\n", "/c.toml:"),
            (
                "\n\nconections = 4",
                "/c.toml:3: there is no setting \"conections\"; did you mean \"connections\"?",
            ),
            ("max_host = 4", "/c.toml:1: there is no setting \"max_host\"; did you mean \"max-host\"?"),
            ("zzzzzzzzzzz = 4", "/c.toml:1: there is no setting \"zzzzzzzzzzz\""),
            ("limit = [1]", "/c.toml:1: \"limit\" takes one text, number, true or false"),
            ("[limit]\na = 1", "/c.toml:1: \"limit\" takes one text, number, true or false"),
            ("user = 'me:hunter2'", "/c.toml:1: \"user\" is not read from files"),
        ];
        for (text, start) in table {
            let message = read(text).unwrap_err().message;
            assert!(message.starts_with(start), "{text:?}: {message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
        assert!(!read("zzzzzzzzzzz = 4").unwrap_err().message.contains("did you mean"));
    }
}
