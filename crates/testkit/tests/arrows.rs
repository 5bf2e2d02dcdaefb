//! Which crate may depend on which: an arrow that is not listed here is refused.
//!
//! The table is section 3 of the architecture. A crate buys a refusal: `core` cannot do I/O because nothing
//! that does is below it, `testkit` cannot share a bug with what it tests.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};

/// Each crate with those of ours that it may depend on. Crates may be listed before they are there.
const ARROWS: &[(&str, &[&str])] = &[
    ("tidegate-core", &[]),
    ("tidegate-confine", &[]),
    ("tidegate-engine", &["tidegate-core", "tidegate-confine"]),
    ("tidegate-queue", &["tidegate-core"]),
    ("tidegate-cell", &["tidegate-confine"]),
    ("tidegate-operations", &["tidegate-cell"]),
    ("tidegate-daemon", &["tidegate-core", "tidegate-engine", "tidegate-queue", "tidegate-cell"]),
    ("tidegate", &["tidegate-confine", "tidegate-core", "tidegate-daemon", "tidegate-engine"]),
    (
        "tidegate-bench",
        &[
            "tidegate-core",
            "tidegate-confine",
            "tidegate-engine",
            "tidegate-queue",
            "tidegate-cell",
            "tidegate-operations",
            "tidegate-daemon",
            "tidegate",
        ],
    ),
    ("tidegate-testkit", &[]),
];

/// What every crate but itself may use in its tests.
const TESTKIT: &str = "tidegate-testkit";

/// The arrows in the metadata of a workspace that are not allowed, each as a sentence.
fn offences(metadata: &Value) -> Vec<String> {
    let allowed: BTreeMap<_, _> = ARROWS.iter().copied().collect();
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ours: Vec<_> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut offences = Vec::new();
    for package in packages {
        let Some(from) = package["name"].as_str() else {
            offences.push("a package has no name".to_owned());
            continue;
        };
        let Some(may) = allowed.get(from) else {
            offences.push(format!("{from} is not in the table"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = dependency["name"].as_str().unwrap_or_default();
            // A path leads into the workspace even where the package itself is left out of the listing.
            let is_ours = ours.contains(&to) || !dependency["path"].is_null();
            let is_for_tests = dependency["kind"] == "dev" && to == TESTKIT && from != TESTKIT;
            if is_ours && !may.contains(&to) && !is_for_tests {
                let kind = dependency["kind"].as_str().unwrap_or("normal");
                offences.push(format!("{from} -> {to} ({kind})"));
            }
        }
    }
    offences
}

fn workspace() -> Value {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .expect("cargo runs these tests, so it is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata writes JSON")
}

/// A dependency and its kind, as `cargo metadata` tells it: none for a normal one.
type Arrow<'a> = (&'a str, Option<&'a str>);

/// A workspace of these packages, each with its dependencies.
fn fabricated(packages: &[(&str, &[Arrow<'_>])]) -> Value {
    let packages: Vec<_> = packages
        .iter()
        .map(|(name, dependencies)| {
            let dependencies: Vec<_> =
                dependencies.iter().map(|(name, kind)| json!({"name": name, "kind": kind})).collect();
            json!({"name": name, "dependencies": dependencies})
        })
        .collect();
    json!({ "packages": packages })
}

#[test]
fn every_arrow_between_our_crates_is_listed() {
    let metadata = workspace();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(
        packages.iter().any(|package| package["name"] == "tidegate-core"),
        "the whole workspace is looked at"
    );
    assert_eq!(offences(&metadata), Vec::<String>::new());
}

#[test]
fn an_arrow_that_is_not_listed_is_refused() {
    let none: &[Arrow<'_>] = &[];
    let metadata = fabricated(&[("tidegate-core", &[("tidegate-engine", None)]), ("tidegate-engine", none)]);
    assert_eq!(offences(&metadata), ["tidegate-core -> tidegate-engine (normal)"]);
    let metadata =
        fabricated(&[("tidegate-queue", &[("tidegate-engine", Some("build"))]), ("tidegate-engine", none)]);
    assert_eq!(offences(&metadata), ["tidegate-queue -> tidegate-engine (build)"]);
    let metadata =
        fabricated(&[("tidegate-queue", &[("tidegate-engine", Some("dev"))]), ("tidegate-engine", none)]);
    assert_eq!(offences(&metadata), ["tidegate-queue -> tidegate-engine (dev)"]);
}

#[test]
fn an_arrow_in_the_real_workspace_would_be_seen() {
    let mut metadata = workspace();
    for package in metadata["packages"].as_array_mut().unwrap() {
        if package["name"] == "tidegate-core" {
            let arrow = json!({"name": "tidegate-queue", "kind": null});
            package["dependencies"].as_array_mut().unwrap().push(arrow);
        }
    }
    assert_eq!(offences(&metadata), ["tidegate-core -> tidegate-queue (normal)"]);
}

#[test]
fn the_testkit_is_for_tests_only_and_knows_nobody() {
    let none: &[Arrow<'_>] = &[];
    let metadata = fabricated(&[("tidegate-engine", &[(TESTKIT, Some("dev"))]), (TESTKIT, none)]);
    assert_eq!(offences(&metadata), Vec::<String>::new());
    let metadata = fabricated(&[("tidegate-engine", &[(TESTKIT, None)]), (TESTKIT, none)]);
    assert_eq!(offences(&metadata), ["tidegate-engine -> tidegate-testkit (normal)"]);
    let metadata = fabricated(&[(TESTKIT, &[("tidegate-core", Some("dev"))]), ("tidegate-core", none)]);
    assert_eq!(offences(&metadata), ["tidegate-testkit -> tidegate-core (dev)"]);
}

#[test]
fn a_crate_that_is_not_in_the_table_is_refused() {
    assert_eq!(offences(&fabricated(&[("tidegate-extra", &[])])), ["tidegate-extra is not in the table"]);
}
