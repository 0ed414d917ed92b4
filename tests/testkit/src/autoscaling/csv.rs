//! Loads from a CSV file.

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;

use super::load::{DemandSeries, STEP_SECONDS};

/// Maximum time between the first and the last row, in seconds: two years.
const MAX_SPAN: f64 = 2.0 * 366.0 * 86_400.0;

/// Time for which a value counts, relative to the usual time between two rows.
const HOLD: f64 = 2.0;

struct CsvRow {
    /// Seconds since 1970.
    time: f64,
    value: Option<f64>,
}

impl DemandSeries {
    /// Reads rows of two columns, time and value. Times rise; they are seconds since 1970, or RFC 3339. The first line
    /// may be a header. A value without a number is unknown. A value counts until the next row, for at most twice the
    /// usual time between two rows. `target`: value for each replica; by default, a fiftieth of the largest value.
    pub fn from_csv(text: &str, target: Option<f64>) -> Result<Self> {
        let mut rows: Vec<CsvRow> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            if line.trim().is_empty() || (number == 1 && is_header(line)) {
                continue;
            }
            let row = row(line).with_context(|| format!("line {number}"))?;
            let is_later = rows.last().is_none_or(|last| row.time > last.time);
            ensure!(
                is_later,
                "line {number}, field time: not later than that of the line before; sort the rows by time"
            );
            rows.push(row);
        }
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { bail!("no rows of time,value") };
        let span = last.time - first.time;
        ensure!(rows.len() > 1, "one row only: a load needs some days");
        ensure!(
            span <= MAX_SPAN,
            "{:.0} days between the first and the last row: use two years or less",
            span / 86_400.0
        );
        let largest = rows.iter().filter_map(|row| row.value).fold(0.0, f64::max);
        let target = target.unwrap_or(largest / 50.0);
        ensure!(target > 0.0 && target.is_finite(), "the value for each replica is {target}: use a number above 0");
        Ok(Self { steps: steps(&rows, target) })
    }
}

fn is_header(line: &str) -> bool {
    let starts_with_digit =
        |field: &str| field.trim().starts_with(|first: char| first.is_ascii_digit() || first == '-');
    !line.split(',').any(starts_with_digit)
}

fn row(line: &str) -> Result<CsvRow> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [time, value] = fields[..] else { bail!("{} fields: write time,value", fields.len()) };
    let time = match (time.parse::<f64>(), time.parse::<Timestamp>()) {
        (Ok(seconds), _) if seconds.abs() < 1e11 => seconds,
        (_, Ok(time)) => time.as_second() as f64,
        (Ok(_) | Err(_), Err(_)) => {
            bail!(
                "field time: {time:?} is neither a number of seconds since 1970 nor a time such as 2026-11-28T10:00:00Z"
            )
        }
    };
    if value.is_empty() {
        return Ok(CsvRow { time, value: None });
    }
    match value.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(CsvRow { time, value: Some(number) }),
        Ok(_) | Err(_) => bail!("field value: {value:?} is not a number of 0 or more; leave it empty if it is unknown"),
    }
}

/// Demand at each step from the first row to the last one.
fn steps(rows: &[CsvRow], target: f64) -> Vec<Option<f64>> {
    let mut distances: Vec<f64> =
        rows.iter().zip(rows.iter().skip(1)).map(|(row, next)| next.time - row.time).collect();
    distances.sort_by(f64::total_cmp);
    let usual = distances.get(distances.len() / 2).copied().unwrap_or_default();
    let hold = HOLD * usual.max(STEP_SECONDS as f64);
    let mut steps = Vec::new();
    let mut rows = rows.iter().peekable();
    let Some(mut current) = rows.next() else { return steps };
    let mut time = current.time;
    loop {
        while let Some(next) = rows.next_if(|next| next.time <= time) {
            current = next;
        }
        steps.push(current.value.filter(|_| time - current.time <= hold).map(|value| value / target));
        if rows.peek().is_none() {
            return steps;
        }
        time += STEP_SECONDS as f64;
    }
}
