//! 500 loops that track a target, compared with 500 HorizontalPodAutoscalers in kube-controller-manager, in alternating
//! rounds on one control plane: processor time of operator and controller manager, and what both cost the API server.
//!
//! In a round, only one side acts. Its metrics first vary within the tolerance, as they do most of the time, and then
//! each changes its level once, half of them up and half down. The values depend only on the time since the start of
//! the phases, so they are the same for both sides.
//!
//! The increase over the rest before the round is charged: of the controller manager in rounds of the autoscalers, of
//! the operator in rounds of the loops, and of the API server in both.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use k8s_openapi::jiff::Timestamp;
use testkit::operator::Operator;
use testkit::plane::audit::{Audit, Request, tally};
use testkit::plane::cluster::Cluster;

use super::rivals::metrics::{GROUP, MetricsServer};
use super::rivals::targets::{self, Follower};
use super::rivals::{self, CONTROLLER, INTERVAL, Pace, Side, TARGET};
use crate::TIMEOUT;
use crate::frame::{Bench, Bound, Progress, median, number, operator};

const PART: &str = "tracking";
const EACH: usize = 500;
const ROUNDS: usize = 3;

/// Pause after a side has stopped, before its rest is measured, and the time of that.
const STOPPED: Duration = Duration::from_secs(5);
const REST: Duration = Duration::from_secs(10);

/// Time from the last start until all have read their metric, and have corrected what the round before has left.
const SETTLING: Duration = Duration::from_secs(35);

/// Replicas at the two levels of a metric.
const LEVELS: [usize; 2] = [10, 16];

/// Variation of a metric within a level, up and down.
const NOISE: f64 = 0.05;

/// Part of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No value leaves the tolerance.
    Calm,
    /// The level of each metric changes once.
    Moving,
}

impl Phase {
    const BOTH: [Self; 2] = [Self::Calm, Self::Moving];

    fn lasts(self) -> Duration {
        match self {
            Self::Calm => INTERVAL * 3,
            Self::Moving => INTERVAL * 6,
        }
    }
}

/// Time since the start of the phases of a round; None before that.
#[derive(Clone, Default)]
struct Clock(Arc<Mutex<Option<Instant>>>);

impl Clock {
    fn set(&self, began: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = began;
    }

    fn value(&self, name: &str) -> Option<f64> {
        let index: usize = name.strip_prefix("load-")?.parse().ok()?;
        let began = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(value(index, began.map_or(Duration::ZERO, |began| began.elapsed())))
    }
}

fn name(index: usize) -> String {
    format!("load-{index}")
}

/// Value of a metric at a time since the start of the phases.
fn value(index: usize, since: Duration) -> f64 {
    let changes_at = Phase::Calm.lasts() + Phase::Moving.lasts().mul_f64(share(index, 0) * 0.6);
    let level = if (since < changes_at) == index.is_multiple_of(2) { LEVELS[0] } else { LEVELS[1] };
    let period = since.as_secs() / INTERVAL.as_secs() + 1;
    let noise = 1.0 + NOISE * (2.0 * share(index, period) - 1.0);
    TARGET * number(level) * noise
}

/// A number from 0 to 1 that looks random.
fn share(index: usize, period: u64) -> f64 {
    let mixed = (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ period.wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    #[expect(clippy::cast_precision_loss, reason = "16 bits")]
    let share = ((mixed >> 40) & 0xFFFF) as f64 / 65536.0;
    share
}

/// Seconds of processor time used so far.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    operator: f64,
    manager: f64,
    server: f64,
    etcd: f64,
}

impl Spent {
    fn now(scene: &Scene) -> Result<Self> {
        let of = |component| scene.cluster.processor_seconds(component);
        Ok(Self {
            operator: scene.operator.processor_seconds()?,
            manager: of("kcm")?,
            server: of("apiserver")?,
            etcd: of("etcd")?,
        })
    }

    fn combine(self, other: Self, with: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            operator: with(self.operator, other.operator),
            manager: with(self.manager, other.manager),
            server: with(self.server, other.server),
            etcd: with(self.etcd, other.etcd),
        }
    }
}

/// Measurements of one phase of a round.
struct Measured {
    lasted: f64,
    /// More than at rest.
    more: Spent,
    values_read: usize,
    requests: Vec<Request>,
}

impl Measured {
    fn count(&self, is: impl Fn(&&Request) -> bool) -> f64 {
        number(self.requests.iter().filter(is).count())
    }

    fn writes(&self) -> f64 {
        self.count(|one| one.writes() && one.resource != "events")
    }

    fn scaled(&self) -> f64 {
        self.count(|one| one.writes() && one.resource == "deployments/scale")
    }
}

struct Scene {
    cluster: Cluster,
    audit: Audit,
    operator: Operator,
    metrics: MetricsServer,
    clock: Clock,
}

pub async fn run(bench: &mut Bench) -> Result<()> {
    let (cluster, audit) = rivals::plane(bench, PART).await?;
    let clock = Clock::default();
    let values = clock.clone();
    let metrics = MetricsServer::start(&cluster, move |name| values.value(name)).await?;
    let operator = operator(bench, PART, &cluster, &["--watch-namespace", Side::Loops.namespace()]).await?;
    let scene = Scene { cluster, audit, operator, metrics, clock };
    let client = &scene.cluster.client;
    let _follower = Follower::start(client);
    let progress = Progress::spin(&format!("making {EACH} Deployments and loops"));
    rivals::for_each((0..EACH).map(name), async |name| {
        targets::create(client, &name, LEVELS[0]).await?;
        rivals::tracking_loop(client, &name, Pace::Window15, "Paused").await
    })
    .await?;
    progress.end();
    let progress = Progress::count("autoscalers and loops in turns", 2 * ROUNDS);
    let mut rounds: [Vec<Vec<Measured>>; 2] = Default::default();
    for turn in 0..ROUNDS {
        for (index, side) in Side::BOTH.into_iter().enumerate() {
            rounds[index].push(scene.round(side).await?);
            progress.at(2 * turn + index + 1);
        }
    }
    progress.end();
    report(bench, &rounds)?;
    bench.note("operator: memory with the loops, resident", scene.operator.memory("VmRSS")?, "MiB");
    scene.operator.stop().await?;
    scene.cluster.down().await
}

impl Scene {
    /// Lets one side act for the two phases.
    async fn round(&self, side: Side) -> Result<Vec<Measured>> {
        self.clock.set(None);
        tokio::time::sleep(STOPPED).await;
        let (before, began) = (Spent::now(self)?, Instant::now());
        tokio::time::sleep(REST).await;
        let rested = began.elapsed().as_secs_f64();
        let rest = Spent::now(self)?.combine(before, |after, before| (after - before) / rested);
        self.start(side).await?;
        self.settled(side).await?;
        self.clock.set(Some(Instant::now()));
        let mut all = Vec::new();
        for phase in Phase::BOTH {
            let (from, read) = (Timestamp::now(), self.metrics.read_by(side));
            let (before, began) = (Spent::now(self)?, Instant::now());
            tokio::time::sleep(phase.lasts()).await;
            let (after, lasted, to) = (Spent::now(self)?, began.elapsed().as_secs_f64(), Timestamp::now());
            let more = after.combine(before, |after, before| after - before);
            let more = more.combine(rest, |used, rest| used - rest * lasted);
            let values_read = self.metrics.read_by(side) - read;
            all.push((from, to, Measured { lasted, more, values_read, requests: Vec::new() }));
        }
        let running = rivals::active(&self.cluster.client, side).await?;
        // A value that has come too late on a busy machine is no reason to lose the run.
        ensure!(running >= EACH - EACH / 20, "only {running} of {EACH} {} are active", side.namespace());
        self.stop(side).await?;
        let mut phases = Vec::new();
        for (from, to, measured) in all {
            let mut requests = self.audit.between(from, to).await?;
            requests.retain(|one| is_of(side, one) && (!one.is_upkeep() || one.group == GROUP));
            for one in requests.iter_mut().filter(|one| one.group == GROUP) {
                // Each metric is a resource of its own.
                "metrics".clone_into(&mut one.resource);
            }
            phases.push(Measured { requests, ..measured });
        }
        Ok(phases)
    }

    /// Starts all of one side, spread evenly over an interval.
    async fn start(&self, side: Side) -> Result<()> {
        let client = &self.cluster.client;
        let mut ticks = tokio::time::interval(INTERVAL / u32::try_from(EACH)?);
        for name in (0..EACH).map(name) {
            ticks.tick().await;
            match side {
                Side::Autoscalers => rivals::autoscaler(client, &name, Pace::Window15).await?,
                Side::Loops => rivals::set_mode(client, &name, "Auto").await?,
            }
        }
        Ok(())
    }

    async fn stop(&self, side: Side) -> Result<()> {
        let client = &self.cluster.client;
        match side {
            Side::Autoscalers => rivals::delete_autoscalers(client).await,
            Side::Loops => {
                rivals::for_each((0..EACH).map(name), async |name| rivals::set_mode(client, &name, "Paused").await)
                    .await
            }
        }
    }

    async fn settled(&self, side: Side) -> Result<()> {
        tokio::time::sleep(SETTLING).await;
        let began = Instant::now();
        loop {
            let running = rivals::active(&self.cluster.client, side).await?;
            if running == EACH {
                return Ok(());
            }
            if began.elapsed() > TIMEOUT {
                bail!("only {running} of {EACH} {} are active", side.namespace());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

fn is_of(side: Side, request: &Request) -> bool {
    match side {
        Side::Autoscalers => request.user == CONTROLLER,
        Side::Loops => request.by_operator,
    }
}

/// Sum of a figure over the phases of a round, or one of them.
fn sum(round: &[Measured], phase: Option<Phase>, of: impl Fn(&Measured) -> f64) -> f64 {
    let phases = round.iter().zip(Phase::BOTH);
    phases.filter(|(_, one)| phase.is_none_or(|phase| phase == *one)).map(|(measured, _)| of(measured)).sum()
}

/// Name of a figure and its unit, and the figure of a side.
type Figure = (&'static str, &'static str, fn(Side, &Measured) -> f64);

/// Figures with a bound: the loops' figure is at most that of the autoscalers.
const BOUNDED: [Figure; 5] = [
    ("processor time of the controller", "s", |side, one| match side {
        Side::Autoscalers => one.more.manager,
        Side::Loops => one.more.operator,
    }),
    ("writes to the API server, without events", "writes", |_, one| one.writes()),
    ("requests", "requests", |_, one| number(one.requests.len())),
    ("processor time of the API server", "s", |_, one| one.more.server),
    ("processor time of operator, controller manager, API server and etcd", "s", |_, one| {
        one.more.operator + one.more.manager + one.more.server + one.more.etcd
    }),
];

/// Other figures.
const OTHERS: [Figure; 5] = [
    ("values read", "values", |_, one| number(one.values_read)),
    ("writes of replicas", "writes", |_, one| one.scaled()),
    ("events", "events", |_, one| one.count(|request| request.writes() && request.resource == "events")),
    ("processor time of etcd", "s", |_, one| one.more.etcd),
    ("processor time of the controller manager", "s", |_, one| one.more.manager),
];

fn report(bench: &mut Bench, rounds: &[Vec<Vec<Measured>>; 2]) -> Result<()> {
    let [autoscalers, loops] = rounds;
    let all = |side: Side, rounds: &[Vec<Measured>], phase, of: fn(Side, &Measured) -> f64| {
        let sums = rounds.iter().map(|round| sum(round, phase, |one| of(side, one)));
        sums.collect::<Vec<f64>>()
    };
    for (side, rounds) in Side::BOTH.into_iter().zip(rounds) {
        let scaled = all(side, rounds, Some(Phase::Moving), |_, one| one.scaled());
        ensure!(scaled.iter().all(|count| *count > 0.0), "the {} did not scale: {scaled:?}", side.namespace());
    }
    let seconds: Duration = Phase::BOTH.into_iter().map(Phase::lasts).sum();
    let title = format!("{EACH} tracking loops at {} s for {} s", INTERVAL.as_secs(), seconds.as_secs());
    for (index, (name, unit, of)) in BOUNDED.into_iter().enumerate() {
        let ratio = |phase| {
            median(&all(Side::Loops, loops, phase, of)) / median(&all(Side::Autoscalers, autoscalers, phase, of))
        };
        let name = if index == 0 { format!("{title}: {name}") } else { format!("  {name}") };
        bench.claim(&format!("{name}, relative to {EACH} autoscalers"), ratio(None), "times", Bound::AtMost(1.0));
        bench.note("    while values are calm", ratio(Some(Phase::Calm)), "times");
        bench.note("    while levels change", ratio(Some(Phase::Moving)), "times");
        for (side, rounds) in [(Side::Autoscalers, autoscalers), (Side::Loops, loops)] {
            bench.note(&format!("    {}", side.namespace()), median(&all(side, rounds, None, of)), unit);
        }
    }
    for (name, unit, of) in OTHERS {
        for (side, rounds) in [(Side::Autoscalers, autoscalers), (Side::Loops, loops)] {
            bench.note(&format!("  {name}: {}", side.namespace()), median(&all(side, rounds, None, of)), unit);
        }
    }
    for (side, rounds) in [(Side::Autoscalers, autoscalers), (Side::Loops, loops)] {
        for (phase, index) in Phase::BOTH.into_iter().zip(0..) {
            let requests: Vec<&Request> =
                rounds.iter().filter_map(|round| round.get(index)).flat_map(|one| &one.requests).collect();
            let seconds: f64 = rounds.iter().filter_map(|round| round.get(index)).map(|one| one.lasted).sum();
            for (name, count) in tally(requests.into_iter()) {
                let per_interval = number(count) / number(EACH) * INTERVAL.as_secs_f64() / seconds;
                bench.note(&format!("  {} while {phase:?}: {name}", side.namespace()), per_interval, "an interval");
            }
        }
    }
    Ok(())
}
