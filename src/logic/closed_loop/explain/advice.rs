//! What the user of a loop could do now.

use kube::ResourceExt;

use super::Subject;
use crate::api::closed_loop::LoopMode;
use crate::api::closed_loop::reasons::LoopReason;
use crate::api::decision::Outcome;

/// Sentences, the most important first. Never none.
pub fn advice(subject: &Subject) -> Vec<String> {
    let mut all: Vec<String> = reason(subject).and_then(|reason| remedy(subject, reason)).into_iter().collect();
    let (name, namespace) = names(subject);
    let patch = |spec: &str| format!("kubectl patch loop {name} -n {namespace} --type merge -p '{{\"spec\":{spec}}}'");
    if let Some(seq) = proposal(subject) {
        all.push(format!("To have decision {seq} carried out: {}", patch(&format!("{{\"approve\":{seq}}}"))));
    }
    match subject.parent.spec.mode {
        LoopMode::DryRun => {
            all.push(format!("It only says what it would do. To let it act: {}", patch("{\"mode\":\"Auto\"}")));
        }
        LoopMode::Paused => all.push(format!("To let it go on: {}", patch("{\"mode\":\"Auto\"}"))),
        LoopMode::Auto | LoopMode::Approve => {}
    }
    let decided = subject.decided();
    for passed in decided.iter().flat_map(|decided| &decided.rejected) {
        let alarm = format!("{} {}", passed.side, passed.metric);
        match passed.reason {
            LoopReason::Exhausted => {
                all.push(format!("Nothing is left to be done about {alarm}: raise the max, or add to its ladder."));
            }
            LoopReason::NoAction => {
                all.push(format!("Nothing is declared for {alarm}: add an action in spec.actions."))
            }
            _ => {}
        }
    }
    let limited = decided.and_then(|decided| decided.chosen.as_ref()?.outcome) == Some(Outcome::Limited);
    if limited {
        all.push("Its last action met its min or max: change that, if there is to be more.".to_owned());
    }
    if all.is_empty() {
        all.push("Nothing has to be done.".to_owned());
    }
    all
}

/// The number of the proposal that waits for its approval.
pub fn proposal(subject: &Subject) -> Option<i64> {
    let chosen = subject.decided()?.chosen.as_ref()?;
    let open = chosen.outcome.is_none() && chosen.mode == LoopMode::Approve;
    (open && subject.parent.spec.approve != Some(chosen.seq)).then_some(chosen.seq)
}

/// The reason of `Ready`.
fn reason(subject: &Subject) -> Option<LoopReason> {
    let word = serde_json::Value::String(subject.condition("Ready")?.reason.clone());
    serde_json::from_value(word).ok()
}

fn names(subject: &Subject) -> (String, String) {
    (subject.parent.name_any(), subject.parent.namespace().unwrap_or_default())
}

/// What would end this.
fn remedy(subject: &Subject, reason: LoopReason) -> Option<String> {
    let (name, namespace) = names(subject);
    let spec = &subject.parent.spec;
    let account = spec.service_account_name.as_deref().unwrap_or("default");
    let keys: Vec<&str> =
        spec.metrics.iter().filter_map(|one| Some((one, one.source.push.as_ref()?))).map(key).collect();
    Some(match reason {
        LoopReason::Starting => {
            "Wait a moment. If it stays so, look at the operator: kubectl get pods -n ganglion-system".to_owned()
        }
        LoopReason::SpecInvalid | LoopReason::NotSupported | LoopReason::Circle | LoopReason::TooDeep => {
            format!("Change what is named: kubectl edit loop {name} -n {namespace}")
        }
        LoopReason::NotOwned => "Delete the object that is named, or make the loop under another name.".to_owned(),
        LoopReason::LoopConflict | LoopReason::AutoscalerConflict => {
            "Let one of the two act: delete or pause the other, or give this one another target.".to_owned()
        }
        LoopReason::NoSample if keys.is_empty() => "Wait until the loop's interval is over.".to_owned(),
        LoopReason::NoSample => {
            let values: Vec<String> = keys.iter().map(|key| format!("{key}=NUMBER")).collect();
            format!("Push a sample: ganglion push {name} -n {namespace} {}", values.join(" "))
        }
        LoopReason::SomeUnknown => {
            "See that what is not known gets a number: look at its sender, or its source.".to_owned()
        }
        LoopReason::Forbidden => {
            format!("Give service account {account} in namespace {namespace} the right that is named.")
        }
        LoopReason::TargetNotFound => {
            format!("Make {} {}, or name another target.", spec.target.kind, spec.target.name)
        }
        LoopReason::NotScalable => "Name a target that has what is asked for, or another action.".to_owned(),
        LoopReason::NotTunable => format!("Allow it in spec.tunable of loop {}.", spec.target.name),
        LoopReason::TimedOut | LoopReason::Failed | LoopReason::Lost => {
            "It goes on with the next decision. If it comes again, look at the target.".to_owned()
        }
        // It is as it should be, or the mode says what to do, or it is no reason of a loop as a whole.
        _ => return None,
    })
}

/// The key under which a pushed metric stands in a sample.
fn key<'a>(
    (metric, push): (&'a crate::api::closed_loop::metric::Metric, &'a crate::api::closed_loop::source::Push),
) -> &'a str {
    push.key.as_deref().unwrap_or(&metric.name)
}
