//! Advice for the user of a loop.

use kube::ResourceExt;

use super::subject::ExplainedLoop;
use crate::common::LAST_ACTION_SUCCEEDED;
use crate::proposal::{self, Proposal};
use ganglion_api::closed_loop::LoopMode;
use ganglion_api::closed_loop::metric::{Metric, Push};
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::decision::{Chosen, Outcome, Rejected};
use ganglion_api::marks;
use ganglion_core::conditions::DATA_AVAILABLE;
use ganglion_core::names;

/// One piece of advice, with the command that carries it out.
pub struct Advice {
    pub words: String,
    pub command: Option<String>,
}

fn say(words: impl Into<String>) -> Advice {
    Advice { words: words.into(), command: None }
}

fn run(words: impl Into<String>, command: String) -> Advice {
    Advice { words: words.into(), command: Some(command) }
}

/// Returns the advice, the most important first; at least one.
pub fn advice(subject: &ExplainedLoop) -> Vec<Advice> {
    let mut all: Vec<Advice> = reasons(subject).into_iter().filter_map(|reason| remedy(subject, reason)).collect();
    let (name, namespace) = names(subject);
    let patch = |spec: &str| format!("kubectl patch loop {name} -n {namespace} --type merge -p '{{\"spec\":{spec}}}'");
    if let Some(Proposal { seq, digest, .. }) = proposal(subject) {
        let words = format!("Decision {seq} waits for approval. To approve it:");
        all.push(run(words, format!("ganglion approve {name} {digest} -n {namespace}")));
    }
    match subject.parent.spec.mode {
        LoopMode::DryRun => {
            all.push(run("The mode is DryRun. To let it act:", patch("{\"mode\":\"Auto\"}")));
        }
        LoopMode::Paused => all.push(run("To resume it:", patch("{\"mode\":\"Auto\"}"))),
        LoopMode::Auto | LoopMode::Approve => {}
    }
    let decided = subject.decided();
    all.extend(decided.iter().flat_map(|decided| &decided.rejected).filter_map(rejected).map(say));
    let last = decided.and_then(|decided| decided.history.last());
    let is_chosen = |chosen: &&Chosen| last.is_some_and(|last| last.seq == chosen.seq);
    let chosen = decided.and_then(|decided| decided.chosen.as_ref()).filter(is_chosen);
    // A WorkloadAction has no bounds: it found no replica.
    let has_bounds = chosen.is_none_or(|chosen| chosen.action.workload_action.is_none());
    if has_bounds && last.and_then(|entry| entry.outcome) == Some(Outcome::Limited) {
        all.push(say("Its last action reached its min or max: change the bound to allow more."));
    }
    if all.is_empty() {
        all.push(say("Nothing to do."));
    }
    all
}

/// Returns the proposal that waits for approval.
pub fn proposal(subject: &ExplainedLoop) -> Option<Proposal> {
    let (parent, approval) = (subject.parent, subject.parent.annotations().get(marks::APPROVE));
    proposal::open(subject.decided()?, subject.executed(), &parent.spec.target, approval.map(String::as_str))
}

/// Returns the reasons of the conditions that may need advice: why the loop does not work, why a value is missing, and
/// why the last action failed.
fn reasons(subject: &ExplainedLoop) -> Vec<LoopReason> {
    let conditions = ["Ready", DATA_AVAILABLE, LAST_ACTION_SUCCEEDED].map(|kind| subject.condition(kind));
    let mut reasons = Vec::new();
    for condition in conditions.into_iter().flatten().filter(|condition| condition.status != "True") {
        let reason = LoopReason::of(&condition.reason);
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons
}

fn names(subject: &ExplainedLoop) -> (String, String) {
    (subject.parent.name_any(), subject.parent.namespace().unwrap_or_default())
}

/// Returns advice about a rejected alarm. None if the alarm waits for a sample or for time, or if a condition of the
/// loop covers it.
fn rejected(passed: &Rejected) -> Option<String> {
    let alarm = &passed.when;
    match passed.reason {
        LoopReason::Exhausted => {
            Some(format!("No rung is left for {alarm}: raise the max, or add a rung to its ladder."))
        }
        LoopReason::NoAction => Some(format!("No action is declared for {alarm}: add one in spec.actions.")),
        LoopReason::OutsideWindow => Some(format!("To serve {alarm} at other times, change during of its action.")),
        _ => None,
    }
}

/// Returns advice about the reason of a condition. None if nothing is wrong, or if the mode needs other advice.
fn remedy(subject: &ExplainedLoop, reason: LoopReason) -> Option<Advice> {
    let (name, namespace) = names(subject);
    let spec = &subject.parent.spec;
    let target = format!("{} {}", spec.target.kind, spec.target.name);
    let account = spec.service_account_name.as_deref().unwrap_or(names::DEFAULT_ACCOUNT);
    let words = words(reason)?;
    Some(match reason {
        LoopReason::Starting | LoopReason::NoExecutor | LoopReason::NotParsed => {
            run(words, "kubectl get pods -n ganglion-system".to_owned())
        }
        LoopReason::SpecInvalid
        | LoopReason::NotSupported
        | LoopReason::Circle
        | LoopReason::TooDeep
        | LoopReason::TimescaleOverlap
        | LoopReason::UtilizationFeedback => run(words, format!("kubectl edit loop {name} -n {namespace}")),
        LoopReason::NoSample => sample(subject, words),
        LoopReason::Forbidden => say(format!("{words} to service account {account} in namespace {namespace}.")),
        LoopReason::TargetNotFound => say(format!("Create {target}, {words}.")),
        LoopReason::NotTunable => say(format!("{words} of loop {}.", spec.target.name)),
        _ => say(words),
    })
}

/// Returns the text of the advice for each reason; None if nothing is wrong. The match is total, so that a new reason
/// does not compile without a text.
fn words(reason: LoopReason) -> Option<&'static str> {
    use LoopReason as R;
    Some(match reason {
        R::Running | R::Passed | R::Paused | R::DryRun | R::Proposed | R::AwaitsApproval => return None,
        R::Served | R::Done | R::Idle | R::Watching | R::AllKnown => return None,
        R::Scaled | R::Resized | R::Patched | R::ActionSucceeded | R::Tuned | R::Sent => return None,
        R::Tracking | R::AtMin | R::Inactive => return None,
        R::AtMax => "Raise the max of the action to allow more replicas.",
        R::StoppedAtZero => "Scale the target to 1 or more; the loop continues from there.",
        R::TargetUnknown => "Check the target, and the rights of the loop's account to get it and to list its pods.",
        R::Starting | R::NoExecutor | R::NotParsed => "Wait a moment. If nothing changes, check the operator:",
        R::SpecInvalid | R::NotSupported | R::Circle | R::TooDeep => "Change the named field:",
        R::InvalidObject => {
            "Correct the field that the message names; the operator of another version may have written it."
        }
        R::AdmissionPolicyMissing => {
            "Install the admission policies: kubectl apply --server-side -f kustomize/base/admission.yaml."
        }
        R::DefinitionOutdated => "Apply the CRDs of the operator's version: kubectl apply --server-side -k crds.",
        R::TimescaleOverlap => "Raise spec.interval:",
        R::NamespaceRefused => {
            "Move the loop to another namespace, or set namespaces.allowKube in the operator's settings."
        }
        R::NamespaceNotBound => "Run the command in the message; it needs the right to create rolebindings.",
        R::NotOwned => "Delete the named object, or create the loop with another name.",
        R::ChildRefused => {
            "Change what the message names, such as a quota or an admission policy; the loop goes on by itself."
        }
        R::LoopConflict | R::AutoscalerConflict | R::Blocked => {
            "Only one of the two may act: delete or pause the other, or give this loop another target."
        }
        R::NoSample => "Push a sample:",
        R::SomeUnknown | R::UnknownValue => "Check the sender or the source of the unknown metrics.",
        R::OutOfOrder | R::Repeated | R::FromFuture | R::Unreadable => {
            "Check the sender's clock, and the time in its samples."
        }
        R::Forbidden => "Grant the named right",
        R::TargetNotFound => "or name another target",
        R::NotScalable => "Name a target that supports the action, or declare another action.",
        R::NotTunable => "Allow it in spec.tunable",
        R::ReplicasOwnedElsewhere | R::FieldOwnedElsewhere => {
            "Follow the steps of the message in their order: the field then keeps its value."
        }
        R::FieldConflict => {
            "Only one of the two may write the field: stop the named manager, or give this loop another target."
        }
        R::Limited => "Change the min or max of the action to allow more.",
        R::ResizePending => {
            "Make room on the pod's node, or add a rung that adds replicas. The resize is done as soon as it fits."
        }
        R::ResizeTakenBack => "Make room on the pod's node, or add a rung that adds replicas.",
        R::UtilizationFeedback => {
            "Set unit: Usage and levels in cores or bytes for the metric, or remove the rung that changes requests:"
        }
        R::Exhausted => "Raise the max of the last rung, or add a rung to the ladder.",
        R::TimedOut | R::Failed | R::Lost | R::Overtaken => {
            "The loop continues with the next decision. If this happens again, check the target."
        }
        R::NotAllActive => "Wait: the action is taken once all its alarms are active.",
        R::NoAction => "Add an action for the alarm in spec.actions.",
        R::NotSelected => "policy.expression must return a number above 0 for each alarm that should be served.",
        R::OutsideWindow => "Wait until the window opens, or change during of the action.",
        R::Damped | R::Frozen => "Wait, or move the levels of the metric further apart.",
        R::Outranked | R::Dwell | R::Budget | R::Settling => "Wait: the loop continues by itself.",
        R::InFlight | R::Claimed | R::Executing | R::Withdrawn => "Wait: the loop continues with the next sample.",
        R::Unknown => "Use the ganglion program of the operator's version.",
    })
}

/// Returns advice on how to send the first sample.
fn sample(subject: &ExplainedLoop, words: &str) -> Advice {
    let (name, namespace) = names(subject);
    let metrics = subject.parent.spec.metrics.iter();
    let values: Vec<String> =
        metrics.filter_map(|one| Some(format!("{}=NUMBER", key(one, one.source.push.as_ref()?)))).collect();
    if values.is_empty() {
        return say("Wait for the loop's next interval.");
    }
    run(words, format!("ganglion push {name} -n {namespace} {}", values.join(" ")))
}

/// Returns the key of a pushed metric in a sample.
fn key<'a>(metric: &'a Metric, push: &'a Push) -> &'a str {
    push.key.as_deref().unwrap_or(&metric.name)
}
