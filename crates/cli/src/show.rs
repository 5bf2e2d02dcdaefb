//! `tidegate config show`: every setting as it holds, without its secrets, as a configuration file.

use crate::config::Config;
use crate::environment::Environment;
use crate::raw::{Origin, RawConfig};
use crate::settings::{Kind, Reach, SETTINGS, Setting};
use crate::trouble::Trouble;
use std::fmt::Write;
use tidegate_core::request::redact;
use url::Url;

/// The text to print. What it prints can be used as a configuration file, but for its secrets.
///
/// # Errors
/// A value that makes no sense.
pub(crate) fn show(raw: &RawConfig, environment: &Environment, origins: bool) -> Result<String, Trouble> {
    // What would be refused by `get` is not shown as if it held.
    Config::new(raw, environment)?;
    let mut text = String::new();
    for setting in SETTINGS {
        let sourced = raw.get(setting);
        let line = line(setting, &sourced.value.to_string_lossy());
        // Writing to a String does not fail.
        let _ = if origins {
            writeln!(text, "{line:<40} # {}", origin(&sourced.origin))
        } else {
            writeln!(text, "{line}")
        };
    }
    Ok(text)
}

fn origin(origin: &Origin) -> String {
    origin.to_string().replace(char::is_control, "?")
}

fn line(setting: &Setting, value: &str) -> String {
    if setting.reach == Reach::Secret {
        // Not even commented in: files may not hold it.
        let shown = if value == setting.default { value } else { "(hidden)" };
        return format!("# {} = {shown}", setting.key);
    }
    let bare = match setting.kind {
        Kind::Switch => true,
        _ => value.parse::<u32>().is_ok_and(|n| n.to_string() == value),
    };
    if bare {
        let value = match value {
            "yes" | "on" | "1" if matches!(setting.kind, Kind::Switch) => "true",
            "no" | "off" | "0" if matches!(setting.kind, Kind::Switch) => "false",
            other => other,
        };
        return format!("{} = {value}", setting.key);
    }
    format!("{} = {}", setting.key, toml::Value::String(without_secret(value)))
}

/// A URL among the values may hold a password or a signed query.
fn without_secret(value: &str) -> String {
    match Url::parse(value) {
        Ok(url) if url.has_host() => {
            let shown = redact(&url);
            // As it was written, when there was nothing to hide.
            if shown == url.as_str() { value.to_owned() } else { shown }
        }
        _ => match value.rsplit_once('@') {
            Some((_, host)) => format!("…@{host}"),
            None => value.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(options: &[(&'static str, &str)]) -> RawConfig {
        let mut raw = RawConfig::defaults();
        for (key, value) in options {
            raw.set(key, value.into(), Origin::Option(format!("--{key}")));
        }
        raw
    }

    #[test]
    fn what_is_shown_is_a_configuration_file() {
        let text = show(&raw(&[("json", "yes"), ("limit", "2M")]), &Environment::default(), false).unwrap();
        let table: toml::Table = text.parse().unwrap();
        assert_eq!(table.get("json"), Some(&toml::Value::Boolean(true)));
        assert_eq!(table.get("limit"), Some(&toml::Value::String("2M".into())));
        assert_eq!(table.get("connections"), Some(&toml::Value::Integer(8)));
        assert!(text.contains("# user = none"), "{text}");
    }

    #[test]
    fn each_origin_is_told() {
        let text = show(&raw(&[("limit", "2M")]), &Environment::default(), true).unwrap();
        let line = |key: &str| text.lines().find(|l| l.starts_with(key)).unwrap().to_owned();
        assert!(line("limit =").ends_with("# --limit"), "{text}");
        assert!(line("jobs =").ends_with("# default"), "{text}");
    }

    #[test]
    fn no_secret_is_shown() {
        let options = [
            ("user", "me:hunter2"),
            ("proxy", "me:hunter2@p:1"),
            ("referer", "https://me:hunter2@h/?token=hunter2"),
        ];
        let text = show(&raw(&options), &Environment::default(), true).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
        let text = show(&raw(&[("proxy", "http://me:hunter2@p:1/")]), &Environment::default(), true).unwrap();
        assert!(text.contains("http://p:1/") && !text.contains("hunter2"), "{text}");
    }
}
