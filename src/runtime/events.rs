//! Kubernetes Events, sent in a separate task so that they do not delay reconciles. If the queue is full or the API
//! server refuses an event, the event is dropped and counted.
//!
//! Owns the sending. Each controller decides when to publish an event.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::metrics::Metrics;
use ganglion_core::facts::Identity;

/// Capacity of the queue.
const LINE: usize = 512;

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

/// The sending half of the queue; cheap to clone.
#[derive(Clone)]
pub struct Events {
    line: mpsc::Sender<(ObjectReference, EventText)>,
    metrics: Metrics,
}

/// The receiving half: sends the events to the API server.
pub struct Sender {
    line: mpsc::Receiver<(ObjectReference, EventText)>,
    metrics: Metrics,
}

/// Creates the queue of events.
pub fn line(metrics: &Metrics) -> (Events, Sender) {
    let (sender, receiver) = mpsc::channel(LINE);
    (Events { line: sender, metrics: metrics.clone() }, Sender { line: receiver, metrics: metrics.clone() })
}

impl Events {
    /// Publishes an event about this object. A long note is truncated.
    pub fn publish(&self, object: ObjectReference, text: EventText) {
        if self.line.try_send((object, text)).is_err() {
            self.metrics.events_dropped.inc();
        }
    }
}

impl Sender {
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
        note: Some(cut(&text.note, NOTE)),
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
        uid: Some(object.uid.clone()),
        ..ObjectReference::default()
    }
}

/// Truncates the text to this number of bytes, at a character boundary.
fn cut(text: &str, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_cut_between_characters() {
        let text = "ä".repeat(600);
        let note = cut(&text, NOTE);
        assert_eq!(note.len(), 1024);
        assert!(cut(&format!("x{text}"), NOTE).len() == 1023);
        assert_eq!(cut("short", NOTE), "short");
    }

    #[tokio::test]
    async fn a_full_line_drops_and_counts_and_never_blocks() {
        let metrics = Metrics::new();
        let (events, _sender) = line(&metrics);
        for _ in 0..LINE + 3 {
            events.publish(
                ObjectReference::default(),
                EventText { warning: false, reason: "Done".into(), note: "x".into(), about: None },
            );
        }
        assert_eq!(metrics.events_dropped.get(), 3);
    }
}
