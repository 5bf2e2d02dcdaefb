//! Reads what was freed, if told `wrong`.

fn main() {
    let wrong = std::env::args().nth(1).is_some_and(|word| word == "wrong");
    let value = Box::into_raw(Box::new(7_u8));
    let read = || unsafe { std::ptr::read_volatile(value) };
    let first = read();
    drop(unsafe { Box::from_raw(value) });
    let second = if wrong { read() } else { first };
    std::process::exit(i32::from(first != second));
}
