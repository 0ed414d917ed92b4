//! HorizontalPodAutoscaler `autoscaling/v2` as a loop.

use kube::core::DynamicObject;
use serde::Deserialize;
use serde_json::{Value, json};

use super::difference::ImportDifference as D;
use super::draft::{ImportOptions, ImportRefusal, ImportedLoop, LoopDraft, TrackDraft};
use super::pace::{self, HpaBehavior};
use ganglion_api::closed_loop::TargetRef;
use ganglion_core::facts::FieldPath;

/// Interval at which the HorizontalPodAutoscaler works.
pub const INTERVAL: &str = "15s";

/// Label on the HorizontalPodAutoscaler of a ScaledObject: the name of the latter.
const KEDA_LABEL: &str = "scaledobject.keda.sh/name";

/// Spec of a HorizontalPodAutoscaler.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HpaSpec {
    scale_target_ref: ScaleTarget,
    min_replicas: Option<i32>,
    max_replicas: i32,
    metrics: Option<Vec<HpaMetric>>,
    behavior: Option<HpaBehavior>,
}

/// Target of an autoscaler.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScaleTarget {
    api_version: Option<String>,
    kind: Option<String>,
    name: String,
    /// KEDA: container whose environment contains values for triggers.
    pub env_source_container_name: Option<String>,
}

impl From<&ScaleTarget> for TargetRef {
    fn from(target: &ScaleTarget) -> Self {
        Self {
            api_version: target.api_version.clone().unwrap_or_else(|| "apps/v1".to_owned()),
            kind: target.kind.clone().unwrap_or_else(|| "Deployment".to_owned()),
            name: target.name.clone(),
        }
    }
}

/// A metric; the member of its type is set.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HpaMetric {
    #[serde(rename = "type")]
    type_: String,
    resource: Option<ResourceTarget>,
    container_resource: Option<ResourceTarget>,
    pods: Option<AdapterTarget>,
    object: Option<AdapterTarget>,
    external: Option<AdapterTarget>,
}

#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResourceTarget {
    name: String,
    container: Option<String>,
    target: HpaTarget,
}

#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AdapterTarget {
    metric: HpaMetricName,
    described_object: Option<ScaleTarget>,
    target: HpaTarget,
}

#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HpaMetricName {
    name: String,
    selector: Option<Value>,
}

#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HpaTarget {
    #[serde(rename = "type")]
    type_: String,
    average_utilization: Option<i32>,
    average_value: Option<String>,
    value: Option<String>,
}

impl HpaTarget {
    /// Type and number, if the member of the type is set.
    fn track(&self) -> Option<TrackDraft> {
        let of = |type_, number: &Option<String>| Some(TrackDraft::new(type_, number.clone()?));
        match self.type_.as_str() {
            "Utilization" => of("Utilization", &self.average_utilization.map(|percent| percent.to_string())),
            "AverageValue" => of("AverageValue", &self.average_value),
            "Value" => of("Value", &self.value),
            _ => None,
        }
    }
}

impl HpaSpec {
    /// Parses the spec; the error names a field that this version does not know.
    pub fn parse(object: &DynamicObject) -> Result<Self, ImportRefusal> {
        serde_json::from_value(object.data["spec"].clone())
            .map_err(|error| ImportRefusal::of(format!("spec of the HorizontalPodAutoscaler: {error}")))
    }

    /// Type and target of the External metric whose name has this prefix: KEDA's of a trigger.
    pub fn external_target(&self, prefix: &str) -> Option<(String, TrackDraft)> {
        let mut external = self.metrics.iter().flatten().filter_map(|metric| metric.external.as_ref());
        let found = external.find(|one| one.metric.name.starts_with(prefix))?;
        Some((found.metric.name.clone(), found.target.track()?))
    }
}

/// Converts a HorizontalPodAutoscaler, as the API server sent it.
pub fn convert(object: &DynamicObject, options: &ImportOptions) -> Result<ImportedLoop, ImportRefusal> {
    refuse_owned(object)?;
    let spec = HpaSpec::parse(object)?;
    let mut draft = LoopDraft::default();
    let min = spec.min_replicas.unwrap_or(1);
    draft.bounds(("minReplicas", min), ("maxReplicas", spec.max_replicas));
    pace::convert(&mut draft, spec.behavior.as_ref());
    if min == 0 {
        // The autoscaler has no cooldown.
        draft.pace.insert("cooldown".to_owned(), json!("0s"));
        draft.differs([D::Activity, D::WakeToNumber]);
    }
    draft.differs([D::Restart]);
    let metrics = spec.metrics.unwrap_or_default();
    if metrics.is_empty() {
        // The default of the API server.
        resource(&mut draft, "cpu", None, TrackDraft::new("Utilization", "80"));
    }
    for (index, one) in metrics.iter().enumerate() {
        if metric(&mut draft, one).is_none() {
            draft.refuse(format!(
                "metrics[{index}] of type {} has no target that a loop can track: set the member of its type, and a target \
                 that fits it",
                one.type_
            ));
        }
    }
    if let Some(owner) = FieldPath::of_members(&["spec", "behavior"]).owner(&object.metadata) {
        draft.warnings.push(format!(
            "spec.behavior of the HorizontalPodAutoscaler belongs to {owner}, which applies it and would switch it on again \
             after --apply: delete the HorizontalPodAutoscaler from the manifests of {owner}, or set selectPolicy: Disabled \
             for both directions there"
        ));
    }
    draft.finish(&TargetRef::from(&spec.scale_target_ref), INTERVAL, options)
}

/// Refuses an autoscaler that a controller creates again.
fn refuse_owned(object: &DynamicObject) -> Result<(), ImportRefusal> {
    let owners = object.metadata.owner_references.iter().flatten();
    let owner = owners.map(|owner| (owner.kind.as_str(), owner.name.as_str())).next();
    let labels = object.metadata.labels.as_ref();
    let labelled = labels.and_then(|labels| labels.get(KEDA_LABEL)).map(|name| ("ScaledObject", name.as_str()));
    let Some((kind, name)) = labelled.or(owner) else { return Ok(()) };
    let own = object.metadata.name.as_deref().unwrap_or_default();
    Err(ImportRefusal::of(match kind {
        "ScaledObject" => format!(
            "HorizontalPodAutoscaler {own} belongs to ScaledObject {name}, and KEDA writes it again: run `ganglion import \
             scaledobject {name}`"
        ),
        _ => format!(
            "HorizontalPodAutoscaler {own} belongs to {kind} {name}, whose controller writes it again: switch autoscaling \
             off there, and write a ClosedLoop by hand"
        ),
    }))
}

/// Differences of every metric with a target.
const OF_ANY: [D; 3] = [D::ExactDivision, D::UsedOnce, D::Flags];

/// Adds a metric with its action. None: its target cannot be tracked.
pub fn metric(draft: &mut LoopDraft, metric: &HpaMetric) -> Option<()> {
    match metric.type_.as_str() {
        "Resource" => {
            let ResourceTarget { name, target, .. } = metric.resource.as_ref()?;
            resource(draft, name, None, target.track().filter(|track| track.type_ != "Value")?);
        }
        "ContainerResource" => {
            let ResourceTarget { name, container, target } = metric.container_resource.as_ref()?;
            let track = target.track().filter(|track| track.type_ != "Value")?;
            resource(draft, name, Some(container.as_deref()?), track);
        }
        "Pods" => {
            let AdapterTarget { metric, target, .. } = metric.pods.as_ref()?;
            let track = target.track().filter(|track| track.type_ == "AverageValue")?;
            let mut source = adapter(metric);
            source["pods"] = json!({});
            let name = draft.metric(&metric.name, json!({"custom": source}), None);
            draft.track(name, Some(track));
            draft.differs(OF_ANY);
            draft.differs([D::FewerPods, D::EndedPods, D::OwnPods, D::SmallSamples]);
        }
        "Object" => {
            let AdapterTarget { metric, target, described_object } = metric.object.as_ref()?;
            let track = target.track().filter(|track| track.type_ != "Utilization")?;
            let mut source = adapter(metric);
            // The version of the API server's core group has no slash.
            let described = described_object.as_ref()?;
            let api_version = described.api_version.clone().unwrap_or_else(|| "v1".to_owned());
            source["object"] = json!({"apiVersion": api_version, "kind": described.kind, "name": described.name});
            let name = draft.metric(&metric.name, json!({"custom": source}), None);
            of_number(draft, name, track);
        }
        "External" => {
            let AdapterTarget { metric, target, .. } = metric.external.as_ref()?;
            let track = target.track().filter(|track| track.type_ != "Utilization")?;
            let mut source = adapter(metric);
            source["several"] = json!("Sum");
            let name = draft.metric(&metric.name, json!({"external": source}), None);
            of_number(draft, name, track);
        }
        _ => return None,
    }
    Some(())
}

/// Adds the action on a metric that is one number.
pub fn of_number(draft: &mut LoopDraft, metric: String, track: TrackDraft) {
    draft.differs(OF_ANY);
    draft.differs([D::SmallSamples]);
    match track.type_ {
        "Value" => draft.differs([D::FewerPods, D::DeletedPods, D::NoReadyPods]),
        _ => draft.differs([D::Surge]),
    }
    draft.track(metric, Some(track));
}

fn adapter(metric: &HpaMetricName) -> Value {
    let mut source = json!({"metric": metric.name});
    if let Some(selector) = &metric.selector {
        source["selector"] = selector.clone();
    }
    source
}

/// Adds a metric of the usage of pods, with its action.
pub fn resource(draft: &mut LoopDraft, resource: &str, container: Option<&str>, track: TrackDraft) {
    if !matches!(resource, "cpu" | "memory") {
        draft.refuse(format!(
            "resource {resource} is no source of a loop: use cpu or memory, or read it from Prometheus (source prometheus)"
        ));
        return;
    }
    let mut source = json!({"resource": resource});
    if let Some(container) = container {
        source["container"] = json!(container);
    }
    draft.differs(OF_ANY);
    draft.differs([D::FewerPods, D::EndedPods, D::OwnPods]);
    if track.type_ == "Utilization" {
        source["unit"] = json!("Utilization");
        draft.differs([D::AllocatedResources]);
    }
    let text = container.map_or_else(|| resource.to_owned(), |container| format!("{resource}_{container}"));
    let name = draft.metric(&text, json!({"resource": source}), None);
    draft.track(name, Some(track));
}
