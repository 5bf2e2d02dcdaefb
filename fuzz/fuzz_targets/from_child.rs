//! What the parent reads from an engine's process, which may be in the hands of strangers: no bytes are too strange, and what is
//! taken of them is the same when it is sent again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::frame::Message;
use tidegate_engine::protocol::FromChild;

fn sent(message: &FromChild) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

fuzz_target!(|bytes: &[u8]| {
    let mut decoder = FromChild::decoder();
    for portion in bytes.chunks(100) {
        decoder.feed(portion);
        while let Ok(Some(Message { kind, body })) = decoder.message() {
            let message = match FromChild::decode(kind, body) {
                Ok(message) => message,
                Err(error) => {
                    assert!(error.to_string().len() <= 300);
                    continue;
                }
            };
            let once = sent(&message);
            let mut other = FromChild::decoder();
            other.feed(&once);
            let Ok(Some(Message { kind, body })) = other.message() else { panic!("no frame in {once:?}") };
            match FromChild::decode(kind, body) {
                Ok(again) => assert_eq!(sent(&again), once),
                Err(error) => panic!("{error} in {:?}", String::from_utf8_lossy(body)),
            }
        }
    }
});
