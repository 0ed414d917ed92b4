//! Small runs whose figures are known.

use std::sync::Arc;

use anyhow::Result;

use super::{LabNode, LabRun, MeasureKind, MoveRules, Placer, PodRequest, ReplicaScaling, RunSettings, STEP, run};
use crate::fleet::{FleetServer, ServerFleet, ServerModel};
use crate::trace::{HistoryPoint, UsagePoint, UsageSeries, WorkKind, WorkPod, WorkTrace};

const SETTINGS: RunSettings =
    RunSettings { seed: 1, warm_up: 0, scaling: ReplicaScaling::Fixed, moves: MoveRules::None, agents: None };

/// Places each pod on the first node with room; rejects all before a time.
struct FirstFit {
    opens: i64,
}

impl Placer for FirstFit {
    fn points(&mut self, _: &PodRequest, candidates: &[usize], _: &[LabNode], now: i64) -> Result<Vec<Option<f64>>> {
        Ok(candidates.iter().map(|node| (now >= self.opens).then_some(-(*node as f64))).collect())
    }
}

/// Servers with these threads, idle at 100 W and full at 200 W.
fn fleet(threads: &[f64]) -> ServerFleet {
    let server = |threads: &f64| FleetServer {
        site: 0,
        model: Arc::new(ServerModel {
            name: format!("m{threads}"),
            threads: *threads,
            idle_watts: 100.0,
            full_watts: 200.0,
        }),
    };
    ServerFleet { name: "test".to_owned(), servers: threads.iter().map(server).collect() }
}

fn pod(name: &str, kind: WorkKind, (arrival, lifetime): (f64, f64), cpu: f64, usage: UsageSeries) -> WorkPod {
    WorkPod { name: name.to_owned(), pool: name.to_owned(), kind, arrival, lifetime, cpu, memory: 1.0, usage }
}

fn job(name: &str, arrival: f64, lifetime: f64, cpu: f64, cores: f64) -> WorkPod {
    pod(name, WorkKind::Job, (arrival, lifetime), cpu, UsageSeries::constant(cores))
}

fn service(name: &str, lifetime: f64, cpu: f64, cores: f64) -> WorkPod {
    pod(name, WorkKind::Service, (0.0, lifetime), cpu, UsageSeries::constant(cores))
}

fn simulate(pods: Vec<WorkPod>, threads: &[f64], settings: RunSettings<'_>) -> LabRun {
    run(&WorkTrace::new(pods), &fleet(threads), &mut FirstFit { opens: 0 }, settings).unwrap()
}

fn assert_is(run: &LabRun, kind: MeasureKind, expected: f64) {
    let value = run.measures.get(kind);
    assert!((value - expected).abs() < 1e-6, "{}: {value} instead of {expected}", kind.name());
}

/// An hour of two cores of four: 150 W, and a second node that is empty.
#[test]
fn energy_and_work_follow_usage() {
    let run = simulate(vec![service("a", 3600.0, 2.0, 2.0)], &[4.0, 4.0], SETTINGS);
    assert_is(&run, MeasureKind::Energy, 0.25);
    assert_is(&run, MeasureKind::EnergySwitched, 0.15);
    assert_is(&run, MeasureKind::Work, 2.0);
    assert_is(&run, MeasureKind::EnergyPerWork, 125.0);
    assert_is(&run, MeasureKind::EnergyPerWorkSwitched, 75.0);
    assert_is(&run, MeasureKind::Shortage, 0.0);
    assert_is(&run, MeasureKind::Overload, 0.0);
    assert_is(&run, MeasureKind::Replicas, 1.0);
}

/// Six cores are wanted on four: the service lacks one, and the job needs half as long again.
#[test]
fn a_busy_node_delays_jobs_and_starves_services() {
    let pods = vec![service("a", 3600.0, 2.0, 3.0), job("b", 0.0, 1200.0, 2.0, 3.0)];
    let run = simulate(pods, &[4.0], SETTINGS);
    // The job gets two of three cores, so it lasts 1,800 s; both lack a core until then.
    assert_is(&run, MeasureKind::Shortage, 2.0 * 0.5);
    assert_is(&run, MeasureKind::Work, 4.0 * 0.5 + 3.0 * 0.5);
    assert_is(&run, MeasureKind::Overload, 30.0);
    assert_is(&run, MeasureKind::Reaction, 1800.0);
}

#[test]
fn work_follows_the_progress_of_a_job() {
    let series =
        UsageSeries::new(vec![UsagePoint { offset: 0.0, cores: 4.0 }, UsagePoint { offset: 600.0, cores: 1.0 }]);
    let job = pod("a", WorkKind::Job, (0.0, 1200.0), 2.0, series);
    let run = simulate(vec![job, service("b", 3600.0, 1.0, 0.0)], &[2.0], SETTINGS);
    // 600 s of progress at four cores need 1,200 s with two.
    assert_is(&run, MeasureKind::Work, (4.0 * 600.0 + 600.0) / 3600.0);
    assert_is(&run, MeasureKind::Shortage, 2.0 * 1200.0 / 3600.0);
}

#[test]
fn pods_wait_for_room_and_keep_their_order() {
    let pods = vec![job("a", 0.0, 300.0, 4.0, 4.0), job("b", 0.0, 300.0, 4.0, 4.0), job("c", 60.0, 600.0, 4.0, 4.0)];
    let run = simulate(pods, &[4.0], SETTINGS);
    let placed: Vec<(usize, i64)> = run.placed.iter().map(|placed| (placed.pod, placed.at)).collect();
    assert_eq!(placed, [(0, 0), (1, 300), (2, 600)]);
    assert_is(&run, MeasureKind::Pending, (0.0 + 300.0 + 540.0) / 3.0);
}

#[test]
fn a_rejected_pod_waits_and_a_service_misses_its_demand() {
    let trace = WorkTrace::new(vec![service("a", 3600.0, 2.0, 2.0)]);
    let run = run(&trace, &fleet(&[4.0]), &mut FirstFit { opens: 900 }, SETTINGS).unwrap();
    assert_is(&run, MeasureKind::Pending, 900.0);
    assert_is(&run, MeasureKind::Shortage, 0.5);
}

#[test]
fn the_warm_up_does_not_count() {
    let settings = RunSettings { warm_up: 1800, ..SETTINGS };
    let run = simulate(vec![service("a", 3600.0, 2.0, 2.0)], &[4.0], settings);
    assert_is(&run, MeasureKind::Work, 1.0);
    assert_is(&run, MeasureKind::Energy, 0.075);
    let trace = WorkTrace::new(vec![service("a", 3600.0, 2.0, 2.0)]);
    let settings = RunSettings { warm_up: 3600, ..SETTINGS };
    let problem = super::run(&trace, &fleet(&[4.0]), &mut FirstFit { opens: 0 }, settings).unwrap_err();
    assert_eq!(problem.to_string(), "the trace ends within the warm-up time");
}

/// Four replicas with a request of one core and a demand of 1.4 cores: two of them reach the target of 70 %.
#[test]
fn a_scaled_service_follows_its_demand() {
    let replica = |name: &str, usage| WorkPod {
        pool: "web".to_owned(),
        ..pod(name, WorkKind::Service, (0.0, 7200.0), 1.0, usage)
    };
    let usage =
        UsageSeries::new(vec![UsagePoint { offset: 0.0, cores: 0.35 }, UsagePoint { offset: 3600.0, cores: 1.05 }]);
    let pods = ["a", "b", "c", "d"].map(|name| replica(name, usage.clone())).to_vec();
    let settings = RunSettings { scaling: ReplicaScaling::Tracking, warm_up: 1800, ..SETTINGS };
    let run = simulate(pods, &[16.0], settings);
    let replicas = run.measures.get(MeasureKind::Replicas);
    // Two for half an hour; then six, which are reached within a minute.
    assert!((replicas - (2.0 * 0.5 + 6.0)).abs() < 0.2, "{replicas}");
    assert_is(&run, MeasureKind::Work, 1.4 * 0.5 + 4.2);
}

/// Demand that trebles at the same time each day. With a forecast, replicas are there before.
#[test]
fn a_forecast_scales_before_the_demand_comes() {
    const DAY: f64 = 86_400.0;
    let cores = |time: f64| if time.rem_euclid(DAY) < 3600.0 { 2.1 } else { 6.3 };
    let replica = |name: &str| {
        let points = [0.0, 3600.0].map(|offset| UsagePoint { offset, cores: cores(offset) / 3.0 }).to_vec();
        WorkPod { pool: "web".to_owned(), ..pod(name, WorkKind::Service, (0.0, 7200.0), 1.0, UsageSeries::new(points)) }
    };
    let mut trace = WorkTrace::new(["a", "b", "c"].map(replica).to_vec());
    let times = (1..=3 * 288).rev().map(|step| -f64::from(step) * 300.0);
    let history = times.map(|time| HistoryPoint { time, cores: cores(time) }).collect();
    trace.history.insert("web".to_owned(), history);
    let with = |scaling| {
        let settings = RunSettings { scaling, warm_up: 1800, ..SETTINGS };
        run(&trace, &fleet(&[32.0]), &mut FirstFit { opens: 0 }, settings).unwrap().measures.get(MeasureKind::Replicas)
    };
    let ahead = jiff::SignedDuration::from_mins(10);
    let rules = ganglion_loops_plan::forecast::ForecastRules { ahead, season: jiff::SignedDuration::from_hours(24) };
    let early = with(ReplicaScaling::Forecast(rules)) - with(ReplicaScaling::Tracking);
    // Six replicas more for about ten minutes.
    assert!((0.7..2.5).contains(&early), "{early}");
}

#[test]
fn a_seed_is_a_run() {
    let pods = || (0..40).map(|at| job(&format!("j{at}"), f64::from(at) * 30.0, 600.0, 1.0, 0.8)).collect();
    struct Indifferent;
    impl Placer for Indifferent {
        fn points(&mut self, _: &PodRequest, all: &[usize], _: &[LabNode], _: i64) -> Result<Vec<Option<f64>>> {
            Ok(vec![Some(1.0); all.len()])
        }
    }
    let with = |seed| {
        run(&WorkTrace::new(pods()), &fleet(&[8.0; 6]), &mut Indifferent, RunSettings { seed, ..SETTINGS }).unwrap()
    };
    assert_eq!(with(3), with(3));
    assert_ne!(with(3).placed, with(4).placed);
    let used: std::collections::BTreeSet<usize> = with(3).placed.iter().map(|placed| placed.node).collect();
    assert_eq!(used.len(), 6, "equal nodes are chosen at random");
}

/// A service and a job fill the first node; the loop takes the service to the second node.
#[test]
fn a_move_relieves_a_busy_node() {
    let pods = || vec![service("a", 3600.0, 2.0, 2.0), job("b", 0.0, 3600.0, 2.0, 2.0)];
    let calm = simulate(pods(), &[4.0, 4.0], SETTINGS);
    assert_is(&calm, MeasureKind::Overload, 60.0);
    let moved = simulate(pods(), &[4.0, 4.0], RunSettings { moves: MoveRules::Relief, ..SETTINGS });
    assert_is(&moved, MeasureKind::Moves, 1.0);
    assert_is(&moved, MeasureKind::Evictions, 1.0);
    // It is measured twice, at 30 and 60 s; the replacement serves 30 s later. No work is lost.
    assert_is(&moved, MeasureKind::Overload, 1.5);
    assert_is(&moved, MeasureKind::Work, 4.0);
    assert_is(&moved, MeasureKind::Shortage, 0.0);
}

/// Two services fill the first node, and both loops decide at the same moment. The second action waits until the nodes
/// are measured without the first service, and then has no reason.
#[test]
fn one_of_two_services_leaves_a_busy_node() {
    let pods = vec![service("a", 3600.0, 2.0, 2.0), service("b", 3600.0, 2.0, 2.0)];
    let moved = simulate(pods, &[4.0, 4.0], RunSettings { moves: MoveRules::Relief, ..SETTINGS });
    assert_is(&moved, MeasureKind::Moves, 1.0);
    assert_is(&moved, MeasureKind::Overload, 1.5);
}

/// The first node needs 25 W per core, the second 5 W. Jobs stay.
#[test]
fn consolidation_saves_power_and_leaves_jobs_alone() {
    let pods = || vec![service("a", 3600.0, 2.0, 2.0), job("b", 0.0, 3600.0, 1.0, 1.0)];
    let settings = RunSettings { moves: MoveRules::Consolidation, ..SETTINGS };
    let moved = simulate(pods(), &[4.0, 20.0], settings);
    assert_is(&moved, MeasureKind::Moves, 1.0);
    assert_is(&moved, MeasureKind::Work, 3.0);
    let stayed = simulate(pods(), &[4.0, 20.0], SETTINGS);
    let saved = stayed.measures.get(MeasureKind::Energy) - moved.measures.get(MeasureKind::Energy);
    // Forty watts for almost an hour.
    assert!((saved - 0.04).abs() < 0.001, "{saved}");
}

/// A replica that is scaled away while it moves takes its replacement along.
#[test]
fn moves_of_scaled_services_do_not_add_replicas() {
    let replica = |name: &str| WorkPod { pool: "web".to_owned(), ..service(name, 3600.0, 2.0, 1.4) };
    let settings = RunSettings { scaling: ReplicaScaling::Tracking, moves: MoveRules::Consolidation, ..SETTINGS };
    let moved = simulate(vec![replica("a"), replica("b")], &[4.0, 20.0], settings);
    assert_is(&moved, MeasureKind::Replicas, 2.0);
    assert_is(&moved, MeasureKind::Moves, 2.0);
    assert!((moved.measures.get(MeasureKind::Work) - 2.8 * (1.0 - 30.0 / 3600.0)).abs() < 1e-6);
}

#[test]
fn steps_are_whole() {
    assert_eq!(60 % STEP, 0);
}
