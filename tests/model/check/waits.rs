//! A waiting action must name what it waits for.

use super::{Violation, outcome, violation};
use crate::cluster::object::Action;

/// For each reason, texts of which the message must contain at least one.
fn names(reason: &str) -> &'static [&'static str] {
    match reason {
        "LimitReached" => &["(setting limits.inAll)"],
        "NamespaceLimitReached" => &["(setting limits.perNamespace)"],
        "WorkloadLimitReached" => &["(setting limits.perWorkload)"],
        "NodeLimitReached" => &["(setting limits.perSourceNode)", "(setting limits.perTargetNode)"],
        "ApplicationLimitReached" => &["replicas of the application", "maxParallelPerWorkload"],
        // In an application, the message of the move follows.
        "PodRefused" | "Forbidden" => &["a move cannot be created"],
        "WorkloadBusy" => &["WorkloadAction "],
        "VictimBusy" => &["in use by", "substitute of another replica", "other replicas of the swap"],
        "NoCandidateNode" | "NodeFull" | "PolicyRejected" => {
            &["replicas of other actions are on their way", "the action goes on when a node can take it"]
        }
        "UsageOutdated" => &["is moving a replica from or to node", "has not been measured since another action"],
        "RolloutInProgress" => &["rollout", "ReplicaSet"],
        _ => &[],
    }
}

/// Checks a status that was written.
pub fn check(action: &Action) -> Result<(), Violation> {
    if action.finished() || outcome::word(action) != "Queued" {
        return Ok(());
    }
    let find = |name: &str| action.status.iter().flat_map(|status| &status.conditions).find(|one| one.type_ == name);
    let Some((ready, cause)) = find("Ready").zip(find("Reconciling")) else { return Ok(()) };
    let named = names(&cause.reason);
    // An action that waits for a retry describes what was undone instead; an application, what its move has undone.
    let retried = action.slots().next().is_some() || ready.message.contains("waiting for a retry");
    if retried || named.iter().any(|words| ready.message.contains(words)) {
        return Ok(());
    }
    let text = format!("{} waits, {}: {}", action.meta.key, cause.reason, ready.message);
    violation("SilentWait", text)
}
