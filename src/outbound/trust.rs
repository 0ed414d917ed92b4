//! Verification of server certificates for requests that name authorities, and the reason why a certificate is not
//! trusted.
//!
//! A BMC usually presents a certificate that it issued itself: a CA certificate, for another name, or expired. A user
//! who names exactly this certificate trusts the server that has its key, so none of that matters. webpki alone would
//! reject it.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use thiserror::Error;

/// Maximum number of certificates in a request.
const CERTIFICATES: usize = 512;

/// Number of cached TLS sessions over all servers of one set of authorities; 8 per server.
const SESSIONS: usize = 64;

/// Why the certificate of a server is not trusted.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Distrust {
    /// The issuer is not among the trusted authorities, or is the server itself.
    #[error("its issuer is unknown")]
    Issuer,
    /// It is a CA certificate, as servers issue for themselves.
    #[error("it is a CA certificate, probably self-signed")]
    OwnMaking,
    /// It is for another name.
    #[error("it is for another name")]
    Name,
    /// It has expired.
    #[error("it has expired")]
    Expired,
    /// It is not valid yet.
    #[error("it is not valid yet")]
    NotYetValid,
    /// It has another version of X.509, which old BMCs issue. Even naming the certificate does not help.
    #[error("it is an X.509 v1 certificate, which is not supported: issue a v3 certificate, or skip the verification")]
    Version,
    /// It is damaged, revoked, for another purpose, or of an unsupported form.
    #[error("it is not a valid certificate of a server")]
    Unusable,
}

impl Distrust {
    /// Reason why the certificate is not trusted; None if the connection failed for another reason.
    pub fn find_in(error: &(dyn StdError + 'static)) -> Option<Self> {
        let tls = causes(error).find_map(|cause| cause.downcast_ref::<rustls::Error>())?;
        let rustls::Error::InvalidCertificate(why) = tls else { return None };
        Some(match why {
            CertificateError::UnknownIssuer => Self::Issuer,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Self::Name,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYetValid,
            // webpki's own type is not public here; tests check its names.
            CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => Self::OwnMaking,
            CertificateError::Other(other) if format!("{other:?}").contains("UnsupportedCertVersion") => Self::Version,
            _ => Self::Unusable,
        })
    }
}

/// Whether client and server have no TLS version, cipher or key exchange in common.
pub fn is_incompatible(error: &(dyn StdError + 'static)) -> bool {
    use rustls::AlertDescription::{HandshakeFailure, InsufficientSecurity, ProtocolVersion};
    match causes(error).find_map(|cause| cause.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(alert)) => {
            matches!(alert, HandshakeFailure | InsufficientSecurity | ProtocolVersion)
        }
        Some(rustls::Error::PeerIncompatible(_)) => true,
        _ => false,
    }
}

/// The error and its causes, outermost first, including those wrapped in I/O errors.
pub fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&cause: &&'a (dyn StdError + 'static)| {
        match cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(wrapped) => Some(wrapped as &(dyn StdError + 'static)),
            None => cause.source(),
        }
    })
}

/// TLS configuration that trusts these authorities and exactly these certificates, in PEM. None if there is no
/// certificate or one is malformed.
pub fn only(pem: &[u8]) -> Option<ClientConfig> {
    let provider = CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()));
    let mut named = Vec::new();
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.ok().filter(|_| named.len() < CERTIFICATES)?;
        roots.add(certificate.clone()).ok()?;
        named.push(certificate);
    }
    let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().ok()?;
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
    let verifier = Arc::new(NamedCertificates { named, authorities });
    let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.alpn_protocols = [b"h2".as_slice(), b"http/1.1"].map(<[u8]>::to_vec).to_vec();
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    Some(config)
}

/// Certificate and key of a client, in PEM. None if there is no certificate, no key, or if they do not belong together.
pub fn identity(pem: &[u8]) -> Option<Arc<dyn ResolvesClientCert>> {
    let provider = CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()));
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().ok()?;
    let key = PrivateKeyDer::from_pem_slice(pem).ok()?;
    let certified = CertifiedKey::from_der(certificates, key, &provider).ok()?;
    Some(Arc::new(SingleCertAndKey::from(certified)))
}

/// Trusts the named certificates, and certificates that webpki trusts with the named ones as authorities.
#[derive(Debug)]
struct NamedCertificates {
    named: Vec<CertificateDer<'static>>,
    authorities: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for NamedCertificates {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // The handshake verifies that the server has the key.
        if self.named.iter().any(|named| named.as_ref() == end_entity.as_ref()) {
            return Ok(ServerCertVerified::assertion());
        }
        let verified = self.authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        verified.map_err(|error| match error {
            // A named authority has the name of the issuer, but another key.
            rustls::Error::InvalidCertificate(CertificateError::BadSignature) => CertificateError::UnknownIssuer.into(),
            error => error,
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rustls::server::ParsedCertificate;

    use super::*;

    /// Certificate that says `X.509 v1`.
    const FIRST_VERSION: &str = "-----BEGIN CERTIFICATE-----
MIIBGDCBvwIUBfmM86Mmvo/wNhOzIzKEvw5qDHwwCgYIKoZIzj0EAwIwDjEMMAoG
A1UEAwwDYm1jMCAXDTI2MTEyNjEwMDIzOVoYDzIxMjYxMTAyMTAwMjM5WjAOMQww
CgYDVQQDDANibWMwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATm4cS6+4O7xCPl
v4XnjN6E0kNJFXLR17k0kTDHynI1f6d7dqG/fDR/4TpT54QQqhyZg3J0mG4EOHpl
HvEkcGrNMAoGCCqGSM49BAMCA0gAMEUCIQDgLdgpLJZPVZKf5W9wSssdEF9oTYqc
bwgLJMuSMIPW3AIge5z5Awmk5c5TH2DNjwWxrnAcQ0kA7gWXbzEgfbVlPp4=
-----END CERTIFICATE-----
";

    #[test]
    fn a_certificate_of_the_first_version_has_words() {
        let certificate = CertificateDer::from_pem_slice(FIRST_VERSION.as_bytes()).unwrap();
        let error = ParsedCertificate::try_from(&certificate).map(drop).unwrap_err();
        assert_eq!(Distrust::find_in(&error), Some(Distrust::Version));
    }
}
