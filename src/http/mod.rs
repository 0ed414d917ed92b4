//! The HTTP server: liveness, readiness, metrics.
//!
//! Owns the routes. Never sends a request to the API server: it answers from the caches.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::logic::world::World;
use crate::metrics::{KindLabel, Metrics};
use crate::runtime::store::Store;
use crate::runtime::watch::Readiness;

/// How long open connections may last after the stop.
const GOODBYE: Duration = Duration::from_secs(2);

/// The data that requests are answered from.
#[derive(Clone)]
pub struct Served {
    pub ready: Readiness,
    pub store: Store,
    pub metrics: Metrics,
}

/// Serves until `stop`, then lets running requests finish.
pub async fn serve(listener: TcpListener, served: Served, stop: CancellationToken) {
    let stopped = stop.clone();
    let server = axum::serve(listener, router(served)).with_graceful_shutdown(async move { stopped.cancelled().await });
    let over = async {
        stop.cancelled().await;
        // A client that keeps its connection open must not keep the process running.
        tokio::time::sleep(GOODBYE).await;
    };
    tokio::select! {
        result = server.into_future() => if let Err(error) = result {
            warn!(%error, "http server ended");
        },
        () = over => {}
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
    match served.metrics.render() {
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
