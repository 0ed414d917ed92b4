//! HTTP servers with or without TLS: the number of connections and their timeouts. Does not depend on the routes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::certificate::tls::{HANDSHAKE_TIMEOUT, handshake};

/// Time for open connections to finish after the stop.
pub const GOODBYE: Duration = Duration::from_secs(2);

/// Timeout for the headers of a request, and for an idle connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Address of the client of a request, as an extension of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Maximum number of open connections.
    pub connections: usize,
    /// Write timeout: time after which a connection is closed if the client reads nothing of a reply.
    pub unread: Duration,
}

/// Default write timeout. A reply that the client does not read occupies memory.
pub const UNREAD: Duration = Duration::from_secs(10);

/// Serves until `stop`, then waits for running requests.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ServerLimits,
    tls: Option<TlsAcceptor>,
    stop: CancellationToken,
) {
    let service = TowerToHyperService::new(router);
    let mut connections = JoinSet::new();
    let mut open: Vec<(IpAddr, AbortHandle)> = Vec::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, address)) = accepted else {
            // No file descriptor is free, or the client has disconnected.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        open.retain(|(_, connection)| !connection.is_finished());
        if open.len() >= limits.connections
            && let Some(at) = oldest_of_most(&open)
        {
            // Requests take milliseconds, so this connection is most likely idle. Clients that only hold connections
            // open cannot lock out others.
            open.remove(at).1.abort();
        }
        let peer = Peer(address.ip());
        let connection = Connection { peer, unread: limits.unread, service: service.clone(), stop: stop.clone() };
        open.push((peer.0, connections.spawn(connection.accept(stream, tls.clone()))));
    }
    // A client that keeps its connection open must not keep the process running.
    let _ = tokio::time::timeout(GOODBYE, async { while connections.join_next().await.is_some() {} }).await;
}

/// Position of the oldest connection of the peer that has most of them.
fn oldest_of_most(open: &[(IpAddr, AbortHandle)]) -> Option<usize> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for (peer, _) in open {
        *counts.entry(*peer).or_default() += 1;
    }
    let most = counts.values().max()?;
    open.iter().position(|(peer, _)| counts.get(peer) == Some(most))
}

/// Service for one connection.
struct Connection {
    peer: Peer,
    unread: Duration,
    service: TowerToHyperService<Router>,
    stop: CancellationToken,
}

impl Connection {
    async fn accept(self, stream: TcpStream, tls: Option<TlsAcceptor>) {
        // Replies are short, and a scheduler waits for each of them.
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls else { return self.serve(stream).await };
        match handshake(&tls, stream, HANDSHAKE_TIMEOUT).await {
            Ok(stream) => self.serve(stream).await,
            Err(error) => debug!(%error, "tls handshake failed"),
        }
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + 'static) {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(self.unread));
        let service = service_fn(|mut request: Request<Incoming>| {
            request.extensions_mut().insert(self.peer);
            self.service.call(request)
        });
        let mut connection = pin!(http.serve_connection(TokioIo::new(Box::pin(stream)), service));
        let done = tokio::select! {
            done = connection.as_mut() => done,
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = done {
            debug!(%error, "http connection ended");
        }
    }
}
