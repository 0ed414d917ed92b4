//! The report of a comparison: what ours loses, one table, the figures as CSV, and a picture.

mod picture;

use comfy_table::{Cell, CellAlignment, Table, presets};

pub use picture::picture;

use crate::cluster::{MEASURES, MeasureKind};
use crate::contender::BASELINE;
use crate::ground::FleetResult;
use crate::statistics::RelativeChange;

/// Change from which on a loss is named.
const NAMED: f64 = 0.02;

/// Figures of the table: those that say whether a cluster is better.
const SHOWN: [MeasureKind; 10] = [
    MeasureKind::Shortage,
    MeasureKind::Overload,
    MeasureKind::EnergyPerWork,
    MeasureKind::EnergyPerWorkSwitched,
    MeasureKind::Work,
    MeasureKind::Pending,
    MeasureKind::Moves,
    MeasureKind::Replicas,
    MeasureKind::Reaction,
    MeasureKind::Inlet,
];

/// The figures in which a contender of ours is worse than the baseline by more than 2 %, one line each. A figure of
/// which the baseline has nothing is named by its value.
pub fn losses(results: &[FleetResult]) -> Vec<String> {
    let mut losses = Vec::new();
    for result in results {
        for (contender, _) in result.runs.iter().filter(|(contender, _)| contender.is_ours()) {
            for kind in MEASURES {
                if let Some(loss) = loss(result, &contender.name, kind) {
                    losses.push(format!("{}, {}: {} {loss}", result.fleet, contender.name, kind.name()));
                }
            }
        }
    }
    losses
}

fn loss(result: &FleetResult, contender: &str, kind: MeasureKind) -> Option<String> {
    match result.change(contender, kind) {
        Some(change) => {
            let is_worse = if kind.is_cost() { change.mean > NAMED } else { change.mean < -NAMED };
            is_worse.then(|| percent(&change))
        }
        None => {
            let value = result.mean(contender, kind);
            (kind.is_cost() && value > 0.0).then(|| format!("{} instead of 0", amount(value, kind)))
        }
    }
}

/// The table: a row for each contender on each fleet. The baseline has its values, the others their changes, in
/// parentheses if their interval has 0.
pub fn table(results: &[FleetResult]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(["fleet", "contender"].into_iter().chain(SHOWN.map(MeasureKind::name)));
    for result in results {
        for (contender, _) in &result.runs {
            let cells = SHOWN.map(|kind| {
                let text = cell(result, &contender.name, kind);
                Cell::new(text).set_alignment(CellAlignment::Right)
            });
            table.add_row([Cell::new(&result.fleet), Cell::new(&contender.name)].into_iter().chain(cells));
        }
    }
    table
}

fn cell(result: &FleetResult, contender: &str, kind: MeasureKind) -> String {
    let value = amount(result.mean(contender, kind), kind);
    match result.change(contender, kind) {
        Some(_) if contender == BASELINE => value,
        Some(RelativeChange { mean, low, high }) => {
            let text = format!("{:+.1} %", mean * 100.0);
            if low <= 0.0 && high >= 0.0 { format!("({text})") } else { text }
        }
        None => value,
    }
}

/// A change with its interval, such as "-8.1 % (-9.0 to -7.2)".
fn percent(change: &RelativeChange) -> String {
    let [mean, low, high] = [change.mean, change.low, change.high].map(|part| part * 100.0);
    format!("{mean:+.1} % ({low:+.1} to {high:+.1})")
}

fn amount(value: f64, kind: MeasureKind) -> String {
    format!("{} {}", rounded(value), kind.unit()).trim_end().to_owned()
}

/// Rounds to three significant digits.
fn rounded(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// All figures as CSV: fleet, contender, figure, unit, mean, and the change with its interval, empty if there is none.
pub fn figures(results: &[FleetResult]) -> String {
    let mut lines = "fleet,contender,figure,unit,mean,change,low,high\n".to_owned();
    for result in results {
        for (contender, _) in &result.runs {
            for kind in MEASURES {
                let change = match result.change(&contender.name, kind) {
                    Some(RelativeChange { mean, low, high }) => format!("{mean:.6},{low:.6},{high:.6}"),
                    None => ",,".to_owned(),
                };
                // Names of figures have commas.
                let figure = kind.name().replace(',', ";");
                let (fleet, name, mean) = (&result.fleet, &contender.name, result.mean(&contender.name, kind));
                lines += &format!("{fleet},{name},{figure},{},{mean:.6},{change}\n", kind.unit());
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests;
