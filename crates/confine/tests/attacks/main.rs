//! What a process with the profile of the engine cannot do, and what it still can.
//!
//! Each attack is first made without any layer, which must work, then with all of them, which must be refused.
//! Then it is made with each layer alone and with each layer alone switched off: so it is known which of them
//! refuse it, and that what they say together is no accident. As root all of it is done once more as an ordinary
//! user.
//!
//! Attackers are this program, started again under another name and locked down by `tidegate_confine` itself.
//! A harness of our own is needed for that: an attacker must begin its life in `main`, as the engine does.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here is the failure of a test")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is its own harness")]
#![allow(clippy::exit, reason = "this is its own harness")]

mod attack;
mod program;
mod spawn;
mod sys;
mod table;
mod work;

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Each test by its name.
const TESTS: &[(&str, fn())] = &[
    (
        "every_attack_works_without_the_lock_down_and_is_refused_with_it",
        table::every_attack_works_without_the_lock_down_and_is_refused_with_it,
    ),
    (
        "each_attack_is_refused_by_the_layers_that_the_design_names",
        table::each_attack_is_refused_by_the_layers_that_the_design_names,
    ),
    (
        "what_is_missing_without_no_new_privileges_is_told",
        table::what_is_missing_without_no_new_privileges_is_told,
    ),
    ("the_table_of_the_design_is_what_was_measured", table::the_table_of_the_design_is_what_was_measured),
    ("what_the_engine_does_still_goes", work::what_the_engine_does_still_goes),
    (
        "threads_that_are_there_before_are_locked_down_too",
        work::threads_that_are_there_before_are_locked_down_too,
    ),
    (
        "a_process_with_other_threads_is_not_locked_down_in_part",
        work::a_process_with_other_threads_is_not_locked_down_in_part,
    ),
    (
        "a_locked_down_process_cannot_be_looked_into_by_its_own_user",
        work::a_locked_down_process_cannot_be_looked_into_by_its_own_user,
    ),
    ("each_layer_is_shown_at_work_by_the_probes", work::each_layer_is_shown_at_work_by_the_probes),
    (
        "a_started_process_has_exactly_what_it_was_given",
        spawn::a_started_process_has_exactly_what_it_was_given,
    ),
    ("descriptors_change_places_without_losing_one", spawn::descriptors_change_places_without_losing_one),
    (
        "a_program_that_was_opened_runs_after_its_file_is_gone",
        spawn::a_program_that_was_opened_runs_after_its_file_is_gone,
    ),
    (
        "what_is_no_program_is_an_error_and_leaves_no_process",
        spawn::what_is_no_program_is_an_error_and_leaves_no_process,
    ),
    ("how_a_process_ended_is_told", spawn::how_a_process_ended_is_told),
    (
        "a_process_whose_handle_is_dropped_is_killed_and_taken_away",
        spawn::a_process_whose_handle_is_dropped_is_killed_and_taken_away,
    ),
    ("a_process_does_not_outlive_who_started_it", spawn::a_process_does_not_outlive_who_started_it),
    ("what_was_inherited_is_given_once", spawn::what_was_inherited_is_given_once),
];

fn main() {
    if tidegate_confine::probe::run_if_asked()
        || attack::run_if_asked()
        || work::run_if_asked()
        || spawn::run_if_asked()
    {
        return;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| words.iter().any(|this| this == word);
    // Of what `cargo test` and `cargo nextest` say this is all that matters here.
    let mut filters = Vec::new();
    let mut left = words.iter();
    while let Some(word) = left.next() {
        match word.as_str() {
            "--format" | "--color" | "--test-threads" | "--logfile" | "-Z" => drop(left.next()),
            word if word.starts_with('-') => {}
            word => filters.push(word),
        }
    }
    let chosen = |name: &str| {
        filters.is_empty()
            || filters.iter().any(|f| if has("--exact") { name == *f } else { name.contains(f) })
    };
    let tests = TESTS.iter().filter(|(name, _)| !has("--ignored") && chosen(name));
    if has("--list") {
        tests.for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    let root = rustix::process::geteuid().is_root();
    let who = if root { "root" } else { "ordinary user" };
    let mut failed = 0;
    for (name, test) in tests {
        let good = std::panic::catch_unwind(test).is_ok();
        println!("test {name} (as {who}) ... {}", if good { "ok" } else { "FAILED" });
        failed += usize::from(!good);
    }
    if root {
        let mut again = Command::new("/proc/self/exe");
        let status =
            again.args(&words).uid(65534).gid(65534).current_dir("/").env_remove("TMPDIR").status().unwrap();
        failed += usize::from(!status.success());
    }
    if failed > 0 {
        std::process::exit(101);
    }
}
