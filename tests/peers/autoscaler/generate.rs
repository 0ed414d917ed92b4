//! Random situations. The world answers to the number of replicas, so that windows and rates are reached.

use fastrand::Rng;

use super::case::{
    CaseBehavior, CaseContainer, CaseDirection, CaseKind, CaseMetric, CasePod, CasePolicy, CaseRules, CaseStep, NANOS,
};

const MILLI: i64 = 1_000_000;

/// Unusual property of a situation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Oddity {
    Surge,
    Quota,
    Foreign,
    Ended,
    Deleting,
    Starting,
    Missing,
    SmallValues,
    Resize,
    Unknown,
    NobodyReady,
    NoRequest,
    OtherWriter,
}

const ODDITIES: [Oddity; 13] = [
    Oddity::Surge,
    Oddity::Quota,
    Oddity::Foreign,
    Oddity::Ended,
    Oddity::Deleting,
    Oddity::Starting,
    Oddity::Missing,
    Oddity::SmallValues,
    Oddity::Resize,
    Oddity::Unknown,
    Oddity::NobodyReady,
    Oddity::NoRequest,
    Oddity::OtherWriter,
];

/// Random situation: rules, and a world that makes one step after another.
pub struct RandomCase {
    pub rules: CaseRules,
    pub steps: usize,
    pub replicas: i32,
    rng: Rng,
    oddities: Vec<Oddity>,
    time: i64,
    /// Load of each metric: percent of the target for each of `sized` replicas.
    loads: Vec<i64>,
    sized: i64,
    /// Whole number that all pods have as their custom metrics in this step.
    whole: Option<i64>,
}

impl RandomCase {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let rules = random_rules(&mut rng);
        let count = rng.choice([0, 0, 1, 1, 2]).unwrap_or(0);
        let oddities = (0..count).filter_map(|_| rng.choice(ODDITIES)).collect();
        let replicas = match rng.u8(..10) {
            0 => rules.max + rng.i32(1..5),
            1 => 0,
            2 => rules.min,
            3 => rules.max,
            // A percentage of these is a whole number.
            4..6 => rng.choice([10, 20, 30, 50, 100]).unwrap_or(10).clamp(rules.min, rules.max),
            _ => rng.i32(rules.min..=rules.max),
        };
        let loads = rules.metrics.iter().map(|_| rng.i64(20..200)).collect();
        let steps = if rng.bool() { rng.usize(1..6) } else { rng.usize(6..41) };
        let sized = i64::from(replicas.max(1));
        Self {
            rules,
            steps,
            replicas,
            oddities,
            time: 1_800_000_000_000 + rng.i64(0..86_400) * 1000,
            loads,
            sized,
            whole: None,
            rng,
        }
    }

    fn is(&mut self, oddity: Oddity) -> bool {
        self.oddities.contains(&oddity) && self.rng.u8(..10) < 4
    }

    /// The next step, with this number of replicas.
    pub fn step(&mut self, replicas: i32) -> CaseStep {
        let pause = self.rng.choice([15_000, 15_000, 15_000, 15_000, 15_004, 30_000, 60_000, 120_000, 330_000]);
        self.time += pause.unwrap_or(15_000);
        let mut replicas = replicas;
        if self.is(Oddity::OtherWriter) {
            replicas = self.rng.i32(self.rules.min..=self.rules.max);
        }
        self.walk();
        self.whole = (self.rng.u8(..4) == 0).then(|| self.rng.i64(1..40));
        let mut count = replicas;
        if self.is(Oddity::Surge) {
            count += self.rng.i32(1..=3 + replicas / 4);
        }
        let status_replicas = count;
        if self.is(Oddity::Quota) {
            count = self.rng.i32(0..=replicas);
        }
        let has_pods = self.rules.metrics.iter().any(|metric| metric.kind.needs_pods());
        let pods = if has_pods { self.pods(count) } else { Vec::new() };
        let usage_fails = self.is(Oddity::Unknown);
        let totals = (0..self.rules.metrics.len()).map(|index| self.total(index)).collect();
        CaseStep { time: self.time, replicas, status_replicas, pods, usage_fails, totals }
    }

    fn walk(&mut self) {
        for load in &mut self.loads {
            *load = match self.rng.u8(..12) {
                0 => self.rng.i64(0..250),
                1 => 0,
                2..6 => (*load + self.rng.i64(-30..=30)).clamp(0, 500),
                _ => *load,
            };
        }
    }

    /// Load of a metric on each pod, in percent of the target.
    fn share(&mut self, index: usize, pods: i32) -> i64 {
        self.loads[index] * self.sized / i64::from(pods.max(1))
    }

    fn total(&mut self, index: usize) -> Option<i64> {
        if self.is(Oddity::Unknown) {
            return None;
        }
        let metric = &self.rules.metrics[index];
        let target = metric.target;
        let of_value = matches!(metric.kind, CaseKind::ObjectValue | CaseKind::ExternalValue);
        let percent = if of_value { self.loads[index] } else { self.loads[index] * self.sized };
        let exact = target / 100 * percent;
        let step = if self.is(Oddity::SmallValues) { 1000 } else { NANOS };
        Some(exact / step * step)
    }

    fn pods(&mut self, count: i32) -> Vec<CasePod> {
        let mut pods: Vec<CasePod> = (0..count).map(|index| self.pod(&format!("p{index}"), count)).collect();
        let nobody_ready = self.is(Oddity::NobodyReady);
        for pod in &mut pods {
            if nobody_ready {
                pod.ready = Some(("False", self.time - 100_000));
            }
            if self.oddities.contains(&Oddity::Starting) && self.rng.u8(..10) < 3 {
                self.start(pod);
            }
        }
        for (oddity, name) in [(Oddity::Foreign, "f"), (Oddity::Ended, "e"), (Oddity::Deleting, "d")] {
            if !self.is(oddity) {
                continue;
            }
            for index in 0..self.rng.i32(1..4) {
                let mut pod = self.pod(&format!("{name}{index}"), count);
                match oddity {
                    Oddity::Foreign => pod.is_foreign = true,
                    Oddity::Ended => {
                        pod.phase = if self.rng.bool() { "Succeeded" } else { "Failed" };
                        pod.sampled = None;
                        pod.values.fill(None);
                        if self.rng.u8(..4) == 0 {
                            pod.containers[1].cpu_request = None;
                        }
                    }
                    _ => pod.is_deleting = true,
                }
                pods.push(pod);
            }
        }
        pods
    }

    /// Makes the pod one that is not ready yet.
    fn start(&mut self, pod: &mut CasePod) {
        let age = self.rng.i64(0..400_000);
        pod.started = self.time - age;
        match self.rng.u8(..5) {
            0 => pod.phase = "Pending",
            1 => pod.ready = None,
            2 => pod.ready = Some(("True", self.time - self.rng.i64(0..=age.min(60_000)))),
            3 => pod.ready = Some(("Unknown", pod.started + age / 2)),
            _ => pod.ready = Some(("False", pod.started + self.rng.i64(0..60_000).min(age))),
        }
    }

    fn pod(&mut self, name: &str, count: i32) -> CasePod {
        let metrics = self.rules.metrics.clone();
        let is_small = self.is(Oddity::SmallValues);
        let grain = if is_small { 1 } else { MILLI };
        let mut request =
            CaseContainer { cpu_request: Some(200 * MILLI), memory_request: 512 * NANOS, ..CaseContainer::default() };
        let mut values = vec![None; metrics.len()];
        // Usage of the app's container follows the first metric of its resource.
        for (index, metric) in metrics.iter().enumerate().rev() {
            let spread = self.rng.i64(80..=120);
            let share = self.share(index, count) * if self.rng.bool() { 100 } else { spread };
            let part = |whole: i64, percent: i64| {
                let value = i128::from(whole) * i128::from(percent) / 100 * i128::from(share) / 10_000;
                i64::try_from(value).unwrap_or(i64::MAX) / grain * grain
            };
            match metric.kind {
                CaseKind::CpuUtilization | CaseKind::ContainerUtilization => {
                    request.cpu = part(200 * MILLI, metric.target);
                }
                CaseKind::CpuAverage => request.cpu = part(metric.target, 100),
                CaseKind::MemoryUtilization => request.memory = part(512 * NANOS, metric.target),
                CaseKind::PodsAverage => {
                    values[index] = Some(self.whole.map_or_else(|| part(metric.target, 100), |whole| whole * NANOS));
                }
                _ => {}
            }
        }
        let proxy = CaseContainer {
            cpu: request.cpu / 4 / grain * grain,
            memory: request.memory / 4 / grain * grain,
            cpu_request: Some(50 * MILLI),
            memory_request: 128 * NANOS,
            cpu_allocated: None,
        };
        let mut containers = [request, proxy];
        if self.is(Oddity::Resize) {
            containers[0].cpu_allocated = Some(100 * MILLI);
        }
        if self.oddities.contains(&Oddity::NoRequest) && self.rng.u8(..40) == 0 {
            containers[1].cpu_request = None;
        }
        let is_missing = self.oddities.contains(&Oddity::Missing) && self.rng.u8(..10) < 2;
        if is_missing {
            values.fill(None);
        }
        let age = self.rng.i64(400_000..90_000_000);
        CasePod {
            name: name.to_owned(),
            phase: "Running",
            is_deleting: false,
            is_foreign: false,
            started: self.time - age,
            ready: Some(("True", self.time - age + 20_000)),
            containers,
            sampled: (!is_missing).then(|| self.time - self.rng.i64(0..60_000)),
            values,
        }
    }
}

fn random_rules(rng: &mut Rng) -> CaseRules {
    let min = rng.choice([0, 1, 1, 1, 2, 3, 5]).unwrap_or(1);
    let behavior = (rng.u8(..3) > 0).then(|| CaseBehavior {
        up: (rng.u8(..4) > 0).then(|| random_direction(rng)),
        down: (rng.u8(..4) > 0).then(|| random_direction(rng)),
    });
    let count = rng.choice([1, 1, 2, 3]).unwrap_or(1);
    let mut metrics: Vec<CaseMetric> = (0..count).map(|index| random_metric(rng, index)).collect();
    // An autoscaler with min 0 needs a metric that is known without pods.
    if min == 0 && metrics.iter().all(|metric| metric.kind.is_of_pods()) {
        metrics[0].kind = CaseKind::ExternalAverage;
        metrics[0].target = rng.i64(1..20) * NANOS;
    }
    // Many pods take long.
    let has_pods = metrics.iter().any(|metric| metric.kind.needs_pods());
    let more = if has_pods { rng.choice([1, 3, 8, 15, 30]) } else { rng.choice([3, 8, 15, 30, 120]) };
    let max = min + more.unwrap_or(8);
    CaseRules { min, max, behavior, metrics, own_zero: rng.bool() }
}

fn random_direction(rng: &mut Rng) -> CaseDirection {
    let policies = rng.bool().then(|| {
        let policy = |rng: &mut Rng| {
            let is_percent = rng.bool();
            let value =
                if is_percent { rng.choice([10, 10, 50, 90, 90, 90, 100, 200]) } else { rng.choice([1, 2, 4, 10]) };
            let period = rng.choice([15, 30, 60, 300]).unwrap_or(15);
            CasePolicy { is_percent, value: value.unwrap_or(1), period }
        };
        (0..rng.usize(1..4)).map(|_| policy(rng)).collect()
    });
    CaseDirection {
        window: rng.choice([None, Some(0), Some(0), Some(0), Some(30), Some(60), Some(300), Some(600)]).flatten(),
        policies,
        select: rng.choice([None, None, None, Some("Max"), Some("Min"), Some("Disabled")]).flatten(),
        tolerance: rng.choice([None, None, Some("0"), Some("0.05"), Some("0.2"), Some("0.5"), Some("1")]).flatten(),
    }
}

fn random_metric(rng: &mut Rng, index: usize) -> CaseMetric {
    use CaseKind as K;
    let kinds = [
        K::CpuUtilization,
        K::CpuUtilization,
        K::ContainerUtilization,
        K::CpuAverage,
        K::MemoryUtilization,
        K::PodsAverage,
        K::PodsAverage,
        K::ObjectValue,
        K::ObjectAverage,
        K::ExternalValue,
        K::ExternalAverage,
        K::ExternalAverage,
    ];
    let kind = rng.choice(kinds).unwrap_or(K::ExternalAverage);
    let target = match kind {
        _ if kind.is_utilization() => rng.choice([30, 50, 60, 80, 100, 150, 200]).unwrap_or(50),
        K::CpuAverage => rng.choice([100, 150, 250]).unwrap_or(100) * MILLI,
        K::PodsAverage => match rng.u8(..4) {
            0 => rng.i64(1..10) * 100_000,
            1 => rng.i64(1..1000) * MILLI,
            2 => rng.choice([3, 6, 7, 9, 11]).unwrap_or(3) * NANOS,
            _ => rng.i64(1..200) * NANOS,
        },
        _ => rng.i64(1..100) * NANOS,
    };
    CaseMetric { name: format!("m{index}"), kind, target }
}
