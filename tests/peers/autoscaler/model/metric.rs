//! Number of replicas that one metric asks for.

use super::super::case::{CaseContainer, CaseKind, CaseMetric, CasePod, CaseStep, SAMPLE_WINDOW};
use super::{NamedDifference as D, Switches};

/// Number in billionths, or thousandths with [`D::Millis`].
type ScaledNumber = i128;

fn millis(billionths: i64) -> ScaledNumber {
    // As in Kubernetes, away from zero.
    let size = i128::from(billionths).abs();
    i128::from(billionths).signum() * ((size + 999_999) / 1_000_000)
}

/// Measured value by its target.
#[derive(Clone, Copy)]
struct MeasuredFraction {
    measured: ScaledNumber,
    target: ScaledNumber,
    is_float: bool,
}

impl MeasuredFraction {
    fn float(self) -> f64 {
        self.measured as f64 / self.target as f64
    }

    fn is_above_one(self) -> bool {
        if self.is_float { self.float() > 1.0 } else { self.measured > self.target }
    }

    fn is_below_one(self) -> bool {
        if self.is_float { self.float() < 1.0 } else { self.measured < self.target }
    }

    /// Tolerances in billionths.
    fn is_within(self, down: i64, up: i64) -> bool {
        if self.is_float {
            let (down, up) = (down as f64 / 1e9, up as f64 / 1e9);
            return (1.0 - down) <= self.float() && self.float() <= (1.0 + up);
        }
        let one = 1_000_000_000;
        let measured = self.measured.max(0) * one;
        measured >= self.target * (one - i128::from(down)).max(0) && measured <= self.target * (one + i128::from(up))
    }

    fn ceil_of(self, factor: i64) -> i32 {
        if self.is_float {
            return (self.float() * factor as f64).ceil() as i32;
        }
        let product = self.measured * i128::from(factor);
        i32::try_from(-(-product).div_euclid(self.target)).unwrap_or(i32::MAX)
    }
}

/// The stage of one metric.
pub struct MetricModel<'a> {
    pub metric: &'a CaseMetric,
    pub index: usize,
    pub step: &'a CaseStep,
    /// Tolerances in billionths.
    pub up: i64,
    pub down: i64,
    pub switches: &'a Switches,
}

struct ModelGroups<'a> {
    measured: Vec<&'a CasePod>,
    unready: Vec<&'a CasePod>,
    missing: Vec<&'a CasePod>,
}

impl MetricModel<'_> {
    fn on(&self, difference: D) -> bool {
        self.switches.contains(&difference)
    }

    /// Number of replicas; None if the metric is invalid.
    pub fn proposal(&self) -> Option<i32> {
        if self.metric.kind.is_of_pods() { self.of_pods() } else { self.of_total() }
    }

    fn pods(&self) -> Vec<&CasePod> {
        self.step.pods.iter().filter(|pod| self.on(D::ForeignPods) || !pod.is_foreign).collect()
    }

    fn scaled(&self, billionths: i64) -> ScaledNumber {
        if self.on(D::Millis) { millis(billionths) } else { i128::from(billionths) }
    }

    fn guard(&self, proposed: i32, fraction: MeasuredFraction) -> i32 {
        let replicas = self.step.replicas;
        if fraction.is_above_one() && !self.on(D::OverTargetLowers) {
            proposed.max(replicas)
        } else if fraction.is_below_one() && !self.on(D::UnderTargetRaises) {
            proposed.min(replicas)
        } else {
            proposed
        }
    }

    fn of_total(&self) -> Option<i32> {
        let total = self.scaled(self.step.totals[self.index]?);
        let target = self.scaled(self.metric.target);
        let replicas = self.step.replicas;
        let is_float = self.on(D::FloatRatio);
        let ratio = MeasuredFraction { measured: total, target, is_float };
        if matches!(self.metric.kind, CaseKind::ObjectAverage | CaseKind::ExternalAverage) {
            let count = if self.on(D::StatusReplicas) { self.step.status_replicas } else { replicas };
            let mean = MeasuredFraction { target: target * i128::from(count), ..ratio };
            if count != 0 && mean.is_within(self.down, self.up) {
                return Some(count);
            }
            return Some(ratio.ceil_of(1).max(0));
        }
        if replicas == 0 {
            return Some(ratio.ceil_of(1).max(0));
        }
        if ratio.is_within(self.down, self.up) {
            return Some(replicas);
        }
        let pods = self.pods();
        if pods.is_empty() && self.on(D::NoReadyPods) {
            return None;
        }
        let ready = pods.iter().filter(|pod| {
            let counts = self.on(D::DeletedReadyPods) || !pod.is_deleting;
            counts && pod.phase == "Running" && pod.ready.is_some_and(|(status, _)| status == "True")
        });
        let ready = ready.count() as i64;
        if ready == 0 && total > 0 && !self.on(D::NoReadyPods) {
            return Some(replicas);
        }
        Some(self.guard(ratio.ceil_of(ready).max(0), ratio))
    }

    fn value(&self, pod: &CasePod) -> Option<ScaledNumber> {
        let containers = self.containers(pod);
        match self.metric.kind {
            CaseKind::PodsAverage => Some(self.scaled(pod.values[self.index]?)),
            CaseKind::MemoryUtilization => {
                pod.sampled.map(|_| containers.iter().map(|container| self.scaled(container.memory)).sum())
            }
            _ => pod.sampled.map(|_| containers.iter().map(|container| self.scaled(container.cpu)).sum()),
        }
    }

    fn containers<'p>(&self, pod: &'p CasePod) -> &'p [CaseContainer] {
        if self.metric.kind == CaseKind::ContainerUtilization { &pod.containers[..1] } else { &pod.containers }
    }

    fn request(&self, pod: &CasePod) -> Option<ScaledNumber> {
        let of = |container: &CaseContainer| match self.metric.kind {
            CaseKind::MemoryUtilization => Some(container.memory_request),
            _ if self.on(D::SpecRequests) => container.cpu_request,
            _ => container.cpu_allocated.filter(|_| container.cpu_request.is_some()).or(container.cpu_request),
        };
        self.containers(pod).iter().map(|container| Some(self.scaled(of(container)?))).sum()
    }

    fn groups<'p>(&self, pods: &[&'p CasePod]) -> ModelGroups<'p> {
        let mut groups = ModelGroups { measured: Vec::new(), unready: Vec::new(), missing: Vec::new() };
        for pod in pods {
            let is_ended = pod.phase == "Failed" || (pod.phase == "Succeeded" && !self.on(D::EndedPods));
            if pod.is_deleting || is_ended {
                continue;
            }
            if pod.phase == "Pending" {
                groups.unready.push(pod);
            } else if self.value(pod).is_none() {
                groups.missing.push(pod);
            } else if self.metric.kind.is_cpu() && self.is_initializing(pod) {
                groups.unready.push(pod);
            } else {
                groups.measured.push(pod);
            }
        }
        groups
    }

    fn is_initializing(&self, pod: &CasePod) -> bool {
        let Some((status, since)) = pod.ready else { return true };
        let window = SAMPLE_WINDOW.as_millis() as i64;
        if pod.started + 300_000 > self.step.time {
            status == "False" || pod.sampled.is_some_and(|sampled| sampled < since + window)
        } else {
            status == "False" && pod.started + 30_000 > since
        }
    }

    fn of_pods(&self) -> Option<i32> {
        let fails =
            if self.metric.kind.is_usage() { self.step.usage_fails } else { self.step.totals[self.index].is_none() };
        if fails {
            return None;
        }
        let pods = self.pods();
        let groups = self.groups(&pods);
        if groups.measured.is_empty() {
            return None;
        }
        let replicas = self.step.replicas;
        if self.metric.kind.is_utilization() {
            // Ended pods need requests, too.
            let counts = |pod: &&&CasePod| {
                self.on(D::EndedPods) || !(pod.is_deleting || matches!(pod.phase, "Failed" | "Succeeded"))
            };
            pods.iter().filter(counts).map(|pod| self.request(pod)).sum::<Option<ScaledNumber>>()?;
        }
        let first = self.mean(&groups, false, false)?;
        let (above, below) = (first.is_above_one(), first.is_below_one());
        let with_unready = above && !groups.unready.is_empty();
        if !with_unready && groups.missing.is_empty() {
            if first.is_within(self.down, self.up) {
                return Some(replicas);
            }
            return Some(self.guard(first.ceil_of(groups.measured.len() as i64), first));
        }
        let with_missing = above || below;
        let second = self.mean(&groups, with_missing, with_unready)?;
        let turned = (below && second.is_above_one()) || (above && second.is_below_one());
        if turned || second.is_within(self.down, self.up) {
            return Some(replicas);
        }
        let count = groups.measured.len()
            + if with_missing { groups.missing.len() } else { 0 }
            + if with_unready { groups.unready.len() } else { 0 };
        let proposed = second.ceil_of(count as i64);
        let turns = (second.is_below_one() && proposed > replicas) || (second.is_above_one() && proposed < replicas);
        Some(if turns { replicas } else { proposed })
    }

    fn mean(&self, groups: &ModelGroups, with_missing: bool, with_unready: bool) -> Option<MeasuredFraction> {
        let is_float = self.on(D::FloatRatio);
        let below = with_missing && self.mean(groups, false, false)?.is_below_one();
        let missing: &[&CasePod] = if with_missing { &groups.missing } else { &[] };
        let unready: &[&CasePod] = if with_unready { &groups.unready } else { &[] };
        let used: ScaledNumber = groups.measured.iter().filter_map(|pod| self.value(pod)).sum();
        let all = || groups.measured.iter().chain(missing).chain(unready);
        if self.metric.kind.is_utilization() {
            let requests: ScaledNumber = all().filter_map(|pod| self.request(pod)).sum();
            let mut used = used * 100;
            if below {
                let percent = i128::from(self.metric.target.max(100));
                for pod in missing {
                    let assumed = self.request(pod)? * percent;
                    // HorizontalPodAutoscaler has thousandths.
                    used += if self.on(D::Millis) { assumed / 100 * 100 } else { assumed };
                }
            }
            let percent = used.checked_div(requests)?;
            return Some(MeasuredFraction { measured: percent, target: i128::from(self.metric.target), is_float });
        }
        let target = self.scaled(self.metric.target);
        let count = all().count() as ScaledNumber;
        let used = used + if below { target * missing.len() as ScaledNumber } else { 0 };
        if self.on(D::Millis) {
            return Some(MeasuredFraction { measured: used / count, target, is_float });
        }
        Some(MeasuredFraction { measured: used, target: target * count, is_float })
    }
}
