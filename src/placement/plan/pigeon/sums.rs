//! Mean and covariance of rows, with one row replaced.

use super::{MAX_RESOURCES, Matrix, Row};

/// Sums over rows. They are taken relative to the mean of the rows, so that variances are not lost to rounding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sums {
    columns: usize,
    count: f64,
    center: Row,
    first: Row,
    second: Matrix,
}

/// Mean and population covariance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Distribution {
    pub mean: Row,
    pub covariance: Matrix,
}

impl Sums {
    /// Sums rows in one pass by Welford's method, since the rows are read for every pod.
    pub fn of(columns: usize, rows: impl Iterator<Item = Row>) -> Self {
        let columns = columns.clamp(1, MAX_RESOURCES);
        let mut sums =
            Self { columns, count: 0.0, center: Row::default(), first: Row::default(), second: Matrix::default() };
        for row in rows {
            sums.count += 1.0;
            let (mut before, mut after) = (row, row);
            for ((center, before), after) in sums.center.iter_mut().zip(&mut before).zip(&mut after).take(columns) {
                *before -= *center;
                *center += *before / sums.count;
                *after -= *center;
            }
            for (second, before) in sums.second.iter_mut().zip(before).take(columns) {
                for (second, after) in second.iter_mut().zip(after).take(columns) {
                    *second += before * after;
                }
            }
        }
        sums
    }

    /// Adds a row, or removes it if the sign is -1.
    fn add(&mut self, row: &Row, sign: f64) {
        self.count += sign;
        let mut relative = *row;
        relative.iter_mut().zip(&self.center).for_each(|(value, center)| *value -= center);
        for ((first, second), one) in self.first.iter_mut().zip(&mut self.second).zip(relative).take(self.columns) {
            *first += sign * one;
            for (second, other) in second.iter_mut().zip(relative).take(self.columns) {
                *second += sign * one * other;
            }
        }
    }

    /// Distribution after `new` replaces `old`.
    pub fn replaced(mut self, old: Option<&Row>, new: Option<&Row>) -> Distribution {
        old.into_iter().for_each(|row| self.add(row, -1.0));
        new.into_iter().for_each(|row| self.add(row, 1.0));
        let mut distribution = Distribution::default();
        if self.count < 0.5 {
            return distribution;
        }
        let mean = self.first.map(|sum| sum / self.count);
        for i in 0..self.columns {
            distribution.mean[i] = self.center[i] + mean[i];
            for j in 0..self.columns {
                distribution.covariance[i][j] = self.second[i][j] / self.count - mean[i] * mean[j];
            }
        }
        distribution
    }
}

impl Distribution {
    /// Standard deviation of the first column.
    pub fn deviation(&self) -> f64 {
        self.covariance[0][0].max(0.0).sqrt()
    }
}
