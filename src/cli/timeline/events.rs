//! Events of Kubernetes as entries of a timeline. An event about a happening that a status records is merged into the
//! entry of the status.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};

use super::model::{ClockOf, Draft, EventHint, Lane, Moment, TimelineEntry, Tone};

/// Component of the operator's events.
pub const OPERATOR: &str = "ganglion";

/// Maximum time between a status and the event about it: the operator sends events through a queue.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(10);

/// An event that was observed once, or the first or the last of a series.
#[derive(Clone, Debug)]
struct Occurrence<'a> {
    event: &'a Event,
    at: Timestamp,
    /// 1 for the first; the number of observations for the last.
    nth: i32,
}

/// Adds the events to the timeline. `concerns`: whether an event is about the object, a child, or something that the
/// object changed.
pub fn add_events(draft: &mut Draft, events: &[Event], concerns: impl Fn(&ObjectReference) -> bool) {
    let mut all: Vec<Occurrence> = Vec::new();
    for event in events.iter().filter(|event| concerns(&event.involved_object)) {
        all.extend(occurrences(event));
    }
    // The name shows the order of events in the same second: it ends in the time, in nanoseconds.
    all.sort_by_key(|one| (one.at, one.event.metadata.name.as_deref()));
    // Entries that already have their event.
    let mut told = vec![false; draft.entries.len()];
    for one in &all {
        add_clocks(draft, one);
        match best_match(draft, &told, one) {
            Some(index) => {
                told[index] = true;
                merge(&mut draft.entries[index], one);
            }
            None => {
                shorten_older(draft, one);
                let entry = entry(one);
                draft.add(entry);
                told.push(true);
            }
        }
    }
}

/// The first and the last observation of an event. The API server keeps no others.
fn occurrences(event: &Event) -> Vec<Occurrence<'_>> {
    let micro = |time: &Option<MicroTime>| time.as_ref().map(|time| time.0);
    let whole = |time: &Option<Time>| time.as_ref().map(|time| time.0);
    let first = micro(&event.event_time).or_else(|| whole(&event.first_timestamp));
    let first = first.or_else(|| whole(&event.last_timestamp)).or_else(|| whole(&event.metadata.creation_timestamp));
    let Some(first) = first else { return Vec::new() };
    let series = event.series.as_ref();
    let count = series.and_then(|series| series.count).or(event.count).unwrap_or(1);
    let last = series.and_then(|series| micro(&series.last_observed_time)).or_else(|| whole(&event.last_timestamp));
    let mut all = vec![Occurrence { event, at: first, nth: 1 }];
    if let Some(last) = last.filter(|last| count > 1 && *last > first) {
        all.push(Occurrence { event, at: last, nth: count });
    }
    all
}

fn note<'a>(one: &Occurrence<'a>) -> &'a str {
    one.event.message.as_deref().unwrap_or_default()
}

fn reason<'a>(one: &Occurrence<'a>) -> &'a str {
    one.event.reason.as_deref().unwrap_or_default()
}

/// Identity of an occurrence.
fn key(one: &Occurrence) -> String {
    let meta = &one.event.metadata;
    let id = meta.uid.as_deref().or(meta.name.as_deref()).unwrap_or_default();
    format!("event/{id}/{}", one.nth)
}

/// Index of the entry about the same happening; of several, the closest in time.
fn best_match(draft: &Draft, told: &[bool], one: &Occurrence) -> Option<usize> {
    let mut best: Option<(SignedDuration, usize)> = None;
    for (index, entry) in draft.entries.iter().enumerate() {
        let Some(hint) = entry.hint.as_ref().filter(|_| !told.get(index).copied().unwrap_or(true)) else { continue };
        let apart = one.at.duration_since(entry.at).abs();
        if matches(hint, one) && apart <= TOLERANCE && best.is_none_or(|(least, _)| apart < least) {
            best = Some((apart, index));
        }
    }
    best.map(|(_, index)| index)
}

fn matches(hint: &EventHint, one: &Occurrence) -> bool {
    let kind = one.event.involved_object.kind.as_deref().unwrap_or_default();
    // The note of a series is that of its first event.
    let same_note = one.nth > 1 || hint.note.as_deref().is_none_or(|expected| is_note(note(one), expected));
    let same_reason = hint.reasons.is_empty() || hint.reasons.iter().any(|known| known == reason(one));
    kind == hint.kind && same_reason && same_note
}

/// Whether a note tells this message. It may begin with the name of the other object, end in a number, or be cut.
fn is_note(note: &str, message: &str) -> bool {
    let unnamed = note.split_once(": ").map_or(note, |(_, rest)| rest);
    [note, unnamed].into_iter().any(|note| is_start(message, note) || is_start(note, message))
}

/// Whether a text begins with the other one.
fn is_start(start: &str, text: &str) -> bool {
    text.starts_with(start) && (!start.is_empty() || text.is_empty())
}

fn merge(entry: &mut TimelineEntry, one: &Occurrence) {
    entry.keys.push(key(one));
    let Some(hint) = entry.hint.as_ref().filter(|hint| hint.note.is_none() && one.nth == 1) else { return };
    match &hint.detail {
        Some(detail) if note(one).contains(detail.as_str()) => entry.text = entry.text.replacen(detail, note(one), 1),
        _ if note(one).is_empty() || entry.text.contains(note(one)) => {}
        _ => entry.text = format!("{}: {}", entry.text, note(one)),
    }
}

/// An older entry with the text of this event is about a condition whose reason changed later: its reason at that time
/// is not known.
fn shorten_older(draft: &mut Draft, one: &Occurrence) {
    for entry in &mut draft.entries {
        if entry.at < one.at
            && let Some(hint) = &entry.hint
            && let Some(short) = &hint.short
            && matches(hint, one)
        {
            entry.text.clone_from(short);
        }
    }
}

fn entry(one: &Occurrence) -> TimelineEntry {
    let object = &one.event.involved_object;
    let [kind, name] = [&object.kind, &object.name].map(|part| part.as_deref().unwrap_or("?"));
    let mut text = format!("{kind}/{name} {}", reason(one));
    if !note(one).is_empty() {
        text.push_str(&format!(": {}", note(one)));
    }
    if one.nth > 1 {
        text.push_str(&format!(
            " ({} times in all; only the first and the last time are kept, and the note of the first)",
            one.nth
        ));
    }
    let tone = if one.event.type_.as_deref() == Some("Warning") { Tone::Warning } else { Tone::Plain };
    TimelineEntry::new(one.at, Lane::Event, key(one), text).tone(tone).result()
}

/// The API server creates an event after its reporter observed it.
fn add_clocks(draft: &mut Draft, one: &Occurrence) {
    let (Some(created), 1) = (&one.event.metadata.creation_timestamp, one.nth) else { return };
    let component = one.event.reporting_component.as_deref().unwrap_or_default();
    let clock = if component.contains(OPERATOR) { ClockOf::Operator } else { ClockOf::Reporter };
    let observed = Moment { at: one.at, clock, what: format!("event {} was observed", reason(one)) };
    let stored = Moment { at: created.0, clock: ClockOf::ApiServer, what: format!("event {} was stored", reason(one)) };
    draft.caused(observed, stored);
}
