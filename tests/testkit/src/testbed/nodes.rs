//! Simulated nodes of a single test, labelled and tainted so that no pods of other tests run there.

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::NODE_OWNER;

/// Number of nodes that are created or changed at once.
const AT_ONCE: usize = 8;

/// Capacity of a node.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub cpu: &'static str,
    pub memory: &'static str,
    pub pods: u32,
}

impl Default for Size {
    fn default() -> Self {
        Self { cpu: "8", memory: "16Gi", pods: 20 }
    }
}

/// The nodes of one test.
pub struct TestNodes {
    api: Api<Node>,
    namespace: String,
    pub names: Vec<String>,
}

impl TestNodes {
    /// Creates this number of nodes, and waits until they are schedulable.
    pub async fn make(client: &Client, namespace: &str, count: usize, size: Size) -> Result<Self> {
        let api: Api<Node> = Api::all(client.clone());
        let names: Vec<String> = (0..count).map(|index| format!("{namespace}-{index}")).collect();
        let nodes = Self { api, namespace: namespace.to_owned(), names };
        nodes.each(async |name| nodes.create(name, namespace, size).await).await?;
        Ok(nodes)
    }

    /// Adds a node. `behavior`, if set, applies to every pod on it; see the head of hack/plane/stages/pod-start.yaml.
    pub async fn join(&mut self, behavior: Option<&str>, size: Size) -> Result<String> {
        let name = format!("{}-{}", self.namespace, self.names.len());
        let name = behavior.map_or(name.clone(), |word| format!("{word}.{name}"));
        self.create(&name, &self.namespace, size).await?;
        self.names.push(name.clone());
        Ok(name)
    }

    /// Creates one node, for pods that tolerate this value only; see [`tolerating`].
    pub async fn one(client: &Client, namespace: &str, name: &str, value: &str) -> Result<()> {
        let nodes = Self { api: Api::all(client.clone()), namespace: namespace.to_owned(), names: Vec::new() };
        nodes.create(name, value, Size::default()).await
    }

    async fn each(&self, change: impl AsyncFn(&str) -> Result<()>) -> Result<()> {
        stream::iter(&self.names).map(|name| change(name)).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn create(&self, name: &str, taint: &str, size: Size) -> Result<()> {
        let resources = json!({"cpu": size.cpu, "memory": size.memory, "pods": size.pods.to_string()});
        let node: Node = serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "annotations": {"kwok.x-k8s.io/node": "fake"},
                "labels": {NODE_OWNER: self.namespace, "kubernetes.io/hostname": name},
            },
            "spec": {"taints": [{"key": NODE_OWNER, "value": taint, "effect": "NoSchedule"}]},
            "status": {"capacity": resources, "allocatable": resources},
        }))?;
        self.api.create(&PostParams::default(), &node).await?;
        self.until(name, "is Ready", is_open).await
    }

    /// Changes a node by a merge patch.
    pub async fn patch(&self, name: &str, patch: Value) -> Result<()> {
        self.api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Cordons a node.
    pub async fn cordon(&self, name: &str) -> Result<()> {
        self.patch(name, json!({"spec": {"unschedulable": true}})).await
    }

    /// Cordons all nodes except these, so that new pods run on these.
    pub async fn open_only(&self, open: &[&str]) -> Result<()> {
        self.each(async |name| self.patch(name, json!({"spec": {"unschedulable": !open.contains(&name)}})).await).await
    }

    /// Uncordons all nodes, and waits until the node controller has removed its taints.
    pub async fn open_all(&self) -> Result<()> {
        self.each(async |name| {
            self.patch(name, json!({"spec": {"unschedulable": null}})).await?;
            self.until(name, "is open", |node| taints(node) == 1).await
        })
        .await
    }

    /// Labels a node.
    pub async fn label(&self, name: &str, key: &str, value: &str) -> Result<()> {
        self.patch(name, json!({"metadata": {"labels": {key: value}}})).await
    }

    /// Makes the kubelet report that it is not ready.
    pub async fn break_down(&self, name: &str) -> Result<()> {
        self.patch(name, json!({"metadata": {"annotations": {"kwok.ganglion.dev/behavior": "not-ready"}}})).await?;
        self.until(name, "is not Ready", |node| !is_ready(node)).await
    }

    async fn until(&self, name: &str, what: &str, test: impl Fn(&Node) -> bool) -> Result<()> {
        let holds = |node: Option<&Node>| node.is_some_and(&test);
        let wait = kube::runtime::wait::await_condition(self.api.clone(), name, holds);
        match tokio::time::timeout(crate::TIMEOUT, wait).await {
            Ok(done) => done.map(drop).map_err(Into::into),
            Err(_) => anyhow::bail!("timed out waiting until node {name} {what}"),
        }
    }

    /// Node selector terms for these nodes.
    pub fn terms(&self) -> Value {
        json!({
            "nodeSelector": {NODE_OWNER: self.namespace},
            "tolerations": [{"key": NODE_OWNER, "operator": "Exists"}],
        })
    }
}

/// Members of a pod spec that allow the node created for this value, and any shared node.
pub fn tolerating(value: &str) -> Value {
    json!({"tolerations": [{"key": NODE_OWNER, "operator": "Equal", "value": value}]})
}

/// Whether the node is Ready, and has only the taint of its test.
pub fn is_open(node: &Node) -> bool {
    is_ready(node) && taints(node) == 1
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
}

/// Number of taints: one is ours; the others disappear when the node controller removes them.
fn taints(node: &Node) -> usize {
    node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).map_or(0, Vec::len)
}
