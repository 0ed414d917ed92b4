//! The variability of several resources as one number.

use super::{Matrix, Row};

/// Multivariate coefficient of variation of Albert and Zhang. For one resource, it is the deviation divided by the
/// mean. 0 if the mean is 0. Only the first `resources` columns are read, since it is calculated for each node and pod.
pub(super) fn variation(mean: &Row, covariance: &Matrix, resources: usize) -> f64 {
    let mean = mean.get(..resources).unwrap_or(mean);
    let square: f64 = mean.iter().map(|value| value * value).sum();
    if square <= 0.0 {
        return 0.0;
    }
    let product = |row: &Row| row.iter().zip(mean).map(|(covariance, value)| covariance * value).sum::<f64>();
    let form: f64 = covariance.iter().zip(mean).map(|(row, value)| value * product(row)).sum();
    form.max(0.0).sqrt() / square
}
