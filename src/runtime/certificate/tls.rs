//! TLS of the HTTP server: which certificate a handshake shows, and how long a handshake may take.
//!
//! Owns the protocol versions and the certificate that is served now. Never reads a file or a Secret, and opens no socket: the
//! certificate is handed in, and a stream is what the caller accepted.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::issue::{self, Flaw, Pair};

/// How long a handshake may take.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The certificate that new connections are shown. Cheap to clone; all clones show the same.
#[derive(Clone, Debug, Default)]
pub struct ReloadingCertificate {
    current: Arc<RwLock<Option<Arc<CertifiedKey>>>>,
}

impl ReloadingCertificate {
    /// Shows this certificate from the next handshake on. Open connections are not touched.
    ///
    /// # Errors
    /// One of the two cannot be read, or they do not belong together. The old certificate is kept.
    pub fn replace(&self, pair: &Pair) -> Result<(), Flaw> {
        let new = Arc::new(issue::certified_key(pair)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(new);
        Ok(())
    }

    /// Whether there is a certificate. Without one, every handshake fails.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.current.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl ResolvesServerCert for ReloadingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// TLS 1.2 and 1.3 for HTTP/1.1, with this certificate.
///
/// # Errors
/// The provider does not support these versions: a fault of the build.
pub fn server_config(certificate: ReloadingCertificate) -> Result<Arc<ServerConfig>, rustls::Error> {
    // The provider is named, since the process may have another default or none.
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let mut config = builder
        .with_protocol_versions(&[&TLS13, &TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(certificate));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Every connection sees the certificate of its time. The scheduler keeps its connections and resumes none.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Why a connection did not get as far as a request.
#[derive(Debug, Error)]
pub enum HandshakeError {
    #[error("the handshake took longer than {0:?}")]
    Timeout(Duration),
    /// The client does not speak TLS, refuses the certificate, is gone, or there is no certificate.
    #[error("the handshake failed: {0}")]
    Failed(#[from] io::Error),
}

/// Completes the handshake of an accepted connection, within this time. Call it in the connection's own task: a client that is
/// slow must not keep the next from being accepted.
///
/// # Errors
/// The handshake failed or took too long; the connection is closed.
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
