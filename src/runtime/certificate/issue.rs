//! Issues the server's certificate, signed by a CA of the operator, and validates pairs of certificate and key.
//!
//! Owns the validity periods and the renewal time. Does not read the clock, write anything, or decide who owns a
//! certificate. X.509 is parsed by webpki alone, through rustls.

use ganglion_core::words::quoted;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData,
};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError as CertificateFault, InconsistentKeys, RootCertStore};
use thiserror::Error;
use time::OffsetDateTime;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// Validity of a new CA.
const CA_VALIDITY: i64 = 3650 * DAY;

/// Minimum remaining validity of a CA that signs another certificate.
const CA_REMAINING: i64 = 365 * DAY;

/// A new CA is valid from this long before its creation. Longer than for a certificate: a new CA must be distributed to
/// clients by hand, so a clock that was wrong for a while must not cause one.
const CA_BACKDATE: i64 = DAY;

/// Validity of a new server certificate.
const VALIDITY: i64 = 90 * DAY;

/// A server certificate is valid from this long before its creation, for clients whose clock is behind.
const BACKDATE: i64 = HOUR;

/// Subject of a CA. A stored CA with another subject is not reused, so changing this constant replaces the CA of every
/// installation.
const CA_SUBJECT: &str = "ganglion-ca";

/// Subject of a server certificate. Differs from the CA's subject, so that a server certificate is never mistaken for a
/// CA.
const SUBJECT: &str = "ganglion";

/// 9999-12-31T23:59:59Z, the latest time that a certificate can contain.
const LAST_SECOND: i64 = 253_402_300_799;

/// A certificate chain, leaf first, and its private key. Both are PEM and unchecked.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

impl fmt::Debug for Pair {
    /// Omits the key, since pairs may be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").field("certificate", &String::from_utf8_lossy(&self.certificate)).finish_non_exhaustive()
    }
}

/// A server certificate and the CA that signed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    pub ca: Pair,
    pub tls: Pair,
    /// The CA is new: clients that trust the old CA refuse this certificate.
    pub is_new_ca: bool,
}

/// Reason why no certificate was issued.
#[derive(Debug, Error)]
pub enum CertificateError {
    #[error("a server certificate needs at least one name")]
    NoNames,
    #[error("{} is neither a DNS name nor an IP address", quoted(.0))]
    Name(String),
    #[error("a certificate cannot be issued at {0}, check the clock")]
    Clock(Timestamp),
    #[error("the certificate could not be made: {0}")]
    Generate(#[from] rcgen::Error),
    /// A bug in this program.
    #[error("the new certificate is not usable: {0:?}")]
    Unusable(CertificateState),
}

/// Defect of a certificate that does not depend on the time.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CertificateFlaw {
    #[error("there is no PEM certificate, or one cannot be read")]
    Certificate,
    #[error("there is no PEM private key, or its kind is not supported")]
    Key,
    #[error("the private key does not belong to the certificate")]
    OtherKey,
    #[error("the certificate is not valid for the name {}", quoted(.0))]
    MissingName(String),
    #[error("the certificate is not for servers")]
    Purpose,
    #[error("the certificate ends before it begins")]
    Validity,
    #[error("there is no PEM certificate of the CA, or it cannot be read")]
    Ca,
    #[error("the certificate is not signed by the CA")]
    Issuer,
}

/// Whether clients accept a certificate now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateState {
    /// Valid. Due for renewal at `renew`, after two thirds of the validity.
    Good {
        renew: Timestamp,
        expires: Timestamp,
    },
    /// Valid. Two thirds of the validity have passed.
    RenewSoon {
        expires: Timestamp,
    },
    /// Clients with the same clock refuse it before `from`.
    NotYetValid {
        from: Timestamp,
        expires: Timestamp,
    },
    Expired,
    Invalid(CertificateFlaw),
}

/// Issues a server certificate for these DNS names and IP addresses. It is signed by `existing_ca` if that CA is one of
/// ours and remains valid for a year, otherwise by a new CA.
pub fn issue(names: &[String], now: Timestamp, existing_ca: Option<&Pair>) -> Result<Issued, CertificateError> {
    if names.is_empty() {
        return Err(CertificateError::NoNames);
    }
    if let Some(malformed) = names.iter().find(|name| ServerName::try_from(name.as_str()).is_err()) {
        return Err(CertificateError::Name(malformed.clone()));
    }
    if let Some(ca) = existing_ca
        && let Some(key) = reusable(ca, now)
    {
        let tls = sign(names, now, key)?;
        // The signature does not verify if the subject of the CA is not ours.
        if let CertificateState::Good { .. } = state(&tls, Some(&ca.certificate), names, now) {
            return Ok(Issued { ca: ca.clone(), tls, is_new_ca: false });
        }
    }
    let (ca, key) = new_ca(now)?;
    let tls = sign(names, now, key)?;
    match state(&tls, Some(&ca.certificate), names, now) {
        CertificateState::Good { .. } => Ok(Issued { ca, tls, is_new_ca: true }),
        unusable => Err(CertificateError::Unusable(unusable)),
    }
}

/// State of a pair for clients that connect to any of these names. If a CA (PEM) is given, it must have signed the
/// certificate.
pub fn state(pair: &Pair, ca: Option<&[u8]>, names: &[String], now: Timestamp) -> CertificateState {
    match examine(pair, ca, names, now) {
        Ok(validity) => validity.at(now),
        Err(flaw) => CertificateState::Invalid(flaw),
    }
}

/// Converts a pair to the chain and key that rustls uses.
pub fn certified_key(pair: &Pair) -> Result<CertifiedKey, CertificateFlaw> {
    let chain = certificates(&pair.certificate).ok_or(CertificateFlaw::Certificate)?;
    let leaf = chain.first().ok_or(CertificateFlaw::Certificate)?;
    ParsedCertificate::try_from(leaf).map_err(|_| CertificateFlaw::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&pair.key).map_err(|_| CertificateFlaw::Key)?;
    CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => CertificateFlaw::OtherKey,
        _ => CertificateFlaw::Key,
    })
}

/// Validity period of a certificate, in seconds since 1970.
#[derive(Clone, Copy)]
struct Validity {
    not_before: u64,
    not_after: u64,
}

impl Validity {
    /// None if the period ends before it begins.
    fn of(certificate: &ParsedCertificate<'_>) -> Option<Self> {
        // rustls reports the validity period only in the error for a time outside of it.
        let not_after = match accepted(certificate, &RootCertStore::empty(), &[], u64::MAX) {
            Err(CertificateFault::ExpiredContext { not_after, .. }) => not_after.as_secs(),
            _ => return None,
        };
        let not_before = match accepted(certificate, &RootCertStore::empty(), &[], 0) {
            Err(CertificateFault::NotValidYetContext { not_before, .. }) => not_before.as_secs(),
            _ => 0,
        };
        Some(Self { not_before, not_after })
    }

    fn at(self, now: Timestamp) -> CertificateState {
        // The period of certificates that never expire ends a day after the largest timestamp.
        let timestamp = |seconds: u64| {
            let seconds = i64::try_from(seconds).ok();
            seconds.and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or(Timestamp::MAX)
        };
        let (from, expires) = (timestamp(self.not_before), timestamp(self.not_after));
        let renew = timestamp(self.not_before.saturating_add(self.not_after.saturating_sub(self.not_before) / 3 * 2));
        if now >= expires {
            CertificateState::Expired
        } else if now < from {
            CertificateState::NotYetValid { from, expires }
        } else if now >= renew {
            CertificateState::RenewSoon { expires }
        } else {
            CertificateState::Good { renew, expires }
        }
    }
}

/// Checks everything that does not depend on the time, and returns the validity period.
fn examine(pair: &Pair, ca: Option<&[u8]>, names: &[String], now: Timestamp) -> Result<Validity, CertificateFlaw> {
    let CertifiedKey { cert: chain, .. } = certified_key(pair)?;
    let (leaf, intermediates) = chain.split_first().ok_or(CertificateFlaw::Certificate)?;
    let leaf = ParsedCertificate::try_from(leaf).map_err(|_| CertificateFlaw::Certificate)?;
    for name in names {
        let valid = ServerName::try_from(name.as_str()).is_ok_and(|name| verify_server_name(&leaf, &name).is_ok());
        if !valid {
            return Err(CertificateFlaw::MissingName(name.clone()));
        }
    }
    let validity = Validity::of(&leaf).ok_or(CertificateFlaw::Validity)?;
    // Expiry is not a flaw; the validity period reports it.
    let time = seconds(now).clamp(validity.not_before, validity.not_after);
    let roots =
        roots(ca.unwrap_or_default()).filter(|roots| ca.is_none() || !roots.is_empty()).ok_or(CertificateFlaw::Ca)?;
    match accepted(&leaf, &roots, intermediates, time) {
        Err(CertificateFault::InvalidPurpose | CertificateFault::InvalidPurposeContext { .. }) => {
            Err(CertificateFlaw::Purpose)
        }
        Err(_) if ca.is_some() => Err(CertificateFlaw::Issuer),
        Ok(()) | Err(_) => Ok(validity),
    }
}

/// Whether webpki accepts the certificate of a server, for any name, at this time (in seconds since 1970). webpki
/// checks the time first.
fn accepted(
    certificate: &ParsedCertificate<'_>,
    roots: &RootCertStore,
    intermediates: &[CertificateDer<'_>],
    time: u64,
) -> Result<(), CertificateFault> {
    let time = UnixTime::since_unix_epoch(Duration::from_secs(time));
    let algorithms = ring::default_provider().signature_verification_algorithms.all;
    match verify_server_cert_signed_by_trust_anchor(certificate, roots, intermediates, time, algorithms) {
        Ok(()) => Ok(()),
        Err(rustls::Error::InvalidCertificate(fault)) => Err(fault),
        Err(_) => Err(CertificateFault::BadEncoding),
    }
}

/// Parses the certificates of a PEM file; None if one of them is malformed.
fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().ok()
}

/// Parses the certificates of a PEM file as trust anchors; None if one of them is malformed.
pub fn roots(pem: &[u8]) -> Option<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate).ok()?;
    }
    Some(roots)
}

fn seconds(now: Timestamp) -> u64 {
    u64::try_from(now.as_second()).unwrap_or(0)
}

/// Key of a CA that may sign at this time. The caller checks the subject of the CA by verifying the signed certificate.
fn reusable(ca: &Pair, now: Timestamp) -> Option<KeyPair> {
    let certificates = certificates(&ca.certificate)?;
    // Further certificates, as in a bundle, are trusted but do not sign.
    let certificate = ParsedCertificate::try_from(certificates.first()?).ok()?;
    let Validity { not_before, not_after } = Validity::of(&certificate)?;
    let needed = seconds(now).saturating_add(CA_REMAINING.unsigned_abs());
    if seconds(now) < not_before || needed > not_after {
        return None;
    }
    let key = KeyPair::try_from(&PrivateKeyDer::from_pem_slice(&ca.key).ok()?).ok()?;
    Some(key).filter(|key| certificate.subject_public_key_info().as_ref() == key.subject_public_key_info())
}

/// Creates a CA and its key.
fn new_ca(now: Timestamp) -> Result<(Pair, KeyPair), CertificateError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = ca_params();
    params.not_before = moment(now, -CA_BACKDATE)?;
    params.not_after = moment(now, CA_VALIDITY)?;
    let certificate = params.self_signed(&key)?;
    Ok((Pair { certificate: certificate.pem().into_bytes(), key: key.serialize_pem().into_bytes() }, key))
}

/// Parameters shared by all our CAs. The issuer of a stored CA is rebuilt from them, so they must not change.
fn ca_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(CA_SUBJECT);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.key_identifier_method = KeyIdMethod::Sha256;
    params
}

/// Creates a server certificate and its key, signed by one of our CAs.
fn sign(names: &[String], now: Timestamp, ca: KeyPair) -> Result<Pair, CertificateError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = named(SUBJECT);
    params.not_before = moment(now, -BACKDATE)?;
    params.not_after = moment(now, VALIDITY)?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &Issuer::new(ca_params(), ca))?;
    Ok(Pair { certificate: certificate.pem().into_bytes(), key: key.serialize_pem().into_bytes() })
}

fn named(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    // The encoding is part of the name: webpki compares bytes.
    name.push(DnType::CommonName, DnValue::Utf8String(common_name.to_owned()));
    name
}

/// The time `after` seconds later. rcgen panics for times that a certificate cannot contain.
fn moment(now: Timestamp, after: i64) -> Result<OffsetDateTime, CertificateError> {
    let second = now.as_second().saturating_add(after);
    let possible = Some(second).filter(|second| (0..=LAST_SECOND).contains(second));
    possible.and_then(|second| OffsetDateTime::from_unix_timestamp(second).ok()).ok_or(CertificateError::Clock(now))
}

#[cfg(test)]
mod tests;
