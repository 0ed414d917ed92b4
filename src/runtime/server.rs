//! HTTP servers with or without TLS: the number of connections and their timeouts. Does not depend on the routes.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
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
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // No file descriptor is free, or the client has disconnected.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        open.retain(|connection| !connection.is_finished());
        if open.len() >= limits.connections {
            // Requests take milliseconds, so the oldest connection is most likely idle. Clients that only hold
            // connections open cannot lock out others.
            open.pop_front().inspect(AbortHandle::abort);
        }
        let connection = Connection { unread: limits.unread, service: service.clone(), stop: stop.clone() };
        open.push_back(connections.spawn(connection.accept(stream, tls.clone())));
    }
    // A client that keeps its connection open must not keep the process running.
    let _ = tokio::time::timeout(GOODBYE, async { while connections.join_next().await.is_some() {} }).await;
}

/// Service for one connection.
struct Connection {
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
        let mut connection = pin!(http.serve_connection(TokioIo::new(Box::pin(stream)), self.service));
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
