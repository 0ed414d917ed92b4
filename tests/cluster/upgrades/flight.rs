//! Work of every product: settled, in flight, and completed.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::execution::ExecutionState;
use ganglion_api::node_config::NodeConfig;
use jiff::Timestamp;
use serde_json::json;
use testkit::kubelet::Kubelet;
use testkit::proxy::Proxy;
use testkit::proxy::gate::{Held, HoldPoint};
use testkit::servers::http::{Manner, Server};
use testkit::testbed::Testbed;
use testkit::testbed::loops::{self, SCALES, account, demo, ended, make, push, replicas, travelled, until};
use testkit::testbed::pools::{WORKERS, check, converged, kubelet, pool, reloading, stateful_set};
use testkit::testbed::workload::Workload;
use testkit::wait_for;

use crate::acts::{Act, Verb, is_about};
use crate::node_configs;

/// Actions in flight: name, verb, and the write at which the action is held.
const ACTIONS: [(&str, Verb, usize); 6] = [
    ("early", Verb::Move, 2),
    ("middle", Verb::Move, 5),
    ("late", Verb::Move, 8),
    ("grows", Verb::Create, 4),
    ("shrinks", Verb::Delete, 4),
    ("waits", Verb::Move, 1),
];

/// Values that the node's server reports before and after.
const PASCALS: (f64, f64) = (20.0, 90.0);

/// Number of jobs of the pool.
const JOBS: i64 = 30;

/// Time in which work at rest causes almost no write, and the maximum number of writes in it.
const REST: (Duration, usize) = (Duration::from_secs(5), 5);

pub struct Flight<'a> {
    testbed: &'a Testbed,
    acts: Vec<Act>,
    kubelet: Kubelet,
    server: Server,
    /// Generation and replicas of the loop's Deployment.
    scaled: (i64, i32),
    /// Time of the sample in flight.
    sampled: Option<Timestamp>,
    /// Workers of the pool.
    workers: u32,
}

impl<'a> Flight<'a> {
    /// Creates workloads, a loop, a pool and a NodeConfig, and waits until they are settled.
    pub async fn prepare(testbed: &'a Testbed) -> Result<Self> {
        let mut acts = Vec::new();
        for (name, verb, _) in ACTIONS {
            acts.push(Act::prepare(testbed, verb, name).await?);
        }
        account(testbed, SCALES).await?;
        Workload::deployment("web", 1).make(testbed).await?;
        make(testbed, "web", demo()).await?;
        loops::ready(testbed, "web", "True", "Running").await?;
        let kubelet = kubelet(testbed, true).await?;
        let workers = 3;
        stateful_set(testbed, workers).await?;
        pool(testbed, WORKERS, reloading(json!({}))).await?;
        converged(testbed, WORKERS, 3, JOBS).await?;
        let server = Server::start(node_configs::pascals(PASCALS.0)).await;
        let source = json!({"deltaP": node_configs::pressure(&server.url("/"))});
        node_configs::put(testbed, "measured", &kubelet.node, source).await?;
        node_configs::ready(testbed, "measured", "True", "Sampled").await?;
        let scaled = replicas(testbed, "web").await?;
        Ok(Self { testbed, acts, kubelet, server, scaled, sampled: None, workers })
    }

    /// Starts work of every product. Holds each piece at a write of the leader behind this proxy.
    pub async fn take_off(&mut self, leader: &Proxy) -> Result<Vec<Held>> {
        let testbed = self.testbed;
        let mut gates = Vec::new();
        for (act, (name, _, nth)) in self.acts.iter().zip(ACTIONS) {
            let when = if nth % 2 == 0 { HoldPoint::Before } else { HoldPoint::After };
            gates.push((name, leader.hold(nth, when, is_about(name))));
            act.begin(testbed).await?;
        }
        gates.push(("the loop", leader.hold(1, HoldPoint::After, |write| write.is_on("deployments/scale"))));
        gates.push(("the pool", leader.hold(1, HoldPoint::After, |write| write.is_on("configmaps"))));
        self.begins(4).await?;
        for (name, gate) in &mut gates {
            gate.reached().await.with_context(|| format!("{name} is not in flight"))?;
        }
        // A poll is in flight as well.
        self.server.turn(Manner::Hangs);
        let before = self.polls();
        self.polled(before).await?;
        Ok(gates.into_iter().map(|(_, gate)| gate).collect())
    }

    /// Pushes a sample that scales the Deployment, and scales the pool to this number of workers.
    async fn begins(&mut self, workers: u32) -> Result<()> {
        let testbed = self.testbed;
        self.sampled = Some(push(testbed, "web", json!({"cpu": "1", "memory": "60"})).await?);
        self.workers = workers;
        let count = format!("--replicas={workers}");
        testbed.kubectl(&["scale", &format!("sts/{WORKERS}"), &count], None).await.map(drop)
    }

    /// Starts all actions, and other work that nothing holds.
    pub async fn begin_all(&mut self, workers: u32) -> Result<()> {
        for act in &self.acts {
            act.begin(self.testbed).await?;
        }
        self.begins(workers).await
    }

    /// Checks that all work ends as without a change of the version, each effect happens once, and nothing is written
    /// afterwards. `leader`: proxy of the current leader.
    pub async fn lands(&mut self, leader: &Proxy) -> Result<()> {
        let testbed = self.testbed;
        for act in &self.acts {
            testbed.ends(act.name(), ("True", "Succeeded")).await?;
            act.done(testbed).await?;
        }
        let time = self.sampled.context("no sample was pushed")?;
        let (.., execution) = travelled(testbed, "web", time).await?;
        ensure!(execution.is_some_and(|one| ended(&one).0 == Some(ExecutionState::Done)), "the loop did not act");
        let (scaled, before) = (replicas(testbed, "web").await?, self.scaled);
        ensure!(scaled == (before.0 + 1, before.1 + 1), "one decision scaled {before:?} to {scaled:?}");
        self.scaled = scaled;
        converged(testbed, WORKERS, usize::try_from(self.workers)?, JOBS).await?;
        check(&self.kubelet, usize::try_from(JOBS)?)?;
        self.server.turn(node_configs::pascals(PASCALS.1));
        until::<NodeConfig, _>(testbed, "measured", "the new pressure", |one| {
            let value = one.status?.differential_pressure?.value?.parse::<f64>().ok()?;
            (value == PASCALS.1).then_some(())
        })
        .await?;
        self.server.turn(node_configs::pascals(PASCALS.0));
        rests(leader).await
    }

    /// Number of polls that the node's server received.
    fn polls(&self) -> usize {
        self.server.asked.lock().map_or(0, |asked| asked.len())
    }

    async fn polled(&self, before: usize) -> Result<()> {
        wait_for("the node to be polled", || self.polls() != before).await
    }

    pub async fn stop(self) -> Result<()> {
        self.kubelet.stop().await
    }
}

/// Checks that the leader behind this proxy writes almost nothing. Writes of the last step may follow shortly.
pub async fn rests(leader: &Proxy) -> Result<()> {
    let mut busy = Vec::new();
    for _ in 0..4 {
        let before = leader.writes().len();
        tokio::time::sleep(REST.0).await;
        busy = leader.writes().split_off(before);
        if busy.len() <= REST.1 {
            return Ok(());
        }
    }
    let last: Vec<String> = busy.iter().rev().take(10).map(ToString::to_string).collect();
    anyhow::bail!("{} writes within {:?} at rest; the last ones: {last:#?}", busy.len(), REST.0)
}
