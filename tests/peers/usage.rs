//! Usage of nodes from Prometheus and node-exporter: of this host, and of nodes whose samples are generated here.

use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

use ganglion_core::exporter_series::ExporterSeries;
use ganglion_outbound::node_usage::{NodeStatistic, UsageStatistic};
use ganglion_outbound::prometheus::query_url;
use ganglion_outbound::value::ValueError;
use ganglion_placement_plan::publish::Statistic;
use ganglion_placement_plan::publish::queries::queries;
use jiff::Timestamp;
use rstest::rstest;
use testkit::servers::prometheus::PrometheusProcess;
use testkit::servers::prometheus::PrometheusVersion::{self, V2_42, V2_52, V3};
use testkit::{TIMEOUT, block_on};

use crate::client::{call, web};

const LABEL: &str = "instance";

async fn asked(
    server: &PrometheusProcess,
    statistic: UsageStatistic,
    window: Duration,
) -> Result<NodeStatistic, ValueError> {
    result(server, &statistic.query(&series(&[]), window)).await
}

fn series(matchers: &[(&str, &str)]) -> ExporterSeries {
    let matchers = matchers.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
    ExporterSeries::new(LABEL, &matchers).unwrap()
}

async fn result(server: &PrometheusProcess, query: &str) -> Result<NodeStatistic, ValueError> {
    let answer = web().get(&call(query_url(&server.url(), query)?)).await?;
    NodeStatistic::parse(answer.status, answer.body(), LABEL)
}

/// Value for this node, as soon as there is one.
async fn first(server: &PrometheusProcess, statistic: UsageStatistic, address: IpAddr) -> f64 {
    let found = async {
        loop {
            let all = asked(server, statistic, Duration::from_mins(5)).await;
            match all.and_then(|all| all.of("this", &[address])) {
                Ok(number) => return number,
                Err(ValueError::NotFound(_)) => tokio::time::sleep(Duration::from_millis(200)).await,
                Err(error) => panic!("{statistic:?}: {error}"),
            }
        }
    };
    tokio::time::timeout(TIMEOUT, found).await.unwrap_or_else(|_| panic!("no {statistic:?}"))
}

/// The same values from /proc/stat and /proc/meminfo: idle and total time of the processors, used memory in percent.
fn this_host() -> ([f64; 2], f64) {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let times: Vec<f64> =
        stat.lines().next().unwrap().split_whitespace().skip(1).map(|time| time.parse().unwrap()).collect();
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kilobytes = |name: &str| {
        let line = memory.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap()
    };
    // Guest time is included in user time.
    let all = times[..8].iter().sum();
    ([times[3] + times[4], all], 100.0 * (1.0 - kilobytes("MemAvailable:") / kilobytes("MemTotal:")))
}

#[rstest]
fn the_usage_of_this_host_is_what_the_kernel_says(#[values(V2_42, V2_52, V3)] version: PrometheusVersion) {
    block_on(async {
        let server = PrometheusProcess::of_this_host(version).await.unwrap();
        let ([idle, all], _) = this_host();
        let address: IpAddr = "127.0.0.1".parse().unwrap();
        first(&server, UsageStatistic::CpuMean, address).await;
        // The longer it takes, the less the load before the first scrape and after the last one counts.
        let mut last = String::new();
        let agrees = async {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let cpu = first(&server, UsageStatistic::CpuMean, address).await;
                let ([idle_now, all_now], used) = this_host();
                let memory = first(&server, UsageStatistic::MemoryMean, address).await;
                let busy = 100.0 * (1.0 - (idle_now - idle) / (all_now - all));
                if (cpu - busy).abs() < 10.0 && (memory - used).abs() < 5.0 {
                    break;
                }
                last = format!("cpu: {cpu} % instead of {busy} %; memory: {memory} % instead of {used} %");
            }
        };
        let agreed = tokio::time::timeout(TIMEOUT, agrees).await;
        assert!(agreed.is_ok(), "{last}");
        // A deviation is available from its first step on.
        for statistic in [UsageStatistic::CpuDeviation, UsageStatistic::MemoryDeviation] {
            let deviation = first(&server, statistic, address).await;
            assert!(deviation < 50.0, "{deviation}");
        }
        let nobody = asked(&server, UsageStatistic::MemoryMean, Duration::from_mins(5)).await.unwrap().of("other", &[]);
        assert!(matches!(nobody, Err(ValueError::NotFound(_))), "{nobody:?}");
    });
}

/// Seconds between two samples.
const STEP: i64 = 15;

/// Window of the queries, in seconds.
const WINDOW: i64 = 900;

const CORES: u32 = 4;

/// A node-exporter target as Prometheus has scraped it.
struct Target {
    instance: &'static str,
    /// Additional labels.
    more: &'static str,
    /// Start of its samples, in seconds before now.
    from: i64,
    to: i64,
    /// Shares of busy processors and of used memory at this number of seconds before now.
    busy: fn(i64) -> f64,
    used: fn(i64) -> f64,
}

const STEADY: Target =
    Target { instance: "10.0.0.1:9100", more: "", from: 2 * WINDOW, to: -120, busy: |_| 0.3, used: |_| 0.4 };

/// Samples of a metric: its labels besides those of the target, and a value at each time.
type Samples = Vec<(String, Vec<(i64, f64)>)>;

impl Target {
    fn times(&self, now: i64) -> impl Iterator<Item = i64> {
        (now - self.from..=now - self.to).filter(|time| time % STEP == 0)
    }

    fn cpu(&self, now: i64) -> Samples {
        let mut series = Vec::new();
        for core in 0..CORES {
            // A processor has several modes, and may also wait: all but the first two modes are work.
            for (mode, share) in [("idle", 0.75), ("iowait", 0.25), ("user", 0.5), ("system", 0.25), ("steal", 0.25)] {
                let mut total = 1000.0;
                let points = self.times(now).map(|time| {
                    let busy = (self.busy)(now - time);
                    let of_mode = if mode.starts_with('i') { 1.0 - busy } else { busy };
                    total += share * of_mode * STEP as f64;
                    (time, total)
                });
                series.push((format!("cpu=\"{core}\",mode=\"{mode}\""), points.collect()));
            }
        }
        series
    }

    fn memory(&self, now: i64, share: fn(f64) -> f64) -> Samples {
        let points = self.times(now).map(|time| (time, share((self.used)(now - time)) * (64_u64 << 30) as f64));
        vec![(String::new(), points.collect())]
    }
}

/// Input for promtool.
fn history(targets: &[Target], now: i64) -> String {
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, of: &dyn Fn(&Target) -> Samples| {
        let family = name.trim_end_matches("_total");
        writeln!(text, "# TYPE {family} {kind}").unwrap();
        for target in targets {
            for (labels, points) in of(target) {
                let labels = [&format!("instance=\"{}\"", target.instance), target.more, &labels];
                let labels = labels.into_iter().filter(|one| !one.is_empty()).collect::<Vec<_>>().join(",");
                for (time, value) in points {
                    writeln!(text, "{name}{{{labels}}} {value} {time}").unwrap();
                }
            }
        }
    };
    metric("node_cpu_seconds_total", "counter", &|target| target.cpu(now));
    metric("node_memory_MemAvailable_bytes", "gauge", &|target| target.memory(now, |used| 1.0 - used));
    metric("node_memory_MemTotal_bytes", "gauge", &|target| target.memory(now, |_| 1.0));
    text + "# EOF\n"
}

/// Expected statistics of each node with their tolerance; None if there must be none.
struct Expected {
    node: &'static str,
    cpu: Option<[f64; 2]>,
    memory: Option<[f64; 2]>,
    within: f64,
}

#[rstest]
fn statistics_are_those_of_the_samples(#[values(V2_42, V2_52, V3)] version: PrometheusVersion) {
    let alternating = |ago: i64| if (ago / STEP) % 2 == 0 { 0.2 } else { 0.4 };
    let halves = |ago: i64| if ago < WINDOW / 2 { 0.5 } else { 0.1 };
    let targets = [
        STEADY,
        Target { instance: "worker-1:9100", busy: halves, used: alternating, ..STEADY },
        // It started a minute ago, and its exporter a little later.
        Target { instance: "[fd00::2]:9100", from: 60, ..STEADY },
        // Its exporter has not answered for a while.
        Target { instance: "worker-3", to: 400, ..STEADY },
        // Two machines of different clusters have the address.
        Target { instance: "worker-4:9100", more: "cluster=\"a\"", ..STEADY },
        Target { instance: "worker-4:9100", more: "cluster=\"b\"", busy: |_| 0.9, used: |_| 0.8, ..STEADY },
        // The exporter's pod was replaced in the middle of the window.
        Target { instance: "worker-5:9100", more: "pod=\"a\"", to: 450, ..STEADY },
        Target { instance: "worker-5:9100", more: "pod=\"b\"", from: 435, ..STEADY },
    ];
    let steady = |node| Expected { node, cpu: Some([30.0, 0.0]), memory: Some([40.0, 0.0]), within: 0.2 };
    let expected = [
        steady("worker-0"),
        // Rates over two minutes smooth the edge between the halves, and the window begins and ends between two
        // samples.
        Expected { node: "worker-1", cpu: Some([30.0, 20.0]), memory: Some([30.0, 10.0]), within: 2.0 },
        steady("worker-2"),
        Expected { cpu: None, memory: None, ..steady("worker-3") },
        // Without matchers, the mean of both: `one_exporter` says so.
        Expected { cpu: Some([60.0, 0.0]), memory: Some([60.0, 0.0]), ..steady("worker-4") },
        steady("worker-5"),
    ];
    block_on(async {
        let now = Timestamp::now().as_second();
        let server = PrometheusProcess::with_history(version, &history(&targets, now)).await.unwrap();
        let mut found = Vec::new();
        for statistic in UsageStatistic::ALL {
            found.push(asked(&server, statistic, Duration::from_secs(WINDOW as u64)).await.unwrap());
        }
        for one in expected {
            let addresses: Vec<IpAddr> = match one.node {
                "worker-0" => vec!["10.0.0.1".parse().unwrap()],
                "worker-2" => vec!["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()],
                _ => Vec::new(),
            };
            let wanted = [one.cpu, one.memory].into_iter().flat_map(|pair| [0, 1].map(|at| pair.map(|pair| pair[at])));
            for ((all, wanted), statistic) in found.iter().zip(wanted).zip(UsageStatistic::ALL) {
                let number = all.of(one.node, &addresses);
                let good = match (&number, wanted) {
                    (Ok(number), Some(wanted)) => (number - wanted).abs() < one.within,
                    (Err(ValueError::NotFound(_)), None) => true,
                    _ => false,
                };
                assert!(good, "{statistic:?} of {}: {number:?} instead of {wanted:?}", one.node);
            }
        }
        // Only the node that two clusters have is ambiguous, and matchers decide.
        let several = result(&server, &series(&[]).ambiguous()).await.unwrap();
        for node in ["worker-1", "worker-3", "worker-4", "worker-5"] {
            let is_ambiguous = matches!(several.one_exporter(node, &[]), Err(ValueError::Ambiguous(_)));
            assert_eq!(is_ambiguous, node == "worker-4", "{node}");
        }
        for (cluster, [cpu, memory]) in [("a", [30.0, 40.0]), ("b", [90.0, 80.0])] {
            let series = series(&[("cluster", cluster)]);
            let several = result(&server, &series.ambiguous()).await.unwrap();
            assert_eq!(several.one_exporter("worker-4", &[]), Ok(()));
            for (statistic, wanted) in [(UsageStatistic::CpuMean, cpu), (UsageStatistic::MemoryMean, memory)] {
                let all = result(&server, &statistic.query(&series, Duration::from_secs(WINDOW as u64))).await.unwrap();
                let number = all.of("worker-4", &[]).unwrap();
                assert!((number - wanted).abs() < 0.2, "{statistic:?} in cluster {cluster}: {number}");
            }
        }
    });
}

#[rstest]
fn published_statistics_are_those_of_the_samples(#[values(V2_42, V2_52, V3)] version: PrometheusVersion) {
    let step = Duration::from_secs(STEP as u64);
    let window = Duration::from_secs(WINDOW as u64);
    // Samples that do not end soon: a forecast is of the time after the query. Both clusters have the node.
    let own = Target { to: -600, more: "cluster=\"a\"", ..STEADY };
    let other = Target { more: "cluster=\"b\"", busy: |_| 0.9, used: |_| 0.8, ..own };
    block_on(async {
        let now = Timestamp::now().as_second();
        let server = PrometheusProcess::with_history(version, &history(&[own, other], now)).await.unwrap();
        let node = |all: &NodeStatistic| all.number("this", &["10.0.0.1".parse().unwrap()]);
        for (statistic, query) in queries(window, step, &series(&[("cluster", "a")]), true).unwrap() {
            let all = result(&server, &query).await.unwrap();
            let millicores = 1000.0 * f64::from(CORES) * 0.3;
            let bytes = (64_u64 << 30) as f64 * 0.4;
            let (expected, within) = match statistic {
                Statistic::CpuMean | Statistic::CpuForecast => (millicores, 1.0),
                Statistic::MemoryMean | Statistic::MemoryForecast => (bytes, 1024.0),
                Statistic::CpuDeviation => (0.0, 1.0),
                Statistic::MemoryDeviation => (0.0, 1024.0),
                // Prometheus 2 also counts a step at the start of the window.
                Statistic::Samples => ((WINDOW / STEP) as f64, 1.0),
                Statistic::Exporters => {
                    assert!(matches!(node(&all), Err(ValueError::NotFound(_))), "one cluster is ambiguous");
                    continue;
                }
            };
            let number = node(&all).unwrap();
            assert!((number - expected).abs() <= within, "{statistic:?}: {number} instead of {expected}");
        }
        // Without matchers, nothing is published, and the exporters say why.
        for (statistic, query) in queries(window, step, &series(&[]), false).unwrap() {
            let all = result(&server, &query).await.unwrap();
            match statistic {
                Statistic::Samples => assert!(matches!(node(&all), Err(ValueError::NotFound(_)))),
                Statistic::Exporters => {
                    let found = all.one_exporter("this", &["10.0.0.1".parse().unwrap()]);
                    assert!(matches!(found, Err(ValueError::Ambiguous(_))), "{found:?}");
                }
                _ => {}
            }
        }
    });
}
