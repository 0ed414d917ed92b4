//! The replays of two loops side by side.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::ShownReplay;
use super::text::{LISTED, alarm_name, basis, folded, left_out_text, limits, outcome, seconds, unknown};
use ganglion_core::layout::{clock, table};
use ganglion_loops_plan::replay::ReplayReport;

/// Rows by name: one value for each replay.
#[derive(Default)]
struct ComparedRows {
    names: Vec<String>,
    values: BTreeMap<String, Vec<String>>,
}

impl ComparedRows {
    fn set(&mut self, name: String, index: usize, replays: usize, value: String) {
        if !self.values.contains_key(&name) {
            self.names.push(name.clone());
        }
        let values = self.values.entry(name).or_insert_with(|| vec!["-".to_owned(); replays]);
        values[index] = value;
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let row = |name: &String| [vec![name.clone()], self.values[name].clone()].concat();
        self.names.iter().map(row).collect()
    }
}

/// The text of the terminal.
pub fn text(shown: &[ShownReplay]) -> String {
    let mut text = String::new();
    for (letter, one) in letters(shown) {
        text += &format!("{letter}: ClosedLoop {} of {}\n{}", one.report.name, one.file, basis(one));
    }
    let header = |first: &str| {
        let letters = letters(shown).map(|(letter, _)| letter.to_string());
        [first.to_owned()].into_iter().chain(letters).collect::<Vec<_>>()
    };
    text += &format!("\nTOTALS\n{}", table(header("NUMBER OR TIME"), totals(shown)));
    let mut decisions = decisions(shown);
    let left_out = decisions.len().saturating_sub(LISTED);
    decisions.drain(..left_out);
    text += &format!("\nDECISIONS\n{}{}", left_out_text(left_out), table(header("TIME"), decisions));
    for (letter, one) in letters(shown) {
        text += &format!("\n{letter}:{}{}", unknown(&one.report), limits(&one.report));
    }
    text
}

fn letters(shown: &[ShownReplay]) -> impl Iterator<Item = (char, &ShownReplay)> {
    ('A'..).zip(shown)
}

fn totals(shown: &[ShownReplay]) -> Vec<Vec<String>> {
    let mut rows = ComparedRows::default();
    for (index, one) in shown.iter().enumerate() {
        for (name, value) in named_totals(&one.report) {
            rows.set(name, index, shown.len(), value);
        }
    }
    rows.rows()
}

/// Numbers and times of a replay, with their names.
fn named_totals(report: &ReplayReport) -> Vec<(String, String)> {
    let totals = &report.totals;
    let counts = [
        ("decisions", totals.decisions),
        ("carried out", totals.served),
        ("in mode DryRun", totals.dry_run),
        ("at a bound", totals.limited),
        ("failed", totals.failed),
        ("withdrawn", totals.withdrawn),
        ("not approved", totals.proposed),
        ("reversals", totals.reversals),
    ];
    let mut all: Vec<(String, String)> =
        counts.iter().map(|(name, count)| ((*name).to_owned(), count.to_string())).collect();
    let starved = if report.starved.is_empty() { "none".to_owned() } else { report.starved.join(", ") };
    all.push(("starved metrics".to_owned(), starved));
    all.extend(report.alarms.iter().map(|alarm| {
        let times = format!("{} beyond, {} raised", seconds(alarm.beyond_seconds), seconds(alarm.raised_seconds));
        (alarm_name(alarm), times)
    }));
    all.extend(report.held.iter().map(|held| {
        let name = format!("{} not served: {}", held.when, held.reason);
        (name, format!("{} times, {}", held.times, seconds(held.seconds)))
    }));
    all
}

/// One row for each time at which one of them decided.
fn decisions(shown: &[ShownReplay]) -> Vec<Vec<String>> {
    let mut by_time: BTreeMap<Timestamp, Vec<Vec<String>>> = BTreeMap::new();
    for (index, one) in shown.iter().enumerate() {
        for row in folded(&one.report.decisions) {
            let decision = row.decision;
            let words = format!("{}: {} {}", decision.when, row.change(), outcome(decision));
            by_time.entry(decision.at).or_insert_with(|| vec![Vec::new(); shown.len()])[index].push(words);
        }
    }
    let cell = |words: Vec<String>| if words.is_empty() { "-".to_owned() } else { words.join("; ") };
    let row = |(at, cells): (Timestamp, Vec<Vec<String>>)| {
        [clock(at)].into_iter().chain(cells.into_iter().map(cell)).collect::<Vec<String>>()
    };
    by_time.into_iter().map(row).collect()
}
