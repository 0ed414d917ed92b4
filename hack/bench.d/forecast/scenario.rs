//! One kind of load: simulations of it with all start-up times, and their figures.

use std::thread;

use anyhow::{Context, Result};
use ganglion_loops_plan::forecast::ForecastRules;
use testkit::autoscaling::{DemandSeries, LoadShape, Provisioning, ScalingRules, simulate};

/// Start-up times of new replicas, in seconds.
pub const START_UPS: [i64; 3] = [30, 90, 300];

/// Load with its seeds, and the rules of the forecast.
pub struct Scenario {
    pub name: String,
    pub loads: Vec<DemandSeries>,
    pub forecast: ForecastRules,
}

/// Shortage, shortage beyond the tolerance, and capacity, each relative to another simulation.
pub type RelativeFigures = [f64; 3];

/// Figures of a scenario, relative to the rule alone unless they say otherwise.
pub struct ScenarioFigures {
    /// Shortage of the rule alone, relative to the demand.
    pub alone: f64,
    /// Figures with a forecast, for each start-up time.
    pub by_start_up: Vec<RelativeFigures>,
    pub surplus: f64,
    pub worst_shortage: f64,
    /// Shortage and capacity of the rule without a tolerance.
    pub intolerant: [f64; 2],
    /// The same with a forecast, relative to that without one.
    pub forecast_on_intolerant: [f64; 2],
    /// Part of the time in which a model was trusted.
    pub trusted: f64,
}

/// Simulations of one load with one start-up time.
#[derive(Clone, Copy, Default)]
struct ComparedRuns {
    alone: Provisioning,
    with_forecast: Provisioning,
    intolerant: Provisioning,
    intolerant_with_forecast: Provisioning,
}

impl Scenario {
    pub fn generated(name: &str, shape: LoadShape, days: usize, seeds: &[u64], forecast: ForecastRules) -> Self {
        let loads = seeds.iter().map(|seed| shape.generate(*seed, days)).collect();
        Self { name: name.to_owned(), loads, forecast }
    }

    /// Runs all simulations, one thread for each start-up time.
    pub fn run(&self) -> Result<ScenarioFigures> {
        let compared: Vec<Vec<ComparedRuns>> = thread::scope(|scope| {
            let threads = START_UPS.map(|start_up| {
                scope.spawn(move || self.loads.iter().map(|load| self.compare(load, start_up)).collect())
            });
            let finished = threads.into_iter().map(|thread| thread.join().ok().context("a simulation has panicked")?);
            finished.collect::<Result<_>>()
        })?;
        Ok(figures(&compared))
    }

    fn compare(&self, load: &DemandSeries, start_up: i64) -> Result<ComparedRuns> {
        let run = |is_tolerant, has_forecast| {
            let forecast = Some(self.forecast).filter(|_| has_forecast);
            simulate(load, ScalingRules { forecast, is_tolerant, start_up })
        };
        Ok(ComparedRuns {
            alone: run(true, false)?,
            with_forecast: run(true, true)?,
            intolerant: run(false, false)?,
            intolerant_with_forecast: run(false, true)?,
        })
    }
}

impl ScenarioFigures {
    /// Mean over the start-up times.
    pub fn mean(&self) -> RelativeFigures {
        mean(&self.by_start_up)
    }
}

fn mean(figures: &[RelativeFigures]) -> RelativeFigures {
    let number = figures.len().max(1) as f64;
    [0, 1, 2].map(|column| figures.iter().filter_map(|figures| figures.get(column)).sum::<f64>() / number)
}

fn without_late([shortage, _, capacity]: RelativeFigures) -> [f64; 2] {
    [shortage, capacity]
}

/// Ratio; 1 if both are nothing.
fn ratio(value: f64, unit: f64) -> f64 {
    if value == unit { 1.0 } else { value / unit }
}

fn relative(value: &Provisioning, unit: &Provisioning) -> RelativeFigures {
    [ratio(value.shortage, unit.shortage), ratio(value.late, unit.late), ratio(value.capacity, unit.capacity)]
}

/// Sum over the seeds.
fn sum(compared: &[ComparedRuns], side: impl Fn(&ComparedRuns) -> &Provisioning) -> Provisioning {
    let mut sum = Provisioning::default();
    for compared in compared {
        sum += *side(compared);
    }
    sum
}

fn figures(by_start_up: &[Vec<ComparedRuns>]) -> ScenarioFigures {
    let of_start_ups = |value: fn(&ComparedRuns) -> &Provisioning, unit: fn(&ComparedRuns) -> &Provisioning| {
        let of_seeds = |seeds: &Vec<ComparedRuns>| relative(&sum(seeds, value), &sum(seeds, unit));
        by_start_up.iter().map(of_seeds).collect::<Vec<_>>()
    };
    let all: Vec<ComparedRuns> = by_start_up.iter().flatten().copied().collect();
    let (alone, with_forecast) = (sum(&all, |one| &one.alone), sum(&all, |one| &one.with_forecast));
    let ratios = all.iter().map(|one| ratio(one.with_forecast.shortage, one.alone.shortage));
    let seconds: f64 = all.iter().map(|one| one.with_forecast.seconds).sum();
    ScenarioFigures {
        alone: ratio(alone.shortage, alone.demand),
        by_start_up: of_start_ups(|one| &one.with_forecast, |one| &one.alone),
        surplus: ratio(with_forecast.surplus, alone.surplus),
        worst_shortage: ratios.fold(0.0, f64::max),
        intolerant: without_late(mean(&of_start_ups(|one| &one.intolerant, |one| &one.alone))),
        forecast_on_intolerant: without_late(mean(&of_start_ups(
            |one| &one.intolerant_with_forecast,
            |one| &one.intolerant,
        ))),
        trusted: ratio(with_forecast.trusted_seconds, seconds),
    }
}
