//! `hack/bench tenants`: what a hostile tenant costs another one.
//!
//! Rounds alternate on one control plane. In a hostile round, a user of one namespace sends what once hurt others, at a
//! fixed rate, and a client without credentials does the same to the extender. In a control round, the same user sends
//! as many requests of the same size at the same rate, but of objects that do not concern the operator: the API server
//! is shared, whatever the operator does. Meanwhile the loop, the moves and the scheduler of the other namespace are
//! timed.

mod load;
mod work;

use std::sync::Arc;

use anyhow::Result;
use testkit::hostile::{HostileTenant, RefusingPolicy};
use testkit::plane::install::{Installed, NAMESPACE};
use testkit::process::free_port;

use super::actions::single;
use super::frame::{Bench, Bound, Progress, default_garbage, median, number, operator, quantile};
use super::loops::scene;
use load::{HostileLoad, LoadKind};
use work::{Latencies, SecondTenant};

const PART: &str = "tenants";

/// Namespace of the hostile tenant.
const HOSTILE: &str = "hostile";

/// Measured rounds of each kind, after one of each with cold connections and caches.
const ROUNDS: usize = 5;

/// Maximum 95th percentile in hostile rounds, relative to that in control rounds.
const TIMES: f64 = 1.5;

/// Maximum memory of the operator in MiB, half of the limit in kustomize/base.
const MEMORY: f64 = 256.0;

pub async fn run(bench: &mut Bench) -> Result<()> {
    let cluster = bench.plane(PART, single::NODES, &default_garbage()).await?;
    Installed::default().install(&cluster).await?;
    scene::namespace(&cluster.client, single::NAMESPACE).await?;
    let hostile = HostileTenant::open(&cluster, HOSTILE).await?;

    let port = free_port()?;
    let settings = bench.home(PART)?.join("settings.yaml");
    std::fs::write(&settings, "placement: {serverNames: [127.0.0.1]}")?;
    let (settings, bind) = (settings.display().to_string(), format!("127.0.0.1:{port}"));
    let operator = operator(bench, PART, &cluster, &["--settings", &settings, "--extender-bind", &bind]).await?;
    let policy = Arc::new(RefusingPolicy::create(&cluster.client, PART, port, NAMESPACE).await?);
    let second = SecondTenant::open(&cluster.client, &policy).await?;
    let load = HostileLoad::open(hostile, policy.clone()).await?;

    let mut measured = [Latencies::default(), Latencies::default()];
    let progress = Progress::count("a hostile tenant and its control run in turns", 2 * (ROUNDS + 1));
    for round in 0..=ROUNDS {
        for (step, (kind, all)) in [LoadKind::Control, LoadKind::Hostile].into_iter().zip(&mut measured).enumerate() {
            let sent = tokio::spawn(load.clone().send(kind, format!("{}-{round}", kind.name())));
            let latencies = second.during(async { sent.await? }).await?;
            load.clear().await?;
            if round > 0 {
                all.add(latencies);
            }
            progress.at(2 * round + step + 1);
        }
    }
    progress.end();
    report(bench, &measured);
    bench.claim("memory of the operator at its highest", operator.memory("VmHWM")?, "MiB", Bound::AtMost(MEMORY));
    operator.stop().await?;
    cluster.down().await
}

/// Claims the 95th percentile of each latency, relative to the control rounds. The values of all rounds of one kind
/// count together.
fn report(bench: &mut Bench, [control, hostile]: &[Latencies; 2]) {
    for (name, of) in [
        ("a sample to Decision", (|all| &all.decisions) as fn(&Latencies) -> &Vec<f64>),
        ("a move, create to Succeeded", |all| &all.moves),
        ("a request to the extender", |all| &all.answers),
    ] {
        let (control, hostile) = (of(control), of(hostile));
        let [p95, base] = [hostile, control].map(|values| quantile(values, 0.95));
        let title = format!("{name}: p95 beside a hostile tenant, relative to ConfigMaps");
        bench.claim(&title, p95 / base, "times", Bound::AtMost(TIMES));
        bench.note("  median, relative to the same", median(hostile) / median(control), "times");
        bench.note("  p95 beside the hostile tenant", p95, "ms");
        bench.note("  p95 beside ConfigMaps", base, "ms");
        bench.note("  values of each kind of round, at least", number(control.len().min(hostile.len())), "values");
    }
}
