//! Kubernetes Events of WorkloadActions: one when an action's work begins, one when it ends.
//!
//! Sent beside the work, never in its way: a full line or a refusal is counted and the event dropped. Owns what is told;
//! the words are those of the status' Ready condition.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::api::workload_action::{WorkloadAction, WorkloadActionStatus};
use crate::logic::facts::Identity;
use crate::metrics::Metrics;

/// Events that may wait to be sent.
const LINE: usize = 512;

/// Longest note of an Event, in bytes.
const NOTE: usize = 1024;

/// What is told of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub warning: bool,
    pub reason: String,
    pub note: String,
}

/// Where events are handed in; cheap to clone.
#[derive(Clone)]
pub struct Events {
    line: mpsc::Sender<(ObjectReference, Told)>,
    metrics: Metrics,
}

/// The other end: sends what was handed in.
pub struct Sender {
    line: mpsc::Receiver<(ObjectReference, Told)>,
    metrics: Metrics,
}

/// A line of events: where they are handed in, and what sends them.
#[must_use]
pub fn line(metrics: &Metrics) -> (Events, Sender) {
    let (sender, receiver) = mpsc::channel(LINE);
    (Events { line: sender, metrics: metrics.clone() }, Sender { line: receiver, metrics: metrics.clone() })
}

impl Events {
    /// Tells of a status that was written, if it is worth an event.
    pub fn tell(&self, action: &Identity, before: Option<&WorkloadActionStatus>, after: &WorkloadActionStatus) {
        let Some(told) = told(before, after) else { return };
        if self.line.try_send((reference(action), told)).is_err() {
            self.metrics.events_dropped.inc();
        }
    }
}

impl Sender {
    /// Sends until the last [`Events`] is dropped, or `stop`.
    pub async fn run(mut self, client: Client, instance: String, timeout: Duration, stop: CancellationToken) {
        let reporter = Reporter { controller: "ganglion/workload-action".to_owned(), instance: Some(instance) };
        let recorder = Recorder::new(client, reporter);
        loop {
            let next = tokio::select! {
                biased;
                next = self.line.recv() => next,
                () = stop.cancelled() => None,
            };
            let Some((reference, told)) = next else { return };
            let event = event(told);
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

fn event(told: Told) -> Event {
    Event {
        type_: if told.warning { EventType::Warning } else { EventType::Normal },
        action: told.reason.clone(),
        reason: told.reason,
        note: Some(told.note),
        secondary: None,
    }
}

fn reference(action: &Identity) -> ObjectReference {
    ObjectReference {
        api_version: Some(WorkloadAction::api_version(&()).into_owned()),
        kind: Some(WorkloadAction::kind(&()).into_owned()),
        namespace: Some(action.key.namespace.clone()),
        name: Some(action.key.name.clone()),
        uid: Some(action.uid.clone()),
        ..ObjectReference::default()
    }
}

/// What a change of status is worth telling: that work began, or that the action ended.
#[must_use]
pub fn told(before: Option<&WorkloadActionStatus>, after: &WorkloadActionStatus) -> Option<Told> {
    let began = after.started_at.is_some() && before.is_none_or(|status| status.started_at.is_none());
    let ended = after.finished_at.is_some() && before.is_none_or(|status| status.finished_at.is_none());
    let ready: &Condition = after.conditions.iter().find(|condition| condition.type_ == "Ready")?;
    (began || ended).then(|| Told {
        warning: ended && ready.status != "True",
        reason: ready.reason.clone(),
        note: cut(&ready.message, NOTE),
    })
}

/// The text, at most so many bytes of it, at the border of a character.
fn cut(text: &str, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

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
        let words = |before, after| told(before, after).map(|told| (told.reason, told.warning));
        assert_eq!(words(None, &queued), None);
        assert_eq!(words(Some(&queued), &begun), Some(("Creating".into(), false)));
        assert_eq!(words(Some(&begun), &further), None);
        assert_eq!(words(Some(&further), &done), Some(("Succeeded".into(), false)));
        assert_eq!(words(Some(&done), &done), None);
        assert_eq!(words(None, &failed), Some(("NodeFull".into(), true)));
    }

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
            events.tell(&Identity::default(), None, &status("True", "Succeeded", true, true));
        }
        assert_eq!(metrics.events_dropped.get(), 3);
    }
}
