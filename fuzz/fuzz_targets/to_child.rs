//! What an engine's process reads from its parent: no bytes are too strange, and what is
//! taken of them is the same when it is sent again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::frame::Message;
use tidegate_engine::protocol::ToChild;

fn sent(message: &ToChild) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

fuzz_target!(|bytes: &[u8]| {
    let mut decoder = ToChild::decoder();
    for portion in bytes.chunks(100) {
        decoder.feed(portion);
        while let Ok(Some(Message { kind, body })) = decoder.message() {
            let message = match ToChild::decode(kind, body) {
                Ok(message) => message,
                Err(error) => {
                    assert!(error.to_string().len() <= 300);
                    continue;
                }
            };
            let once = sent(&message);
            let mut other = ToChild::decoder();
            other.feed(&once);
            let Ok(Some(Message { kind, body })) = other.message() else { panic!("no frame in {once:?}") };
            match ToChild::decode(kind, body) {
                Ok(again) => assert_eq!(sent(&again), once),
                Err(error) => panic!("{error} in {:?}", String::from_utf8_lossy(body)),
            }
        }
    }
});
