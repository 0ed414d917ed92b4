//! The scene: a Deployment whose PodDisruptionBudget allows no disruption, and the nodes of the cluster.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt};
use testkit::eye::{Eye, Seen};
use testkit::verdict::{node_of, pods_of, serves};

use super::TIMEOUT;
use super::screen::Screen;

/// Name and app label of the workload.
pub const APP: &str = "web";

/// Initial number of replicas; the budget allows no fewer.
pub const REPLICAS: usize = 3;

/// The annotations make simulated pods start and stop slowly, so that each step is visible; real kubelets ignore them.
const WORKLOAD: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {part-of: shop}
spec:
  replicas: 3
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
      annotations:
        kwok.ganglion.dev/start-delay: 2s
        kwok.ganglion.dev/termination-delay: 2s
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: web
        image: registry.k8s.io/pause:3.10
        resources:
          requests: {cpu: 10m, memory: 16Mi}
"#;

const SERVICE: &str = "
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80}]
";

const BUDGET: &str = "
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec:
  minAvailable: 3
  selector:
    matchLabels: {app: web}
";

/// Setting of the acts.
pub struct Scene {
    /// Schedulable nodes.
    pub nodes: Vec<String>,
}

/// Creates the workload and waits until all its replicas are Ready.
pub async fn make(client: &Client, namespace: &str, eye: &Eye, screen: &Screen) -> Result<Scene> {
    let nodes = usable_nodes(client).await?;
    if nodes.len() < 2 {
        bail!("the demo needs two schedulable nodes, but this cluster has {}", nodes.len());
    }
    screen.doing("creating Deployment web and its PodDisruptionBudget");
    account(client, namespace).await?;
    let create = PostParams::default();
    let deployment: Deployment = serde_saphyr::from_str(WORKLOAD)?;
    let service: Service = serde_saphyr::from_str(SERVICE)?;
    let budget: PodDisruptionBudget = serde_saphyr::from_str(BUDGET)?;
    Api::namespaced(client.clone(), namespace).create(&create, &service).await?;
    Api::namespaced(client.clone(), namespace).create(&create, &budget).await?;
    Api::namespaced(client.clone(), namespace).create(&create, &deployment).await?;
    settled(eye, REPLICAS, TIMEOUT).await?;
    let detail = format!("Deployment {APP}, {REPLICAS} replicas, PodDisruptionBudget minAvailable: {REPLICAS}");
    screen.done("workload", &detail);
    Ok(Scene { nodes })
}

/// Waits for the default service account: the API server rejects pods before it exists, and the ReplicaSet controller
/// backs off before it retries.
pub async fn account(client: &Client, namespace: &str) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let there = await_condition(accounts, "default", |account: Option<&ServiceAccount>| account.is_some());
    tokio::time::timeout(TIMEOUT, there).await.context("no default service account in the namespace")??;
    Ok(())
}

/// Waits until the workload has exactly this number of pods, all Ready and none terminating.
pub async fn settled(eye: &Eye, replicas: usize, timeout: Duration) -> Result<()> {
    let rest = |seen: &Seen| {
        let pods: Vec<_> = pods_of(seen, APP).collect();
        (pods.len() == replicas && pods.iter().all(|pod| serves(pod))).then_some(())
    };
    eye.within(timeout, &format!("{replicas} Ready replicas of {APP} and no other pod of it"), rest).await
}

/// Names of the nodes that are Ready, not cordoned, and without a taint that repels pods.
async fn usable_nodes(client: &Client) -> Result<Vec<String>> {
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
    Ok(nodes.iter().filter(|node| takes_pods(node)).map(ResourceExt::name_any).collect())
}

fn takes_pods(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"));
    let open = node.spec.as_ref().is_none_or(|spec| {
        spec.unschedulable != Some(true) && spec.taints.iter().flatten().all(|taint| taint.effect == "PreferNoSchedule")
    });
    ready && open
}

/// Replicas as (pod, node), sorted by node.
pub fn replicas(seen: &Seen) -> Vec<(String, String)> {
    let mut pods: Vec<(String, String)> = pods_of(seen, APP).map(|pod| (node_of(pod), pod.name_any())).collect();
    pods.sort();
    pods.into_iter().map(|(node, pod)| (pod, node)).collect()
}

impl Scene {
    /// Returns a node that is not in `but`; prefers one without a replica.
    pub fn free_node(&self, seen: &Seen, but: &[&str]) -> Result<String> {
        let taken = replicas(seen);
        let allowed = || self.nodes.iter().filter(|node| !but.contains(&node.as_str()));
        let empty = allowed().find(|node| taken.iter().all(|(_, on)| on != *node));
        empty.or_else(|| allowed().next()).cloned().context("there is no other node")
    }
}
