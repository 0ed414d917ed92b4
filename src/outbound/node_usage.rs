//! Usage and power of nodes: queries for a Prometheus server that scrapes node-exporter or an exporter of power, and
//! answers of the API metrics.k8s.io.
//!
//! One request covers all nodes; the numbers of each node are then looked up in the answer.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reqwest::StatusCode;
use serde::Deserialize;

use super::Error;
use super::prometheus::{LabelledNumber, MAX_SERIES, by_label};
use super::value::{MOST_NODE_WATTS, ValueError};
use ganglion_core::amounts::{Amounts, or_default};
use ganglion_core::document::parsed;
use ganglion_core::duration;
use ganglion_core::exporter_series::ExporterSeries;
use ganglion_core::items::Items;
use ganglion_core::node_values::{METRICS_SERVER_WINDOW, SHORTEST_WINDOW};
use ganglion_core::quantity;

/// See [`SHORTEST_WINDOW`].
const SHORTEST: Duration = SHORTEST_WINDOW.unsigned_abs();

/// Number of points of a deviation, and the minimum time between two points. More points cost the server memory for
/// each core of each node, and samples are not more frequent.
const POINTS: u32 = 60;
const SHORTEST_STEP: Duration = Duration::from_secs(15);

/// Accepted deviation from the range of 0 to 100 percent: sources divide amounts of work by times that they measure
/// slightly earlier or later.
const TOLERANCE: f64 = 10.0;

/// Statistic of all nodes over a window, in percent of each node's total.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UsageStatistic {
    /// Mean fraction of time in which cores are busy: neither idle nor waiting for I/O.
    CpuMean,
    /// Standard deviation of the same.
    CpuDeviation,
    /// Mean fraction of memory that is not available to new processes.
    MemoryMean,
    /// Standard deviation of the same.
    MemoryDeviation,
}

impl UsageStatistic {
    /// All statistics; each needs its own query.
    pub const ALL: [Self; 4] = [Self::CpuMean, Self::CpuDeviation, Self::MemoryMean, Self::MemoryDeviation];

    /// Query for all nodes of these series.
    ///
    /// A node whose exporter is no longer scraped has no result: past samples are not its usage.
    pub fn query(self, series: &ExporterSeries, window: Duration) -> String {
        let window = window.max(SHORTEST);
        let step = (window / POINTS).max(SHORTEST_STEP);
        let (over, each) = (window.as_secs(), step.as_secs());
        let label = series.label();
        let by = format!("by ({label})");
        let cores = format!("count {by} (count by ({label}, cpu) ({}))", series.cpu("mode=\"idle\""));
        let (available, total) = (series.memory("MemAvailable"), series.memory("MemTotal"));
        let all = format!("sum {by} ({total})");
        match self {
            Self::CpuMean => format!("100 * (1 - {})", idle(series, &cores, over)),
            Self::CpuDeviation => {
                // Steps longer than the minimum range leave no gaps.
                let idle = idle(series, &cores, step.max(SHORTEST).as_secs());
                format!("100 * stddev_over_time(({idle})[{over}s:{each}s]) and {cores}")
            }
            Self::MemoryMean => format!(
                "100 * (1 - sum {by} (avg_over_time({available}[{over}s])) \
                 / sum {by} (avg_over_time({total}[{over}s]))) and {all}"
            ),
            Self::MemoryDeviation => {
                format!("100 * stddev_over_time((sum {by} ({available}) / {all})[{over}s:{each}s]) and {all}")
            }
        }
    }
}

/// Fraction of time in which a core is idle or waits for I/O.
///
/// The denominator is the time that was counted for the first core in all modes, not the range: otherwise a node that
/// started, or was first scraped, within the range would look busy before that. The time of all cores instead of the
/// first would be equally correct, but with many cores on thousands of nodes it exceeds the default limit of a server
/// (50 million points).
fn idle(series: &ExporterSeries, cores: &str, range: u64) -> String {
    let rate = |of: &str| format!("sum by ({}) (rate({}[{range}s]))", series.label(), series.cpu(of));
    format!("{} / ({} * {cores})", rate("mode=~\"idle|iowait\""), rate("cpu=\"0\""))
}

/// Metric with the measured power of nodes: a gauge in watts, or a counter in joules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerMetric<'a> {
    name: &'a str,
    is_energy: bool,
}

impl<'a> PowerMetric<'a> {
    /// Metric with this name. Fails unless the name says its unit.
    pub fn new(name: &'a str) -> Result<Self, ValueError> {
        let is_name = !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':'));
        let ends = |ends: &[&str]| is_name && ends.iter().any(|end| name.ends_with(end));
        match (ends(&["_watts", "_watt", ":watts"]), ends(&["_joules_total", "_joule_total"])) {
            (true, _) => Ok(Self { name, is_energy: false }),
            (_, true) => Ok(Self { name, is_energy: true }),
            _ => Err(ValueError::Unfit(
                "metric must end in _watts, _watt or :watts, or in _joules_total or _joule_total".to_owned(),
            )),
        }
    }

    /// Query for the watts of all nodes. Nothing is added up except the modes of Kepler, idle and dynamic: several
    /// series of a node are an error.
    pub fn query(&self, series: &ExporterSeries) -> String {
        let selector = series.selector(self.name, "");
        match self.is_energy {
            true => format!("sum without (mode) (rate({selector}[{}s]))", SHORTEST.as_secs()),
            false => selector,
        }
    }
}

/// Checks that a number is the power of a node that runs, in watts.
pub fn node_watts(watts: f64) -> Result<f64, ValueError> {
    match watts {
        watts if watts > MOST_NODE_WATTS => {
            Err(ValueError::Invalid(format!("the power of the node is more than {MOST_NODE_WATTS} W")))
        }
        watts if watts > 0.0 => Ok(watts),
        _ => Err(ValueError::NoReading("the power of the node is 0 W, so it is not measured".to_owned())),
    }
}

/// Host in the value of a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Host {
    Name(String),
    Address(IpAddr),
}

impl Host {
    /// Parses `host`, `host:port`, `[address]` or `[address]:port`.
    fn parse(text: &str) -> Option<Self> {
        let is_port = |text: &str| text.parse::<u16>().is_ok();
        if let Some(rest) = text.strip_prefix('[') {
            let (address, rest) = rest.split_once(']')?;
            let address: Ipv6Addr = address.parse().ok()?;
            let good = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
            return good.then(|| Self::address(address.into()));
        }
        if let Ok(address) = text.parse() {
            return Some(Self::address(address));
        }
        let host = match text.split_once(':') {
            Some((host, port)) => Some(host).filter(|_| is_port(port))?,
            None => text,
        };
        match host.parse() {
            Ok(address) => Some(Self::address(address)),
            Err(_) => (!host.is_empty()).then(|| Self::Name(host.to_ascii_lowercase())),
        }
    }

    fn address(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }
}

/// One statistic of all nodes.
#[derive(Debug, Default)]
pub struct NodeStatistic {
    series: Vec<LabelledNumber>,
    by_host: HashMap<Host, Vec<usize>>,
    /// Exporter or metric.
    what: String,
}

impl NodeStatistic {
    /// Parses the answer to a query by this label, such as [`UsageStatistic::query`]. Fails if no series has the label.
    pub fn parse(status: StatusCode, body: &[u8], label: &str) -> Result<Self, ValueError> {
        Self::parse_series(status, body, label, "node-exporter")
    }

    /// Same as [`Self::parse`], for series of another exporter or metric, which the errors name.
    pub fn parse_series(status: StatusCode, body: &[u8], label: &str, what: &str) -> Result<Self, ValueError> {
        let series = by_label(status, body, label)?;
        let mut by_host = HashMap::<Host, Vec<usize>>::new();
        for (at, one) in series.iter().enumerate() {
            if let Some(host) = one.label.as_deref().and_then(Host::parse) {
                by_host.entry(host).or_default().push(at);
            }
        }
        if !series.is_empty() && series.iter().all(|one| one.label.is_none()) {
            return Err(ValueError::NotFound(format!("the series of {what} have no label {label}: set nodeLabel")));
        }
        Ok(Self { series, by_host, what: what.to_owned() })
    }

    /// Fails if this statistic, of [`ExporterSeries::ambiguous`], has the node: its numbers would be those of several
    /// machines, or of one that is scraped twice.
    pub fn one_exporter(&self, node: &str, addresses: &[IpAddr]) -> Result<(), ValueError> {
        if self.of_node(node, addresses).is_empty() {
            return Ok(());
        }
        Err(ValueError::Ambiguous(format!(
            "several exporters answer for node {node}, of other clusters or jobs: set matchers to labels that only the \
             right one has, such as cluster or job"
        )))
    }

    /// Places of the series of this node.
    fn of_node(&self, node: &str, addresses: &[IpAddr]) -> Vec<usize> {
        let addresses = addresses.iter().copied().map(Host::address);
        let hosts = Host::parse(node).into_iter().chain(addresses);
        let mut found: Vec<usize> = hosts.filter_map(|host| self.by_host.get(&host)).flatten().copied().collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Percentage of the node with this name and these addresses. Fails unless exactly one series belongs to the node.
    pub fn of(&self, node: &str, addresses: &[IpAddr]) -> Result<f64, ValueError> {
        percent(self.number(node, addresses)?)
    }

    /// Number of the node with this name and these addresses, unchanged. Fails unless exactly one series belongs to the
    /// node.
    pub fn number(&self, node: &str, addresses: &[IpAddr]) -> Result<f64, ValueError> {
        match self.of_node(node, addresses).as_slice() {
            [] => Err(ValueError::NotFound(format!(
                "the server has no series of {} for node {node}: set nodeLabel to the label that has its name or address",
                self.what
            ))),
            [at] => match self.series.get(*at).and_then(|one| one.number) {
                Some(number) => Ok(number),
                None => Err(ValueError::NoReading("the server has no number for the node at the moment".to_owned())),
            },
            more => Err(ValueError::Ambiguous(format!(
                "{} series of {} are of node {node}: set matchers to labels that only the right one has, or another \
                 nodeLabel",
                more.len(),
                self.what
            ))),
        }
    }
}

/// Checks that a usage is a percentage.
fn percent(value: f64) -> Result<f64, ValueError> {
    if (-TOLERANCE..=100.0 + TOLERANCE).contains(&value) {
        Ok(value.clamp(0.0, 100.0))
    } else {
        Err(ValueError::Invalid("the usage is not between 0 and 100 percent".to_owned()))
    }
}

/// Used fields of a `NodeMetricsList` of metrics.k8s.io.
#[derive(Deserialize)]
struct NodeMetricsList {
    #[serde(default)]
    items: Items<NodeMetrics, MAX_SERIES>,
}

#[derive(Deserialize)]
struct NodeMetrics {
    metadata: NodeMeta,
    #[serde(default)]
    timestamp: Option<String>,
    #[serde(default)]
    window: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    usage: Amounts,
}

#[derive(Deserialize)]
struct NodeMeta {
    name: String,
}

/// Usage of one node from the API metrics.k8s.io.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredNode {
    pub name: String,
    /// End of the measurement period.
    pub at: Option<Timestamp>,
    /// Length of the measurement period.
    pub window: SignedDuration,
    usage: Amounts,
}

impl MeasuredNode {
    /// CPU usage in percent of this capacity in millicores.
    pub fn cpu_percent(&self, capacity_millis: i64) -> Result<f64, ValueError> {
        percent_of("cpu", self.usage.cpu.as_deref(), capacity_millis as f64 / 1000.0)
    }

    /// Memory usage in percent of this capacity in bytes.
    pub fn memory_percent(&self, capacity_bytes: i64) -> Result<f64, ValueError> {
        percent_of("memory", self.usage.memory.as_deref(), capacity_bytes as f64)
    }
}

fn percent_of(name: &str, used: Option<&str>, capacity: f64) -> Result<f64, ValueError> {
    let used =
        used.ok_or_else(|| ValueError::NoReading(format!("{name} of the node is not measured at the moment")))?;
    let used = quantity::number(used)
        .map_err(|_| ValueError::Invalid(format!("usage.{name} of the node is not a quantity")))?;
    if capacity <= 0.0 {
        return Err(ValueError::Unfit(format!("the node's status has no capacity of {name}")));
    }
    percent(100.0 * used / capacity)
}

/// Parses the nodes in a `NodeMetricsList`. Fails if there are more than [`MAX_SERIES`].
pub fn measured_nodes(body: &[u8]) -> Result<Vec<MeasuredNode>, Error> {
    let list: NodeMetricsList = parsed(body).map_err(Error::Answer)?;
    if list.items.count > MAX_SERIES {
        return Err(Error::Answer(format!("the answer has {} nodes, more than {MAX_SERIES}", list.items.count)));
    }
    let read = |one: NodeMetrics| MeasuredNode {
        name: one.metadata.name,
        at: one.timestamp.and_then(|at| at.parse().ok()),
        window: one.window.and_then(|window| duration::parse(&window).ok()).unwrap_or(METRICS_SERVER_WINDOW),
        usage: one.usage,
    };
    Ok(list.items.kept.into_iter().map(read).collect())
}

#[cfg(test)]
mod tests;
