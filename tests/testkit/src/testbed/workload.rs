//! Workloads of the tests: a Deployment or a standalone ReplicaSet, with Service and budget, on selected nodes.

use anyhow::Result;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Map, Value, json};

use crate::testbed::Testbed;
use crate::verdict::{APP, pods_of, serves};

/// Annotation that selects the behavior of a simulated pod.
pub const BEHAVIOR: &str = "kwok.ganglion.dev/behavior";

/// Description of a workload; [`Workload::make`] creates it and waits until it is complete.
#[derive(Clone, Debug)]
pub struct Workload {
    name: String,
    kind: &'static str,
    replicas: usize,
    budget: Option<Value>,
    annotations: Map<String, Value>,
    labels: Map<String, Value>,
    /// Merged into the pod spec.
    spec: Map<String, Value>,
    resources: Value,
    behave_from_start: bool,
}

impl Workload {
    /// A Deployment with a Service.
    pub fn deployment(name: &str, replicas: usize) -> Self {
        Self {
            name: name.to_owned(),
            kind: "Deployment",
            replicas,
            budget: None,
            annotations: Map::new(),
            labels: Map::new(),
            spec: Map::new(),
            resources: json!({}),
            behave_from_start: true,
        }
    }

    /// A ReplicaSet without a Deployment. Its selector has a second key that no Service selects by; the operator needs
    /// it to release pods.
    pub fn replica_set(name: &str, replicas: usize) -> Self {
        Self { kind: "ReplicaSet", ..Self::deployment(name, replicas) }
    }

    /// Adds a label to the workload and its pods that is not in its selector.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), json!(value));
        self
    }

    /// Adds a budget: `{"minAvailable": 3}`.
    pub fn budget(self, budget: Value) -> Self {
        Self { budget: Some(budget), ..self }
    }

    /// Adds a budget that allows no disruption.
    pub fn guarded(self) -> Self {
        let all = self.replicas;
        self.budget(json!({"minAvailable": all}))
    }

    /// Sets the behavior of all pods that are created after [`Self::make`] has returned.
    pub fn replacements(mut self, behavior: &str) -> Self {
        self.behave_from_start = false;
        self.annotate(BEHAVIOR, behavior)
    }

    /// Adds an annotation to the pod template.
    pub fn annotate(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), json!(value));
        self
    }

    /// Sets requests of the only container, such as `{"cpu": "1"}`.
    pub fn requests(self, requests: Value) -> Self {
        Self { resources: json!({"requests": requests}), ..self }
    }

    /// Adds members to the pod spec.
    pub fn spec(mut self, members: Value) -> Self {
        if let Value::Object(members) = members {
            self.spec.extend(members);
        }
        self
    }

    fn selector(&self) -> Value {
        let mut labels = json!({APP: self.name});
        if self.kind == "ReplicaSet" {
            labels["set"] = json!(self.name);
        }
        labels
    }

    fn template(&self) -> Value {
        let mut labels = self.selector();
        for (key, value) in &self.labels {
            labels[key] = value.clone();
        }
        let mut spec = json!({
            "containers": [{"name": "main", "image": "registry.example/app:1", "resources": self.resources}],
            "terminationGracePeriodSeconds": 1,
        });
        for (key, value) in &self.spec {
            spec[key] = value.clone();
        }
        json!({"metadata": {"labels": labels, "annotations": self.annotations}, "spec": spec})
    }

    /// Manifest of the workload itself.
    pub fn manifest(&self) -> Value {
        let template = self.template();
        json!({
            "apiVersion": "apps/v1", "kind": self.kind, "metadata": {"name": self.name, "labels": self.labels},
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": self.selector()},
                "template": template,
            },
        })
    }

    /// Creates all objects, and waits until every replica is Ready.
    pub async fn make(&self, testbed: &Testbed) -> Result<()> {
        self.create(testbed).await?;
        if !self.behave_from_start {
            self.heal(testbed).await?;
        }
        self.settle(testbed).await
    }

    /// Creates all objects without waiting.
    pub async fn create(&self, testbed: &Testbed) -> Result<()> {
        self.surround(testbed).await?;
        let create = PostParams::default();
        if self.kind == "Deployment" {
            let object: Deployment = serde_json::from_value(self.manifest())?;
            Api::namespaced(testbed.client.clone(), &testbed.ns).create(&create, &object).await?;
        } else {
            let object: ReplicaSet = serde_json::from_value(self.manifest())?;
            Api::namespaced(testbed.client.clone(), &testbed.ns).create(&create, &object).await?;
        }
        Ok(())
    }

    /// Creates the Service and the budget, but not the workload.
    pub async fn surround(&self, testbed: &Testbed) -> Result<()> {
        let create = PostParams::default();
        let selector = json!({APP: self.name});
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": self.name}, "spec": {"selector": selector, "ports": [{"port": 80}]},
        }))?;
        Api::namespaced(testbed.client.clone(), &testbed.ns).create(&create, &service).await?;
        if let Some(budget) = &self.budget {
            let mut spec = budget.clone();
            spec["selector"] = json!({"matchLabels": selector});
            let budget: PodDisruptionBudget =
                serde_json::from_value(json!({"metadata": {"name": self.name}, "spec": spec}))?;
            Api::namespaced(testbed.client.clone(), &testbed.ns).create(&create, &budget).await?;
        }
        Ok(())
    }

    /// Removes the template's behavior from the first pods; pods created from now on have it.
    async fn heal(&self, testbed: &Testbed) -> Result<()> {
        let names = testbed
            .eye
            .until(&format!("{} pods of {}", self.replicas, self.name), |seen| {
                let names: Vec<String> =
                    pods_of(seen, &self.name).filter_map(|pod| pod.metadata.name.clone()).collect();
                (names.len() == self.replicas).then_some(names)
            })
            .await?;
        for name in names {
            testbed.patch_pod(&name, json!({"metadata": {"annotations": {BEHAVIOR: null}}})).await?;
        }
        Ok(())
    }

    /// Waits until all replicas are Ready, and the status of the workload says so.
    pub async fn settle(&self, testbed: &Testbed) -> Result<()> {
        settled(testbed, &self.name, self.replicas).await
    }
}

/// Waits until the workload has exactly this number of pods, all Ready, and its status says so.
pub async fn settled(testbed: &Testbed, app: &str, replicas: usize) -> Result<()> {
    let whole = i32::try_from(replicas)?;
    testbed
        .eye
        .until(&format!("{replicas} Ready replicas of {app}, and no other pod of it"), |seen| {
            let pods: Vec<_> = pods_of(seen, app).collect();
            let owner = seen.deployments.get(app).map(|object| {
                let status = object.status.as_ref();
                let current = status.and_then(|status| status.observed_generation) == object.metadata.generation;
                current
                    && status.is_some_and(|status| {
                        status.ready_replicas.unwrap_or(0) == whole && status.replicas.unwrap_or(0) == whole
                    })
            });
            let set = seen
                .sets
                .get(app)
                .map(|object| object.status.as_ref().is_some_and(|status| status.ready_replicas.unwrap_or(0) == whole));
            (pods.len() == replicas && pods.iter().all(|pod| serves(pod)) && owner.or(set) == Some(true)).then_some(())
        })
        .await
}
