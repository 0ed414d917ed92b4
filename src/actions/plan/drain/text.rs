//! A drain as text for a terminal: its plan, its live tree, its progress line by line, its end.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::super::preview::ActionPreview;
use super::super::report::step_words;
use super::action::{is_open, key_of};
use super::plan::WorkloadMove;
use super::progress::{DrainProgress, MoveState, slots};
use super::report::PlannedHow;
use super::{DrainOutcome, DrainReport, MoveKey, PendingPod, PlannedMove, Stay};
use ganglion_api::workload_action::WorkloadAction;
use ganglion_api::workload_action::status::{Slot, Step};
use ganglion_core::facts::{Identity, NodeName};
use ganglion_core::layout::{age, paragraph, table};
use ganglion_core::words::counted;

/// Maximum number of target nodes named in a plan.
const TARGETS: usize = 4;

/// Text of the plan of a drain. `previews` are the operator's own plans, as far as they are known.
pub fn plan_text(
    progress: &DrainProgress,
    report: &DrainReport,
    previews: &BTreeMap<MoveKey, ActionPreview>,
) -> String {
    let DrainProgress { nodes, plan, .. } = progress;
    let mut text = paragraph("", &format!("{} would be cordoned. Nothing was changed.", nodes_words(nodes)));
    let leaves = report.leaves.iter().map(|one| {
        [one.namespace.clone(), one.what.clone(), one.node.to_string(), one.pods.len().to_string(), planned_words(one)]
    });
    let mut rows: Vec<[String; 5]> = leaves.collect();
    rows.extend(report.stays.iter().map(stay_row));
    rows.sort_by_key(|row| row[4].starts_with("stays: "));
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

fn stay_row(stay: &Stay) -> [String; 5] {
    let Stay { namespace, what, node, pods, message, .. } = stay;
    [namespace.clone(), what.clone(), node.to_string(), pods.to_string(), format!("stays: {message}")]
}

fn planned_words(planned: &PlannedMove) -> String {
    if let Some(why) = &planned.waits {
        return format!("waits: {why}");
    }
    let how = match planned.how {
        PlannedHow::Evicted => return "is evicted".to_owned(),
        PlannedHow::Waited => return "is waited for until it ends".to_owned(),
        PlannedHow::Terminating => return "terminates".to_owned(),
        PlannedHow::InMotion => return "an action moves it already".to_owned(),
        PlannedHow::OldPodFirst => "the old pod goes first",
        PlannedHow::ReplacementFirst => "each new pod Ready before the old one goes",
    };
    let targets: Vec<&str> = planned.to.iter().map(NodeName::as_str).take(TARGETS).collect();
    let more = if planned.to.len() > TARGETS { ", …" } else { "" };
    let to = if targets.is_empty() { String::new() } else { format!(" to {}{more}", targets.join(", ")) };
    format!("moves{to}: {how}")
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
    let own = progress.plan.evictions.iter().filter(|one| one.stay.node == *node);
    for one in own.filter(|one| one.missing(progress.wishes).is_empty() || one.is_waited_for(progress.wishes)) {
        let what = &one.stay.what;
        let line = match (progress.block(&one.pod), progress.refusal(&one.pod)) {
            (None, Some(_)) => continue,
            (Some(words), _) => format!("{what}: waits: {words}"),
            (None, None) if one.is_waited_for(progress.wishes) => format!("{what}: waited for: {}", one.stay.message),
            (None, None) => format!("{what}: is evicted"),
        };
        all.entry(one.stay.namespace.clone()).or_default().push(Branch::leaf(line));
    }
    for one in progress.plan.leaving.iter().filter(|one| one.stay.node == *node && !progress.is_stuck(one)) {
        let line = format!("{}: {}", one.stay.what, one.stay.message);
        all.entry(one.stay.namespace.clone()).or_default().push(Branch::leaf(line));
    }
    for stay in progress.stays(false).iter().filter(|stay| stay.node == *node && !stay.is_expected()) {
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
        let (reason, message) = progress.words_of(action);
        reason.map(|reason| format!("{reason}: ")).unwrap_or_default() + &message
    };
    let state = progress.plan.moves.iter().find(|of| of.key() == *key).map(|of| (of, progress.state(of)));
    let line = match state {
        // Pods that an action works on are not part of the plan.
        None if actions().any(is_open) => name,
        None => format!("{name}: done"),
        Some((_, MoveState::Open(action))) if below.is_empty() => {
            format!("{name}: {}", why(action))
        }
        Some((_, MoveState::Open(_))) => name,
        Some((of, MoveState::ToDo)) => {
            format!("{name}: waits for its turn, with {}", counted(of.pods.len() as u64, "pod"))
        }
        Some((of, MoveState::NeedsDisruption)) => format!("{name}: stays: {}", of.why()),
        Some((_, state)) if progress.wishes.disruption && progress.is_left_alone(&state) => {
            format!("{name}: its pods are evicted")
        }
        Some((_, MoveState::NotSelected)) => format!("{name}: stays: --pod-selector does not select all its pods"),
        Some((_, MoveState::Refused(words))) => format!("{name}: stays: {words}"),
        Some((_, MoveState::Ended(action))) => format!("{name}: stays: {}", why(action)),
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

/// One line for each replica that has ended; if `all`, one line for each replica with its current step. Also one line
/// if no operator works, and one for each pod whose eviction a budget does not allow.
pub fn news(progress: &DrainProgress, all: bool) -> Vec<String> {
    let line = |action: &WorkloadAction, slot: &Slot| {
        let Identity { key, .. } = (&action.metadata).into();
        (all || slot.step.is_end()).then(|| format!("{}/{}", key.namespace, slot_line(slot, None)))
    };
    let of_slots = progress.actions.iter().flat_map(|action| slots(action).iter().map(move |slot| (action, slot)));
    let mut lines: Vec<String> = progress.operator.map(ToOwned::to_owned).into_iter().collect();
    lines.extend(of_slots.filter_map(|(action, slot)| line(action, slot)));
    let blocked = |pod: &Identity| progress.block(pod).map(|words| format!("{}: waits: {words}", pod.key));
    lines.extend(progress.next_evictions().into_iter().filter_map(blocked));
    lines
}

/// Text of the report at the end of a drain. If `plan`, of the plan of a drain, before anything has moved.
pub fn report_text(report: &DrainReport, plan: bool) -> String {
    let DrainReport { moved, evicted, stays, incomplete, pending, took, .. } = report;
    let mut text = String::new();
    if !plan {
        let more = if *evicted > 0 { format!(", {} evicted", counted(*evicted as u64, "pod")) } else { String::new() };
        text.push_str(&format!("{} moved{more} in {took}.\n", counted(*moved as u64, "replica")));
    }
    let (expected, others): (Vec<&Stay>, Vec<&Stay>) = stays.iter().partition(|stay| stay.is_expected());
    let mut advice: Vec<&String> = Vec::new();
    let lines = others.iter().copied().map(|stay| ("stays: ", stay));
    for (word, stay) in lines.chain(incomplete.iter().map(|stay| ("not complete: ", stay))) {
        let why = stay.reason.as_ref().map(|reason| format!("{reason}: ")).unwrap_or_default();
        let Stay { namespace, what, node, pods, message, .. } = stay;
        let on = match pods {
            0 => format!("from {node}"),
            _ => format!("on {node} ({})", counted(*pods as u64, "pod")),
        };
        text.push_str(&paragraph(word, &format!("{namespace} {what} {on}: {why}{message}")));
        if let Some(words) = stay.advice.as_ref().filter(|words| !advice.contains(words)) {
            advice.push(words);
            text.push_str(&paragraph("  -> ", words));
        }
    }
    for PendingPod { namespace, name, owner, message } in pending {
        text.push_str(&paragraph("pending: ", &format!("{namespace} Pod/{name} of {owner}: {message}")));
    }
    if !expected.is_empty() && !plan {
        let names: Vec<String> = expected.iter().map(|stay| format!("{} {}", stay.namespace, stay.what)).collect();
        text.push_str(&paragraph("stays as expected: ", &names.join(", ")));
    }
    text.push_str(&paragraph("", &last_words(report, plan)));
    text
}

/// The sentence about the nodes at the end of a report.
fn last_words(report: &DrainReport, plan: bool) -> String {
    let DrainReport { nodes, outcome, stays, incomplete, .. } = report;
    let (who, is) = (nodes_words(nodes), if nodes.len() == 1 { "is" } else { "are" });
    let pods: usize = stays.iter().filter(|stay| !stay.is_expected()).map(|stay| stay.pods).sum();
    let left = counted(pods as u64, "pod");
    let time = if *outcome == DrainOutcome::TimedOut { "The time is over. " } else { "" };
    match (pods, plan) {
        (0, true) => format!("{who} would be empty but for DaemonSets and static pods."),
        (_, true) => format!("{who} would not be empty: {left} would not leave."),
        (0, false) if incomplete.is_empty() => format!("{time}{who} {is} empty but for DaemonSets and static pods."),
        (0, false) => {
            let moves = counted(incomplete.len() as u64, "move");
            format!("{time}{who} {is} empty but for DaemonSets and static pods; {moves} not complete.")
        }
        (_, false) => format!("{time}{who} {is} cordoned and not empty: {left} left."),
    }
}

/// The nodes as text: `Node a`, `Nodes a, b`.
pub fn nodes_words(nodes: &[NodeName]) -> String {
    format!("{} {}", if nodes.len() == 1 { "Node" } else { "Nodes" }, nodes.join(", "))
}
