//! The HTTP server: liveness, readiness, metrics.
//!
//! Owns the routes, and how long and how many connections are open. Never sends a request to the API server: it answers from the caches.

mod figures;

use std::collections::VecDeque;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::logic::{self, world::World};
use crate::metrics::{KindLabel, Metrics};
use crate::runtime::store::Store;
use crate::runtime::watch::Readiness;

/// How long open connections may last after the stop.
const GOODBYE: Duration = Duration::from_secs(2);

/// How long a client may take for the head of a request, and how long an idle connection is kept.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// The number of connections that are open at the same time.
const MAX_CONNECTIONS: usize = 64;

/// How long to wait after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The data that requests are answered from.
#[derive(Clone)]
pub struct Served {
    pub ready: Readiness,
    pub store: Store,
    pub metrics: Metrics,
    /// The number of loops that have series of their own.
    pub loop_series: usize,
    /// The number of nodes that have series of their own.
    pub node_series: usize,
}

/// Serves until `stop`, then lets running requests finish.
pub async fn serve(listener: TcpListener, served: Served, stop: CancellationToken) {
    let service = TowerToHyperService::new(router(served));
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
        if open.len() >= MAX_CONNECTIONS {
            // The oldest, since a probe lasts milliseconds: whoever holds connections open cannot keep probes out.
            open.pop_front().inspect(AbortHandle::abort);
        }
        open.push_back(connections.spawn(answer(stream, service.clone(), stop.clone())));
    }
    // A client that keeps its connection open must not keep the process running.
    let _ = tokio::time::timeout(GOODBYE, async { while connections.join_next().await.is_some() {} }).await;
}

/// Serves one connection.
async fn answer(stream: TcpStream, service: TowerToHyperService<Router>, stop: CancellationToken) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let done = tokio::select! {
        done = connection.as_mut() => done,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = done {
        debug!(%error, "http connection ended");
    }
}

/// The routes.
pub fn router(served: Served) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(served)
}

/// The answer itself shows that the process is alive.
async fn healthz() -> &'static str {
    "ok\n"
}

/// Ready once the caches are filled. Standby replicas are ready, too.
async fn readyz(State(served): State<Served>) -> (StatusCode, &'static str) {
    if served.ready.is_ready() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "caches are not filled\n")
    }
}

async fn metrics(State(served): State<Served>) -> Response {
    for (kind, count) in served.store.read(World::counts) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        served.metrics.cache_objects.get_or_create(&KindLabel { kind }).set(count);
    }
    if let Some(bytes) = resident_memory() {
        served.metrics.memory.set(bytes);
    }
    let now = Timestamp::now();
    let (mut loops, actions) = served
        .store
        .read(|world| (logic::figures::of_loops(world, served.loop_series), logic::figures::of_actions(world, now)));
    for one in &mut loops {
        if let Some(newer) = served.metrics.loop_values.get(&one.key.namespace, &one.key.name) {
            one.values = newer;
        }
    }
    let nodes = served.metrics.node_values.first(served.node_series);
    match served.metrics.render(&figures::registry(loops, &actions, nodes, now)) {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Resident memory of this process in bytes; None on other systems than Linux.
fn resident_memory() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests;
