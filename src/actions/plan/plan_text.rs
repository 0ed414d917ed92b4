//! A plan as text for a terminal: what each replica would do and why, and why other nodes and pods were not chosen.
//!
//! The text is bounded, however large the cluster is: of items that are refused for the same reason, some are shown and
//! the rest is counted.

use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::{NodeChoice, Plan, PlannedReplica, PodChoice};
use ganglion_core::facts::NodeName;
use ganglion_core::layout::{paragraph, table};

/// Maximum number of nodes or pods listed for one message, of messages for one reason, and of explained replicas.
const ALIKE: usize = 8;

/// Maximum length of a reason in the table of replicas, in characters.
const SHORT: usize = 40;

/// Table of the replicas with the reason of each choice; empty if nothing would be done.
pub fn replicas(plan: &Plan) -> String {
    if plan.replicas.is_empty() {
        return String::new();
    }
    let rows: Vec<[String; 4]> = plan.replicas.iter().map(|replica| row(plan, replica)).collect();
    let mut text = table(["POD", "FROM", "TO", "WHY"], rows);
    let chosen: Vec<&NodeChoice> = plan.nodes.iter().filter(|node| node.replicas > 0).collect();
    let long = chosen.iter().filter(|node| node_words(node).chars().count() > SHORT);
    text.extend(long.take(ALIKE).map(|node| paragraph(&format!("{}: ", node.name), node_words(node))));
    // The table contains the reason of a deleted pod.
    let leaving: Vec<&PodChoice> = plan.pods.iter().filter(|pod| pod.chosen && !chosen.is_empty()).collect();
    for (message, group) in grouped(&leaving, |pod| pod.message.as_str()).iter().take(ALIKE) {
        text.push_str(&paragraph("", &format!("{}: {message}", names(group, |pod| pod.name.clone()))));
    }
    text
}

fn row(plan: &Plan, replica: &PlannedReplica) -> [String; 4] {
    let shown = |node: Option<&NodeName>| node.map_or("-", NodeName::as_str).to_owned();
    let node = replica.to.as_ref().and_then(|to| plan.nodes.iter().find(|node| node.name == *to));
    let pod = replica.pod.as_ref().and_then(|name| plan.pods.iter().find(|pod| pod.name == *name));
    let why = node.map(node_words).or(pod.map(|pod| pod.message.as_str())).unwrap_or_default();
    let pod = replica.pod.as_deref().unwrap_or("(new)");
    [pod.to_owned(), shown(replica.from.as_ref()), shown(replica.to.as_ref()), why.to_owned()]
}

/// The nodes and pods that were not chosen, with the reasons.
pub fn others(plan: &Plan) -> String {
    let nodes: Vec<&NodeChoice> = plan.nodes.iter().filter(|node| node.replicas == 0).collect();
    let pods: Vec<&PodChoice> = plan.pods.iter().filter(|pod| !pod.chosen).collect();
    let left = |total: i64, listed: usize| usize::try_from(total).unwrap_or(0).saturating_sub(listed);
    other_nodes(&nodes, left(plan.nodes_total, plan.nodes.len()))
        + &other_pods(&pods, left(plan.pods_total, plan.pods.len()))
}

/// Nodes that the user's own conditions exclude come last.
fn other_nodes(nodes: &[&NodeChoice], unlisted: usize) -> String {
    let mut text = head("nodes", nodes.len() + unlisted);
    let mut reasons = grouped(nodes, |node| node.refused);
    reasons.sort_by_key(|(reason, _)| *reason == Some(Reason::NodeExcluded));
    for (reason, group) in reasons {
        let label = reason.map_or("possible", Reason::as_str);
        let name = |node: &NodeChoice| node.name.to_string();
        text.push_str(&alike(&group, node_words, name, |words| format!("{label}: {words}"), label));
    }
    text + &more(unlisted, "which a plan does not list")
}

fn other_pods(pods: &[&PodChoice], unlisted: usize) -> String {
    let name = |pod: &PodChoice| match &pod.node {
        Some(node) => format!("{} on {node}", pod.name),
        None => pod.name.clone(),
    };
    head("pods", pods.len() + unlisted)
        + &alike(pods, |pod| &pod.message, name, str::to_owned, "for other reasons")
        + &more(unlisted, "which a plan does not list")
}

fn head(what: &str, count: usize) -> String {
    if count > 0 { format!("\nNot chosen, of the {what}: {count}\n") } else { String::new() }
}

/// The items, grouped by message: the names, then the reason.
fn alike<T>(
    items: &[&T],
    message: impl Fn(&T) -> &str,
    name: impl Fn(&T) -> String,
    words: impl Fn(&str) -> String,
    rest: &str,
) -> String {
    let groups = grouped(items, message);
    let line = |(message, group): &(&str, Vec<&T>)| {
        paragraph("  ", &format!("{}: {}", names(group, |item| name(item)), words(message)))
    };
    let shown: String = groups.iter().take(ALIKE).map(line).collect();
    shown + &more(groups.iter().skip(ALIKE).map(|(_, group)| group.len()).sum(), rest)
}

/// Some names, and the number of further ones.
fn names<T>(items: &[&T], name: impl Fn(&T) -> String) -> String {
    let shown: Vec<String> = items.iter().take(ALIKE).map(|item| name(item)).collect();
    let more = items.len().saturating_sub(ALIKE);
    shown.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

fn more(count: usize, which: &str) -> String {
    if count > 0 { format!("  and {count} more: {which}\n") } else { String::new() }
}

/// The message about a node, without the leading name.
fn node_words(node: &NodeChoice) -> &str {
    node.message.strip_prefix(&format!("{}: ", node.name)).unwrap_or(&node.message)
}

/// The items grouped by key, in the order of the first item of each group.
pub fn grouped<'a, T, K: PartialEq>(items: &[&'a T], key: impl Fn(&'a T) -> K) -> Vec<(K, Vec<&'a T>)> {
    let mut groups: Vec<(K, Vec<&'a T>)> = Vec::new();
    for item in items {
        let key = key(item);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}
