//! Every setting, once: its name, what it is for, its default. The options of the command line, the
//! keys of `config.toml`, the `TIDEGATE_*` variables and `config show` all come from this table, so
//! a setting cannot exist in one of them and be forgotten in another.

/// A thing that can be set in a file, the environment or on the command line.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Its key in `config.toml`, and its long option without the dashes.
    pub(crate) key: &'static str,
    /// Its one-letter option, if it has one.
    pub(crate) short: Option<char>,
    /// What may be written.
    pub(crate) kind: Kind,
    /// What holds when nobody says otherwise, as it would be written.
    pub(crate) default: &'static str,
    /// One sentence for `--help`.
    pub(crate) help: &'static str,
    /// Under which heading `--help` lists it.
    pub(crate) heading: &'static str,
    /// Where it may be set, and whether it may be shown.
    pub(crate) reach: Reach,
}

/// What may be written as the value of a setting.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// `true` or `false`; the option alone means `true`.
    Switch,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Something else, called this in `--help`.
    Value(&'static str),
    /// A file or folder, called this in `--help`.
    Path(&'static str),
}

/// Where a setting may be set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reach {
    /// Files, environment and command line.
    Everywhere,
    /// Environment and command line only, since it would be sent to whatever host is asked next;
    /// its value is never shown.
    Secret,
}

impl Setting {
    /// The variable that sets it.
    pub(crate) fn variable(&self) -> String {
        format!("TIDEGATE_{}", self.key.to_ascii_uppercase().replace('-', "_"))
    }
}

/// The setting of this name.
pub(crate) fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|s| s.key == key)
}

const FILES: &str = "Files";
const SPEED: &str = "Connections and speed";
const AGAIN: &str = "Resuming and trying again";
const ASKING: &str = "What the server is told";
const NETWORK: &str = "Network";
const OUTPUT: &str = "Output";

const fn setting(
    key: &'static str,
    kind: Kind,
    default: &'static str,
    heading: &'static str,
    help: &'static str,
) -> Setting {
    Setting { key, short: None, kind, default, help, heading, reach: Reach::Everywhere }
}

const fn short(letter: char, setting: Setting) -> Setting {
    Setting { short: Some(letter), ..setting }
}

const fn secret(setting: Setting) -> Setting {
    Setting { reach: Reach::Secret, ..setting }
}

/// Every setting, in the order of `--help`.
pub(crate) const SETTINGS: &[Setting] = &[
    short('d', setting("dir", Kind::Path("DIR"), ".", FILES, "Folder to put files into")),
    setting(
        "on-exists",
        Kind::Choice(&["rename", "skip", "overwrite", "fail"]),
        "rename",
        FILES,
        "What to do when the final name is taken; `rename` makes it NAME.1.EXT",
    ),
    setting(
        "newer",
        Kind::Switch,
        "false",
        FILES,
        "Fetch only if the server's file is newer than the one here",
    ),
    setting(
        "remote-time",
        Kind::Switch,
        "false",
        FILES,
        "Give the file the modification time that the server tells",
    ),
    setting(
        "sync",
        Kind::Choice(&["file", "none"]),
        "file",
        FILES,
        "Force a file to the disk before it gets its final name; with `none` a power loss may leave a damaged one",
    ),
    setting(
        "preallocate",
        Kind::Choice(&["auto", "none"]),
        "auto",
        FILES,
        "Reserve the room on the disk first, where that takes no time",
    ),
    setting(
        "max-size",
        Kind::Value("SIZE"),
        "none",
        FILES,
        "Refuse a file that is larger: before its first byte where the server tells, else as soon as it is",
    ),
    setting("expand", Kind::Switch, "false", FILES, "Expand [001-100] and {a,b} in URLs into one URL each"),
    short(
        'x',
        setting("connections", Kind::Value("N"), "8", SPEED, "Most connections for one file, 1 to 64"),
    ),
    setting(
        "max-host",
        Kind::Value("N"),
        "8",
        SPEED,
        "Most connections to one host; unless set, at least as many as --connections",
    ),
    setting(
        "max-connections",
        Kind::Value("N"),
        "32",
        SPEED,
        "Most connections in all; unless set, at least as many as --connections",
    ),
    setting(
        "min-split",
        Kind::Value("SIZE"),
        "1M",
        SPEED,
        "Part of a file worth a connection of its own; smaller ones, to an eighth, only where that saves time",
    ),
    short('j', setting("jobs", Kind::Value("N"), "4", SPEED, "Files to fetch at a time")),
    setting("limit", Kind::Value("RATE"), "none", SPEED, "Bytes a second, everything together"),
    setting("limit-each", Kind::Value("RATE"), "none", SPEED, "Bytes a second for each file"),
    setting("limit-host", Kind::Value("RATE"), "none", SPEED, "Bytes a second from each host"),
    setting(
        "speed-min",
        Kind::Value("RATE"),
        "none",
        SPEED,
        "Give up a connection that stays slower than this",
    ),
    setting(
        "resume",
        Kind::Choice(&["auto", "strict", "never"]),
        "auto",
        AGAIN,
        "Go on with bytes from before: when validators, digests or a comparison of samples agree (auto), only on a strong validator or digest (strict), or begin again (never)",
    ),
    setting(
        "retries",
        Kind::Value("N"),
        "10",
        AGAIN,
        "How often it is tried again, without a new byte in between, before a file is given up; 0 tries once",
    ),
    setting(
        "retry-wait",
        Kind::Value("TIME"),
        "1s",
        AGAIN,
        "First wait between attempts; it doubles up to a bound",
    ),
    setting("timeout", Kind::Value("TIME"), "30s", AGAIN, "Silence after which a connection is dropped"),
    setting(
        "connect-timeout",
        Kind::Value("TIME"),
        "15s",
        AGAIN,
        "How long a connection may take to be made",
    ),
    setting(
        "when-full",
        Kind::Choice(&["stop", "wait"]),
        "stop",
        AGAIN,
        "When the disk is full or may not be written: stop and keep everything, or wait until it can go on",
    ),
    setting("fail-fast", Kind::Switch, "false", AGAIN, "Begin no other file after one has failed"),
    secret(setting(
        "user",
        Kind::Value("NAME:PASSWORD"),
        "none",
        ASKING,
        "User and password for the host of the first URL. Other users of this machine can see it in the list of processes: prefer --netrc, or the variable TIDEGATE_USER",
    )),
    secret(setting(
        "bearer-token-file",
        Kind::Path("FILE"),
        "none",
        ASKING,
        "Send the token in this file to the host of the first URL, as a bearer token",
    )),
    setting(
        "netrc",
        Kind::Switch,
        "false",
        ASKING,
        "Take users and passwords from ~/.netrc (or the file named by NETRC)",
    ),
    setting(
        "netrc-file",
        Kind::Path("FILE"),
        "none",
        ASKING,
        "Take users and passwords from this file instead",
    ),
    setting(
        "cookies",
        Kind::Path("FILE"),
        "none",
        ASKING,
        "Send cookies from this file (Netscape format, as browsers' add-ons and curl write it)",
    ),
    setting("save-cookies", Kind::Path("FILE"), "none", ASKING, "Write the cookies to this file at the end"),
    setting("referer", Kind::Value("URL"), "none", ASKING, "Send this as the page that led here"),
    setting(
        "user-agent",
        Kind::Value("TEXT"),
        concat!("tidegate/", env!("CARGO_PKG_VERSION")),
        ASKING,
        "Send this as the name of the program",
    ),
    setting(
        "proxy",
        Kind::Value("URL"),
        "env",
        NETWORK,
        "Proxy for everything (http, https or socks5), `none`, or `env` for the one that http_proxy, https_proxy, all_proxy and no_proxy name",
    ),
    setting(
        "no-proxy",
        Kind::Value("HOSTS"),
        "env",
        NETWORK,
        "Hosts that are asked without the proxy, divided by commas; `env` for those in no_proxy",
    ),
    setting(
        "ca-file",
        Kind::Path("FILE"),
        "none",
        NETWORK,
        "Trust the authorities in this PEM file instead of the system's",
    ),
    setting(
        "client-cert",
        Kind::Path("FILE"),
        "none",
        NETWORK,
        "Show the certificate in this PEM file, which holds its key too, to servers that ask",
    ),
    setting(
        "insecure",
        Kind::Switch,
        "false",
        NETWORK,
        "Do not check certificates: anyone on the way can read and change what is fetched",
    ),
    setting("ip", Kind::Choice(&["any", "4", "6"]), "any", NETWORK, "Which version of IP to use"),
    setting(
        "engine",
        Kind::Choice(&["child", "in-process"]),
        "child",
        NETWORK,
        "Who talks to the network: a process of its own that cannot see your files, or this one",
    ),
    setting(
        "require-isolation",
        Kind::Switch,
        "false",
        NETWORK,
        "Fetch nothing unless every layer of that isolation is in force (see `tidegate doctor`)",
    ),
    setting(
        "json",
        Kind::Switch,
        "false",
        OUTPUT,
        "Write one event a line to standard output (docs/json.md) instead of progress",
    ),
    short('q', setting("quiet", Kind::Switch, "false", OUTPUT, "Say nothing but errors")),
    short(
        'v',
        setting("verbose", Kind::Switch, "false", OUTPUT, "Show a map of each file and what is noticed"),
    ),
    setting(
        "color",
        Kind::Choice(&["auto", "always", "never"]),
        "auto",
        OUTPUT,
        "Colours; `auto` means on a terminal, unless NO_COLOR is set",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_key_and_no_letter_means_two_things() {
        let keys: BTreeSet<&str> = SETTINGS.iter().map(|s| s.key).collect();
        assert_eq!(keys.len(), SETTINGS.len());
        let letters: Vec<char> = SETTINGS.iter().filter_map(|s| s.short).collect();
        assert_eq!(letters.iter().collect::<BTreeSet<_>>().len(), letters.len());
    }

    #[test]
    fn the_variable_of_a_setting_is_its_name_in_capitals() {
        assert_eq!(find("max-host").map(Setting::variable).as_deref(), Some("TIDEGATE_MAX_HOST"));
    }
}
