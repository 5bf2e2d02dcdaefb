//! A netrc file: names and passwords for hosts.
//!
//! Words are separated by blanks; a word in double quotes may hold blanks, and in it a backslash takes the
//! next character as it is (`\n`, `\r` and `\t` are line ends and tabs). `#` begins a comment where a
//! keyword could stand. A `macdef` is passed over, up to the next empty line. A machine `.my.domain`
//! stands for every host below it, but not for `my.domain`.
//!
//! Whether the file may be trusted (its owner and mode) is for the one who reads it to check.

use crate::request::Credentials;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// The largest file that is read, in bytes.
pub const MAX_BYTES: usize = 1 << 20;
/// The most entries.
pub const MAX_ENTRIES: usize = 10_000;

/// The entries of a netrc file.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Netrc {
    #[serde(deserialize_with = "not_too_many")]
    entries: Vec<Entry>,
}

/// What to say to one host. Its `Debug` shows no secret.
#[derive(Clone, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Entry {
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    login: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<String>,
}

impl Netrc {
    /// Reads the text of a file; an empty one has no entries.
    ///
    /// # Errors
    /// The line that cannot be understood. No error shows a word of the file: it may be a password.
    pub fn parse(text: &str) -> Result<Self, NetrcError> {
        if text.len() > MAX_BYTES {
            return Err(NetrcError { line: 1, problem: NetrcProblem::TooLarge });
        }
        let mut words = Words { rest: text.strip_prefix('\u{feff}').unwrap_or(text), line: 1 };
        let mut entries: Vec<Entry> = Vec::new();
        while let Some(keyword) = words.keyword() {
            let line = words.line;
            let error = |problem| NetrcError { line, problem };
            match keyword {
                "machine" | "default" if entries.len() == MAX_ENTRIES => {
                    return Err(error(NetrcProblem::TooMany));
                }
                "machine" => {
                    let machine = words.value("machine")?.to_ascii_lowercase();
                    entries.push(Entry { machine: Some(machine), ..Entry::default() });
                }
                "default" => entries.push(Entry::default()),
                "macdef" => {
                    words.value("macdef")?;
                    words.skip_macro();
                }
                "login" | "password" | "account" => {
                    let entry = entries.last_mut().ok_or(error(NetrcProblem::NoMachine))?;
                    match keyword {
                        "login" => entry.login = Some(words.value("login")?),
                        "password" => entry.password = Some(words.value("password")?),
                        _ => entry.account = Some(words.value("account")?),
                    }
                }
                _ => return Err(error(NetrcProblem::UnknownWord)),
            }
        }
        Ok(Self { entries })
    }

    /// What there is for one host: as much as both look-ups need.
    #[must_use]
    pub fn of_host(&self, host: &str) -> Self {
        let entries = [self.lookup_exact(host), self.lookup(host)].into_iter().flatten();
        let mut entries: Vec<Entry> = entries.cloned().collect();
        entries.dedup();
        Self { entries }
    }

    /// What stands under the very name of a host.
    #[must_use]
    pub fn of_very_host(&self, host: &str) -> Self {
        Self { entries: self.lookup_exact(host).into_iter().cloned().collect() }
    }

    /// Takes what another has in addition.
    pub fn extend(&mut self, other: Self) {
        for entry in other.entries {
            if self.entries.len() < MAX_ENTRIES && !self.entries.contains(&entry) {
                self.entries.push(entry);
            }
        }
    }

    /// The entries in the order of the file.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry for a host: the first that names it, else the one for the nearest domain that it is
    /// below, else the default.
    pub fn lookup(&self, host: &str) -> Option<&Entry> {
        let host = canonical(host);
        let named = |e: &&Entry| e.machine.as_deref() == Some(host.as_str());
        let above = |e: &&Entry| {
            e.machine
                .as_deref()
                .is_some_and(|m| m.starts_with('.') && m.len() < host.len() && host.ends_with(m))
        };
        let depth = |e: &&Entry| e.machine.as_ref().map_or(0, String::len);
        let entries = || self.entries.iter();
        entries()
            .find(named)
            // The last of equals is what `max_by_key` takes, and the first is meant.
            .or_else(|| entries().rev().filter(above).max_by_key(depth))
            .or_else(|| entries().find(|e| e.machine.is_none()))
    }

    /// The first entry that names this very host: neither one for a domain above it nor the default.
    pub fn lookup_exact(&self, host: &str) -> Option<&Entry> {
        let host = canonical(host);
        self.entries.iter().find(|e| e.machine.as_deref() == Some(host.as_str()))
    }
}

fn not_too_many<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Entry>, D::Error> {
    let entries = Vec::<Entry>::deserialize(from)?;
    if entries.len() > MAX_ENTRIES {
        return Err(serde::de::Error::custom(NetrcProblem::TooMany));
    }
    Ok(entries)
}

/// A host as it is compared: in lower case, without the brackets of IPv6 and the last dot.
fn canonical(host: &str) -> String {
    host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase()
}

impl Entry {
    /// The host or `.domain` in lower case; `None` for the default entry.
    pub fn machine(&self) -> Option<&str> {
        self.machine.as_deref()
    }

    /// The user's name.
    pub fn login(&self) -> Option<&str> {
        self.login.as_deref()
    }

    /// The password.
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// The account, which HTTP has no use for.
    pub fn account(&self) -> Option<&str> {
        self.account.as_deref()
    }

    /// What HTTP needs: a name and a password, either of which may be empty but not both missing.
    pub fn credentials(&self) -> Option<Credentials> {
        (self.login.is_some() || self.password.is_some()).then(|| Credentials::Password {
            user: self.login.clone().unwrap_or_default(),
            password: self.password.clone().unwrap_or_default(),
        })
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({:?}, …)", self.machine.as_deref().unwrap_or("default"))
    }
}

/// Where a netrc file cannot be understood, and why.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("line {line} of the netrc file: {problem}")]
pub struct NetrcError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: NetrcProblem,
}

/// What is wrong with a netrc file.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NetrcProblem {
    /// More than [`MAX_BYTES`].
    #[error("the file is larger than {MAX_BYTES} bytes")]
    TooLarge,
    /// More than [`MAX_ENTRIES`].
    #[error("there are more than {MAX_ENTRIES} entries")]
    TooMany,
    /// A word that is no keyword where one must stand.
    #[error(
        "machine, default, login, password, account or macdef must stand here (put a value with blanks in double quotes)"
    )]
    UnknownWord,
    /// A login, password or account before any machine.
    #[error("this belongs to no machine: begin with machine NAME or default")]
    NoMachine,
    /// The file ends after a keyword.
    #[error("nothing follows {0}")]
    NoValue(&'static str),
    /// A quoted word without end.
    #[error("a double quote is opened and never closed")]
    Unclosed,
}

/// The words of a file, and the line that the last one taken begins on.
struct Words<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Words<'a> {
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    fn skip(&mut self, bytes: usize) {
        self.line += self.take(bytes).matches('\n').count();
    }

    fn skip_blanks(&mut self) {
        self.skip(self.rest.len() - self.rest.trim_ascii_start().len());
    }

    fn skip_line(&mut self) {
        self.skip(self.rest.find('\n').map_or(self.rest.len(), |at| at + 1));
    }

    fn keyword(&mut self) -> Option<&'a str> {
        self.skip_blanks();
        while self.rest.starts_with('#') {
            self.skip_line();
            self.skip_blanks();
        }
        let word = self.word();
        (!word.is_empty()).then_some(word)
    }

    fn word(&mut self) -> &'a str {
        self.take(self.rest.find(|c: char| c.is_ascii_whitespace()).unwrap_or(self.rest.len()))
    }

    fn value(&mut self, of: &'static str) -> Result<String, NetrcError> {
        let keyword_line = self.line;
        self.skip_blanks();
        if self.rest.is_empty() {
            return Err(NetrcError { line: keyword_line, problem: NetrcProblem::NoValue(of) });
        }
        if self.rest.starts_with('"') { self.quoted() } else { Ok(self.word().to_owned()) }
    }

    fn quoted(&mut self) -> Result<String, NetrcError> {
        let mut value = String::new();
        let mut letters = self.rest.char_indices().skip(1);
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.skip(at + 1);
                    return Ok(value);
                }
                '\\' => match letters.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, 'r')) => value.push('\r'),
                    Some((_, 't')) => value.push('\t'),
                    Some((_, other)) => value.push(other),
                    None => break,
                },
                other => value.push(other),
            }
        }
        Err(NetrcError { line: self.line, problem: NetrcProblem::Unclosed })
    }

    /// Passes over the rest of the line and all lines up to and with an empty one.
    fn skip_macro(&mut self) {
        self.skip_line();
        while !self.rest.is_empty() {
            let blank = self.rest.lines().next().is_none_or(|line| line.trim().is_empty());
            self.skip_line();
            if blank {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(machine: Option<&str>, login: &str, password: &str, account: &str) -> Entry {
        let some = |s: &str| (!s.is_empty()).then(|| s.to_owned());
        Entry {
            machine: machine.map(str::to_owned),
            login: some(login),
            password: some(password),
            account: some(account),
        }
    }

    #[test]
    fn a_file_is_read_in_order() {
        // B24.
        let text = "# This is a comment\nmachine host1\n  login me\n  password secret\n  account acc\n\n\
                    macdef init\ncd /pub\nmachine not-an-entry\n\nmachine host2\nlogin you\npassword hidden\naccount box\n\n\
                    default login anonymous password X account Y\n";
        assert_eq!(
            Netrc::parse(text).unwrap().entries(),
            [
                entry(Some("host1"), "me", "secret", "acc"),
                entry(Some("host2"), "you", "hidden", "box"),
                entry(None, "anonymous", "X", "Y"),
            ]
        );
        assert_eq!(Netrc::parse("").unwrap(), Netrc::default());
        assert_eq!(Netrc::parse("\u{feff}\r\n # nothing\r\n").unwrap(), Netrc::default());
    }

    #[test]
    fn a_host_finds_its_entry() {
        // B25.
        let netrc = Netrc::parse(
            "machine host1 login a\nmachine host2 login b\nmachine .my.domain login c\nmachine .domain login d\n\
             default login z\nmachine host2 login late",
        )
        .unwrap();
        for (host, login) in [
            ("host2", "b"),
            ("HOST2.", "b"),
            ("host3", "z"),
            ("host3.my.domain", "c"),
            ("a.b.my.domain", "c"),
            ("other.domain", "d"),
            ("notmy.domain", "d"),
            ("my.domain", "d"),
            ("domain", "z"),
            (".domain", "d"),
            ("", "z"),
        ] {
            assert_eq!(netrc.lookup(host).unwrap().login(), Some(login), "{host}");
        }
        let only_below = Netrc::parse("machine .my.domain login c").unwrap();
        assert_eq!(only_below.lookup("my.domain"), None);
        assert_eq!(
            Netrc::parse("machine ::1 login v6").unwrap().lookup("[::1]").unwrap().login(),
            Some("v6")
        );
    }

    #[test]
    fn values_are_what_was_written() {
        for (written, password) in [
            ("plain", "plain"),
            ("#not-a-comment", "#not-a-comment"),
            ("\"two words\"", "two words"),
            (r#""a \"quoted\" \\ word\n""#, "a \"quoted\" \\ word\n"),
            ("\"\"", ""),
            ("in\"side", "in\"side"),
            ("login", "login"),
            ("pä\u{a0}ß", "pä\u{a0}ß"),
        ] {
            let netrc = Netrc::parse(&format!("machine h login me password {written} # done")).unwrap();
            assert_eq!(netrc.entries()[0].password(), Some(password), "{written}");
        }
        let netrc = Netrc::parse("machine h login me").unwrap();
        let user = |user: &str| Some(Credentials::Password { user: user.into(), password: String::new() });
        assert_eq!(netrc.entries()[0].credentials(), user("me"));
        assert_eq!(Netrc::parse("machine h").unwrap().entries()[0].credentials(), None);
    }

    #[test]
    fn a_macro_ends_at_an_empty_line_or_with_the_file() {
        for (text, entries) in [
            ("macdef a\nmachine x\n\nmachine h", 1),
            ("machine g\nmacdef a\r\nput\r\n\r\nmachine h", 2),
            ("macdef a\nmachine x\nmachine y", 0),
            ("macdef a", 0),
            ("macdef a\n\nmachine h", 1),
        ] {
            assert_eq!(Netrc::parse(text).unwrap().entries().len(), entries, "{text:?}");
        }
    }

    #[test]
    fn what_cannot_be_understood_names_its_line_and_no_secret() {
        for (text, line, problem) in [
            ("machine host2\nlogin aria2\npassword x\naccount\n", 4, NetrcProblem::NoValue("account")),
            ("machine machine\nmachine h\nhunter2", 3, NetrcProblem::UnknownWord),
            ("machine h\npassword my hunter2", 2, NetrcProblem::UnknownWord),
            ("login me", 1, NetrcProblem::NoMachine),
            ("\n\nmachine", 3, NetrcProblem::NoValue("machine")),
            ("machine h\npassword\n\"hunter2", 3, NetrcProblem::Unclosed),
            ("machine h password \"hunter2\\", 1, NetrcProblem::Unclosed),
            ("macdef", 1, NetrcProblem::NoValue("macdef")),
        ] {
            let error = Netrc::parse(text).unwrap_err();
            assert_eq!(error, NetrcError { line, problem }, "{text:?}");
            assert!(!error.to_string().contains("hunter2"));
        }
        let secret = Netrc::parse("machine h login me password hunter2 account hunter2").unwrap();
        assert!(!format!("{secret:?}").contains("hunter2"));
        assert_eq!(Netrc::parse(&"#".repeat(MAX_BYTES + 1)).unwrap_err().problem, NetrcProblem::TooLarge);
        let many = "machine h ".repeat(MAX_ENTRIES + 1);
        assert_eq!(Netrc::parse(&many).unwrap_err().problem, NetrcProblem::TooMany);
    }

    #[test]
    fn what_there_is_for_some_hosts_answers_for_each_of_them_as_the_whole_does_and_holds_no_more() {
        let text = "machine a.example password 1\nmachine .example password 2\nmachine b.example password 3\n\
                    machine other password 4\nmachine a.example password 5\ndefault password 6";
        let whole = Netrc::parse(text).unwrap();
        let hosts = ["b.example", "a.example", "c.example", "elsewhere", "B.EXAMPLE."];
        let mut some = Netrc::default();
        hosts.iter().for_each(|host| some.extend(whole.of_host(host)));
        for host in hosts {
            assert_eq!(some.lookup(host), whole.lookup(host), "{host}");
            assert_eq!(some.lookup_exact(host), whole.lookup_exact(host), "{host}");
        }
        assert_eq!(whole.of_very_host("c.example").entries(), []);
        assert_eq!(whole.of_very_host("b.example").entries().len(), 1);
        let passwords: Vec<_> = some.entries().iter().filter_map(Entry::password).collect();
        assert_eq!(passwords, ["3", "1", "2", "6"]);
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in "(machine|default|login|password|macdef|[\"\\\\#a é.]|\n|\r| ){0,30}", host in "\\PC{0,9}") {
            if let Ok(netrc) = Netrc::parse(&text) {
                let _ = netrc.lookup(&host);
            }
        }

        #[test]
        fn a_quoted_password_is_read_back(password in "\\PC*") {
            let quoted = password.replace('\\', "\\\\").replace('"', "\\\"");
            let netrc = Netrc::parse(&format!("default\tpassword\n\"{quoted}\"")).unwrap();
            prop_assert_eq!(netrc.entries()[0].password(), Some(password.as_str()));
        }
    }
}
