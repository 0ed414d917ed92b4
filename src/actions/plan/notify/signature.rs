//! The signature of a notification according to Standard Webhooks: HMAC-SHA256 of id, time and body.

use base64::Engine;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use jiff::Timestamp;
use ring::hmac;

/// Key in the Secret's data that contains the signing key.
pub const SECRET_KEY: &str = "hmac";

/// Prefix of a signing key in base64.
const PREFIX: &[u8] = b"whsec_";

/// Base64 with or without padding. The libraries of receivers accept both.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The headers of a signed request: name and value.
pub type SignatureHeaders = [(&'static str, String); 3];

/// Signs an event with the value of a Secret's key. If the value is no key, the error says why, without any part of the
/// value.
pub fn sign(value: &[u8], id: &str, at: Timestamp, body: &[u8]) -> Result<SignatureHeaders, &'static str> {
    let seconds = at.as_second().to_string();
    let mut signer = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &key(value)?));
    for part in [id.as_bytes(), b".", seconds.as_bytes(), b".", body] {
        signer.update(part);
    }
    let signature = format!("v1,{}", BASE64.encode(signer.sign()));
    Ok([("webhook-id", id.to_owned()), ("webhook-timestamp", seconds), ("webhook-signature", signature)])
}

/// The signing key in a value, see `Notify::secret_ref`.
fn key(value: &[u8]) -> Result<Vec<u8>, &'static str> {
    // Editors append line ends to text. The last byte of a binary key may look like a line end.
    let value = match std::str::from_utf8(value) {
        Ok(text) => text.trim_end_matches(['\r', '\n']).as_bytes(),
        Err(_) => value,
    };
    let key = match value.strip_prefix(PREFIX) {
        Some(encoded) => BASE64.decode(encoded).map_err(|_| "is not base64 after whsec_")?,
        None => value.to_vec(),
    };
    if key.is_empty() { Err("is empty") } else { Ok(key) }
}
