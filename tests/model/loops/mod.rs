//! Closed loops in the model: the real controllers on an API server in memory that answers at arbitrary times.
//!
//! `GANGLION_MODEL_SEED`, `GANGLION_MODEL_SECONDS` and `GANGLION_MODEL_KEEP` have the same meaning as for the campaign
//! of actions.

mod api;
mod driver;
mod flaw;
mod invariants;
mod process;
mod replayed;
mod rest;
mod setup;
mod watch;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::campaign::{base_seed, variable};
use crate::check::Violation;
use driver::{Done, run};
use flaw::Flaw;
use setup::Setup;

/// Time budget of a plain `cargo test`, in seconds.
const DEFAULT_SECONDS: u64 = 6;

/// Number and length of the situations in which a flaw must be detected.
const FLAW_RUNS: u64 = 100;
const FLAW_STEPS: usize = 1000;

/// Seeds that revealed a fault once, in this order:
/// - a restart wrote a generation;
/// - a dead process wrote late to a recreated child;
/// - an expired reason was reported;
/// - a loop that was already gone left a child;
/// - a process started just before the loop's status was due;
/// - a Decision was recreated after one without an effect;
/// - a Decision was created while there was no Monitoring;
/// - a late write reverted Monitoring's status;
/// - a loop was deleted in the middle of a pass;
/// - a restart forgot the sample of the last decision;
/// - two samples had the same number;
/// - a dwell was counted from a decision instead of its end, because the clock was set back;
/// - samples of a recreated Monitoring looked older than those of its predecessor;
/// - a Decision was considered deleted, because the 404 answer arrived after its re-creation;
/// - a second decision of one pass was claimed on the state of the target before the first.
const ONCE_BROKEN: [u64; 15] = [
    1_795_503_539,
    113,
    7016,
    244,
    408,
    36,
    900_328,
    900_340,
    6_000_000_019,
    6_000_000_030,
    6_000_000_243,
    6_000_000_679,
    6_000_000_690,
    6_000_001_009,
    7_000_000_267,
];

fn guarded(setup: &Setup, flaw: Flaw, trace: bool) -> Done {
    catch_unwind(AssertUnwindSafe(|| run(setup, flaw, trace))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
        Done { violation: Some(Violation { rule: "Panic", text }), ..Done::default() }
    })
}

/// Describes a failing seed, with the shortest run that still fails, and its trace.
fn explain(seed: u64, violation: &Violation) -> String {
    let mut setup = Setup::random(seed);
    let breaks =
        |setup: &Setup| guarded(setup, Flaw::None, false).violation.is_some_and(|found| found.rule == violation.rule);
    for share in [10, 5, 3, 2] {
        let shorter = Setup { steps: setup.steps / share, ..setup.clone() };
        if breaks(&shorter) {
            setup = shorter;
            break;
        }
    }
    while setup.steps > 0 {
        let shorter = Setup { steps: setup.steps - 1 - setup.steps / 20, ..setup.clone() };
        if !breaks(&shorter) {
            break;
        }
        setup = shorter;
    }
    let done = guarded(&setup, Flaw::None, true);
    format!("seed {seed}: {violation:?}\nshortened: {:?}\n{}\n{}", done.violation, setup.fast, done.lines.join("\n"))
}

/// Every flaw must be detected, by the rule that is meant for it.
#[test]
fn every_flaw_of_a_loop_is_caught() {
    for (flaw, rules) in [
        (Flaw::SkipsClaim, &["NoIntent"][..]),
        (Flaw::Careless, &["BlindAct", "TwoEffects"]),
        (Flaw::ForgetsDwell, &["Dwell", "Budget"]),
        (Flaw::CountsLimited, &["ServedTooMuch"]),
        (Flaw::CountsProposals, &["NothingDone"]),
        (Flaw::ReadsZero, &["UnknownLowers", "InventedValue"]),
        (Flaw::KeepsValues, &["InventedValue"]),
        (Flaw::Rejuvenates, &["InventedValue"]),
        (Flaw::TrustsSenders, &["SenderTime"]),
        (Flaw::WritesSpec, &["WroteSpec"]),
        (Flaw::Exceeds, &["NoIntent", "OutOfBounds"]),
        (Flaw::ClaimsSuccess, &["FalseDone"]),
        (Flaw::Restless, &["NoRest"]),
        (Flaw::ForgetsSequence, &["WentBack"]),
        (Flaw::Deaf, &["NotDecided"]),
        (Flaw::TrustsOthers, &["StaleClaim", "BlindDecision"]),
        (Flaw::Oversleeps, &["NotDecided", "RestlessStart", "Unfinished", "Untrue"]),
    ] {
        let mut seen = BTreeMap::new();
        let caught = (0..FLAW_RUNS).any(|seed| {
            let setup = Setup::random(seed);
            let setup = Setup { steps: setup.steps.min(FLAW_STEPS), ..setup };
            let found = guarded(&setup, flaw, false).violation;
            let rule = found.map_or("nothing", |violation| violation.rule);
            *seen.entry(rule).or_insert(0) += 1;
            rules.contains(&rule)
        });
        assert!(caught, "{flaw:?} never shows as {rules:?}, but as {seen:?}");
    }
}

#[test]
fn loops_hold_where_they_once_broke() {
    for seed in ONCE_BROKEN {
        if let Some(violation) = guarded(&Setup::random(seed), Flaw::None, false).violation {
            panic!("{}", explain(seed, &violation));
        }
    }
}

/// Runs random situations until the budget is used up.
#[test]
fn loops_hold_in_random_situations() {
    let base = base_seed();
    println!("GANGLION_MODEL_SEED={base}");
    let budget = Duration::from_secs(variable("GANGLION_MODEL_SECONDS").unwrap_or(DEFAULT_SECONDS));
    let keep = variable("GANGLION_MODEL_KEEP").is_some();
    let begun = Instant::now();
    let (mut runs, mut steps, mut decisions) = (0, 0, 0);
    let mut broken: BTreeMap<&str, Vec<(u64, Violation)>> = BTreeMap::new();
    for seed in base.. {
        if begun.elapsed() >= budget || (!keep && !broken.is_empty()) {
            break;
        }
        let done = guarded(&Setup::random(seed), Flaw::None, false);
        (runs, steps, decisions) = (runs + 1, steps + done.steps, decisions + done.decisions);
        if let Some(violation) = done.violation {
            broken.entry(violation.rule).or_default().push((seed, violation));
        }
    }
    let speed = steps as f64 / begun.elapsed().as_secs_f64();
    println!("{runs} runs, {steps} steps, {speed:.0} a second, {decisions} decisions");
    assert!(decisions > 0, "no decision was made");
    let all = broken.iter().map(|(rule, seeds)| {
        let (seed, violation) = &seeds[0];
        format!("{rule} broken {} times\n{}", seeds.len(), explain(*seed, violation))
    });
    let all: Vec<String> = all.collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
}
