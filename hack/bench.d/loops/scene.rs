//! Loops to measure: their account, the Deployments that they scale, and the sender that pushes their samples.

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::execution::Execution;
use ganglion_api::monitoring::Monitoring;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use testkit::plane::install;
use testkit::testbed::loops::{self, ACCOUNT};

use crate::frame::Progress;
use crate::{TIMEOUT, fleet};

/// Number of concurrent requests while loops are created.
const WRITERS: usize = 8;

/// Creates a namespace with an account that may scale its Deployments.
pub async fn namespace(client: &Client, name: &str) -> Result<()> {
    fleet::namespace(client, name).await?;
    let rules = json!([
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
        {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["patch"]},
    ]);
    account(client, name, ACCOUNT, &rules).await?;
    install::bind_loops(client, name).await
}

/// Creates an account with these rules in its namespace.
pub async fn account(client: &Client, namespace: &str, name: &str, rules: &Value) -> Result<()> {
    let create = PostParams::default();
    let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    let role: Role = serde_json::from_value(json!({"metadata": {"name": name}, "rules": rules}))?;
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }))?;
    Api::namespaced(client.clone(), namespace).create(&create, &account).await?;
    Api::namespaced(client.clone(), namespace).create(&create, &role).await?;
    Api::namespaced(client.clone(), namespace).create(&create, &binding).await?;
    Ok(())
}

/// Name of the loop with this index, and of its Deployment.
pub fn name(index: usize) -> String {
    format!("loop-{index}")
}

/// This number of demo loops.
pub fn demos(count: usize, mode: &str) -> Vec<(String, Value)> {
    (0..count).map(|index| (name(index), demo(&name(index), mode))).collect()
}

/// The loop of the demo. It targets the Deployment of the same name, with a maximum that is never reached.
pub fn demo(name: &str, mode: &str) -> Value {
    let mut spec = loops::demo();
    spec["mode"] = json!(mode);
    spec["trace"] = json!("EverySample");
    spec["target"]["name"] = json!(name);
    for action in spec["actions"].as_array_mut().into_iter().flatten() {
        action["ladder"][0]["scale"]["max"] = json!(100_000);
    }
    spec
}

/// Creates the loops, each with a Deployment of its name without replicas, and waits until the loops accept samples.
pub async fn make(client: &Client, namespace: &str, loops: Vec<(String, Value)>) -> Result<()> {
    let count = loops.len();
    let names: BTreeSet<String> = loops.iter().map(|(name, _)| name.clone()).collect();
    let progress = Progress::count(&format!("making {count} loops"), count);
    stream::iter(loops)
        .map(|(name, spec)| async move { make_one(client, namespace, &name, &spec).await })
        .buffer_unordered(WRITERS)
        .try_collect::<Vec<()>>()
        .await?;
    let executions: Api<Execution> = Api::namespaced(client.clone(), namespace);
    let began = Instant::now();
    loop {
        let all = executions.list(&ListParams::default()).await?;
        let seen = |one: &&Execution| one.status.as_ref().is_some_and(|status| status.seq.is_some());
        let ready = all.iter().filter(seen).filter(|one| names.contains(&one.name_any())).count();
        progress.at(ready);
        if ready >= count {
            progress.end();
            return Ok(());
        }
        if began.elapsed() > TIMEOUT {
            bail!("only {ready} of {count} loops are ready after {} s", TIMEOUT.as_secs());
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

async fn make_one(client: &Client, namespace: &str, name: &str, spec: &Value) -> Result<()> {
    let labels = json!({"app": name});
    let target: Deployment = serde_json::from_value(json!({"metadata": {"name": name}, "spec": {
        "replicas": 0, "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10"}]},
        },
    }}))?;
    let one: ClosedLoop = serde_json::from_value(json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop", "metadata": {"name": name}, "spec": spec,
    }))?;
    Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &target).await?;
    Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &one).await?;
    Ok(())
}

/// A pushed sample.
pub struct Pushed {
    pub name: String,
    /// Time of the sample in microseconds, as in its tag.
    pub time: i64,
    /// Moment just before the patch.
    pub began: Instant,
    /// Moment at which the patch was answered.
    pub answered: Instant,
}

/// Pushes a sample with the current time, as a sender does.
pub async fn push(monitorings: &Api<Monitoring>, name: &str, values: &Value) -> Result<Pushed> {
    let began = Instant::now();
    let time = Timestamp::now().as_microsecond();
    let body = json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "Monitoring", "metadata": {"name": name},
        "spec": {"sample": {"time": Timestamp::from_microsecond(time)?.to_string(), "values": values}},
    });
    monitorings.patch(name, &PatchParams::apply("bench").force(), &Patch::Apply(body)).await?;
    Ok(Pushed { name: name.to_owned(), time, began, answered: Instant::now() })
}
