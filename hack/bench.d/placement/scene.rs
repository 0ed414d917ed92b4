//! A control plane with the operator, nodes with usage, and one policy, which the operator delivers to an extender or
//! as labels.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use ganglion_api::marks::DEFAULT_POLICY;
use ganglion_api::placement_policy::PlacementPolicy;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use testkit::operator::Operator;
use testkit::plane::cluster::Cluster;
use testkit::plane::install::Installed;
use testkit::process::free_port;
use testkit::testbed::loops::condition;

use super::objects::{POLICY, policy};
use crate::TIMEOUT;
use crate::fleet::namespace;
use crate::frame::{Bench, default_garbage, operator};

/// Namespace of the pods.
pub const PLACE: &str = "bench";

/// Number of writes at a time.
pub const WRITERS: usize = 32;

pub struct Scene {
    pub cluster: Cluster,
    pub operator: Operator,
    /// Address of the operator's extender.
    pub extender: SocketAddr,
    /// Directory for files.
    pub home: PathBuf,
}

impl Scene {
    pub async fn start(bench: &Bench, part: &str, nodes: usize) -> Result<Self> {
        let cluster = bench.plane(part, nodes, &default_garbage()).await?;
        let mut installed = Installed::default();
        installed.install(&cluster).await?;
        let components = testkit::root().join("kustomize/components/placement-labels");
        for file in ["rights.yaml", "policy.yaml"] {
            let path = components.join(file).display().to_string();
            cluster.kubectl(&["apply", "--server-side", "-f", &path], None).await?;
        }
        namespace(&cluster.client, PLACE).await?;
        let home = bench.home(part)?;
        let settings = home.join("settings.yaml");
        std::fs::write(&settings, "placement: {tls: false}")?;
        let settings = settings.display().to_string();
        let extender = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let options = ["--settings", &settings, "--extender-bind", &extender.to_string()];
        let operator = operator(bench, part, &cluster, &options).await?;
        let scene = Self { cluster, operator, extender, home };
        scene.load_nodes().await?;
        let mut object = policy()?;
        object.metadata.resource_version = None;
        object.metadata.uid = None;
        object.metadata.labels = Some([(DEFAULT_POLICY.to_owned(), "true".to_owned())].into());
        scene.policies().create(&PostParams::default(), &object).await?;
        Ok(scene)
    }

    pub async fn down(self) -> Result<()> {
        self.operator.stop().await?;
        self.cluster.down().await
    }

    pub fn policies(&self) -> Api<PlacementPolicy> {
        Api::all(self.cluster.client.clone())
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.cluster.client.clone(), PLACE)
    }

    /// Annotates each node with its usage.
    async fn load_nodes(&self) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.cluster.client.clone());
        let names: Vec<String> =
            nodes.list_metadata(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
        stream::iter(names.iter().enumerate())
            .map(|(at, name)| {
                let annotations = json!({
                    "mean-used-cpu": (32_000 * (at * 37 % 100) / 130).to_string(),
                    "std-used-cpu": (300 + at % 2000).to_string(),
                    "mean-used-memory": (2_000_000_000_usize * (at * 53 % 100)).to_string(),
                    "std-used-memory": "9000000000",
                    "congestion-factor": (at * 31 % 100).to_string(),
                });
                let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
                let nodes = nodes.clone();
                async move { nodes.patch(name, &PatchParams::default(), &patch).await.map(drop) }
            })
            .buffer_unordered(WRITERS)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(())
    }

    /// Delivers the policy as labels, or to an extender. Returns the time until all nodes had labels, or none.
    pub async fn deliver(&self, as_labels: bool) -> Result<f64> {
        let policies = self.policies();
        let delivery = if as_labels { "Labels" } else { "Extender" };
        let patch = Patch::Merge(json!({"spec": {"delivery": [delivery]}}));
        policies.patch(POLICY, &PatchParams::default(), &patch).await?;
        let begun = Instant::now();
        loop {
            let status = policies.get(POLICY).await?.status.unwrap_or_default();
            let current = condition(&status.conditions, "LabelsCurrent").is_some_and(|one| one.status == "True");
            if current == as_labels {
                return Ok(begun.elapsed().as_secs_f64());
            }
            ensure!(begun.elapsed() < TIMEOUT, "the labels are not there in time: {:?}", status.conditions);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Lets the API server add terms to the pods of the namespace, and waits until it does. Returns the time that this
    /// took.
    pub async fn opt_in(&self) -> Result<f64> {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"ganglion.dev/placement": "labels"}}}));
        Api::<Namespace>::all(self.cluster.client.clone()).patch(PLACE, &PatchParams::default(), &patch).await?;
        self.until_terms().await
    }

    /// Waits until new pods get terms. Returns the time that this took.
    pub async fn until_terms(&self) -> Result<f64> {
        let (begun, dry_run) = (Instant::now(), PostParams { dry_run: true, ..PostParams::default() });
        let probe: Pod = serde_json::from_value(json!({
            "metadata": {"name": "probe"}, "spec": {"containers": [{"name": "c", "image": "none"}]},
        }))?;
        while !has_terms(&self.pods().create(&dry_run, &probe).await?) {
            ensure!(begun.elapsed() < TIMEOUT, "new pods get no terms in time");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(begun.elapsed().as_secs_f64())
    }
}

/// Whether the API server has added terms to this pod.
pub fn has_terms(pod: &Pod) -> bool {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    affinity.is_some_and(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.is_some())
}
