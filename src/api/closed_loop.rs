//! ClosedLoop: metrics, a policy and actions on a target. Each part of the spec and the status has its own file below.

pub mod action;
pub mod adapter_metric;
mod aggregate;
pub mod metric;
pub mod policy;
pub mod reasons;
mod rules;
pub mod scaler;
pub mod status;
pub mod track;
pub mod when;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::scalars::DurationText;
use action::LoopAction;
use metric::Metric;
use policy::{Policy, Tunable};
pub use status::ClosedLoopStatus;

/// Watches metrics, decides on an action, and carries it out. A loop whose target is another ClosedLoop tunes the
/// policy of that loop.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "ganglion.dev",
    version = "v1alpha1",
    kind = "ClosedLoop",
    plural = "closedloops",
    shortname = "loop",
    category = "ganglion",
    namespaced,
    status = "ClosedLoopStatus",
    derive = "PartialEq",
    doc = "Watches metrics, decides on an action, and carries it out. A loop whose target is another ClosedLoop tunes the policy of that loop.",
    selectable = ".spec.mode",
    printcolumn(name = "Target", type_ = "string", json_path = ".status.summary.target"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(name = "Alarms", type_ = "string", json_path = ".status.summary.alarms"),
    printcolumn(name = "Action", type_ = "string", json_path = ".status.summary.action"),
    printcolumn(name = "Acted", type_ = "date", json_path = ".status.summary.actedAt"),
    printcolumn(name = "Data", type_ = "string", json_path = ".status.conditions[?(@.type=='DataAvailable')].status"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Decision", type_ = "string", json_path = ".status.summary.decision", priority = 1),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("duration(self.interval) >= duration('1s') && duration(self.interval) <= duration('24h')").message("interval must be 1s to 24h").field_path(".interval"),
    validation = rules::needed_metrics(),
    validation = rules::rank(),
    validation = rules::weights(),
    validation = rules::action_metrics(),
    validation = rules::action_sides(),
    validation = rules::one_action_an_alarm(),
    validation = rules::combined_metrics("all"),
    validation = rules::combined_metrics("any"),
    validation = rules::combined_levels("all"),
    validation = rules::combined_levels("any"),
    validation = rules::one_action_a_combination("all"),
    validation = rules::one_action_a_combination("any"),
    validation = rules::one_pace(),
    validation = rules::tuned_target(),
    validation = rules::named_source(),
    validation = rules::thresholds(),
)]
pub struct ClosedLoopSpec {
    /// Auto: decisions are carried out. DryRun: decisions are reported and nothing is changed. Approve: each decision
    /// is proposed, and is carried out once the loop's annotation `ganglion.dev/approve` contains its digest; see
    /// `ganglion approve`. Paused: the loop does not watch, decide or act. Default: Auto.
    #[serde(default)]
    pub mode: LoopMode,
    /// Interval between queries of the sources and evaluations of the levels, 1s to 24h. A pushed sample is evaluated
    /// when it arrives. Default: 15s.
    #[serde(default = "default_interval")]
    pub interval: DurationText,
    /// When the status of Monitoring, Decision and Execution is written. OnChange: when an alarm or a decision changes.
    /// EverySample: for every sample, so that samples can be followed through the loop. Default: OnChange.
    #[serde(default)]
    pub trace: Trace,
    /// Service account of this namespace that reads sources and carries out actions; it needs the rights for both.
    /// Default: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// The object that the loop acts on.
    pub target: TargetRef,
    /// The metrics to watch. 1 to 16.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub metrics: Vec<Metric>,
    /// How the loop decides. Default: alarms rank in the order of the metrics, and nothing limits actions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// The actions, one for each alarm or combination of alarms. At most 32. Default: none; the loop only watches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub actions: Option<Vec<LoopAction>>,
    /// Parts of this loop's policy that other loops may change. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunable: Option<Tunable>,
}

fn default_interval() -> DurationText {
    "15s".into()
}

/// An object in the loop's own namespace.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub struct TargetRef {
    /// API version of the object, such as `apps/v1`.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^([a-zA-Z0-9.-]{1,253}/)?[a-zA-Z0-9-]{1,63}$"))]
    pub api_version: String,
    /// Kind of the object.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// See [`ClosedLoopSpec::mode`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoopMode {
    #[default]
    Auto,
    DryRun,
    Approve,
    Paused,
}

impl LoopMode {
    /// Name in specs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "Auto",
            Self::DryRun => "DryRun",
            Self::Approve => "Approve",
            Self::Paused => "Paused",
        }
    }
}

/// See [`ClosedLoopSpec::trace`].
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trace {
    #[default]
    OnChange,
    EverySample,
}
