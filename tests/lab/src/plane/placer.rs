//! A scheduler on a control plane as a placer of the lab.
//!
//! Each question is a pod that is created for it; if kube-scheduler finds no node, the pod is deleted, so that nothing
//! is scheduled between two questions. The run is faster than the clock. It begins so long ago that its time is behind
//! the clock until its end: to a policy, a pod is new at once, before the time of its binding is that of the run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use ganglion_api::node_config::NodeConfig;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use testkit::eye::Eye;
use testkit::operator::Operator;
use testkit::plane::scheduler::SecondScheduler;
use tokio::runtime::Handle;

use super::objects::{self, node_name};
use super::scores::SchedulerScores;
use crate::cluster::published::{annotations, node_status};
use crate::cluster::{LabNode, Placer, PodRequest};
use crate::compare::CHOSEN;

/// Number of objects that are written at once.
pub const WRITERS: usize = 8;

/// Minimum time between the questions of two steps. A policy takes pods within a second for a burst, as those of one
/// step are.
const BURST: Duration = Duration::from_millis(1100);

/// The scheduler, with all that it needs.
pub struct PlanePlacer {
    runtime: Handle,
    client: Client,
    namespace: String,
    eye: Eye,
    scheduler: SecondScheduler,
    /// Answers the scheduler if the contender has a policy.
    operator: Option<Operator>,
    /// Time at which the run begins.
    begin: Timestamp,
    /// Names of the bound pods by index.
    names: BTreeMap<usize, String>,
    /// Number of questions so far.
    questions: usize,
    /// Whether pods were changed since the last question.
    is_changed: bool,
    /// The last step with a question, and the real time of its last one.
    last: Option<(i64, Instant)>,
    /// Real time of the last question about a pod that got a node.
    placed: Option<Instant>,
    /// Bytes of the scheduler's log that were read.
    read: u64,
    report: String,
}

impl PlanePlacer {
    /// Begins a run in a namespace at this time. The placer must be called outside of asynchronous code.
    pub async fn begin(
        client: &Client,
        namespace: &str,
        begin: Timestamp,
        scheduler: SecondScheduler,
        operator: Option<Operator>,
    ) -> Result<Self> {
        Ok(Self {
            runtime: Handle::current(),
            client: client.clone(),
            namespace: namespace.to_owned(),
            eye: Eye::open(client, namespace).await?,
            scheduler,
            operator,
            // Kubernetes stores whole seconds.
            begin: Timestamp::from_second(begin.as_second())?,
            names: BTreeMap::new(),
            questions: 0,
            is_changed: false,
            last: None,
            placed: None,
            read: 0,
            report: String::new(),
        })
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn time(&self, second: i64) -> Timestamp {
        self.begin + SignedDuration::from_secs(second)
    }

    fn name(&self, pod: &PodRequest) -> Result<&str> {
        self.names.get(&pod.pod).map(String::as_str).with_context(|| format!("pod {} is not bound", pod.pod))
    }

    /// Creates a pod, and returns the points of the candidates once it is decided.
    async fn ask(
        &mut self,
        pod: &PodRequest,
        candidates: &[usize],
        nodes: &[LabNode],
        now: i64,
    ) -> Result<Vec<Option<f64>>> {
        self.separate(now).await;
        if std::mem::take(&mut self.is_changed) && self.operator.is_some() {
            self.settle().await?;
        }
        let name = format!("pod-{}-{}", pod.pod, self.questions);
        self.questions += 1;
        let site = nodes[*candidates.first().context("no candidates")?].server.site;
        let object = objects::pod(&name, &self.namespace, site, pod)?;
        let asked = Instant::now();
        self.pods().create(&PostParams::default(), &object).await?;
        let what = format!("a decision about {name}");
        let decided = self.eye.until(&what, |seen| objects::decision(seen.pods.get(&name)?)).await?;
        self.last = Some((now, Instant::now()));
        let chosen = match decided {
            Ok(node) => node,
            Err(message) => {
                self.report = message;
                self.delete(&name).await?;
                return Ok(vec![None; candidates.len()]);
            }
        };
        let log = self.scheduler.log_from(self.read)?;
        self.read += log.len() as u64;
        let scores = SchedulerScores::read(&log, &format!("{}/{name}", self.namespace));
        let pause = self.placed.replace(asked).map_or(0, |placed| asked.duration_since(placed).as_millis());
        self.report = format!("{}{pause} ms after the last pod with a node", scores.describe());
        let points = |node: &usize| {
            let node = node_name(&self.namespace, *node);
            let score = scores.total(&node).map(|score| score as f64);
            if node == chosen { Some(score.unwrap_or(0.0) + CHOSEN) } else { score }
        };
        let points: Vec<Option<f64>> = candidates.iter().map(points).collect();
        let is_candidate = candidates.iter().any(|node| node_name(&self.namespace, *node) == chosen);
        ensure!(is_candidate, "{name} is on {chosen}, which by the lab has no room: {candidates:?}");
        self.names.insert(pod.pod, name);
        Ok(points)
    }

    /// Deletes a pod at once.
    async fn delete(&self, name: &str) -> Result<()> {
        self.pods().delete(name, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }

    /// Waits until the questions of the last step are long enough ago.
    async fn separate(&self, now: i64) {
        if let Some((step, asked)) = self.last
            && self.operator.is_some()
            && step != now
        {
            tokio::time::sleep(BURST.saturating_sub(asked.elapsed())).await;
        }
    }

    /// Writes what measures the nodes.
    async fn publish(&self, nodes: &[LabNode], inlets: &[f64], now: i64) -> Result<()> {
        let configs: Api<NodeConfig> = Api::namespaced(self.client.clone(), &self.namespace);
        let all: Api<Node> = Api::all(self.client.clone());
        let at = self.time(now);
        let write = async |(index, (node, inlet)): (usize, (&LabNode, &f64))| {
            let name = node_name(&self.namespace, index);
            let status = Patch::Merge(json!({"status": node_status(node, *inlet, at)}));
            configs.patch_status(&name, &PatchParams::default(), &status).await?;
            if node.sampled.is_some_and(|(sampled, _)| sampled == now) {
                let patch = Patch::Merge(json!({"metadata": {"annotations": annotations(node, at)}}));
                all.patch(&name, &PatchParams::default(), &patch).await?;
            }
            anyhow::Ok(())
        };
        let writes = stream::iter(nodes.iter().zip(inlets).enumerate()).map(write);
        writes.buffer_unordered(WRITERS).try_collect::<Vec<()>>().await?;
        self.settle().await
    }

    /// Waits for the watches of nodes and pods: a list shows that the API server delivers the last writes, and then an
    /// answer of the operator, that it has had time to read them.
    async fn settle(&self) -> Result<()> {
        let configs: Api<NodeConfig> = Api::namespaced(self.client.clone(), &self.namespace);
        configs.list_metadata(&ListParams::default()).await?;
        Api::<Node>::all(self.client.clone()).list_metadata(&ListParams::default()).await?;
        self.pods().list_metadata(&ListParams::default()).await?;
        self.operator.as_ref().context("no operator")?.get("/metrics").await?;
        Ok(())
    }

    async fn patch_status(&mut self, pod: &PodRequest, status: serde_json::Value) -> Result<()> {
        self.is_changed = true;
        self.pods().patch_status(self.name(pod)?, &PatchParams::default(), &Patch::Strategic(status)).await?;
        Ok(())
    }
}

impl Placer for PlanePlacer {
    fn points(
        &mut self,
        pod: &PodRequest,
        candidates: &[usize],
        nodes: &[LabNode],
        now: i64,
    ) -> Result<Vec<Option<f64>>> {
        self.runtime.clone().block_on(self.ask(pod, candidates, nodes, now))
    }

    fn sampled(&mut self, nodes: &[LabNode], inlets: &[f64], now: i64) -> Result<()> {
        // Without a policy, nobody reads it.
        if self.operator.is_none() {
            return Ok(());
        }
        self.runtime.block_on(self.publish(nodes, inlets, now))
    }

    fn bound(&mut self, pod: &PodRequest, _: usize, now: i64) -> Result<()> {
        self.runtime.clone().block_on(self.patch_status(pod, objects::bound(self.time(now))))
    }

    fn started(&mut self, pod: &PodRequest, _: usize, bound: i64) -> Result<()> {
        self.runtime.clone().block_on(self.patch_status(pod, objects::started(self.time(bound))))
    }

    fn ended(&mut self, pod: &PodRequest) -> Result<()> {
        let name = self.names.remove(&pod.pod).with_context(|| format!("pod {} is not bound", pod.pod))?;
        self.is_changed = true;
        self.runtime.block_on(self.delete(&name))
    }

    fn report(&self) -> String {
        self.report.clone()
    }
}
