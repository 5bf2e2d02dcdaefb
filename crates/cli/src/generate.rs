//! Completions for shells and manual pages, made from the definition of the command line.

use crate::args::command;
use crate::trouble::Trouble;
use clap::Command;
use clap_mangen::Man;
use std::path::Path;

/// The completions for a shell.
pub(crate) fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "tidegate", &mut text);
    text
}

/// The manual page of a command, or of tidegate itself.
///
/// # Errors
/// When there is no such command.
pub(crate) fn man(page: Option<&str>) -> Result<Vec<u8>, Trouble> {
    let pages = pages();
    let name = page.map_or_else(|| "tidegate".to_owned(), |page| format!("tidegate-{page}"));
    let known: Vec<&str> = pages.iter().filter_map(|(name, _)| name.strip_prefix("tidegate-")).collect();
    let (_, page) = pages.iter().find(|(known, _)| *known == name).ok_or_else(|| {
        Trouble::usage(format!("there is no manual page {name}"))
            .next(format!("There are pages for: {}.", known.join(", ")))
    })?;
    render(page)
}

/// Writes every manual page into a folder.
///
/// # Errors
/// When one cannot be written.
pub(crate) fn write_all(folder: &Path) -> Result<(), Trouble> {
    let trouble = |path: &Path, e: std::io::Error| {
        Trouble::configuration(format!("{} cannot be written: {e}", path.display()))
    };
    std::fs::create_dir_all(folder).map_err(|e| trouble(folder, e))?;
    for (name, page) in pages() {
        let path = folder.join(format!("{name}.1"));
        std::fs::write(&path, render(&page)?).map_err(|e| trouble(&path, e))?;
    }
    Ok(())
}

/// The commands that have a page, by the names of their pages.
fn pages() -> Vec<(String, Command)> {
    let mut root = command();
    // Gives each command the name under which its page is known.
    root.build();
    let mut pages = Vec::new();
    let mut left = vec![root];
    while let Some(command) = left.pop() {
        left.extend(command.get_subcommands().filter(|c| !c.is_hide_set()).cloned());
        let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
        pages.push((name, command));
    }
    pages.sort_by(|(a, _), (b, _)| a.cmp(b));
    pages
}

fn render(page: &Command) -> Result<Vec<u8>, Trouble> {
    let mut text = Vec::new();
    Man::new(page.clone())
        .render(&mut text)
        .map_err(|e| Trouble::configuration(format!("the manual page cannot be made: {e}")))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_completions_for_every_shell() {
        use clap::ValueEnum;
        for shell in clap_complete::Shell::value_variants() {
            let text = String::from_utf8(completions(*shell)).unwrap();
            assert!(text.contains("max-host") && text.contains("verify"), "{shell}");
        }
    }

    #[test]
    fn there_is_a_page_for_each_command() {
        let page = |name| String::from_utf8(man(name).unwrap()).unwrap();
        assert!(page(None).contains(".TH tidegate 1"), "{}", page(None));
        assert!(page(Some("get")).contains("max\\-host"));
        assert!(page(Some("config-show")).contains("origin"));
        assert_eq!(man(Some("nothing")).unwrap_err().exit.code(), 2);
    }
}
