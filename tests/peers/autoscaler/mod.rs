//! Target tracking beside the controller of HorizontalPodAutoscaler (Kubernetes 1.37), step by step, in random
//! situations. Each difference must be one of those by decision.

mod case;
mod generate;
mod model;
mod ours;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use ganglion_loops_plan::track::{Tolerances, TrackMemory, TrackPass, TrackRules, ZeroOrigin, decide};

use case::{CaseRules, CaseStep};
use generate::RandomCase;
use model::{MetricModel, NamedDifference, PaceInput, PaceModel, Switches};
use wire::{OracleProcess, OracleResult};

/// Situations of a run, and its seed. Others: GANGLION_ORACLE_SITUATIONS, GANGLION_ORACLE_SEED.
const SITUATIONS: u64 = 5200;
const SEED: u64 = 39_000_000;

/// Time after which the oracle hangs. A run takes about a minute on an idle machine, and more than five beside others.
const LIMIT: Duration = Duration::from_mins(20);

/// Most differences at once that are looked for.
const AT_ONCE: usize = 3;

/// Counts of a run.
#[derive(Default)]
struct ComparisonTally {
    situations: u64,
    steps: u64,
    equal_steps: u64,
    equal_situations: u64,
    /// Differences that explain a step, and the number of these steps.
    explained: BTreeMap<Vec<NamedDifference>, u64>,
    reasons: BTreeMap<&'static str, u64>,
}

impl ComparisonTally {
    fn print(&self) {
        println!("{} situations, {} steps compared", self.situations, self.steps);
        println!("{:>8}  steps with equal proposals and results", self.equal_steps);
        println!("{:>8}  situations that are equal to their end", self.equal_situations);
        println!("differences, each of which ends its situation:");
        for (differences, count) in &self.explained {
            let texts: Vec<&str> = differences.iter().map(|difference| difference.describe()).collect();
            println!("{count:>8}  {}", texts.join(" + "));
        }
        println!("reasons of results:");
        for (reason, count) in &self.reasons {
            println!("{count:>8}  {reason}");
        }
    }

    /// Differences that explained a step alone.
    fn single(&self) -> BTreeSet<NamedDifference> {
        let single = self.explained.keys().filter(|differences| differences.len() == 1);
        single.flatten().copied().collect()
    }
}

/// One situation in both, and in the model of the differences.
struct Comparison<'a> {
    rules: &'a CaseRules,
    parsed: TrackRules,
    tolerances: Tolerances,
    memory: TrackMemory,
    model: PaceModel,
    /// Whether the target was scaled to 0 by the autoscaler.
    own_zero: bool,
}

/// Result of a step.
enum StepComparison {
    Equal(&'static str),
    Explained(Vec<NamedDifference>),
}

impl<'a> Comparison<'a> {
    fn new(rules: &'a CaseRules) -> Self {
        let (parsed, tolerances) = ours::rules(rules);
        Self {
            rules,
            parsed,
            tolerances,
            memory: TrackMemory::default(),
            model: PaceModel::default(),
            own_zero: rules.own_zero,
        }
    }

    fn step(&mut self, step: &CaseStep, oracle: &OracleResult) -> StepComparison {
        // Negative numbers end at 0 in both.
        let theirs: Vec<Option<i32>> =
            oracle.proposals.iter().map(|proposal| proposal.map(|number| number.max(0))).collect();
        let metrics = ours::metrics(&self.rules.metrics, step, &self.tolerances);
        let zero = if self.may_leave_zero() { ZeroOrigin::Own } else { ZeroOrigin::Other };
        let pass =
            TrackPass { replicas: step.replicas, metrics: &metrics, zero, now: ours::at(step.time), forecast: None };
        let outcome = decide(&self.parsed, &mut self.memory, &pass);
        let own: Vec<Option<i32>> = outcome.metrics.iter().map(|metric| metric.replicas).collect();

        let model = |switches: &Switches| self.proposals(step, switches);
        assert_eq!(model(&NamedDifference::METRIC.into()), theirs, "the model is not the oracle");
        assert_eq!(model(&Switches::new()), own, "the model is not the operator's function");
        if own != theirs {
            return StepComparison::Explained(explanation(&NamedDifference::METRIC, |switches| {
                model(switches) == theirs
            }));
        }
        if self.model.proposals.is_empty() {
            self.model.proposals.push((step.time, step.replicas));
        }
        let raw = combined(&own, step.replicas);
        let paced = |switches: &Switches| {
            let (replicas, now) = (step.replicas, step.time);
            let own_zero = self.may_leave_zero();
            self.model.result(&PaceInput { rules: self.rules, replicas, now, own_zero, raw, switches })
        };
        let (desired, is_recorded) = paced(&NamedDifference::PACE.into());
        assert_eq!(desired, oracle.desired, "the model is not the oracle: {oracle:?}");
        assert_eq!(paced(&Switches::new()).0, outcome.replicas, "the model is not the operator's function");
        if outcome.replicas != oracle.desired {
            return StepComparison::Explained(explanation(&NamedDifference::PACE, |switches| {
                paced(switches).0 == desired
            }));
        }
        self.follow(step, oracle, raw.filter(|_| is_recorded));
        StepComparison::Equal(outcome.reason.as_str())
    }

    /// Records what the step has changed.
    fn follow(&mut self, step: &CaseStep, oracle: &OracleResult, recorded: Option<i32>) {
        if let Some(raw) = recorded {
            self.model.proposals.push((step.time, raw));
        }
        if oracle.desired != step.replicas {
            self.model.record_change(self.rules, step.time, oracle.desired - step.replicas);
            self.memory.record_change(step.replicas, oracle.desired, ours::at(step.time));
        }
        if let Some(condition) = oracle.conditions.get("ScaledToZero") {
            self.own_zero = condition.starts_with("True/");
        }
    }

    /// The autoscaler leaves its own zero only with min above 0, or a metric that is known without pods.
    fn may_leave_zero(&self) -> bool {
        self.own_zero && (self.rules.min > 0 || self.rules.metrics.iter().any(|metric| !metric.kind.is_of_pods()))
    }

    fn proposals(&self, step: &CaseStep, switches: &Switches) -> Vec<Option<i32>> {
        let tolerance = |number: ganglion_loops_plan::track::Nanos| i64::try_from(number.billionths()).unwrap();
        let (up, down) = (tolerance(self.tolerances.up), tolerance(self.tolerances.down));
        let metrics = self.rules.metrics.iter().enumerate();
        let models = metrics.map(|(index, metric)| MetricModel { metric, index, step, up, down, switches }.proposal());
        models.collect()
    }
}

/// The largest proposal; None if unknown metrics could ask for more.
fn combined(proposals: &[Option<i32>], replicas: i32) -> Option<i32> {
    let largest = proposals.iter().flatten().copied().max()?;
    (proposals.iter().all(Option::is_some) || largest >= replicas).then_some(largest)
}

/// The fewest differences with which the model gives the oracle's result.
fn explanation(all: &[NamedDifference], is_theirs: impl Fn(&Switches) -> bool) -> Vec<NamedDifference> {
    let mut candidates: Vec<Vec<NamedDifference>> = vec![Vec::new()];
    for _ in 0..AT_ONCE {
        let mut longer = Vec::new();
        for candidate in &candidates {
            let later = all.iter().filter(|next| candidate.iter().all(|one| one < *next));
            longer.extend(later.map(|next| [candidate.as_slice(), &[*next]].concat()));
        }
        let found = longer.iter().find(|candidate| is_theirs(&candidate.iter().copied().collect()));
        if let Some(found) = found {
            return found.clone();
        }
        candidates = longer;
    }
    panic!("no {AT_ONCE} differences explain the result")
}

fn run(situations: u64, seed: u64) -> ComparisonTally {
    let mut oracle = OracleProcess::start();
    let mut tally = ComparisonTally::default();
    for index in 0..situations {
        let mut case = RandomCase::new(seed + index);
        let rules = case.rules.clone();
        let mut comparison = Comparison::new(&rules);
        let mut replicas = case.replicas;
        tally.situations += 1;
        let mut is_equal = true;
        for number in 0..case.steps {
            let step = case.step(replicas);
            let result = oracle.step((number == 0).then_some(&rules), &step, &rules.metrics);
            let compared = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| comparison.step(&step, &result)));
            let compared = compared.unwrap_or_else(|_| {
                panic!("situation {index} of seed {seed}, step {number}:\n{rules:#?}\n{step:#?}\n{result:#?}")
            });
            tally.steps += 1;
            match compared {
                StepComparison::Equal(reason) => {
                    tally.equal_steps += 1;
                    *tally.reasons.entry(reason).or_default() += 1;
                }
                StepComparison::Explained(differences) => {
                    *tally.explained.entry(differences).or_default() += 1;
                    is_equal = false;
                    break;
                }
            }
            replicas = result.desired;
        }
        tally.equal_situations += u64::from(is_equal);
    }
    tally
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

#[test]
fn tracking_is_the_autoscaler_or_a_named_difference() {
    let situations = setting("GANGLION_ORACLE_SITUATIONS", SITUATIONS);
    let seed = setting("GANGLION_ORACLE_SEED", SEED);
    let (send, receive) = channel();
    let worker = std::thread::spawn(move || {
        let tally = run(situations, seed);
        send.send(()).unwrap();
        tally
    });
    // More situations may take longer.
    let limit = LIMIT * u32::try_from(situations.div_ceil(SITUATIONS)).unwrap();
    if receive.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
        panic!("the oracle has not answered all situations within {} s", limit.as_secs());
    }
    let tally = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    tally.print();
    let all: BTreeSet<NamedDifference> = NamedDifference::METRIC.into_iter().chain(NamedDifference::PACE).collect();
    let missing: Vec<&NamedDifference> = all.iter().filter(|difference| !tally.single().contains(difference)).collect();
    assert!(missing.is_empty(), "differences that did not occur alone: {missing:?}");
    assert!(tally.equal_situations * 2 > tally.situations, "most situations must be equal to their end");
    assert!(tally.equal_steps > 20_000 * situations / SITUATIONS, "too few steps were compared");
}
