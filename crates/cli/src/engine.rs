//! What the engine is told: the files that the configuration names, read here, since the engine reads
//! none.

use crate::config::{Config, Engine, Ip, NetrcFile};
use crate::files;
use crate::trouble::{Trouble, in_words};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use tidegate_core::cookies::CookieJar;
use tidegate_core::netrc::Netrc;
use tidegate_engine::Mode;
use tidegate_engine::connect::{Family, NetworkConfig, Proxies, TlsConfig};

/// With this variable, bodies pass through memory where they would go by `splice`.
pub(crate) const BUFFERED: &str = "TIDEGATE_BUFFERED";

/// The engine's configuration, and what a person should know of it: sentences.
///
/// # Errors
/// When a file cannot be read or makes no sense.
pub(crate) fn settings(config: &Config) -> Result<(tidegate_engine::Config, Vec<String>), Trouble> {
    let mut notes = Vec::new();
    let asking = &config.asking;
    let cookies = match &asking.cookies {
        Some(path) => cookies(path, &mut notes)?,
        None => CookieJar::new(),
    };
    let netrc = match &asking.netrc {
        Some(file) => netrc(file, &mut notes)?,
        None => None,
    };
    let settings = tidegate_engine::Config {
        limits: config.limits,
        network: network(config, &mut notes)?,
        user_agent: Some(asking.user_agent.clone()),
        referer: asking.referer.clone(),
        cookies,
        netrc,
        buffered: std::env::var_os(BUFFERED).is_some(),
        mode: match config.network.engine {
            Engine::Child { whole } => Mode::Child { program: None, whole },
            Engine::InProcess => Mode::InProcess,
        },
        ..tidegate_engine::Config::default()
    };
    Ok((settings, notes))
}

fn network(config: &Config, notes: &mut Vec<String>) -> Result<NetworkConfig, Trouble> {
    let network = &config.network;
    let pem = |what, path: &Option<PathBuf>| path.as_deref().map(|path| files::read(what, path)).transpose();
    let url = |url: &Option<url::Url>| url.as_ref().map(|url| url.as_str().to_owned());
    let (http, https) = (url(&network.proxies.http), url(&network.proxies.https));
    let proxies = Proxies::parse(http.as_deref(), https.as_deref(), None, Some(&network.proxies.except))?;
    if network.insecure {
        notes.push("certificates are not checked: anyone on the way can change what is fetched".to_owned());
    }
    Ok(NetworkConfig {
        family: match network.ip {
            Ip::Any => Family::Any,
            Ip::V4 => Family::V4,
            Ip::V6 => Family::V6,
        },
        proxies,
        tls: TlsConfig {
            ca_pem: pem("--ca-file", &network.ca_file)?,
            client_cert_pem: pem("--client-cert", &network.client_cert)?,
            insecure: network.insecure,
        },
    })
}

fn cookies(path: &Path, notes: &mut Vec<String>) -> Result<CookieJar, Trouble> {
    let read = CookieJar::from_netscape(&files::read_text("--cookies", path)?, now());
    if let Some((line, why)) = read.skipped.first() {
        let count = read.skipped.len();
        notes.push(format!(
            "{}: {count} lines are no cookies; the first is line {line}: {why}",
            path.display()
        ));
    }
    Ok(read.jar)
}

fn netrc(file: &NetrcFile, notes: &mut Vec<String>) -> Result<Option<Netrc>, Trouble> {
    if !file.required && !file.path.exists() {
        notes.push(format!("there is no {}", file.path.display()));
        return Ok(None);
    }
    let text = files::read_text("--netrc", &file.path)?;
    // The error tells the line, never a word of it.
    let netrc = Netrc::parse(&text)
        .map_err(|e| Trouble::configuration(format!("--netrc: {}: {e}", file.path.display())))?;
    Ok(Some(netrc))
}

/// Writes the cookies for the user alone to read; the file is whole at any time.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn save_cookies(jar: &CookieJar, path: &Path) -> Result<(), Trouble> {
    let write = || {
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}.tmp", std::process::id()));
        let beside = Path::new(&beside);
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let written = options
            .open(beside)
            .and_then(|mut file| {
                file.write_all(jar.to_netscape(now()).as_bytes())?;
                file.sync_all()
            })
            .and_then(|()| std::fs::rename(beside, path));
        if written.is_err() {
            let _ = std::fs::remove_file(beside);
        }
        written
    };
    write().map_err(|e: io::Error| {
        Trouble::configuration(format!(
            "--save-cookies: {} cannot be written: {}",
            path.display(),
            in_words(&e)
        ))
    })
}

/// Seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::raw::{Origin, RawConfig};

    fn with(options: &[(&'static str, &str)]) -> Result<(tidegate_engine::Config, Vec<String>), Trouble> {
        let mut raw = RawConfig::defaults();
        for (key, value) in options {
            raw.set(key, value.into(), Origin::Option(format!("--{key}")));
        }
        let environment = Environment::of([("HOME", "/nonexistent")]);
        settings(&Config::new(&raw, &environment).unwrap())
    }

    #[test]
    fn each_option_for_the_engine_changes_what_it_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let cookies = file("cookies", "h\tFALSE\t/\tFALSE\t0\ta\tb\n");
        let netrc = file("netrc", "machine h login me password pw\n");
        let pem = file("pem", "-----BEGIN CERTIFICATE-----\n");
        let table: &[(&'static str, &str)] = &[
            ("limit", "1M"),
            ("limit-each", "1M"),
            ("limit-host", "1M"),
            ("max-host", "3"),
            ("max-connections", "3"),
            ("user-agent", "me"),
            ("referer", "http://r/"),
            ("cookies", &cookies),
            ("netrc-file", &netrc),
            ("ca-file", &pem),
            ("client-cert", &pem),
            ("insecure", "true"),
            ("ip", "4"),
            ("engine", "in-process"),
            ("require-isolation", "true"),
            ("proxy", "http://p:1"),
        ];
        let plain = format!("{:?}", with(&[]).unwrap().0);
        for option in table {
            assert_ne!(format!("{:?}", with(&[*option]).unwrap().0), plain, "{option:?} changes nothing");
        }
    }

    #[test]
    fn a_file_that_was_named_must_be_there_but_not_the_usual_one() {
        for key in ["netrc-file", "cookies", "ca-file", "client-cert"] {
            assert!(with(&[(key, "/nonexistent/x")]).is_err(), "{key}");
        }
        let (settings, notes) = with(&[("netrc", "true")]).unwrap();
        assert!(settings.netrc.is_none());
        assert_eq!(notes, ["there is no /nonexistent/.netrc"]);
    }

    #[cfg(unix)]
    #[test]
    fn saved_cookies_are_for_the_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c");
        std::fs::write(&path, "old").unwrap();
        save_cookies(&CookieJar::new(), &path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(save_cookies(&CookieJar::new(), Path::new("/nonexistent/c")).is_err());
    }
}
