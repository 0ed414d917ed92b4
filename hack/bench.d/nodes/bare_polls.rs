//! The bare loop, with which the polls of the operator are compared: a process with one task per machine, which polls
//! through the operator's HTTP client and keeps the last temperature.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::routing::get;
use ganglion_outbound::trust;
use reqwest::Client;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::machines::{METRICS, Side, address};
use super::polls::INTERVAL;

/// Delay before the first poll, to measure the memory of the process without connections.
const PAUSE: Duration = Duration::from_secs(10);

/// Machines to poll.
#[derive(Serialize, Deserialize)]
pub struct Targets {
    pub count: usize,
    pub port: u16,
    /// Certificate of all machines, PEM.
    pub certificate: String,
    pub user: String,
    pub password: String,
}

/// Runs until the process is killed.
pub async fn run(targets: &Path, bind: SocketAddr) -> Result<()> {
    let targets: Targets = serde_json::from_slice(&std::fs::read(targets)?)?;
    let tls = trust::only(targets.certificate.as_bytes()).context("no certificate")?;
    let client = Client::builder().no_proxy().tls_backend_preconfigured(tls).user_agent(Side::BARE).build()?;
    let known = Arc::new(Mutex::new(vec![f64::NAN; targets.count]));
    let targets = Arc::new(targets);
    for machine in 0..targets.count {
        tokio::spawn(poll(client.clone(), Arc::clone(&targets), machine, Arc::clone(&known)));
    }
    let router = Router::new().route("/readyz", get(async || "ok"));
    Ok(axum::serve(TcpListener::bind(bind).await?, router).await?)
}

async fn poll(client: Client, targets: Arc<Targets>, machine: usize, known: Arc<Mutex<Vec<f64>>>) {
    let url = format!("https://{}:{}{METRICS}", address(machine), targets.port);
    let first = Instant::now() + PAUSE + INTERVAL.mul_f64(fastrand::f64());
    let mut ticks = interval_at(first, INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        match ask(&client, &url, &targets).await {
            Ok(celsius) => known.lock().expect("no holder panics")[machine] = celsius,
            Err(error) => eprintln!("{url}: {error:#}"),
        }
    }
}

async fn ask(client: &Client, url: &str, targets: &Targets) -> Result<f64> {
    let request = client.get(url).basic_auth(&targets.user, Some(&targets.password)).timeout(INTERVAL);
    let body = request.send().await?.error_for_status()?.bytes().await?;
    let document: serde_json::Value = serde_json::from_slice(&body)?;
    document.pointer("/TemperatureSummaryCelsius/Intake/Reading").and_then(|one| one.as_f64()).context("no temperature")
}
