//! The program as a person meets it: what needs no server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs the program with these words, in this folder, without anything of the environment.
fn run(folder: &Path, words: &[&str], variables: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(words)
        .current_dir(folder)
        .env_clear()
        .env("HOME", folder)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

struct Said {
    code: i32,
    out: String,
    err: String,
}

fn say_in(folder: &Path, words: &[&str], variables: &[(&str, &str)]) -> Said {
    let output = run(folder, words, variables);
    Said {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn say(words: &[&str]) -> Said {
    say_in(tempfile::tempdir().unwrap().path(), words, &[])
}

const ABC: &str = "sha-256=ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

#[test]
fn wrong_usage_ends_with_2_and_says_what_to_do_on_standard_error() {
    let table: &[(&[&str], &str)] = &[
        (&["get"], "no URL was given [usage]\n  Write `tidegate URL`"),
        (&["verfy", "a"], "\"verfy\" is neither a command nor a URL [usage]\n  Commands are"),
        (&["https:/h/a"], "a URL begins with https:/, which lacks a slash [usage]"),
        (&["ftp://h/a"], "only http and https are spoken, not ftp [bad-url]\n  Write the URL as"),
        (&["-x", "0", "http://h/a"], "--connections: \"0\" is not a whole number from 1 to 64 [usage]"),
        (&["--limit", "fast", "http://h/a"], "--limit: "),
        (&["--resume", "maybe", "http://h/a"], "invalid value 'maybe'"),
        (&["--no-such-option", "http://h/a"], "unexpected argument '--no-such-option'"),
        (&["--cookies", "none-here", "http://h/a"], "none-here cannot be read"),
        (&["verify", "a"], "there is nothing to compare the files with [usage]"),
        (&["-c", "http://h/a"], "tip: leave it out: the same command goes on from what is here by itself"),
        (
            &["-O", "http://h/a"],
            "tip: the file gets the name of the link or the server; -o NAME gives it another",
        ),
        (&["man", "nothing"], "there is no manual page tidegate-nothing [usage]\n  There are pages for: "),
    ];
    for (words, text) in table {
        let said = say(words);
        assert_eq!(said.code, 2, "{words:?}: {}", said.err);
        assert!(said.err.contains(text), "{words:?}: {}", said.err);
        assert_eq!(said.out, "", "{words:?}");
    }
    assert_eq!(say(&[]).code, 2);
}

#[test]
fn no_secret_of_the_command_line_is_repeated() {
    let table: &[&[&str]] = &[
        &["ftp://me:hunter2@h/a?token=hunter2"],
        &["http://h/a", "--user", "hunter2"],
        &["http://h/a", "-H", "Authorization hunter2"],
        &["http://h/a", "--proxy", "ftp://me:hunter2@h"],
        &["config", "show", "--origin", "--user", "me:hunter2", "--proxy", "http://me:hunter2@p:1"],
    ];
    for words in table {
        let said = say(words);
        assert!(
            !format!("{}{}", said.out, said.err).contains("hunter2"),
            "{words:?}: {}{}",
            said.out,
            said.err
        );
    }
}

#[test]
fn help_has_headings_defaults_and_examples() {
    let said = say(&["get", "--help"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let mut at = 0;
    for piece in [
        "What to fetch:",
        "Files:",
        "Folder to put files into [default: .]",
        "Connections and speed:",
        "Most connections for one file, 1 to 64 [default: 8]",
        "Resuming and trying again:",
        "What the server is told:",
        "Network:",
        "Output:",
        "Examples:",
        "Exit codes",
        "130 interrupted",
    ] {
        let found = said.out[at..].find(piece);
        at += found.unwrap_or_else(|| panic!("{piece:?} is missing, or not in its place:\n{}", said.out));
    }
    assert!(said.out.lines().all(|line| line.chars().count() <= 110), "{}", said.out);
    let top = say(&["--help"]);
    assert_eq!(say(&["help"]).out, top.out);
    assert_eq!(say(&["help", "get"]).out, said.out);
    assert!(top.out.contains("tidegate URL") && top.out.contains("verify"), "{}", top.out);
    assert!(say(&["--version"]).out.starts_with("tidegate "));
}

#[test]
fn config_show_tells_what_holds_and_where_it_was_said() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join(".config/tidegate");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("config.toml"), "jobs = 2\n\nretries = 3\nlimit = \"1M\"\n").unwrap();
    let variables = [("TIDEGATE_RETRIES", "5"), ("TIDEGATE_USER", "me:hunter2")];
    let said = say_in(folder.path(), &["config", "show", "--origin", "--limit", "2M"], &variables);
    assert_eq!(said.code, 0, "{}", said.err);
    let line = |start: &str| {
        let line = said.out.lines().find(|l| l.starts_with(start)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let file = config.join("config.toml");
    assert_eq!(line("jobs "), format!("jobs = 2 # {}:1", file.display()));
    assert_eq!(line("retries "), "retries = 5 # TIDEGATE_RETRIES");
    assert_eq!(line("limit "), "limit = \"2M\" # --limit");
    assert_eq!(line("timeout "), "timeout = \"30s\" # default");
    assert_eq!(line("# user "), "# user = (hidden) # TIDEGATE_USER");

    std::fs::write(config.join("config.toml"), "\njbos = 2\n").unwrap();
    let said = say_in(folder.path(), &["config", "show"], &[]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("config.toml:2: there is no setting \"jbos\""), "{}", said.err);
}

#[test]
fn a_configuration_of_another_home_that_may_not_be_read_stands_in_nobodys_way() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join(".config/tidegate");
    std::fs::create_dir_all(&config).unwrap();
    let file = config.join("config.toml");
    std::fs::write(&file, "jobs = 2\n").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o000)).unwrap();
    let as_another = |variables: &[(&str, &str)]| {
        let program = env!("CARGO_BIN_EXE_tidegate");
        let mut command = Command::new(program);
        if folder.path().metadata().unwrap().uid() == 0 {
            // The superuser may read everything: then somebody else asks, who may not see our build.
            let copy = folder.path().join("program");
            std::fs::copy(program, &copy).unwrap();
            std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
            command = Command::new(copy);
            std::os::unix::process::CommandExt::uid(&mut command, 65_534);
        }
        command
            .args(["config", "show"])
            .env_clear()
            .env("HOME", folder.path())
            .envs(variables.iter().copied());
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, out, err) = as_another(&[]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("jobs = 4"), "{out}");
    assert_eq!(err, format!("note: {} may not be read and is ignored\n", file.display()));

    let named = folder.path().join(".config");
    let (code, _, err) = as_another(&[("XDG_CONFIG_HOME", named.to_str().unwrap())]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("config.toml cannot be used: permission denied"), "{err}");
}

#[test]
fn what_config_show_prints_can_be_used_as_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let first = say_in(folder.path(), &["config", "show", "--jobs", "7"], &[]);
    let config = folder.path().join(".config/tidegate");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("config.toml"), &first.out).unwrap();
    let second = say_in(folder.path(), &["config", "show"], &[]);
    assert_eq!(second.err, "");
    assert_eq!(second.out, first.out);
}

#[test]
fn verify_tells_right_from_wrong_by_its_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &str| std::fs::write(folder.path().join(name), content).unwrap();
    write("abc", "abc");
    write("abd", "abd");
    write("SUMS", &format!("{}  abc\n", ABC.trim_start_matches("sha-256=")));
    write("BOTH", &format!("{0}  abc\n{0}  abd\n", ABC.trim_start_matches("sha-256=")));
    let hex = ABC.trim_start_matches("sha-256=");
    write("MANY", &["a", "b", "c", "d"].map(|name| format!("{hex}  {name}\n")).concat());
    write("TWO", &format!("{hex}  abd\n{}  abd\n", "0".repeat(64)));
    write("GONE", &format!("{}  nothing\n", ABC.trim_start_matches("sha-256=")));
    let metalink = |size: u64| {
        format!(
            "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"abc\"><size>{size}</size>\
             <hash type=\"sha-256\">{}</hash><url>http://h/abc</url></file></metalink>",
            ABC.trim_start_matches("sha-256=")
        )
    };
    write("abc.meta4", &metalink(3));
    write("long.meta4", &metalink(4));
    let table: &[(&[&str], i32, &str)] = &[
        (&["abc", "--checksum", ABC], 0, "abc: right (sha-256)"),
        (&["abd", "--checksum", ABC], 4, "abd: wrong [digest-mismatch]\n  should have sha-256=ba7816bf"),
        (
            &["abd", "--checksum", ABC],
            4,
            "\n  but has     sha-256=a52d159f262b2c6ddb724a61840befc36eb30c88877a4030b65cbe86298449c9\n",
        ),
        (&["--checksum-file", "SUMS"], 0, "abc: right"),
        (&["abc", "--checksum-file", "SUMS"], 0, "abc: right"),
        (&["abd", "--checksum-file", "SUMS"], 2, "SUMS has no digest for \"abd\" [usage]\n  It lists abc.\n"),
        (&["abd", "--checksum-file", "MANY"], 2, "  It lists a, b, c and 1 more.\n"),
        (&["abd", "--checksum-file", "TWO"], 2, "TWO has two digests for \"abd\" that differ [usage]"),
        (&["--checksum-file", "BOTH"], 4, "abd: wrong"),
        (&["--checksum-file", "GONE"], 1, "nothing: cannot be read"),
        (&["-M", "abc.meta4"], 0, "abc: right"),
        (&["abd", "-M", "abc.meta4"], 4, "abd: wrong"),
        (&["abc", "-M", "long.meta4"], 4, "it has 3 bytes, but should have 4"),
        (&["abc", "abd", "--checksum", ABC], 2, "--checksum goes with one FILE"),
        (&["abc", "--checksum", "sha-256=12"], 2, "--checksum: a sha-256 digest has 32 bytes"),
        (&[".", "--checksum", ABC], 1, "cannot be read"),
    ];
    for (words, code, text) in table {
        let said = say_in(folder.path(), &[&["verify"], *words].concat(), &[]);
        assert_eq!(said.code, *code, "{words:?}: {}", said.err);
        assert!(said.err.contains(text), "{words:?}: {}", said.err);
        assert_eq!(said.out, "", "{words:?}");
    }
    assert_eq!(say_in(folder.path(), &["verify", "-q", "abc", "--checksum", ABC], &[]).err, "");
}

#[test]
fn verify_tells_a_program_both_digests_of_each_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("abc"), "abc").unwrap();
    std::fs::write(folder.path().join("abd"), "abd").unwrap();
    let hex = ABC.trim_start_matches("sha-256=");
    std::fs::write(folder.path().join("SUMS"), format!("{hex}  abc\n{hex}  abd\n{hex}  gone\n")).unwrap();
    let said = say_in(folder.path(), &["verify", "--json", "--checksum-file", "SUMS"], &[]);
    assert_eq!((said.code, said.err.as_str()), (4, ""));
    let lines: Vec<serde_json::Value> =
        said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let results: Vec<_> = lines.iter().map(|line| (&line["path"], &line["result"])).collect();
    assert_eq!(
        results,
        [
            (&"abc".into(), &"right".into()),
            (&"abd".into(), &"wrong".into()),
            (&"gone".into(), &"unreadable".into())
        ]
    );
    assert_eq!(lines[1]["digests"][0]["expected"], ABC);
    assert_eq!(
        lines[1]["digests"][0]["found"],
        "sha-256=a52d159f262b2c6ddb724a61840befc36eb30c88877a4030b65cbe86298449c9"
    );
    assert_eq!(lines[2]["faults"][0], "no such file or directory");
}

#[test]
fn doctor_tells_people_and_programs_the_same_of_each_layer() {
    let words = say(&["doctor"]);
    let json = say(&["doctor", "--json"]);
    assert_eq!((words.err.as_str(), json.err.as_str()), ("", ""));
    assert_eq!(words.code, json.code);
    let found: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    let layers = found["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 11, "{found}");
    for layer in layers {
        let (name, state) = (layer["layer"].as_str().unwrap(), layer["state"].as_str().unwrap());
        let line = words.out.lines().find(|line| line.split_whitespace().nth(2) == Some(name)).unwrap();
        assert!(line.trim_start().starts_with(&state.replace('-', " ")), "{line}: {layer}");
    }
    let lacking = layers.iter().any(|layer| layer["state"] == "missing");
    assert_eq!(words.code, i32::from(lacking), "{found}");
    assert!(words.out.contains(&format!("\nLevel {} of 3: ", found["level"])), "{}", words.out);
}

#[test]
fn doctor_lists_the_rules_of_what_it_isolates() {
    let said = say(&["doctor", "--rules"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    for rule in ["landlock-files    ReadFile ", "seccomp           + connect ", "seccomp           ! execve "]
    {
        assert!(said.out.contains(rule), "{}", said.out);
    }
    assert_eq!(say(&["doctor", "--rules", "--json"]).code, 2);
}

#[test]
fn completions_and_manual_pages_are_printed() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = say(&["completions", shell]);
        assert!(said.code == 0 && said.out.contains("max-host") && said.out.contains("doctor"), "{shell}");
    }
    assert!(say(&["man"]).out.contains(".TH tidegate 1"));
    assert!(say(&["man", "get"]).out.contains(".TH tidegate-get 1"));
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(say_in(folder.path(), &["man", "--out", "pages"], &[]).code, 0);
    let pages = folder.path().join("pages");
    for name in ["tidegate", "tidegate-get", "tidegate-verify", "tidegate-config-show", "tidegate-doctor"] {
        assert!(pages.join(format!("{name}.1")).is_file(), "{name}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_panic() {
    for words in [
        &["completions", "bash"][..],
        &["man", "get"],
        &["config", "show"],
        &["get", "--help"],
        &["doctor", "--rules"],
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(words)
            .env_clear()
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && err.is_empty(), "{words:?}: {:?} {err}", output.status);
    }
}
