//! Reduces the values of pods to one number, with the range in which it lies whatever the pods use that are not
//! measured.

use jiff::Timestamp;

use crate::monitoring::{SourceResult, SourceValue, ValueRange};
use ganglion_api::closed_loop::metric::Aggregate;

/// How a pod counts, as in a HorizontalPodAutoscaler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum PodUse {
    /// Its value, and when it was measured.
    Measured(f64, Option<Timestamp>),
    /// It is starting: it uses nothing for the alarm High, and is left out for the alarm Low.
    Starting,
    /// It is not measured: it uses nothing for the alarm High, and this for the alarm Low. None: it requests nothing.
    Missing(Option<f64>),
}

/// Returns the values of the pods as one number, with the time of the oldest measurement.
pub(super) fn reduced(of: Aggregate, pods: impl IntoIterator<Item = PodUse>) -> SourceResult {
    let (mut measured, mut requests, mut starting) = (Vec::new(), Vec::new(), 0);
    let mut oldest: Option<Timestamp> = None;
    for pod in pods {
        match pod {
            PodUse::Measured(value, at) => {
                measured.push(value);
                oldest = [oldest, at].into_iter().flatten().min();
            }
            PodUse::Starting => starting += 1,
            PodUse::Missing(request) => requests.push(request),
        }
    }
    if measured.is_empty() {
        let none = if starting > 0 { "no pod that is ready is measured" } else { "no pod is measured" };
        return Err(none.to_owned());
    }
    let value = aggregated(of, &measured);
    let missing = requests.len() + starting;
    let range = (missing > 0).then(|| ValueRange {
        least: aggregated(of, &[measured.as_slice(), &vec![0.0; missing]].concat()).to_string(),
        ..upper_limit(of, &measured, requests)
    });
    Ok(SourceValue { at: oldest, range, ..SourceValue::from(value.to_string()) })
}

/// Returns the upper limit of the value if these pods use what they request. A mean is that over one pod fewer:
/// otherwise one pod after the other would be removed although the others have no room for its load.
fn upper_limit(of: Aggregate, measured: &[f64], requests: Vec<Option<f64>>) -> ValueRange {
    let value = aggregated(of, measured);
    let Some(requests) = requests.into_iter().collect::<Option<Vec<f64>>>() else { return ValueRange::default() };
    let all = [measured, &requests].concat();
    let most = match of {
        Aggregate::Mean if !requests.is_empty() => {
            aggregated(Aggregate::Sum, &all) / all.len().saturating_sub(1).max(1) as f64
        }
        Aggregate::Mean | Aggregate::Sum | Aggregate::Max | Aggregate::Min => aggregated(of, &all),
    };
    // The smallest usage is at most that of a measured pod, whatever the others use.
    let request = requests.into_iter().reduce(f64::min).filter(|_| of != Aggregate::Min);
    ValueRange {
        most: Some(most.max(value).to_string()),
        missing_request: request.map(|request| request.to_string()),
        ..ValueRange::default()
    }
}

fn aggregated(of: Aggregate, values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    match of {
        #[expect(clippy::cast_precision_loss, reason = "there are not that many pods")]
        Aggregate::Mean => sum / values.len() as f64,
        Aggregate::Sum => sum,
        Aggregate::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        Aggregate::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
    }
}
