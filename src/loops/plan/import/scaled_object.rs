//! KEDA's ScaledObject `keda.sh/v1alpha1` as a loop.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::core::DynamicObject;
use serde::Deserialize;
use serde_json::json;

use super::cron;
use super::difference::ImportDifference as D;
use super::draft::{ImportOptions, ImportRefusal, ImportedLoop, LoopDraft, TrackDraft};
use super::fallback::{Fallback, KedaFallback};
use super::formula;
use super::hpa::{self, HpaSpec, ScaleTarget};
use super::pace::{self, HpaBehavior};
use super::triggers::{self, KedaTrigger, TriggerContext};
use ganglion_api::closed_loop::TargetRef;

/// Spec of a ScaledObject.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KedaSpec {
    scale_target_ref: ScaleTarget,
    polling_interval: Option<i32>,
    initial_cooldown_period: Option<i32>,
    cooldown_period: Option<i32>,
    idle_replica_count: Option<i32>,
    min_replica_count: Option<i32>,
    max_replica_count: Option<i32>,
    fallback: Option<KedaFallback>,
    advanced: Option<KedaAdvanced>,
    triggers: Vec<KedaTrigger>,
}

/// `spec.advanced`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KedaAdvanced {
    restore_to_original_replica_count: Option<bool>,
    horizontal_pod_autoscaler_config: Option<KedaHpaConfig>,
    scaling_modifiers: Option<KedaModifiers>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KedaHpaConfig {
    #[serde(rename = "name")]
    _name: Option<String>,
    behavior: Option<HpaBehavior>,
}

/// `spec.advanced.scalingModifiers`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KedaModifiers {
    formula: Option<String>,
    target: Option<String>,
    activation_target: Option<String>,
    metric_type: Option<String>,
}

/// A ScaledObject with what belongs to it.
#[derive(Clone, Copy, Debug)]
pub struct ScaledObjectInput<'a> {
    pub object: &'a DynamicObject,
    /// The HorizontalPodAutoscaler that KEDA created for it, with the targets of its triggers.
    pub hpa: Option<&'a DynamicObject>,
    pub now: Timestamp,
}

/// Annotations by which KEDA scales in a way that a loop does not take over.
const REFUSED: [&str; 3] = [
    "autoscaling.keda.sh/paused-replicas",
    "autoscaling.keda.sh/paused-scale-in",
    "autoscaling.keda.sh/paused-scale-out",
];

/// Name of the HorizontalPodAutoscaler of a ScaledObject.
pub fn hpa_name(object: &DynamicObject) -> String {
    let given = ["/status/hpaName", "/spec/advanced/horizontalPodAutoscalerConfig/name"];
    let given = given.iter().find_map(|path| object.data.pointer(path)?.as_str().filter(|name| !name.is_empty()));
    given.map_or_else(|| format!("keda-hpa-{}", object.name_any()), str::to_owned)
}

/// Converts a ScaledObject, as the API server sent it.
pub fn convert(input: ScaledObjectInput, options: &ImportOptions) -> Result<ImportedLoop, ImportRefusal> {
    let ScaledObjectInput { object, hpa, now } = input;
    let spec: KedaSpec = serde_json::from_value(object.data["spec"].clone())
        .map_err(|error| ImportRefusal::of(format!("spec of the ScaledObject: {error}")))?;
    let mut draft = LoopDraft::default();
    for annotation in REFUSED.iter().filter(|name| object.annotations().contains_key(**name)) {
        draft.refuse(format!("annotation {annotation}: a loop does not take it over; remove it first"));
    }
    let (min, max) = bounds(&mut draft, &spec);
    let advanced = spec.advanced.clone().unwrap_or_default();
    let config = advanced.horizontal_pod_autoscaler_config.unwrap_or_default();
    pace::convert(&mut draft, config.behavior.as_ref());
    draft.differs([D::Restart]);
    let interval = interval(&mut draft, &spec, min);
    if advanced.restore_to_original_replica_count == Some(true) {
        draft.warnings.push(
            "restoreToOriginalReplicaCount is true: when the ScaledObject is deleted, KEDA sets the number of replicas from \
             before it. Set it to false before you delete the ScaledObject"
                .to_owned(),
        );
    }
    if let Some(container) = &spec.scale_target_ref.env_source_container_name {
        draft.notes.push(format!(
            "envSourceContainerName is {container}: values of triggers come from metadata only, not from the environment of \
             a container"
        ));
    }
    let hpa = hpa.map(HpaSpec::parse).transpose()?;
    let modifiers = advanced.scaling_modifiers.filter(|one| one.formula.as_ref().is_some_and(|text| !text.is_empty()));
    let fallback = spec.fallback.as_ref().and_then(|one| one.parse(&mut draft, interval));
    let is_cron = |one: &&KedaTrigger| one.type_ == "cron";
    let crons: Vec<_> = spec.triggers.iter().enumerate().filter(|(_, one)| is_cron(one)).collect();
    let others = spec.triggers.len() - crons.len();
    let is_scheduled = !crons.is_empty() && modifiers.is_none();
    if is_scheduled {
        let crons: Vec<_> = crons.iter().map(|(at, one)| (format!("triggers[{at}]"), &one.metadata)).collect();
        cron::convert(&mut draft, &crons, (others == 0, max), now);
    }
    if is_scheduled && spec.triggers.iter().all(|one| one.is_resource() || is_cron(&one)) {
        schedule_only(&mut draft, &spec.scale_target_ref, others == 0);
    }
    let name = object.name_any();
    let mut context = TriggerContext {
        object: &name,
        hpa: hpa.as_ref(),
        wakes: min == 0,
        fallback: fallback.as_ref().filter(|_| modifiers.is_none()),
        in_formula: modifiers.is_some(),
        names: BTreeMap::new(),
    };
    for (index, trigger) in spec.triggers.iter().enumerate().filter(|(_, one)| !is_scheduled || !is_cron(one)) {
        triggers::convert(&mut draft, &mut context, (index, trigger), now);
    }
    if let Some(modifiers) = &modifiers {
        let names = std::mem::take(&mut context.names);
        modify(&mut draft, modifiers, &names, fallback.as_ref());
    }
    if min == 0 && spec.triggers.iter().all(KedaTrigger::is_resource) {
        draft.refuse(
            "minReplicaCount is 0, and all triggers are cpu or memory: nothing could wake the target. Use 1 or more",
        );
    }
    draft.finish(&TargetRef::from(&spec.scale_target_ref), &format!("{interval}s"), options)
}

/// Minimum and maximum, with what belongs to 0.
fn bounds(draft: &mut LoopDraft, spec: &KedaSpec) -> (i32, i32) {
    let (mut min, max) = (spec.min_replica_count.unwrap_or(0), spec.max_replica_count.unwrap_or(100));
    match spec.idle_replica_count {
        None => {}
        Some(0) if min <= 1 => min = 0,
        Some(0) => draft.refuse(format!(
            "idleReplicaCount is 0 and minReplicaCount is {min}: a loop has no number between which nothing lies. Set \
             minReplicaCount to 0, or remove idleReplicaCount"
        )),
        Some(other) => draft.refuse(format!("idleReplicaCount is {other}: KEDA supports 0 only. Remove it")),
    }
    draft.bounds(("minReplicaCount", min), ("maxReplicaCount", max));
    let cooldown = spec.cooldown_period.unwrap_or(300);
    if min == 0 {
        if !(0..=86_400).contains(&cooldown) {
            draft.refuse(format!("cooldownPeriod is {cooldown}: use 0 to 86400 seconds"));
        }
        draft.pace.insert("cooldown".to_owned(), json!(format!("{cooldown}s")));
        draft.differs([D::WakeToNumber, D::ZeroInSteps]);
    } else if spec.cooldown_period.is_some() {
        draft.notes.push(format!(
            "cooldownPeriod is left out: it has no effect with minReplicaCount {min}, in KEDA as well, since it is only for \
             the step to 0"
        ));
    }
    if spec.initial_cooldown_period.is_some_and(|seconds| seconds > 0) {
        draft.notes.push(
            "initialCooldownPeriod is left out: the cooldown of a loop begins when it finds no active metric".into(),
        );
    }
    (min, max)
}

/// Interval of the loop, in seconds. KEDA polls for the step between 0 and 1; its HorizontalPodAutoscaler asks every 15
/// s.
fn interval(draft: &mut LoopDraft, spec: &KedaSpec, min: i32) -> i32 {
    let polling = spec.polling_interval.unwrap_or(30);
    let cached = |one: &KedaTrigger| one.use_cached_metrics == Some(true);
    let interval = match (spec.triggers.iter().any(cached), min) {
        (true, _) => polling,
        (false, 0) => polling.min(15),
        (false, _) => 15,
    };
    if interval < polling {
        draft
            .notes
            .push(format!("pollingInterval is {polling} s; the loop asks every {interval} s, as the HPA of KEDA does"));
    }
    interval.clamp(1, 86_400)
}

/// Adds an action without a target, so that the schedule has one that can raise from 0. `is_alone`: no metric sets the
/// number.
fn schedule_only(draft: &mut LoopDraft, target: &ScaleTarget, is_alone: bool) {
    let TargetRef { api_version, kind, name } = target.into();
    let source = json!({"object": {"apiVersion": api_version, "kind": kind, "name": name, "path": "spec.replicas"}});
    let metric = draft.metric("replicas", source, None);
    draft.track(metric, None);
    if is_alone {
        draft.differences.retain(|one| !matches!(one, D::WindowHolds | D::LoweringWindow));
        draft.notes.push("the metric `replicas` only carries the schedule: it sets no number".into());
    }
}

/// Adds the metric of the formula.
fn modify(
    draft: &mut LoopDraft,
    modifiers: &KedaModifiers,
    names: &BTreeMap<String, String>,
    fallback: Option<&Fallback>,
) {
    let text = modifiers.formula.clone().unwrap_or_default();
    let expression = match formula::translate(&text, names) {
        Ok(expression) => expression,
        Err(problem) => {
            draft.refuse(format!(
                "advanced.scalingModifiers.formula `{text}`: {problem}. Write it as a formula of a loop (+ - * / ?:, \
                 comparisons, max, min, coalesce), or compute it in the source"
            ));
            return;
        }
    };
    let Some(target) = &modifiers.target else {
        draft.refuse("advanced.scalingModifiers.target is missing");
        return;
    };
    let type_ = match modifiers.metric_type.as_deref() {
        None | Some("" | "AverageValue") => "AverageValue",
        Some("Value") => "Value",
        Some(other) => {
            draft.refuse(format!("advanced.scalingModifiers.metricType is {other}: use AverageValue or Value"));
            return;
        }
    };
    let track = TrackDraft {
        activation: modifiers.activation_target.clone().filter(|text| !text.is_empty()),
        ..TrackDraft::new(type_, target)
    };
    let missing = match fallback.map(|one| one.missing(&track)) {
        Some(Err(problem)) => {
            draft.refuse(format!("advanced.scalingModifiers: {problem}"));
            None
        }
        found => found.and_then(Result::ok),
    };
    draft.differs([D::FailedFormula]);
    let metric = draft.metric("formula", json!({"formula": {"expression": expression}}), missing);
    hpa::of_number(draft, metric, track);
}
