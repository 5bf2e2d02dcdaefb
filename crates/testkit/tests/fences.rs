//! What no lint can say: unsafe code stands in `sys` modules alone, every crate keeps to the lints of the
//! workspace, and the documents speak of what is there.
//!
//! That unsafe code is denied elsewhere is a lint, but a lint can be allowed anywhere with one line.
#![allow(clippy::unwrap_used, reason = "a failure here is the failure of a test")]

use std::fs;
use std::path::{Path, PathBuf};

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every Rust file below a folder.
fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// Whether unsafe code may stand in this file: `sys.rs`, or any file below a folder `sys`.
fn is_sys(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "sys.rs")
        || path.parent().is_some_and(|folder| folder.components().any(|part| part.as_os_str() == "sys"))
}

/// A line without its comment and without what stands in quotes.
fn code(line: &str) -> String {
    let (mut kept, mut quoted, mut escaped, mut before) = (String::new(), false, false, ' ');
    for character in line.chars() {
        match character {
            '"' if !escaped => quoted = !quoted,
            '/' if !quoted && before == '/' => break,
            _ if !quoted => kept.push(character),
            _ => {}
        }
        escaped = quoted && character == '\\' && !escaped;
        before = character;
    }
    kept
}

/// The lines, from 1, that have unsafe code or allow it.
fn unsafe_lines(text: &str) -> Vec<usize> {
    let is_unsafe = |line: &str| {
        code(line)
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .any(|word| matches!(word, "unsafe" | "unsafe_code"))
    };
    text.lines().enumerate().filter(|(_, line)| is_unsafe(line)).map(|(index, _)| index + 1).collect()
}

#[test]
fn unsafe_code_stands_in_sys_modules_alone() {
    let mut files = Vec::new();
    sources(&crates(), &mut files);
    assert!(files.len() > 50, "the whole workspace is looked at");
    let offences: Vec<String> = files
        .iter()
        .filter(|path| !is_sys(path))
        .flat_map(|path| {
            let lines = unsafe_lines(&fs::read_to_string(path).unwrap());
            lines.into_iter().map(move |line| format!("{}:{line}", path.display()))
        })
        .collect();
    assert_eq!(offences, Vec::<String>::new());
}

#[test]
fn unsafe_code_would_be_found_wherever_it_is_written() {
    // In capitals, so that this test does not find itself.
    let lines = [
        r#"//! UNSAFE is only spoken of here"#,
        r#"let word = "UNSAFE"; // UNSAFE"#,
        r#"let quote = "\" UNSAFE"; UNSAFE { call() }"#,
        r#"#![allow(UNSAFE_code)]"#,
        r#"UNSAFE fn f() {}"#,
        r#"let UNSAFE_part = 1;"#,
    ];
    let text = lines.join("\n").replace("UNSAFE", "unsafe");
    assert_eq!(unsafe_lines(&text), [3, 4, 5]);
    let mut files = Vec::new();
    sources(&crates(), &mut files);
    assert!(
        files.iter().any(|path| is_sys(path) && !unsafe_lines(&fs::read_to_string(path).unwrap()).is_empty()),
        "there is unsafe code, and it is seen"
    );
    assert!(is_sys(Path::new("crates/a/src/sys.rs")) && is_sys(Path::new("crates/a/src/sys/b.rs")));
    assert!(!is_sys(Path::new("crates/sys_a/src/lib.rs")) && !is_sys(Path::new("crates/a/src/my_sys.rs")));
}

#[test]
fn every_crate_keeps_to_the_lints_of_the_workspace() {
    let mut count = 0;
    for entry in fs::read_dir(crates()).unwrap() {
        let manifest = entry.unwrap().path().join("Cargo.toml");
        let Ok(text) = fs::read_to_string(&manifest) else { continue };
        assert!(text.contains("\n[lints]\nworkspace = true\n"), "{}", manifest.display());
        count += 1;
    }
    assert!(count >= 6, "every crate is looked at");
}

/// What stands between backquotes and is long enough to be the name of a test.
fn tests_cited(text: &str) -> Vec<&str> {
    let is_name = |word: &&str| {
        word.matches('_').count() >= 2
            && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    text.split('`').skip(1).step_by(2).filter(is_name).collect()
}

#[test]
fn every_test_that_the_design_cites_is_there() {
    let design = fs::read_to_string(crates().join("../docs/design.md")).unwrap();
    let mut files = Vec::new();
    sources(&crates(), &mut files);
    let all: String = files.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let cited = tests_cited(&design);
    assert!(cited.len() > 40, "the citations are found");
    // A function, or a line in the table of tests that have a process of their own each.
    let is_there =
        |name: &str| all.contains(&format!("fn {name}(")) || all.contains(&format!("(\"{name}\", "));
    let missing: Vec<&str> = cited.into_iter().filter(|name| !is_there(name)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn a_cited_test_that_is_not_there_would_be_found() {
    assert_eq!(tests_cited("see `core/a_b_c.rs`, *`a_b_c`* and `SEAM`, `x_y`, a_b_d"), ["a_b_c"]);
}

/// The names in a table of a manifest.
fn names_below<'a>(manifest: &'a str, heading: &str) -> Vec<&'a str> {
    let table = manifest.split_once(heading).map_or("", |(_, rest)| rest);
    table
        .lines()
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['.', ' ', '=']).next().filter(|name| !name.is_empty()))
        .filter(|name| !name.starts_with("tidegate"))
        .collect()
}

#[test]
fn every_dependency_is_justified_and_none_is_spoken_of_that_is_not_there() {
    let root = crates().join("..");
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let text = fs::read_to_string(root.join("docs/dependencies.md")).unwrap();
    let mut there = names_below(&manifest, "\n[workspace.dependencies]\n");
    let mut justified: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    there.sort_unstable();
    justified.sort_unstable();
    assert!(there.len() > 20, "the table is found");
    assert_eq!(justified, there);
}
