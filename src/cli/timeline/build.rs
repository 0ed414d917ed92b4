//! Builds the timeline of an object from what was read: which objects and events it needs, and what it says if one of
//! them is missing or cannot be parsed.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Event, ObjectReference};
use kube::discovery::ApiResource;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::action::action_draft;
use super::events::add_events;
use super::loops::loop_draft;
use super::model::{Draft, Timeline};
use super::pool::pool_draft;
use ganglion_actions_plan::identity::receipt_name;
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::Decision;
use ganglion_api::execution::Execution;
use ganglion_api::marks;
use ganglion_api::monitoring::Monitoring;
use ganglion_api::receipt::WorkloadActionReceipt;
use ganglion_api::swarm_pool::{OutputLayout, SwarmPool};
use ganglion_api::workload_action::WorkloadAction;
use ganglion_loops_plan::explain::ExplainedLoop;
use ganglion_pools_plan::file;

/// Maximum number of pods whose events are read.
pub const PODS: usize = 20;

/// Kind of the object that a timeline is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimelineKind {
    Loop,
    Action,
    Pool,
}

/// Objects of a kind that a timeline needs.
#[derive(Clone, Debug)]
pub struct WantedObjects {
    pub resource: ApiResource,
    pub selector: ObjectSelector,
}

/// Which objects of a kind are needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectSelector {
    Name(String),
    Labels(String),
}

/// An object of the API server, its kind and its name.
pub type ObjectKey = (String, String);

/// The objects and events that were read.
#[derive(Clone, Debug, Default)]
pub struct TimelineObjects {
    pub parent: Value,
    pub children: BTreeMap<ObjectKey, Value>,
    /// Events by uid.
    pub events: BTreeMap<String, Event>,
    /// Objects that could not be read, and why.
    pub problems: BTreeSet<String>,
}

impl TimelineKind {
    /// Type of the object.
    pub fn resource(self) -> ApiResource {
        match self {
            Self::Loop => ApiResource::erase::<ClosedLoop>(&()),
            Self::Action => ApiResource::erase::<WorkloadAction>(&()),
            Self::Pool => ApiResource::erase::<SwarmPool>(&()),
        }
    }

    /// The children that the timeline needs.
    pub fn children(self, parent: &Value) -> Vec<WantedObjects> {
        let name = text(parent, "/metadata/name").to_owned();
        let named = |resource, name| WantedObjects { resource, selector: ObjectSelector::Name(name) };
        match self {
            Self::Loop => {
                let kinds = [
                    ApiResource::erase::<Monitoring>(&()),
                    ApiResource::erase::<Decision>(&()),
                    ApiResource::erase::<Execution>(&()),
                ];
                kinds.into_iter().map(|kind| named(kind, name.clone())).collect()
            }
            Self::Action => {
                let receipt = read::<WorkloadAction>(parent).ok().map(|action| receipt_name(&action));
                receipt.map(|name| named(ApiResource::erase::<WorkloadActionReceipt>(&()), name)).into_iter().collect()
            }
            Self::Pool => {
                let Ok(pool) = read::<SwarmPool>(parent) else { return Vec::new() };
                let resource = ApiResource::erase::<ConfigMap>(&());
                let output = pool.spec.output;
                let selector = match output.layout {
                    OutputLayout::Shared => ObjectSelector::Name(output.config_map),
                    OutputLayout::PerWorker => ObjectSelector::Labels(format!("{}={name}", marks::SWARM_POOL)),
                };
                vec![WantedObjects { resource, selector }]
            }
        }
    }

    /// Field selectors of the events that the timeline needs.
    pub fn events(self, parent: &Value) -> Vec<String> {
        let name = text(parent, "/metadata/name");
        let mut names = BTreeSet::from([format!("involvedObject.name={name}")]);
        let target = match self {
            Self::Loop => "/spec/target/name",
            Self::Pool => "/spec/workload/name",
            Self::Action => "",
        };
        let target = text(parent, target);
        if !target.is_empty() {
            names.insert(format!("involvedObject.name={target}"));
        }
        if self == Self::Action {
            let pods = pods(parent).into_iter().take(PODS);
            names.extend(pods.map(|pod| format!("involvedObject.kind=Pod,involvedObject.name={pod}")));
        }
        names.into_iter().collect()
    }

    /// Whether an event is about the object, its children, the pods of an action, or the workload that it changes.
    fn concerns(self, objects: &TimelineObjects, about: &ObjectReference) -> bool {
        let [kind, name] = [&about.kind, &about.name].map(|part| part.as_deref().unwrap_or_default());
        let parent = &objects.parent;
        let is_uid = |object: &Value| about.uid.as_deref() == Some(text(object, "/metadata/uid"));
        if kind == self.resource().kind && name == text(parent, "/metadata/name") {
            // Names are used again: an event of an earlier object of this name has another uid.
            return is_uid(parent);
        }
        if let Some(child) = objects.children.get(&(kind.to_owned(), name.to_owned())) {
            return is_uid(child);
        }
        match self {
            Self::Loop => (kind, name) == (text(parent, "/spec/target/kind"), text(parent, "/spec/target/name")),
            Self::Pool => (kind, name) == (text(parent, "/spec/workload/kind"), text(parent, "/spec/workload/name")),
            Self::Action => kind == "Pod" && pods(parent).contains(name),
        }
    }

    /// The timeline until `now`. The error is that of an object that cannot be parsed.
    pub fn timeline(
        self,
        objects: &TimelineObjects,
        now: Timestamp,
        since: Option<Timestamp>,
    ) -> Result<Timeline, serde_json::Error> {
        let mut problems = objects.problems.clone();
        let mut draft = match self {
            Self::Loop => loop_objects(objects, &mut problems, now)?,
            Self::Action => {
                let action: WorkloadAction = lenient(&objects.parent, "WorkloadAction", &mut problems)?;
                let receipt = child(objects, "WorkloadActionReceipt", &mut problems);
                action_draft(&action, receipt.as_ref(), now)
            }
            Self::Pool => {
                let pool: SwarmPool = lenient(&objects.parent, "SwarmPool", &mut problems)?;
                let owned = owned(objects, "ConfigMap");
                let maps = owned.filter_map(|map| serde_json::from_value::<ConfigMap>(map.clone()).ok());
                let texts: Vec<_> = maps.map(|map| published(&pool, &map)).collect();
                let published = (!texts.is_empty()).then(|| file::join(texts));
                pool_draft(&pool, published.as_ref())
            }
        };
        let events: Vec<Event> =
            objects.events.values().filter(|event| !is_repeated(event, &objects.parent)).cloned().collect();
        add_events(&mut draft, &events, |about| self.concerns(objects, about));
        let left = pods(&objects.parent).len();
        if self == Self::Action && left > PODS {
            problems.insert(format!("Events of {PODS} of its {left} pods are shown."));
        }
        if !problems.iter().any(|problem| problem.starts_with("No Event is shown")) {
            draft.limits.push(end_of_events(&objects.events, now));
        }
        draft.limits.extend(problems);
        Ok(draft.finish(now, since))
    }
}

/// Whether an event of the workload says what an event of the object says: it names the object as its cause.
fn is_repeated(event: &Event, parent: &Value) -> bool {
    event.related.as_ref().is_some_and(|cause| cause.uid.as_deref() == Some(text(parent, "/metadata/uid")))
}

/// Since when events are known.
fn end_of_events(events: &BTreeMap<String, Event>, now: Timestamp) -> String {
    let times = events.values().filter_map(|event| event.metadata.creation_timestamp.as_ref()).map(|time| time.0);
    let rule = "Events expire after an hour, unless the API server has another --event-ttl";
    match times.min() {
        None => format!("{rule}; there are none."),
        Some(oldest) if now.duration_since(oldest) > SignedDuration::ZERO => {
            format!("{rule}; the oldest one here is of {}.", ganglion_core::layout::clock(oldest))
        }
        Some(_) => format!("{rule}."),
    }
}

fn loop_objects(
    objects: &TimelineObjects,
    problems: &mut BTreeSet<String>,
    now: Timestamp,
) -> Result<Draft, serde_json::Error> {
    let parent: ClosedLoop = lenient(&objects.parent, "ClosedLoop", problems)?;
    let monitoring: Option<Monitoring> = child(objects, "Monitoring", problems);
    let decision: Option<Decision> = child(objects, "Decision", problems);
    let execution: Option<Execution> = child(objects, "Execution", problems);
    let (monitoring, decision, execution) = (monitoring.as_ref(), decision.as_ref(), execution.as_ref());
    Ok(loop_draft(&ExplainedLoop { parent: &parent, monitoring, decision, execution, now }))
}

fn published(pool: &SwarmPool, map: &ConfigMap) -> file::Published {
    let text = |key: &str| map.data.as_ref().and_then(|data| data.get(key)).map(String::as_str);
    file::parse(text(&pool.spec.output.key), text(file::RECORD_KEY))
}

/// The children of a kind. Others of the same name are not the object's.
fn owned<'a>(objects: &'a TimelineObjects, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let uid = text(&objects.parent, "/metadata/uid");
    let of_kind = objects.children.iter().filter(move |((known, _), _)| known == kind).map(|(_, child)| child);
    // The receipt outlives its action, so it has no owner.
    of_kind.filter(move |child| kind == "WorkloadActionReceipt" || owners(child).any(|owner| owner == uid))
}

fn owners(object: &Value) -> impl Iterator<Item = &str> {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().filter_map(|owner| owner.get("uid")?.as_str())
}

/// The only child of a kind; None if there is none, or if it cannot be parsed.
fn child<K: DeserializeOwned>(objects: &TimelineObjects, kind: &str, problems: &mut BTreeSet<String>) -> Option<K> {
    let found = owned(objects, kind).next()?;
    lenient(found, kind, problems).ok()
}

fn read<K: DeserializeOwned>(object: &Value) -> Result<K, serde_json::Error> {
    serde_json::from_value(object.clone())
}

/// Parses an object of any version: if its status cannot be parsed, without its status.
fn lenient<K: DeserializeOwned>(
    object: &Value,
    kind: &str,
    problems: &mut BTreeSet<String>,
) -> Result<K, serde_json::Error> {
    let error = match read(object) {
        Ok(parsed) => return Ok(parsed),
        Err(error) => error,
    };
    let mut bare = object.clone();
    let had_status = bare.as_object_mut().and_then(|members| members.remove("status")).is_some();
    if !had_status {
        return Err(error);
    }
    let parsed = read(&bare)?;
    let words = ganglion_core::words::without_types(&error.to_string());
    problems.insert(format!(
        "The status of {kind} {} cannot be parsed ({words}); an operator of another version wrote it. Use the command of \
         that version.",
        text(object, "/metadata/name")
    ));
    Ok(parsed)
}

/// Names of the old and new pods of an action.
fn pods(action: &Value) -> BTreeSet<&str> {
    let slots = action.pointer("/status/slots").and_then(Value::as_array).into_iter().flatten();
    let names = slots.flat_map(|slot| [text(slot, "/victim/name"), text(slot, "/replacement/name")]);
    names.filter(|name| !name.is_empty()).collect()
}

/// Text at a path of an object; empty if there is none.
pub fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}
