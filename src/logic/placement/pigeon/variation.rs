//! Variability of several resources as one number.

use super::{Matrix, Row};

/// The multivariate coefficient of variation of Albert and Zhang; of one resource, the deviation divided by the mean. 0 if the mean
/// is 0. Rows and columns of resources that do not count are zero.
pub(super) fn variation(mean: &Row, covariance: &Matrix) -> f64 {
    let square: f64 = mean.iter().map(|value| value * value).sum();
    if square <= 0.0 {
        return 0.0;
    }
    let product = |row: &Row| row.iter().zip(mean).map(|(covariance, value)| covariance * value).sum::<f64>();
    let form: f64 = covariance.iter().zip(mean).map(|(row, value)| value * product(row)).sum();
    form.max(0.0).sqrt() / square
}
