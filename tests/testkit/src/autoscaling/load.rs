//! Loads: the demand of each step, in replicas, not rounded.

use std::f64::consts::TAU;

use fastrand::Rng;

/// Length of a step: the interval of a HorizontalPodAutoscaler.
pub const STEP_SECONDS: i64 = 15;

pub const STEPS_PER_DAY: usize = 5760;

/// Smallest and largest demand of a walk.
const WALK: (f64, f64) = (5.0, 120.0);

/// Demand over time; None: unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct DemandSeries {
    pub steps: Vec<Option<f64>>,
}

/// Shape of a generated load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadShape {
    /// Days with a steep morning, a dip at noon and an evening peak. Each is up to a tenth busier or calmer than
    /// others, begins some minutes earlier or later, and has noise of 3 %.
    Daily,
    /// The same with twice as different days, and noise of 8 %.
    NoisyDaily,
    /// A sine of a day: the slowest possible rise.
    Sine,
    /// The same as `Daily`, with half the load at weekends.
    Weekly,
    /// Office hours: five times the load within minutes in the morning.
    Office,
    /// Random walk.
    Walk,
    /// Random walk, a third as fast.
    SlowWalk,
    /// Random walk with noise of 10 % that lasts for minutes.
    NoisyWalk,
    /// Another level every two hours on average, with noise of 3 %.
    Steps,
    /// A constant load with noise of 10 % that lasts for minutes.
    Noise,
}

/// Noise with a mean of 0, of which a part persists from step to step.
struct Noise {
    deviation: f64,
    persistence: f64,
    value: f64,
}

impl Noise {
    fn new(deviation: f64, persistence: f64) -> Self {
        Self { deviation, persistence, value: 0.0 }
    }

    fn next(&mut self, random: &mut Rng) -> f64 {
        let fresh = (1.0 - self.persistence * self.persistence).sqrt() * self.deviation;
        self.value = self.persistence * self.value + fresh * normal(random);
        self.value
    }
}

/// Number of a normal distribution with variance 1: the sum of twelve uniform ones.
fn normal(random: &mut Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

/// Share of a ramp that is done, from 0 to 1, without corners.
fn ramp(hour: f64, from: f64, until: f64) -> f64 {
    let share = ((hour - from) / (until - from)).clamp(0.0, 1.0);
    share * share * (3.0 - 2.0 * share)
}

/// Demand of a day at this hour, relative to its peak.
fn day(hour: f64) -> f64 {
    0.15 + 0.75 * ramp(hour, 7.0, 9.5) - 0.15 * ramp(hour, 12.0, 12.7) + 0.15 * ramp(hour, 13.2, 14.0)
        - 0.35 * ramp(hour, 17.0, 19.0)
        + 0.45 * ramp(hour, 19.0, 20.5)
        - 0.7 * ramp(hour, 21.5, 24.5)
        // The end of the evening before.
        + 0.7 * (1.0 - ramp(hour + 24.0, 21.5, 24.5))
}

impl LoadShape {
    pub const SEASONAL: [Self; 5] = [Self::Daily, Self::NoisyDaily, Self::Sine, Self::Weekly, Self::Office];

    pub fn name(self) -> &'static str {
        match self {
            Self::Daily => "daily",
            Self::NoisyDaily => "noisy daily",
            Self::Sine => "sine",
            Self::Weekly => "weekdays and weekends",
            Self::Office => "office hours",
            Self::Walk => "walk",
            Self::SlowWalk => "slow walk",
            Self::NoisyWalk => "noisy walk",
            Self::Steps => "steps",
            Self::Noise => "noise",
        }
    }

    /// Generates a load. The same seed generates the same one.
    pub fn generate(self, seed: u64, days: usize) -> DemandSeries {
        let mut random = Rng::with_seed(seed);
        let steps = match self {
            Self::Daily | Self::Sine | Self::Weekly => self.days(&mut random, days, (0.03, 0.05, 0.08)),
            Self::NoisyDaily => self.days(&mut random, days, (0.08, 0.1, 0.15)),
            Self::Office => office(&mut random, days),
            Self::Walk => walk(&mut random, days, 0.15, Noise::new(0.0, 0.0)),
            Self::SlowWalk => walk(&mut random, days, 0.05, Noise::new(0.0, 0.0)),
            Self::NoisyWalk => walk(&mut random, days, 0.05, Noise::new(0.1, 0.97)),
            Self::Noise => walk(&mut random, days, 0.0, Noise::new(0.1, 0.97)),
            Self::Steps => levels(&mut random, days),
        };
        DemandSeries { steps: steps.into_iter().map(|demand| Some(demand.max(0.0))).collect() }
    }

    /// Days of a shape. Deviations: of the noise, of the peak from day to day, and of the time, in hours.
    fn days(self, random: &mut Rng, days: usize, (noise, peak, time): (f64, f64, f64)) -> Vec<f64> {
        let mut noise = Noise::new(noise, 0.9);
        let mut steps = Vec::with_capacity(days * STEPS_PER_DAY);
        for number in 0..days {
            let is_weekend = self == Self::Weekly && number % 7 >= 5;
            let peak = 50.0 * (1.0 + peak * normal(random)) * if is_weekend { 0.45 } else { 1.0 };
            let late = time * normal(random);
            for step in 0..STEPS_PER_DAY {
                let hour = hour(step) - late;
                let share =
                    if self == Self::Sine { 0.5 - 0.4 * (hour / 24.0 * TAU).cos() } else { day(hour.rem_euclid(24.0)) };
                steps.push(peak * share * (1.0 + noise.next(random)));
            }
        }
        steps
    }
}

fn hour(step: usize) -> f64 {
    step as f64 * 24.0 / STEPS_PER_DAY as f64
}

fn office(random: &mut Rng, days: usize) -> Vec<f64> {
    let mut noise = Noise::new(0.03, 0.9);
    let mut steps = Vec::with_capacity(days * STEPS_PER_DAY);
    for _ in 0..days {
        let (begin, end) = (9.0 + 0.02 * normal(random), 17.5 + 0.05 * normal(random));
        let peak = 32.0 * (1.0 + 0.05 * normal(random));
        for step in 0..STEPS_PER_DAY {
            let hour = hour(step);
            let share = ((hour - begin) / 0.1).clamp(0.0, 1.0) - ((hour - end) / 0.2).clamp(0.0, 1.0);
            steps.push((8.0 + peak * share) * (1.0 + noise.next(random)));
        }
    }
    steps
}

fn walk(random: &mut Rng, days: usize, deviation: f64, mut noise: Noise) -> Vec<f64> {
    let (least, most) = WALK;
    let mut level = 40.0;
    let next = |_| {
        level += deviation * normal(random);
        // Turns around at the ends.
        level = if level < least { 2.0 * least - level } else { level };
        level = if level > most { 2.0 * most - level } else { level };
        level * (1.0 + noise.next(random))
    };
    (0..days * STEPS_PER_DAY).map(next).collect()
}

fn levels(random: &mut Rng, days: usize) -> Vec<f64> {
    let mut noise = Noise::new(0.03, 0.9);
    let mut level = 40.0;
    let next = |_| {
        if random.usize(..480) == 0 {
            level = 8.0 + 60.0 * random.f64();
        }
        level * (1.0 + noise.next(random))
    };
    (0..days * STEPS_PER_DAY).map(next).collect()
}
