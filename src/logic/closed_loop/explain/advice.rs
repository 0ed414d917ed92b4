//! What the user of a loop could do now.

use kube::ResourceExt;

use super::subject::ExplainedLoop;
use crate::api::closed_loop::LoopMode;
use crate::api::closed_loop::metric::Metric;
use crate::api::closed_loop::reasons::LoopReason;
use crate::api::closed_loop::source::Push;
use crate::api::decision::Outcome;
use crate::logic::closed_loop::validate::names;

/// What could be done, and the command that does it.
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

/// The most important first. Never none.
pub fn advice(subject: &ExplainedLoop) -> Vec<Advice> {
    let mut all: Vec<Advice> = reason(subject).and_then(|reason| remedy(subject, reason)).into_iter().collect();
    let (name, namespace) = names(subject);
    let patch = |spec: &str| format!("kubectl patch loop {name} -n {namespace} --type merge -p '{{\"spec\":{spec}}}'");
    if let Some(seq) = proposal(subject) {
        let words = format!("Decision {seq} waits for you. To have it carried out:");
        all.push(run(words, patch(&format!("{{\"approve\":{seq}}}"))));
    }
    match subject.parent.spec.mode {
        LoopMode::DryRun => {
            all.push(run("It only says what it would do. To let it act:", patch("{\"mode\":\"Auto\"}")));
        }
        LoopMode::Paused => all.push(run("To let it go on:", patch("{\"mode\":\"Auto\"}"))),
        LoopMode::Auto | LoopMode::Approve => {}
    }
    let decided = subject.decided();
    for passed in decided.iter().flat_map(|decided| &decided.rejected) {
        let alarm = format!("{} {}", passed.side, passed.metric);
        match passed.reason {
            LoopReason::Exhausted => {
                all.push(say(format!(
                    "Nothing is left to be done about {alarm}: raise the max, or add to its ladder."
                )));
            }
            LoopReason::NoAction => {
                all.push(say(format!("Nothing is declared for {alarm}: add an action in spec.actions.")));
            }
            _ => {}
        }
    }
    let last = decided.and_then(|decided| decided.history.last());
    if last.and_then(|entry| entry.outcome) == Some(Outcome::Limited) {
        all.push(say("Its last action met its min or max: change that, if there is to be more."));
    }
    if all.is_empty() {
        all.push(say("Nothing has to be done."));
    }
    all
}

/// The number of the proposal that waits for its approval.
pub fn proposal(subject: &ExplainedLoop) -> Option<i64> {
    let chosen = subject.decided()?.chosen.as_ref()?;
    let taken_up = subject.executed().is_some_and(|executed| executed.seq == Some(chosen.seq));
    let open = chosen.outcome.is_none() && chosen.mode == LoopMode::Approve && !taken_up;
    (open && subject.parent.spec.approve != Some(chosen.seq)).then_some(chosen.seq)
}

/// The reason of `Ready`.
fn reason(subject: &ExplainedLoop) -> Option<LoopReason> {
    let word = serde_json::Value::String(subject.condition("Ready")?.reason.clone());
    serde_json::from_value(word).ok()
}

fn names(subject: &ExplainedLoop) -> (String, String) {
    (subject.parent.name_any(), subject.parent.namespace().unwrap_or_default())
}

/// What would end this.
fn remedy(subject: &ExplainedLoop, reason: LoopReason) -> Option<Advice> {
    let (name, namespace) = names(subject);
    let spec = &subject.parent.spec;
    let account = spec.service_account_name.as_deref().unwrap_or(names::DEFAULT_ACCOUNT);
    Some(match reason {
        LoopReason::Starting => {
            let words = "Wait a moment. If it stays so, look at the operator:";
            run(words, "kubectl get pods -n ganglion-system".to_owned())
        }
        LoopReason::SpecInvalid | LoopReason::NotSupported | LoopReason::Circle | LoopReason::TooDeep => {
            run("Change what is named:", format!("kubectl edit loop {name} -n {namespace}"))
        }
        LoopReason::NotOwned => say("Delete the object that is named, or make the loop under another name."),
        LoopReason::LoopConflict | LoopReason::AutoscalerConflict => {
            say("Let one of the two act: delete or pause the other, or give this one another target.")
        }
        LoopReason::NoSample => {
            let metrics = spec.metrics.iter();
            let values: Vec<String> =
                metrics.filter_map(|one| Some(format!("{}=NUMBER", key(one, one.source.push.as_ref()?)))).collect();
            if values.is_empty() {
                return Some(say("Wait until the loop's interval is over."));
            }
            run("Push a sample:", format!("ganglion push {name} -n {namespace} {}", values.join(" ")))
        }
        LoopReason::SomeUnknown => say("See that what is not known gets a number: look at its sender, or its source."),
        LoopReason::Forbidden => {
            say(format!("Give service account {account} in namespace {namespace} the right that is named."))
        }
        LoopReason::TargetNotFound => {
            say(format!("Make {} {}, or name another target.", spec.target.kind, spec.target.name))
        }
        LoopReason::NotScalable => say("Name a target that has what is asked for, or another action."),
        LoopReason::NotTunable => say(format!("Allow it in spec.tunable of loop {}.", spec.target.name)),
        LoopReason::TimedOut | LoopReason::Failed | LoopReason::Lost => {
            say("It goes on with the next decision. If it comes again, look at the target.")
        }
        // It is as it should be, or the mode says what to do, or it is no reason of a loop as a whole.
        _ => return None,
    })
}

/// The key under which a pushed metric stands in a sample.
fn key<'a>(metric: &'a Metric, push: &'a Push) -> &'a str {
    push.key.as_deref().unwrap_or(&metric.name)
}
