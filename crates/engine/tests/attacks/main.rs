//! The engine's own process, its code and its lock-down as they are, made to do what whoever takes it over would do.
//!
//! Nothing of this is in the engine, so nothing of it can be in a release: this program is an ordinary one that embeds
//! the engine (`run_if_child` is what its process runs), and has left a handler of a signal behind before. The test
//! sends an order over a socket that the process has as its standard output, and then the signal; the handler does as
//! it is told, by bare system calls, on whichever thread of the engine it comes to, and answers how it went.
//!
//! Each attack is made twice. First on a "kernel" that knows nothing of what the lock-down needs (a filter that the
//! test puts on itself, so that the process says of each layer that it is missing): there it must work. Then with the
//! lock-down: there it must be refused. Root does all of it once more as an ordinary user.
//!
//! What the bare profile refuses is shown one by one, and layer by layer, by the tests of `tidegate-confine`. Here is
//! what needs the engine: the descriptors that it was handed, its socket, its parent, and the other things that it
//! must not be able to do even if every test of the profile were wrong about what the engine does with it. A lease on
//! the part is not among them, since nobody can have one while the part is open elsewhere for writing.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says figures"
)]

#[path = "../common/alone.rs"]
mod alone;
mod attack;
mod field;
#[path = "../common/sys/old_kernel.rs"]
mod old_kernel;
#[path = "../child/processes.rs"]
mod processes;
mod sys;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

const TESTS: &alone::Tests = &[
    ("each_attack_works_without_the_lock_down_and_is_refused_with_it", field::each_attack),
    ("what_was_attacked_comes_right_all_the_same", field::comes_right),
    ("a_copy_of_the_part_that_is_kept_is_found_out_before_the_file_is_believed", field::keeps_a_copy),
    ("a_finished_file_cannot_be_written_by_its_old_number_nor_by_its_name", field::after_the_end),
];

/// Set where root has become an ordinary user.
const ORDINARY: &str = "TIDEGATE_TEST_ORDINARY";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    match words.get(1).map(String::as_str) {
        Some("engine") if std::env::vars_os().next().is_none() => return attack::be(),
        Some("says") => return sys::say(0),
        _ => {}
    }
    let code = alone::run(TESTS);
    let asked = words.iter().any(|word| word == "--list") || std::env::var_os(alone::ALONE).is_some();
    if asked || !rustix::process::geteuid().is_root() || code != ExitCode::SUCCESS {
        return code;
    }
    println!("once more as an ordinary user");
    let mut again = Command::new("/proc/self/exe");
    again.args(&words[1..]).uid(65534).gid(65534).current_dir("/").env_remove("TMPDIR").env(ORDINARY, "yes");
    if again.status().unwrap().success() { code } else { ExitCode::FAILURE }
}
