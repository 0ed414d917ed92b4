//! The timeline of an object: entries, values and their levels on one time axis, and the spans of which nothing is
//! known.
//!
//! Pure: built from statuses and events, rendered by `text` and `svg`. Contains no value and no time that no object
//! records.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use ganglion_api::closed_loop::metric::Side;
use ganglion_core::layout::clock;
use ganglion_core::words::{counted, cut};

/// Maximum length of the text of an entry, in bytes.
const MAX_TEXT: usize = 4096;

/// Metadata of Kubernetes and the times of actions have whole seconds: two times that differ by less say nothing about
/// the clocks.
const RESOLUTION: SignedDuration = SignedDuration::from_secs(1);

/// Everything that is known to have happened to an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Kind, namespace and name.
    pub title: String,
    /// Further facts about the object, such as its target.
    pub about: String,
    /// The entries, the oldest first.
    pub entries: Vec<TimelineEntry>,
    /// The known values.
    pub series: Vec<ValueSeries>,
    /// The levels of the values.
    pub levels: Vec<ShownLevel>,
    pub start: Timestamp,
    pub end: Timestamp,
    /// Spans of which nothing is known, the oldest first.
    pub gaps: Vec<UnknownSpan>,
    /// Where the timeline ends, and what could not be read.
    pub limits: Vec<String>,
    /// Clocks that must differ, because an effect would come before its cause.
    pub skews: Vec<ClockSkew>,
    /// The state now, whose time is not recorded.
    pub now: Vec<String>,
}

/// Part of an object that an entry is about. The order is that of entries with the same time: causes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    Object,
    Value,
    Alarm,
    Decision,
    PassedOver,
    Effect,
    Undone,
    Tuning,
    Slot,
    Jobs,
    State,
    Event,
}

impl Lane {
    pub const ALL: [Self; 12] = [
        Self::Object,
        Self::Value,
        Self::Alarm,
        Self::Decision,
        Self::PassedOver,
        Self::Effect,
        Self::Undone,
        Self::Tuning,
        Self::Slot,
        Self::Jobs,
        Self::State,
        Self::Event,
    ];

    /// Name in the output, at most eight characters.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Value => "value",
            Self::Alarm => "alarm",
            Self::Decision => "decision",
            Self::PassedOver => "passed",
            Self::Effect => "effect",
            Self::Undone => "undone",
            Self::Tuning => "tuning",
            Self::Slot => "replica",
            Self::Jobs => "jobs",
            Self::State => "state",
            Self::Event => "event",
        }
    }
}

/// Whether an entry is good news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Good,
    Warning,
}

/// Machine whose clock a time is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClockOf {
    ApiServer,
    Operator,
    /// Sender of samples.
    Sender,
    /// Another program that reports events, such as the kubelet.
    Reporter,
    /// The machine that runs this command.
    Here,
}

impl ClockOf {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ApiServer => "the API server",
            Self::Operator => "the operator",
            Self::Sender => "the sender of samples",
            Self::Reporter => "the reporter of events",
            Self::Here => "this machine",
        }
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct TimelineEntry {
    pub at: Timestamp,
    pub lane: Lane,
    pub tone: Tone,
    pub text: String,
    /// Identities, such as `decision/3`. Two entries that share one are the same happening.
    pub keys: Vec<String>,
    /// The event that may tell of the same happening.
    pub hint: Option<EventHint>,
    /// It is the result of something: a time in whole seconds then stands for the end of its second.
    pub is_result: bool,
}

impl TimelineEntry {
    pub fn new(at: Timestamp, lane: Lane, key: impl Into<String>, text: impl Into<String>) -> Self {
        Self { at, lane, tone: Tone::Plain, text: text.into(), keys: vec![key.into()], hint: None, is_result: false }
    }

    /// The entry as the result of something.
    pub fn result(self) -> Self {
        Self { is_result: true, ..self }
    }

    /// Place among the other entries. The fraction of a time in whole seconds was cut: a result would stand before its
    /// cause in the same second.
    pub fn place(&self) -> Timestamp {
        let is_whole = self.at.subsec_nanosecond() == 0;
        let rest = SignedDuration::from_nanos(if self.is_result && is_whole { 999_999_999 } else { 0 });
        self.at.checked_add(rest).unwrap_or(self.at)
    }

    pub fn tone(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }

    pub fn told_by(self, hint: EventHint) -> Self {
        Self { hint: Some(hint), ..self }
    }
}

/// How to recognize the event about a happening that a status records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventHint {
    /// Kind of the event's object.
    pub kind: &'static str,
    /// Reasons of the event; empty: any.
    pub reasons: Vec<String>,
    /// Beginning of the note; None: any note, which is then added to the text of the entry.
    pub note: Option<String>,
    /// Part of the entry's text that a note replaces which contains it.
    pub detail: Option<String>,
    /// Text of the entry if the event came much later: the status then shows a newer reason at an older time.
    pub short: Option<String>,
}

/// The known values of one metric. Nothing is known between two of them.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueSeries {
    pub name: String,
    /// The values, the oldest first.
    pub points: Vec<SeriesPoint>,
}

/// A value at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesPoint {
    pub at: Timestamp,
    pub value: f64,
    /// The value as recorded, such as `512Mi`.
    pub text: String,
}

/// A level of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownLevel {
    /// Name of the series.
    pub metric: String,
    pub side: Side,
    /// The alarm is cleared at this level, rather than raised.
    pub clears: bool,
    pub value: f64,
    pub text: String,
    /// Since when the level is known to be in effect; None: it is in effect now.
    pub since: Option<Timestamp>,
}

impl ShownLevel {
    /// Name of the level, such as `low 5` or `clear 6`.
    pub fn label(&self) -> String {
        let name = match (self.clears, self.side) {
            (true, _) => "clear",
            (false, Side::Low) => "low",
            (false, Side::High) => "high",
            (false, Side::Equal) => "equal",
            (false, Side::Missing) => "missing",
            (false, Side::Target) => "target",
        };
        format!("{name} {}", self.text)
    }
}

/// A span of which nothing is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownSpan {
    pub from: Timestamp,
    pub to: Timestamp,
    pub text: String,
}

/// Two clocks that differ: `behind` shows an effect earlier than `ahead` shows its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockSkew {
    pub ahead: ClockOf,
    pub behind: ClockOf,
    pub at_least: SignedDuration,
    /// The effect and its cause.
    pub text: String,
}

impl ClockSkew {
    /// Describes the difference, and what it means for the order.
    pub fn words(&self) -> String {
        let Self { ahead, behind, at_least, text } = self;
        let much = shown(*at_least);
        if ahead == behind {
            return format!(
                "The clock of {} went back by at least {much}, or its leader changed: {text}.",
                ahead.as_str()
            );
        }
        let (ahead, behind) = (ahead.as_str(), behind.as_str());
        format!(
            "Clocks differ: that of {behind} is at least {much} behind that of {ahead}: {text}. Entries stand at the \
                 times that their machines recorded."
        )
    }
}

/// Renders a short duration with milliseconds, a long one without.
fn shown(duration: SignedDuration) -> String {
    let millis = duration.as_millis();
    if millis < 10_000 {
        format!("{}.{:03}s", millis / 1000, millis % 1000)
    } else {
        ganglion_core::duration::show(duration)
    }
}

/// A time, the clock that it is from, and what happened then.
#[derive(Clone, Debug)]
pub struct Moment {
    pub at: Timestamp,
    pub clock: ClockOf,
    pub what: String,
}

/// A timeline that is being built.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    pub title: String,
    pub about: String,
    pub entries: Vec<TimelineEntry>,
    pub series: Vec<ValueSeries>,
    pub levels: Vec<ShownLevel>,
    pub gaps: Vec<UnknownSpan>,
    pub limits: Vec<String>,
    pub now: Vec<String>,
    /// Pairs of a cause and its effect.
    pub causes: Vec<(Moment, Moment)>,
}

impl Draft {
    pub fn add(&mut self, entry: TimelineEntry) {
        self.entries.push(entry);
    }

    /// Adds a value to a series; text that is not a number is no value.
    pub fn add_value(&mut self, series: &str, at: Timestamp, text: &str) {
        let Ok(value) = ganglion_core::quantity::number(text) else { return };
        if !value.is_finite() {
            return;
        }
        let point = SeriesPoint { at, value, text: text.to_owned() };
        match self.series.iter_mut().find(|known| known.name == series) {
            Some(known) => known.points.push(point),
            None => self.series.push(ValueSeries { name: series.to_owned(), points: vec![point] }),
        }
    }

    /// Records that `cause` came before `effect`.
    pub fn caused(&mut self, cause: Moment, effect: Moment) {
        self.causes.push((cause, effect));
    }

    /// The timeline until `now`, or only from `since` on.
    pub fn finish(mut self, now: Timestamp, since: Option<Timestamp>) -> Timeline {
        let entries = without_repetitions(std::mem::take(&mut self.entries));
        for entry in &entries {
            let here = Moment { at: now, clock: ClockOf::Here, what: "this command runs".to_owned() };
            let clock = if entry.lane == Lane::Object { ClockOf::ApiServer } else { ClockOf::Operator };
            self.causes.push((Moment { at: entry.at, clock, what: what(entry) }, here));
        }
        let skews = skews(&self.causes);
        let (mut entries, left_out): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| since.is_none_or(|since| entry.at >= since));
        entries.sort_by_key(|entry| (entry.place(), entry.lane));
        for series in &mut self.series {
            series.points.retain(|point| since.is_none_or(|since| point.at >= since));
            series.points.sort_by_key(|point| point.at);
            series.points.dedup();
        }
        self.series.retain(|series| !series.points.is_empty());
        self.gaps.retain(|gap| since.is_none_or(|since| gap.to >= since));
        self.gaps.sort_by_key(|gap| (gap.to, gap.from));
        let points = || self.series.iter().flat_map(|series| series.points.iter().map(|point| point.at));
        let times = || entries.iter().map(|entry| entry.at).chain(points());
        let start = since.or_else(|| times().min()).unwrap_or(now);
        let end = times().max().unwrap_or(now).max(now);
        let mut limits = std::mem::take(&mut self.limits);
        if let (Some(since), false) = (since, left_out.is_empty()) {
            let earlier = if left_out.len() == 1 {
                "1 earlier entry is".to_owned()
            } else {
                format!("{} earlier entries are", left_out.len())
            };
            limits.push(format!("{earlier} not shown: --since begins at {}.", clock(since)));
        }
        Timeline {
            title: plain(&self.title),
            about: plain(&self.about),
            entries,
            levels: self.levels.into_iter().filter(|level| level.value.is_finite()).collect(),
            series: self.series,
            start,
            end,
            gaps: self.gaps,
            limits: limits.iter().map(|text| plain(text)).collect(),
            skews,
            now: self.now.iter().map(|text| plain(text)).collect(),
        }
    }
}

/// Describes an entry in a message about clocks.
fn what(entry: &TimelineEntry) -> String {
    format!("{} \"{}\"", entry.lane.as_str(), cut(&plain(&entry.text), 60))
}

/// Removes entries that share a key with an earlier one. Their other keys are added to it.
fn without_repetitions(entries: Vec<TimelineEntry>) -> Vec<TimelineEntry> {
    let mut seen = BTreeSet::new();
    let mut all: Vec<TimelineEntry> = Vec::with_capacity(entries.len());
    for mut entry in entries {
        if entry.keys.iter().any(|key| seen.contains(key)) {
            if let Some(first) = all.iter_mut().find(|first| first.keys.iter().any(|key| entry.keys.contains(key))) {
                first.keys.append(&mut entry.keys.clone());
            }
        } else {
            entry.text = plain(&entry.text);
            all.push(entry.clone());
        }
        seen.append(&mut entry.keys.into_iter().collect());
    }
    all
}

/// Text of other programs without control characters, which could command a terminal or make XML invalid.
pub fn plain(text: &str) -> String {
    let is_bad = |c: char| {
        c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
    };
    let text: String = text.chars().map(|c| if is_bad(c) { ' ' } else { c }).collect();
    cut(&text, MAX_TEXT).to_owned()
}

/// For each two clocks, the largest time by which an effect stands before its cause.
fn skews(causes: &[(Moment, Moment)]) -> Vec<ClockSkew> {
    let mut all: Vec<ClockSkew> = Vec::new();
    for (cause, effect) in causes {
        let at_least = cause.at.duration_since(effect.at) - RESOLUTION;
        if !at_least.is_positive() {
            continue;
        }
        let text =
            format!("{} at {}, {} at {}", plain(&effect.what), clock(effect.at), plain(&cause.what), clock(cause.at));
        let skew = ClockSkew { ahead: cause.clock, behind: effect.clock, at_least, text };
        match all.iter_mut().find(|known| (known.ahead, known.behind) == (skew.ahead, skew.behind)) {
            Some(known) if known.at_least < skew.at_least => *known = skew,
            Some(_) => {}
            None => all.push(skew),
        }
    }
    all
}

/// Describes how many entries are left out, such as `3 decisions`.
pub fn left_out(count: i64, thing: &str) -> String {
    format!("{} between {} not recorded", counted(count, thing), if count == 1 { "is" } else { "are" })
}
