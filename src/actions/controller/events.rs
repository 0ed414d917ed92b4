//! Events of a WorkloadAction. One event is published when the action starts and one when it ends, with reason and
//! message of the Ready condition. Another event reports receivers that were given up, with reason and message of the
//! Notified condition.
//!
//! The workloads whose replicas change have an event at the start and at the end of the action, and the nodes that
//! replicas leave or get have one at the end.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use ganglion_actions_plan::notify::NOTIFIED;
use ganglion_api::identity::NodeName;
use ganglion_api::refs::WorkloadRef;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_api::workload_action::WorkloadActionStatus;
use ganglion_api::workload_action::status::{Slot, Step};
use ganglion_core::facts::{DeploymentFact, Identity, Key, ReplicaSetFact, StatefulSetFact};
use ganglion_core::words::counted;
use ganglion_core::world::{Fact, World};
use ganglion_runtime::events::{
    ConditionChange, ConditionEvent, EventText, condition_events, node_reference, reference, reference_to,
};

/// Receivers were given up.
const GIVEN_UP: ConditionEvent = ConditionEvent::warning(NOTIFIED, "False", ConditionChange::Status);

/// Events of the workloads whose replicas an action changes, and of a node that it drains.
const STARTED: &str = "ActionStarted";
const SUCCEEDED: &str = "ActionSucceeded";
const FAILED: &str = "ActionFailed";
/// Events of the nodes of a successful slot.
const LEFT: &str = "ReplicasLeft";
const ARRIVED: &str = "ReplicasArrived";

/// Maximum number of other objects that have events about one end of an action. An action has up to 100 slots.
const OTHERS: usize = 20;
/// Maximum number of nodes that a note lists.
const LISTED: usize = 3;

/// Event of an object other than the action.
#[derive(Debug, PartialEq)]
pub struct OtherEvent {
    pub object: ObjectReference,
    pub text: EventText,
}

/// Change of a status that has events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transition {
    Started,
    Ended,
}

fn transition(before: Option<&WorkloadActionStatus>, after: &WorkloadActionStatus) -> Option<Transition> {
    if after.finished_at.is_some() && before.is_none_or(|status| status.finished_at.is_none()) {
        return Some(Transition::Ended);
    }
    let has_begun = after.started_at.is_some() && before.is_none_or(|status| status.started_at.is_none());
    has_begun.then_some(Transition::Started)
}

fn ready(status: &WorkloadActionStatus) -> Option<&Condition> {
    status.conditions.iter().find(|condition| condition.type_ == "Ready")
}

/// Event for a status change in which the action started or ended, with the name of its workload or pod.
pub fn transition_event(before: Option<&WorkloadActionStatus>, after: &WorkloadActionStatus) -> Option<EventText> {
    let (transition, ready) = (transition(before, after)?, ready(after)?);
    let event = EventText::of(ready, transition == Transition::Ended && ready.status != "True");
    match after.summary.as_ref().and_then(|summary| summary.workload.as_ref()) {
        Some(workload) => Some(EventText { note: format!("{workload}: {}", event.note), ..event }),
        None => Some(event),
    }
}

/// Event for the status change that ends the notifications, if a receiver was given up.
pub fn given_up_event(before: Option<&WorkloadActionStatus>, after: &WorkloadActionStatus) -> Option<EventText> {
    let before = before.map(|status| &*status.conditions).unwrap_or_default();
    condition_events(&[GIVEN_UP], before, &after.conditions).pop()
}

/// Events of the workloads and nodes, for a status change in which the action started or ended.
pub fn other_events(
    action: &Identity,
    before: Option<&WorkloadActionStatus>,
    after: &WorkloadActionStatus,
    world: &World,
) -> Vec<OtherEvent> {
    let (Some(transition), Some(ready)) = (transition(before, after), ready(after)) else { return Vec::new() };
    let story = EventfulAction { action, status: after, ready, world };
    let mut events = story.drained_node(transition);
    let mut slots: BTreeMap<(&str, &str), Vec<&Slot>> = BTreeMap::new();
    for slot in &after.slots {
        slots.entry((&slot.workload.kind, &slot.workload.name)).or_default().push(slot);
    }
    for slots in slots.values() {
        events.extend(story.workload(transition, slots));
    }
    if transition == Transition::Ended {
        for slots in slots.values() {
            events.extend(story.nodes(slots));
        }
    }
    events.truncate(OTHERS);
    events
}

/// The action that the events of other objects are about.
struct EventfulAction<'a> {
    action: &'a Identity,
    status: &'a WorkloadActionStatus,
    ready: &'a Condition,
    world: &'a World,
}

impl EventfulAction<'_> {
    fn event(&self, warning: bool, reason: &str, note: String) -> EventText {
        let text = EventText { warning, ..EventText::normal(reason, note) };
        text.with_related(reference::<WorkloadAction>(self.action)).in_occurrence(self.action.uid.as_str())
    }

    /// Reason and end of the note of the events of the workloads. `done`: number of its slots that succeeded, and of
    /// all slots.
    fn progress(&self, transition: Transition, (done, all): (usize, usize)) -> (bool, &'static str, String) {
        let verb = self.status.summary.as_ref().map(|summary| summary.action.as_str()).unwrap_or_default();
        let (name, replicas) = (&self.action.key.name, counted_replicas(all));
        match transition {
            Transition::Started => (false, STARTED, format!("WorkloadAction {name} ({verb}) started: {replicas}")),
            Transition::Ended if self.ready.status == "True" => {
                (false, SUCCEEDED, format!("WorkloadAction {name} ({verb}) succeeded: {replicas}"))
            }
            Transition::Ended => {
                let Condition { reason, message, .. } = self.ready;
                let end =
                    format!("WorkloadAction {name} ({verb}) ended with {done} of {replicas}: {reason}: {message}");
                (true, FAILED, end)
            }
        }
    }

    fn workload(&self, transition: Transition, slots: &[&Slot]) -> Option<OtherEvent> {
        let workload = &slots.first()?.workload;
        let done = slots.iter().filter(|slot| slot.step == Step::Succeeded).count();
        let (warning, reason, mut note) = self.progress(transition, (done, slots.len()));
        if !warning {
            note.push_str(&route(slots));
        }
        Some(OtherEvent { object: self.workload_reference(workload)?, text: self.event(warning, reason, note) })
    }

    /// Event of the node that a moveApplication drains.
    fn drained_node(&self, transition: Transition) -> Vec<OtherEvent> {
        let Some(summary) = self.status.summary.as_ref().filter(|_| self.status.application.is_some()) else {
            return Vec::new();
        };
        let node = summary.from.as_ref().and_then(|name| self.world.node(&NodeName::from(name.as_str())));
        let Some(node) = node else { return Vec::new() };
        let Key { namespace, name } = &self.action.key;
        let (verb, done) = (&summary.action, &summary.done);
        let (warning, reason, end) = match transition {
            Transition::Started => (false, STARTED, "started".to_owned()),
            Transition::Ended if self.ready.status == "True" => {
                (false, SUCCEEDED, format!("succeeded, {done} replicas"))
            }
            Transition::Ended => (true, FAILED, format!("ended with {}: {}", self.ready.reason, self.ready.message)),
        };
        let text = self.event(warning, reason, format!("WorkloadAction {namespace}/{name} ({verb}) {end}"));
        vec![OtherEvent { object: node_reference(&node.id), text }]
    }

    /// Events of the nodes that replicas of a workload left or got.
    fn nodes(&self, slots: &[&Slot]) -> Vec<OtherEvent> {
        let (mut left, mut arrived) = (BTreeMap::<&NodeName, usize>::new(), BTreeMap::<&NodeName, usize>::new());
        let mut workload = None;
        for slot in slots.iter().filter(|slot| slot.step == Step::Succeeded) {
            workload = Some(&slot.workload);
            if let Some(pod) = &slot.victim {
                *left.entry(&pod.node).or_default() += 1;
            }
            if let Some(pod) = &slot.replacement {
                *arrived.entry(&pod.node).or_default() += 1;
            }
        }
        let Some(WorkloadRef { kind, name, .. }) = workload else { return Vec::new() };
        let Key { namespace, name: action } = &self.action.key;
        let mut events = Vec::new();
        for (reason, verb, counts) in [(LEFT, "left", left), (ARRIVED, "arrived", arrived)] {
            for (node, count) in counts {
                let Some(node) = self.world.node(node) else { continue };
                let replicas = counted_replicas(count);
                let note =
                    format!("{replicas} of {kind} {namespace}/{name} {verb}, by WorkloadAction {namespace}/{action}");
                events.push(OtherEvent { object: node_reference(&node.id), text: self.event(false, reason, note) });
            }
        }
        events
    }

    /// None if the workload is of a kind that is not watched, or is gone.
    fn workload_reference(&self, workload: &WorkloadRef) -> Option<ObjectReference> {
        let key = Key::new(&self.action.key.namespace, &workload.name);
        let id = match &*workload.kind {
            "Deployment" => self.world.table::<DeploymentFact>().get(&key)?.id(),
            "StatefulSet" => self.world.table::<StatefulSetFact>().get(&key)?.id(),
            "ReplicaSet" => self.world.table::<ReplicaSetFact>().get(&key)?.id(),
            _ => return None,
        };
        Some(reference_to(&workload.api_version, &workload.kind, &key, Some(&id.uid)))
    }
}

fn counted_replicas(count: usize) -> String {
    counted(count as u64, "replica")
}

/// Nodes that the replicas leave and get, such as ` from a to b, c and 2 more`.
fn route(slots: &[&Slot]) -> String {
    let from: BTreeSet<&str> = slots.iter().filter_map(|slot| Some(slot.victim.as_ref()?.node.as_str())).collect();
    let to: BTreeSet<&str> = slots.iter().filter_map(|slot| Some(slot.replacement.as_ref()?.node.as_str())).collect();
    let mut text = String::new();
    for (word, nodes) in [("from", from), ("to", to)] {
        let nodes: Vec<&str> = nodes.into_iter().filter(|node| !node.is_empty()).collect();
        if nodes.is_empty() {
            continue;
        }
        text.push_str(&format!(" {word} {}", nodes[..nodes.len().min(LISTED)].join(", ")));
        if nodes.len() > LISTED {
            text.push_str(&format!(" and {} more", nodes.len() - LISTED));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganglion_api::workload_action::status::{ApplicationProgress, SetRef, Summary};
    use ganglion_core::facts::{NodeFact, Uid};
    use ganglion_core::world::Origin;
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    fn status(ready: &str, reason: &str, began: bool, ended: bool) -> WorkloadActionStatus {
        let time = Time(Timestamp::UNIX_EPOCH);
        WorkloadActionStatus {
            conditions: vec![Condition {
                type_: "Ready".into(),
                status: ready.into(),
                reason: reason.into(),
                message: "words".into(),
                observed_generation: None,
                last_transition_time: time.clone(),
            }],
            started_at: began.then(|| time.clone()),
            finished_at: ended.then_some(time),
            ..WorkloadActionStatus::default()
        }
    }

    #[test]
    fn one_event_at_the_beginning_and_one_at_the_end() {
        let queued = status("Unknown", "Queued", false, false);
        let begun = status("Unknown", "Creating", true, false);
        let further = status("Unknown", "Evicting", true, false);
        let done = status("True", "Succeeded", true, true);
        let failed = status("False", "NodeFull", false, true);
        let words = |before, after| transition_event(before, after).map(|event| (event.reason, event.warning));
        assert_eq!(words(None, &queued), None);
        assert_eq!(words(Some(&queued), &begun), Some(("Creating".into(), false)));
        assert_eq!(words(Some(&begun), &further), None);
        assert_eq!(words(Some(&further), &done), Some(("Succeeded".into(), false)));
        assert_eq!(words(Some(&done), &done), None);
        assert_eq!(words(None, &failed), Some(("NodeFull".into(), true)));
    }

    #[test]
    fn one_event_if_a_receiver_is_given_up() {
        let notified = |value: &str, reason: &str| {
            let mut status = status("True", "Succeeded", true, true);
            let mut condition = status.conditions[0].clone();
            (condition.type_, condition.status, condition.reason) = (NOTIFIED.into(), value.into(), reason.into());
            status.conditions.push(condition);
            status
        };
        let words = |before: &_, after| given_up_event(Some(before), after).map(|event| (event.reason, event.warning));
        let (begun, done) = (notified("Unknown", "Delivering"), notified("True", "Delivered"));
        let failed = notified("False", "DeliveryFailed");
        assert_eq!(words(&begun, &done), None);
        assert_eq!(words(&begun, &failed), Some(("DeliveryFailed".into(), true)));
        assert_eq!(words(&failed, &failed), None);
        assert_eq!(transition_event(Some(&begun), &failed), None, "the action ended before");
    }

    fn node(world: &mut World, name: &str) {
        let id = Identity { key: Key::new("", name), uid: Uid::from(format!("uid-{name}")), version: "1".into() };
        world.apply(NodeFact { id, ..NodeFact::default() }, Origin::Watch);
    }

    fn slot(index: i32, step: Step, from: &str, to: &str) -> Slot {
        let pod = |node: &str| json!({"name": format!("web-{index}"), "node": node});
        serde_json::from_value(json!({
            "id": format!("slot-{index}"), "index": index, "attempt": 0, "step": step, "since": "1970-01-01T00:00:00Z",
            "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "replicaSet": SetRef::default(), "label": "", "victim": pod(from), "replacement": pod(to),
        }))
        .unwrap()
    }

    /// Events of other objects: kind and name of the object, reason, note.
    fn others(before: Option<&WorkloadActionStatus>, after: &WorkloadActionStatus) -> Vec<(String, String, String)> {
        let mut world = World::default();
        ganglion_actions_plan::world::register(&mut world);
        for name in ["a", "b", "c"] {
            node(&mut world, name);
        }
        let id = |name: &str| Identity { key: Key::new("shop", name), uid: Uid::from(name), version: "1".into() };
        world.apply(DeploymentFact { id: id("web"), ..DeploymentFact::default() }, Origin::Watch);
        let events = other_events(&id("go"), before, after, &world);
        events
            .into_iter()
            .map(|OtherEvent { object, text }| {
                let related = text.related.as_ref().and_then(|related| related.name.as_deref());
                assert_eq!((related, text.occurrence.is_some()), (Some("go"), true), "{text:?}");
                assert!(object.uid.is_some(), "kubectl describe asks for the uid: {object:?}");
                (format!("{}/{}", object.kind.unwrap(), object.name.unwrap()), text.reason, text.note)
            })
            .collect()
    }

    fn moving(mut status: WorkloadActionStatus, steps: &[Step]) -> WorkloadActionStatus {
        status.summary = Some(Summary { action: "Move".into(), ..Summary::default() });
        let targets = ["b", "c"];
        status.slots = steps.iter().zip(0..).map(|(step, at)| slot(at, *step, "a", targets[at as usize % 2])).collect();
        status
    }

    #[test]
    fn the_workload_and_the_nodes_have_events_with_the_name_of_the_action() {
        let begun = moving(status("Unknown", "Creating", true, false), &[Step::Planned, Step::Planned]);
        let event = |object: &str, reason: &str, note: &str| (object.to_owned(), reason.to_owned(), note.to_owned());
        let started = "WorkloadAction go (Move) started: 2 replicas from a to b, c";
        assert_eq!(others(None, &begun), [event("Deployment/web", STARTED, started)]);
        let further = moving(status("Unknown", "Evicting", true, false), &[Step::Evicting, Step::Planned]);
        assert_eq!(others(Some(&begun), &further), []);
        let done = moving(status("True", "Succeeded", true, true), &[Step::Succeeded, Step::Succeeded]);
        let by = "by WorkloadAction shop/go";
        assert_eq!(
            others(Some(&further), &done),
            [
                event("Deployment/web", SUCCEEDED, "WorkloadAction go (Move) succeeded: 2 replicas from a to b, c"),
                event("Node/a", LEFT, &format!("2 replicas of Deployment shop/web left, {by}")),
                event("Node/b", ARRIVED, &format!("1 replica of Deployment shop/web arrived, {by}")),
                event("Node/c", ARRIVED, &format!("1 replica of Deployment shop/web arrived, {by}")),
            ]
        );
        let failed = moving(status("False", "NodeFull", true, true), &[Step::Succeeded, Step::RolledBack]);
        let told = others(Some(&further), &failed);
        let note = "WorkloadAction go (Move) ended with 1 of 2 replicas: NodeFull: words";
        assert_eq!(told[0], event("Deployment/web", FAILED, note));
        assert_eq!(told[1..].iter().map(|(object, ..)| object.as_str()).collect::<Vec<_>>(), ["Node/a", "Node/b"]);
        assert_eq!(others(Some(&done), &done), []);
    }

    #[test]
    fn a_drain_has_events_on_its_node_and_their_number_is_bounded() {
        let mut begun = moving(status("Unknown", "Moving", true, false), &[]);
        begun.application = Some(ApplicationProgress::default());
        begun.summary.as_mut().unwrap().from = Some("a".into());
        let events = others(None, &begun);
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!((&*events[0].0, &*events[0].1), ("Node/a", STARTED));
        begun.summary.as_mut().unwrap().from = Some("3 nodes".into());
        assert_eq!(others(None, &begun), []);
        let steps = [Step::Succeeded; 100];
        let mut done = moving(status("True", "Succeeded", true, true), &steps);
        for (index, slot) in done.slots.iter_mut().enumerate() {
            slot.workload = WorkloadRef { name: format!("web-{index}"), ..slot.workload.clone() };
        }
        assert_eq!(others(None, &done).len(), OTHERS);
    }
}
