//! Kubernetes Events, sent in a separate task so that they do not delay reconciles. If the queue is full or the API
//! server refuses an event, the event is dropped and counted.
//!
//! Owns the sending, and when a change of a condition is an event ([`condition_events`]). A controller lists the
//! conditions that have events; only the start and the end of actions and decisions have rules of their own.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::fairness::TenantCounts;
use crate::metrics::Metrics;
use ganglion_core::facts::Identity;
use ganglion_core::words::cut;

/// Capacity of the queue, and the part of it that one namespace can use.
const LINE: usize = 512;
const LINE_EACH: usize = LINE / 4;

/// Maximum length of the note of an Event, in bytes.
const NOTE: usize = 1024;

/// Type, reason and note of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventText {
    pub warning: bool,
    pub reason: String,
    pub note: String,
    /// Detail that distinguishes the event from earlier ones with the same reason, such as a version. The events API
    /// merges events without such a detail into a series that shows only the note of the first.
    pub about: Option<String>,
}

impl EventText {
    /// Event with reason and message of a condition.
    pub fn of(condition: &Condition, warning: bool) -> Self {
        Self { warning, reason: condition.reason.clone(), note: condition.message.clone(), about: None }
    }
}

/// A condition that has an event when it takes a status, or changes in it.
#[derive(Clone, Copy, Debug)]
pub struct ConditionEvent {
    condition: &'static str,
    /// `True` or `False`.
    status: &'static str,
    warning: bool,
    on: ConditionChange,
}

/// Which changes of a condition are events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionChange {
    /// It had another status before, or did not exist.
    Status,
    /// It had exactly the opposite status before. A new object that is Ready has no event, and neither has one that was
    /// Unknown.
    Opposite,
    /// It had another status or another reason before. Its message contains counts that change all the time.
    Reason,
    /// It had another status, reason or message before.
    Message,
}

impl ConditionEvent {
    pub const fn warning(condition: &'static str, status: &'static str, on: ConditionChange) -> Self {
        Self { condition, status, warning: true, on }
    }

    pub const fn normal(condition: &'static str, status: &'static str, on: ConditionChange) -> Self {
        Self { condition, status, warning: false, on }
    }

    fn is_event(&self, before: Option<&Condition>, after: &Condition) -> bool {
        let Some(before) = before else { return self.on != ConditionChange::Opposite };
        let same_status = before.status == after.status;
        let same_reason = same_status && before.reason == after.reason;
        match self.on {
            ConditionChange::Status => !same_status,
            ConditionChange::Opposite => !same_status && before.status != "Unknown",
            ConditionChange::Reason => !same_reason,
            ConditionChange::Message => !same_reason || before.message != after.message,
        }
    }
}

/// Events about the changes of these conditions between two statuses of an object.
pub fn condition_events(rules: &[ConditionEvent], before: &[Condition], after: &[Condition]) -> Vec<EventText> {
    let mut events = Vec::new();
    for rule in rules {
        let new = after.iter().find(|condition| condition.type_ == rule.condition && condition.status == rule.status);
        let old = before.iter().find(|condition| condition.type_ == rule.condition);
        if let Some(new) = new
            && rule.is_event(old, new)
        {
            events.push(EventText::of(new, rule.warning));
        }
    }
    events
}

/// The sending half of the queue; cheap to clone.
#[derive(Clone)]
pub struct Events {
    line: mpsc::Sender<(ObjectReference, EventText)>,
    waiting: WaitingEvents,
    metrics: Metrics,
}

/// Number of events of each namespace in the queue.
type WaitingEvents = Arc<Mutex<TenantCounts<String>>>;

fn namespace(object: &ObjectReference) -> &str {
    object.namespace.as_deref().unwrap_or_default()
}

/// The receiving half: sends the events to the API server.
pub struct EventSender {
    line: mpsc::Receiver<(ObjectReference, EventText)>,
    waiting: WaitingEvents,
    metrics: Metrics,
}

/// Creates the queue of events.
pub fn line(metrics: &Metrics) -> (Events, EventSender) {
    let (sender, receiver) = mpsc::channel(LINE);
    let (waiting, metrics) = (WaitingEvents::default(), metrics.clone());
    let events = Events { line: sender, waiting: Arc::clone(&waiting), metrics: metrics.clone() };
    (events, EventSender { line: receiver, waiting, metrics })
}

impl Events {
    /// Publishes an event about this object. A long note is truncated.
    pub fn publish(&self, object: ObjectReference, text: EventText) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let tenant = namespace(&object).to_owned();
        if waiting.count(&tenant) >= LINE_EACH || self.line.try_send((object, text)).is_err() {
            self.metrics.events_dropped.inc();
        } else {
            waiting.add(tenant);
        }
    }
}

impl EventSender {
    /// Sends events until the last [`Events`] is dropped or `stop` is cancelled.
    pub async fn run(mut self, client: Client, from: Reporter, timeout: Duration, stop: CancellationToken) {
        let recorder = Recorder::new(client, from);
        loop {
            let next = tokio::select! {
                biased;
                next = self.line.recv() => next,
                () = stop.cancelled() => None,
            };
            let Some((reference, text)) = next else { return };
            self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(namespace(&reference));
            let event = event(text);
            match tokio::time::timeout(timeout, recorder.publish(&event, &reference)).await {
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

fn event(text: EventText) -> Event {
    Event {
        type_: if text.warning { EventType::Warning } else { EventType::Normal },
        action: text.about.map_or_else(|| text.reason.clone(), |about| format!("{} {about}", text.reason)),
        reason: text.reason,
        note: Some(cut(&text.note, NOTE).to_owned()),
        secondary: None,
    }
}

/// Reference to an object, as the subject of an event.
pub fn reference<K: Resource<DynamicType = ()>>(object: &Identity) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        // Events of cluster-scoped objects are in the namespace `default`.
        namespace: Some(object.key.namespace.clone()).filter(|namespace| !namespace.is_empty()),
        name: Some(object.key.name.clone()),
        uid: Some(object.uid.to_string()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use ganglion_core::conditions::{Stamp, condition};

    #[test]
    fn one_namespace_cannot_fill_the_queue() {
        let metrics = Metrics::new();
        let (events, mut sender) = line(&metrics);
        let publish = |namespace: &str| {
            let object = ObjectReference { namespace: Some(namespace.to_owned()), ..ObjectReference::default() };
            let text = EventText { warning: false, reason: "Done".into(), note: String::new(), about: None };
            events.publish(object, text);
        };
        (0..LINE).for_each(|_| publish("a"));
        assert_eq!(metrics.events_dropped.get(), 384, "three quarters");
        publish("b");
        let mut queued = Vec::new();
        while let Ok((object, _)) = sender.line.try_recv() {
            queued.extend(object.namespace);
        }
        assert_eq!((queued.len(), queued.last().map(String::as_str)), (LINE_EACH + 1, Some("b")));
    }

    #[test]
    fn notes_are_cut_between_characters() {
        let text = "ä".repeat(600);
        let note = cut(&text, NOTE);
        assert_eq!(note.len(), 1024);
        assert!(cut(&format!("x{text}"), NOTE).len() == 1023);
        assert_eq!(cut("short", NOTE), "short");
    }

    #[rstest]
    #[case(ConditionChange::Status, [true, true, true, false, false])]
    #[case(ConditionChange::Opposite, [false, true, false, false, false])]
    #[case(ConditionChange::Reason, [true, true, true, true, false])]
    #[case(ConditionChange::Message, [true, true, true, true, true])]
    fn a_change_of_a_condition_is_an_event(#[case] on: ConditionChange, #[case] expected: [bool; 5]) {
        let stamp = Stamp { generation: 1, now: jiff::Timestamp::UNIX_EPOCH };
        let ready = |status, reason, message| vec![condition(&[], "Ready", status, reason, message, stamp)];
        let rule = ConditionEvent::warning("Ready", "False", on);
        let after = ready("False", "Stale", "m");
        let before = [
            Vec::new(),
            ready("True", "Stale", "m"),
            ready("Unknown", "Stale", "m"),
            ready("False", "Unreachable", "m"),
            ready("False", "Stale", "n"),
        ];
        let is_event = before.map(|before| !condition_events(&[rule], &before, &after).is_empty());
        assert_eq!(is_event, expected);
        let event = EventText { warning: true, reason: "Stale".into(), note: "m".into(), about: None };
        assert_eq!(condition_events(&[rule], &ready("True", "Ok", ""), &after), [event]);
        assert!(condition_events(&[rule], &after, &after).is_empty());
        assert!(condition_events(&[rule], &after, &ready("True", "Ok", "")).is_empty());
    }

    #[tokio::test]
    async fn a_full_line_drops_and_counts_and_never_blocks() {
        let metrics = Metrics::new();
        let (events, _sender) = line(&metrics);
        for nth in 0..LINE + 3 {
            let object = ObjectReference { namespace: Some((nth % 8).to_string()), ..ObjectReference::default() };
            let text = EventText { warning: false, reason: "Done".into(), note: "x".into(), about: None };
            events.publish(object, text);
        }
        assert_eq!(metrics.events_dropped.get(), 3);
    }
}
