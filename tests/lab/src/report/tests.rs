//! The report of made-up runs.

use super::{figures, losses, picture, table};
use crate::cluster::RunMeasures;
use crate::contender::{BASELINE, Contender};
use crate::ground::FleetResult;

/// A baseline and one of ours with these figures, by position in `MEASURES`.
fn result(baseline: &[[f64; 13]], ours: &[[f64; 13]]) -> FleetResult {
    let all = Contender::all();
    let named = |name: &str| all.iter().find(|contender| contender.name == name).unwrap().clone();
    let runs = |values: &[[f64; 13]]| values.iter().copied().map(RunMeasures::new).collect();
    FleetResult {
        fleet: "mixed".to_owned(),
        runs: vec![(named(BASELINE), runs(baseline)), (named("power + HPA"), runs(ours))],
    }
}

fn example() -> Vec<FleetResult> {
    let baseline = [10.0, 20.0, 30.0, 30.0, 100.0, 100.0, 50.0, 2.0, 0.0, 0.0, 40.0, 60.0, 25.0];
    let mut ours = baseline;
    // Twice the missing CPU, a tenth less energy, a tenth less work, and a move.
    (ours[0], ours[2], ours[6], ours[8]) = (20.0, 27.0, 45.0, 1.0);
    vec![result(&[baseline, baseline], &[ours, ours])]
}

#[test]
fn losses_are_named() {
    assert_eq!(
        losses(&example()),
        [
            "mixed, power + HPA: missing CPU +100.0 % (+100.0 to +100.0)",
            "mixed, power + HPA: work -10.0 % (-10.0 to -10.0)",
            "mixed, power + HPA: moves 1 instead of 0",
        ]
    );
}

#[test]
fn the_table_has_values_of_the_baseline_and_changes_of_others() {
    let text = table(&example()).to_string();
    let rows: Vec<&str> = text.lines().filter(|line| line.contains("mixed")).collect();
    assert!(rows[0].contains("10 core h") && rows[0].contains("100 Wh per core h"), "{text}");
    assert!(rows[1].contains(" +100.0 % ") && rows[1].contains(" (+0.0 %) "), "{text}");
}

#[test]
fn all_figures_are_in_the_file() {
    let text = figures(&example());
    assert_eq!(text.lines().count(), 1 + 2 * 13);
    assert!(text.contains("mixed,power + HPA,energy,kWh,27.000000,-0.100000,-0.100000,-0.100000\n"), "{text}");
    assert!(text.contains("mixed,power + HPA,moves,,1.000000,,,\n"), "{text}");
    assert!(text.lines().all(|line| line.split(',').count() == 8), "{text}");
    assert!(Contender::all().iter().all(|contender| !contender.name.contains(',')));
}

#[test]
fn the_picture_has_all_contenders() {
    let svg = picture(&example()).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert!(svg.contains("fleet mixed") && svg.contains("power + HPA"), "{svg}");
}
