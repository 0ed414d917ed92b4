//! Kubernetes Events, sent in a separate task so that they do not delay reconciles. If the queue is full or the API
//! server refuses an event, the event is dropped and counted.
//!
//! Owns the sending, the texts, and when a change of a condition is an event ([`condition_events`]). A controller lists
//! the conditions that have events. An effect on another object, such as the workload that a loop scales, is an event
//! of that object, too, with the name of our object.
//!
//! Each event is sent once. Its name is a hash of what happened: the object, the texts, and the version of the object
//! that changed. A process that publishes it once more, after a restart or a change of the leader, is answered that it
//! exists. An event that directly follows an equal one counts in the series of that one, so that the events of an
//! object are a list of what happened, in order. An object has at most ten events a minute ([`limits`]).
//!
//! An event is published after the write that it is about. If the process is killed in between, or while the event is
//! in the queue, the event is lost: no later process publishes it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::fairness::TenantCounts;
use crate::metrics::Metrics;
use ganglion_core::facts::{Identity, Key, Uid};
use ganglion_core::words::cut;
use limits::{EventAdmission, EventLimits, NewEvent};
use sent::{CLUSTER_SCOPED, WORD, event, text_digest};

mod conditions;
pub mod limits;
mod sent;

pub use conditions::{ConditionChange, ConditionEvent, condition_events};

/// Capacity of the queue, and the part of it that one namespace can use.
const LINE: usize = 512;
const LINE_EACH: usize = LINE / 4;

/// Type, reason and note of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct EventText {
    pub warning: bool,
    pub reason: String,
    pub note: String,
    /// Identifies what happened, such as the resourceVersion of the object before the change: the same event with the
    /// same occurrence is published only once. None: what happened is identified by its time.
    pub occurrence: Option<String>,
    /// The other object that takes part.
    pub related: Option<ObjectReference>,
}

impl EventText {
    pub fn normal(reason: &str, note: impl Into<String>) -> Self {
        Self { warning: false, reason: reason.to_owned(), note: note.into(), occurrence: None, related: None }
    }

    pub fn warning(reason: &str, note: impl Into<String>) -> Self {
        Self { warning: true, ..Self::normal(reason, note) }
    }

    /// Event with reason and message of a condition.
    pub fn of(condition: &Condition, warning: bool) -> Self {
        Self { warning, ..Self::normal(&condition.reason, &*condition.message) }
    }

    /// The event of this occurrence, unless it has one.
    pub fn in_occurrence(self, occurrence: &str) -> Self {
        Self { occurrence: self.occurrence.or_else(|| Some(occurrence.to_owned())), ..self }
    }

    pub fn with_related(self, related: ObjectReference) -> Self {
        Self { related: Some(related), ..self }
    }
}

/// The sending half of the queue; cheap to clone.
#[derive(Clone)]
pub struct Events {
    line: mpsc::Sender<QueuedEvent>,
    state: Arc<Mutex<EventState>>,
    metrics: Metrics,
    /// Value of `reportingController`.
    controller: Arc<str>,
}

/// State that the clones share.
#[derive(Default)]
struct EventState {
    limits: EventLimits,
    /// Number of events of each namespace in the queue.
    waiting: TenantCounts<String>,
}

struct QueuedEvent {
    tenant: String,
    event: Event,
}

/// Namespace that causes the event. For a cluster-scoped object, it is that of the other object.
fn tenant(object: &ObjectReference, text: &EventText) -> String {
    let other = text.related.as_ref().and_then(|other| other.namespace.clone());
    object.namespace.clone().or(other).unwrap_or_default()
}

/// The receiving half: sends the events to the API server.
pub struct EventSender {
    line: mpsc::Receiver<QueuedEvent>,
    state: Arc<Mutex<EventState>>,
    metrics: Metrics,
}

/// Creates the queue of events.
pub fn line(metrics: &Metrics) -> (Events, EventSender) {
    let (sender, receiver) = mpsc::channel(LINE);
    let (state, metrics) = (Arc::<Mutex<EventState>>::default(), metrics.clone());
    let controller = Arc::from("ganglion");
    let events = Events { line: sender, state: Arc::clone(&state), metrics: metrics.clone(), controller };
    (events, EventSender { line: receiver, state, metrics })
}

impl Events {
    /// The same queue, for events of this controller.
    pub fn reported_by(&self, controller: &str) -> Self {
        Self { controller: Arc::from(format!("ganglion/{controller}")), ..self.clone() }
    }

    /// Publishes an event about this object. A long note is truncated.
    pub fn publish(&self, object: ObjectReference, text: EventText) {
        self.publish_at(&object, &text, Timestamp::now());
    }

    fn publish_at(&self, object: &ObjectReference, text: &EventText, now: Timestamp) {
        let (tenant, digest) = (tenant(object, text), text_digest(&self.controller, text));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.waiting.count(&tenant) >= LINE_EACH || self.line.capacity() == 0 {
            self.metrics.events_dropped.inc();
            return;
        }
        let key = [&object.uid, &object.kind, &object.namespace, &object.name];
        let new = NewEvent {
            object: &key.map(|part| part.as_deref().unwrap_or_default()).join("/"),
            tenant: &tenant,
            is_shared: object.namespace.is_none(),
            occurrence: text.occurrence.as_deref(),
            text: &digest,
        };
        let admission = state.limits.admit(&new, now);
        if admission == EventAdmission::LeftOut {
            self.metrics.events_left_out.inc();
        }
        let Some(event) = event(object, text, &digest, &admission, &self.controller) else { return };
        if self.line.try_send(QueuedEvent { tenant: tenant.clone(), event }).is_err() {
            self.metrics.events_dropped.inc();
        } else {
            state.waiting.add(tenant);
        }
    }
}

impl EventSender {
    /// Sends events until the last [`Events`] is dropped or `stop` is cancelled. `instance`: name of the pod.
    pub async fn run(mut self, client: Client, instance: String, timeout: Duration, stop: CancellationToken) {
        let instance = cut(&instance, WORD);
        loop {
            let next = tokio::select! {
                biased;
                next = self.line.recv() => next,
                () = stop.cancelled() => None,
            };
            let Some(QueuedEvent { tenant, mut event }) = next else { return };
            self.state.lock().unwrap_or_else(PoisonError::into_inner).waiting.remove(&tenant);
            event.reporting_instance = Some(instance.to_owned());
            match tokio::time::timeout(timeout, send(&client, &event)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    self.metrics.events_dropped.inc();
                    debug!(%error, "event refused");
                }
                Err(_) => {
                    self.metrics.events_dropped.inc();
                }
            }
        }
    }
}

/// Creates the event, or counts it in its series. An event that exists already was published before.
async fn send(client: &Client, event: &Event) -> Result<(), kube::Error> {
    let namespace = event.metadata.namespace.as_deref().unwrap_or(CLUSTER_SCOPED);
    let events = Api::<Event>::namespaced(client.clone(), namespace);
    if let Some(series) = &event.series {
        let name = event.metadata.name.as_deref().unwrap_or_default();
        let patch = Patch::Merge(json!({"series": series}));
        match events.patch(name, &PatchParams::default(), &patch).await {
            // The first event has expired, or was not sent.
            Err(error) if has_status(&error, StatusCode::NOT_FOUND) => {}
            done => return done.map(drop),
        }
    }
    let new = Event { series: None, ..event.clone() };
    match events.create(&PostParams::default(), &new).await {
        Err(error) if has_status(&error, StatusCode::CONFLICT) => Ok(()),
        done => done.map(drop),
    }
}

fn has_status(error: &kube::Error, code: StatusCode) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code.as_u16())
}

/// Reference to an object of a kind of ours, or of another known kind.
pub fn reference<K: Resource<DynamicType = ()>>(object: &Identity) -> ObjectReference {
    reference_to(&K::api_version(&()), &K::kind(&()), &object.key, Some(&object.uid))
}

/// Reference to an object of any kind. The events of an object without a uid do not appear in `kubectl describe`.
pub fn reference_to(api_version: &str, kind: &str, key: &Key, uid: Option<&Uid>) -> ObjectReference {
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        // Events of cluster-scoped objects are in the namespace `default`.
        namespace: Some(key.namespace.clone()).filter(|namespace| !namespace.is_empty()),
        name: Some(key.name.clone()),
        uid: uid.map(ToString::to_string),
        ..ObjectReference::default()
    }
}

/// Reference to a node, for the events that others cause there.
pub fn node_reference(node: &Identity) -> ObjectReference {
    reference_to("v1", "Node", &node.key, Some(&node.uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(namespace: &str, name: &str) -> ObjectReference {
        reference_to("v1", "Pod", &Key::new(namespace, name), None)
    }

    fn queued(sender: &mut EventSender) -> Vec<Event> {
        std::iter::from_fn(|| sender.line.try_recv().ok()).map(|queued| queued.event).collect()
    }

    #[test]
    fn one_namespace_cannot_fill_the_queue() {
        let metrics = Metrics::new();
        let (events, mut sender) = line(&metrics);
        let publish = |namespace: &str, number: usize| {
            events.publish(object(namespace, &number.to_string()), EventText::normal("Done", ""));
        };
        (0..LINE).for_each(|number| publish("a", number));
        assert_eq!(metrics.events_dropped.get(), 384, "three quarters");
        publish("b", 0);
        let sent = queued(&mut sender);
        let last = sent.last().and_then(|event| event.metadata.namespace.as_deref());
        assert_eq!((sent.len(), last), (LINE_EACH + 1, Some("b")));
    }

    #[tokio::test]
    async fn a_full_line_drops_and_counts_and_never_blocks() {
        let metrics = Metrics::new();
        let (events, _sender) = line(&metrics);
        for nth in 0..LINE + 3 {
            events.publish(object(&(nth % 8).to_string(), &nth.to_string()), EventText::normal("Done", "x"));
        }
        assert_eq!(metrics.events_dropped.get(), 3);
    }

    #[test]
    fn controllers_share_the_limit_of_an_object_and_its_order() {
        let metrics = Metrics::new();
        let (events, mut sender) = line(&metrics);
        let (pool, execution) = (events.reported_by("pool"), events.reported_by("execution"));
        let now = Timestamp::UNIX_EPOCH;
        for number in 0..8 {
            let text = EventText::normal("Scaled", format!("to {number}"));
            pool.publish_at(&object("a", "web"), &text, now);
            execution.publish_at(&object("a", "web"), &text, now);
        }
        assert_eq!((metrics.events_left_out.get(), metrics.events_dropped.get()), (6, 0));
        let sent = queued(&mut sender);
        let times: Vec<_> = sent.iter().map(|event| event.event_time.clone().unwrap().0).collect();
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
        let by = |event: &Event| event.reporting_controller.clone().unwrap_or_default();
        assert_eq!((by(&sent[0]), by(&sent[1])), ("ganglion/pool".into(), "ganglion/execution".into()));
    }

    #[test]
    fn an_event_of_a_node_counts_for_the_namespace_that_caused_it() {
        let metrics = Metrics::new();
        let (events, mut sender) = line(&metrics);
        let node = node_reference(&Identity { key: Key::new("", "n"), ..Identity::default() });
        for namespace in ["a", "a", "a", "a", "a", "a", "b"] {
            let text = EventText::normal("ReplicasLeft", "").with_related(object(namespace, "go"));
            let text = EventText { note: metrics.events_left_out.get().to_string() + namespace, ..text };
            events.publish_at(&node, &EventText { occurrence: None, ..text }, Timestamp::UNIX_EPOCH);
        }
        let notes: Vec<_> = queued(&mut sender).into_iter().filter_map(|event| event.note).collect();
        assert_eq!(metrics.events_left_out.get(), 1, "{notes:?}");
        assert_eq!(notes.last().map(String::as_str), Some("1b (1 more event was left out)"));
    }
}
