//! The server of the scheduler extender, with its certificate. All replicas serve it.

use std::net::SocketAddr;
use std::time::Duration;

use futures::future::OptionFuture;
use kube::Client;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Error, listen};
use crate::operator::settings::{Placement, Settings};
use ganglion_placement::extender::Extender;
use ganglion_runtime::certificate::tls::{self, ReloadingClientCa};
use ganglion_runtime::certificate::{CertificateKeeper, CertificateSecret};
use ganglion_runtime::server::{self, ServerLimits, UNREAD};

/// Maximum number of open connections of schedulers. One scheduler keeps a few of them.
const CONNECTIONS: usize = 512;

/// Creates the keeper of the certificate; None if the settings select HTTP.
pub fn keeper(settings: &Settings, namespace: &str) -> Option<CertificateKeeper> {
    let placement = &settings.placement;
    let server_names = server_names(placement, namespace);
    let (namespace, name) = (namespace.to_owned(), placement.tls_secret.clone());
    placement.tls.then(|| CertificateKeeper::new(CertificateSecret { namespace, name, server_names }))
}

/// Names and addresses that schedulers use for the server of an operator in this namespace.
pub fn server_names(placement: &Placement, namespace: &str) -> Vec<String> {
    match placement.server_names.as_slice() {
        [] => vec![format!("ganglion-extender.{namespace}.svc")],
        names => names.to_vec(),
    }
}

/// Interval at which the file of the client authorities is read again. The kubelet updates a mounted file within a
/// minute or two.
const REREAD: Duration = Duration::from_secs(5);

/// File with the certificates of the authorities whose clients are served.
struct ClientCaFile {
    path: String,
    /// Content when it was last read, usable or not; None if it could not be read.
    content: Option<Vec<u8>>,
    authorities: ReloadingClientCa,
}

impl ClientCaFile {
    /// Reads the file that the settings name. A file that cannot be used ends the start.
    fn open(path: &str) -> Result<Option<Self>, Error> {
        if path.is_empty() {
            return Ok(None);
        }
        let content = std::fs::read(path).map_err(|source| Error::ClientCa { path: path.to_owned(), source })?;
        let authorities = ReloadingClientCa::new(&content)?;
        Ok(Some(Self { path: path.to_owned(), content: Some(content), authorities }))
    }

    /// Follows changes of the file until `stop`. While it cannot be used, the last authorities stay.
    async fn follow(mut self, stop: CancellationToken) {
        while tokio::time::timeout(REREAD, stop.cancelled()).await.is_err() {
            self.read_again();
        }
    }

    fn read_again(&mut self) {
        let path = self.path.as_str();
        let read = std::fs::read(path);
        let content = read.as_ref().ok();
        if content == self.content.as_ref() {
            return;
        }
        let problem = match &read {
            Ok(pem) => self.authorities.replace(pem).err().map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        match problem {
            None => info!(path, "serving the clients of other authorities"),
            Some(problem) => {
                warn!(path, problem, "placement.clientCaFile cannot be used; the previous authorities stay")
            }
        }
        self.content = read.ok();
    }
}

/// Serves schedulers until `stop`, if an address is given.
pub async fn serve(
    bind: Option<SocketAddr>,
    extender: Extender,
    keeper: &Option<CertificateKeeper>,
    settings: &Settings,
    client: &Client,
    stop: &CancellationToken,
) -> Result<JoinHandle<()>, Error> {
    let Some(bind) = bind else { return Ok(tokio::spawn(stop.clone().cancelled_owned())) };
    let listener = listen(bind).await?;
    let limits = ServerLimits { connections: CONNECTIONS, unread: UNREAD };
    let client_ca = ClientCaFile::open(&settings.placement.client_ca_file)?;
    let authorities = client_ca.as_ref().map(|file| file.authorities.clone());
    let acceptor = match keeper {
        Some(keeper) => Some(TlsAcceptor::from(tls::server_config(keeper.served(), authorities)?)),
        None => None,
    };
    info!(address = %bind, tls = acceptor.is_some(), client_ca = client_ca.is_some(), "serving schedulers");
    let server = server::serve(listener, extender.router(), limits, acceptor, stop.clone());
    let certificate = OptionFuture::from(keeper.clone().map(|keeper| keeper.follow(client.clone(), stop.clone())));
    let authorities = OptionFuture::from(client_ca.map(|file| file.follow(stop.clone())));
    Ok(tokio::spawn(async move {
        tokio::join!(server, certificate, authorities);
    }))
}
