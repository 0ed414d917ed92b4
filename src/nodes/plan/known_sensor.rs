//! Sensor that a search has found: how long it is polled before the next search.

use jiff::{SignedDuration, Timestamp};

use ganglion_api::node_config::status::{NodeReading, SensorChoice};

/// Time after which a search is repeated that may find a better sensor.
const PROVISIONAL: SignedDuration = SignedDuration::from_secs(60);

/// Number of consecutive polls without a usable answer after which another search begins: the sensor may be readable
/// at another path.
const FAILURES: u32 = 3;

/// Sensor that is polled without a search.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownSensor {
    path: String,
    choice: Option<SensorChoice>,
    /// Time of the next search.
    search_at: Option<Timestamp>,
    /// Consecutive polls without a usable answer.
    failures: u32,
}

impl KnownSensor {
    /// Sensor that a search found now.
    pub fn found(path: String, choice: Option<SensorChoice>, now: Timestamp) -> Self {
        let is_provisional = choice.as_ref().is_some_and(|choice| choice.provisional.is_some());
        let search_at = is_provisional.then(|| now.checked_add(PROVISIONAL).unwrap_or(Timestamp::MAX));
        Self { path, choice, search_at, failures: 0 }
    }

    /// Sensor that an earlier process read. None if its choice was provisional: then the first poll searches.
    pub fn restored(reading: Option<&NodeReading>, choice: Option<SensorChoice>) -> Option<Self> {
        let is_final = choice.as_ref().is_none_or(|choice| choice.provisional.is_none());
        let path = reading?.source.clone().filter(|_| is_final)?;
        Some(Self { path, choice, search_at: None, failures: 0 })
    }

    /// Path of the sensor. None if a search is due.
    pub fn path(&self, now: Timestamp) -> Option<&str> {
        let is_due = self.failures >= FAILURES || self.search_at.is_some_and(|at| at <= now);
        (!is_due).then_some(self.path.as_str())
    }

    /// Why the sensor was chosen.
    pub fn choice(&self) -> Option<&SensorChoice> {
        self.choice.as_ref()
    }

    /// Records whether the answer of a poll of this sensor could be used.
    pub fn record(&mut self, is_usable: bool) {
        self.failures = if is_usable { 0 } else { self.failures.saturating_add(1) };
    }
}
