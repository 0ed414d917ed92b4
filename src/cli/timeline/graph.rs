//! The values of one metric against its levels, as lines of characters.

use jiff::Timestamp;

use super::model::{ShownLevel, Timeline, ValueSeries};
use super::scale::{TimeScale, ValueScale};
use super::width::{columns as columns_of, fit};

/// Rows of the plot.
const ROWS: usize = 7;

/// Columns for the values on the left.
const LEFT: usize = 10;

/// Columns for the names of the levels on the right.
const RIGHT: usize = 14;

/// A plot with a dot for each known value; nothing is drawn between two values. Solid lines are levels while they are
/// known to be in effect, dotted ones before that. Empty if no level and less than two values are known.
pub fn graph(series: &ValueSeries, timeline: &Timeline, width: usize) -> String {
    let levels: Vec<&ShownLevel> = timeline.levels.iter().filter(|level| level.metric == series.name).collect();
    if series.points.len() < 2 && levels.is_empty() {
        return String::new();
    }
    let columns = width.saturating_sub(LEFT + RIGHT + 2).max(8);
    let scale = ValueScale::of(&series.points, &levels);
    let time = TimeScale { start: timeline.start, end: timeline.end };
    let column = |at: Timestamp| (time.part(at) * (columns - 1) as f64).round() as usize;
    let row = |value: f64| ((1.0 - scale.part(value)) * (ROWS - 1) as f64).round() as usize;
    let mut rows = vec![vec![' '; columns]; ROWS];
    let mut labels = vec![String::new(); ROWS];
    for level in &levels {
        let at = row(level.value);
        let known = level.since.map_or(columns, column);
        for (index, cell) in rows[at].iter_mut().enumerate() {
            *cell = if index < known { '┄' } else { '─' };
        }
        let gap = if labels[at].is_empty() { "" } else { ", " };
        labels[at].push_str(&format!("{gap}{}", level.label()));
    }
    for point in &series.points {
        rows[row(point.value)][column(point.at).min(columns - 1)] = '●';
    }
    let mut out = format!("{}\n", fit(&super::model::plain(&series.name), width));
    for (index, cells) in rows.iter().enumerate() {
        let value = match index {
            0 => scale.high_text(),
            _ if index == ROWS - 1 => scale.low_text(),
            _ => "",
        };
        let cells: String = cells.iter().collect();
        let label = fit(&labels[index], RIGHT);
        let indent = " ".repeat(LEFT.saturating_sub(columns_of(value)));
        out.push_str(format!("{indent}{value} {cells} {label}").trim_end());
        out.push('\n');
    }
    out.push_str(&axis(time, columns));
    out
}

/// The first and the last time below the plot.
fn axis(time: TimeScale, columns: usize) -> String {
    let (first, last) = (time.label(time.start), time.label(time.end));
    let gap = columns.saturating_sub(first.len() + last.len()).max(1);
    format!("{} {first}{}{last}\n", " ".repeat(LEFT), " ".repeat(gap))
}
