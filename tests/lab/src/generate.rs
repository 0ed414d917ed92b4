//! Generated workloads: services with a daily shape, and jobs. The same seed generates the same one.
//!
//! Published figures, and what is ours instead:
//!
//! | part | source |
//! |---|---|
//! | services and jobs share the servers, and use 40 to 50 % of the CPU | Cheng, Chai and Anwar, "Characterizing Co-located Datacenter Workloads: An Alibaba Case Study", 2018 (arXiv 1808.02919); that each has half of the usage is ours |
//! | slack between request and usage: 46 % of pods that people configure, 23 % of others, which have 48 % of the usage | Rzadca et al., "Autopilot: workload autoscaling at Google", EuroSys 2020 |
//! | running times of jobs: a Pareto distribution with exponent 0.69 | as reported in Tirmazi et al., "Borg: the Next Generation", EuroSys 2020, for the CPU of a job; its bounds are ours |
//! | usage of services has a daily cycle, memory has none | Jiang et al., "Characterizing Co-located Workloads in Alibaba Cloud Datacenters", IEEE TCC 10(4), 2022; the shape is that of `testkit`'s loads, with a morning rise |
//! | sizes of pods, replicas of a service, tasks of a job, noise | ours |

use std::f64::consts::TAU;

use fastrand::Rng;
use testkit::autoscaling::{LoadShape, STEP_SECONDS};

use crate::fleet::ServerFleet;
use crate::trace::{HistoryPoint, UsagePoint, UsageSeries, WorkKind, WorkPod, WorkTrace};

/// Share of services in the usage.
const SERVICES: f64 = 0.5;

/// Slack of a pod relative to its request, and the share of the pods that have it.
const SLACKS: [(f64, f64); 2] = [(0.23, 0.48), (0.46, 0.52)];

/// Exponent and bounds in seconds of the running times of jobs.
const PARETO: f64 = 0.69;
const RUNNING: (f64, f64) = (60.0, 21_600.0);

/// Mean number of tasks of a job, each a pod.
const TASKS: f64 = 4.0;

/// Cores that a task uses, and that a replica of a service uses on average.
const SIZES: [f64; 5] = [0.25, 0.5, 0.5, 1.0, 2.0];

/// Minimum and maximum number of replicas of a service.
const REPLICAS: (usize, usize) = (2, 12);

/// Maximum share of a service in the threads of a site.
const LARGEST: f64 = 0.1;

/// Bounds of the memory of a pod in GiB per requested core.
const MEMORY: (f64, f64) = (1.5, 3.5);

/// Interval of the points of usage in seconds.
const POINTS: f64 = 60.0;

/// Hour of the day at which a generated trace begins: before the morning rise.
const FIRST_HOUR: f64 = 6.0;

/// Days before the trace of which a forecast knows the demand.
const HISTORY: usize = 3;

/// Interval of that history in seconds.
const HISTORY_POINTS: i64 = 300;

/// Standard deviation of the time by which a service is ahead of others, in hours.
const SHIFT: f64 = 0.75;

/// Noise of the usage of a replica and of a task: standard deviation of its logarithm.
const REPLICA_NOISE: f64 = 0.15;
const TASK_NOISE: f64 = 0.4;

/// Part of the noise that persists from point to point.
const PERSISTENCE: f64 = 0.9;

/// Size of a generated workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkloadShape {
    /// Usage relative to the threads of the fleet, 0 to 1.
    pub load: f64,
    /// Duration in hours.
    pub hours: f64,
}

impl WorkloadShape {
    /// Generates a workload for the threads and the sites of a fleet.
    pub fn generate(self, fleet: &ServerFleet, seed: u64) -> WorkTrace {
        let mut random = Rng::with_seed(seed);
        let duration = self.hours * 3600.0;
        let work = self.load * fleet.threads() * duration;
        let most = LARGEST * fleet.threads() / fleet.sites().max(1) as f64;
        let mut trace = WorkTrace::default();
        let mut done = 0.0;
        while done < SERVICES * work {
            let pool = format!("service-{}", trace.pods.len());
            done += add_service(&mut trace, &pool, most, duration, &mut random);
        }
        let WorkTrace { mut pods, history } = trace;
        let mut done = 0.0;
        while done < (1.0 - SERVICES) * work {
            let pool = pods.len();
            done += add_job(&mut pods, &format!("job-{pool}"), duration, &mut random);
        }
        WorkTrace { history, ..WorkTrace::new(pods) }
    }
}

/// Adds the replicas of a service. Returns their work in core seconds.
fn add_service(trace: &mut WorkTrace, pool: &str, most: f64, duration: f64, random: &mut Rng) -> f64 {
    let size = SIZES[random.usize(..SIZES.len())];
    let (least, largest) = REPLICAS;
    let replicas = random.usize(least..=largest).min((most / size) as usize).max(least);
    let day = DayShape::new(random);
    let mean = mean(&(0..(duration / POINTS) as usize).map(|at| day.at(at as f64 * POINTS)).collect::<Vec<_>>());
    let (slack, memory) = (slack(random), memory(random));
    let cores = size * replicas as f64 / mean;
    trace.history.insert(pool.to_owned(), day.history(cores));
    let mut work = 0.0;
    for replica in 0..replicas {
        let mut noise = LogNoise::new(REPLICA_NOISE, random);
        let arrival = 0.0;
        let usage = series(duration, |offset| size * day.at(offset) / mean * noise.next(random));
        let cpu = rounded(size / (1.0 - slack));
        work += usage.work(duration);
        trace.pods.push(WorkPod {
            name: format!("{pool}-{replica}"),
            pool: pool.to_owned(),
            kind: WorkKind::Service,
            arrival,
            lifetime: duration,
            cpu,
            memory: rounded(memory * cpu),
            usage,
        });
    }
    work
}

/// Adds the tasks of a job. Returns their work in core seconds within the trace. Some have begun before the trace.
fn add_job(pods: &mut Vec<WorkPod>, pool: &str, duration: f64, random: &mut Rng) -> f64 {
    let (_, longest) = RUNNING;
    let arrival = (random.f64() * (duration + longest) - longest).round();
    let running = pareto(random).round();
    let size = SIZES[random.usize(..SIZES.len())];
    let (slack, memory) = (slack(random), memory(random));
    // A recorded trace shows what has begun and has not ended.
    let (begin, end) = (arrival.max(0.0), (arrival + running).min(duration));
    let tasks = 1 + (-(TASKS - 1.0) * (1.0 - random.f64()).ln()) as usize;
    let mut work = 0.0;
    for task in 0..tasks {
        let mut noise = LogNoise::new(TASK_NOISE, random);
        if end - begin < 1.0 {
            continue;
        }
        let lifetime = end - begin;
        let usage = series(lifetime, |_| size * noise.next(random));
        let cpu = rounded(size / (1.0 - slack));
        work += usage.work(lifetime);
        pods.push(WorkPod {
            name: format!("{pool}-{task}"),
            pool: pool.to_owned(),
            kind: WorkKind::Job,
            arrival: begin,
            lifetime,
            cpu,
            memory: rounded(memory * cpu),
            usage,
        });
    }
    work
}

/// Demand of a service over the trace, relative to its peak.
struct DayShape {
    steps: Vec<f64>,
    first: f64,
}

impl DayShape {
    fn new(random: &mut Rng) -> Self {
        let series = LoadShape::Daily.generate(random.u64(..), HISTORY + 2);
        let steps = series.steps.into_iter().map(Option::unwrap_or_default).collect();
        Self { steps, first: 24.0 * HISTORY as f64 + FIRST_HOUR + SHIFT * normal(random) }
    }

    /// Demand before the trace, of a service with this many cores at its peak.
    fn history(&self, cores: f64) -> Vec<HistoryPoint> {
        let seconds = (self.first * 3600.0) as i64;
        let point = |before: i64| {
            let time = -(before as f64);
            HistoryPoint { time, cores: rounded(cores * self.at(time)) }
        };
        (1..=seconds / HISTORY_POINTS).rev().map(|index| point(index * HISTORY_POINTS)).collect()
    }

    fn at(&self, offset: f64) -> f64 {
        let second = (self.first * 3600.0 + offset).max(0.0);
        let step = (second / STEP_SECONDS as f64) as usize;
        self.steps.get(step % self.steps.len().max(1)).copied().unwrap_or(1.0)
    }
}

/// Positive noise with mean 1 of which a part persists.
struct LogNoise {
    deviation: f64,
    value: f64,
}

impl LogNoise {
    fn new(deviation: f64, random: &mut Rng) -> Self {
        Self { deviation, value: deviation * normal(random) }
    }

    fn next(&mut self, random: &mut Rng) -> f64 {
        let fresh = (1.0 - PERSISTENCE * PERSISTENCE).sqrt() * self.deviation;
        self.value = PERSISTENCE * self.value + fresh * normal(random);
        (self.value - self.deviation * self.deviation / 2.0).exp()
    }
}

fn series(lifetime: f64, mut cores: impl FnMut(f64) -> f64) -> UsageSeries {
    let points = (lifetime / POINTS).ceil().max(1.0) as usize;
    let point = |index: usize| {
        let offset = index as f64 * POINTS;
        UsagePoint { offset, cores: rounded(cores(offset)) }
    };
    UsageSeries::new((0..points).map(point).collect())
}

/// Rounds to thousandths, and to at least one.
fn rounded(value: f64) -> f64 {
    ((value * 1000.0).round() / 1000.0).max(0.001)
}

fn slack(random: &mut Rng) -> f64 {
    let mut left = random.f64();
    for (slack, share) in SLACKS {
        left -= share;
        if left < 0.0 {
            return slack;
        }
    }
    SLACKS[0].0
}

fn memory(random: &mut Rng) -> f64 {
    MEMORY.0 + (MEMORY.1 - MEMORY.0) * random.f64()
}

/// Running time in seconds: a bounded Pareto distribution.
fn pareto(random: &mut Rng) -> f64 {
    let (least, most) = RUNNING;
    let tail = 1.0 - random.f64() * (1.0 - (least / most).powf(PARETO));
    least * tail.powf(-1.0 / PARETO)
}

/// Number of a normal distribution with variance 1.
fn normal(random: &mut Rng) -> f64 {
    (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (TAU * random.f64()).cos()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: WorkloadShape = WorkloadShape { load: 0.45, hours: 2.0 };

    fn fleets() -> Vec<ServerFleet> {
        ServerFleet::all().unwrap()
    }

    #[test]
    fn a_seed_is_a_workload() {
        let fleet = &fleets()[2];
        assert_eq!(SHAPE.generate(fleet, 1), SHAPE.generate(fleet, 1));
        assert_ne!(SHAPE.generate(fleet, 1), SHAPE.generate(fleet, 2));
    }

    #[test]
    fn the_load_is_that_of_the_shape() {
        for fleet in fleets() {
            let trace = SHAPE.generate(&fleet, 3);
            let load = trace.work() / (fleet.threads() * SHAPE.hours * 3600.0);
            assert!((load - SHAPE.load).abs() < 0.02, "{}: {load}", fleet.name);
            assert!((trace.duration() - 7200.0).abs() < 1e-9);
            let services: f64 = of_kind(&trace, WorkKind::Service).map(|pod| pod.usage.work(pod.lifetime)).sum();
            assert!((services / trace.work() - SERVICES).abs() < 0.04, "{}: {services}", fleet.name);
        }
    }

    fn of_kind(trace: &WorkTrace, kind: WorkKind) -> impl Iterator<Item = &WorkPod> {
        trace.pods.iter().filter(move |pod| pod.kind == kind)
    }

    #[test]
    fn slack_is_that_of_the_source() {
        let trace = SHAPE.generate(&fleets()[0], 4);
        let (mut requested, mut used) = (0.0, 0.0);
        for pod in &trace.pods {
            requested += pod.cpu * pod.lifetime;
            used += pod.usage.work(pod.lifetime);
        }
        // Requests per usage: 0.48 / 0.77 + 0.52 / 0.54.
        assert!((requested / used - 1.586).abs() < 0.06, "{}", requested / used);
    }

    #[test]
    fn running_times_are_heavy_tailed() {
        let mut random = Rng::with_seed(5);
        let times: Vec<f64> = (0..100_000).map(|_| pareto(&mut random)).collect();
        let beyond = |limit: f64| times.iter().filter(|time| **time > limit).count() as f64 / times.len() as f64;
        // P(X > x) of a bounded Pareto distribution.
        let expected = |limit: f64| {
            let (least, most) = RUNNING;
            ((least / limit).powf(PARETO) - (least / most).powf(PARETO)) / (1.0 - (least / most).powf(PARETO))
        };
        for limit in [60.0, 120.0, 600.0, 3600.0] {
            assert!((beyond(limit) - expected(limit)).abs() < 0.01, "{limit}: {}", beyond(limit));
        }
        assert!(times.iter().all(|time| (60.0..=21_600.0).contains(time)));
    }

    #[test]
    fn services_rise_in_the_morning() {
        let shape = WorkloadShape { load: 0.45, hours: 6.0 };
        let trace = shape.generate(&fleets()[2], 6);
        let at = |offset: f64| of_kind(&trace, WorkKind::Service).map(|pod| pod.usage.at(offset)).sum::<f64>();
        assert!(at(5.0 * 3600.0) > 2.0 * at(0.0), "{} {}", at(0.0), at(5.0 * 3600.0));
    }

    #[test]
    fn a_generated_trace_can_be_written_and_read() {
        let directory = tempfile::tempdir().unwrap();
        let trace = SHAPE.generate(&fleets()[2], 7);
        trace.write(directory.path()).unwrap();
        assert_eq!(WorkTrace::read(directory.path()).unwrap(), trace);
    }
}
