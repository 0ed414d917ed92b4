//! The server of the scheduler extender, with its certificate. All replicas serve it.

use std::net::SocketAddr;

use kube::Client;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{Error, listen};
use crate::operator::settings::Settings;
use ganglion_placement::extender::Extender;
use ganglion_runtime::certificate::{CertificateKeeper, CertificateSecret, tls};
use ganglion_runtime::server::{self, ServerLimits, UNREAD};

/// Maximum number of open connections of schedulers. One scheduler keeps a few of them.
const CONNECTIONS: usize = 512;

/// Creates the keeper of the certificate; None if the settings select HTTP.
pub fn keeper(settings: &Settings, namespace: &str) -> Option<CertificateKeeper> {
    let placement = &settings.placement;
    let mut server_names = placement.server_names.clone();
    if server_names.is_empty() {
        server_names.push(format!("ganglion-extender.{namespace}.svc"));
    }
    let (namespace, name) = (namespace.to_owned(), placement.tls_secret.clone());
    placement.tls.then(|| CertificateKeeper::new(CertificateSecret { namespace, name, server_names }))
}

/// Reads the certificates of the authorities whose clients are served; None if the settings name no file.
fn client_ca(settings: &Settings) -> Result<Option<Vec<u8>>, Error> {
    let path = &settings.placement.client_ca_file;
    if path.is_empty() {
        return Ok(None);
    }
    let read = std::fs::read(path).map_err(|source| Error::ClientCa { path: path.clone(), source });
    read.map(Some)
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
    let acceptor = match keeper {
        Some(keeper) => Some(TlsAcceptor::from(tls::server_config(keeper.served(), client_ca(settings)?.as_deref())?)),
        None => None,
    };
    info!(address = %bind, tls = acceptor.is_some(), "serving schedulers");
    let server = server::serve(listener, extender.router(), limits, acceptor, stop.clone());
    let follow = keeper.clone().map(|keeper| keeper.follow(client.clone(), stop.clone()));
    Ok(tokio::spawn(async move {
        match follow {
            Some(follow) => drop(tokio::join!(server, follow)),
            None => server.await,
        }
    }))
}
