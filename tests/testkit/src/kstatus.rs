//! kstatus as Flux and `kubectl wait` evaluate it, and the condition table of the API rules.

use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Status of an object as a GitOps tool sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kstatus {
    InProgress,
    Current,
    Failed,
    Terminating,
}

/// Condition of this type.
pub fn condition<'a>(action: &'a WorkloadAction, kind: &str) -> Option<&'a Condition> {
    action.status.as_ref()?.conditions.iter().find(|one| one.type_ == kind)
}

/// Status and reason of `Ready`.
pub fn ready(action: &WorkloadAction) -> Option<(&str, &str)> {
    condition(action, "Ready").map(|ready| (ready.status.as_str(), ready.reason.as_str()))
}

/// Message of `Ready`.
pub fn message(action: &WorkloadAction) -> &str {
    condition(action, "Ready").map(|ready| ready.message.as_str()).unwrap_or_default()
}

/// Whether the action has ended according to its conditions.
pub fn is_over(action: &WorkloadAction) -> bool {
    let seen = action.status.as_ref().and_then(|status| status.observed_generation);
    seen == action.metadata.generation
        && (condition(action, "Stalled").is_some_and(|one| one.status == "True")
            || (ready(action).is_some_and(|(status, _)| status == "True")
                && condition(action, "Reconciling").is_none()))
}

/// The generic rules of kstatus (sigs.k8s.io/cli-utils, `GetStandardConditions` path).
pub fn kstatus(action: &WorkloadAction) -> Kstatus {
    let holds = |kind: &str| condition(action, kind).is_some_and(|one| one.status == "True");
    let observed = action.status.as_ref().and_then(|status| status.observed_generation);
    if action.metadata.deletion_timestamp.is_some() {
        return Kstatus::Terminating;
    }
    if observed.is_some() && observed != action.metadata.generation {
        return Kstatus::InProgress;
    }
    if holds("Stalled") {
        return Kstatus::Failed;
    }
    if holds("Reconciling") {
        return Kstatus::InProgress;
    }
    match ready(action) {
        Some(("True", _)) | None => Kstatus::Current,
        Some(_) => Kstatus::InProgress,
    }
}

/// Violations of the condition table of the API rules; empty if the conditions obey it.
pub fn complaints(action: &WorkloadAction) -> Vec<String> {
    let mut wrong = Vec::new();
    let Some(status) = &action.status else { return vec!["no status at all".to_owned()] };
    if status.observed_generation == Some(-1) {
        if !status.conditions.is_empty() {
            wrong.push("conditions without an observed generation".to_owned());
        }
        return wrong;
    }
    let (reconciling, stalled) = (condition(action, "Reconciling"), condition(action, "Stalled"));
    for one in [reconciling, stalled].into_iter().flatten().filter(|one| one.status != "True") {
        wrong.push(format!("{} is written {} instead of removed", one.type_, one.status));
    }
    let row = (ready(action), reconciling.map(|one| one.reason.as_str()), stalled.map(|one| one.reason.as_str()));
    match row {
        (Some(("Unknown", _)), Some(_), None) | (Some(("True", _)), None, None) => {}
        (Some(("False", _)), Some("ProgressingWithRetry"), None) => {}
        (Some(("False", why)), None, Some(same)) if why == same => {}
        // Suspended: Ready keeps its value, and the other conditions are removed.
        (Some(("Unknown" | "False", _)), None, None) if action.spec.suspend => {}
        other => wrong.push(format!("no row of the table: (Ready, Reconciling, Stalled) = {other:?}")),
    }
    let finished = condition(action, "Finished").map(|one| one.status.as_str());
    if (status.finished_at.is_some() && finished != Some("True"))
        || (status.finished_at.is_none() && finished.is_some())
    {
        wrong.push(format!("finishedAt is {:?}, and Finished is {finished:?}", status.finished_at));
    }
    for one in &status.conditions {
        if one.observed_generation != status.observed_generation {
            wrong.push(format!("{} speaks of generation {:?}", one.type_, one.observed_generation));
        }
        if one.reason.is_empty() || !one.reason.chars().all(char::is_alphanumeric) || one.message.is_empty() {
            wrong.push(format!("{} has reason {:?} and message {:?}", one.type_, one.reason, one.message));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    //! Tests of the condition table.

    use super::*;
    use serde_json::{Value, json};

    fn action(conditions: Value) -> WorkloadAction {
        serde_json::from_value(json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction",
            "metadata": {"name": "x", "generation": 1}, "spec": {},
            "status": {"observedGeneration": 1, "conditions": conditions},
        }))
        .expect("an action")
    }

    fn one(kind: &str, status: &str, reason: &str) -> Value {
        json!({"type": kind, "status": status, "reason": reason, "message": "m", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    #[test]
    fn each_row_is_known() {
        let working = action(json!([one("Ready", "Unknown", "Creating"), one("Reconciling", "True", "Creating")]));
        assert_eq!((kstatus(&working), complaints(&working), is_over(&working)), (Kstatus::InProgress, vec![], false));
        let done = action(json!([one("Ready", "True", "Succeeded")]));
        assert_eq!((kstatus(&done), complaints(&done), is_over(&done)), (Kstatus::Current, vec![], true));
        let failed = action(json!([one("Ready", "False", "NodeFull"), one("Stalled", "True", "NodeFull")]));
        assert_eq!((kstatus(&failed), complaints(&failed), is_over(&failed)), (Kstatus::Failed, vec![], true));
    }

    #[test]
    fn each_rule_of_kstatus_decides() {
        let done = json!([one("Ready", "True", "Succeeded")]);
        let untrue = json!([done[0], one("Reconciling", "False", "Creating"), one("Stalled", "False", "NodeFull")]);
        assert_eq!(kstatus(&action(untrue)), Kstatus::Current, "conditions that are False do not count");
        let waits = action(json!([one("Ready", "Unknown", "Creating"), one("Stalled", "False", "NodeFull")]));
        assert_eq!((kstatus(&waits), is_over(&waits)), (Kstatus::InProgress, false));
        let both = json!([one("Reconciling", "True", "Creating"), one("Stalled", "True", "NodeFull")]);
        assert_eq!(kstatus(&action(both)), Kstatus::Failed, "Stalled is stronger");
        let ready = json!([done[0], one("Reconciling", "True", "Creating")]);
        assert_eq!(kstatus(&action(ready)), Kstatus::InProgress);
        assert_eq!(kstatus(&action(json!([]))), Kstatus::Current, "an object without conditions is complete");
        let mut changed = action(done);
        changed.metadata.generation = Some(2);
        assert_eq!(
            (kstatus(&changed), is_over(&changed)),
            (Kstatus::InProgress, false),
            "nobody has observed the change"
        );
        changed.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).expect("a time");
        assert_eq!(kstatus(&changed), Kstatus::Terminating);
    }

    #[test]
    fn what_is_no_row_is_complained_of() {
        for wrong in [
            json!([one("Ready", "False", "NodeFull"), one("Stalled", "True", "NodeGone")]),
            json!([one("Ready", "True", "Succeeded"), one("Reconciling", "True", "Creating")]),
            json!([one("Ready", "True", "Succeeded"), one("Stalled", "False", "Succeeded")]),
            json!([one("Ready", "Unknown", "Creating")]),
        ] {
            assert!(!complaints(&action(wrong.clone())).is_empty(), "{wrong}");
        }
    }
}
