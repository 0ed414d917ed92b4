//! Options of a policy that is delivered as labels of nodes.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::scalars::Number;

/// Options of the delivery `Labels`. The operator keeps the label that `status.labels.key` names on each node: a whole
/// number from 0 (worst) to 15 (best).
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct LabelOptions {
    /// Weight relative to the scheduler's own scores, as in an extender: the best and the worst score differ by
    /// `weight` times 100 points. 1 to 20. From 3 on, nodes whose score is far below the best one share the worst
    /// label. Default: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 20))]
    pub weight: Option<i32>,
    /// Requests of the pod for which the agents answer, since a label is the same for all pods. Nodes are scored for
    /// two of these pods, since another one may come until a label changes. Default: the mean requests of the pods on
    /// the nodes, weighted by the requests themselves, so that large pods count more; 100m and 200Mi if no pod
    /// requests any. `status.labels.typicalRequest` has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub typical_request: Option<TypicalRequest>,
    /// Effect of a rejection by an agent. Soft: the node has the worst label, and pods go there only if no other node
    /// has room. Required: no pod goes there. cluster-autoscaler assumes that a new node has the labels of the others
    /// in its group: if all of a group are rejected, it does not add nodes to the group. Default: Soft.
    #[serde(default)]
    pub rejections: LabelRejections,
}

/// Requests of a typical pod.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.cpu) || quantity(self.cpu).isGreaterThan(quantity('0'))").message("cpu must be above 0").field_path(".cpu"),
    validation = Rule::new("!has(self.memory) || quantity(self.memory).isGreaterThan(quantity('0'))").message("memory must be above 0").field_path(".memory"),
)]
pub struct TypicalRequest {
    /// Default: that of the pods on the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Number>,
    /// Default: that of the pods on the nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Number>,
}

/// See [`LabelOptions::rejections`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabelRejections {
    #[default]
    Soft,
    Required,
}
