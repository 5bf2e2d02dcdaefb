//! Netrc files: no text is too strange.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::netrc::Netrc;

fuzz_target!(|text: &str| {
    if let Ok(netrc) = Netrc::parse(text) {
        for machine in netrc.entries().iter().filter_map(|entry| entry.machine()).take(16) {
            let _ = netrc.lookup(machine);
            let below = netrc.lookup(&format!("host{machine}"));
            assert!(!machine.starts_with('.') || machine.ends_with(['.', ']']) || below.is_some());
        }
        let _ = netrc.lookup("example.org").and_then(|entry| entry.credentials());
    }
});
