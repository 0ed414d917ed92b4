//! Loops that act on every sample, with and without an endpoint for traces, in alternating rounds: the operator's own
//! processor time and its requests to the API server per sample.
//!
//! The operator is restarted before each round, with and without the variable. The endpoint accepts everything. The
//! Deployment controller is paused, so each rollout stays open and is looked at each second, which is the most work.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::jiff::Timestamp;
use testkit::operator::Operator;
use testkit::plane::audit::Audit;
use testkit::plane::cluster::Cluster;
use testkit::plane::install::Installed;
use testkit::servers::http::{Manner, Server};

use super::load::{Load, Round};
use super::scene;
use crate::frame::{Bench, Bound, Progress, default_garbage, median, number, operator};

const NAMESPACE: &str = "traced";

const LOOPS: usize = 30;
const ROUNDS: usize = 5;

/// Duration of a round, and of the warm-up round before them.
const LASTING: Duration = Duration::from_secs(20);
const COLD: Duration = Duration::from_secs(8);

/// Maximum processor time of the operator with an endpoint, relative to the time without.
const MOST: f64 = 1.1;

/// Maximum number of requests to the API server, relative to that without an endpoint: the same, except for writes that
/// are combined by chance.
const MOST_REQUESTS: f64 = 1.02;

pub async fn run(bench: &mut Bench) -> Result<()> {
    let server = Server::start(Manner::Says("200 OK", "{}".to_owned())).await;
    let audit = Audit::prepare(&bench.home("traces")?, false)?;
    let cluster = bench.plane("traces", 1, &[audit.options(), &default_garbage()].concat()).await?;
    Installed::default().install(&cluster).await?;
    scene::namespace(&cluster.client, NAMESPACE).await?;
    let mut operator = operator(bench, "traces", &cluster, &["--watch-namespace", NAMESPACE]).await?;
    scene::make(&cluster.client, NAMESPACE, scene::demos(LOOPS, "Auto")).await?;
    cluster.fault(&["pause", "kcm"]).await?;
    let url = server.url("/");
    let sides: [&[(&str, &str)]; 2] = [&[], &[("OTEL_EXPORTER_OTLP_ENDPOINT", &url)]];
    round(&cluster, &mut operator, sides[1], COLD).await?;
    let progress = Progress::count("loops that act, without and with traces in turns", 2 * ROUNDS);
    let mut rounds: [Vec<TracedRound>; 2] = [Vec::new(), Vec::new()];
    for turn in 0..ROUNDS {
        for (side, variables) in sides.into_iter().enumerate() {
            let began = Timestamp::now();
            let round = round(&cluster, &mut operator, variables, LASTING).await?;
            // The requests of the start are the same on both sides.
            let requests = audit.between(began, Timestamp::now()).await?;
            let requests = requests.iter().filter(|one| one.by_operator && !one.is_upkeep()).count();
            rounds[side].push(TracedRound { requests: number(requests) / number(round.recorded()), round });
            progress.at(2 * turn + side + 1);
        }
    }
    progress.end();
    report(bench, &rounds);
    bench.note("  requests to the endpoint", number(server.asked.lock().map_or(0, |all| all.len())), "requests");
    operator.stop().await?;
    cluster.down().await
}

/// A round, and the number of the operator's requests per recorded sample.
struct TracedRound {
    round: Round,
    requests: f64,
}

async fn round(
    cluster: &Cluster,
    operator: &mut Operator,
    variables: &[(&str, &str)],
    lasting: Duration,
) -> Result<Round> {
    // The lease is released in a graceful stop.
    operator.signal("-TERM")?;
    operator.end().await?;
    operator.kill();
    operator.set_variables(variables);
    operator.start()?;
    operator.ready().await?;
    operator.leads().await?;
    Ok(Load::EachSecond { loops: LOOPS, lasting }.run(cluster, operator, NAMESPACE).await?.0)
}

fn report(bench: &mut Bench, [without, with]: &[Vec<TracedRound>; 2]) {
    let times = |rounds: &[TracedRound]| rounds.iter().map(|one| one.round.operator()).collect::<Vec<f64>>();
    let (without_times, with_times) = (times(without), times(with));
    let ratios: Vec<f64> = with_times.iter().zip(&without_times).map(|(with, without)| with / without).collect();
    let title = format!("{LOOPS} loops that act, a sample a second each, {} s, {ROUNDS} rounds", LASTING.as_secs());
    let name = format!("{title}: operator's own processor time with traces, relative to that without, median");
    bench.claim(&name, median(&ratios), "times", Bound::AtMost(MOST));
    for (index, ratio) in ratios.iter().enumerate() {
        bench.note(&format!("  in round {} alone", index + 1), *ratio, "times");
    }
    bench.note("  per sample, without traces: median", median(&without_times), "ms");
    bench.note("  per sample, with traces: median", median(&with_times), "ms");
    let requests = |rounds: &[TracedRound]| median(&rounds.iter().map(|one| one.requests).collect::<Vec<f64>>());
    let (without_requests, with_requests) = (requests(without), requests(with));
    let name = "  requests to the API server per sample with traces, relative to those without, medians";
    bench.claim(name, with_requests / without_requests, "times", Bound::AtMost(MOST_REQUESTS));
    bench.note("  requests per sample, without traces: median", without_requests, "requests");
    let lost = |rounds: &[TracedRound]| rounds.iter().map(|one| one.round.lost()).sum::<f64>();
    bench.note("  samples not recorded, without and with", lost(without) + lost(with), "samples");
}
