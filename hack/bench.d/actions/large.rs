//! The operator on a large cluster: time until it is ready, memory, and no writes when idle.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::jiff::Timestamp;
use testkit::operator::Operator;
use testkit::plane::install::Installed;

use super::start;
use crate::fleet;
use crate::frame::{Bench, Bound, Progress, default_garbage, number};
use testkit::plane::audit::{Audit, tally};

const NODES: usize = 1_000;
const DEPLOYMENTS: usize = 100;
const REPLICAS: usize = 100;
const IDLE: Duration = Duration::from_secs(30);

/// Time for the controllers of the control plane to process the pods that were just created.
const CATCH_UP: Duration = Duration::from_secs(20);

pub async fn run(bench: &mut Bench) -> Result<()> {
    let audit = Audit::prepare(&bench.home("large")?, false)?;
    let cluster = bench.plane("large", NODES, &[audit.options(), &default_garbage()].concat()).await?;
    Installed::default().install(&cluster).await?;
    fleet::deployments(&cluster.client, &["large".to_owned()], DEPLOYMENTS, REPLICAS).await?;
    tokio::time::sleep(CATCH_UP).await;
    let size = format!("{NODES} nodes, {} pods", DEPLOYMENTS * REPLICAS);
    let operator = start::measure(bench, &cluster, &audit, &size).await?;
    if bench.wants("large") {
        rest(bench, &audit, &operator, &size).await?;
    }
    operator.stop().await?;
    cluster.down().await
}

/// Measures requests and memory of the running operator.
async fn rest(bench: &mut Bench, audit: &Audit, operator: &Operator, size: &str) -> Result<()> {
    let progress = Progress::spin(&format!("watching the idle operator for {} s", IDLE.as_secs()));
    // Waits for the end of the start, such as the acquisition of the lease, which does not count as idle.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let from = Timestamp::now();
    tokio::time::sleep(IDLE).await;
    let requests = audit.between(from, Timestamp::now()).await?;
    progress.end();
    let writes: Vec<_> =
        requests.iter().filter(|one| one.by_operator && one.writes() && one.resource != "leases").cloned().collect();
    for (name, count) in tally(writes.iter()) {
        eprintln!("the idle operator sent {count} × {name}");
    }
    let idle = format!("idle operator: writes other than its lease, {} s", IDLE.as_secs());
    bench.claim(&idle, number(writes.len()), "writes", Bound::AtMost(0.0));
    bench.claim(&format!("memory with {size}: resident"), operator.memory("VmRSS")?, "MiB", Bound::Below(100.0));
    bench.note("  at its highest", operator.memory("VmHWM")?, "MiB");
    Ok(())
}
