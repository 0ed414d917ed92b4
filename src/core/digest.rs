//! Short digests for names.

use sha2::{Digest, Sha256};

/// The first `characters` hex digits of the SHA-256 of the parts, each terminated by a zero byte.
pub fn digest(parts: &[&str], characters: usize) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let mut text: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    text.truncate(characters);
    text
}
