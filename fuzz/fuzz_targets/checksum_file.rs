//! Files of checksums: no bytes are too strange, and an entry is found by its own name or contradicted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::Algorithm;
use tidegate_core::checksum_file::parse;

fuzz_target!(|data: &[u8]| {
    for algorithm in [None, Some(Algorithm::Sha256)] {
        let Ok(file) = parse(data, algorithm) else { continue };
        assert!(!file.entries.is_empty());
        for entry in file.entries.iter().take(16) {
            assert_eq!(entry.digest.bytes().len(), entry.digest.algorithm().digest_len());
            if let Some(found) = entry.name.as_deref().and_then(|name| file.find(name)) {
                assert!(found.digest.algorithm() >= entry.digest.algorithm());
            }
        }
    }
});
