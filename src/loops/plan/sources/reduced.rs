//! Reduces the values of pods to one number, with the range in which it lies whatever the values are of the pods that
//! are not measured. All numbers are exact to a billionth, as quantities of Kubernetes are.

use jiff::Timestamp;

use crate::monitoring::{SourceResult, SourceValue, ValueRange};
use crate::track::Nanos;
use ganglion_api::closed_loop::metric::Aggregate;
use ganglion_core::quantity;

/// How a pod counts, as in a HorizontalPodAutoscaler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum PodUse {
    /// Its value, and when it was measured.
    Measured(Nanos, Timestamp),
    /// It is starting: it uses nothing for the alarm High, and is left out for the alarm Low.
    Starting,
    /// It is not measured: it uses nothing for the alarm High, and this for the alarm Low. None: any amount.
    Missing(Option<Nanos>),
}

/// Returns the values of the pods as one number, with the time of the oldest measurement.
pub(super) fn reduced(of: Aggregate, pods: impl IntoIterator<Item = PodUse>) -> SourceResult {
    let (mut measured, mut requests, mut starting) = (Vec::new(), Vec::new(), 0);
    let mut oldest: Option<Timestamp> = None;
    for pod in pods {
        match pod {
            PodUse::Measured(value, at) => {
                measured.push(value);
                oldest = Some(oldest.map_or(at, |oldest| oldest.min(at)));
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
        least: text(aggregated(of, &[measured.as_slice(), &vec![Nanos::ZERO; missing]].concat()).min(value)),
        ..upper_limit(of, &measured, requests)
    });
    Ok(SourceValue { at: oldest, range, ..SourceValue::from(text(value)) })
}

/// Returns the upper limit of the value if these pods use what they request. A mean is that over one pod fewer:
/// otherwise one pod after the other would be removed although the others have no room for its load.
fn upper_limit(of: Aggregate, measured: &[Nanos], requests: Vec<Option<Nanos>>) -> ValueRange {
    let value = aggregated(of, measured);
    let Some(requests) = requests.into_iter().collect::<Option<Vec<Nanos>>>() else { return ValueRange::default() };
    let all = [measured, &requests].concat();
    let most = match of {
        Aggregate::Mean if !requests.is_empty() => divided(total(&all), all.len().saturating_sub(1).max(1)),
        Aggregate::Mean | Aggregate::Sum | Aggregate::Max | Aggregate::Min => aggregated(of, &all),
    };
    // The smallest usage is at most that of a measured pod, whatever the others use.
    let request = requests.into_iter().min().filter(|_| of != Aggregate::Min);
    ValueRange { most: Some(text(most.max(value))), missing_request: request.map(text), ..ValueRange::default() }
}

/// There is at least one value.
fn aggregated(of: Aggregate, values: &[Nanos]) -> Nanos {
    match of {
        Aggregate::Mean => divided(total(values), values.len()),
        Aggregate::Sum => total(values),
        Aggregate::Max => values.iter().copied().max().unwrap_or_default(),
        Aggregate::Min => values.iter().copied().min().unwrap_or_default(),
    }
}

fn total(values: &[Nanos]) -> Nanos {
    values.iter().copied().sum()
}

/// Rounds to the nearest billionth.
fn divided(sum: Nanos, by: usize) -> Nanos {
    let by = i128::try_from(by).unwrap_or(i128::MAX).max(1);
    let (whole, rest) = (sum.billionths().div_euclid(by), sum.billionths().rem_euclid(by));
    Nanos::new(whole + i128::from(rest >= by - rest))
}

pub(super) fn text(number: Nanos) -> String {
    quantity::show_nanos(number.billionths())
}
