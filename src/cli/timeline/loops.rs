//! The timeline of a loop, from the statuses of the loop and its children.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt;

use super::conditions::add_conditions;
use super::model::{ClockOf, Draft, EventHint, Lane, Moment, ShownLevel, TimelineEntry, Tone, UnknownSpan, left_out};
use ganglion_api::closed_loop::metric::{Metric, Side};
use ganglion_api::closed_loop::policy::Tuning;
use ganglion_api::decision::{DecisionStatus, Entry, Outcome};
use ganglion_api::execution::ExecutionStatus;
use ganglion_api::monitoring::{AlarmState, MonitoringStatus};
use ganglion_api::scalars::Number;
use ganglion_core::layout::clock;
use ganglion_core::words::counted;
use ganglion_loops_plan::acted::alarm_words;
use ganglion_loops_plan::decision::{Executor, settlement};
use ganglion_loops_plan::explain::ExplainedLoop;

/// Kind of the loop, which has the events about its actions.
const KIND: &str = "ClosedLoop";

/// Conditions of a loop that repeat what another one says.
const REPEATED: [&str; 2] = ["Reconciling", "Stalled"];

/// The timeline of a loop without its events.
pub fn loop_draft(subject: &ExplainedLoop) -> Draft {
    let (parent, spec) = (subject.parent, &subject.parent.spec);
    let target = &spec.target;
    let mut draft = Draft {
        title: format!("ClosedLoop {}/{}", parent.namespace().unwrap_or_default(), parent.name_any()),
        about: format!("acts on {}/{}, mode {}", target.kind, target.name, spec.mode.as_str()),
        ..Draft::default()
    };
    if let Some(created) = &parent.metadata.creation_timestamp {
        draft.add(TimelineEntry::new(created.0, Lane::Object, "created", "created"));
    }
    if let Some(deleted) = &parent.metadata.deletion_timestamp {
        draft.add(TimelineEntry::new(deleted.0, Lane::Object, "deleted", "its deletion was requested"));
    }
    if let Some(watched) = subject.watched() {
        add_values(&mut draft, watched);
        add_alarms(&mut draft, watched, subject);
    }
    add_levels(&mut draft, subject);
    if let Some(decided) = subject.decided() {
        let executor = subject.execution.and_then(Executor::from_execution);
        add_decisions(&mut draft, &settlement::with_outcome(decided, executor, subject.now), subject);
        add_passed_over(&mut draft, decided);
    }
    if let Some(executed) = subject.executed() {
        add_execution(&mut draft, executed);
    }
    let status = parent.status.as_ref();
    for tuning in status.iter().flat_map(|status| &status.tuning) {
        add_tuning(&mut draft, tuning);
    }
    for refused in status.and_then(|status| status.effective.as_ref()).iter().flat_map(|effective| &effective.refused) {
        draft.now.push(format!("tuning refused: {refused}"));
    }
    let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
    add_conditions(&mut draft, KIND, conditions, |one| !REPEATED.contains(&one.type_.as_str()));
    draft
}

/// Adds the last known value of each metric.
fn add_values(draft: &mut Draft, watched: &MonitoringStatus) {
    for reading in &watched.values {
        let at = reading.measured_at.as_ref().unwrap_or(&reading.at).0;
        let text = reading.value.as_str();
        draft.add_value(&reading.metric, at, text);
        let mut words = format!("{} {text}", reading.metric);
        let bounds = [("at least", &reading.at_least), ("at most", &reading.at_most)];
        for (name, bound) in bounds {
            words.extend(bound.iter().map(|bound| format!(", {name} {}", bound.as_str())));
        }
        words.extend(reading.assumed_operand.iter().map(|operand| format!("; {operand} is assumed")));
        words.extend(reading.problem.iter().map(|problem| format!("; no newer value: {problem}")));
        draft.add(TimelineEntry::new(at, Lane::Value, format!("value/{}/{at}", reading.metric), words));
    }
    if let (Some(tag), Some(received)) = (&watched.tag, &watched.received)
        && let Some(pushed) = tag.pushed.as_ref().or(Some(&tag.time))
    {
        let sent =
            Moment { at: pushed.0, clock: ClockOf::Sender, what: format!("sample {} was measured", tag.sequence) };
        let received =
            Moment { at: received.0, clock: ClockOf::Operator, what: format!("sample {} was received", tag.sequence) };
        draft.caused(sent, received);
    }
    if let Some(refused) = &watched.refused {
        let count = refused.out_of_order + refused.repeated + refused.from_future + refused.unreadable;
        if count > 0 {
            draft.now.push(format!(
                "{} refused since the loop was created; their times are not recorded",
                was(count, "sample")
            ));
        }
    }
}

fn add_alarms(draft: &mut Draft, watched: &MonitoringStatus, subject: &ExplainedLoop) {
    let words = |alarm: &AlarmState| {
        // The value now may differ from the one that raised the alarm.
        let level = alarm_words(&alarm.metric, alarm.side, None, subject.metrics());
        level.map(|level| format!(": {level}")).unwrap_or_default()
    };
    for alarm in &watched.alarms {
        let AlarmState { metric, side, since, .. } = alarm;
        let mut text = format!("{side} {metric}{}", words(alarm));
        text.extend(alarm.excess.iter().map(|excess| format!(", excess {} now", excess.as_str())));
        text.push_str(if alarm.held {
            ", held: the value is unknown"
        } else if alarm.unknown {
            ", value unknown or assumed"
        } else {
            ""
        });
        let key = format!("alarm/{metric}/{side}/{}", since.0);
        draft.add(TimelineEntry::new(since.0, Lane::Alarm, key, text).tone(Tone::Warning));
    }
    for alarm in &watched.pending {
        let AlarmState { metric, side, since, .. } = alarm;
        let text = format!("{side} {metric} is pending{}; it is not raised yet", words(alarm));
        draft.add(TimelineEntry::new(since.0, Lane::Alarm, format!("pending/{metric}/{side}/{}", since.0), text));
    }
    for unknown in &watched.unknown {
        let (metric, since) = (&unknown.metric, unknown.since.0);
        let assumed =
            unknown.assumed.as_ref().map(|value| format!("; {} is assumed", value.as_str())).unwrap_or_default();
        let text = format!("{metric} is unknown: {}{assumed}", unknown.message);
        draft
            .add(TimelineEntry::new(since, Lane::Alarm, format!("unknown/{metric}/{since}"), text).tone(Tone::Warning));
        let text = format!("{metric} is unknown");
        draft.gaps.push(UnknownSpan { from: since, to: subject.now, text });
    }
}

/// Adds the levels in effect. A tuned level is known since its tuning; another one since the loop was created, if the
/// spec never changed.
fn add_levels(draft: &mut Draft, subject: &ExplainedLoop) {
    let meta = &subject.parent.metadata;
    let created = meta.creation_timestamp.as_ref().map(|time| time.0);
    let unchanged = created.filter(|_| meta.generation == Some(1));
    let status = subject.parent.status.as_ref();
    let tunings = status.map(|status| status.tuning.as_slice()).unwrap_or_default();
    for metric in subject.metrics() {
        for (path, side, clears, number) in levels_of(metric) {
            let Ok(value) = ganglion_core::quantity::number(number.as_str()) else { continue };
            let tuned = tunings.iter().rev().find_map(|tuning| tuning.level_at(&path, number));
            let is_tuned = tunings.iter().any(|tuning| tuning.thresholds.iter().any(|level| level.path == path));
            let since = tuned.map(|time| time.0).or(unchanged.filter(|_| !is_tuned));
            let (metric, text) = (metric.name.clone(), number.as_str().to_owned());
            draft.levels.push(ShownLevel { metric, side, clears, value, text, since });
        }
    }
}

/// Path, side, whether it clears, and value of each level of a metric.
fn levels_of(metric: &Metric) -> Vec<(String, Side, bool, &Number)> {
    let mut all = Vec::new();
    for (name, side, level) in [("low", Side::Low, &metric.low), ("high", Side::High, &metric.high)] {
        let Some(level) = level else { continue };
        all.push((format!("{}.{name}.raise", metric.name), side, false, &level.raise));
        let clear = level.clear.as_ref().filter(|clear| **clear != level.raise);
        all.extend(clear.map(|clear| (format!("{}.{name}.clear", metric.name), side, true, clear)));
    }
    all.extend(metric.equal.as_ref().map(|equal| (format!("{}.equal.to", metric.name), Side::Equal, false, &equal.to)));
    all
}

/// Adds the history: each decision, and how it ended.
fn add_decisions(draft: &mut Draft, decided: &DecisionStatus, subject: &ExplainedLoop) {
    let history = &decided.history;
    let created = subject.parent.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let mut before: Option<&Entry> = None;
    for entry in history {
        let first = entry.seq - entry.repeated.as_ref().map_or(0, |repeated| i64::from(repeated.times) - 1);
        let begin = entry.repeated.as_ref().map_or(entry.at.0, |repeated| repeated.since.0);
        let missing = first - before.map_or(0, |before| before.seq) - 1;
        if missing > 0 {
            let from = before.map(|before| before.at.0).or(created).unwrap_or(begin);
            let text = if before.is_some() {
                left_out(missing, "decision")
            } else {
                format!("{} no longer kept", are(missing, "earlier decision"))
            };
            draft.gaps.push(UnknownSpan { from, to: begin, text });
        }
        add_decision(draft, entry, created);
        before = Some(entry);
    }
    let last = history.last().map_or(0, |entry| entry.seq);
    if last < decided.seq {
        draft
            .now
            .push(format!("{} after decision {last} not recorded in the history", are(decided.seq - last, "decision")));
    }
    let kept = counted(history.len() as u64, "decision");
    draft.limits.push(match history.first() {
        None => "The history holds no decision.".to_owned(),
        Some(first) if first.seq <= 1 || first.repeated.is_some() => {
            format!("The history holds {kept}, from the first on.")
        }
        Some(first) => format!(
            "Earlier decisions are not kept: the history holds {kept}, from number {} of {} on.",
            first.seq,
            clock(first.at.0)
        ),
    });
    draft.limits.push("Values are known only where a decision or the last sample recorded them.".to_owned());
    if let Some(limits) = &decided.limits {
        let until = |time: &Option<MicroTime>, words: &str| {
            let time = time.as_ref().filter(|time| time.0 > subject.now)?;
            Some(format!("{words} {}", clock(time.0)))
        };
        draft.now.extend(until(&limits.dwell_until, "no action before"));
        draft.now.extend(until(&limits.frozen_until, "oscillation: no action before"));
        draft.now.extend(until(&limits.damped_until, "oscillation: capacity is not lowered before"));
    }
}

/// Such as `1 sample was`.
fn was(count: i64, thing: &str) -> String {
    format!("{} {}", counted(count, thing), if count == 1 { "was" } else { "were" })
}

/// Such as `1 decision is`.
fn are(count: i64, thing: &str) -> String {
    format!("{} {}", counted(count, thing), if count == 1 { "is" } else { "are" })
}

fn add_decision(draft: &mut Draft, entry: &Entry, created: Option<Timestamp>) {
    let Entry { seq, at, when, rung, action, .. } = entry;
    let value = entry.value.as_ref().map(|value| format!(", value {}", value.as_str())).unwrap_or_default();
    if let (Some(alarm), Some(value)) = (when.one(), &entry.value) {
        draft.add_value(&alarm.metric, at.0, value.as_str());
    }
    let repeated = entry
        .repeated
        .as_ref()
        .map(|repeated| format!(" ({} times since {})", repeated.times, clock(repeated.since.0)));
    let rung = if *rung > 0 { format!(", rung {}", rung + 1) } else { String::new() };
    let text = format!("decision {seq}: {when}{value} → {action}{rung}{}", repeated.unwrap_or_default());
    draft.add(TimelineEntry::new(at.0, Lane::Decision, format!("decision/{seq}"), text));
    let decided = Moment { at: at.0, clock: ClockOf::Operator, what: format!("decision {seq} was made") };
    if let Some(created) = created {
        let created = Moment { at: created, clock: ClockOf::ApiServer, what: "the loop was created".to_owned() };
        draft.caused(created, decided.clone());
    }
    let Some(outcome) = entry.outcome else { return };
    let ended = entry.ended.as_ref().map_or(at.0, |ended| ended.0);
    draft.caused(decided, Moment { at: ended, clock: ClockOf::Operator, what: format!("decision {seq} ended") });
    let detail = entry.effect.as_ref().map(|effect| effect.replace("->", "→"));
    let effect = detail.as_ref().map(|effect| format!(": {effect}")).unwrap_or_default();
    let text = format!("decision {seq} {}{effect}", outcome.reason().as_str());
    if outcome == Outcome::Served && action.starts_with("scale") {
        add_replicas(draft, ended, entry.effect.as_deref());
    }
    let hint = EventHint { kind: KIND, reasons: reasons(outcome), detail, ..EventHint::default() };
    let entry = TimelineEntry::new(ended, Lane::Effect, format!("effect/{seq}"), text);
    draft.add(entry.tone(tone(outcome)).told_by(hint));
}

/// Reasons of the events about decisions with this outcome. A failure has the reason of its cause.
fn reasons(outcome: Outcome) -> Vec<String> {
    use ganglion_api::closed_loop::reasons::LoopReason as Reason;
    let all: &[Reason] = match outcome {
        Outcome::Served => {
            &[Reason::Scaled, Reason::Resized, Reason::Patched, Reason::ActionSucceeded, Reason::Tuned, Reason::Sent]
        }
        Outcome::Overtaken => &[Reason::Overtaken],
        Outcome::Lost => &[Reason::Lost],
        Outcome::Failed => return Vec::new(),
        // There are no such events.
        Outcome::DryRun | Outcome::Limited | Outcome::Withdrawn => return vec!["none".to_owned()],
    };
    all.iter().map(|reason| reason.as_str().to_owned()).collect()
}

fn tone(outcome: Outcome) -> Tone {
    match outcome {
        Outcome::Served => Tone::Good,
        Outcome::DryRun | Outcome::Limited | Outcome::Withdrawn => Tone::Plain,
        Outcome::Failed | Outcome::Overtaken | Outcome::Lost => Tone::Warning,
    }
}

/// Adds the number of replicas before and after a change, such as `3 -> 4`.
fn add_replicas(draft: &mut Draft, at: Timestamp, effect: Option<&str>) {
    let Some((before, after)) = effect.and_then(|effect| effect.split_once(" -> ")) else { return };
    if before.parse::<u32>().is_ok() && after.parse::<u32>().is_ok() {
        draft.add_value("replicas", at, before);
        draft.add_value("replicas", at, after);
    }
}

/// Adds the alarms of the last sample that were not served.
fn add_passed_over(draft: &mut Draft, decided: &DecisionStatus) {
    let Some(tag) = &decided.tag else { return };
    let acted =
        decided.chosen.as_ref().filter(|_| decided.message.as_deref().is_some_and(|text| text.starts_with("React")));
    let at = acted.map_or(tag.time.0, |chosen| chosen.at.0);
    for passed in &decided.rejected {
        let text = format!("{}: {} ({})", passed.when, passed.message, passed.reason.as_str());
        let key = format!("passed/{}/{}/{}", tag.sequence, passed.when, passed.reason.as_str());
        draft.add(TimelineEntry::new(at, Lane::PassedOver, key, text));
    }
    draft.limits.push("Alarms that were passed over are recorded for the last sample only.".to_owned());
}

fn add_execution(draft: &mut Draft, executed: &ExecutionStatus) {
    if let Some(claim) = &executed.claim {
        let text = format!("decision {} is being carried out, until {}", claim.seq, clock(claim.deadline.0));
        draft.add(TimelineEntry::new(claim.at.0, Lane::Effect, format!("claim/{}", claim.seq), text));
    }
    let mut seen = BTreeSet::new();
    for undone in &executed.undone {
        let mut key = format!("undone/{}/{}", undone.dimension, undone.at.0);
        while !seen.insert(key.clone()) {
            key.push('+');
        }
        let field = if undone.dimension.is_empty() { "a change" } else { &undone.dimension };
        let text = format!("{field}: the loop's change was undone by {}", undone.by);
        draft.add(TimelineEntry::new(undone.at.0, Lane::Undone, key, text).tone(Tone::Warning));
    }
    for change in &executed.last_changes {
        if let Some(at) = &change.at {
            let since = clock(at.0);
            draft.now.push(format!(
                "{} {} → {}: not undone by others since {since}",
                change.dimension, change.before, change.after
            ));
        }
    }
}

fn add_tuning(draft: &mut Draft, tuning: &Tuning) {
    let by = &tuning.by;
    let mut text = format!("loop {by}: {}", tuning.message.as_deref().unwrap_or("changed the policy"));
    for level in &tuning.thresholds {
        let words = format!("level {} is {}", level.path, level.value.as_str());
        match &level.at {
            // The level was changed by the last change.
            None => text.push_str(&format!("; {words}")),
            Some(at) => {
                let key = format!("level/{by}/{}/{}", level.path, at.0);
                draft.add(TimelineEntry::new(at.0, Lane::Tuning, key, format!("loop {by}: {words}")));
            }
        }
    }
    if let (Some(rank), Some(at)) = (&tuning.rank, &tuning.rank_at) {
        let text = format!("loop {by}: rank {}", rank.join(", "));
        draft.add(TimelineEntry::new(at.0, Lane::Tuning, format!("rank/{by}/{}", at.0), text));
    }
    draft.add(TimelineEntry::new(tuning.at.0, Lane::Tuning, format!("tuning/{by}/{}", tuning.seq), text));
}
