//! The story of an action as text, for a terminal.

use jiff::Timestamp;

use super::super::plan_text::{self, grouped};
use super::{ActionStory, StoryEvent, StoryReplica, StoryState};
use ganglion_api::workload_action::status::{ApplicationMove, ApplicationProgress, Summary};
use ganglion_core::facts::NodeName;
use ganglion_core::layout::{age, clock, paragraph, table};
use ganglion_core::words::counted;

/// Maximum number of replicas in the same state that are shown one by one.
const ALIKE: usize = 10;

impl ActionStory {
    /// Text for a terminal. Lines have at most 120 columns, except for long names.
    pub fn text(&self) -> String {
        let now = self.told_at.0;
        let mut text = paragraph("", &self.head());
        let row = |event: &StoryEvent| [clock(event.at.0), age(event.at.0, now), event.what.clone()];
        text.push_str(&table(["WHEN (UTC)", "AGO", "WHAT"], self.events.iter().map(row).collect()));
        let groups = grouped(&self.replicas.iter().collect::<Vec<_>>(), |replica| (replica.step, replica.reason));
        for (_, group) in &groups {
            text.push('\n');
            text.push_str(&group_text(group, now));
        }
        if let Some(progress) = self.application.as_ref().filter(|progress| !progress.moves.is_empty()) {
            text.push('\n');
            text.push_str(&moves_text(progress));
        }
        if let Some(plan) = &self.plan {
            let parts = [plan_text::replicas(plan), plan_text::others(plan)].concat();
            text.push_str(if parts.starts_with('\n') || parts.is_empty() { "" } else { "\n" });
            text.push_str(&parts);
        }
        text.push('\n');
        text.extend(self.remarks.iter().map(|remark| paragraph("", remark)));
        text.push_str(&self.now(now));
        text.extend(self.advice.iter().map(|advice| paragraph("-> ", advice)));
        text
    }

    fn head(&self) -> String {
        let Self { namespace, name, action, .. } = self;
        let head = format!("WorkloadAction {namespace}/{name}: {action}");
        let Some(Summary { workload, from, to, done, .. }) = &self.summary else { return format!("{head}.") };
        let part = |word: &str, name: &Option<String>| name.as_ref().map(|name| format!(" {word} {name}"));
        let parts = [part("of", workload), part("from", from), part("to", to)].into_iter().flatten();
        format!("{head}{}, {done} done.", parts.collect::<String>())
    }

    fn now(&self, now: Timestamp) -> String {
        let Some(StoryState { words, since, reason, cause, message }) = &self.state else {
            return paragraph("", "The operator has not reconciled this action yet.");
        };
        let why = if reason == cause { reason.clone() } else { format!("{reason}, {cause}") };
        let since = format!("since {} ({} ago)", clock(since.0), age(since.0, now));
        paragraph("Now: ", &format!("{words} ({why}), {since}: {message}"))
    }
}

/// The moves that run and those that failed.
fn moves_text(progress: &ApplicationProgress) -> String {
    let row = |one: &ApplicationMove| {
        let reason = one.reason.map(|reason| format!("{reason}: ")).unwrap_or_default();
        let why = one.message.as_ref().map(|message| format!("{reason}{message}")).unwrap_or_default();
        [one.action.clone(), one.workload.clone(), one.done.clone().unwrap_or_else(|| "-".to_owned()), why]
    };
    let more = if progress.truncated { "and more: kubectl get workloadactions\n" } else { "" };
    table(["MOVE", "WORKLOAD", "DONE", "WHY NOT FURTHER"], progress.moves.iter().map(row).collect()) + more
}

/// Replicas in one step and with one reason.
fn group_text(group: &[&StoryReplica], now: Timestamp) -> String {
    let Some(first) = group.first() else { return String::new() };
    let shared = group.iter().all(|replica| replica.message == first.message);
    let reason = first.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    let why = first.message.as_ref().filter(|_| shared).map(|message| format!(": {message}")).unwrap_or_default();
    let count = counted(group.len() as u64, "replica");
    let mut text = paragraph(&format!("{count}: "), &format!("{}{reason}{why}", first.words));
    for replica in group.iter().take(ALIKE) {
        let why = replica.message.as_ref().filter(|_| !shared).map(|message| format!(": {message}"));
        let words = format!("{}{}", replica_words(replica, now), why.unwrap_or_default());
        text.push_str(&paragraph("  ", &words));
    }
    if let Some(rest) = group.get(ALIKE..).filter(|rest| !rest.is_empty()) {
        text.push_str(&paragraph("  ", &rest_words(rest, now)));
    }
    text
}

/// Pod, source, target, and time of the step.
fn replica_words(replica: &StoryReplica, now: Timestamp) -> String {
    let StoryReplica { pod, from, new_pod, to, tried, attempt, since, .. } = replica;
    let what = match (pod, new_pod) {
        (Some(pod), _) => pod.clone(),
        (None, Some(_)) => "a new replica".to_owned(),
        // The slot was queued for a retry and has no pods.
        (None, None) => format!("replica {}", replica.index),
    };
    let part = |word: &str, node: &Option<NodeName>| node.as_ref().map(|node| format!(" {word} {node}"));
    let name = new_pod.as_ref().map(|name| format!(", as {name}"));
    let tried = (!tried.is_empty()).then(|| format!(", after it failed on {}", tried.join(", ")));
    let attempt = (*attempt > 0).then(|| format!(", attempt {}", attempt + 1));
    let parts = [part("from", from), part("to", to), name, tried, attempt].into_iter().flatten();
    format!("{what}{}, since {} ({} ago)", parts.collect::<String>(), clock(since.0), age(since.0, now))
}

/// Summary of the replicas that are not shown one by one.
fn rest_words(rest: &[&StoryReplica], now: Timestamp) -> String {
    let nodes = |word: &str, node: fn(&StoryReplica) -> Option<&NodeName>| {
        let mut names: Vec<&NodeName> = rest.iter().filter_map(|replica| node(replica)).collect();
        names.sort_unstable();
        names.dedup();
        match names.as_slice() {
            [] => String::new(),
            [one] => format!(" {word} {one}"),
            many => format!(" {word} {} nodes", many.len()),
        }
    };
    let (from, to) = (nodes("from", |replica| replica.from.as_ref()), nodes("to", |replica| replica.to.as_ref()));
    let last = rest.iter().map(|replica| replica.since.0).max().unwrap_or(now);
    format!("and {} more{from}{to}, the last since {} ({} ago)", rest.len(), clock(last), age(last, now))
}
