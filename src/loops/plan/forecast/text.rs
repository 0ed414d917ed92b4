//! Form of the memory in a status: one string below 2 kB, written about once an hour.
//!
//! The samples of the open bucket are not stored: after a restart, it has the samples since then, or is a gap.

use std::collections::VecDeque;

use thiserror::Error;

use super::memory::ForecastMemory;
use super::model::ForecastModel;
use super::number::{read, write};
use super::rules::{ForecastGrid, ForecastRuleError, ForecastRules, MAX_BUCKETS};
use super::season::StoredSeason;
use super::trust::{ForecastErrors, Judgement};

/// Version of the stored form.
const VERSION: &str = "1";

/// Maximum length of the stored form, in bytes.
const MAX_TEXT: usize = 2048;

/// Least time between two writes, in seconds.
const WRITE_INTERVAL: i64 = 3600;

/// Latest second that a stored bucket may start at: that of the year 9999.
const MAX_SECOND: i64 = 253_000_000_000;

/// Names of the trusted model.
const NO_MODEL: &str = "-";
const SEASONAL_NAIVE: &str = "n";
const HOLT_WINTERS: &str = "h";

/// Reason why a stored memory cannot be read. The loop then starts with an empty one: trust has to be earned again.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ForecastMemoryError {
    #[error("the memory has an unknown version")]
    Version,
    #[error("the memory is longer than {MAX_TEXT} bytes")]
    TooLong,
    #[error("the memory is not a list of numbers")]
    Malformed,
    #[error("the memory is of another season, or of buckets of another length")]
    OtherBuckets,
    #[error(transparent)]
    Rules(#[from] ForecastRuleError),
}

/// First fields of the stored form.
struct StoredHeader<'a> {
    grid: ForecastGrid,
    open: i64,
    rest: Vec<&'a str>,
}

impl<'a> StoredHeader<'a> {
    fn parse(text: &'a str) -> Result<Self, ForecastMemoryError> {
        if text.len() > MAX_TEXT {
            return Err(ForecastMemoryError::TooLong);
        }
        let mut fields = text.split(';');
        if fields.next() != Some(VERSION) {
            return Err(ForecastMemoryError::Version);
        }
        let mut bounded = |least: i64, most: i64| {
            let number: Option<i64> = fields.next().and_then(|field| field.parse().ok());
            number.filter(|number| (least..=most).contains(number)).ok_or(ForecastMemoryError::Malformed)
        };
        let grid = ForecastGrid {
            width: bounded(1, WRITE_INTERVAL)?,
            count: bounded(1, MAX_BUCKETS)?,
            horizon: bounded(1, MAX_BUCKETS)?,
        };
        let open = bounded(-MAX_SECOND / grid.width, MAX_SECOND / grid.width)?;
        Ok(Self { grid, open, rest: fields.collect() })
    }
}

impl ForecastMemory {
    /// The stored form: `1;WIDTH;COUNT;HORIZON;OPEN;EMPTY;HORIZONS;TRUSTED;ERRORS;LATEST;USUAL;PENDING`. Errors are
    /// those of last value, seasonal naive and Holt-Winters; the last three fields are lists of numbers, see `number`.
    pub fn text(&self) -> String {
        let ForecastGrid { width, count, horizon } = self.grid;
        let Judgement { errors, trusted } = self.judgement;
        let trusted = match trusted {
            None => NO_MODEL,
            Some(ForecastModel::SeasonalNaive) => SEASONAL_NAIVE,
            Some(ForecastModel::HoltWinters) => HOLT_WINTERS,
        };
        let ForecastErrors { last_value, seasonal_naive, holt_winters, horizons } = errors;
        let [latest, usual] = self.season.lists().map(|list| write(list.iter()));
        let pending = write(self.pending.iter());
        format!(
            "{VERSION};{width};{count};{horizon};{};{};{horizons};{trusted};\
             {last_value:e},{seasonal_naive:e},{holt_winters:e};{latest};{usual};{pending}",
            self.open, self.empty,
        )
    }

    /// Reads a stored form. If only `ahead` is another one, values stay, and trust has to be earned again.
    pub fn parse(text: &str, rules: &ForecastRules) -> Result<Self, ForecastMemoryError> {
        let grid = rules.grid()?;
        let StoredHeader { grid: stored, open, rest } = StoredHeader::parse(text)?;
        let malformed = || ForecastMemoryError::Malformed;
        if (stored.width, stored.count) != (grid.width, grid.count) {
            return Err(ForecastMemoryError::OtherBuckets);
        }
        let [empty, horizons, trusted, errors, latest, usual, pending] = rest[..] else { return Err(malformed()) };
        let empty: i64 = empty.parse().map_err(|_| malformed())?;
        let judgement = read_judgement(horizons, trusted, errors, grid.count).ok_or_else(malformed)?;
        let season =
            StoredSeason::restore(grid.count, read(latest).ok_or_else(malformed)?, read(usual).ok_or_else(malformed)?);
        let season = season.ok_or_else(malformed)?;
        let pending: VecDeque<Option<f64>> = read(pending).ok_or_else(malformed)?.into();
        let is_bounded = i64::try_from(pending.len()).is_ok_and(|pending| pending <= stored.distance());
        if !is_bounded || !(0..=grid.count).contains(&empty) {
            return Err(malformed());
        }
        let mut memory = Self::restore(grid, open, season);
        memory.empty = empty;
        if stored.horizon == grid.horizon {
            (memory.judgement, memory.pending) = (judgement, pending);
        }
        Ok(memory)
    }

    /// Whether the memory is one of these rules.
    pub fn is_of(&self, rules: &ForecastRules) -> bool {
        rules.grid().is_ok_and(|grid| grid == self.grid)
    }

    /// Whether the memory should be written: there is none that is younger than an hour, of the same rules.
    pub fn needs_write(&self, stored: Option<&str>) -> bool {
        match stored.map(StoredHeader::parse) {
            None => self.season.lists()[0].iter().any(Option::is_some),
            Some(Err(_)) => true,
            Some(Ok(StoredHeader { grid, open, .. })) => {
                let age = (self.open - open).saturating_mul(self.grid.width);
                grid != self.grid || !(0..WRITE_INTERVAL).contains(&age)
            }
        }
    }
}

fn read_judgement(horizons: &str, trusted: &str, errors: &str, count: i64) -> Option<Judgement> {
    let horizons: u32 = horizons.parse().ok()?;
    let numbers: Option<Vec<f64>> = errors
        .split(',')
        .map(|error| error.parse().ok().filter(|error: &f64| error.is_finite() && *error >= 0.0))
        .collect();
    let [last_value, seasonal_naive, holt_winters] = numbers?[..] else { return None };
    let trusted = match trusted {
        NO_MODEL => None,
        SEASONAL_NAIVE => Some(ForecastModel::SeasonalNaive),
        HOLT_WINTERS => Some(ForecastModel::HoltWinters),
        _ => return None,
    };
    let is_valid = i64::from(horizons) <= count && (trusted.is_none() || i64::from(horizons) == count);
    let errors = ForecastErrors { last_value, seasonal_naive, holt_winters, horizons };
    is_valid.then_some(Judgement { errors, trusted })
}
