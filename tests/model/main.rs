//! The model: WorkloadActions on a small simulated cluster, faster than the world and less kind.

mod campaign;
mod check;
mod cluster;
mod driver;
mod operator;
mod random;
mod setup;

use operator::Real;

/// Random situations until the budget is used up.
#[test]
fn holds_in_random_situations() {
    let base = campaign::base_seed();
    println!("GANGLION_MODEL_SEED={base}");
    let report = campaign::campaign(base, Real);
    let speed = report.steps as f64 / report.seconds;
    println!("{} runs, {} steps, {speed:.0} steps a second", report.runs, report.steps);
    println!("ends: {:?}", report.ends);
    println!("broken: {:?}", report.broken);
    let all: Vec<String> = report
        .broken
        .iter()
        .map(|(rule, (count, seed))| format!("{rule} broken {count} times\n{}", campaign::explain(*seed, Real)))
        .collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
}
