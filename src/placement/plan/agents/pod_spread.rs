//! The agent `podSpread` of a policy. The rules are in `placement::pod_spread`.

use super::{Agent, AgentError, fraction};
use crate::pod_spread::{SpreadNode, SpreadRequest, rate, spread};
use crate::question::{CONTROL_PLANE, NodeRejection, Opinion, PlacementQuestion};
use crate::record::NodeRecord;
use ganglion_api::placement_policy::agents::PodSpreadAgent;

#[derive(Debug)]
struct PodSpread {
    rate: Option<f64>,
}

pub fn compile(options: &PodSpreadAgent) -> Result<Box<dyn Agent>, AgentError> {
    let rate = options.rate.as_ref().map(|text| fraction(Some(text), 0.0)).transpose()?;
    Ok(Box::new(PodSpread { rate }))
}

fn node<'a>(record: &'a NodeRecord, pods: u32, feasible: bool) -> SpreadNode<'a> {
    let label = |key: &str| record.node.labels.get(key).map(String::as_str);
    SpreadNode {
        name: record.name(),
        region: label("topology.kubernetes.io/region"),
        zone: label("topology.kubernetes.io/zone"),
        control_plane: label(CONTROL_PLANE).is_some(),
        pods,
        feasible,
    }
}

impl Agent for PodSpread {
    fn filter(&self, question: &PlacementQuestion<'_>, rejections: &mut [Option<NodeRejection>]) {
        let pod = question.pod;
        let Some(siblings) = question.siblings else { return };
        let annotated = [&pod.spread_rate, &siblings.spread_rate].into_iter().find_map(|text| rate(text.as_deref()?));
        let Some(rate) = annotated.or(self.rate) else { return };
        let pods = |record: &NodeRecord| siblings.on_nodes.get(record.name()).copied().unwrap_or(0);
        let judged: Vec<(usize, &NodeRecord)> = question
            .candidates
            .iter()
            .enumerate()
            .filter_map(|(at, record)| Some((at, (*record)?)))
            .filter(|(at, _)| rejections.get(*at).is_some_and(Option::is_none))
            .collect();
        let candidates: std::collections::HashSet<&str> = judged.iter().map(|(_, record)| record.name()).collect();
        let mut nodes: Vec<SpreadNode<'_>> =
            judged.iter().map(|(_, record)| node(record, pods(record), true)).collect();
        let others = question.inventory.nodes().filter(|record| !candidates.contains(record.name()));
        nodes.extend(others.map(|record| node(record, pods(record), false)));
        let request = SpreadRequest {
            replicas: siblings.replicas,
            rate,
            tolerates_control_plane: pod.tolerates_control_plane,
            one_area: question.narrows,
        };
        let found = spread(request, &nodes);
        for ((at, _), rejected) in judged.into_iter().zip(found.rejections) {
            if let (Some(rejected), Some(place)) = (rejected, rejections.get_mut(at)) {
                *place = Some(NodeRejection(rejected.to_string()));
            }
        }
    }

    fn score(&self, _: &PlacementQuestion<'_>) -> Opinion {
        Opinion::FilterOnly
    }

    fn explain(&self, _: &PlacementQuestion<'_>, _: usize) -> String {
        String::new()
    }

    fn reads_siblings(&self) -> bool {
        true
    }

    fn filters_last(&self) -> bool {
        true
    }
}
