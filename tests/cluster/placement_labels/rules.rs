//! Decisions of autoscalers and deschedulers about pods with terms, by their own rules on node affinity, without
//! running them.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use ganglion_api::marks::{LABEL_DOMAIN, POD_POLICY};
use serde_json::{Value, json};
use testkit::root;

use super::creation::{STRICT, STRICT_KEY};
use super::scene::{KEY, Scene, terms};

type Labels = BTreeMap<String, String>;

fn labels(key: &str, value: &str) -> Labels {
    BTreeMap::from([("kubernetes.io/hostname".to_owned(), "a".to_owned()), (key.to_owned(), value.to_owned())])
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Whether a node has what an expression asks for. Operators that compare numbers do not occur in our terms.
fn holds(expression: &Value, labels: &Labels) -> bool {
    let present = expression["key"].as_str().and_then(|key| labels.get(key));
    let is_listed = present.is_some_and(|value| list(&expression["values"]).any(|one| one == value.as_str()));
    match expression["operator"].as_str() {
        Some("In") => is_listed,
        Some("NotIn") => !is_listed,
        Some("Exists") => present.is_some(),
        Some("DoesNotExist") => present.is_none(),
        _ => false,
    }
}

/// Whether a node matches a term without `matchFields`. An empty term matches no node.
fn matches(term: &Value, labels: &Labels) -> bool {
    let mut expressions = list(&term["matchExpressions"]).peekable();
    expressions.peek().is_some() && expressions.all(|one| holds(one, labels))
}

/// Whether the required terms of a pod allow a node.
fn fits(pod: &Value, labels: &Labels) -> bool {
    let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    required.is_null() || list(&required["nodeSelectorTerms"]).any(|term| matches(term, labels))
}

/// Sum of the weights of the preferred terms that a node matches.
fn weight(pod: &Value, labels: &Labels) -> i64 {
    let matching = terms(pod).into_iter().filter(|term| matches(&term["preference"], labels));
    matching.filter_map(|term| term["weight"].as_i64()).sum()
}

/// The rule of the descheduler's plugin RemovePodsViolatingNodeAffinity with `requiredDuringScheduling…`, of June 2026:
/// it evicts a pod that does not fit its node, if it fits another one.
fn evicts_required(pod: &Value, own: &Labels, nodes: &[Labels]) -> bool {
    !fits(pod, own) && nodes.iter().any(|node| fits(pod, node))
}

/// The same with `preferredDuringScheduling…`: another node has more weight than its own.
fn evicts_preferred(pod: &Value, own: &Labels, nodes: &[Labels]) -> bool {
    nodes.iter().map(|node| weight(pod, node)).max() > Some(weight(pod, own))
}

/// Terms that the second scheduler adds to each pod.
fn added() -> Result<Vec<Value>> {
    let file = std::fs::read_to_string(root().join("kustomize/components/scheduler/scheduler.yaml"))?;
    let configuration: Value = serde_saphyr::from_str(&file)?;
    let affinity = &configuration["profiles"][0]["pluginConfig"][0]["args"]["addedAffinity"];
    ensure!(affinity["requiredDuringSchedulingIgnoredDuringExecution"].is_null(), "DaemonSet pods would hang");
    Ok(list(&affinity["preferredDuringSchedulingIgnoredDuringExecution"]).cloned().collect())
}

pub async fn obeyed(scene: &Scene<'_>) -> Result<()> {
    let soft = scene.until_terms(&json!({}), 4).await?;
    let strict = json!({"metadata": {"labels": {POD_POLICY: STRICT}}});
    let strict = scene.until("strict terms", &strict, |pod| terms(pod).len() == 4).await?;
    for (pod, key) in [(&soft, KEY), (&strict, STRICT_KEY)] {
        scored(pod, key)?;
        new_nodes(pod)?;
    }
    groups(&soft, &strict)?;
    descheduled(&soft, &strict)?;
    // The second scheduler adds the same terms.
    let of_scheduler = json!(added()?).to_string().replace(&format!("{LABEL_DOMAIN}default"), KEY);
    let of_scheduler: Vec<Value> = serde_json::from_str(&of_scheduler)?;
    ensure!(of_scheduler == terms(&soft), "{of_scheduler:?}");
    Ok(())
}

/// The weights of a node add up to six times its label.
fn scored(pod: &Value, key: &str) -> Result<()> {
    for level in 0..=15 {
        let found = weight(pod, &labels(key, &level.to_string()));
        ensure!(found == 6 * level, "level {level} has the weight {found}");
    }
    let rejected = weight(pod, &labels(key, "rejected"));
    ensure!(rejected == 0, "a rejected node has the weight {rejected}");
    Ok(())
}

/// Karpenter takes the preferred term with the greatest weight as required: with `In` on a label that only the operator
/// sets, no new node fits it, and Karpenter drops it. `DoesNotExist` and `NotIn` fit each new node, so that Karpenter
/// launches nodes and stops consolidation (kubernetes-sigs/karpenter#1265). It ignores pods whose required terms have
/// `matchFields` or the host name.
fn new_nodes(pod: &Value) -> Result<()> {
    let fresh = Labels::from([("kubernetes.io/hostname".to_owned(), "fresh".to_owned())]);
    let all = terms(pod);
    ensure!(all.len() <= 4, "each term is one more simulation: {all:?}");
    for term in &all {
        let expressions: Vec<&Value> = list(&term["preference"]["matchExpressions"]).collect();
        ensure!(expressions.iter().all(|one| one["operator"] == "In"), "{term}");
        ensure!(term["preference"]["matchFields"].is_null(), "{term}");
        ensure!(!matches(&term["preference"], &fresh), "a new node seems to fit {term}");
    }
    ensure!(fits(pod, &fresh), "a new node does not fit the required terms");
    let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let text = required.to_string();
    ensure!(!text.contains("matchFields") && !text.contains("kubernetes.io/hostname"), "{text}");
    Ok(())
}

/// cluster-autoscaler takes a new node of a group for a copy of one of its nodes, with its labels: if a policy rejects
/// all of them softly, a pending pod still fits a new node.
fn groups(soft: &Value, strict: &Value) -> Result<()> {
    ensure!(fits(soft, &labels(KEY, "0")), "a group that is rejected softly is never scaled up");
    ensure!(!fits(strict, &labels(STRICT_KEY, "rejected")), "required rejections do not repel pods");
    ensure!(fits(strict, &labels(STRICT_KEY, "0")), "the worst label is no rejection");
    Ok(())
}

/// descheduler evicts running pods from rejected nodes, and, where it looks at preferred terms, from each node that is
/// not the best one: endlessly, since scores move (kubernetes-sigs/descheduler#1410 and #1707). The page says so.
fn descheduled(soft: &Value, strict: &Value) -> Result<()> {
    let levels: Vec<Labels> = ["9", "8", "0"].iter().map(|level| labels(KEY, level)).collect();
    ensure!(evicts_preferred(soft, &levels[1], &levels) && !evicts_preferred(soft, &levels[0], &levels));
    ensure!(levels.iter().all(|own| !evicts_required(soft, own, &levels)), "soft rejections evict running pods");
    let nodes = ["rejected", "0"].map(|label| labels(STRICT_KEY, label));
    ensure!(evicts_required(strict, &nodes[0], &nodes) && !evicts_required(strict, &nodes[1], &nodes));
    let page = std::fs::read_to_string(root().join("samples/placementpolicy/README.md"))?;
    for words in ["RemovePodsViolatingNodeAffinity", "`preferredDuringSchedulingIgnoredDuringExecution`"] {
        ensure!(page.contains(words), "the page does not say {words}");
    }
    Ok(())
}
