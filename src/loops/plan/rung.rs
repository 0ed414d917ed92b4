//! Properties of a rung: its direction, its dimension, its text.

use serde_json::Value;

use ganglion_api::closed_loop::action::{ActionTemplate, Bounds, POD_LEVEL, PatchField, Resize, Rung, Scale, Tune};
use ganglion_api::closed_loop::metric::ResourceName;
use ganglion_api::closed_loop::track::TrackType;
use ganglion_api::closed_loop::when::When;
use ganglion_api::decision::Direction;
use ganglion_api::scalars::Number;
use ganglion_api::workload_action::OnReplicaOwner;
use ganglion_core::{document, quantity};

/// Describes the position of the rung in the spec, such as `rung 1 on Low cpu (scale by 1, at most 9)`. `index` counts
/// from 0.
pub fn place(rung: &Rung, index: usize, when: &When) -> String {
    format!("rung {} on {when} ({})", index + 1, describe(rung))
}

/// Whether the rung raises or lowers capacity.
pub fn direction(rung: &Rung) -> Direction {
    if let Some(scale) = &rung.scale {
        return match scale.by {
            Some(by) => sign(f64::from(by)),
            // Only the current number shows whether a number that is set raises or lowers.
            None => ratio(scale.factor.as_ref()),
        };
    }
    if let Some(resize) = &rung.resize {
        return ratio(Some(&resize.factor));
    }
    if let Some(template) = &rung.workload_action {
        return match (&template.create, &template.delete) {
            (Some(_), _) => Direction::Raise,
            (None, Some(_)) => Direction::Lower,
            (None, None) => Direction::Neither,
        };
    }
    if let Some(patch) = &rung.patch {
        return match &patch.by {
            Some(by) => quantity::number(by.as_str()).map_or(Direction::Neither, sign),
            None => ratio(patch.factor.as_ref()),
        };
    }
    // An event or a change of a policy does neither.
    Direction::Neither
}

/// Whether the rung lowers memory limits, which needs the usage of the pods.
pub fn lowers_memory_limits(rung: &Rung) -> bool {
    let Some(resize) = rung.resize.as_ref().filter(|_| direction(rung) == Direction::Lower) else { return false };
    resize.resource == ResourceName::Memory
        && match resize.what.unwrap_or(Bounds::Both) {
            Bounds::Requests => false,
            Bounds::Limits | Bounds::Both => true,
        }
}

/// Whether the rung may raise capacity. A number that it sets may be larger than the current one.
pub fn may_raise(rung: &Rung) -> bool {
    direction(rung) == Direction::Raise || sets_number(rung)
}

/// Whether the rung sets a number: only the current one shows whether that raises or lowers capacity.
pub fn sets_number(rung: &Rung) -> bool {
    if let Some(scale) = &rung.scale {
        return scale.to.is_some() || scale.is_tracking();
    }
    let to = rung.patch.as_ref().filter(|patch| patch.by.is_none() && patch.factor.is_none());
    to.and_then(|patch| json_number(patch.to.as_deref()?)).is_some()
}

/// Returns the number in this JSON text.
fn json_number(text: &str) -> Option<f64> {
    number(&serde_json::from_str(text).ok()?)
}

/// Returns the number of a field: a JSON number, or a number or quantity in quotes.
pub fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => quantity::number(text).ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    number.filter(|number| number.is_finite())
}

/// Whether the change that the rung has made raised or lowered capacity. `change`: the values before and after it, as
/// JSON texts.
pub fn direction_of_change(rung: &Rung, change: Option<(&str, &str)>) -> Direction {
    match change.map(|(before, after)| (json_number(before), json_number(after))) {
        Some((Some(before), Some(after))) if sets_number(rung) => sign(after - before),
        Some(_) | None => direction(rung),
    }
}

/// Direction of a change by this much.
pub fn sign(by: f64) -> Direction {
    if by > 0.0 {
        Direction::Raise
    } else if by < 0.0 {
        Direction::Lower
    } else {
        Direction::Neither
    }
}

/// Direction of a multiplication by this factor.
pub fn ratio(factor: Option<&Number>) -> Direction {
    factor
        .and_then(|factor| quantity::number(factor.as_str()).ok())
        .map_or(Direction::Neither, |factor| sign(factor - 1.0))
}

/// Path of the number of replicas in built-in kinds, and the usual one in others.
pub const REPLICAS_PATH: &str = "spec.replicas";

/// Returns the field or quantity that the rung changes. Two rungs of the same dimension can undo each other.
pub fn dimension(rung: &Rung) -> String {
    dimension_on(rung, None)
}

/// Returns the dimension on a target whose number of replicas is at this path, if it is known.
pub fn dimension_on(rung: &Rung, replicas_path: Option<&str>) -> String {
    if let Some(resize) = &rung.resize {
        return format!("{}/{}", resize.part(), resize.resource.as_str());
    }
    if let Some(patch) = &rung.patch {
        return path_dimension(&patch.path, replicas_path);
    }
    if let Some(template) = &rung.workload_action {
        return if template.move_.is_some() { "placement".into() } else { "replicas".into() };
    }
    if let Some(tune) = &rung.tune {
        return tune.threshold.as_ref().map_or_else(|| "rank".into(), |threshold| threshold.path.clone());
    }
    if rung.webhook.is_some() {
        return "event".into();
    }
    "replicas".into()
}

/// Returns the dimension of the field at this path, on a target whose number of replicas is at `replicas_path`.
pub fn path_dimension(path: &str, replicas_path: Option<&str>) -> String {
    let path = in_one_notation(path);
    let is_replicas = path == in_one_notation(replicas_path.unwrap_or(REPLICAS_PATH));
    if is_replicas { "replicas".into() } else { path }
}

/// Whether both paths are the same except for indexes: somebody may add or remove an item before the one that is meant.
pub fn is_alike(one: &str, other: &str) -> bool {
    let is_index = |part: &String| part.bytes().all(|byte| byte.is_ascii_digit());
    let (one, other) = (path_parts(one), path_parts(other));
    one.len() == other.len() && one.iter().zip(&other).all(|(a, b)| a == b || (is_index(a) && is_index(b)))
}

/// Path of the resources of a container in a pod template; None stands for any index or part.
const OF_CONTAINER: &[Option<&str>] =
    &[Some("spec"), Some("template"), Some("spec"), Some("containers"), None, Some("resources"), None];

/// Path of the resources at pod level in a pod template; None stands for any part.
const OF_POD: &[Option<&str>] = &[Some("spec"), Some("template"), Some("spec"), Some("resources"), None];

/// Whether a patch of this path changes this resource in the pod template: of a container, or at pod level. A path has
/// the container's index, and that of the target changes when somebody adds or removes a container; so each index
/// counts for each container.
pub fn contains_resource(path: &str, part: &str, resource: &str) -> bool {
    let template = if part == POD_LEVEL { OF_POD } else { OF_CONTAINER };
    let parts = path_parts(path);
    let whole = template.iter().copied().chain([Some(resource)]);
    parts.len() <= template.len() + 1
        && parts.iter().zip(whole).all(|(part, expected)| expected.is_none_or(|expected| expected == part))
        && parts.get(template.len() - 1).is_none_or(|part| matches!(part.as_str(), "requests" | "limits"))
}

/// Returns the names and indexes on the path of a field. A path that cannot be read makes the spec invalid; it is one
/// name.
pub fn path_parts(path: &str) -> Vec<String> {
    document::path_parts(path).unwrap_or_else(|_| vec![path.to_owned()])
}

/// Returns the path in one notation, so that two paths of the same field are the same text.
fn in_one_notation(path: &str) -> String {
    let parts: Vec<String> =
        path_parts(path).iter().map(|part| part.replace('\\', "\\\\").replace('.', "\\.")).collect();
    parts.join(".")
}

/// Returns what of the target is read for the rung. Rungs with the same text share one read.
pub fn reading(rung: &Rung) -> String {
    let dimension = dimension(rung);
    if let Some(resize) = &rung.resize {
        // Only a rung that lowers reads the usage of pods.
        let dimension = if direction(rung) == Direction::Lower { format!("{dimension} down") } else { dimension };
        return format!("resize {dimension} {:?} {:?}", resize.what, resize.template);
    }
    match (&rung.patch, &rung.workload_action) {
        (Some(patch), _) => format!("patch {}", patch.path),
        (None, Some(_)) => format!("workloadAction {dimension} {:?}", rung.on_replica_owner),
        (None, None) => dimension,
    }
}

/// Number of replicas that the WorkloadAction of a rung adds or removes; None if it only moves some.
pub fn replicas_by(template: &ActionTemplate) -> Option<i32> {
    match (&template.create, &template.delete) {
        (Some(create), _) => Some(create.count.unwrap_or(1)),
        (None, Some(delete)) => Some(delete.count.unwrap_or(1).saturating_neg()),
        (None, None) => None,
    }
}

/// Whether the rung is not carried out if somebody else applies the field that it changes.
pub fn yields(rung: &Rung) -> bool {
    match rung.on_replica_owner {
        None | Some(OnReplicaOwner::Yield) => true,
        Some(OnReplicaOwner::Force) => false,
    }
}

/// Describes the rung, such as `scale by 1, at most 10`.
pub fn describe(rung: &Rung) -> String {
    if let Some(scale) = &rung.scale {
        return scale_words(scale);
    }
    if let Some(resize) = &rung.resize {
        return resize_words(resize);
    }
    if let Some(template) = &rung.workload_action {
        return action_words(template).into();
    }
    if let Some(patch) = &rung.patch {
        return patch_words(patch);
    }
    if let Some(webhook) = &rung.webhook {
        return format!("send an event to {}", webhook.url);
    }
    rung.tune.as_ref().map_or_else(|| "nothing".into(), tune_words)
}

fn scale_words(scale: &Scale) -> String {
    if let Some(to) = scale.to {
        return format!("scale to {to}");
    }
    if let Some(track) = &scale.track {
        let target = match track.type_ {
            TrackType::Utilization => format!("{} % utilization", track.target.as_str()),
            TrackType::AverageValue => format!("{} for each replica", track.target.as_str()),
            TrackType::Value => format!("the value {}", track.target.as_str()),
        };
        return format!("scale to keep {target}{}", within(scale.min, scale.max));
    }
    if scale.schedule.is_some() {
        return format!("scale by schedule{}", within(scale.min, scale.max));
    }
    let by = match (scale.by, &scale.factor) {
        (Some(by), _) => format!("by {by}"),
        (None, Some(factor)) => format!("times {}", factor.as_str()),
        (None, None) => "by nothing".into(),
    };
    format!("scale {by}{}", within(scale.min, scale.max))
}

fn resize_words(resize: &Resize) -> String {
    let bounds = within(resize.min.as_ref().map(Number::as_str), resize.max.as_ref().map(Number::as_str));
    let of = resize.container.as_deref().unwrap_or("the pod");
    format!("resize {} of {of} times {}{bounds}", resize.resource.as_str(), resize.factor.as_str())
}

fn action_words(template: &ActionTemplate) -> &'static str {
    match (&template.create, &template.delete, &template.move_) {
        (Some(_), _, _) => "create replicas",
        (None, Some(_), _) => "delete replicas",
        (None, None, Some(_)) => "move replicas",
        (None, None, None) => "nothing",
    }
}

fn patch_words(patch: &PatchField) -> String {
    let bounds = within(patch.min.as_ref().map(Number::as_str), patch.max.as_ref().map(Number::as_str));
    match (&patch.by, &patch.factor, &patch.to) {
        (Some(by), _, _) => format!("change {} by {}{bounds}", patch.path, by.as_str()),
        (None, Some(factor), _) => format!("change {} times {}{bounds}", patch.path, factor.as_str()),
        (None, None, Some(to)) => format!("set {} to {to}", patch.path),
        (None, None, None) => "nothing".into(),
    }
}

fn tune_words(tune: &Tune) -> String {
    match &tune.threshold {
        Some(threshold) => format!("tune {} by {}", threshold.path, threshold.by.as_str()),
        None => "raise the rank of the least served".into(),
    }
}

fn within(min: Option<impl std::fmt::Display>, max: Option<impl std::fmt::Display>) -> String {
    let min = min.map(|min| format!(", at least {min}")).unwrap_or_default();
    let max = max.map(|max| format!(", at most {max}")).unwrap_or_default();
    format!("{min}{max}")
}
