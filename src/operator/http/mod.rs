//! HTTP endpoints: liveness, readiness and metrics here, the scheduler extender in `extender`.
//!
//! Owns the routes; `server` owns the connections. Responses come from the caches; no request is sent to the API
//! server.

mod figures;
mod objects;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use figures::ScrapedFigures;
use ganglion_core::policies::PolicyState;
use ganglion_core::world::World;
use ganglion_placement_plan::world::PlacementWorld;
use ganglion_runtime::metrics::{KindLabel, Metrics};
use ganglion_runtime::server::{self, ServerLimits, UNREAD};
use ganglion_runtime::store::Store;
use ganglion_runtime::watch::Readiness;

/// Data that responses are built from.
#[derive(Clone)]
pub struct Served {
    pub ready: Readiness,
    pub store: Store,
    pub metrics: Metrics,
    /// Maximum number of loops with their own series.
    pub loop_series: usize,
    /// Maximum number of nodes with their own series.
    pub node_series: usize,
}

/// Maximum number of open connections.
const MAX_CONNECTIONS: usize = 64;

/// Serves until `stop`, then waits for running requests.
pub async fn serve(listener: TcpListener, served: Served, stop: CancellationToken) {
    server::serve(listener, router(served), ServerLimits { connections: MAX_CONNECTIONS, unread: UNREAD }, None, stop)
        .await;
}

pub fn router(served: Served) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(served)
}

/// Liveness: any response shows that the process is alive.
async fn healthz() -> &'static str {
    "ok\n"
}

/// Readiness: ready once the caches are synced. Standby replicas are ready, too, and so is an operator without its
/// admission policies: it serves, and a rollout must not stop because of them. The text says which are missing.
async fn readyz(State(served): State<Served>) -> (StatusCode, String) {
    if !served.ready.is_ready() {
        return (StatusCode::SERVICE_UNAVAILABLE, "caches are not synced\n".to_owned());
    }
    let states = served.store.read(World::policy_states);
    let missing: Vec<String> = states
        .into_iter()
        .filter(|(_, state)| *state != PolicyState::Present)
        .map(|(name, state)| format!("{name} ({})", state.as_str()))
        .collect();
    let text = if missing.is_empty() {
        "ok\n".to_owned()
    } else {
        format!("ok, but the operator does not act on kinds without their admission policies: {}\n", missing.join(", "))
    };
    (StatusCode::OK, text)
}

async fn metrics(State(served): State<Served>) -> Response {
    for (kind, count) in served.store.read(World::counts) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        served.metrics.cache_objects.get_or_create(&KindLabel { kind }).set(count);
    }
    for (kind, versions) in served.store.read(World::unreported) {
        served.metrics.unreported.get_or_create(&KindLabel { kind }).set(i64::try_from(versions).unwrap_or(i64::MAX));
    }
    if let Some(bytes) = resident_memory() {
        served.metrics.memory.set(bytes);
    }
    let now = Timestamp::now();
    let mut figures = served.store.read(|world| ScrapedFigures {
        loops: ganglion_loops_plan::figures::of_loops(world, served.loop_series),
        actions: ganglion_actions_plan::figures::of_actions(world, now),
        pools: ganglion_pools_plan::figures::of_pools(world),
        objects: objects::of_objects(world),
        policies: world.policy_states(),
        refused_pods: world.refused_pods(),
        nodes: Vec::new(),
        node_series: served.node_series,
    });
    figures.nodes = served.metrics.node_values.sorted();
    for one in &mut figures.loops {
        if let Some(newer) = served.metrics.loop_values.get(&one.key.namespace, &one.key.name) {
            one.values = newer;
        }
    }
    match served.metrics.render(&figures::registry(figures, now)) {
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
