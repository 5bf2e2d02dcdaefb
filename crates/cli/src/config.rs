//! Settings as the rest of the program uses them: no options, units in types, everything checked.

use crate::environment::Environment;
use crate::raw::{Origin, RawConfig};
use crate::settings;
use crate::trouble::Trouble;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;
use tidegate_core::message::Limits;
use tidegate_core::request::{Credentials, OnExists, Options, Preallocate, Resume, Sync};
use tidegate_core::units;
use url::Url;

/// A day: no honest waiting time is longer.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

/// Every setting.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    /// The folder for files.
    pub(crate) dir: PathBuf,
    /// How each file is fetched.
    pub(crate) options: Options,
    /// What all files share.
    pub(crate) limits: Limits,
    /// Files at a time, at least 1.
    pub(crate) jobs: usize,
    /// Whether to wait for a disk that is full instead of stopping.
    pub(crate) wait_for_disk: bool,
    /// Whether to begin no other file after a failure.
    pub(crate) fail_fast: bool,
    /// Whether to expand `[001-100]` and `{a,b}` in URLs.
    pub(crate) expand: bool,
    /// What servers are told.
    pub(crate) asking: Asking,
    /// How they are reached.
    pub(crate) network: Network,
    /// What a person sees.
    pub(crate) output: Output,
}

/// What servers are told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asking {
    /// User and password for the first URL's host.
    pub(crate) user: Option<Credentials>,
    /// Where the bearer token for it is.
    pub(crate) bearer_token_file: Option<PathBuf>,
    /// Where users and passwords are.
    pub(crate) netrc: Option<NetrcFile>,
    /// Where cookies are.
    pub(crate) cookies: Option<PathBuf>,
    /// Where cookies go.
    pub(crate) save_cookies: Option<PathBuf>,
    /// The page that led here.
    pub(crate) referer: Option<Url>,
    /// The program's name.
    pub(crate) user_agent: String,
}

/// A file of users and passwords.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct NetrcFile {
    /// Where.
    pub(crate) path: PathBuf,
    /// Whether it was named, so that it must be there.
    pub(crate) required: bool,
}

/// How servers are reached.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Network {
    /// Proxies, and who is asked without.
    pub(crate) proxies: Proxies,
    /// Authorities to trust instead of the system's.
    pub(crate) ca_file: Option<PathBuf>,
    /// A certificate to show.
    pub(crate) client_cert: Option<PathBuf>,
    /// Whether certificates are not checked.
    pub(crate) insecure: bool,
    /// Which IP.
    pub(crate) ip: Ip,
    /// Who talks to the network.
    pub(crate) engine: Engine,
}

/// Who talks to the network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Engine {
    /// A process of its own; with every layer of its isolation, or none.
    Child {
        /// Whether less than every layer is refused.
        whole: bool,
    },
    /// This process.
    InProcess,
}

/// Which version of IP.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ip {
    /// Whatever works.
    Any,
    /// Version 4.
    V4,
    /// Version 6.
    V6,
}

/// Which proxy to use for which URL.
#[derive(Clone, Default, Eq, PartialEq)]
pub(crate) struct Proxies {
    /// For `http` URLs.
    pub(crate) http: Option<Url>,
    /// For `https` URLs.
    pub(crate) https: Option<Url>,
    /// Who is asked without: a list divided by commas, as in `no_proxy`.
    pub(crate) except: String,
}

// Proxy URLs hold passwords.
impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |url: &Option<Url>| url.as_ref().map(tidegate_core::request::redact);
        f.debug_struct("Proxies")
            .field("http", &shown(&self.http))
            .field("https", &shown(&self.https))
            .field("except", &self.except)
            .finish()
    }
}

/// What a person sees.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Output {
    /// Events on standard output.
    pub(crate) json: bool,
    /// Errors only.
    pub(crate) quiet: bool,
    /// Maps and notices.
    pub(crate) verbose: bool,
    /// Whether to use colours.
    pub(crate) color: Color,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Yes.
    Always,
    /// No.
    Never,
}

impl Config {
    /// Turns words into settings.
    ///
    /// # Errors
    /// The first value that makes no sense, with where it was written.
    pub(crate) fn new(raw: &RawConfig, environment: &Environment) -> Result<Self, Trouble> {
        let read = Reader { raw, environment };
        let connections = read.count("connections", 1..=64)?;
        let shared = |key, usual: RangeInclusive<usize>| {
            let count = read.count(key, usual)?;
            // `-x 16` alone must not be held to a default of 8.
            Ok::<_, Trouble>(if read.is_default(key) { count.max(connections) } else { count })
        };
        let limits = Limits {
            total: read.rate("limit")?,
            each: read.rate("limit-each")?,
            host: read.rate("limit-host")?,
            max_connections: shared("max-connections", 1..=4096)?,
            max_host: shared("max-host", 1..=1024)?,
        };
        let options = Options {
            connections,
            min_split: read.size("min-split", 1024)?,
            resume: read.choice("resume", &[Resume::Auto, Resume::Strict, Resume::Never])?,
            retries: read.retries()?,
            retry_wait: read.wait("retry-wait", Duration::ZERO)?,
            stall: read.wait("timeout", Duration::from_millis(100))?,
            connect_timeout: read.wait("connect-timeout", Duration::from_millis(100))?,
            limit: None,
            speed_min: read.rate("speed-min")?,
            max_size: read.optional_size("max-size")?,
            on_exists: read.choice(
                "on-exists",
                &[OnExists::Rename, OnExists::Skip, OnExists::Overwrite, OnExists::Fail],
            )?,
            newer: read.switch("newer")?,
            remote_time: read.switch("remote-time")?,
            preallocate: read.choice("preallocate", &[Preallocate::Auto, Preallocate::None])?,
            sync: read.choice("sync", &[Sync::File, Sync::None])?,
            dry_run: false,
        };
        let output = Output {
            json: read.switch("json")?,
            quiet: read.switch("quiet")?,
            verbose: read.switch("verbose")?,
            color: read.choice("color", &[Color::Auto, Color::Always, Color::Never])?,
        };
        Ok(Self {
            dir: read.path("dir")?.unwrap_or_else(|| ".".into()),
            options,
            limits,
            jobs: read.count("jobs", 1..=1000)?,
            wait_for_disk: read.choice("when-full", &[false, true])?,
            fail_fast: read.switch("fail-fast")?,
            expand: read.switch("expand")?,
            asking: read.asking()?,
            network: read.network()?,
            output,
        })
    }
}

struct Reader<'a> {
    raw: &'a RawConfig,
    environment: &'a Environment,
}

impl Reader<'_> {
    fn asking(&self) -> Result<Asking, Trouble> {
        let user = match self.optional("user")? {
            None => None,
            Some(text) => match text.split_once(':') {
                Some((user, password)) if !user.is_empty() => {
                    Some(Credentials::Password { user: user.to_owned(), password: password.to_owned() })
                }
                _ => return Err(self.wrong("user", "write it as NAME:PASSWORD (NAME: for no password)")),
            },
        };
        let bearer_token_file = self.path("bearer-token-file")?;
        if user.is_some() && bearer_token_file.is_some() {
            return Err(Trouble::usage("--user and --bearer-token-file exclude each other"));
        }
        let netrc = match self.path("netrc-file")? {
            Some(path) => Some(NetrcFile { path, required: true }),
            None if self.switch("netrc")? => Some(NetrcFile { path: self.usual_netrc()?, required: false }),
            None => None,
        };
        let user_agent = self.text("user-agent")?.to_owned();
        if user_agent.bytes().any(|b| b < 0x20 || b == 0x7f) {
            return Err(self.wrong("user-agent", "it holds a control character"));
        }
        Ok(Asking {
            user,
            bearer_token_file,
            netrc,
            cookies: self.path("cookies")?,
            save_cookies: self.path("save-cookies")?,
            referer: self.referer()?,
            user_agent,
        })
    }

    fn referer(&self) -> Result<Option<Url>, Trouble> {
        let Some(text) = self.optional("referer")? else { return Ok(None) };
        match Url::parse(text) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(Some(url)),
            _ => Err(self.wrong("referer", "write it as http://HOST/PATH or https://HOST/PATH")),
        }
    }

    fn usual_netrc(&self) -> Result<PathBuf, Trouble> {
        if let Some(path) = self.environment.get("NETRC") {
            return Ok(path.into());
        }
        let home = self.environment.home();
        home.map(|h| h.join(".netrc")).ok_or_else(|| {
            Trouble::configuration("--netrc: HOME is not set, so there is no ~/.netrc")
                .next("Name the file with --netrc-file.")
        })
    }

    fn network(&self) -> Result<Network, Trouble> {
        let except = match self.text("no-proxy")? {
            "env" => self.first_variable(&["no_proxy", "NO_PROXY"]).map_or("", |(_, value)| value),
            "none" => "",
            hosts => hosts,
        };
        let (http, https) = match self.text("proxy")? {
            "none" => (None, None),
            "env" => {
                // HTTP_PROXY in capitals may come from a request's `Proxy:` header where programs are
                // started by a web server (CVE-2016-5385), so it is not looked at; curl does the same.
                let of = |names: &[&'static str]| self.proxy_variable(names);
                let https = ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
                (of(&["http_proxy", "all_proxy", "ALL_PROXY"])?, of(&https)?)
            }
            url => {
                let url = proxy_url(url).map_err(|why| self.wrong("proxy", why))?;
                (Some(url.clone()), Some(url))
            }
        };
        Ok(Network {
            proxies: Proxies { http, https, except: except.to_owned() },
            ca_file: self.path("ca-file")?,
            client_cert: self.path("client-cert")?,
            insecure: self.switch("insecure")?,
            ip: self.choice("ip", &[Ip::Any, Ip::V4, Ip::V6])?,
            engine: self.engine()?,
        })
    }

    fn engine(&self) -> Result<Engine, Trouble> {
        let whole = self.switch("require-isolation")?;
        match self.choice("engine", &[Engine::Child { whole }, Engine::InProcess])? {
            Engine::InProcess if whole => Err(Trouble::usage(
                "--require-isolation and --engine in-process exclude each other: in this process nothing is isolated",
            )),
            engine => Ok(engine),
        }
    }

    fn first_variable(&self, names: &[&'static str]) -> Option<(&'static str, &str)> {
        names.iter().find_map(|name| Some((*name, self.environment.text(name)?)))
    }

    fn proxy_variable(&self, names: &[&'static str]) -> Result<Option<Url>, Trouble> {
        let Some((name, value)) = self.first_variable(names) else { return Ok(None) };
        let trouble = |why: String| Trouble::configuration(format!("{name}: {why}"));
        proxy_url(value).map(Some).map_err(trouble)
    }

    fn is_default(&self, key: &'static str) -> bool {
        settings::find(key).is_none_or(|s| self.raw.get(s).origin == Origin::Default)
    }

    fn retries(&self) -> Result<u32, Trouble> {
        let count = self.count("retries", 0..=1_000_000)?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    fn count(&self, key: &'static str, range: RangeInclusive<usize>) -> Result<usize, Trouble> {
        let text = self.text(key)?;
        match text.trim().parse::<usize>() {
            Ok(count) if range.contains(&count) => Ok(count),
            _ => {
                let why = format!("{text:?} is not a whole number from {} to {}", range.start(), range.end());
                Err(self.wrong(key, why))
            }
        }
    }

    fn size(&self, key: &'static str, least: u64) -> Result<u64, Trouble> {
        let size = units::parse_size(self.text(key)?).map_err(|e| self.wrong(key, e))?;
        if size < least {
            return Err(self.wrong(key, format!("at least {} is needed", units::show_size(least))));
        }
        Ok(size)
    }

    fn optional_size(&self, key: &'static str) -> Result<Option<u64>, Trouble> {
        let size = |text: &str| units::parse_size(text).map_err(|e| self.wrong(key, e));
        self.optional(key)?.map(size).transpose()
    }

    fn rate(&self, key: &'static str) -> Result<Option<u64>, Trouble> {
        units::parse_rate(self.text(key)?).map_err(|e| self.wrong(key, e))
    }

    fn wait(&self, key: &'static str, least: Duration) -> Result<Duration, Trouble> {
        let wait = units::parse_duration(self.text(key)?).map_err(|e| self.wrong(key, e))?;
        if wait < least || wait > LONGEST_WAIT {
            let range = [least, LONGEST_WAIT].map(units::show_duration);
            return Err(self.wrong(key, format!("it must be from {} to {}", range[0], range[1])));
        }
        Ok(wait)
    }

    fn switch(&self, key: &'static str) -> Result<bool, Trouble> {
        match self.text(key)? {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            other => Err(self.wrong(key, format!("{other:?} is not true or false"))),
        }
    }

    /// The value that stands at the place of the word in the setting's list.
    fn choice<T: Copy>(&self, key: &'static str, values: &[T]) -> Result<T, Trouble> {
        let Some(settings::Kind::Choice(words)) = settings::find(key).map(|s| s.kind) else {
            return Err(self.wrong(key, "it has no list of values"));
        };
        let text = self.text(key)?;
        let place = words.iter().position(|word| *word == text);
        place
            .and_then(|place| values.get(place))
            .copied()
            .ok_or_else(|| self.wrong(key, format!("{text:?} is not one of {}", words.join(", "))))
    }

    /// A path, as the shell or a file wrote it.
    fn path(&self, key: &'static str) -> Result<Option<PathBuf>, Trouble> {
        let Some(setting) = settings::find(key) else { return Ok(None) };
        let sourced = self.raw.get(setting);
        if sourced.value.is_empty() {
            return Err(self.wrong(key, "it is empty"));
        }
        if sourced.value == "none" {
            return Ok(None);
        }
        Ok(Some(match sourced.origin {
            // The shell has replaced what it wanted to.
            Origin::Option(_) => PathBuf::from(&sourced.value),
            _ => self.environment.path(&sourced.value),
        }))
    }

    fn optional(&self, key: &'static str) -> Result<Option<&str>, Trouble> {
        Ok(Some(self.text(key)?).filter(|text| *text != "none"))
    }

    fn text(&self, key: &'static str) -> Result<&str, Trouble> {
        let value = settings::find(key).map(|s| &self.raw.get(s).value);
        value.and_then(|v| v.to_str()).ok_or_else(|| self.wrong(key, "it is not UTF-8"))
    }

    fn wrong(&self, key: &str, why: impl fmt::Display) -> Trouble {
        let origin = settings::find(key).map(|s| &self.raw.get(s).origin);
        match origin {
            Some(Origin::Option(option)) => Trouble::usage(format!("{option}: {why}")),
            Some(Origin::Variable(name)) => Trouble::configuration(format!("{name}: {why}")),
            Some(Origin::File { path, line }) => {
                Trouble::configuration(format!("{}:{line}: {key}: {why}", path.display()))
            }
            _ => Trouble::configuration(format!("{key}: {why}")),
        }
    }
}

/// Reads the URL of a proxy; without a scheme it is `http`.
///
/// # Errors
/// A sentence that holds no password.
fn proxy_url(text: &str) -> Result<Url, String> {
    let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Url::parse(&full).map_err(|e| format!("it is not the URL of a proxy: {e}"))?;
    if !matches!(url.scheme(), "http" | "https" | "socks5" | "socks5h") {
        return Err(format!("only http, https and socks5 proxies are spoken to, not {}", url.scheme()));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("it is not the URL of a proxy: it names no host".to_owned());
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::SETTINGS;

    fn config(options: &[(&'static str, &str)], environment: &Environment) -> Result<Config, Trouble> {
        let mut raw = RawConfig::defaults();
        for (key, value) in options {
            raw.set(key, value.into(), Origin::Option(format!("--{key}")));
        }
        Config::new(&raw, environment)
    }

    fn with(options: &[(&'static str, &str)]) -> Config {
        config(options, &Environment::of([("HOME", "/h")])).unwrap()
    }

    #[test]
    fn the_defaults_that_are_told_are_those_that_hold() {
        let config = with(&[]);
        assert_eq!(config.options, Options::default());
        assert_eq!(config.limits, Limits::default());
        assert_eq!(config.jobs, 4);
    }

    #[test]
    fn no_setting_is_without_effect() {
        let table = [
            ("dir", "/d"),
            ("on-exists", "skip"),
            ("newer", "true"),
            ("remote-time", "true"),
            ("sync", "none"),
            ("preallocate", "none"),
            ("max-size", "1G"),
            ("expand", "true"),
            ("connections", "3"),
            ("max-host", "9"),
            ("max-connections", "9"),
            ("min-split", "2M"),
            ("jobs", "5"),
            ("limit", "1M"),
            ("limit-each", "1M"),
            ("limit-host", "1M"),
            ("speed-min", "10k"),
            ("resume", "strict"),
            ("retries", "3"),
            ("retry-wait", "2s"),
            ("timeout", "3s"),
            ("connect-timeout", "3s"),
            ("when-full", "wait"),
            ("fail-fast", "true"),
            ("user", "me:pw"),
            ("bearer-token-file", "/t"),
            ("netrc", "true"),
            ("netrc-file", "/n"),
            ("cookies", "/c"),
            ("save-cookies", "/c"),
            ("referer", "http://r/"),
            ("user-agent", "me"),
            ("proxy", "http://p:1"),
            ("no-proxy", "h"),
            ("ca-file", "/ca"),
            ("client-cert", "/cc"),
            ("insecure", "true"),
            ("ip", "4"),
            ("engine", "in-process"),
            ("require-isolation", "true"),
            ("json", "true"),
            ("quiet", "true"),
            ("verbose", "true"),
            ("color", "never"),
        ];
        let keys: Vec<&str> = table.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, SETTINGS.iter().map(|s| s.key).collect::<Vec<_>>(), "one row for each setting");
        for (key, value) in table {
            assert_ne!(with(&[(key, value)]), with(&[]), "{key} changes nothing");
        }
    }

    #[test]
    fn values_land_in_the_right_place() {
        let config = with(&[
            ("limit", "2M"),
            ("limit-each", "0"),
            ("min-split", "500k"),
            ("timeout", "1m"),
            ("connect-timeout", "500ms"),
            ("user", "me:a:b"),
        ]);
        assert_eq!(config.limits.total, Some(2 << 20));
        assert_eq!(config.limits.each, None);
        assert_eq!(config.options.min_split, 500 << 10);
        assert_eq!(config.options.stall, Duration::from_secs(60));
        assert_eq!(config.options.connect_timeout, Duration::from_millis(500));
        let expected = Credentials::Password { user: "me".into(), password: "a:b".into() };
        assert_eq!(config.asking.user, Some(expected));
        let netrc = |required, path: &str| Some(NetrcFile { path: path.into(), required });
        assert_eq!(with(&[("netrc", "true")]).asking.netrc, netrc(false, "/h/.netrc"));
        assert_eq!(with(&[("netrc-file", "/n")]).asking.netrc, netrc(true, "/n"));
    }

    #[test]
    fn more_connections_raise_only_limits_that_nobody_set() {
        let config = with(&[("connections", "40")]);
        assert_eq!((config.limits.max_host, config.limits.max_connections), (40, 40));
        let config = with(&[("connections", "40"), ("max-host", "8")]);
        assert_eq!((config.limits.max_host, config.limits.max_connections), (8, 40));
        let config = with(&[("connections", "1")]);
        assert_eq!((config.limits.max_host, config.limits.max_connections), (8, 32));
    }

    #[test]
    fn what_makes_no_sense_is_told_with_where_it_was_written() {
        let table = [
            ("connections", "0", "--connections: \"0\" is not a whole number from 1 to 64"),
            ("connections", "65", "--connections: "),
            ("jobs", "many", "--jobs: \"many\" is not"),
            ("max-size", "large", "--max-size: "),
            ("min-split", "1", "--min-split: at least 1.0 KiB is needed"),
            ("limit", "fast", "--limit: "),
            ("timeout", "0s", "--timeout: it must be from 100ms to 1d"),
            ("retry-wait", "2d", "--retry-wait: it must be from 0s to 1d"),
            ("newer", "maybe", "--newer: \"maybe\" is not true or false"),
            ("resume", "often", "--resume: \"often\" is not one of auto, strict, never"),
            ("user", "hunter2", "--user: write it as"),
            ("proxy", "ftp://me:hunter2@h", "--proxy: only http, https and socks5"),
            ("proxy", "http://me:hunter2@:1", "--proxy: it is not the URL of a proxy"),
            ("user-agent", "a\nb", "--user-agent: it holds a control character"),
            ("referer", "hunter2", "--referer: write it as"),
            ("dir", "", "--dir: it is empty"),
        ];
        for (key, value, start) in table {
            let trouble = config(&[(key, value)], &Environment::of([])).unwrap_err();
            assert!(trouble.message.starts_with(start), "{key}={value}: {}", trouble.message);
            assert!(!trouble.message.contains("hunter2"), "{}", trouble.message);
            assert_eq!(trouble.exit.code(), 2);
        }
        let mut raw = RawConfig::defaults();
        raw.set("jobs", "x".into(), Origin::File { path: "/c.toml".into(), line: 7 });
        let trouble = Config::new(&raw, &Environment::of([])).unwrap_err();
        assert!(trouble.message.starts_with("/c.toml:7: jobs: "), "{}", trouble.message);
    }

    #[test]
    fn the_usual_variables_name_the_proxy_as_for_curl() {
        let proxies = |options: &[(&'static str, &str)], variables: &[(&str, &str)]| {
            let p = config(options, &Environment::of(variables.iter().copied())).unwrap().network.proxies;
            let host =
                |url: Option<Url>| url.and_then(|u| u.host_str().map(str::to_owned)).unwrap_or_default();
            (host(p.http), host(p.https), p.except)
        };
        let three = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        let usual = [("http_proxy", "a:1"), ("HTTPS_PROXY", "http://b"), ("no_proxy", "x,y")];
        assert_eq!(proxies(&[], &usual), three("a", "b", "x,y"));
        assert_eq!(proxies(&[("proxy", "none")], &usual), three("", "", "x,y"));
        assert_eq!(proxies(&[("proxy", "socks5://c"), ("no-proxy", "none")], &usual), three("c", "c", ""));
        assert_eq!(proxies(&[], &[("HTTP_PROXY", "a:1")]), three("", "", ""));
        assert_eq!(proxies(&[], &[("ALL_PROXY", "a"), ("https_proxy", "b")]), three("a", "b", ""));
        assert_eq!(proxies(&[], &[("https_proxy", "b"), ("HTTPS_PROXY", "c")]), three("", "b", ""));
        let trouble = config(&[], &Environment::of([("all_proxy", "gopher://me:hunter2@h")])).unwrap_err();
        assert!(trouble.message.starts_with("all_proxy: only http"), "{}", trouble.message);
    }

    #[test]
    fn secrets_are_not_in_the_debug_output() {
        let config = with(&[("user", "me:hunter2"), ("proxy", "http://me:hunter3@p")]);
        let shown = format!("{config:?}");
        assert!(!shown.contains("hunter"), "{shown}");
    }
}
