//! TLS of the HTTP server: the served certificate and the time limit of handshakes.
//!
//! Owns the protocol versions and the served certificate. Does not read files or Secrets and opens no sockets: the
//! caller passes the certificate and the accepted streams.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
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

/// Reason why a server cannot be configured.
#[derive(Debug, Error)]
pub enum ServerConfigError {
    #[error("there is no PEM certificate of a client CA, or one cannot be read")]
    ClientCa,
    /// The provider lacks the protocol versions, which is a bug in the build.
    #[error(transparent)]
    Provider(#[from] rustls::Error),
}

/// TLS 1.2 and 1.3 for HTTP/1.1 with this certificate. With `client_ca` (PEM), clients need a certificate of one of
/// these authorities.
pub fn server_config(
    certificate: ReloadingCertificate,
    client_ca: Option<&[u8]>,
) -> Result<Arc<ServerConfig>, ServerConfigError> {
    // The provider is explicit, since the process may have another default or none.
    let provider = Arc::new(ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[&TLS13, &TLS12])?;
    let builder = match client_ca {
        Some(pem) => {
            let roots = issue::roots(pem).filter(|roots| !roots.is_empty()).ok_or(ServerConfigError::ClientCa)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|_| ServerConfigError::ClientCa)?)
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(certificate));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // No session resumption, so every connection gets the current certificate. The scheduler keeps its connections open
    // and resumes none.
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
