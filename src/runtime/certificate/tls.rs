//! TLS of the HTTP server: the served certificate, the authorities of clients, and the time limit of handshakes.
//!
//! Owns the protocol versions, the served certificate and the authorities. Does not read files or Secrets and opens no
//! sockets: the caller passes the certificates and the accepted streams.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::issue::{self, CertificateFlaw, Pair};

/// Maximum duration of a handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Certificate of new connections. Cheap to clone; all clones share it.
#[derive(Clone, Debug, Default)]
pub struct ReloadingCertificate {
    current: Arc<RwLock<Option<Arc<CertifiedKey>>>>,
}

impl ReloadingCertificate {
    /// Uses this certificate from the next handshake on. Open connections are not affected. If the pair is invalid, the
    /// old certificate stays.
    pub fn replace(&self, pair: &Pair) -> Result<(), CertificateFlaw> {
        let new = Arc::new(issue::certified_key(pair)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(new);
        Ok(())
    }

    /// Whether a certificate is set. Without one, every handshake fails.
    pub fn is_set(&self) -> bool {
        self.current.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl ResolvesServerCert for ReloadingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Authorities whose clients are served. Cheap to clone; all clones share them.
#[derive(Clone, Debug)]
pub struct ReloadingClientCa {
    current: Arc<RwLock<Arc<dyn ClientCertVerifier>>>,
}

impl ReloadingClientCa {
    /// Accepts clients with a certificate of one of these authorities (PEM).
    pub fn new(pem: &[u8]) -> Result<Self, ServerConfigError> {
        Ok(Self { current: Arc::new(RwLock::new(client_verifier(pem)?)) })
    }

    /// Uses these authorities from the next handshake on. Open connections are not affected. If they cannot be read,
    /// the old ones stay.
    pub fn replace(&self, pem: &[u8]) -> Result<(), ServerConfigError> {
        let new = client_verifier(pem)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    fn current(&self) -> Arc<dyn ClientCertVerifier> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn client_verifier(pem: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, ServerConfigError> {
    let roots = issue::roots(pem).filter(|roots| !roots.is_empty()).ok_or(ServerConfigError::ClientCa)?;
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|_| ServerConfigError::ClientCa)
}

impl ClientCertVerifier for ReloadingClientCa {
    /// Names no authorities: a client that has one certificate sends it.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.current().verify_client_cert(own, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.current().verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.current().verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().supported_verify_schemes()
    }
}

/// Reason why a server cannot be configured.
#[derive(Debug, Error)]
pub enum ServerConfigError {
    #[error("there is no PEM certificate of a client CA, or one cannot be read")]
    ClientCa,
    /// The provider lacks the protocol versions, which is a bug in the build.
    #[error(transparent)]
    Provider(#[from] rustls::Error),
}

/// TLS 1.2 and 1.3 for HTTP/1.1 with this certificate. With `client_ca`, clients need a certificate of one of these
/// authorities.
pub fn server_config(
    certificate: ReloadingCertificate,
    client_ca: Option<ReloadingClientCa>,
) -> Result<Arc<ServerConfig>, ServerConfigError> {
    // The provider is explicit, since the process may have another default or none.
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13, &TLS12])?;
    let builder = match client_ca {
        Some(client_ca) => builder.with_client_cert_verifier(Arc::new(client_ca)),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(certificate));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // No session resumption, so every connection gets the current certificate, and its own is checked. The scheduler
    // keeps its connections open and resumes none.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Reason why a connection was closed before its first request.
#[derive(Debug, Error)]
pub enum HandshakeError {
    #[error("the handshake took longer than {0:?}")]
    Timeout(Duration),
    /// The client does not speak TLS, refuses the certificate or disconnected, or no certificate is set.
    #[error("the handshake failed: {0}")]
    Failed(#[from] io::Error),
}

/// Completes the handshake of an accepted connection within this time; a failure closes the connection. Call it in the
/// connection's own task: a slow client must not block the next accept.
pub async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    acceptor: &TlsAcceptor,
    stream: S,
    limit: Duration,
) -> Result<TlsStream<S>, HandshakeError> {
    match timeout(limit, acceptor.accept(stream)).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(HandshakeError::Timeout(limit)),
    }
}

#[cfg(test)]
mod tests;
