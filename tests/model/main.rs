//! The model: the controller of WorkloadActions on a small simulated cluster, which is faster than a real one and fails
//! more often.

mod campaign;
mod check;
mod cluster;
mod crowd;
mod driver;
mod face;
mod loops;
mod operator;
mod random;
mod setup;
mod stage;

use std::collections::BTreeMap;

use cluster::object::Fate;
use operator::flaw::Flaw;
use setup::Setup;
use testkit::scripts;

/// Number of situations without disturbance in which a flaw must be detected.
const CALM_RUNS: u64 = 150;

/// Seeds that revealed a fault when they were drawn. They stand for other situations now, because the model has since
/// begun to draw swaps, counts of all, and preferences. The faults:
/// - two pods were attached again while one was marked and the ReplicaSet had not observed its replicas;
/// - a pod was attached before the ReplicaSet had observed that a change was undone, or on a stale view of the surplus;
/// - a replica was retried although others had deleted its old pod after the ReplicaSet had adopted the new one;
/// - an abort used the substitute of another replica;
/// - a new pod for a ReplicaSet without replicas, whose template is not stored;
/// - the place of an admission without an answer was given to another action;
/// - an admission released its own place before its write was carried out;
/// - two slots of one action moved to the same other node at once;
/// - a rollout reset the count of a limit per workload;
/// - an abort with a replica that had not started was reported as a success;
/// - pods of a ReplicaSet were rejected before it observed its replicas;
/// - the receipt of an action was deleted, but the action could start nevertheless;
/// - another client removed a ledger from the Deployment, but not from its ReplicaSet.
const BROKEN_BEFORE: [u64; 16] = [
    1_009_778,
    2_000_889,
    1_011_648,
    300_024,
    50_255,
    50_672,
    100_293,
    2_005_339,
    1_795_269_333,
    1_795_293_423,
    1_795_294_895,
    5_000_003_766,
    5_000_005_013,
    7_000_000_475,
    9_840_007_124,
    9_860_002_950,
];

/// Seeds that reveal a fault again when its fix is reverted; each was verified. The faults:
/// - two concurrent effects were rejected, and the consequences of the first rejection were not handled;
/// - a delete used the surplus of another action, which proves nothing about its own pod;
/// - a delete lowered the replicas before the mark on a Ready surplus could reach the ReplicaSet controller.
const ONCE_BROKEN: [u64; 3] = [1_795_497_372, 1_795_505_282, 1_795_670_413];

/// The same with applications. The faults:
/// - a move whose other replicas could not begin recorded the same status for ever;
/// - two applications moved each replica ten times in opposite directions.
const ONCE_BROKEN_WITH_APPLICATIONS: [u64; 2] = [7_100_001_366, 7_100_000_509];

/// The same in clusters that are almost full. The faults: a pod with a priority preempted others because
/// - the new pods of two replicas took one free place, each planned as if it were alone;
/// - the new pod of another replica took the only node that the pod may use;
/// - a new pod that had waited for room took it at the same time.
const ONCE_BROKEN_WHEN_CROWDED: [u64; 7] = [6_000_000_257, 169, 28, 70_000_024, 880_000_009, 990_000_110, 70_000_217];

/// Situations without disturbance in which this operator breaks a rule, with the rule.
fn calm(flaw: Flaw) -> impl Iterator<Item = (Setup, &'static str)> {
    (0..CALM_RUNS).map(Setup::calm).filter_map(move |mut setup| {
        if flaw == Flaw::TreatsAsReady {
            setup.replacements = (1000, Fate::Slow(30));
        }
        let violation = campaign::guarded(&setup, flaw, false).violation?;
        Some((setup, violation.rule))
    })
}

/// Without disturbance, the operator breaks no rule.
#[test]
fn nothing_breaks_in_calm_situations() {
    if let Some((setup, _)) = calm(Flaw::None).next() {
        panic!("{}", campaign::explain(&setup, Flaw::None));
    }
}

/// Every flaw must be detected, by the rule that is meant for it.
#[test]
fn every_flaw_is_caught() {
    for (flaw, rules) in [
        (Flaw::EvictFirst, &["BlindEviction"][..]),
        (Flaw::TreatsAsReady, &["ServingBelowAsked"]),
        (Flaw::NoMark, &["InnocentDied"]),
        (Flaw::ActsBeforeRecord, &["NoIntent"]),
        (Flaw::EvictsAnother, &["EvictedTooMany"]),
        (Flaw::Scales, &["ServingBelowAsked", "ScaledTooMuch"]),
        (Flaw::KeepsFinalizer, &["LeftBehind"]),
        (Flaw::MarksAnyPod, &["NotEnded", "NotSoSucceeded", "InnocentDied", "ServingBelowAsked"]),
        (Flaw::Idle, &["NotEnded"]),
        (Flaw::ClaimsSuccess, &["NotSoSucceeded"]),
        (Flaw::NoLimits, &["OverLimit"]),
    ] {
        let mut seen = BTreeMap::new();
        let caught = calm(flaw).any(|(_, found)| {
            *seen.entry(found).or_insert(0) += 1;
            rules.contains(&found)
        });
        assert!(caught, "{flaw:?} never shows as {rules:?}, but as {seen:?}");
    }
}

/// Every script must end as it states.
#[test]
fn scripts_end_as_they_say() {
    let wrong: Vec<String> = scripts::ALL.iter().filter_map(|script| stage::play(script).err()).collect();
    assert!(wrong.is_empty(), "{} of {} scripts\n{}", wrong.len(), scripts::ALL.len(), wrong.join("\n"));
}

/// Without completion, the budget would reject every eviction for two minutes.
#[test]
fn an_eviction_that_was_granted_and_not_carried_out_is_completed() {
    let guarded = scripts::ALL.iter().filter(|script| script.budget.is_some());
    let mut count = 0;
    for script in guarded.filter(|script| script.end.reason == Some("Succeeded") && script.then.is_empty()) {
        let seconds = stage::play_interrupted(script);
        assert!(seconds < 60, "{} took {seconds} s", script.name);
        count += 1;
    }
    assert!(count > 1);
}

#[test]
fn holds_where_it_once_broke() {
    let plain = ONCE_BROKEN.into_iter().chain(BROKEN_BEFORE).map(|seed| (seed, Setup::random(seed)));
    let with_applications = ONCE_BROKEN_WITH_APPLICATIONS.map(|seed| (seed, Setup::with_applications(seed)));
    let crowded = ONCE_BROKEN_WHEN_CROWDED.map(|seed| (seed, Setup::crowded(seed)));
    for (seed, setup) in plain.chain(with_applications).chain(crowded) {
        if campaign::guarded(&setup, Flaw::None, false).violation.is_some() {
            panic!("seed {seed}: {}", campaign::explain(&setup, Flaw::None));
        }
    }
}

/// Runs random situations until the budget is used up.
#[test]
fn holds_in_random_situations() {
    hunt(Setup::random);
}

/// The same, with one or two applications that leave some nodes.
#[test]
fn holds_in_random_situations_with_applications() {
    hunt(Setup::with_applications);
}

/// The same, with pods that kubelets reject or end, images that are late, finalizers on pods, webhooks that fail, and
/// preemption.
#[test]
fn holds_in_random_situations_with_troubles() {
    hunt(Setup::with_troubles);
}

/// In a cluster that is almost full, a pod with a priority preempts as soon as no node has room for it.
#[test]
fn nobody_is_preempted_for_pods_in_between() {
    hunt(Setup::crowded);
}

fn hunt(situation: fn(u64) -> Setup) {
    let base = campaign::base_seed();
    println!("GANGLION_MODEL_SEED={base}");
    let report = campaign::campaign(base, Flaw::None, situation);
    let speed = report.steps as f64 / report.seconds;
    println!("{} runs, {} steps, {speed:.0} steps per second", report.runs, report.steps);
    println!("ends: {:?}", report.ends);
    println!("broken: {:?}", report.broken);
    let all: Vec<String> = report
        .broken
        .iter()
        .map(|(rule, seeds)| {
            let text = campaign::explain(&situation(seeds[0]), Flaw::None);
            format!("{rule} broken {} times; seed {}: {text}", seeds.len(), seeds[0])
        })
        .collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
}
