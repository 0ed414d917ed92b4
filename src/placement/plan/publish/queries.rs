//! The queries for Prometheus: one instant query per statistic, each for all nodes, over the series of node-exporter.
//!
//! Owns the texts of the queries. Sends no requests and parses no responses.

use std::time::Duration;

use thiserror::Error;

use super::LEAST_SAMPLES;
use ganglion_core::exporter_series::ExporterSeries;

/// Minimum range of a rate: two samples at the default scrape interval of Prometheus, one minute.
const SHORTEST_RATE: Duration = Duration::from_secs(120);

/// Minimum step. Scrapes are rarely more frequent, and each step costs the server memory per processor.
const SHORTEST_STEP: Duration = Duration::from_secs(15);

/// Maximum number of steps in a window: one day in steps of one minute.
const MOST_STEPS: u64 = 1440;

/// A statistic that is queried for each node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Statistic {
    /// Mean of the CPU in use, in millicores.
    CpuMean,
    /// Population standard deviation of the CPU in use.
    CpuDeviation,
    /// Linear forecast of the CPU in use, one step ahead. It may be negative or above the capacity.
    CpuForecast,
    /// Mean of the memory that is not available to new processes, in bytes.
    MemoryMean,
    MemoryDeviation,
    MemoryForecast,
    /// Number of steps at which both resources are known. For a node without it, nothing is published: its exporter is
    /// no longer scraped, or two exporters have its label, and their CPU would be added up.
    Samples,
    /// Number of exporters that answer for a node, if they are several: [`ExporterSeries::ambiguous`].
    Exporters,
}

/// Invalid options of the queries.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum QueryError {
    #[error("the step must be a whole number of seconds, and at least {} s", SHORTEST_STEP.as_secs())]
    Step,
    #[error("the window must be a whole number of seconds, and {LEAST_SAMPLES} to {MOST_STEPS} steps long")]
    Window,
}

impl Statistic {
    /// All statistics except the forecasts.
    const MEASURED: [Self; 6] =
        [Self::CpuMean, Self::CpuDeviation, Self::MemoryMean, Self::MemoryDeviation, Self::Samples, Self::Exporters];

    const FORECASTS: [Self; 2] = [Self::CpuForecast, Self::MemoryForecast];
}

/// Builds the queries for all nodes of these series, with or without forecasts one step ahead.
///
/// Each response is a vector with one series per value of the label and without other labels.
pub fn queries(
    window: Duration,
    step: Duration,
    series: &ExporterSeries,
    forecast: bool,
) -> Result<Vec<(Statistic, String)>, QueryError> {
    if step < SHORTEST_STEP || step.subsec_nanos() != 0 {
        return Err(QueryError::Step);
    }
    let steps = window.as_secs().checked_div(step.as_secs()).unwrap_or_default();
    if !(LEAST_SAMPLES..=MOST_STEPS).contains(&steps) || window.subsec_nanos() != 0 {
        return Err(QueryError::Window);
    }
    let texts = Texts::new(window, step, series);
    let forecasts = Statistic::FORECASTS.into_iter().filter(|_| forecast);
    Ok(Statistic::MEASURED.into_iter().chain(forecasts).map(|statistic| (statistic, texts.query(statistic))).collect())
}

/// The parts of the queries.
struct Texts {
    /// Millicores in use.
    cpu: String,
    /// Bytes in use.
    memory: String,
    /// Rate of one processor. It exists whenever `cpu` exists, but needs only one series per node.
    one_cpu: String,
    /// Condition for nodes with exactly one exporter that is currently scraped.
    single: String,
    /// Number of exporters of nodes that have several.
    exporters: String,
    /// Window and step in the syntax of a subquery.
    range: String,
    /// Step in seconds.
    step: u64,
}

impl Texts {
    fn new(window: Duration, step: Duration, series: &ExporterSeries) -> Self {
        // If the step is longer than the minimum range, the range is the step, so that no time is left out.
        let rate = step.max(SHORTEST_RATE).as_secs();
        let label = series.label();
        let (busy, first) = (series.cpu("mode!~\"idle|iowait\""), series.cpu("cpu=\"0\",mode=\"idle\""));
        let (total, available) = (series.memory("MemTotal"), series.memory("MemAvailable"));
        Self {
            cpu: format!("1000 * sum by ({label}) (rate({busy}[{rate}s]))"),
            // Grouped by label, since the pods of an exporter are replaced. Not summed, since an old and a new pod may
            // overlap.
            memory: format!("max by ({label}) ({total} - {available})"),
            one_cpu: format!("sum by ({label}) (rate({first}[{rate}s]))"),
            single: format!("(count by ({label}) ({total}) == 1)"),
            exporters: series.ambiguous(),
            range: format!("[{}s:{}s]", window.as_secs(), step.as_secs()),
            step: step.as_secs(),
        }
    }

    fn query(&self, statistic: Statistic) -> String {
        let Self { cpu, memory, one_cpu, single, exporters, range, step } = self;
        match statistic {
            Statistic::CpuMean => format!("avg_over_time(({cpu}){range})"),
            Statistic::CpuDeviation => format!("stddev_over_time(({cpu}){range})"),
            Statistic::CpuForecast => format!("predict_linear(({cpu}){range}, {step})"),
            Statistic::MemoryMean => format!("avg_over_time(({memory}){range})"),
            Statistic::MemoryDeviation => format!("stddev_over_time(({memory}){range})"),
            Statistic::MemoryForecast => format!("predict_linear(({memory}){range}, {step})"),
            Statistic::Samples => format!("count_over_time(({memory} and {one_cpu}){range}) and {single}"),
            Statistic::Exporters => exporters.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
