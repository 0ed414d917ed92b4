//! The signature of an event according to Standard Webhooks: HMAC-SHA256 of id, time and body.

use base64::Engine;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use jiff::Timestamp;
use ring::hmac;

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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// The signature of the Python library `standardwebhooks`.
    #[rstest]
    #[case(b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", FIRST)]
    #[case(b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n", FIRST)]
    #[case(b"sesame", SECOND)]
    #[case(b"sesame\r\n", SECOND)]
    #[case(b"whsec_c2VzYW1l", SECOND)]
    fn a_signature_is_that_of_the_libraries(#[case] value: &[u8], #[case] expected: &str) {
        let (id, at) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", Timestamp::from_second(1_614_265_330).unwrap());
        let headers = sign(value, id, at, b"{\"test\": 2432232314}").unwrap();
        let expected = [
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", "1614265330".to_owned()),
            ("webhook-signature", expected.to_owned()),
        ];
        assert_eq!(headers, expected);
    }

    const FIRST: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    const SECOND: &str = "v1,9JN84ql2FZPY4JL8M4tCtNockCs51tKJQSDrurk9Nvg=";

    fn signed(value: &[u8]) -> Result<SignatureHeaders, &'static str> {
        sign(value, "a", Timestamp::UNIX_EPOCH, b"")
    }

    #[test]
    fn what_is_no_key_signs_nothing_and_a_binary_key_is_taken_whole() {
        assert_eq!(signed(b""), Err("is empty"));
        assert_eq!(signed(b"\n"), Err("is empty"));
        assert_eq!(signed(b"whsec_"), Err("is empty"));
        assert_eq!(signed(b"whsec_*"), Err("is not base64 after whsec_"));
        assert_ne!(signed(b"\xff\n"), signed(b"\xff"));
        assert_eq!(signed(b"whsec_YWE="), signed(b"whsec_YWE"), "padding is not asked for");
    }
}
