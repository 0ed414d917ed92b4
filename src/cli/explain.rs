//! `ganglion explain`: describes the state of an object and its children in words, and what its user can do.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use kube::Api;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::cluster::{self, Cluster};
use crate::api::closed_loop::ClosedLoop;
use crate::api::decision::Decision;
use crate::api::execution::Execution;
use crate::api::monitoring::Monitoring;
use crate::api::reasons::Reason;
use crate::api::workload_action::WorkloadAction;
use crate::app;
use crate::logic::closed_loop::explain::{ExplainedLoop, explain as text};

/// Options of `explain`.
#[derive(Args, Debug, Clone)]
pub struct ExplainArgs {
    #[command(subcommand)]
    what: What,
}

/// What can be explained.
#[derive(Subcommand, Debug, Clone)]
enum What {
    /// Explains a loop: its recent decisions and their reasons, its state, and what to do.
    Loop(Named),
    /// Explains a WorkloadAction: its state, and what to do.
    Action(Named),
}

/// The object to explain.
#[derive(Args, Debug, Clone)]
struct Named {
    /// Name of the object.
    #[arg(value_name = "NAME")]
    name: String,
    /// Namespace of the object. Default: the namespace of the context.
    #[arg(short, long, value_name = "NS")]
    namespace: Option<String>,
    #[command(flatten)]
    cluster: Cluster,
}

/// Why nothing was explained.
#[derive(Debug, Error)]
pub enum Error {
    #[error("there is no ClosedLoop {name} in namespace {namespace}; `kubectl get loop -A` lists all loops")]
    NoLoop { name: String, namespace: String },
    #[error("there is no WorkloadAction {name} in namespace {namespace}; `kubectl get wa -A` lists all actions")]
    NoAction { name: String, namespace: String },
    #[error("access is denied; you need the verb get on the object that the API server names ({0})")]
    NotAllowed(String),
    #[error("the API server did not answer")]
    Api(#[source] Box<kube::Error>),
    #[error(transparent)]
    App(#[from] app::Error),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.is_forbidden() => Self::NotAllowed(status.message.clone()),
            error => Self::Api(Box::new(error)),
        }
    }
}

/// Writes the explanation to standard output.
///
/// # Errors
/// The object does not exist or cannot be read.
pub async fn explain(explain: ExplainArgs) -> Result<(), Error> {
    match explain.what {
        What::Loop(named) => explain_loop(named).await,
        What::Action(named) => explain_action(named).await,
    }
}

async fn explain_action(Named { name, namespace, cluster }: Named) -> Result<(), Error> {
    let (client, namespace) = cluster::open(cluster, namespace).await?;
    let found: Option<WorkloadAction> = Api::namespaced(client, &namespace).get_opt(&name).await?;
    let Some(action) = found else { return Err(Error::NoAction { name, namespace }) };
    print!("{}", action_text(&action));
    Ok(())
}

/// The state of an action, each replica that waits or failed, and the advice for its reason.
fn action_text(action: &WorkloadAction) -> String {
    let status = action.status.clone().unwrap_or_default();
    let Some(ready) = status.conditions.iter().find(|condition| condition.type_ == "Ready") else {
        return "The operator has not reconciled this action yet.\n".to_owned();
    };
    let mut text = format!("{}: {}\n", ready.reason, ready.message);
    for slot in &status.slots {
        let why = slot.reason.map(|reason| format!(", {reason}")).unwrap_or_default();
        let message = slot.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        text.push_str(&format!("  replica {}: {:?}{why}{message}\n", slot.index, slot.step));
    }
    // While it works, the reason of Reconciling says what it waits for.
    let mut working = status.conditions.iter().filter(|condition| condition.type_ == "Reconciling");
    let cause = working.find(|_| ready.status == "Unknown").unwrap_or(ready);
    let reason: Option<Reason> = serde_json::from_value(cause.reason.clone().into()).ok();
    text.push_str(&format!("-> {}\n", reason.unwrap_or(Reason::Unknown).advice()));
    text
}

async fn explain_loop(Named { name, namespace, cluster }: Named) -> Result<(), Error> {
    let (client, namespace) = cluster::open(cluster, namespace).await?;
    let parent: Option<ClosedLoop> = Api::namespaced(client.clone(), &namespace).get_opt(&name).await?;
    let Some(parent) = parent else { return Err(Error::NoLoop { name, namespace }) };
    let monitoring = child::<Monitoring>(Api::namespaced(client.clone(), &namespace), &parent).await?;
    let decision = child::<Decision>(Api::namespaced(client.clone(), &namespace), &parent).await?;
    let execution = child::<Execution>(Api::namespaced(client, &namespace), &parent).await?;
    let subject = ExplainedLoop {
        parent: &parent,
        monitoring: monitoring.as_ref(),
        decision: decision.as_ref(),
        execution: execution.as_ref(),
        now: Timestamp::now(),
    };
    print!("{}", text(&subject));
    Ok(())
}

/// A child of the loop; none if it does not exist or the loop does not own it.
async fn child<K>(api: Api<K>, parent: &ClosedLoop) -> Result<Option<K>, Error>
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let found = api.get_opt(parent.metadata.name.as_deref().unwrap_or_default()).await?;
    let owned = |child: &K| {
        let owners = child.meta().owner_references.iter().flatten();
        owners.into_iter().any(|owner| Some(&owner.uid) == parent.metadata.uid.as_ref())
    };
    Ok(found.filter(owned))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_action_is_explained_with_what_to_do() {
        let condition = |kind: &str, status: &str, reason: &str, message: &str| json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-11-21T10:00:00Z"});
        let mut action: WorkloadAction = serde_json::from_value(json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction", "metadata": {"name": "more"},
            "spec": {"delete": {"pod": {"name": "p"}}},
        }))
        .unwrap();
        assert!(action_text(&action).contains("not reconciled"));
        let mut explained = |conditions: serde_json::Value| {
            action.status = Some(serde_json::from_value(json!({"conditions": conditions})).unwrap());
            action_text(&action)
        };
        let owned = condition("Ready", "False", "ReplicasOwnedElsewhere", "flux owns spec.replicas");
        let stalled = condition("Stalled", "True", "ReplicasOwnedElsewhere", "flux owns spec.replicas");
        let text = explained(json!([owned, stalled]));
        assert!(text.starts_with("ReplicasOwnedElsewhere: flux owns spec.replicas\n"), "{text}");
        assert!(text.ends_with("apply a new action with onReplicaOwner: Force.\n"), "{text}");
        let (ready, waits) =
            (condition("Ready", "Unknown", "Queued", "x"), condition("Reconciling", "True", "LimitReached", "x"));
        assert!(
            explained(json!([ready, waits])).ends_with("-> Wait, or raise the limit in the operator's settings.\n")
        );
        assert!(explained(json!([condition("Ready", "False", "NewWord", "x")])).contains("of the operator's version"));
    }
}
