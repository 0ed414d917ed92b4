//! Terms of node affinity that read labels: those in the spec of a pod, and those that a profile of a scheduler adds.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, Pod};
use serde::Serialize;
use serde_json::Value;

use ganglion_api::marks::LABEL_DOMAIN;
use ganglion_api::placement_policy::DEFAULT_SCHEDULER;
use ganglion_core::words::counted;

/// Terms that read one label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelTerms {
    pub key: String,
    /// Weights of the preferred terms, in their order.
    pub weights: Vec<i32>,
    /// Expressions of the required terms, such as `NotIn rejected`, each once.
    pub required: Vec<String>,
}

impl LabelTerms {
    /// Terms in the spec of a pod, by key.
    pub fn of_pod(pod: &Pod) -> Vec<Self> {
        let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
        affinity.map(Self::of_affinity).unwrap_or_default()
    }

    /// Terms that a KubeSchedulerConfiguration adds to the pods of this scheduler; None if it has no profile for them.
    pub fn of_profile(configuration: &Value, scheduler: &str) -> Option<Vec<Self>> {
        let profiles = configuration["profiles"].as_array()?;
        let profile = profiles.iter().find(|profile| name(profile) == scheduler)?;
        let plugins = profile["pluginConfig"].as_array().into_iter().flatten();
        let affinity = plugins.filter(|plugin| plugin["name"] == "NodeAffinity").find_map(|plugin| {
            let added = plugin["args"]["addedAffinity"].clone();
            serde_json::from_value::<NodeAffinity>(added).ok()
        });
        Some(affinity.as_ref().map(Self::of_affinity).unwrap_or_default())
    }

    fn of_affinity(affinity: &NodeAffinity) -> Vec<Self> {
        let mut found: BTreeMap<String, Self> = BTreeMap::new();
        for term in affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten() {
            // A term with several expressions counts once.
            if let Some(first) = expressions(&term.preference).next() {
                entry(&mut found, &first.key).weights.push(term.weight);
            }
        }
        let required = affinity.required_during_scheduling_ignored_during_execution.iter();
        for expression in required.flat_map(|required| &required.node_selector_terms).flat_map(expressions) {
            let values = expression.values.as_deref().unwrap_or_default().join(", ");
            let text = format!("{} {values}", expression.operator).trim_end().to_owned();
            let terms = entry(&mut found, &expression.key);
            if !terms.required.contains(&text) {
                terms.required.push(text);
            }
        }
        found.into_values().collect()
    }

    /// Describes the terms: `2 preferred terms (weights 6, 12) and the required expression NotIn rejected read KEY`.
    pub fn text(&self) -> String {
        let mut parts = Vec::new();
        if !self.weights.is_empty() {
            let weights: Vec<String> = self.weights.iter().map(i32::to_string).collect();
            let label = if weights.len() == 1 { "weight" } else { "weights" };
            let count = counted(i64::try_from(weights.len()).unwrap_or(i64::MAX), "preferred term");
            parts.push(format!("{count} ({label} {})", weights.join(", ")));
        }
        parts.extend(self.required.iter().map(|text| format!("the required expression {text}")));
        let reads = if self.weights.len() + self.required.len() == 1 { "reads" } else { "read" };
        format!("{} {reads} {}", parts.join(" and "), self.key)
    }
}

fn entry<'a>(found: &'a mut BTreeMap<String, LabelTerms>, key: &str) -> &'a mut LabelTerms {
    found.entry(key.to_owned()).or_insert_with(|| LabelTerms { key: key.to_owned(), ..LabelTerms::default() })
}

/// Expressions of a term that read labels of policies.
fn expressions(term: &NodeSelectorTerm) -> impl Iterator<Item = &NodeSelectorRequirement> {
    let all = term.match_expressions.iter().flatten();
    all.filter(|expression| expression.key.starts_with(LABEL_DOMAIN))
}

/// Name of the scheduler of a profile.
fn name(profile: &Value) -> &str {
    profile["schedulerName"].as_str().unwrap_or(DEFAULT_SCHEDULER)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::labels::key;

    fn term(weight: i32, key: &str) -> Value {
        json!({"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": ["1"]}]}})
    }

    fn affinity() -> Value {
        let repels = json!({"key": key("green"), "operator": "NotIn", "values": ["rejected"]});
        json!({
            "preferredDuringSchedulingIgnoredDuringExecution": [
                term(7, "disk"), term(6, &key("green")), term(12, &key("green")), term(3, &key("blue")),
            ],
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "Exists"}, repels]},
                {"matchExpressions": [repels]},
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]},
            ]},
        })
    }

    fn texts(terms: &[LabelTerms]) -> Vec<String> {
        terms.iter().map(LabelTerms::text).collect()
    }

    #[test]
    fn terms_of_a_pod_are_those_that_read_labels_of_policies() {
        let pod = json!({"spec": {"containers": [], "affinity": {"nodeAffinity": affinity()}}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        assert_eq!(
            texts(&LabelTerms::of_pod(&pod)),
            [
                format!("1 preferred term (weight 3) reads {}", key("blue")),
                format!(
                    "2 preferred terms (weights 6, 12) and the required expression NotIn rejected read {}",
                    key("green")
                ),
            ]
        );
        assert_eq!(LabelTerms::of_pod(&Pod::default()), []);
    }

    #[test]
    fn a_profile_adds_its_terms_to_the_pods_of_its_scheduler() {
        let configuration = json!({"profiles": [
            {"pluginConfig": [{"name": "NodeResourcesFit"}, {"name": "NodeAffinity", "args": {}}]},
            {"schedulerName": "second", "pluginConfig": [
                {"name": "NodeAffinity", "args": {"addedAffinity": affinity()}},
            ]},
            {"schedulerName": "plain"},
        ]});
        let found = LabelTerms::of_profile(&configuration, "second").expect("a profile");
        assert_eq!(found.iter().map(|terms| terms.key.clone()).collect::<Vec<_>>(), [key("blue"), key("green")]);
        for scheduler in ["plain", DEFAULT_SCHEDULER] {
            assert_eq!(LabelTerms::of_profile(&configuration, scheduler), Some(Vec::new()), "{scheduler}");
        }
        for other in [configuration, json!({}), json!({"profiles": {}}), json!([])] {
            assert_eq!(LabelTerms::of_profile(&other, "other"), None);
        }
    }
}
