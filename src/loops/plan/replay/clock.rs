//! Steps from one event to the next: a recorded value, the next poll, and the times at which a stage goes on.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::effect::{EffectReplicas, EffectState};
use super::recording::{RecordedSample, Recording};
use super::report::ReplayReport;
use super::rules::{ReplayError, ReplayRules, ReplayedSource};
use super::stages::{Arrivals, ReplayedStages};
use super::tally::ReplayTally;
use super::target::{LoopTarget, REPLICAS, SimulatedTarget};
use crate::common::later;
use crate::monitoring::{Measurement, SourceResult, SourceValue};
use ganglion_api::decision::Outcome;
use ganglion_api::monitoring::Sample;
use ganglion_core::quantity;

/// Maximum number of decisions at one time: each rung of each ladder may be at its bound.
const MAX_ROUNDS: usize = 1024;

/// Replays a loop on recorded values. The same input has the same result.
pub fn replay(rules: &ReplayRules, recording: &Recording) -> Result<ReplayReport, ReplayError> {
    let mut clock = ReplayClock::new(rules, recording)?;
    while let Some(now) = clock.next_time() {
        clock.step(now)?;
    }
    clock.tally.advance(recording.end());
    let decided = clock.stages.decided(recording.end());
    Ok(clock.tally.report(&decided, recording.start(), rules.limits(recording)))
}

/// Recorded samples of a series that have not been replayed.
struct SeriesCursor<'a> {
    name: &'a str,
    rest: &'a [RecordedSample],
}

impl<'a> SeriesCursor<'a> {
    /// Takes the sample of this time.
    fn take(&mut self, now: Timestamp) -> Option<&'a RecordedSample> {
        let (first, rest) = self.rest.split_first().filter(|(first, _)| first.at <= now)?;
        self.rest = rest;
        Some(first)
    }
}

struct ReplayClock<'a> {
    rules: &'a ReplayRules,
    recording: &'a Recording,
    stages: ReplayedStages<SimulatedTarget>,
    tally: ReplayTally<'a>,
    series: Vec<SeriesCursor<'a>>,
    effects: EffectState,
    /// Time of the last event; None before the first one.
    now: Option<Timestamp>,
    /// Next poll, if no polled metric is recorded.
    next_poll: Option<Timestamp>,
    /// Recorded number of replicas, or that at the start.
    recorded_replicas: Option<f64>,
    /// Number of the last decision whose effect has been recorded.
    acted: i64,
}

impl<'a> ReplayClock<'a> {
    fn new(rules: &'a ReplayRules, recording: &'a Recording) -> Result<Self, ReplayError> {
        let start = recording.start();
        let target = SimulatedTarget::new(rules.start_values(recording)?, rules.delay);
        let recorded_replicas = target.replicas().map(f64::from);
        let stages = ReplayedStages::new(Arc::new(rules.clone()), target, start);
        let is_recorded = |(name, source): &(String, ReplayedSource)| {
            matches!(source, ReplayedSource::Polled) && recording.samples(name).is_some()
        };
        let polls = rules.is_polled() && !rules.sources.iter().any(is_recorded);
        let series =
            recording.names().map(|name| SeriesCursor { name, rest: recording.samples(name).unwrap_or_default() });
        Ok(Self {
            tally: ReplayTally::new(rules, &stages, start),
            rules,
            recording,
            stages,
            series: series.collect(),
            effects: EffectState::default(),
            now: None,
            next_poll: polls.then_some(start),
            recorded_replicas,
            acted: 0,
        })
    }

    /// Time of the next event; None after the end.
    fn next_time(&self) -> Option<Timestamp> {
        let Some(now) = self.now else { return Some(self.recording.start()) };
        let samples = self.series.iter().filter_map(|series| series.rest.first()).map(|sample| sample.at);
        let stages = [self.stages.next_evaluation(now), self.stages.again, self.stages.execution_due];
        let next = samples.chain(stages.into_iter().flatten()).chain(self.next_poll).chain(self.interval_ends());
        next.filter(|at| *at > now).min().filter(|at| *at <= self.recording.end())
    }

    /// End of the interval of a loop whose values are pushed: its levels are evaluated at least once per interval.
    fn interval_ends(&self) -> Option<Timestamp> {
        let last = self.stages.evaluated_at.filter(|_| !self.rules.is_polled())?;
        Some(later(last, self.rules.watches.interval))
    }

    fn step(&mut self, now: Timestamp) -> Result<(), ReplayError> {
        self.tally.advance(now);
        let is_first = self.now.replace(now).is_none();
        if is_first {
            self.stages.execute(now)?;
        }
        let is_due = self.stages.next_evaluation(now).is_some_and(|at| at <= now)
            || self.interval_ends().is_some_and(|at| at <= now)
            || (is_first && !self.rules.is_polled());
        let arrivals = Arrivals { due: is_due, ..self.arrivals(now) };
        let goes_on = [self.stages.again, self.stages.execution_due].into_iter().flatten().any(|at| at <= now);
        let written = self.stages.observe(arrivals, now);
        if self.stages.evaluated_at == Some(now) {
            self.tally.evaluated(&self.stages.monitoring.current, now);
        }
        // The decision controller waits for the first status of the Monitoring.
        let has_alarms = self.stages.monitoring.written.term.is_some();
        if has_alarms && (written || goes_on) { self.settle(now) } else { Ok(()) }
    }

    /// Decides and acts until all stages rest.
    fn settle(&mut self, now: Timestamp) -> Result<(), ReplayError> {
        for _ in 0..MAX_ROUNDS {
            self.stages.decide(now);
            self.tally.decided(&self.stages, now);
            let has_acted = self.stages.execute(now)?;
            if !has_acted {
                return Ok(());
            }
            self.tally.decided(&self.stages, now);
            self.record_effect(now);
        }
        Err(ReplayError::Restless(self.rules.name.clone()))
    }

    /// Records that the effect of the last decision begins, if it was carried out.
    fn record_effect(&mut self, now: Timestamp) {
        let decided = self.stages.decided(now);
        let Some(chosen) = decided.chosen.filter(|chosen| chosen.outcome == Some(Outcome::Served)) else { return };
        if chosen.seq > self.acted {
            self.acted = chosen.seq;
            let rung = usize::try_from(chosen.rung).unwrap_or(0);
            let begins = later(now, self.rules.delay);
            self.effects.acted(&self.rules.effect, &chosen.served().to_string(), rung, begins);
        }
    }

    /// Values that arrive now.
    fn arrivals(&mut self, now: Timestamp) -> Arrivals {
        let mut taken: BTreeMap<&str, &RecordedSample> = BTreeMap::new();
        for series in &mut self.series {
            if let Some(sample) = series.take(now) {
                taken.insert(series.name, sample);
            }
        }
        let has_metric = self.rules.sources.iter().any(|(name, _)| name == REPLICAS);
        if let Some(Ok(text)) = taken.get(REPLICAS).filter(|_| !has_metric).map(|sample| &sample.value) {
            self.recorded_replicas = quantity::number(text).ok();
        }
        let mut is_poll = self.next_poll.is_some_and(|at| at <= now);
        if is_poll {
            self.next_poll = Some(later(now, self.rules.watches.interval));
        }
        let is_taken = |(name, source): &(String, ReplayedSource)| {
            matches!(source, ReplayedSource::Polled) && taken.contains_key(name.as_str())
        };
        is_poll |= self.rules.sources.iter().any(is_taken);
        Arrivals { polled: is_poll.then(|| self.polled(&taken, now)), pushed: self.pushed(&taken, now), due: false }
    }

    /// Answers of the sources that are polled.
    fn polled(&self, taken: &BTreeMap<&str, &RecordedSample>, now: Timestamp) -> BTreeMap<String, SourceResult> {
        let mut values = BTreeMap::new();
        for (name, source) in &self.rules.sources {
            let recorded = taken.get(name.as_str()).map(|sample| self.value(name, sample, now));
            let result = match source {
                ReplayedSource::Pushed(_) | ReplayedSource::Computed => continue,
                ReplayedSource::Cron(cron) => Some(recorded.unwrap_or_else(|| Ok(cron.at(now).to_owned()))),
                // Its source answers at other times.
                ReplayedSource::Polled if self.recording.samples(name).is_some() => recorded,
                ReplayedSource::Polled => Some(Err("the recording has no values of its source".to_owned())),
            };
            let measured = |text| SourceValue { at: Some(now), ..SourceValue::from(text) };
            values.extend(result.map(|result| (name.clone(), result.map(measured))));
        }
        values
    }

    /// The pushed sample, if one of its metrics has a value now.
    fn pushed(&self, taken: &BTreeMap<&str, &RecordedSample>, now: Timestamp) -> Option<Measurement> {
        let mut sample = Sample { time: now.to_string(), ..Sample::default() };
        for (name, source) in &self.rules.sources {
            let ReplayedSource::Pushed(key) = source else { continue };
            let value = taken.get(name.as_str()).map(|sample| self.value(name, sample, now));
            sample.values.extend(value.and_then(Result::ok).map(|value| (key.clone(), value)));
        }
        (!sample.values.is_empty()).then(|| self.rules.watches.pushed(&sample, now))
    }

    /// Value that the source would have had.
    fn value(&self, name: &str, sample: &RecordedSample, now: Timestamp) -> Result<String, String> {
        let text = sample.value.as_ref().map_err(|why| (**why).to_owned())?;
        let replicas = EffectReplicas { recorded: self.recorded_replicas, serving: self.stages.target.serving(now) };
        self.effects.value(&self.rules.effect, name, text, replicas, now)
    }
}
