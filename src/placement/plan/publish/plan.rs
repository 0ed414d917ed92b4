//! The nodes to annotate now, and the coverage for the report of the policy.

use jiff::{SignedDuration, Timestamp};

use super::annotations::{SampleAges, changes};
use super::publication::PublishProblem;
use super::{NodeSize, NodeUsage};
use crate::safe::PerResource;
use ganglion_core::facts::{Identity, NodeFact};

/// Complete set of annotations of one node. An empty set removes all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAnnotations {
    pub node: Identity,
    pub set: Set,
}

type Set = std::collections::BTreeMap<&'static str, String>;

/// Writes and coverage that follow from a response of Prometheus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsagePlan {
    pub writes: Vec<NodeAnnotations>,
    pub coverage: UsageCoverage,
}

/// Whether the usage of nodes is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageCoverage {
    /// Whether the usage of at least one node is known.
    pub any: bool,
    /// Why the usage of one node is unknown; None if the usage of all nodes is known.
    pub lacking: Option<PublishProblem>,
}

/// Compares the usage of each node with its published annotations. Nodes without a usage are left to [`expired`].
pub fn plan<'a>(
    nodes: impl Iterator<Item = &'a NodeFact>,
    usage: impl Fn(&NodeFact) -> Result<NodeUsage, PublishProblem>,
    now: Timestamp,
    ages: SampleAges,
) -> UsagePlan {
    let mut plan = UsagePlan::default();
    for node in nodes.filter(|node| !node.terminating) {
        match usage(node) {
            Ok(usage) => {
                plan.coverage.any = true;
                plan.writes.extend(write(node, Some(&usage), now, ages));
            }
            Err(problem) => {
                plan.coverage.lacking.get_or_insert(problem);
            }
        }
    }
    plan
}

/// Nodes whose annotations are older than `max_age` and must be removed, no matter why they were not renewed.
pub fn expired<'a>(
    nodes: impl Iterator<Item = &'a NodeFact>,
    now: Timestamp,
    max_age: SignedDuration,
) -> Vec<NodeAnnotations> {
    nodes.filter(|node| !node.terminating).filter_map(|node| write(node, None, now, max_age.into())).collect()
}

fn write(node: &NodeFact, usage: Option<&NodeUsage>, now: Timestamp, ages: SampleAges) -> Option<NodeAnnotations> {
    let published = |key: &str| node.published.get(key).map(String::as_str);
    let set = changes(published, usage, &size(node), now, ages)?;
    Some(NodeAnnotations { node: node.id.clone(), set })
}

fn size(node: &NodeFact) -> PerResource<NodeSize> {
    let NodeFact { allocatable, capacity, .. } = node;
    let size =
        |allocatable: i64, capacity: i64| NodeSize { allocatable: allocatable as f64, capacity: capacity as f64 };
    PerResource { cpu: size(allocatable.cpu, capacity.cpu), memory: size(allocatable.memory, capacity.memory) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::publish::Statistic;
    use ganglion_api::placement_policy::reasons::PolicyReason;
    use ganglion_core::facts::{Key, PUBLISHED, Requests, USAGE_SAMPLED_AT};

    const AGE: SignedDuration = SignedDuration::from_secs(300);

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn node(name: &str) -> NodeFact {
        let id = Identity { key: Key::new("", name), uid: name.into(), version: "1".into() };
        let size = |cpu, memory| Requests { cpu, memory, ..Requests::default() };
        NodeFact { id, allocatable: size(3800, 7 << 30), capacity: size(4000, 8 << 30), ..NodeFact::default() }
    }

    fn usage(mean: f64, at: i64) -> NodeUsage {
        let number = |statistic| match statistic {
            Statistic::Samples => Some(60.0),
            Statistic::CpuMean | Statistic::CpuForecast => Some(mean),
            Statistic::MemoryMean | Statistic::MemoryForecast => Some(mean * 1e6),
            Statistic::CpuDeviation => Some(10.0),
            Statistic::MemoryDeviation => Some(1e7),
            Statistic::Exporters => None,
        };
        NodeUsage::new(number, second(at)).expect("a usage")
    }

    fn unknown(node: &str) -> PublishProblem {
        (PolicyReason::UsageUnknown, format!("no series of {node}"))
    }

    /// Applies writes to the nodes, like the watch does later.
    fn apply(nodes: &mut [NodeFact], writes: &[NodeAnnotations]) {
        for NodeAnnotations { node, set } in writes {
            let known = nodes.iter_mut().find(|known| known.id == *node).expect("a node");
            known.published = set.clone();
        }
    }

    #[test]
    fn all_that_is_written_is_read_back() {
        let plan = plan([node("a")].iter(), |_| Ok(usage(1000.0, 100)), second(100), AGE.into());
        let keys: Vec<_> = plan.writes[0].set.keys().collect();
        assert!(keys.len() == 13 && keys.iter().all(|key| PUBLISHED.contains(key)), "{keys:?}");
    }

    #[test]
    fn a_node_without_usage_is_named_and_those_that_go_are_left_alone() {
        let (mut going, known) = (node("going"), node("known"));
        going.terminating = true;
        let nodes = [going, node("a"), node("b"), known];
        let of = |node: &NodeFact| {
            let name = &node.id.key.name;
            if name == "known" { Ok(usage(1000.0, 100)) } else { Err(unknown(name)) }
        };
        let plan = plan(nodes.iter(), of, second(100), AGE.into());
        assert_eq!(plan.coverage, UsageCoverage { any: true, lacking: Some(unknown("a")) });
        assert_eq!(plan.writes.iter().map(|write| write.node.key.name.as_str()).collect::<Vec<_>>(), ["known"]);
    }

    proptest! {
        /// A node with steady usage is written once per half of the age, no matter how long the pauses between
        /// responses are. A node without further responses loses its annotations by one write, once they are older than
        /// the age.
        #[test]
        fn steady_usage_costs_a_write_each_half_age_and_none_afterwards(
            pauses in prop::collection::vec(1_i64..140, 1..40),
            mean in 0.0_f64..4000.0,
        ) {
            let mut nodes = [node("a")];
            let (mut now, mut written) = (1000, Vec::new());
            for pause in pauses {
                let plan = plan(nodes.iter(), |_| Ok(usage(mean, now)), second(now), AGE.into());
                if !plan.writes.is_empty() {
                    written.push(now);
                }
                apply(&mut nodes, &plan.writes);
                prop_assert!(expired(nodes.iter(), second(now), AGE).is_empty());
                now += pause;
                prop_assert!(expired(nodes.iter(), second(now), AGE).is_empty(), "removed between two answers");
            }
            prop_assert!(written.windows(2).all(|two| two[1] - two[0] > AGE.as_secs() / 2), "{:?}", written);
            let last: Timestamp = nodes[0].published[USAGE_SAMPLED_AT].parse().expect("a time");
            let until = last.as_second() + AGE.as_secs();
            prop_assert!(expired(nodes.iter(), second(until), AGE).is_empty());
            let gone = expired(nodes.iter(), second(until + 1), AGE);
            prop_assert!(gone.len() == 1 && gone[0].set.is_empty());
            apply(&mut nodes, &gone);
            prop_assert!(expired(nodes.iter(), second(until + 1000), AGE).is_empty());
        }
    }
}
