//! Which certificates of servers are trusted where a request names authorities, and what is wrong with one that is not.
//!
//! A BMC usually shows a certificate that it made for itself: that of an authority, for another name, expired. Who names exactly
//! this certificate trusts the server that holds its key, so none of that matters; webpki alone refuses it.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use thiserror::Error;

/// Maximum number of certificates that a request names.
const CERTIFICATES: usize = 512;

/// TLS sessions that are kept for the next connection, over all servers of one set of authorities: 8 for a server.
const SESSIONS: usize = 64;

/// Why the certificate of a server is not trusted.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Distrust {
    /// It is issued by an authority that is not among the trusted ones, or by the server itself.
    #[error("its issuer is unknown")]
    Issuer,
    /// It is the certificate of an authority, as servers make it for themselves.
    #[error("the server made it for itself")]
    OwnMaking,
    /// It has another name than the server's.
    #[error("it is for another name")]
    Name,
    /// Its time is over.
    #[error("it has expired")]
    Expired,
    /// Its time has not begun.
    #[error("it is not valid yet")]
    NotYetValid,
    /// It is damaged, revoked, for another purpose, or of a form that is not supported.
    #[error("it is not a valid certificate of a server")]
    Unusable,
}

impl Distrust {
    /// What is wrong with the certificate, if that is why there is no connection.
    #[must_use]
    pub fn of(error: &(dyn StdError + 'static)) -> Option<Self> {
        let tls = causes(error).find_map(|cause| cause.downcast_ref::<rustls::Error>())?;
        let rustls::Error::InvalidCertificate(why) = tls else { return None };
        Some(match why {
            CertificateError::UnknownIssuer => Self::Issuer,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Self::Name,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYetValid,
            // webpki's own type is not public here; a test holds its name.
            CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => Self::OwnMaking,
            _ => Self::Unusable,
        })
    }
}

/// An error and its causes, outermost first, with those that errors of input and output wrap.
pub fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&cause: &&'a (dyn StdError + 'static)| {
        match cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(wrapped) => Some(wrapped as &(dyn StdError + 'static)),
            None => cause.source(),
        }
    })
}

/// TLS that trusts these authorities and these very certificates, PEM. None: there is none, or one cannot be read.
#[must_use]
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
    let verifier = Arc::new(Named { named, authorities });
    let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.alpn_protocols = [b"h2".as_slice(), b"http/1.1"].map(<[u8]>::to_vec).to_vec();
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    Some(config)
}

/// Trusts the certificates that are named, and what webpki trusts with them as authorities.
#[derive(Debug)]
struct Named {
    named: Vec<CertificateDer<'static>>,
    authorities: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // Whether the server has its key is verified with the handshake.
        if self.named.iter().any(|named| named.as_ref() == end_entity.as_ref()) {
            return Ok(ServerCertVerified::assertion());
        }
        let verified = self.authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        verified.map_err(|error| match error {
            // One of the named authorities has the issuer's name, but another key.
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
