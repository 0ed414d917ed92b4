//! A drain as text for a terminal: its plan, its live tree, its progress line by line, its end.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::super::explain::cause;
use super::super::preview::{ActionPreview, PreviewOutcome};
use super::super::report::step_words;
use super::action::{is_open, key_of};
use super::plan::WorkloadMove;
use super::progress::{DrainProgress, MoveState, slots};
use super::{DrainOutcome, DrainReport, MoveKey, Stay, StayCause};
use ganglion_api::workload_action::WorkloadAction;
use ganglion_api::workload_action::status::{Slot, Step};
use ganglion_core::facts::{Identity, NodeName};
use ganglion_core::layout::{age, paragraph, table};
use ganglion_core::words::counted;

/// Maximum number of target nodes named in a plan.
const TARGETS: usize = 4;

/// Text of the plan of a drain. `previews` are the operator's own plans, as far as they are known.
pub fn plan_text(progress: &DrainProgress, previews: &BTreeMap<MoveKey, ActionPreview>) -> String {
    let DrainProgress { nodes, plan, wishes, .. } = progress;
    let mut text = paragraph("", &format!("{} would be cordoned. Nothing was changed.", nodes_words(nodes)));
    let row = |of: &WorkloadMove| {
        let what = match progress.state(of) {
            MoveState::NeedsDisruption => format!("stays: {}", of.why()),
            _ => previewed(of, previews.get(&of.key())),
        };
        [of.namespace.clone(), of.words(), of.node.to_string(), of.pods.len().to_string(), what]
    };
    let mut rows: Vec<[String; 5]> = plan.moves.iter().map(row).collect();
    let waits = if wishes.leave_jobs { "stays: " } else { "waited for: " };
    rows.extend(plan.jobs.iter().map(|stay| as_row(stay, waits)));
    rows.extend(plan.leaving.iter().map(|stay| as_row(stay, "leaves: ")));
    rows.extend(plan.stays.iter().map(|stay| as_row(stay, "stays: ")));
    if !rows.is_empty() {
        text.push('\n');
        text.push_str(&table(["NAMESPACE", "WORKLOAD", "NODE", "PODS", "WHAT"], rows));
        text.push('\n');
    }
    let mut notes: Vec<&String> = plan.notes.iter().chain(previews.values().flat_map(|one| &one.notes)).collect();
    notes.sort();
    notes.dedup();
    text.extend(notes.into_iter().map(|note| paragraph("Note: ", note)));
    text
}

fn as_row(stay: &Stay, word: &str) -> [String; 5] {
    let Stay { namespace, what, node, pods, message, .. } = stay;
    [namespace.clone(), what.clone(), node.to_string(), pods.to_string(), format!("{word}{message}")]
}

fn previewed(of: &WorkloadMove, preview: Option<&ActionPreview>) -> String {
    let how = if of.disrupts() { "the old pod goes first" } else { "each new pod Ready before the old one goes" };
    let Some(preview) = preview else { return format!("moves: {how}") };
    let why = || preview.reason.iter().chain(&preview.message).cloned().collect::<Vec<_>>().join(": ");
    match preview.outcome {
        PreviewOutcome::Starts => {
            let mut targets: Vec<&str> = preview
                .plan
                .iter()
                .flat_map(|plan| &plan.replicas)
                .filter_map(|one| one.to.as_ref())
                .map(NodeName::as_str)
                .collect();
            targets.sort_unstable();
            targets.dedup();
            let more = if targets.len() > TARGETS { ", …" } else { "" };
            targets.truncate(TARGETS);
            let to = if targets.is_empty() { String::new() } else { format!(" to {}{more}", targets.join(", ")) };
            format!("moves{to}: {how}")
        }
        PreviewOutcome::Nothing => "nothing to do".to_owned(),
        PreviewOutcome::Waits => format!("waits: {}", why()),
        PreviewOutcome::Ends | PreviewOutcome::Refused => format!("stays: {}", why()),
    }
}

/// Pods that stay according to the plan, including those whose action the operator would not start.
pub fn stays_of_plan(progress: &DrainProgress, previews: &BTreeMap<MoveKey, ActionPreview>) -> Vec<Stay> {
    let would_end = |of: &&WorkloadMove| {
        let ends = |preview: &ActionPreview| matches!(preview.outcome, PreviewOutcome::Ends | PreviewOutcome::Refused);
        matches!(progress.state(of), MoveState::ToDo) && previews.get(&of.key()).is_some_and(ends)
    };
    let stay = |of: &WorkloadMove| {
        let preview = previews.get(&of.key());
        Stay {
            namespace: of.namespace.clone(),
            what: of.words(),
            node: of.node.clone(),
            pods: of.pods.len(),
            cause: StayCause::NotMoved,
            reason: preview.and_then(|preview| preview.reason.clone()),
            message: preview.and_then(|preview| preview.message.clone()).unwrap_or_default(),
            advice: preview.and_then(|preview| preview.advice.clone()),
        }
    };
    progress.plan.moves.iter().filter(would_end).map(stay).chain(progress.stays()).collect()
}

/// A line of the tree, with its children.
struct Branch {
    line: String,
    below: Vec<Branch>,
}

impl Branch {
    fn leaf(line: String) -> Self {
        Self { line, below: Vec::new() }
    }

    fn render(&self, before: &str, lines: &mut Vec<String>) {
        let last = self.below.len().saturating_sub(1);
        for (at, branch) in self.below.iter().enumerate() {
            let (own, next) = if at == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            lines.push(format!("{before}{own}{}", branch.line));
            branch.render(&format!("{before}{next}"), lines);
        }
    }
}

/// The live tree: nodes, namespaces, workloads and replicas, each with the obstacle that it waits for. It is cut to
/// `rows` lines and `columns` columns.
pub fn tree(
    progress: &DrainProgress,
    since: Timestamp,
    now: Timestamp,
    (rows, columns): (usize, usize),
) -> Vec<String> {
    let mut lines = Vec::new();
    for node in progress.nodes {
        let namespaces = namespaces(progress, node, now);
        let replicas = || progress.actions.iter().filter(|action| is_of(action, node)).flat_map(slots);
        let done = replicas().filter(|slot| slot.step == Step::Succeeded).count();
        let open = replicas().filter(|slot| !slot.step.is_end()).count();
        lines.push(format!(
            "{node}: {} moved, {open} in motion ({})",
            counted(done as u64, "replica"),
            age(since, now)
        ));
        Branch { line: String::new(), below: namespaces }.render("", &mut lines);
    }
    fit(lines, rows, columns)
}

fn fit(mut lines: Vec<String>, rows: usize, columns: usize) -> Vec<String> {
    let more = (lines.len() + 1).saturating_sub(rows);
    if lines.len() > rows {
        lines.truncate(rows.saturating_sub(1));
        lines.push(format!("… and {} more", counted(more as u64, "line")));
    }
    for line in &mut lines {
        if line.chars().count() > columns {
            *line = line.chars().take(columns.saturating_sub(1)).chain(['…']).collect();
        }
    }
    lines
}

fn is_of(action: &WorkloadAction, node: &NodeName) -> bool {
    key_of(action).is_some_and(|key| key.node == *node)
}

fn namespaces(progress: &DrainProgress, node: &NodeName, now: Timestamp) -> Vec<Branch> {
    let mut all: BTreeMap<String, Vec<Branch>> = BTreeMap::new();
    let mut keys: Vec<MoveKey> = progress.plan.moves.iter().map(WorkloadMove::key).collect();
    keys.extend(progress.actions.iter().filter_map(key_of));
    keys.sort();
    keys.dedup();
    for key in keys.iter().filter(|key| key.node == *node) {
        all.entry(key.namespace.clone()).or_default().push(workload(progress, key, now));
    }
    let waited = if progress.wishes.leave_jobs { [].iter() } else { progress.plan.jobs.iter() };
    for stay in waited.filter(|stay| stay.node == *node) {
        let line = format!("{}: waited for: {}", stay.what, stay.message);
        all.entry(stay.namespace.clone()).or_default().push(Branch::leaf(line));
    }
    for stay in progress.stays().iter().filter(|stay| stay.node == *node && !stay.is_expected()) {
        if stay.what.starts_with("Pod/") {
            let line = format!("{}: stays: {}", stay.what, stay.message);
            all.entry(stay.namespace.clone()).or_default().push(Branch::leaf(line));
        }
    }
    all.into_iter().map(|(line, below)| Branch { line, below }).collect()
}

fn workload(progress: &DrainProgress, key: &MoveKey, now: Timestamp) -> Branch {
    let name = format!("{}/{}", key.kind, key.name);
    let actions = || progress.actions.iter().filter(|action| key_of(action).as_ref() == Some(key));
    let below: Vec<Branch> = actions().flat_map(slots).map(|slot| Branch::leaf(slot_line(slot, Some(now)))).collect();
    let why = |action: &WorkloadAction| {
        action.status.as_ref().and_then(cause).map(|one| format!("{}: {}", one.reason, one.message))
    };
    let unseen = || "the operator has not seen the action yet".to_owned();
    let state = progress.plan.moves.iter().find(|of| of.key() == *key).map(|of| (of, progress.state(of)));
    let line = match state {
        // Pods that an action works on are not part of the plan.
        None if actions().any(is_open) => name,
        None => format!("{name}: done"),
        Some((_, MoveState::Open(action))) if below.is_empty() => {
            format!("{name}: {}", why(action).unwrap_or_else(unseen))
        }
        Some((_, MoveState::Open(_))) => name,
        Some((of, MoveState::ToDo)) => {
            format!("{name}: waits for its turn, with {}", counted(of.pods.len() as u64, "pod"))
        }
        Some((of, MoveState::NeedsDisruption)) => format!("{name}: stays: {}", of.why()),
        Some((_, MoveState::Refused(words))) => format!("{name}: stays: {words}"),
        Some((_, MoveState::Ended(action))) => format!("{name}: stays: {}", why(action).unwrap_or_default()),
    };
    Branch { line, below }
}

fn slot_line(slot: &Slot, now: Option<Timestamp>) -> String {
    let pod = slot.victim.as_ref().map(|pod| pod.name.as_str()).unwrap_or_default();
    let to = slot.replacement.as_ref().map(|pod| format!(" → {}", pod.node)).unwrap_or_default();
    let why = match (&slot.reason, &slot.message) {
        (Some(reason), Some(message)) => format!(": {reason}: {message}"),
        (None, Some(message)) => format!(": {message}"),
        _ => String::new(),
    };
    let time = now.filter(|_| !slot.step.is_end()).map(|now| format!(" ({})", age(slot.since.0, now)));
    format!("{pod}{to}: {}{why}{}", step_words(slot.step), time.unwrap_or_default())
}

/// One line for each replica that has ended; if `all`, one line for each replica with its current step.
pub fn news(progress: &DrainProgress, all: bool) -> Vec<String> {
    let line = |action: &WorkloadAction, slot: &Slot| {
        let Identity { key, .. } = (&action.metadata).into();
        (all || slot.step.is_end()).then(|| format!("{}/{}", key.namespace, slot_line(slot, None)))
    };
    progress.actions.iter().flat_map(|action| slots(action).iter().filter_map(move |slot| line(action, slot))).collect()
}

/// Text of the report at the end of a drain. If `plan`, of the plan of a drain, before anything has moved.
pub fn report_text(report: &DrainReport, plan: bool) -> String {
    let DrainReport { nodes, outcome, moved, stays, took, .. } = report;
    let mut text =
        if plan { String::new() } else { format!("{} moved in {took}.\n", counted(*moved as u64, "replica")) };
    let (expected, others): (Vec<&Stay>, Vec<&Stay>) = stays.iter().partition(|stay| stay.is_expected());
    let mut advice: Vec<&String> = Vec::new();
    for stay in &others {
        let why = stay.reason.as_ref().map(|reason| format!("{reason}: ")).unwrap_or_default();
        let Stay { namespace, what, node, pods, message, .. } = stay;
        let count = counted(*pods as u64, "pod");
        text.push_str(&paragraph("stays: ", &format!("{namespace} {what} on {node} ({count}): {why}{message}")));
        if let Some(words) = stay.advice.as_ref().filter(|words| !advice.contains(words)) {
            advice.push(words);
            text.push_str(&paragraph("  -> ", words));
        }
    }
    if !expected.is_empty() && !plan {
        let names: Vec<String> = expected.iter().map(|stay| format!("{} {}", stay.namespace, stay.what)).collect();
        text.push_str(&paragraph("stays as expected: ", &names.join(", ")));
    }
    let (who, is) = (nodes_words(nodes), if nodes.len() == 1 { "is" } else { "are" });
    let pods: usize = others.iter().map(|stay| stay.pods).sum();
    let left = format!("{} would not leave", counted(pods as u64, "pod"));
    text.push_str(&paragraph(
        "",
        &match (outcome, plan) {
            (DrainOutcome::Empty, true) => format!("{who} would be empty but for DaemonSets and static pods."),
            (_, true) => format!("{who} would not be empty: {left}."),
            (DrainOutcome::Empty, false) => format!("{who} {is} empty but for DaemonSets and static pods."),
            (DrainOutcome::Stays, false) => {
                format!("{who} {is} cordoned and not empty: {} left.", counted(pods as u64, "pod"))
            }
            (DrainOutcome::TimedOut, false) => {
                format!("The time is over. {who} {is} cordoned and not empty: {} left.", counted(pods as u64, "pod"))
            }
        },
    ));
    text
}

/// The nodes as text: `Node a`, `Nodes a, b`.
pub fn nodes_words(nodes: &[NodeName]) -> String {
    format!("{} {}", if nodes.len() == 1 { "Node" } else { "Nodes" }, nodes.join(", "))
}
