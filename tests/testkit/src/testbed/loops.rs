//! Closed loops in a testbed: their service accounts, pushed samples, and the status of the hops.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::{Decision, DecisionStatus};
use ganglion_api::execution::{Execution, ExecutionState};
use ganglion_api::monitoring::Monitoring;
use ganglion_loops_plan::decision::Executor;
use ganglion_loops_plan::decision::settlement;
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use kube::api::{Patch, PatchParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::TIMEOUT;
use crate::testbed::{Testbed, story};

/// Service account of the loops.
pub const ACCOUNT: &str = "web-loop";

/// Permissions of a loop that scales Deployments.
pub const SCALES: &[(&str, &str, &str)] = &[("apps", "deployments", "get"), ("apps", "deployments/scale", "patch")];

/// Runs a story of loops; a failure prints their state.
pub fn loop_story(name: &str, body: impl AsyncFnOnce(&Testbed) -> Result<()>) {
    story(name, async |testbed| match body(testbed).await {
        Ok(()) => Ok(()),
        Err(error) => Err(with_loops(testbed, error).await),
    });
}

/// Adds the state of all loops and their children to the error.
pub async fn with_loops(testbed: &Testbed, error: anyhow::Error) -> anyhow::Error {
    let all = testbed.kubectl(&["get", "loop,mon,dec,exe", "-o", "yaml"], None).await;
    anyhow!("{error:#}\n--- loops\n{}", all.unwrap_or_else(|error| error.to_string()))
}

/// Creates the account with these permissions: API group, resource, verb.
pub async fn account(testbed: &Testbed, rights: &[(&str, &str, &str)]) -> Result<()> {
    testbed.create::<ServiceAccount>(json!({"metadata": {"name": ACCOUNT}})).await?;
    grant(testbed, rights).await
}

/// Grants the account these permissions.
pub async fn grant(testbed: &Testbed, rights: &[(&str, &str, &str)]) -> Result<()> {
    grant_more(testbed, ACCOUNT, rights).await
}

/// Grants the account these additional permissions, by a role of this name.
pub async fn grant_more(testbed: &Testbed, role: &str, rights: &[(&str, &str, &str)]) -> Result<()> {
    grant_role(testbed, ACCOUNT, role, rights).await
}

/// Grants these permissions to another account.
pub async fn grant_to(testbed: &Testbed, account: &str, rights: &[(&str, &str, &str)]) -> Result<()> {
    grant_role(testbed, account, account, rights).await
}

async fn grant_role(testbed: &Testbed, account: &str, role: &str, rights: &[(&str, &str, &str)]) -> Result<()> {
    let rules: Vec<Value> = rights
        .iter()
        .map(|(group, resource, verb)| json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]}))
        .collect();
    testbed.create::<Role>(json!({"metadata": {"name": role}, "rules": rules})).await?;
    testbed
        .create::<RoleBinding>(json!({
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": testbed.ns}],
        }))
        .await?;
    Ok(())
}

/// The loop of the demo, on the Deployment `web`: cpu is low under 5, memory is low under 50, cpu ranks first.
pub fn demo() -> Value {
    let scale = json!([{"scale": {"by": 1, "max": 100}}]);
    json!({
        "serviceAccountName": ACCOUNT,
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [
            {"name": "cpu", "source": {"push": {}}, "low": {"raise": "5"}},
            {"name": "memory", "source": {"push": {}}, "low": {"raise": "50"}},
        ],
        "policy": {"rank": ["cpu", "memory"]},
        "actions": [
            {"when": {"metric": "cpu", "side": "Low"}, "ladder": scale},
            {"when": {"metric": "memory", "side": "Low"}, "ladder": scale},
        ],
    })
}

/// A loop on the Deployment `web` with one metric, `cpu`, which is low under 5 and high above 80, and with this ladder
/// for one side.
pub fn on(side: &str, ladder: Value) -> Value {
    json!({
        "serviceAccountName": ACCOUNT,
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [
            {"name": "cpu", "source": {"push": {}}, "low": {"raise": "5"}, "high": {"raise": "80"}},
        ],
        "actions": [{"when": {"metric": "cpu", "side": side}, "ladder": ladder}],
    })
}

/// Creates a loop, and waits until it accepts samples.
pub async fn make(testbed: &Testbed, name: &str, spec: Value) -> Result<()> {
    put(testbed, name, spec).await?;
    until::<Execution, _>(testbed, name, "the loop's Execution to exist", |execution| execution.status?.seq).await?;
    Ok(())
}

/// Creates a loop without waiting.
pub async fn put(testbed: &Testbed, name: &str, spec: Value) -> Result<ClosedLoop> {
    let body = json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop", "metadata": {"name": name}, "spec": spec,
    });
    testbed.create(body).await
}

/// Pushes a sample with the current time, as a sender would. Returns its time.
pub async fn push(testbed: &Testbed, name: &str, values: Value) -> Result<Timestamp> {
    let now = Timestamp::from_microsecond(Timestamp::now().as_microsecond())?;
    push_at(testbed, name, now, values).await?;
    Ok(now)
}

/// Pushes a sample with this time.
pub async fn push_at(testbed: &Testbed, name: &str, time: Timestamp, values: Value) -> Result<()> {
    let body = json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "Monitoring", "metadata": {"name": name},
        "spec": {"sample": {"time": time.to_string(), "values": values}},
    });
    let params = PatchParams::apply("sensor").force();
    testbed.api::<Monitoring>().patch(name, &params, &Patch::Apply(body)).await?;
    Ok(())
}

/// Waits until `test` returns a value for an object.
pub async fn until<K, T>(testbed: &Testbed, name: &str, what: &str, test: impl Fn(K) -> Option<T>) -> Result<T>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api = testbed.api::<K>();
    let look = async {
        loop {
            if let Ok(Some(found)) = api.get_opt(name).await.map(|found| found.and_then(&test)) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, look).await.with_context(|| format!("timed out waiting for {what}"))
}

/// Status of the Decision, combined with the outcome of the last decision.
pub async fn decision_status(testbed: &Testbed, name: &str) -> Result<DecisionStatus> {
    // Reads the Decision first: the Execution is then about this decision or a later one.
    let decision = testbed.api::<Decision>().get(name).await?.status.unwrap_or_default();
    let execution = testbed.api::<Execution>().get(name).await?;
    Ok(settlement::with_outcome(&decision, Executor::from_execution(&execution), Timestamp::now()))
}

/// Waits until `test` returns a value for the Decision's status, combined with the outcome of the last decision.
pub async fn until_decision_status<T>(
    testbed: &Testbed,
    name: &str,
    what: &str,
    test: impl Fn(DecisionStatus) -> Option<T>,
) -> Result<T> {
    let look = async {
        loop {
            if let Some(found) = decision_status(testbed, name).await.ok().and_then(&test) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, look).await.with_context(|| format!("timed out waiting for {what}"))
}

/// Waits until the sample with this time has passed the hops. Returns the messages of the first two, and the Execution
/// if the loop acted on the sample.
pub async fn travelled(testbed: &Testbed, name: &str, time: Timestamp) -> Result<(String, String, Option<Execution>)> {
    let decision = until_decision_status(testbed, name, "a decision about the sample", |status| {
        let open = status.chosen.as_ref().is_some_and(|chosen| chosen.outcome.is_none());
        (status.tag.as_ref().is_some_and(|tag| tag.time.0 == time) && !open).then_some(status)
    })
    .await?;
    let monitoring = testbed.api::<Monitoring>().get(name).await?.status.unwrap_or_default();
    let execution = testbed.api::<Execution>().get(name).await?;
    let acted = execution.status.as_ref().and_then(|status| status.tag.as_ref()).is_some_and(|tag| tag.time.0 == time);
    Ok((monitoring.message.unwrap_or_default(), decision.message.unwrap_or_default(), acted.then_some(execution)))
}

/// Waits until the loop's Ready has this status and reason. Returns its message.
pub async fn ready(testbed: &Testbed, name: &str, status: &str, reason: &str) -> Result<String> {
    says(testbed, name, "Ready", (status, reason)).await
}

/// Waits until every metric of the loop has a value.
pub async fn has_data(testbed: &Testbed, name: &str) -> Result<()> {
    says(testbed, name, "DataAvailable", ("True", "AllKnown")).await.map(drop)
}

/// Waits until this condition of the loop has this status and reason. Returns its message.
pub async fn says(testbed: &Testbed, name: &str, kind: &str, (status, reason): (&str, &str)) -> Result<String> {
    until::<ClosedLoop, _>(testbed, name, &format!("{kind} of loop {name} to be {status} {reason}"), |one| {
        let found = condition(&one.status?.conditions, kind)?;
        (found.status == status && found.reason == reason).then_some(found.message)
    })
    .await
}

/// Finds a condition by its type.
pub fn condition(all: &[Condition], kind: &str) -> Option<Condition> {
    all.iter().find(|condition| condition.type_ == kind).cloned()
}

/// Generation and replicas of a Deployment. Each change of the replicas adds one generation.
pub async fn replicas(testbed: &Testbed, name: &str) -> Result<(i64, i32)> {
    let object = testbed.api::<Deployment>().get(name).await?;
    let replicas = object.spec.and_then(|spec| spec.replicas).unwrap_or(0);
    Ok((object.metadata.generation.unwrap_or(0), replicas))
}

/// Outcome of an Execution: state, before, after.
pub fn ended(execution: &Execution) -> (Option<ExecutionState>, &str, &str) {
    let status = execution.status.as_ref();
    let before = status.and_then(|status| status.before.as_deref()).unwrap_or_default();
    (status.and_then(|status| status.state), before, status.and_then(|status| status.after.as_deref()).unwrap_or(""))
}
