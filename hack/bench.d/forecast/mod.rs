//! `hack/bench forecast`: capacity that is missing or not needed, with a forecast and without it.
//!
//! Simulates a HorizontalPodAutoscaler's rule over generated loads, and the same with a forecast: the shipped
//! functions, a decision each 15 s. Missing capacity counts from the first day on, so also while the forecast learns. A
//! part of it is due to the tolerance: up to 10 % above the target, the rule does not raise. So the figures also have
//! the shortage beyond the tolerance, and the rule without a tolerance, with and without a forecast.
//!
//! The parameters of the models were chosen on other seeds than those of this bench.

mod scenario;

use std::path::PathBuf;

use anyhow::{Context, Result};
use ganglion_core::duration;
use ganglion_loops_plan::forecast::ForecastRules;
use jiff::SignedDuration;
use testkit::autoscaling::{DemandSeries, LoadShape};

use super::frame::{Bench, Bound, Progress};
use scenario::{START_UPS, Scenario, ScenarioFigures};

/// Seeds of each generated load.
const SEEDS: [u64; 5] = [11, 12, 13, 14, 15];

/// Maximum shortage on seasonal loads, relative to the rule alone: at least 40 % less.
const SHORTAGE: f64 = 0.6;

/// Maximum capacity on seasonal loads, relative to the rule alone.
const CAPACITY: f64 = 1.1;

/// Maximum shortage and capacity on random walks, relative to the rule alone.
const WALKS: f64 = 1.01;

/// Options of this bench.
#[derive(clap::Args, Debug)]
pub struct ForecastOptions {
    /// Forecast: a file with the columns time,value instead of generated loads.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Value for each replica in that file; by default, a fiftieth of the largest value.
    #[arg(long, value_name = "VALUE", requires = "csv")]
    target: Option<f64>,
    /// Time by which the forecast raises early.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    ahead: SignedDuration,
    /// Time after which the load repeats itself.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration::parse)]
    season: SignedDuration,
}

/// Bounds of a scenario.
#[derive(Clone, Copy)]
enum ScenarioBounds {
    Seasonal,
    Walk,
    None,
}

/// Runs all parts, or the file.
pub async fn run(bench: &mut Bench, options: &ForecastOptions) -> Result<()> {
    let forecast = ForecastRules { ahead: options.ahead, season: options.season };
    forecast.check()?;
    if let Some(file) = &options.csv {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
        let load = DemandSeries::from_csv(&text, options.target).with_context(|| name.clone())?;
        let scenario = Scenario { name, loads: vec![load], forecast };
        return measure(bench, scenario, ScenarioBounds::None).await;
    }
    let weekly = ForecastRules { ahead: SignedDuration::from_hours(1), season: SignedDuration::from_hours(7 * 24) };
    let seasonal = LoadShape::SEASONAL.map(|shape| ("seasonal", shape, ScenarioBounds::Seasonal));
    let walks = [LoadShape::Walk, LoadShape::SlowWalk, LoadShape::NoisyWalk];
    let walks = walks.map(|shape| ("walks", shape, ScenarioBounds::Walk));
    let others = [LoadShape::Steps, LoadShape::Noise].map(|shape| ("others", shape, ScenarioBounds::None));
    for (part, shape, bounds) in seasonal.into_iter().chain(walks).chain(others) {
        if bench.wants(part) {
            measure(bench, Scenario::generated(shape.name(), shape, 14, &SEEDS, forecast), bounds).await?;
        }
    }
    if bench.wants("week") {
        let name = "weekdays and weekends, 1h ahead, season of a week";
        let scenario = Scenario::generated(name, LoadShape::Weekly, 35, &SEEDS, weekly);
        measure(bench, scenario, ScenarioBounds::Seasonal).await?;
    }
    Ok(())
}

async fn measure(bench: &mut Bench, scenario: Scenario, bounds: ScenarioBounds) -> Result<()> {
    let name = scenario.name.clone();
    let progress = Progress::spin(&format!("simulating {name}"));
    // Runs on a thread that may block.
    let figures = tokio::task::spawn_blocking(move || scenario.run()).await??;
    progress.end();
    report(bench, &name, &figures, bounds);
    Ok(())
}

/// Adds the figures, all relative to the rule alone.
fn report(bench: &mut Bench, name: &str, figures: &ScenarioFigures, bounds: ScenarioBounds) {
    let (shortage_bound, capacity_bound) = match bounds {
        ScenarioBounds::Seasonal => (Some(SHORTAGE), Some(CAPACITY)),
        ScenarioBounds::Walk => (Some(WALKS), Some(WALKS)),
        ScenarioBounds::None => (None, None),
    };
    bench.note(&format!("{name}: shortage of the rule alone, part of the demand"), figures.alone * 100.0, "%");
    for (start_up, [shortage, _, capacity]) in START_UPS.into_iter().zip(&figures.by_start_up) {
        bench.note(&format!("  start-up {start_up} s: shortage with a forecast"), *shortage, "");
        bench.note(&format!("  start-up {start_up} s: capacity"), *capacity, "");
    }
    let mut add = |title: &str, value: f64, bound: Option<f64>| match bound {
        Some(bound) => bench.claim(title, value, "", Bound::AtMost(bound)),
        None => bench.note(title, value, ""),
    };
    let [shortage, late, capacity] = figures.mean();
    add("  mean: shortage with a forecast", shortage, shortage_bound);
    add("  mean: shortage beyond the tolerance", late, shortage_bound);
    add("  mean: capacity", capacity, capacity_bound);
    add("  mean: surplus", figures.surplus, None);
    add("  worst seed and start-up time: shortage", figures.worst_shortage, None);
    let [shortage, capacity] = figures.intolerant;
    add("  no forecast, and no tolerance: shortage", shortage, None);
    add("  no forecast, and no tolerance: capacity", capacity, None);
    let [shortage, capacity] = figures.forecast_on_intolerant;
    add("  forecast, and no tolerance, relative to no tolerance: shortage", shortage, None);
    add("  forecast, and no tolerance, relative to no tolerance: capacity", capacity, None);
    bench.note("  time with trust", figures.trusted * 100.0, "%");
}
