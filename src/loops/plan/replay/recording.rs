//! Recorded values of metrics. A time without a value is recorded with the reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use thiserror::Error;

use super::target::REPLICAS;
use crate::decision::settlement::CHANGES_TO;
use ganglion_api::decision::DecisionStatus;

/// Answer of the source of one metric at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedSample {
    pub at: Timestamp,
    /// The number as text, or why there is none.
    pub value: Result<String, Arc<str>>,
}

/// Recorded values of a period of time, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    start: Timestamp,
    end: Timestamp,
    series: BTreeMap<String, Vec<RecordedSample>>,
}

/// Error: the values are no recording.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RecordingError {
    #[error("the range from {start} to {end} has no length: use a later end, or a longer --since")]
    NoLength { start: Timestamp, end: Timestamp },
    #[error("the values of {name} at {at} are not later than the ones before")]
    OutOfOrder { name: String, at: Timestamp },
}

impl Recording {
    /// A recording without values. Fails unless `end` is later than `start`.
    pub fn new(start: Timestamp, end: Timestamp) -> Result<Self, RecordingError> {
        if start >= end {
            return Err(RecordingError::NoLength { start, end });
        }
        Ok(Self { start, end, series: BTreeMap::new() })
    }

    /// Adds the samples of a metric, ordered by time. Samples outside the period are left out.
    pub fn add(&mut self, name: &str, samples: Vec<RecordedSample>) -> Result<(), RecordingError> {
        if let Some(pair) = samples.windows(2).find(|pair| pair[0].at >= pair[1].at) {
            return Err(RecordingError::OutOfOrder { name: name.to_owned(), at: pair[1].at });
        }
        let within = samples.into_iter().filter(|sample| (self.start..=self.end).contains(&sample.at));
        self.series.insert(name.to_owned(), within.collect());
        Ok(())
    }

    pub fn start(&self) -> Timestamp {
        self.start
    }

    pub fn end(&self) -> Timestamp {
        self.end
    }

    /// Names of the recorded metrics, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.series.keys().map(String::as_str)
    }

    /// Samples of the metric, ordered by time; None if it is not recorded.
    pub fn samples(&self, name: &str) -> Option<&[RecordedSample]> {
        self.series.get(name).map(Vec::as_slice)
    }

    /// The part between these times. Fails if it has no length.
    pub fn between(&self, start: Timestamp, end: Timestamp) -> Result<Self, RecordingError> {
        let mut part = Self::new(start.max(self.start), end.min(self.end))?;
        for (name, samples) in &self.series {
            part.add(name, samples.clone())?;
        }
        Ok(part)
    }
}

/// The values that a Decision has recorded with its last decisions, and the number of these decisions; None if it has
/// none. Values in between are not recorded.
pub fn recorded_decisions(status: &DecisionStatus) -> Option<(Result<Recording, RecordingError>, usize)> {
    let mut series: BTreeMap<String, Vec<RecordedSample>> = BTreeMap::new();
    let mut replicas = None;
    let mut count = 0;
    for entry in &status.history {
        let (Some(alarm), Some(value)) = (entry.when.one(), &entry.value) else { continue };
        count += 1;
        let samples = series.entry(alarm.metric.clone()).or_default();
        samples.push(RecordedSample { at: entry.at.0, value: Ok(value.0.clone()) });
        let before = entry.effect.as_deref().and_then(|effect| effect.split_once(CHANGES_TO));
        let number = before.filter(|(before, _)| before.parse::<i32>().is_ok());
        replicas =
            replicas.or(number.map(|(before, _)| RecordedSample { at: entry.at.0, value: Ok(before.to_owned()) }));
    }
    let times = || series.values().flatten().map(|sample| sample.at);
    let (start, end) = (times().min()?, times().max()?);
    let recording = Recording::new(start, end).and_then(|mut recording| {
        for (name, samples) in series {
            recording.add(&name, samples)?;
        }
        recording.add(REPLICAS, replicas.into_iter().collect())?;
        Ok(recording)
    });
    Some((recording, count))
}
