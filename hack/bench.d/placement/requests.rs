//! Requests of one and of eight clients, sent by wrk.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use ganglion::operator::world::world;
use ganglion_placement::cache::PlacementCache;
use ganglion_placement::extender::Extender;
use ganglion_placement::extender::wire::{ExtenderRequest, MAX_NODES, filter_reply, prioritize_reply};
use ganglion_runtime::metrics::Metrics;
use ganglion_runtime::server::{ServerLimits, UNREAD, serve};
use ganglion_runtime::store::Store;
use ganglion_runtime::watch::Readiness;
use serde_json::json;
use testkit::process::free_port;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::objects::{NODES, POLICY, fill, node, node_name};
use crate::TIMEOUT;
use crate::frame::{Bench, Bound, Progress, median};

pub const PART: &str = "requests";

/// Rounds per figure; the two handlers alternate.
const ROUNDS: usize = 3;

/// Duration of each measurement.
const SECONDS: u64 = 4;

/// Maximum time of a request, in milliseconds above the handler that only reads it, per number of nodes.
const BOUNDS: [(usize, f64); 2] = [(500, 5.0), (NODES, 20.0)];

/// Maximum time of a request with full nodes, relative to the time of its parsing.
const OF_PARSING: f64 = 2.0;

/// Maximum memory of the process, in MiB.
const MEMORY: f64 = 400.0;

const MAX_BODY: usize = 128 << 20;

/// Script for wrk; wrk reports microseconds.
const SCRIPT: &str = r#"
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local file = assert(io.open(os.getenv("BODY"), "rb"))
wrk.body = file:read("*a")
done = function(summary, latency)
  local e = summary.errors
  local failed = e.connect + e.read + e.write + e.status + e.timeout
  io.write(string.format("P99 %d P50 %d FAILED %d REQUESTS %d\n", latency:percentile(99), latency:percentile(50), failed, summary.requests))
end
"#;

/// Latencies of one run, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Latency {
    p50: f64,
    p99: f64,
}

fn parts(nodes: usize) -> Result<(Store, Extender)> {
    let store = Store::new(world());
    fill(&store, nodes)?;
    let placement = PlacementCache::new(store.clone());
    // Ready at once: there are no watches to wait for.
    Ok((store, Extender::new(Readiness::default(), placement, Metrics::new(), MAX_BODY)))
}

/// Runs the measured process.
pub async fn server(bind: SocketAddr, nodes: usize) -> Result<()> {
    let (_store, extender) = parts(nodes)?;
    let null = Router::new()
        .route("/null/filter", post(null_filter))
        .route("/null/prioritize", post(null_prioritize))
        .route("/readyz", get(async || "ok\n"));
    let listener = TcpListener::bind(bind).await?;
    let limits = ServerLimits { connections: 100, unread: UNREAD };
    serve(listener, extender.router().merge(null), limits, None, CancellationToken::new()).await;
    Ok(())
}

/// Reads the request and answers in the same form.
async fn null_filter(body: Bytes) -> Response {
    answer(&body, |request| filter_reply(&request.candidates, &[]))
}

async fn null_prioritize(body: Bytes) -> Response {
    answer(&body, |request| prioritize_reply(&request.candidates, &[]))
}

fn answer(body: &[u8], reply: impl Fn(&ExtenderRequest<'_>) -> Vec<u8>) -> Response {
    match ExtenderRequest::parse(body, MAX_NODES) {
        Ok(request) => ([(header::CONTENT_TYPE, "application/json")], reply(&request)).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

fn pod() -> serde_json::Value {
    json!({
        "metadata": {"namespace": "team-1", "name": "new", "uid": "new", "labels": {"app": "new"}},
        "spec": {"schedulerName": "default-scheduler", "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
    })
}

pub async fn run(bench: &mut Bench) -> Result<()> {
    let home = bench.home(PART)?;
    let script = home.join("post.lua");
    std::fs::write(&script, SCRIPT)?;
    let address: SocketAddr = format!("127.0.0.1:{}", free_port()?).parse()?;
    let mut server = started(address, NODES).await?;
    for (count, bound) in BOUNDS {
        let body = home.join(format!("{count}.json"));
        let names: Vec<String> = (0..count).map(|at| node_name(at * (NODES / count))).collect();
        std::fs::write(&body, json!({"Pod": pod(), "Nodes": null, "NodeNames": names}).to_string())?;
        for verb in ["filter", "prioritize"] {
            for clients in [1, 8] {
                compare(bench, &script, &body, address, (verb, count, clients, bound)).await?;
            }
        }
    }
    let pid = server.id().context("the server has ended")?;
    bench.claim("memory of the process, at most", peak(pid)?, "MiB", Bound::Below(MEMORY));
    server.kill().await?;
    full(bench).await
}

/// Starts the process with this number of nodes in its cache.
pub async fn started(address: SocketAddr, nodes: usize) -> Result<Child> {
    let progress = Progress::spin(&format!("starting a server with {nodes} nodes"));
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["placement-server", "--bind", &address.to_string(), "--nodes", &nodes.to_string()])
        .kill_on_drop(true)
        .env("MALLOC_ARENA_MAX", "1");
    let child = command.spawn()?;
    let deadline = Instant::now() + TIMEOUT;
    while tokio::net::TcpStream::connect(address).await.is_err() {
        ensure!(Instant::now() < deadline, "the server did not start in time");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    progress.end();
    Ok(child)
}

async fn compare(
    bench: &mut Bench,
    script: &Path,
    body: &Path,
    address: SocketAddr,
    (verb, count, clients, bound): (&str, usize, usize, f64),
) -> Result<()> {
    let title = format!("{verb}, {count} names, {clients} at a time");
    let progress = Progress::spin(&title);
    let (mut above, mut ours, mut null) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let bare = wrk(script, body, &format!("http://{address}/null/{verb}"), clients).await?;
        let asked = wrk(script, body, &format!("http://{address}/policies/{POLICY}/{verb}"), clients).await?;
        above.push(asked.p99 - bare.p99);
        ours.push(asked.p50);
        null.push(bare.p50);
    }
    progress.end();
    bench.claim(&format!("{title}: p99 above the bare handler"), median(&above), "ms", Bound::AtMost(bound));
    bench.note("  median, followed by that of the bare handler", median(&ours), "ms");
    bench.note("  ", median(&null), "ms");
    Ok(())
}

async fn wrk(script: &Path, body: &Path, url: &str, clients: usize) -> Result<Latency> {
    let mut command = Command::new("wrk");
    command
        .args(["-t1", &format!("-c{clients}"), &format!("-d{SECONDS}s"), "--timeout", "30s", "-s"])
        .arg(script)
        .arg(url);
    command.env("BODY", body).stdin(Stdio::null()).stdout(Stdio::piped());
    let output = command.output().await.context("wrk is missing (package wrk)")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text
        .lines()
        .find(|line| line.starts_with("P99 "))
        .with_context(|| format!("wrk printed no figures:\n{text}"))?;
    let numbers: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    let &[p99, p50, failed, requests] = numbers.as_slice() else { anyhow::bail!("wrk says {line}") };
    ensure!(failed == 0.0 && requests > 0.0, "requests failed: {line}");
    Ok(Latency { p50: p50 / 1000.0, p99: p99 / 1000.0 })
}

/// Peak of the resident memory, in MiB.
fn peak(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes / 1024.0)
}

/// Measures single requests with full nodes.
async fn full(bench: &mut Bench) -> Result<()> {
    let progress = Progress::spin("full nodes");
    let items: Vec<_> = (0..NODES).map(node).collect();
    let body: Bytes = json!({"Pod": pod(), "Nodes": {"items": items}, "NodeNames": null}).to_string().into();
    drop(items);
    let (_store, extender) = parts(NODES)?;
    let router = extender.router();
    let (mut parsing, mut filtering, mut scoring) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..7 {
        let begun = Instant::now();
        let parsed = ExtenderRequest::parse(&body, MAX_NODES)?;
        parsing.push(begun.elapsed().as_secs_f64() * 1000.0);
        ensure!(parsed.candidates.len() == NODES, "not all nodes were read");
        for (verb, times) in [("filter", &mut filtering), ("prioritize", &mut scoring)] {
            let request = Request::post(format!("/policies/{POLICY}/{verb}"))
                .header(header::CONTENT_LENGTH, body.len())
                .body(Body::from(body.clone()))?;
            let begun = Instant::now();
            let answer = router.clone().oneshot(request).await?;
            times.push(begun.elapsed().as_secs_f64() * 1000.0);
            ensure!(answer.status() == StatusCode::OK, "{}", answer.status());
        }
    }
    progress.end();
    let parse = median(&parsing);
    bench.note(&format!("full nodes, {} MB: parsing", body.len() / 1_000_000), parse, "ms");
    for (verb, times) in [("filter", filtering), ("prioritize", scoring)] {
        bench.claim(
            &format!("full nodes: {verb}, relative to parsing"),
            median(&times) / parse,
            "times",
            Bound::AtMost(OF_PARSING),
        );
    }
    Ok(())
}
