//! Opinions of a policy about nodes, for the pods that arrive while labels stand.
//!
//! Labels follow a pod after a second or more, and another pod may come until then. So nodes are scored for two typical
//! pods at once. In the bench `placement` (part `quality`), with scores for one pod, nodes were overloaded for 1.7
//! times as long as with an extender; with scores for two, for 0.8 times as long.

use crate::labels::labeling::NodeVerdict;
use crate::policy::CompiledPolicy;
use crate::question::{PlacedPod, PlacementQuestion};
use crate::record::NodeRecord;

/// Opinion about each candidate, in their order. The question is about one typical pod, and `pair` is two of them. If
/// no node with data has room for two, one counts.
pub fn verdicts(policy: &CompiledPolicy, question: &PlacementQuestion<'_>, pair: &PlacedPod) -> Vec<NodeVerdict> {
    let lacks = |record: &NodeRecord| policy.lacks(record, question.now);
    let rejections = policy.filter(question);
    let (mut full, mut scored) = policy.judge(&PlacementQuestion { pod: pair, ..*question });
    let has_room = |(record, full): (&Option<&NodeRecord>, &Option<_>)| {
        full.is_none() && record.is_some_and(|record| !lacks(record))
    };
    if !question.candidates.iter().zip(&full).any(has_room) {
        (full, scored) = policy.judge(question);
    }
    let is_new = |record: &NodeRecord| question.now.duration_since(record.node.created) < policy.rules.max_age;
    let verdict = |(at, record): (usize, &Option<&NodeRecord>)| match record {
        Some(record) if is_new(record) && lacks(record) => NodeVerdict::Unknown,
        Some(_) if rejections[at].is_some() => NodeVerdict::Rejected,
        Some(_) if full[at].is_some() => NodeVerdict::NearlyFull,
        Some(_) => NodeVerdict::Scored(scored.totals[at]),
        None => NodeVerdict::Unknown,
    };
    question.candidates.iter().enumerate().map(verdict).collect()
}
