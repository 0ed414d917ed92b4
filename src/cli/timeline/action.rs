//! The timeline of a WorkloadAction, from its status and its receipt.

use jiff::Timestamp;
use kube::ResourceExt;

use super::conditions::add_conditions;
use super::model::{ClockOf, Draft, EventHint, Lane, Moment, TimelineEntry, Tone};
use ganglion_actions_plan::explain::{ActionStory, ExplainedAction, StoryReplica};
use ganglion_api::reasons::Reason;
use ganglion_api::receipt::WorkloadActionReceipt;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_api::workload_action::status::{NotificationOutcome, Slot, Step, WorkloadActionStatus};
use ganglion_core::layout::clock;

const KIND: &str = "WorkloadAction";

/// Conditions that the steps of the action already show.
const SHOWN_BY_STEPS: [&str; 4] = ["Ready", "Reconciling", "Stalled", "Finished"];

/// The timeline of an action without its events.
pub fn action_draft(action: &WorkloadAction, receipt: Option<&WorkloadActionReceipt>, now: Timestamp) -> Draft {
    let story = ActionStory::of(ExplainedAction { action, receipts: None, now });
    let fresh = WorkloadActionStatus::default();
    let status = action.status.as_ref().unwrap_or(&fresh);
    let summary = status.summary.clone().unwrap_or_default();
    let workload = summary.workload.map(|workload| format!(" of {workload}")).unwrap_or_default();
    let mut draft = Draft {
        title: format!("{KIND} {}/{}", action.namespace().unwrap_or_default(), action.name_any()),
        about: format!("{}{workload}", story.action),
        ..Draft::default()
    };
    add_life(&mut draft, &story, status);
    for (slot, replica) in status.slots.iter().zip(&story.replicas) {
        add_slot(&mut draft, slot, replica);
    }
    if let Some(receipt) =
        receipt.filter(|receipt| Some(receipt.spec.action_uid.as_str()) == action.metadata.uid.as_deref())
    {
        let text = format!("receipt {}: proves that the action ran", receipt.name_any());
        draft.add(TimelineEntry::new(receipt.spec.executed_at.0, Lane::State, "receipt", text).result());
    }
    for (index, notification) in status.notifications.iter().enumerate() {
        let Some(at) = &notification.last_attempt_at else { continue };
        let (word, tone) = match notification.outcome {
            NotificationOutcome::Pending => ("not accepted yet", Tone::Plain),
            NotificationOutcome::Delivered => ("accepted", Tone::Good),
            NotificationOutcome::Failed => ("given up", Tone::Warning),
        };
        let why = notification.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        let text = format!("attempt {} to notify {}: {word}{why}", notification.attempts, notification.url);
        let key = format!("notification/{index}/{}", notification.attempts);
        draft.add(TimelineEntry::new(at.0, Lane::State, key, text).tone(tone));
    }
    add_conditions(&mut draft, KIND, &status.conditions, |one| !SHOWN_BY_STEPS.contains(&one.type_.as_str()));
    add_state(&mut draft, &story, status);
    draft
}

/// Adds when the action was created, queued, admitted, suspended and ended.
fn add_life(draft: &mut Draft, story: &ActionStory, status: &WorkloadActionStatus) {
    let reason = story.state.as_ref().map(|state| state.reason.clone());
    let mut before: Option<Moment> = None;
    for (index, event) in story.events.iter().enumerate() {
        let is = |time: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| time.as_ref() == Some(&event.at);
        let is_end = event.what.starts_with("ended");
        let is_start = event.what.starts_with("admitted") && is(&status.started_at);
        let lane =
            if event.what.starts_with("made") || event.what.contains("deletion") { Lane::Object } else { Lane::State };
        let mut text = event.what.replacen("made", "created", 1);
        let mut entry = TimelineEntry::new(
            event.at.0,
            lane,
            format!("life/{}", event.what.split([' ', ',']).next().unwrap_or_default()),
            "",
        );
        if is_end {
            let good = story.state.as_ref().is_some_and(|state| state.words == "it is done");
            entry.tone = if good { Tone::Good } else { Tone::Warning };
            text.extend(
                story
                    .state
                    .iter()
                    .filter(|state| !state.message.is_empty())
                    .map(|state| format!(": {}", state.message)),
            );
            let hint = EventHint { kind: KIND, reasons: reason.iter().cloned().collect(), ..EventHint::default() };
            entry = entry
                .result()
                .told_by(EventHint { note: story.state.as_ref().map(|state| state.message.clone()), ..hint });
        } else if is_start {
            entry = entry.told_by(EventHint { kind: KIND, ..EventHint::default() });
        }
        entry.text = text;
        draft.add(entry);
        let server = index == 0 && lane == Lane::Object;
        let clock = if server { ClockOf::ApiServer } else { ClockOf::Operator };
        let moment = Moment {
            at: event.at.0,
            clock,
            what: format!("the action was {}", event.what.split([',', ':']).next().unwrap_or_default()),
        };
        if let Some(before) = before.filter(|_| lane != Lane::Object) {
            draft.caused(before, moment.clone());
        }
        before = Some(moment);
    }
    let (Some(started), slots) = (&status.started_at, &status.slots) else { return };
    for slot in slots {
        let started = Moment { at: started.0, clock: ClockOf::Operator, what: "the action was admitted".to_owned() };
        let what = format!("replica {} entered its step", slot.index);
        draft.caused(started, Moment { at: slot.since.0, clock: ClockOf::Operator, what });
    }
}

/// Adds the current step of a slot.
fn add_slot(draft: &mut Draft, slot: &Slot, replica: &StoryReplica) {
    let side = |pod: &Option<String>, node: Option<&str>| match (pod, node) {
        (Some(pod), Some(node)) => format!("{pod} on {node}"),
        (Some(pod), None) => pod.clone(),
        (None, Some(node)) => node.to_owned(),
        (None, None) => String::new(),
    };
    let old = side(&replica.pod, replica.from.as_ref().map(|node| node.as_str()));
    let planned = slot.replacement.as_ref().map(|pod| pod.node.as_str()).filter(|node| !node.is_empty());
    let new = side(&replica.new_pod, replica.to.as_ref().map(|node| node.as_str()).or(planned));
    let place = match (old.is_empty(), new.is_empty()) {
        (false, false) => format!(" ({old} → {new})"),
        (false, true) => format!(" ({old})"),
        (true, false) => format!(" (new: {new})"),
        (true, true) => String::new(),
    };
    let mut text = format!("replica {}{place}: {}", replica.index, replica.words);
    if slot.evicting && !slot.step.is_end() && slot.step != Step::Evicting {
        text.push_str("; the eviction of the old pod was requested");
    }
    if slot.attempt > 0 {
        text.push_str(&format!("; retry {}", slot.attempt));
    }
    if !slot.tried.is_empty() {
        let tried: Vec<&str> = slot.tried.iter().map(|node| node.as_str()).collect();
        text.push_str(&format!("; failed on {}", tried.join(", ")));
    }
    let reasons = [slot.reason, slot.obstacle].into_iter().flatten().map(|reason| reason.as_str());
    let reasons = reasons.collect::<Vec<_>>().join(", ");
    if !reasons.is_empty() {
        text.push_str(&format!("; {reasons}"));
    }
    text.extend(slot.message.iter().map(|message| format!(": {message}")));
    let tone = match slot.step {
        Step::Succeeded => Tone::Good,
        Step::RollingBack | Step::RolledBack | Step::Failed | Step::Aborted | Step::Expired => Tone::Warning,
        Step::Queued
        | Step::Planned
        | Step::Creating
        | Step::Scheduling
        | Step::Readying
        | Step::Detached
        | Step::Marked
        | Step::Scaled
        | Step::Adopted
        | Step::Evicting
        | Step::Verifying => Tone::Plain,
    };
    let waits = slot.reason.map_or("", |reason| reason.as_str());
    let key =
        format!("slot/{}/{}/{}/{waits}/{}", slot.id, slot.attempt, Reason::from(slot.step).as_str(), slot.since.0);
    draft.add(TimelineEntry::new(slot.since.0, Lane::Slot, key, text).tone(tone).result());
}

fn add_state(draft: &mut Draft, story: &ActionStory, status: &WorkloadActionStatus) {
    match &story.state {
        None => draft.now.push("the operator has not reconciled this action yet".to_owned()),
        Some(state) if status.finished_at.is_none() => {
            draft.now.push(format!(
                "{}, since {} ({}): {}",
                state.words,
                clock(state.since.0),
                state.cause,
                state.message
            ));
        }
        Some(_) => {}
    }
    if let Some(progress) = &status.application {
        draft.now.push(format!(
            "{} of {} workloads done; {} moved, {} in motion, {} left, {} failed",
            progress.workloads_done,
            progress.workloads,
            progress.moved,
            progress.in_motion,
            progress.left,
            progress.failed
        ));
        for one in &progress.moves {
            let why = one.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
            let done = one.done.as_deref().unwrap_or("not begun");
            draft.now.push(format!("{} {} ({done}){why}; ganglion timeline wa {0}", one.action, one.workload));
        }
        if progress.truncated {
            draft.limits.push("The status lists only some of the moves.".to_owned());
        }
    }
    if !status.slots.is_empty() {
        draft.limits.push(
            "Earlier steps of a replica are not kept: the status holds its current step, and since when. -w shows each \
             step as it begins."
                .to_owned(),
        );
    }
}
