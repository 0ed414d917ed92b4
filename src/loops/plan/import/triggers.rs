//! Triggers of a ScaledObject as metrics with actions.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::cron;
use super::difference::ImportDifference as D;
use super::draft::{LoopDraft, TrackDraft};
use super::fallback::Fallback;
use super::hpa::{self, HpaSpec};

/// Activation that no value reaches: a trigger that does not take part in the step between 0 and 1.
const NEVER_ACTIVE: &str = "1E";

/// A trigger.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KedaTrigger {
    #[serde(rename = "type")]
    pub type_: String,
    name: Option<String>,
    pub use_cached_metrics: Option<bool>,
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    authentication_ref: Option<Value>,
    metric_type: Option<String>,
}

impl KedaTrigger {
    /// Whether it is about the usage of the pods themselves.
    pub fn is_resource(&self) -> bool {
        matches!(self.type_.as_str(), "cpu" | "memory")
    }

    /// Whether all its fields are among these, so that nothing is left out.
    fn has_only(&self, fields: &[&str]) -> bool {
        self.authentication_ref.is_none() && self.metadata.keys().all(|key| fields.contains(&key.as_str()))
    }

    fn text(&self, field: &str) -> Option<&str> {
        self.metadata.get(field).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// Type of the target: AverageValue or Value.
    fn track_type(&self) -> Option<&'static str> {
        match self.metric_type.as_deref() {
            None | Some("" | "AverageValue") => Some("AverageValue"),
            Some("Value") => Some("Value"),
            Some(_) => None,
        }
    }

    /// The only field of the metadata that begins with `activation`. Err: there are several.
    fn activation(&self) -> Result<Option<String>, String> {
        let mut found = self.metadata.iter().filter(|(key, _)| key.to_lowercase().starts_with("activation"));
        let first = found.next().map(|(_, value)| value.clone());
        match found.next() {
            None => Ok(first),
            Some((key, _)) => Err(key.clone()),
        }
    }
}

/// Properties of a ScaledObject that its triggers share.
pub struct TriggerContext<'a> {
    /// Name of the ScaledObject.
    pub object: &'a str,
    /// The HorizontalPodAutoscaler of KEDA, with the names and targets of the metrics.
    pub hpa: Option<&'a HpaSpec>,
    /// The minimum is 0.
    pub wakes: bool,
    pub fallback: Option<&'a Fallback>,
    /// A formula uses the metrics, which have no actions of their own.
    pub in_formula: bool,
    /// Names of triggers, with those of their metrics.
    pub names: BTreeMap<String, String>,
}

impl TriggerContext<'_> {
    /// Lets the formula name the metric of a trigger.
    fn add_operand(&mut self, draft: &mut LoopDraft, field: &str, trigger: &KedaTrigger, metric: Option<String>) {
        match (&trigger.name, metric) {
            (Some(trigger), Some(metric)) => drop(self.names.insert(trigger.clone(), metric)),
            (Some(_), None) => {}
            (None, _) => draft.refuse(format!("{field} has no name, which scalingModifiers.formula needs")),
        }
    }
}

/// A metric of a trigger.
struct TriggerMetric {
    source: Value,
    track: TrackDraft,
}

/// Adds the metric of a trigger, and its action.
pub fn convert(
    draft: &mut LoopDraft,
    context: &mut TriggerContext,
    (index, trigger): (usize, &KedaTrigger),
    now: Timestamp,
) {
    let field = format!("triggers[{index}]");
    if trigger.type_ == "cron" {
        // Without a formula, cron triggers are a schedule.
        let name = trigger.name.as_deref().unwrap_or_default();
        let metric = cron::operand(draft, (&field, name, &trigger.metadata), now);
        context.add_operand(draft, &field, trigger, metric);
        return;
    }
    if trigger.is_resource() {
        usage(draft, context, &field, trigger);
        return;
    }
    let Some(type_) = trigger.track_type() else {
        let given = trigger.metric_type.clone().unwrap_or_default();
        draft.refuse(format!("{field}.metricType is {given}: use AverageValue or Value"));
        return;
    };
    let found = match trigger.type_.as_str() {
        "prometheus" => prometheus(draft, trigger, type_),
        "external" | "external-push" => scaler(draft, trigger, type_, context.in_formula),
        _ => None,
    };
    let found = found.map_or_else(|| of_keda(draft, context, index, trigger), Ok);
    let metric = match found {
        Ok(metric) => metric,
        Err(problem) => {
            draft.refuse(format!("{field} of type {}: {problem}", trigger.type_));
            return;
        }
    };
    add(draft, context, &field, trigger, metric);
}

fn add(draft: &mut LoopDraft, context: &mut TriggerContext, field: &str, trigger: &KedaTrigger, metric: TriggerMetric) {
    let TriggerMetric { source, track } = metric;
    let missing = match context.fallback {
        Some(fallback) => fallback.missing(&track).map_err(|problem| draft.refuse(format!("{field}: {problem}"))).ok(),
        None => None,
    };
    let text = trigger.name.clone().unwrap_or_else(|| trigger.type_.clone());
    let name = draft.metric(&text, source, missing);
    if context.in_formula {
        context.add_operand(draft, field, trigger, Some(name));
        return;
    }
    hpa::of_number(draft, name, track);
}

/// A trigger `cpu` or `memory`. It does not take part in a formula, and not in the step between 0 and 1.
fn usage(draft: &mut LoopDraft, context: &TriggerContext, field: &str, trigger: &KedaTrigger) {
    if !trigger.has_only(&["type", "value", "containerName"]) {
        draft.refuse(format!("{field} of type {}: use value and containerName only", trigger.type_));
        return;
    }
    // Former versions have the type in the metadata.
    let type_ = trigger.metric_type.as_deref().or_else(|| trigger.text("type"));
    let type_ = match type_ {
        Some("Utilization") => "Utilization",
        Some("AverageValue") => "AverageValue",
        _ => {
            draft.refuse(format!("{field}.metricType: use Utilization or AverageValue"));
            return;
        }
    };
    let Some(value) = trigger.text("value") else {
        draft.refuse(format!("{field}.metadata.value is missing"));
        return;
    };
    let activation = context.wakes.then(|| NEVER_ACTIVE.to_owned());
    let track = TrackDraft { activation, ..TrackDraft::new(type_, value) };
    hpa::resource(draft, &trigger.type_, trigger.text("containerName"), track);
}

/// A trigger `prometheus` that a loop can ask itself. None: it has fields for which KEDA is needed.
fn prometheus(draft: &mut LoopDraft, trigger: &KedaTrigger, type_: &'static str) -> Option<TriggerMetric> {
    let fields = ["serverAddress", "query", "threshold", "activationThreshold", "ignoreNullValues", "metricName"];
    let url = trigger.text("serverAddress").filter(|url| url.starts_with("http://") || url.starts_with("https://"))?;
    if !trigger.has_only(&fields) {
        return None;
    }
    let (query, target) = (trigger.text("query")?, trigger.text("threshold")?);
    if trigger.text("ignoreNullValues") != Some("false") {
        draft.differs([D::EmptyAnswer]);
    }
    let activation = trigger.text("activationThreshold").map(str::to_owned);
    Some(TriggerMetric {
        source: json!({"prometheus": {"url": url.trim_end_matches('/'), "query": query}}),
        track: TrackDraft { activation, ..TrackDraft::new(type_, target) },
    })
}

/// A trigger `external` or `external-push` that a loop can ask itself. Its target is the one that the scaler has at
/// each poll, so the number is that of a formula.
fn scaler(
    draft: &mut LoopDraft,
    trigger: &KedaTrigger,
    type_: &'static str,
    in_formula: bool,
) -> Option<TriggerMetric> {
    let encrypted = ["caCert", "tlsCertFile", "tlsClientCert", "tlsClientKey", "unsafeSsl", "enableTLS"];
    if trigger.authentication_ref.is_some() || encrypted.iter().any(|key| trigger.metadata.contains_key(*key)) {
        return None;
    }
    let address = trigger.text("scalerAddress")?;
    let metadata: BTreeMap<&String, &String> =
        trigger.metadata.iter().filter(|(key, _)| *key != "scalerAddress").collect();
    let text = trigger.name.clone().unwrap_or_else(|| "scaler".to_owned());
    let part = |member: Option<&str>| {
        let mut source = json!({"address": address});
        if !metadata.is_empty() {
            source["metadata"] = json!(metadata);
        }
        if trigger.type_ == "external-push" && member.is_none() {
            source["stream"] = json!(true);
        }
        if let Some(member) = member {
            source["value"] = json!(member);
        }
        json!({"scaler": source})
    };
    draft.differs([D::ScalerActivity]);
    if in_formula {
        // The formula is about the value itself.
        return Some(TriggerMetric { source: part(None), track: TrackDraft::new(type_, "1") });
    }
    let value = draft.metric(&format!("{text}_value"), part(None), None);
    let target = draft.metric(&format!("{text}_target"), part(Some("Target")), None);
    Some(TriggerMetric {
        source: json!({"formula": {"expression": format!("{value} / {target}")}}),
        track: TrackDraft::new(type_, "1"),
    })
}

/// Any other trigger: KEDA still answers for it in external.metrics.k8s.io while the ScaledObject is paused.
fn of_keda(
    draft: &mut LoopDraft,
    context: &TriggerContext,
    index: usize,
    trigger: &KedaTrigger,
) -> Result<TriggerMetric, String> {
    let activation = trigger.activation().map_err(|key| {
        format!("it has several fields for its activation, such as {key}, and a loop has one: remove all but one")
    })?;
    if context.in_formula {
        return Err(
            "KEDA gives out only the result of scalingModifiers.formula, and not the value of this trigger: use a \
                    trigger that a loop can ask itself, such as prometheus"
                .to_owned(),
        );
    }
    let Some(hpa) = context.hpa else {
        return Err(
            "the loop can read it from KEDA, but its target is in the HorizontalPodAutoscaler of KEDA, which does not \
                    exist: let KEDA work (remove the annotation autoscaling.keda.sh/paused) and run this again"
                .to_owned(),
        );
    };
    let Some((metric, target)) = hpa.external_target(&format!("s{index}-")) else {
        return Err(format!(
            "the loop can read it from KEDA, but the HorizontalPodAutoscaler of KEDA has no metric s{index}-…: wait until \
             KEDA has updated it and run this again"
        ));
    };
    draft.differs([D::KedaStays]);
    if context.fallback.is_some() {
        draft.differs([D::FallbackOfKeda]);
    }
    let selector = json!({"matchLabels": {"scaledobject.keda.sh/name": context.object}});
    Ok(TriggerMetric {
        source: json!({"external": {"metric": metric, "selector": selector}}),
        track: TrackDraft { activation, ..target },
    })
}
