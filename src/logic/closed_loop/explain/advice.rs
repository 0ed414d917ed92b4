//! What the user of a loop can do now.

use kube::ResourceExt;

use super::subject::ExplainedLoop;
use crate::api::closed_loop::LoopMode;
use crate::api::closed_loop::metric::Metric;
use crate::api::closed_loop::reasons::LoopReason;
use crate::api::closed_loop::source::Push;
use crate::api::decision::Outcome;
use crate::logic::closed_loop::validate::names;

/// What can be done, and the command that does it.
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

/// The advice, the most important first; at least one.
pub fn advice(subject: &ExplainedLoop) -> Vec<Advice> {
    let mut all: Vec<Advice> = reason(subject).and_then(|reason| remedy(subject, reason)).into_iter().collect();
    let (name, namespace) = names(subject);
    let patch = |spec: &str| format!("kubectl patch loop {name} -n {namespace} --type merge -p '{{\"spec\":{spec}}}'");
    if let Some(seq) = proposal(subject) {
        let words = format!("Decision {seq} waits for approval. To approve it:");
        all.push(run(words, patch(&format!("{{\"approve\":{seq}}}"))));
    }
    match subject.parent.spec.mode {
        LoopMode::DryRun => {
            all.push(run("The mode is DryRun. To let it act:", patch("{\"mode\":\"Auto\"}")));
        }
        LoopMode::Paused => all.push(run("To resume it:", patch("{\"mode\":\"Auto\"}"))),
        LoopMode::Auto | LoopMode::Approve => {}
    }
    let decided = subject.decided();
    for passed in decided.iter().flat_map(|decided| &decided.rejected) {
        let alarm = format!("{} {}", passed.side, passed.metric);
        match passed.reason {
            LoopReason::Exhausted => {
                all.push(say(format!("No rung is left for {alarm}: raise the max, or add a rung to its ladder.")));
            }
            LoopReason::NoAction => {
                all.push(say(format!("No action is declared for {alarm}: add one in spec.actions.")));
            }
            _ => {}
        }
    }
    let last = decided.and_then(|decided| decided.history.last());
    if last.and_then(|entry| entry.outcome) == Some(Outcome::Limited) {
        all.push(say("Its last action reached its min or max: change the bound to allow more."));
    }
    if all.is_empty() {
        all.push(say("Nothing to do."));
    }
    all
}

/// The number of the proposal that waits for approval.
pub fn proposal(subject: &ExplainedLoop) -> Option<i64> {
    let chosen = subject.decided()?.chosen.as_ref()?;
    let taken_up = subject.executed().is_some_and(|executed| executed.seq == Some(chosen.seq));
    let open = chosen.outcome.is_none() && chosen.mode == LoopMode::Approve && !taken_up;
    (open && subject.parent.spec.approve != Some(chosen.seq)).then_some(chosen.seq)
}

/// The reason of the condition `Ready`.
fn reason(subject: &ExplainedLoop) -> Option<LoopReason> {
    let word = serde_json::Value::String(subject.condition("Ready")?.reason.clone());
    serde_json::from_value(word).ok()
}

fn names(subject: &ExplainedLoop) -> (String, String) {
    (subject.parent.name_any(), subject.parent.namespace().unwrap_or_default())
}

/// How to solve the problem with this reason.
fn remedy(subject: &ExplainedLoop, reason: LoopReason) -> Option<Advice> {
    let (name, namespace) = names(subject);
    let spec = &subject.parent.spec;
    let account = spec.service_account_name.as_deref().unwrap_or(names::DEFAULT_ACCOUNT);
    Some(match reason {
        LoopReason::Starting => {
            let words = "Wait a moment. If nothing changes, check the operator:";
            run(words, "kubectl get pods -n ganglion-system".to_owned())
        }
        LoopReason::SpecInvalid | LoopReason::NotSupported | LoopReason::Circle | LoopReason::TooDeep => {
            run("Change the named field:", format!("kubectl edit loop {name} -n {namespace}"))
        }
        LoopReason::NamespaceRefused => {
            say("Move the loop to another namespace, or set namespaces.allowKube in the operator's settings.")
        }
        LoopReason::NamespaceNotBound => {
            say("Run the command in the message; it needs the right to create rolebindings.")
        }
        LoopReason::NotOwned => say("Delete the named object, or create the loop with another name."),
        LoopReason::LoopConflict | LoopReason::AutoscalerConflict => {
            say("Only one of the two may act: delete or pause the other, or give this loop another target.")
        }
        LoopReason::NoSample => {
            let metrics = spec.metrics.iter();
            let values: Vec<String> =
                metrics.filter_map(|one| Some(format!("{}=NUMBER", key(one, one.source.push.as_ref()?)))).collect();
            if values.is_empty() {
                return Some(say("Wait for the loop's next interval."));
            }
            run("Push a sample:", format!("ganglion push {name} -n {namespace} {}", values.join(" ")))
        }
        LoopReason::SomeUnknown => say("Check the sender or the source of the unknown metrics."),
        LoopReason::Forbidden => {
            say(format!("Grant the named right to service account {account} in namespace {namespace}."))
        }
        LoopReason::TargetNotFound => {
            say(format!("Create {} {}, or name another target.", spec.target.kind, spec.target.name))
        }
        LoopReason::NotScalable => say("Name a target that supports the action, or declare another action."),
        LoopReason::NotTunable => say(format!("Allow it in spec.tunable of loop {}.", spec.target.name)),
        LoopReason::TimedOut | LoopReason::Failed | LoopReason::Lost => {
            say("The loop continues with the next decision. If this happens again, check the target.")
        }
        // Nothing is wrong, or the mode needs other advice, or the reason is not one of a loop.
        _ => return None,
    })
}

/// The key of a pushed metric in a sample.
fn key<'a>(metric: &'a Metric, push: &'a Push) -> &'a str {
    push.key.as_deref().unwrap_or(&metric.name)
}
