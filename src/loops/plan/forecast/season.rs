//! Latest and usual demand of each bucket of a season.

use super::number::stored;

/// Weight of the latest season in what is usual: about the mean of the last six seasons.
const LATEST_WEIGHT: f64 = 0.3;

/// Demand of one season in buckets. A bucket takes the place of the same bucket of the season before.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StoredSeason {
    /// Demand in the last bucket; None: unknown.
    latest: Vec<Option<f64>>,
    /// Mean over the seasons before the latest value, with decreasing weights.
    usual: Vec<Option<f64>>,
}

impl StoredSeason {
    pub fn new(count: i64) -> Self {
        let count = usize::try_from(count).unwrap_or(0);
        Self { latest: vec![None; count], usual: vec![None; count] }
    }

    /// Restores the lists of another one. None if they have not this number of buckets.
    pub fn restore(count: i64, latest: Vec<Option<f64>>, usual: Vec<Option<f64>>) -> Option<Self> {
        let count = usize::try_from(count).ok()?;
        (latest.len() == count && usual.len() == count).then_some(Self { latest, usual })
    }

    pub fn lists(&self) -> [&[Option<f64>]; 2] {
        [&self.latest, &self.usual]
    }

    fn slot(&self, index: i64) -> usize {
        // The remainder is below the length, which fits.
        index.rem_euclid(self.latest.len().max(1) as i64) as usize
    }

    /// Demand in this bucket, or in the same bucket of the season before if this one is not over.
    pub fn latest(&self, index: i64) -> Option<f64> {
        *self.latest.get(self.slot(index))?
    }

    /// Deviation of the latest demand from what was usual before.
    pub fn deviation(&self, index: i64) -> Option<f64> {
        Some(self.latest(index)? - (*self.usual.get(self.slot(index))?)?)
    }

    /// Usual demand, with the latest one.
    pub fn usual(&self, index: i64) -> Option<f64> {
        let usual = *self.usual.get(self.slot(index))?;
        match (usual, self.latest(index)) {
            (Some(usual), Some(latest)) => Some(usual + LATEST_WEIGHT * (latest - usual)),
            (usual, latest) => usual.or(latest),
        }
    }

    /// Stores the demand of a bucket that is over.
    pub fn close(&mut self, index: i64, demand: Option<f64>) {
        let (slot, usual) = (self.slot(index), self.usual(index));
        if let (Some(stored_usual), Some(stored_latest)) = (self.usual.get_mut(slot), self.latest.get_mut(slot)) {
            *stored_usual = usual.map(stored);
            *stored_latest = demand.map(stored);
        }
    }

    /// Forgets the latest demand of a bucket, whose time is not known.
    pub fn forget(&mut self, index: i64) {
        let slot = self.slot(index);
        if let Some(latest) = self.latest.get_mut(slot) {
            *latest = None;
        }
    }
}
