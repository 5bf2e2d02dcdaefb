//! Public bug reports about servers, played small on loopback against the real program, and everything
//! else that a server may do.
//!
//! The names `tc_NN` are those of the testkit's recipes. Of every case the rule is: exit 0 only with right
//! bytes; nothing under a final name that is not whole; requests without end never; a reason that a person
//! can read. Time is only printed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "times and what is left out are told")]

mod common;
mod credentials;
mod disk;
mod mirrors;
mod names;
mod network;
mod options;
mod resumes;
mod sweep;
mod transfers;
