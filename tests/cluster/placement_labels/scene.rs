//! The plane, its nodes and the policies of the stories about labels of nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use ganglion_api::marks::{DEFAULT_POLICY, LABEL_DOMAIN};
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_api::placement_policy::status::PlacementPolicyStatus;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testkit::testbed::Testbed;
use testkit::testbed::loops::{condition, until};
use testkit::{TIMEOUT, root};

/// The policy that pods use by default, and its label.
pub const POLICY: &str = "ranked";
pub const KEY: &str = "ganglion.node-restriction.kubernetes.io/ranked";

/// Label of a node in these stories: its score.
pub const RANK: &str = "rank";

pub struct Scene<'a> {
    pub testbed: &'a Testbed,
    pub nodes: Vec<String>,
}

impl<'a> Scene<'a> {
    pub async fn open(testbed: &'a Testbed) -> Result<Self> {
        let nodes = Api::<Node>::all(testbed.client.clone()).list(&ListParams::default()).await?;
        Ok(Self { testbed, nodes: nodes.iter().map(Node::name_any).collect() })
    }

    pub fn policies(&self) -> Api<PlacementPolicy> {
        Api::all(self.testbed.client.clone())
    }

    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.testbed.client.clone())
    }

    pub fn pods(&self) -> Api<Pod> {
        self.testbed.api()
    }

    pub async fn component(&self, file: &str) -> Result<()> {
        let path = root().join("kustomize/components").join(file).display().to_string();
        self.testbed.plane.cluster.kubectl(&["apply", "--server-side", "-f", &path], None).await.map(drop)
    }

    /// Applies the policy: the score of a node is its label.
    pub async fn policy(&self, name: &str, changes: &Value) -> Result<()> {
        let mut policy = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "PlacementPolicy",
            "metadata": {"name": name, "labels": {DEFAULT_POLICY: (name == POLICY).to_string()}},
            "spec": {
                "delivery": ["Labels"],
                "agents": [{"name": "rank", "expression": {
                    "score": format!("double(node.labels[\"{RANK}\"])"),
                }}],
            },
        });
        for (member, value) in changes.as_object().into_iter().flatten() {
            policy["spec"][member] = value.clone();
        }
        self.policies().patch(name, &PatchParams::apply("test").force(), &Patch::Apply(policy)).await?;
        Ok(())
    }

    /// Status of the policy, once this condition has this status and reason.
    pub async fn says(&self, policy: &str, kind: &str, expected: (&str, &str)) -> Result<PlacementPolicyStatus> {
        let mut last = None;
        let told = async {
            loop {
                let found = self.policies().get(policy).await?;
                let status = found.status.unwrap_or_default();
                last = condition(&status.conditions, kind);
                if last.as_ref().is_some_and(|one| (one.status.as_str(), one.reason.as_str()) == expected)
                    && status.observed_generation == found.metadata.generation
                {
                    return anyhow::Ok(status);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let ended = tokio::time::timeout(TIMEOUT, told).await;
        ended.unwrap_or_else(|_| bail!("{kind} of {policy} is not {expected:?}, but {last:?}"))
    }

    /// Sets the score of a node.
    pub async fn rank(&self, node: &str, rank: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"labels": {RANK: rank}}}));
        self.nodes().patch(node, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until the labels of the nodes are these.
    pub async fn labeled(&self, expected: &BTreeMap<String, Option<&str>>) -> Result<()> {
        self.labeled_by(KEY, expected).await
    }

    /// The same for the label with this key.
    pub async fn labeled_by(&self, key: &str, expected: &BTreeMap<String, Option<&str>>) -> Result<()> {
        let mut last = BTreeMap::new();
        let look = async {
            loop {
                let nodes = self.nodes().list(&ListParams::default()).await?;
                last = nodes.iter().map(|node| (node.name_any(), node.labels().get(key).cloned())).collect();
                if expected.iter().all(|(node, label)| last.get(node).is_some_and(|one| one.as_deref() == *label)) {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let ended = tokio::time::timeout(TIMEOUT, look).await;
        ended.unwrap_or_else(|_| bail!("the labels {key} are not {expected:?}, but {last:?}"))
    }

    /// These labels, in the order of the nodes.
    pub fn each(&self, labels: [&'static str; 4]) -> BTreeMap<String, Option<&'static str>> {
        self.nodes.iter().cloned().zip(labels.map(Some)).collect()
    }

    /// The same label, or none, on each node.
    pub fn all<'l>(&self, label: Option<&'l str>) -> BTreeMap<String, Option<&'l str>> {
        self.nodes.iter().map(|node| (node.clone(), label)).collect()
    }

    /// Sets the scores of all nodes.
    pub async fn ranks(&self, ranks: [&str; 4]) -> Result<()> {
        for (node, rank) in self.nodes.iter().zip(ranks) {
            self.rank(node, rank).await?;
        }
        Ok(())
    }

    /// Lets new pods of this namespace have terms, or no longer.
    pub async fn opt(&self, namespace: &str, label: Option<&str>) -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"ganglion.dev/placement": label}}}));
        let namespaces: Api<Namespace> = Api::all(self.testbed.client.clone());
        namespaces.patch(namespace, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until this holds for such a pod, as the API server would create it.
    pub async fn until(&self, what: &str, changes: &Value, holds: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut last = Value::Null;
        let look = async {
            loop {
                last = self.created(changes).await?;
                if holds(&last) {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        match tokio::time::timeout(TIMEOUT, look).await {
            Ok(done) => done.map(|()| last),
            Err(_) => bail!("never {what}: {last}"),
        }
    }

    /// Deletes all pods.
    pub async fn clear(&self) -> Result<()> {
        self.testbed.kubectl(&["delete", "pods", "--all", "--grace-period=0", "--force"], None).await.map(drop)
    }

    /// Creates pods of this scheduler one after the other. Fails unless each is placed on this node.
    pub async fn places(&self, scheduler: &str, expected: &str) -> Result<()> {
        for at in 0..3 {
            let name = format!("placed-{at}");
            let pod = json!({
                "metadata": {"name": name},
                "spec": {
                    "schedulerName": scheduler, "containers": [{"name": "main", "image": "registry.example/app:1"}],
                },
            });
            self.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
            let node = until::<Pod, _>(self.testbed, &name, "a node", |pod| pod.spec?.node_name).await?;
            ensure!(node == expected, "{name} is on {node}, and {expected} is the best node");
        }
        self.clear().await
    }

    /// The pod as the API server would create it.
    pub async fn created(&self, changes: &Value) -> Result<Value> {
        let mut pod = json!({
            "metadata": {"generateName": "probe-"},
            "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]},
        });
        merge(&mut pod, changes);
        let params = PostParams { dry_run: true, ..PostParams::default() };
        Ok(serde_json::to_value(self.pods().create(&params, &serde_json::from_value(pod)?).await?)?)
    }

    /// Waits until the API server adds terms to such pods, or no longer does. It looks for new CRDs every 30 s.
    pub async fn until_terms(&self, changes: &Value, expected: usize) -> Result<Value> {
        self.until(&format!("{expected} terms"), changes, |pod| preferred(pod).len() == expected).await
    }
}

/// Merges objects; other values replace.
pub fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (member, value) in from {
                merge(into.entry(member.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Preferred terms of a pod that read the label of the policy.
pub fn preferred(pod: &Value) -> Vec<Value> {
    terms(pod).into_iter().filter(|term| keys(term).any(|key| key == KEY)).collect()
}

/// Keys of the labels of policies that the preferred terms of a pod read; one for each term.
pub fn keys_read(pod: &Value) -> Vec<String> {
    let all: Vec<_> = terms(pod).iter().flat_map(|term| keys(term).map(str::to_owned).collect::<Vec<_>>()).collect();
    all.into_iter().filter(|key| key.starts_with(LABEL_DOMAIN)).collect()
}

/// Preferred terms of a pod.
pub fn terms(pod: &Value) -> Vec<Value> {
    let terms = &pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    terms.as_array().cloned().unwrap_or_default()
}

fn keys(term: &Value) -> impl Iterator<Item = &str> {
    let expressions = term["preference"]["matchExpressions"].as_array();
    expressions.into_iter().flatten().filter_map(|one| one["key"].as_str())
}
