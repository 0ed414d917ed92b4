//! Proposals: decisions that wait for approval, and the digest to which an approval refers.
//!
//! The number of a decision would not do: by the time of the approval, another decision may have it. The digest changes
//! with everything that the user was shown: the decision, its action and its target.

use crate::rung;
use ganglion_api::closed_loop::when::When;
use ganglion_api::closed_loop::{LoopMode, TargetRef};
use ganglion_api::decision::{Chosen, DecisionStatus};
use ganglion_api::execution::ExecutionStatus;
use ganglion_core::digest::digest;

/// Maximum length of an approval, in characters; digests are shorter. Longer ones are ignored.
pub const MAX_APPROVAL: usize = 64;

/// Decision that waits for approval.
pub struct Proposal {
    pub seq: i64,
    /// Digest to approve.
    pub digest: String,
    /// Action that would be carried out, and its cause.
    pub words: String,
}

/// Returns the proposal that waits for approval. `approval`: the digest that the user has approved.
pub fn open(
    decided: &DecisionStatus,
    executed: Option<&ExecutionStatus>,
    target: &TargetRef,
    approval: Option<&str>,
) -> Option<Proposal> {
    let chosen = decided.chosen.as_ref().filter(|chosen| chosen.mode == LoopMode::Approve)?;
    let is_taken_up = executed.is_some_and(|executed| executed.seq == Some(chosen.seq));
    let digest = digest_of(chosen, target);
    if chosen.outcome.is_some() || is_taken_up || approval == Some(digest.as_str()) {
        return None;
    }
    let action = match chosen.replicas {
        Some(change) => format!("scale from {} to {}", change.from, change.to),
        None => rung::describe(&chosen.action),
    };
    let words = format!("{action} of {}/{}, against {}", target.kind, target.name, chosen.served());
    Some(Proposal { seq: chosen.seq, digest, words })
}

/// Returns the digest of this decision on this target: 10 hex digits.
pub fn digest_of(chosen: &Chosen, target: &TargetRef) -> String {
    // A Rung is plain data: its serialization does not fail, and its fields always have the same order.
    let action = serde_json::to_string(&chosen.action).unwrap_or_default();
    let TargetRef { api_version, kind, name } = target;
    let tuned = chosen.least_served.as_deref().unwrap_or_default();
    let (seq, side) = (chosen.seq.to_string(), chosen.side.to_string());
    let change = chosen.replicas.map(|change| format!("{} to {}", change.from, change.to));
    let mut parts =
        vec![chosen.executor.as_str(), &seq, &chosen.metric, &side, &action, tuned, api_version, kind, name];
    parts.extend(change.as_deref());
    let combined = chosen.when.as_ref().map(When::to_string);
    parts.extend(combined.as_deref());
    digest(&parts, 10)
}

/// Whether the decision may be carried out: a proposal needs an approval of its digest.
pub fn may_be_carried_out(chosen: &Chosen, target: &TargetRef, approval: Option<&str>) -> bool {
    match chosen.mode {
        LoopMode::Auto => true,
        LoopMode::Approve => approval == Some(digest_of(chosen, target).as_str()),
        LoopMode::DryRun | LoopMode::Paused => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn chosen() -> Chosen {
        serde_json::from_value(json!({
            "seq": 3, "metric": "cpu", "side": "Low", "rung": 0, "do": {"scale": {"by": 1, "max": 5}},
            "at": "2026-11-22T00:00:00Z", "executor": "exe", "mode": "Approve",
        }))
        .expect("a decision")
    }

    fn target(name: &str) -> TargetRef {
        TargetRef { api_version: "apps/v1".into(), kind: "Deployment".into(), name: name.into() }
    }

    #[test]
    fn an_approval_is_of_one_decision_action_and_target() {
        let proposed = chosen();
        let approval = digest_of(&proposed, &target("web"));
        let approved = |chosen: &Chosen, name: &str| may_be_carried_out(chosen, &target(name), Some(&approval));
        assert!(approved(&proposed, "web"));
        assert!(!approved(&proposed, "db"));
        assert!(!approved(&Chosen { seq: 4, ..chosen() }, "web"));
        assert!(!approved(&Chosen { executor: "another".into(), ..chosen() }, "web"));
        let mut more = chosen();
        more.action = serde_json::from_value(json!({"scale": {"by": 2, "max": 5}})).expect("a rung");
        assert!(!approved(&more, "web"));
        let all = json!({"all": [{"metric": "cpu", "side": "Low"}, {"metric": "errors", "side": "Low"}]});
        assert!(!approved(&Chosen { when: serde_json::from_value(all).ok(), ..chosen() }, "web"));
        assert!(!may_be_carried_out(&proposed, &target("web"), None));
        assert!(!may_be_carried_out(&proposed, &target("web"), Some("3")));
    }

    #[test]
    fn only_a_proposal_needs_an_approval() {
        for (mode, expected) in [(LoopMode::Auto, true), (LoopMode::DryRun, false), (LoopMode::Paused, false)] {
            assert_eq!(may_be_carried_out(&Chosen { mode, ..chosen() }, &target("web"), None), expected);
        }
    }
}
