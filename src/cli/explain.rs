//! `ganglion explain`: describes the state of an object and its children in words, and what its user can do.

use clap::{Args, Subcommand};
use jiff::Timestamp;

use super::objects::{self, Error, LoopFamily, Named, NamedNode, NamedPool};
use crate::api::reasons::Reason;
use crate::api::workload_action::WorkloadAction;
use crate::logic::closed_loop::explain::explain as loop_text;
use crate::logic::node_config::explain::{ExplainedNode, explain as node_text};
use crate::logic::swarm_pool::explain::{ExplainedPool, explain as pool_text};

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
    /// Explains a SwarmPool: its workers, or where a job is, since when and why.
    #[command(alias = "swarmpool")]
    Swp(NamedPool),
    /// Explains what a PlacementPolicy says about a pod: each node, each agent's score, and why.
    Placement(super::explain_placement::PlacementArgs),
    /// Explains a node: what is known of it, from where, how old that is, and what is wrong.
    Node(NamedNode),
}

/// Writes the explanation to standard output.
///
/// # Errors
/// The object does not exist or cannot be read.
pub async fn explain(explain: ExplainArgs) -> Result<(), Error> {
    let text = match explain.what {
        What::Loop(named) => loop_text(&LoopFamily::read(named).await?.subject()),
        What::Action(named) => action_text(&objects::action(named).await?),
        What::Swp(named) => {
            let (pool, published) = objects::pool(&named).await?;
            let job = named.job.as_deref();
            pool_text(ExplainedPool { pool: &pool, published: &published, job, now: Timestamp::now() })
        }
        What::Placement(asked) => super::explain_placement::explain(asked).await?,
        What::Node(named) => {
            let configs = objects::node_configs(&named).await?;
            node_text(ExplainedNode { name: &named.name, configs: &configs, now: Timestamp::now() })
        }
    };
    print!("{text}");
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
