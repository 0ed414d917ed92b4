//! Actions of the user at each station, and checks of their results.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::marks::LABEL_DOMAIN;
use ganglion_api::monitoring::Monitoring;
use ganglion_api::node_config::NodeConfig;
use ganglion_api::node_config::status::NodeValue;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::racks::{COOL, HOT};
use super::scene::{CAMERAS, CREW, POLICY, REPLICAS, SLOW, STREAMS, WEB};
use super::{HeatChain, PASCALS, POWER, Station, StationCheck, until};
use crate::eye::Seen;
use crate::kubelet::journal::Journal;
use crate::testbed::loops::condition;
use crate::testbed::pools::WORKERS;
use crate::verdict::{node_of, pods_of, serves};

/// Usage that the source Fake reports, in percent.
const USAGE: f64 = 50.0;

/// Number of moves after which a node of the hot rack must still have replicas, so that temperature competes with the
/// queue.
const MOVES: usize = 3;

/// Number of measurements after which the chain is at rest.
const QUIET: usize = 4;

impl StationCheck {
    fn new(what: &str, seen: impl Into<String>, holds: bool) -> Self {
        Self { what: what.to_owned(), seen: seen.into(), holds }
    }
}

impl HeatChain<'_> {
    /// Each node has its inlet temperature, and the power that the model predicts.
    pub(super) async fn measured(&self) -> Result<Vec<StationCheck>> {
        self.apply_all(Station::Measured).await?;
        let count = self.racks.len();
        let all = until("values of every node", async || {
            let all = self.nodes().await?;
            let known = all.values().filter(|node| node.inlet.is_some() && node.watts.is_some()).count();
            Ok((known == count).then_some(all))
        })
        .await?;
        let right = |node: &Measured| {
            let (Some(inlet), Some(watts)) = (node.inlet, node.watts) else { return false };
            // The temperature swings between its poll and the prediction.
            (watts - POWER.watts([USAGE, inlet, PASCALS])).abs() < 10.0
        };
        let wrong: Vec<&str> = all.iter().filter(|(_, node)| !right(node)).map(|(name, _)| name.as_str()).collect();
        Ok(vec![
            StationCheck::new("nodes with their values", all.len().to_string(), all.len() == count),
            StationCheck::new("nodes with another power", list(&wrong), wrong.is_empty()),
        ])
    }

    /// One rack gets hot, and the policy ranks its nodes below the others.
    pub(super) async fn hot(&self) -> Result<Vec<StationCheck>> {
        self.apply_all(Station::Hot).await?;
        self.racks.set_inlet(HOT);
        let labels = until("ranked below the cool rack", async || {
            let labels = self.labels().await?;
            let levels = |hot: bool| {
                let side = labels.iter().filter(move |(node, _)| self.racks.is_hot(node) == hot);
                side.filter(|(node, _)| **node != self.racks.full).map(|(_, label)| label.parse::<u8>())
            };
            let is_full = labels.get(&self.racks.full).is_some_and(|label| label == "rejected");
            let ranked = levels(true).all(|level| level.is_err()) && levels(false).all(|level| level.is_ok());
            Ok((ranked && is_full && labels.len() == self.racks.len()).then_some(labels))
        })
        .await?;
        // The API server looks for new kinds of parameters every 30 s.
        until("terms in a new pod", async || Ok(self.gets_terms().await?.then_some(()))).await?;
        let side = |hot: bool| {
            let side = labels.iter().filter(move |(node, _)| self.racks.is_hot(node) == hot);
            list(&side.map(|(_, label)| label.as_str()).collect::<Vec<_>>())
        };
        Ok(vec![
            StationCheck::new("labels of rack a, 0 to 15", side(true), true),
            StationCheck::new("labels of rack b", side(false), true),
        ])
    }

    /// A loop moves replicas off the rack.
    pub(super) async fn leaving(&self) -> Result<Vec<StationCheck>> {
        let before = self.eye.look(|seen: &Seen| self.on_rack(seen, WEB));
        self.apply_all(Station::Leaving).await?;
        self.accepts(WEB).await?;
        self.ganglion(&["push", WEB, "queue=120"]).await?;
        self.eye.until("the first moves", |seen: &Seen| (self.came(seen).len() >= 2).then_some(())).await?;
        let verdict = self.story.verdict(&self.eye);
        let enough = before.len() > MOVES;
        let mut checks = vec![StationCheck::new("replicas on rack a before", before.len().to_string(), enough)];
        checks.extend(self.placed_well());
        let lowest = verdict.lowest_ready;
        checks.push(StationCheck::new("fewest Ready replicas", lowest.to_string(), lowest >= REPLICAS));
        Ok(checks)
    }

    /// The slow loop sees that only temperature is served, and raises the queue.
    pub(super) async fn tuned(&self) -> Result<Vec<StationCheck>> {
        self.apply_all(Station::Tuned).await?;
        let loops: Api<ClosedLoop> = self.api();
        let rank = until("ranked anew", async || {
            let rank = loops.get(WEB).await?.status.and_then(|status| status.effective).unwrap_or_default().rank;
            Ok((rank.first().is_some_and(|first| first == "queue")).then_some(rank))
        })
        .await?;
        let replicas = self.replicas().await?;
        Ok(vec![
            StationCheck::new("replicas before the queue was served", replicas.to_string(), replicas == REPLICAS),
            StationCheck::new(&format!("rank after {SLOW} has tuned it"), rank.join(", "), rank == ["queue", "inlet"]),
        ])
    }

    /// The queue is served: new replicas avoid the hot rack by the same policy.
    pub(super) async fn avoided(&self) -> Result<Vec<StationCheck>> {
        let more = REPLICAS + 2;
        // A value that was measured before an action took effect triggers no further one, so a sender repeats it.
        until("scaled", async || {
            self.ganglion(&["push", WEB, "queue=150"]).await?;
            // A move has more pods, too, but it does not change the number of replicas.
            Ok((self.replicas().await? == more).then_some(()))
        })
        .await?;
        let all_serve = |seen: &Seen| (pods_of(seen, WEB).filter(|pod| serves(pod)).count() >= more).then_some(());
        self.eye.until("more replicas", all_serve).await?;
        self.ganglion(&["push", WEB, "queue=10"]).await?;
        let mut checks = vec![StationCheck::new("replicas", more.to_string(), true)];
        checks.extend(self.placed_well());
        Ok(checks)
    }

    /// The rest of the replicas leave, and the workers of the pool with their jobs.
    pub(super) async fn empty(&self) -> Result<Vec<StationCheck>> {
        let before = self.jobs()?;
        let left = self.eye.look(|seen: &Seen| self.on_rack(seen, WORKERS));
        self.apply_all(Station::Empty).await?;
        for app in [WEB, WORKERS] {
            let what = format!("no replica of {app} on rack a");
            self.eye.until(&what, |seen: &Seen| self.on_rack(seen, app).is_empty().then_some(())).await?;
        }
        let pools: Api<SwarmPool> = self.api();
        let wanted = format!("{CREW}/{CREW}");
        until("converged", async || {
            let status = pools.get(CAMERAS).await?.status.unwrap_or_default();
            let ready = condition(&status.conditions, "Ready").is_some_and(|ready| ready.reason == "Converged");
            let jobs: usize = self.jobs()?.values().map(BTreeSet::len).sum();
            Ok((ready && status.converged.as_ref() == Some(&wanted) && jobs == STREAMS).then_some(()))
        })
        .await?;
        let doubled = Journal::read(&self.kubelets[0].journal())?.doubled();
        let after = self.jobs()?;
        let lowest = self.story.verdict(&self.eye).lowest_ready;
        let ready = self.api::<ClosedLoop>().get(CAMERAS).await?.status.unwrap_or_default().conditions;
        let ready = condition(&ready, "Ready").context("the loop says nothing")?;
        Ok(vec![
            StationCheck::new("loop of the pool", ready.reason, ready.status == "True"),
            StationCheck::new("workers that left rack a", list(&left), !left.is_empty()),
            StationCheck::new("jobs that another worker runs now", moved(&before, &after).to_string(), before == after),
            StationCheck::new("jobs that ran twice at any time", doubled.len().to_string(), doubled.is_empty()),
            StationCheck::new("fewest Ready replicas of web", lowest.to_string(), lowest >= REPLICAS),
        ])
    }

    /// The rack cools down, and nothing goes back.
    pub(super) async fn cool(&self) -> Result<Vec<StationCheck>> {
        self.racks.set_inlet(COOL);
        let monitorings: Api<Monitoring> = self.api();
        until("without alarms", async || {
            let mut calm = true;
            for name in [WEB, CAMERAS] {
                let status = monitorings.get(name).await?.status.unwrap_or_default();
                calm &= status.message.as_deref() == Some("No Event");
            }
            Ok(calm.then_some(()))
        })
        .await?;
        let before = self.at_rest().await?;
        for _ in 0..QUIET {
            let last = self.measurement().await?;
            until("measured again", async || Ok((self.measurement().await? != last).then_some(()))).await?;
        }
        let after = self.at_rest().await?;
        let failed = self.failed();
        let same = |what: &str, number: usize, holds: bool| StationCheck::new(what, number.to_string(), holds);
        Ok(vec![
            same("pods since then, on the same nodes", after.pods.len(), before.pods == after.pods),
            same("actions, none since then", after.actions, before.actions == after.actions),
            StationCheck::new("actions that failed", list(&failed), failed.is_empty()),
            same("replicas", after.replicas, before.replicas == after.replicas),
        ])
    }

    /// New replicas and where they are: not on the hot rack, and not on the node that is nearly full.
    fn placed_well(&self) -> Vec<StationCheck> {
        let came = self.eye.look(|seen: &Seen| self.came(seen));
        let bad: Vec<&str> = came
            .values()
            .filter(|node| self.racks.is_hot(node) || **node == self.racks.full)
            .map(String::as_str)
            .collect();
        let nodes: Vec<&str> = came.values().map(String::as_str).collect();
        vec![
            StationCheck::new("nodes of new replicas", list(&nodes), !nodes.is_empty()),
            StationCheck::new("of them, hot or nearly full", list(&bad), bad.is_empty()),
        ]
    }

    /// Replicas created since the beginning that are Ready, with their nodes.
    fn came(&self, seen: &Seen) -> BTreeMap<String, String> {
        let begun: BTreeSet<String> = self.story.pods().into_iter().map(|(name, _)| name).collect();
        let new = pods_of(seen, WEB).filter(|pod| serves(pod) && !begun.contains(&pod.name_any()));
        new.map(|pod| (pod.name_any(), node_of(pod))).collect()
    }

    /// Actions that have ended without success.
    fn failed(&self) -> Vec<String> {
        let has_failed = |action: &&Arc<WorkloadAction>| {
            let status = action.status.as_ref();
            let ready = status.and_then(|status| condition(&status.conditions, "Ready"));
            status.is_some_and(|status| status.finished_at.is_some())
                && ready.is_none_or(|ready| ready.status != "True")
        };
        self.eye.look(|seen: &Seen| seen.actions.values().filter(has_failed).map(|action| action.name_any()).collect())
    }

    /// Pods of this app on the hot rack.
    fn on_rack(&self, seen: &Seen, app: &str) -> Vec<String> {
        let there = pods_of(seen, app).filter(|pod| self.racks.is_hot(&node_of(pod)));
        there.map(|pod| pod.name_any()).collect()
    }

    /// Waits until a loop accepts samples.
    async fn accepts(&self, name: &str) -> Result<()> {
        let monitorings: Api<Monitoring> = self.api();
        until("ready for samples", async || {
            let found = monitorings.get_opt(name).await?;
            Ok(found.and_then(|found| found.status).filter(|status| !status.values.is_empty()).map(drop))
        })
        .await
    }

    async fn replicas(&self) -> Result<usize> {
        let deployment = self.api::<Deployment>().get(WEB).await?;
        Ok(usize::try_from(deployment.spec.and_then(|spec| spec.replicas).unwrap_or_default())?)
    }

    /// Running jobs by worker.
    fn jobs(&self) -> Result<BTreeMap<String, BTreeSet<String>>> {
        let mut running = Journal::read(&self.kubelets[0].journal())?.running();
        running.retain(|_, jobs| !jobs.is_empty());
        Ok(running)
    }

    /// Values of each node.
    async fn nodes(&self) -> Result<BTreeMap<String, Measured>> {
        let all = self.api::<NodeConfig>().list(&ListParams::default()).await?;
        Ok(all.into_iter().map(|config| (config.spec.node_name.to_string(), Measured::of(&config))).collect())
    }

    /// Label of the policy on each node that has one.
    async fn labels(&self) -> Result<BTreeMap<String, String>> {
        let key = format!("{LABEL_DOMAIN}{POLICY}");
        let nodes = Api::<Node>::all(self.cluster.client.clone()).list_metadata(&ListParams::default()).await?;
        let labeled = nodes.items.iter().filter_map(|node| Some((node.name_any(), node.labels().get(&key)?.clone())));
        Ok(labeled.collect())
    }

    /// Whether the API server adds terms to a new pod.
    async fn gets_terms(&self) -> Result<bool> {
        let pod = json!({"metadata": {"generateName": "probe-"}, "spec": {"containers": [{"name": "main", "image": "none"}]}});
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let created = self.api::<Pod>().create(&dry, &serde_json::from_value(pod)?).await?;
        Ok(created.spec.and_then(|spec| spec.affinity?.node_affinity).is_some())
    }

    /// Time of the last measurement of the hot rack's first node.
    async fn measurement(&self) -> Result<Option<String>> {
        let all = self.nodes().await?;
        let hot = all.into_iter().find(|(node, _)| self.racks.is_hot(node));
        Ok(hot.context("no node in rack a")?.1.sampled)
    }

    /// Everything that must stay as it is.
    async fn at_rest(&self) -> Result<Rest> {
        let (pods, actions) = self.eye.look(|seen: &Seen| {
            let pods = seen.pods.values().map(|pod| (pod.name_any(), node_of(pod))).collect();
            (pods, seen.actions.len())
        });
        Ok(Rest { pods, actions, replicas: self.replicas().await? })
    }
}

/// Values of one node, in °C and watts.
struct Measured {
    inlet: Option<f64>,
    watts: Option<f64>,
    /// Time of the temperature.
    sampled: Option<String>,
}

impl Measured {
    fn of(config: &NodeConfig) -> Self {
        let reading = |value| config.status.as_ref().and_then(|status| status.reading(value));
        let number = |value| reading(value).and_then(|reading| reading.value.as_ref()?.parse().ok());
        let inlet = reading(NodeValue::InletTemperature);
        Self {
            inlet: number(NodeValue::InletTemperature),
            watts: number(NodeValue::Power),
            sampled: inlet.and_then(|inlet| serde_json::to_string(&inlet.sampled_at).ok()),
        }
    }
}

/// State of the workloads.
struct Rest {
    pods: BTreeMap<String, String>,
    actions: usize,
    replicas: usize,
}

/// Number of jobs that another worker runs now.
fn moved(before: &BTreeMap<String, BTreeSet<String>>, after: &BTreeMap<String, BTreeSet<String>>) -> usize {
    let none = BTreeSet::new();
    after.iter().map(|(worker, jobs)| jobs.difference(before.get(worker).unwrap_or(&none)).count()).sum()
}

fn list(words: &[impl AsRef<str>]) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}
