//! The labels of all nodes for one policy.

use std::collections::HashMap;

use super::level::LevelScale;
use super::{LabelValue, TOP};
use ganglion_api::placement_policy::labels::{LabelOptions, LabelRejections};
use ganglion_core::facts::NodeName;

/// Default of [`LabelOptions::weight`].
const WEIGHT: u32 = 2;

/// Level of nodes without a score, while no node has one.
const MIDDLE: u8 = TOP / 2;

/// The best nodes, one of so many, share the best level. Labels follow a node that fills within seconds, and
/// kube-scheduler places hundreds of pods meanwhile: with one best node, all would go there.
const BEST_SHARE: usize = 10;

/// Opinion of a policy about a node, for the typical pod.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NodeVerdict {
    /// From 0 to 10.
    Scored(f64),
    /// The node has room for this pod, but not for a second one.
    NearlyFull,
    Rejected,
    /// The node is new, and data about it are missing; or it does not accept pods. Its label stays, and a node without
    /// one gets the median: with the worst label, it would stay empty.
    Unknown,
}

/// How a policy turns verdicts into labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelRules {
    pub weight: u32,
    pub rejections: LabelRejections,
}

impl LabelRules {
    pub fn new(options: Option<&LabelOptions>) -> Self {
        let weight = options.and_then(|options| options.weight).and_then(|weight| u32::try_from(weight).ok());
        let rejections = options.map(|options| options.rejections).unwrap_or_default();
        Self { weight: weight.unwrap_or(WEIGHT), rejections }
    }

    /// Labels of all nodes, and the score from which on a node has the best level. `current` has the present labels,
    /// `former` is that score in the pass before.
    pub fn labels(
        self,
        verdicts: &HashMap<NodeName, NodeVerdict>,
        current: impl Fn(&NodeName) -> Option<LabelValue>,
        former: Option<f64>,
    ) -> (HashMap<NodeName, LabelValue>, Option<f64>) {
        let scores = verdicts.values().filter_map(|verdict| match verdict {
            NodeVerdict::Scored(score) => Some(*score),
            NodeVerdict::NearlyFull | NodeVerdict::Rejected | NodeVerdict::Unknown => None,
        });
        let scale = best(scores.collect()).map(|best| LevelScale::new(self.weight, former, best));
        let known = |node: &NodeName, verdict: &NodeVerdict| match (verdict, scale) {
            (NodeVerdict::Scored(score), Some(scale)) => {
                let level = current(node).and_then(|label| match label {
                    LabelValue::Level(level) => Some(level),
                    LabelValue::Rejected => None,
                });
                Some(LabelValue::Level(scale.level(*score, level)))
            }
            (NodeVerdict::NearlyFull, _) => Some(LabelValue::Level(0)),
            (NodeVerdict::Rejected, _) => Some(match self.rejections {
                LabelRejections::Soft => LabelValue::Level(0),
                LabelRejections::Required => LabelValue::Rejected,
            }),
            (NodeVerdict::Scored(_), None) | (NodeVerdict::Unknown, _) => None,
        };
        let mut labels: HashMap<NodeName, LabelValue> =
            verdicts.iter().filter_map(|(node, verdict)| Some((node.clone(), known(node, verdict)?))).collect();
        let median = LabelValue::Level(median(labels.values()));
        for node in verdicts.keys() {
            labels.entry(node.clone()).or_insert_with(|| current(node).unwrap_or(median));
        }
        (labels, scale.map(|scale| scale.best))
    }
}

/// Lowest score among the best nodes.
fn best(mut scores: Vec<f64>) -> Option<f64> {
    let at = scores.len().checked_sub(1)? / BEST_SHARE;
    let (_, best, _) = scores.select_nth_unstable_by(at, |one, other| other.total_cmp(one));
    Some(*best)
}

/// Median of the levels.
fn median<'a>(labels: impl Iterator<Item = &'a LabelValue>) -> u8 {
    let levels = labels.filter_map(|label| match label {
        LabelValue::Level(level) => Some(*level),
        LabelValue::Rejected => None,
    });
    let mut levels: Vec<u8> = levels.collect();
    levels.sort_unstable();
    levels.get(levels.len() / 2).copied().unwrap_or(MIDDLE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use NodeVerdict::{NearlyFull, Rejected, Scored, Unknown};

    const SOFT: LabelRules = LabelRules { weight: 2, rejections: LabelRejections::Soft };

    fn nodes<T: Copy>(values: &[(&str, T)]) -> HashMap<NodeName, T> {
        values.iter().map(|(name, value)| (NodeName::from(*name), *value)).collect()
    }

    fn labels(rules: LabelRules, verdicts: &[(&str, NodeVerdict)], current: &[(&str, LabelValue)]) -> Vec<String> {
        let current = nodes(current);
        let (labels, _) = rules.labels(&nodes(verdicts), |node| current.get(node).copied(), None);
        verdicts.iter().map(|(name, _)| labels[&NodeName::from(*name)].to_string()).collect()
    }

    #[test]
    fn a_new_node_gets_the_median_and_a_known_one_keeps_its_label() {
        let verdicts =
            [("a", Scored(10.0)), ("b", Scored(8.0)), ("c", Scored(2.0)), ("new", Unknown), ("off", Unknown)];
        let current = [("off", LabelValue::Level(3))];
        assert_eq!(labels(SOFT, &verdicts, &current), ["15", "12", "3", "12", "3"]);
        assert_eq!(labels(SOFT, &[("new", Unknown)], &[]), ["7"], "without any score");
    }

    #[test]
    fn a_tenth_of_the_nodes_shares_the_best_label() {
        let scores: Vec<f64> = (0..=20).map(|at| f64::from(at) / 2.0).collect();
        assert_eq!([1, 10, 11, 21].map(|count| best(scores[..count].to_vec())), [0.0, 4.5, 4.5, 9.0].map(Some));
        assert_eq!(best(Vec::new()), None);
    }

    #[test]
    fn a_rejected_node_has_the_worst_label_or_repels_pods() {
        let verdicts = [("a", Scored(4.0)), ("full", Rejected)];
        assert_eq!(labels(SOFT, &verdicts, &[]), ["15", "0"]);
        let required = LabelRules { rejections: LabelRejections::Required, ..SOFT };
        assert_eq!(labels(required, &verdicts, &[]), ["15", "rejected"]);
        let full = [("full", LabelValue::Rejected)];
        assert_eq!(labels(required, &[("full", Scored(4.0))], &full), ["15"], "no longer rejected");
        assert_eq!(labels(required, &[("full", Unknown)], &full), ["rejected"], "cordoned meanwhile");
        assert_eq!(labels(required, &[("full", Rejected), ("new", Unknown)], &[]), ["rejected", "7"]);
        assert_eq!(labels(required, &[("a", Scored(4.0)), ("filling", NearlyFull)], &[]), ["15", "0"]);
    }

    proptest! {
        /// Each node has a label, a better one for a better score, and a second pass changes nothing.
        #[test]
        fn each_node_has_a_label_and_a_second_pass_changes_none(
            scores in prop::collection::vec(prop::option::of(0.0_f64..=10.0), 1..30),
            weight in 1_u32..20,
        ) {
            let rules = LabelRules { weight, ..SOFT };
            let verdicts: HashMap<NodeName, NodeVerdict> = scores.iter().enumerate().map(|(at, score)| {
                (NodeName::from(format!("n{at}").as_str()), score.map_or(Unknown, Scored))
            }).collect();
            let (first, best) = rules.labels(&verdicts, |_| None, None);
            prop_assert_eq!(first.len(), verdicts.len());
            let level = |node: &NodeName| match first[node] {
                LabelValue::Level(level) => level,
                LabelValue::Rejected => 0,
            };
            for (one, verdict) in &verdicts {
                for (other, compared) in &verdicts {
                    if let (Scored(score), Scored(lower)) = (verdict, compared) && score > lower {
                        prop_assert!(level(one) >= level(other));
                    }
                }
            }
            let (second, _) = rules.labels(&verdicts, |node| first.get(node).copied(), best);
            prop_assert_eq!(first, second);
        }
    }
}
