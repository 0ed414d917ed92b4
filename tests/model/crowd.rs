//! A crowd: hundreds of actions in several namespaces for few nodes, under tight limits of every kind. Every action
//! must end, no limit may ever be exceeded, no namespace may starve, and every waiting action must say what it waits
//! for.

use std::collections::BTreeMap;

use ganglion_actions_plan::Limits;
use ganglion_api::workload_action::{Mode, RunPolicy, Timeouts};

use crate::campaign;
use crate::check::outcome;
use crate::cluster::build::{PodShape, place};
use crate::cluster::foreign::Act;
use crate::cluster::object::{Fate, Labels};
use crate::driver::Run;
use crate::operator::flaw::Flaw;
use crate::random::Rng;
use crate::setup::{NodeSpec, Setup, Timed, Workload, action, pace};

/// Namespaces, each with the priority of its actions.
const NAMESPACES: [(&str, i32); 3] = [("bank", 1000), ("farm", 0), ("shop", 0)];

/// Number of workloads per namespace.
const WORKLOADS: usize = 2;

const NODES: usize = 5;

/// Longer than the whole run, so that no action gives up.
const QUEUE_SECONDS: i32 = 86_400;

/// Limits of the workloads and nodes.
fn tight() -> Limits {
    let (per_workload, per_source_node, per_target_node) = (Some(2), Some(2), Some(1));
    Limits { per_workload, per_source_node, per_target_node, ..Limits::default() }
}

fn workloads() -> Vec<Workload> {
    let shape = PodShape { cpu: 100, grace: 1, node_selector: Labels::new(), ..PodShape::default() };
    let of = |namespace: &str, index: usize| Workload {
        app: format!("{namespace}/{namespace}-{index}"),
        deployment: index == 0,
        replicas: 4,
        shape: shape.clone(),
        budgets: Vec::new(),
        scaler: false,
    };
    NAMESPACES.iter().flat_map(|(namespace, ..)| (0..WORKLOADS).map(move |index| of(namespace, index))).collect()
}

impl Setup {
    /// The crowd of this seed: this number of actions per namespace, all created at once.
    fn crowd(seed: u64, counts: [usize; 3], limits: &Limits) -> Self {
        let mut rng = Rng::new(seed);
        let node = |index: usize| NodeSpec {
            name: format!("node-{index}"),
            zone: ["a", "b"][index % 2].to_owned(),
            cpu: 10_000,
            // Hardly more room than for the existing pods.
            pods: 8,
            fate: Fate::Good,
        };
        let nodes: Vec<NodeSpec> = (0..NODES).map(node).collect();
        let all = workloads();
        let mut acts = Vec::new();
        for ((namespace, priority), count) in NAMESPACES.into_iter().zip(counts) {
            let own: Vec<Workload> = all.iter().filter(|one| place(&one.app).0 == namespace).cloned().collect();
            for index in 0..count {
                let Some(workload) = rng.pick(&own).cloned() else { continue };
                let mut spec = action(&mut rng, &workload, &own, &nodes);
                (spec.mode, spec.run_policy) = (Mode::Execute, RunPolicy::OncePerObject);
                (spec.suspend, spec.ttl_seconds_after_finished, spec.stable_seconds) = (false, None, 0);
                spec.timeouts = Some(Timeouts {
                    queue_seconds: Some(QUEUE_SECONDS),
                    schedule_seconds: Some(10),
                    ready_seconds: Some(20),
                    drain_seconds: Some(20),
                });
                spec.priority = priority;
                let act = Act::Apply(format!("{namespace}/action-{index}"), Box::new(spec));
                acts.push(Timed { at: 0, act, pick: rng.next() });
            }
        }
        Self {
            seed: rng.next(),
            steps: 500,
            nodes,
            workloads: all,
            acts,
            limits: limits.clone(),
            pace: pace(&mut rng),
            replacements: (0, Fate::Good),
            linger: (0, 0),
            has_room: false,
        }
    }
}

/// Runs a crowd to its end, without a violation.
fn play(setup: &Setup) -> Run<'_> {
    let mut run = Run::new(setup, Flaw::None, false);
    if let Err(violation) = run.all() {
        panic!("{violation:?}");
    }
    let actions = &run.cluster.api.actions.live;
    assert_eq!(actions.len(), setup.acts.len(), "all were applied");
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    actions.values().for_each(|action| *ends.entry(outcome::word(action)).or_default() += 1);
    println!("{ends:?}");
    assert!(actions.values().all(|action| action.finished()), "{ends:?}");
    assert!(!ends.contains_key("QueueTimedOut"), "{ends:?}");
    // Most actions of a crowd must have an effect.
    assert!(ends.get("Succeeded").is_some_and(|count| count * 4 > actions.len()), "{ends:?}");
    run
}

#[test]
fn every_action_of_a_crowd_ends_within_the_limits() {
    play(&Setup::crowd(18, [120, 40, 40], &Limits { in_all: Some(3), per_namespace: Some(2), ..tight() }));
}

/// A swap of three is admitted as a whole if the limits have exactly these places.
#[test]
fn the_largest_swaps_of_a_crowd_have_their_turns() {
    let limits = Limits {
        in_all: Some(3),
        per_namespace: Some(3),
        per_workload: Some(3),
        per_source_node: Some(2),
        per_target_node: Some(2),
        ..Limits::default()
    };
    let mut large = 0;
    for seed in 100..110 {
        let setup = Setup::crowd(seed, [30, 12, 12], &limits);
        let run = play(&setup);
        let swapped = run.cluster.api.actions.values().filter(|action| {
            action.spec.swap.as_ref().is_some_and(|swap| swap.with.len() == 2) && outcome::word(action) == "Succeeded"
        });
        large += swapped.count();
    }
    println!("{large} swaps of three");
    assert!(large >= 5, "{large} swaps of three");
}

/// The namespace with the most and the most urgent actions must not be served completely before the others.
#[test]
fn no_namespace_of_a_crowd_starves() {
    let mut setup = Setup::crowd(19, [60, 20, 20], &Limits { in_all: Some(2), ..tight() });
    // New pods take time: an action reports after a moment that it waits, and is not queued before.
    setup.replacements = (1000, Fate::Slow(5));
    let run = play(&setup);
    let begun: Vec<&str> = run.begun().iter().map(|key| key.namespace.as_str()).collect();
    println!("{}", begun.iter().map(|namespace| &namespace[..1]).collect::<String>());
    let of_bank = begun.iter().filter(|namespace| **namespace == "bank").count();
    for namespace in ["farm", "shop"] {
        let own: Vec<usize> = (0..begun.len()).filter(|at| begun[*at] == namespace).collect();
        let half = own[own.len() / 2];
        let later = begun[half..].iter().filter(|one| **one == "bank").count();
        println!("{later} of {of_bank} of bank began after half of {} of {namespace}", own.len());
        assert!(later * 2 > of_bank, "half of {namespace} waited for {} of {of_bank} of bank", of_bank - later);
    }
}

/// Without limits, the rules of the crowd must fail.
#[test]
fn a_crowd_that_is_not_held_back_exceeds_a_limit() {
    let setup = Setup::crowd(18, [40, 10, 10], &Limits { in_all: Some(3), ..tight() });
    let violation = campaign::guarded(&setup, Flaw::NoLimits, false).violation;
    assert!(violation.as_ref().is_some_and(|violation| violation.rule == "OverLimit"), "{violation:?}");
}
