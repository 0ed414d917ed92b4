//! What Prometheus is asked of all nodes at once: one instant query for each statistic, over the series of node-exporter.
//!
//! Owns the texts of the queries; asks nobody, and reads no answers.

use std::time::Duration;

use thiserror::Error;

use super::LEAST_SAMPLES;
use ganglion_core::names::is_label_name;

/// The shortest range of a rate: two samples, where Prometheus takes one a minute as it does by default.
const SHORTEST_RATE: Duration = Duration::from_secs(120);

/// The shortest step. Scrapes are hardly more frequent, and each step costs the server memory for each processor.
const SHORTEST_STEP: Duration = Duration::from_secs(15);

/// Maximum number of steps in a window: a day by the minute.
const MOST_STEPS: u64 = 1440;

/// A number that each node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Statistic {
    /// The mean of the CPU in use, in millicores.
    CpuMean,
    /// The standard deviation of the same, of the whole population.
    CpuDeviation,
    /// What the same will be one step ahead, by a line through the window. May be negative, or more than there is.
    CpuForecast,
    /// The mean of the memory that is not available to new processes, in bytes.
    MemoryMean,
    MemoryDeviation,
    MemoryForecast,
    /// The number of steps at which both resources are known. A node without it has nothing to publish: its exporter is not scraped
    /// any more, or there are two exporters with its label, whose CPU would be added up.
    Samples,
}

/// Why there are no queries.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum QueryError {
    #[error("the node label is not the name of a label of Prometheus: use letters, digits and _, with no digit first")]
    Label,
    #[error("the step must be a whole number of seconds, and at least {} s", SHORTEST_STEP.as_secs())]
    Step,
    #[error("the window must be a whole number of seconds, and {LEAST_SAMPLES} to {MOST_STEPS} steps long")]
    Window,
}

impl Statistic {
    /// All statistics without the forecasts.
    const MEASURED: [Self; 5] =
        [Self::CpuMean, Self::CpuDeviation, Self::MemoryMean, Self::MemoryDeviation, Self::Samples];

    const FORECASTS: [Self; 2] = [Self::CpuForecast, Self::MemoryForecast];
}

/// The queries for all nodes whose series have this label, with or without the forecasts of one step ahead.
///
/// Each answer is a vector with one series for each value of the label, and with no other label.
///
/// # Errors
/// `label` is not the name of a label, the step is too short, or the window has too few or too many steps.
pub fn queries(
    window: Duration,
    step: Duration,
    label: &str,
    forecast: bool,
) -> Result<Vec<(Statistic, String)>, QueryError> {
    if !is_label_name(label) {
        return Err(QueryError::Label);
    }
    if step < SHORTEST_STEP || step.subsec_nanos() != 0 {
        return Err(QueryError::Step);
    }
    let steps = window.as_secs().checked_div(step.as_secs()).unwrap_or_default();
    if !(LEAST_SAMPLES..=MOST_STEPS).contains(&steps) || window.subsec_nanos() != 0 {
        return Err(QueryError::Window);
    }
    let texts = Texts::new(window, step, label);
    let forecasts = Statistic::FORECASTS.into_iter().filter(|_| forecast);
    Ok(Statistic::MEASURED.into_iter().chain(forecasts).map(|statistic| (statistic, texts.query(statistic))).collect())
}

/// The parts of the queries.
struct Texts {
    /// Millicores in use.
    cpu: String,
    /// Bytes in use.
    memory: String,
    /// The time of one processor: known wherever `cpu` is, at the cost of one series a node.
    one_cpu: String,
    /// Nodes with exactly one exporter that is scraped now.
    single: String,
    /// Window and step, as a subquery has them.
    range: String,
    /// Seconds of a step.
    step: u64,
}

impl Texts {
    fn new(window: Duration, step: Duration, label: &str) -> Self {
        // Steps that are longer than the shortest range leave no time out.
        let rate = step.max(SHORTEST_RATE).as_secs();
        Self {
            cpu: format!("1000 * sum by ({label}) (rate(node_cpu_seconds_total{{mode!~\"idle|iowait\"}}[{rate}s]))"),
            // By label, as pods of an exporter come and go; not the sum, as an old and a new one may overlap for a while.
            memory: format!("max by ({label}) (node_memory_MemTotal_bytes - node_memory_MemAvailable_bytes)"),
            one_cpu: format!("sum by ({label}) (rate(node_cpu_seconds_total{{cpu=\"0\",mode=\"idle\"}}[{rate}s]))"),
            single: format!("(count by ({label}) (node_memory_MemTotal_bytes) == 1)"),
            range: format!("[{}s:{}s]", window.as_secs(), step.as_secs()),
            step: step.as_secs(),
        }
    }

    fn query(&self, statistic: Statistic) -> String {
        let Self { cpu, memory, one_cpu, single, range, step } = self;
        match statistic {
            Statistic::CpuMean => format!("avg_over_time(({cpu}){range})"),
            Statistic::CpuDeviation => format!("stddev_over_time(({cpu}){range})"),
            Statistic::CpuForecast => format!("predict_linear(({cpu}){range}, {step})"),
            Statistic::MemoryMean => format!("avg_over_time(({memory}){range})"),
            Statistic::MemoryDeviation => format!("stddev_over_time(({memory}){range})"),
            Statistic::MemoryForecast => format!("predict_linear(({memory}){range}, {step})"),
            Statistic::Samples => format!("count_over_time(({memory} and {one_cpu}){range}) and {single}"),
        }
    }
}

#[cfg(test)]
mod tests;
