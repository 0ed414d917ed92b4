//! Runs random situations until the time budget is used up, and reduces each failing one to a small situation.
//!
//! `GANGLION_MODEL_SEED` is the base seed. It is run first, so setting it replays a failing seed.
//! `GANGLION_MODEL_SECONDS` and `GANGLION_MODEL_STEPS` limit the campaign. `GANGLION_MODEL_KEEP` continues after a
//! failure, and counts each broken rule.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::check::Violation;
use crate::cluster::foreign::Act;
use crate::driver::{Done, run};
use crate::operator::flaw::Flaw;
use crate::setup::{Setup, Timed};

/// Time budget of a plain `cargo test`, in seconds.
const DEFAULT_SECONDS: u64 = 20;

/// Time after which a failing situation is not reduced any further. A run with an endless loop takes seconds.
const REDUCED_IN: Duration = Duration::from_secs(60);

/// Number of interleavings tried for each smaller situation.
const TRIES: u64 = 12;

#[derive(Debug, Default)]
pub struct Report {
    pub runs: u64,
    pub steps: u64,
    pub seconds: f64,
    pub ends: BTreeMap<String, usize>,
    /// Failing seeds by broken rule.
    pub broken: BTreeMap<&'static str, Vec<u64>>,
}

pub fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Base seed from the environment, or else from the clock.
pub fn base_seed() -> u64 {
    let moment = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |now| now.as_secs());
    variable("GANGLION_MODEL_SEED").unwrap_or_else(moment)
}

/// Runs a situation, and turns a panic into a violation.
pub fn guarded(setup: &Setup, flaw: Flaw, trace: bool) -> Done {
    catch_unwind(AssertUnwindSafe(|| run(setup, flaw, trace))).unwrap_or_else(|panic| {
        let text =
            panic.downcast_ref::<String>().cloned().or(panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let violation = Violation { rule: "Panic", text: text.unwrap_or_default() };
        Done { violation: Some(violation), ..Done::default() }
    })
}

/// Runs seeds from `base` on, until the budget is used up, or until a rule is broken and `keep` is not set.
pub fn campaign(base: u64, flaw: Flaw, situation: fn(u64) -> Setup) -> Report {
    let seconds = Duration::from_secs(variable("GANGLION_MODEL_SECONDS").unwrap_or(DEFAULT_SECONDS));
    let steps = variable("GANGLION_MODEL_STEPS").unwrap_or(u64::MAX);
    let keep = variable("GANGLION_MODEL_KEEP").is_some();
    let begin = Instant::now();
    let mut report = Report::default();
    for seed in base.. {
        if begin.elapsed() >= seconds || report.steps >= steps {
            break;
        }
        let done = guarded(&situation(seed), flaw, false);
        report.runs += 1;
        report.steps += done.steps;
        for (end, count) in done.ends {
            *report.ends.entry(end).or_default() += count;
        }
        if let Some(violation) = done.violation {
            report.broken.entry(violation.rule).or_default().push(seed);
            if !keep {
                break;
            }
        }
    }
    report.seconds = begin.elapsed().as_secs_f64();
    report
}

/// Smallest situation found in [`REDUCED_IN`] that still breaks the same rule.
pub fn shrink(setup: &Setup, rule: &str, flaw: Flaw) -> Setup {
    let begin = Instant::now();
    let mut small = setup.clone();
    let mut again = true;
    while again {
        again = false;
        for smaller in smaller(&small) {
            if begin.elapsed() > REDUCED_IN {
                return small;
            }
            if let Some(failing) = still_fails(&smaller, rule, flaw) {
                small = failing;
                again = true;
                break;
            }
        }
    }
    small
}

fn still_fails(setup: &Setup, rule: &str, flaw: Flaw) -> Option<Setup> {
    (0..TRIES).find_map(|shift| {
        let mut setup = setup.clone();
        setup.seed = setup.seed.wrapping_add(shift);
        let done = guarded(&setup, flaw, false);
        done.violation.is_some_and(|violation| violation.rule == rule).then_some(setup)
    })
}

/// All ways to make a situation smaller by one element.
fn smaller(setup: &Setup) -> Vec<Setup> {
    let mut all = Vec::new();
    let mut add = |edit: &dyn Fn(&mut Setup)| {
        let mut one = setup.clone();
        edit(&mut one);
        all.push(one);
    };
    for index in 0..setup.acts.len() {
        add(&|one| {
            one.acts.remove(index);
        });
    }
    if setup.workloads.len() > 1 {
        add(&|one| {
            one.workloads.pop();
        });
    }
    for index in 0..setup.pace.len() {
        let name = format!("{:?}", setup.pace[index].0);
        if ["Crash", "Cut", "LoseAnswer", "Refuse", "Leap"].iter().any(|word| name.contains(word)) {
            add(&|one| {
                one.pace.remove(index);
            });
        }
    }
    if setup.limits != Default::default() {
        add(&|one| one.limits = Default::default());
    }
    if setup.replacements.0 > 0 {
        add(&|one| one.replacements.0 = 0);
    }
    if setup.linger.0 > 0 {
        add(&|one| one.linger.0 = 0);
    }
    if setup.workloads.iter().any(|workload| !workload.budgets.is_empty()) {
        add(&|one| one.workloads.iter_mut().for_each(|workload| workload.budgets.clear()));
    }
    if setup.nodes.len() > 2 {
        add(&|one| {
            one.nodes.pop();
        });
    }
    for index in 0..setup.workloads.len() {
        if setup.workloads[index].replicas > 1 {
            add(&|one| one.workloads[index].replicas -= 1);
        }
    }
    if setup.steps > 100 {
        add(&|one| one.steps = one.steps * 3 / 4);
    }
    all
}

/// Describes a failing situation, with its trace.
pub fn explain(setup: &Setup, flaw: Flaw) -> String {
    let Some(violation) = guarded(setup, flaw, false).violation else { return "no rule is broken".to_owned() };
    let small = shrink(setup, violation.rule, flaw);
    let done = guarded(&small, flaw, true);
    let mut text = format!("{}: {}\n", violation.rule, violation.text);
    let _ = writeln!(text, "made smaller: {:?}", done.violation);
    for workload in &small.workloads {
        let _ = writeln!(text, "{workload:?}");
    }
    let _ = writeln!(text, "{:?}, replacements {:?}, linger {:?}", small.limits, small.replacements, small.linger);
    for Timed { at, act, .. } in &small.acts {
        let _ = match act {
            Act::Apply(name, spec) => {
                writeln!(text, "at {at}: apply {name} {}", serde_json::to_string(spec).unwrap_or_default())
            }
            other => writeln!(text, "at {at}: {other:?}"),
        };
    }
    for (number, line) in done.lines.iter().enumerate() {
        let _ = writeln!(text, "{number:5} {line}");
    }
    text
}
