//! The environment, read once at the start so that the rest is told it and can be tested.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The variables of the environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<String, OsString>,
}

impl Environment {
    /// What this process was started with. Variables whose names are not UTF-8 are none of ours.
    pub(crate) fn of_this_process() -> Self {
        let variables =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value))).collect();
        Self { variables }
    }

    /// Exactly these.
    #[cfg(test)]
    pub(crate) fn of<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self { variables: variables.into_iter().map(|(n, v)| (n.to_owned(), v.into())).collect() }
    }

    /// A variable that is there and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(name).map(OsString::as_os_str).filter(|v| !v.is_empty())
    }

    /// The same as text; one that is not UTF-8 is none.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(OsStr::to_str)
    }

    /// Every variable whose name begins so, in order of name.
    pub(crate) fn variables_with_prefix<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a OsStr)> + 'a {
        self.variables
            .iter()
            .filter(move |(name, _)| name.starts_with(prefix))
            .map(|(name, value)| (name.as_str(), value.as_os_str()))
    }

    /// The user's own folder.
    pub(crate) fn home(&self) -> Option<&Path> {
        self.get("HOME").map(Path::new).filter(|p| p.is_absolute())
    }

    /// The folder for the user's configurations, and whether it is the usual one: `XDG_CONFIG_HOME`
    /// names another. As the XDG specification wants, a relative one is ignored.
    pub(crate) fn config_home(&self) -> Option<(PathBuf, bool)> {
        let named = self.get("XDG_CONFIG_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
        named.map(|folder| (folder, false)).or_else(|| Some((self.home()?.join(".config"), true)))
    }

    /// A path as written in a file or variable, where no shell has replaced a leading `~/`.
    pub(crate) fn path(&self, written: &OsStr) -> PathBuf {
        let path = Path::new(written);
        match (path.strip_prefix("~"), self.home()) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => path.to_owned(),
        }
    }

    /// Whether text may hold more than ASCII here.
    pub(crate) fn speaks_unicode(&self) -> bool {
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| self.text(name));
        let locale = locale.unwrap_or_default().to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_for_configurations_follows_xdg() {
        let table = [
            (vec![("XDG_CONFIG_HOME", "/c"), ("HOME", "/h")], Some(("/c", false))),
            (vec![("XDG_CONFIG_HOME", "c"), ("HOME", "/h")], Some(("/h/.config", true))),
            (vec![("XDG_CONFIG_HOME", ""), ("HOME", "/h")], Some(("/h/.config", true))),
            (vec![], None),
        ];
        for (variables, folder) in table {
            let environment = Environment::of(variables.clone());
            assert_eq!(
                environment.config_home(),
                folder.map(|(f, usual)| (f.into(), usual)),
                "{variables:?}"
            );
        }
    }

    #[test]
    fn a_tilde_means_home_only_at_the_start() {
        let environment = Environment::of([("HOME", "/h")]);
        assert_eq!(environment.path(OsStr::new("~/a")), Path::new("/h/a"));
        assert_eq!(environment.path(OsStr::new("~a/b")), Path::new("~a/b"));
        assert_eq!(environment.path(OsStr::new("b/~/a")), Path::new("b/~/a"));
    }

    #[test]
    fn the_first_locale_variable_that_is_set_decides() {
        assert!(Environment::of([("LANG", "de_DE.UTF-8")]).speaks_unicode());
        assert!(!Environment::of([("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]).speaks_unicode());
        assert!(!Environment::of([]).speaks_unicode());
    }
}
