//! HTTP servers: how long and how many connections are open, with TLS or without. Knows no route.

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

/// How long open connections may last after the stop.
pub const GOODBYE: Duration = Duration::from_secs(2);

/// How long a client may take for the head of a request, and how long an idle connection is kept.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// ServerLimits of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// The number of connections that are open at the same time.
    pub connections: usize,
    /// How long a client may read nothing of a reply.
    pub unread: Duration,
}

/// How long a client may read nothing of a reply. A reply that nobody reads takes memory.
pub const UNREAD: Duration = Duration::from_secs(10);

/// Serves until `stop`, then lets running requests finish.
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
            // No file descriptor is left, or the client has gone already.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        open.retain(|connection| !connection.is_finished());
        if open.len() >= limits.connections {
            // The oldest, since a request lasts milliseconds: whoever holds connections open cannot keep others out.
            open.pop_front().inspect(AbortHandle::abort);
        }
        let connection = Connection { unread: limits.unread, service: service.clone(), stop: stop.clone() };
        open.push_back(connections.spawn(connection.accept(stream, tls.clone())));
    }
    // A client that keeps its connection open must not keep the process running.
    let _ = tokio::time::timeout(GOODBYE, async { while connections.join_next().await.is_some() {} }).await;
}

/// What serves one connection.
struct Connection {
    unread: Duration,
    service: TowerToHyperService<Router>,
    stop: CancellationToken,
}

impl Connection {
    async fn accept(self, stream: TcpStream, tls: Option<TlsAcceptor>) {
        // Answers are short, and a scheduler waits for each.
        let _ = stream.set_nodelay(true);
        let Some(tls) = tls else { return self.serve(stream).await };
        match handshake(&tls, stream, HANDSHAKE_TIMEOUT).await {
            Ok(stream) => self.serve(stream).await,
            Err(error) => debug!(%error, "no tls connection"),
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
