//! Sizes, rates and durations: no text is too strange, and what was read is shown and read back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::units::{
    exact_rate, exact_size, parse_duration, parse_rate, parse_size, show_duration, show_size,
};

fuzz_target!(|text: &str| {
    if let Ok(size) = parse_size(text) {
        assert_eq!(parse_size(&exact_size(size)), Ok(size));
        assert!(parse_size(&show_size(size)).is_ok_and(|shown| shown <= size));
    }
    if let Ok(rate) = parse_rate(text) {
        assert_eq!(parse_rate(&exact_rate(rate)), Ok(rate));
    }
    if let Ok(duration) = parse_duration(text) {
        assert!(parse_duration(&show_duration(duration)).is_ok_and(|shown| shown <= duration));
    }
});
