//! Memory of a forecast: what is recorded, and what follows from it.
//!
//! - Unknown values are gaps. A bucket without a value is empty: the seasonal naive model has no forecast for its time
//!   of the next season, and Holt-Winters uses what was usual before. After empty buckets for longer than `ahead`, the
//!   forecast is not used before the next value. After a quarter of a season, trust has to be earned again.
//! - A clock that steps forward leaves a gap. One that steps back by up to `ahead` changes nothing: values count for
//!   the current bucket until the clock is there again. After a larger step, the times of the values in between are
//!   not known: they are forgotten, and trust has to be earned again.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

use super::model::{ForecastModel, HoltWintersFit};
use super::number::stored;
use super::outcome::ForecastOutcome;
use super::rules::{ForecastGrid, ForecastRuleError, ForecastRules};
use super::samples::BucketSamples;
use super::season::StoredSeason;
use super::trust::{BucketForecasts, ForecastTrust, Judgement};

/// Memory of the forecast of one loop.
#[derive(Clone, Debug, PartialEq)]
pub struct ForecastMemory {
    pub(super) grid: ForecastGrid,
    /// Bucket that is not over, and its samples.
    pub(super) open: i64,
    pub(super) samples: BucketSamples,
    pub(super) season: StoredSeason,
    /// Forecasts of Holt-Winters for the next buckets, each made [`ForecastGrid::distance`] buckets before; the oldest
    /// is for the open bucket.
    pub(super) pending: VecDeque<Option<f64>>,
    pub(super) judgement: Judgement,
    /// Number of empty buckets in a row, up to the open one; at most that of a season.
    pub(super) empty: i64,
    /// Follows from the season.
    fit: Option<HoltWintersFit>,
}

impl ForecastMemory {
    /// Memory without values.
    pub fn new(rules: &ForecastRules, now: Timestamp) -> Result<Self, ForecastRuleError> {
        let grid = rules.grid()?;
        Ok(Self::restore(grid, grid.index(now), StoredSeason::new(grid.count)))
    }

    pub(super) fn restore(grid: ForecastGrid, open: i64, season: StoredSeason) -> Self {
        let mut memory = Self {
            grid,
            open,
            samples: BucketSamples::default(),
            season,
            pending: VecDeque::new(),
            judgement: Judgement::default(),
            empty: 0,
            fit: None,
        };
        memory.refit();
        memory
    }

    /// Records the demand, in replicas; None, or a number that is none: it is unknown.
    pub fn record(&mut self, demand: Option<f64>, now: Timestamp) {
        let index = self.grid.index(now);
        if index > self.open {
            self.advance(index);
        } else if self.open.saturating_sub(index) > self.grid.horizon {
            self.step_back(index);
        }
        if let Some(demand) = demand.filter(|demand| demand.is_finite() && *demand >= 0.0) {
            self.samples.add(demand);
        }
    }

    /// Ends the open bucket and all up to this one.
    fn advance(&mut self, index: i64) {
        let count = self.grid.count;
        let demand = self.samples.quartile();
        self.close(self.open, demand);
        // Before the last season, an empty bucket changes nothing.
        for skipped in (self.open + 1).max(index.saturating_sub(count))..index {
            self.close(skipped, None);
        }
        (self.open, self.samples) = (index, BucketSamples::default());
        self.refit();
        let target = index - 1 + self.grid.distance();
        if let Some(last) = self.pending.back_mut()
            && self.empty == 0
        {
            *last = self.fit.and_then(|fit| fit.forecast(&self.season, target)).map(stored);
        }
    }

    /// Ends a bucket.
    fn close(&mut self, index: i64, demand: Option<f64>) {
        let distance = self.grid.distance();
        let is_due = i64::try_from(self.pending.len()).is_ok_and(|pending| pending >= distance);
        let holt_winters = if is_due { self.pending.pop_front().flatten() } else { None };
        // Its place is taken by the forecast that is made once all buckets are closed.
        self.pending.push_back(None);
        let last_value = self.season.latest(index - distance);
        let seasonal_naive = self.season.latest(index);
        if let (Some(demand), Some(last_value), Some(seasonal_naive), Some(holt_winters)) =
            (demand, last_value, seasonal_naive, holt_winters)
        {
            let forecasts = BucketForecasts { last_value, seasonal_naive, holt_winters };
            self.judgement.judge(forecasts, demand, self.needed());
        }
        self.season.close(index, demand);
        self.empty = if demand.is_some() { 0 } else { (self.empty + 1).min(self.grid.count) };
        if self.empty > self.grid.longest_gap() {
            self.judgement = Judgement::default();
        }
    }

    /// Continues at an earlier bucket.
    fn step_back(&mut self, index: i64) {
        for later in (index.max(self.open - self.grid.count))..=self.open {
            self.season.forget(later);
        }
        self.pending.clear();
        self.judgement = Judgement::default();
        (self.open, self.samples, self.empty) = (index, BucketSamples::default(), 0);
        self.refit();
    }

    fn refit(&mut self) {
        let ForecastGrid { count, .. } = self.grid;
        self.fit = HoltWintersFit::new(&self.season, self.open - 1, count, self.grid.distance());
    }

    /// Number of horizons that have to be judged before a model is trusted: those of a whole season, so that all times
    /// of it count.
    fn needed(&self) -> u32 {
        u32::try_from(self.grid.count).unwrap_or(u32::MAX)
    }

    /// Forecast until `ahead` from now, after the current demand was recorded.
    pub fn forecast(&self, now: Timestamp) -> ForecastOutcome {
        let index = self.grid.index(now).max(self.open);
        let errors = self.judgement.errors;
        let needed = self.needed();
        let trust = if self.empty.saturating_add(index - self.open) > self.grid.horizon {
            ForecastTrust::NoRecentValues
        } else {
            match self.judgement.trusted {
                Some(model) => ForecastTrust::Trusted(model),
                None if errors.horizons < needed => ForecastTrust::Learning { horizons: errors.horizons, needed },
                None => ForecastTrust::NotBetter,
            }
        };
        let model = self.judgement.trusted.unwrap_or_else(|| errors.better());
        let forecasts = (index..=index + self.grid.horizon).filter_map(|index| self.demand(model, index));
        let demand = forecasts.max_by(f64::total_cmp);
        let ahead = SignedDuration::from_secs(self.grid.width * self.grid.horizon);
        let until = now.checked_add(ahead).unwrap_or(Timestamp::MAX);
        ForecastOutcome { demand, model, until, errors, trust }
    }

    fn demand(&self, model: ForecastModel, index: i64) -> Option<f64> {
        match model {
            ForecastModel::SeasonalNaive => self.season.latest(index),
            ForecastModel::HoltWinters => self.fit?.forecast(&self.season, index),
        }
    }
}
