//! Number of replicas that one metric asks for.

use std::cmp::Ordering;

use jiff::Timestamp;

use super::explain;
use super::metric::{Calculation, MetricProposal, MetricReason, TrackInput, TrackTarget, TrackedMetric};
use super::nanos::Nanos;
use super::pods::{PodGroups, TrackedPod};
use super::ratio::Ratio;
use super::rules::Tolerances;

impl TrackedMetric {
    pub(super) fn propose(&self, replicas: i32, now: Timestamp) -> MetricProposal {
        let tolerances = &self.tolerances;
        let calculation = match (&self.input, self.target) {
            (TrackInput::Unknown(reason), _) => Err(reason.clone()),
            (TrackInput::Idle(why), _) => {
                let text = format!("{}: no replicas: {why}", self.name);
                let (name, replicas, demand) = (self.name.clone(), Some(0), Some(Nanos::ZERO));
                return MetricProposal { name, replicas, demand, reason: MetricReason::Idle, text };
            }
            (TrackInput::Pods { measure, pods }, TrackTarget::Utilization { .. } | TrackTarget::AverageValue(_)) => {
                let groups = PodGroups::new(pods, *measure, now);
                PodsCalculation { target: self.target, groups, replicas, tolerances }.run()
            }
            (TrackInput::Total { value, .. }, TrackTarget::AverageValue(target)) => {
                average_of_total(*value, target, replicas, tolerances)
            }
            (TrackInput::Total { value, ready_pods }, TrackTarget::Value(target)) => {
                value_of_total(*value, target, replicas, *ready_pods, tolerances)
            }
            (TrackInput::Pods { .. }, TrackTarget::Value(_)) => {
                Err("samples of pods have no total: use AverageValue or Utilization".to_owned())
            }
            (TrackInput::Total { .. }, TrackTarget::Utilization { .. }) => {
                Err("a total has no utilization: use AverageValue or Value".to_owned())
            }
        };
        let calculation = calculation.map(|calculation| match self.restraint_of(calculation.replicas, replicas) {
            Some(_) => Calculation { replicas, reason: MetricReason::Restrained, ..calculation },
            None => calculation,
        });
        match calculation {
            Ok(calculation) => MetricProposal {
                name: self.name.clone(),
                replicas: Some(calculation.replicas),
                demand: calculation.reason.shows_demand().then_some(calculation.demand),
                reason: calculation.reason,
                text: explain::metric(self, &calculation, replicas),
            },
            Err(problem) => MetricProposal {
                name: self.name.clone(),
                replicas: None,
                demand: None,
                reason: MetricReason::Unknown,
                text: format!("{}: unknown: {problem}", self.name),
            },
        }
    }
}

impl TrackedMetric {
    /// Why the metric must not propose this number, if so.
    pub(super) fn restraint_of(&self, proposed: i32, replicas: i32) -> Option<&str> {
        match proposed.cmp(&replicas) {
            Ordering::Less => self.restraint.down.as_deref(),
            Ordering::Greater => self.restraint.up.as_deref(),
            Ordering::Equal => None,
        }
    }
}

/// Keeps the direction: a value over the target never lowers, and one under it never raises.
fn guarded(proposed: i32, side: Ordering, replicas: i32) -> (i32, MetricReason) {
    let (kept, reason) = match side {
        Ordering::Greater => (proposed.max(replicas), MetricReason::OverTarget),
        Ordering::Less => (proposed.min(replicas), MetricReason::UnderTarget),
        Ordering::Equal => (replicas, MetricReason::WithinTolerance),
    };
    if kept == proposed { (kept, reason) } else { (replicas, MetricReason::DirectionHeld) }
}

fn no_ratio() -> String {
    "the target is 0: use a number above 0".to_owned()
}

fn average_of_total(
    value: Nanos,
    target: Nanos,
    replicas: i32,
    tolerances: &Tolerances,
) -> Result<Calculation, String> {
    let total = Ratio::new(&[value.size()], &[target.size()]).ok_or_else(no_ratio)?;
    let proposed = total.ceil_of(1);
    let of_replicas = Ratio::new(&[value.size()], &[target.size(), u128::from(replicas.unsigned_abs())]);
    let (kept, reason) = match &of_replicas {
        Some(ratio) if ratio.is_within(tolerances) => (replicas, MetricReason::WithinTolerance),
        Some(ratio) => guarded(proposed, ratio.side(), replicas),
        // Without replicas there is no mean, and no tolerance.
        None => (proposed, MetricReason::OverTarget),
    };
    let demand = total.times(1);
    let ratio = of_replicas.unwrap_or(total);
    Ok(Calculation { replicas: kept, reason, demand, ratio, shown: value.to_string(), base: 1, missing: 0, unready: 0 })
}

fn value_of_total(
    value: Nanos,
    target: Nanos,
    replicas: i32,
    ready_pods: u32,
    tolerances: &Tolerances,
) -> Result<Calculation, String> {
    let ratio = Ratio::new(&[value.size()], &[target.size()]).ok_or_else(no_ratio)?;
    let (kept, reason) = if replicas == 0 {
        (ratio.ceil_of(1), MetricReason::OverTarget)
    } else if ratio.is_within(tolerances) {
        (replicas, MetricReason::WithinTolerance)
    } else if ready_pods == 0 && value.is_positive() {
        (replicas, MetricReason::NoReadyPods)
    } else {
        guarded(ratio.ceil_of(ready_pods), ratio.side(), replicas)
    };
    let base = if replicas == 0 { 1 } else { ready_pods };
    let demand = ratio.times(base);
    Ok(Calculation { replicas: kept, reason, demand, ratio, shown: value.to_string(), base, missing: 0, unready: 0 })
}

/// How a group of pods without a sample of load counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Assumed {
    LeftOut,
    Nothing,
    /// The target, or all resources if these are more.
    Target,
}

/// Mean over pods.
struct PodsMean {
    ratio: Ratio,
    shown: String,
    base: u32,
}

struct PodsCalculation<'a> {
    target: TrackTarget,
    groups: PodGroups<'a>,
    replicas: i32,
    tolerances: &'a Tolerances,
}

impl PodsCalculation<'_> {
    fn run(&self) -> Result<Calculation, String> {
        let groups = &self.groups;
        if groups.all().next().is_none() {
            return Err("the target has no pods".to_owned());
        }
        if groups.measured.is_empty() {
            return Err("no pod that serves has a sample".to_owned());
        }
        let first = self.mean(Assumed::LeftOut, Assumed::LeftOut)?;
        let side = first.ratio.side();
        let unready = if side == Ordering::Greater { Assumed::Nothing } else { Assumed::LeftOut };
        let missing = match side {
            Ordering::Greater => Assumed::Nothing,
            Ordering::Less => Assumed::Target,
            Ordering::Equal => Assumed::LeftOut,
        };
        let second = self.mean(missing, unready)?;
        let proposed = second.ratio.ceil_of(second.base);
        let (replicas, reason) = if second.ratio.is_within(self.tolerances) {
            (self.replicas, MetricReason::WithinTolerance)
        } else if second.ratio.side() != side {
            (self.replicas, MetricReason::DirectionHeld)
        } else {
            guarded(proposed, side, self.replicas)
        };
        Ok(Calculation {
            replicas,
            reason,
            demand: second.ratio.times(second.base),
            ratio: second.ratio,
            shown: second.shown,
            base: second.base,
            missing: if missing == Assumed::LeftOut { 0 } else { groups.missing.len() },
            unready: if unready == Assumed::LeftOut { 0 } else { groups.unready.len() },
        })
    }

    fn mean(&self, missing: Assumed, unready: Assumed) -> Result<PodsMean, String> {
        let groups = &self.groups;
        let added = [(missing, &groups.missing), (unready, &groups.unready)];
        let added = added.into_iter().filter(|(assumed, _)| *assumed != Assumed::LeftOut);
        let used: Nanos = groups.measured.iter().map(|(_, value)| *value).sum();
        let count = groups.measured.len() + added.clone().map(|(_, pods)| pods.len()).sum::<usize>();
        let base = u32::try_from(count).unwrap_or(u32::MAX);
        let at_target = added.clone().filter(|(assumed, _)| *assumed == Assumed::Target).flat_map(|(_, pods)| pods);
        let too_small = || "the pods request nothing".to_owned();
        match self.target {
            TrackTarget::Utilization { percent } => {
                let own = capacity(groups.measured.iter().map(|(pod, _)| *pod))?;
                let with_added = added.flat_map(|(_, pods)| pods.iter().copied());
                // A pod without requests makes the metric unknown, also if it does not count now.
                capacity(groups.all())?;
                let all = own.saturating_add(capacity(with_added)?);
                let assumed = capacity(at_target.copied())?.saturating_mul(u128::from(percent.max(100)));
                let used = used.size().saturating_mul(100).saturating_add(assumed);
                // Whole percent, as kubectl shows it for an autoscaler.
                let used = used.checked_div(all).ok_or_else(too_small)?;
                let ratio = Ratio::new(&[used], &[u128::from(percent)]).ok_or_else(no_ratio)?;
                Ok(PodsMean { ratio, shown: format!("{used} %"), base })
            }
            TrackTarget::AverageValue(target) | TrackTarget::Value(target) => {
                let assumed = target.size().saturating_mul(at_target.count() as u128);
                let used = used.size().saturating_add(assumed);
                let ratio = Ratio::new(&[used], &[target.size(), u128::from(base)]).ok_or_else(no_ratio)?;
                let mean = used.checked_div(u128::from(base)).unwrap_or(0);
                Ok(PodsMean { ratio, shown: Nanos::new(i128::try_from(mean).unwrap_or(i128::MAX)).to_string(), base })
            }
        }
    }
}

/// Sum of the resources of the pods, in billionths.
fn capacity<'a>(pods: impl Iterator<Item = &'a TrackedPod>) -> Result<u128, String> {
    let mut sum = 0_u128;
    for pod in pods {
        sum = sum.saturating_add(pod.capacity().map_err(str::to_owned)?.size());
    }
    Ok(sum)
}
