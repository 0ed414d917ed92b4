//! Metrics as the documentation lists them, and as the operator exports them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};

use crate::root;

/// Page with the table of all metrics, from the root.
pub const PAGE: &str = "config/monitoring/README.md";

/// Units that the name of a metric ends with.
const UNITS: [&str; 6] = ["seconds", "bytes", "celsius", "pascals", "percent", "watts"];

/// Values of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelBound {
    /// A closed set.
    Words(BTreeSet<String>),
    /// At most this number of values.
    AtMost(usize),
    /// A bound that the page describes.
    Described,
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentedMetric {
    pub kind: String,
    /// Unit; None for a number of things.
    pub unit: Option<String>,
    pub labels: BTreeMap<String, LabelBound>,
}

/// A metric in a response to a scrape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportedMetric {
    pub kind: String,
    /// Values of each label.
    pub labels: BTreeMap<String, BTreeSet<String>>,
}

/// The metrics of the page, by the name that queries use. A histogram has the name without `_bucket`.
pub fn documented() -> Result<BTreeMap<String, DocumentedMetric>> {
    read_page(&std::fs::read_to_string(root().join(PAGE))?)
}

/// Reads the table `| metric | type | unit | labels | … |`.
pub fn read_page(text: &str) -> Result<BTreeMap<String, DocumentedMetric>> {
    let mut metrics = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| `ganglion_")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [name, kind, unit, labels, meaning] = cells.as_slice() else { bail!("not five cells: {line}") };
        ensure!(!meaning.is_empty(), "no meaning: {line}");
        let name = name.trim_matches('`').to_owned();
        let unit = (*unit != "–").then(|| (*unit).to_owned());
        let labels = labels.split("; ").filter(|label| *label != "–");
        let labels = labels.map(|label| read_label(label).with_context(|| format!("{name}: label {label:?}")));
        let metric = DocumentedMetric { kind: (*kind).to_owned(), unit, labels: labels.collect::<Result<_>>()? };
        ensure!(metrics.insert(name.clone(), metric).is_none(), "{name} has two rows");
    }
    ensure!(!metrics.is_empty(), "the page has no row that begins with a metric");
    Ok(metrics)
}

/// Reads "`label`: a, b", "`label` ≤ 9", or "`label` (a description)".
fn read_label(text: &str) -> Result<(String, LabelBound)> {
    let (name, rest) = text.strip_prefix('`').and_then(|text| text.split_once('`')).context("no name in backticks")?;
    let bound = match (rest.strip_prefix(": "), rest.strip_prefix(" ≤ ")) {
        (Some(words), _) => LabelBound::Words(words.split(", ").map(str::to_owned).collect()),
        (_, Some(number)) => LabelBound::AtMost(number.parse()?),
        _ if rest.starts_with(" (") => LabelBound::Described,
        _ => bail!("no values, no number and no description"),
    };
    Ok((name.to_owned(), bound))
}

/// Reads a response in the OpenMetrics text format.
pub fn read_scrape(text: &str) -> Result<BTreeMap<String, ExportedMetric>> {
    let mut metrics: BTreeMap<String, ExportedMetric> = BTreeMap::new();
    let (mut current, mut kind) = (String::new(), String::new());
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            let (name, of) = head.split_once(' ').context("no type")?;
            let suffix = match of {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            (current, kind) = (format!("{name}{suffix}"), of.to_owned());
        } else if !line.starts_with('#') {
            ensure!(line.starts_with(&current), "{line}: not a series of {current}");
            let metric = metrics.entry(current.clone()).or_default();
            metric.kind.clone_from(&kind);
            for (label, value) in labels(line)?.into_iter().filter(|(label, _)| label != "le") {
                metric.labels.entry(label).or_default().insert(value);
            }
        }
    }
    Ok(metrics)
}

/// Labels of a line such as `name{a="b",c="d"} 1`. Values that contain quotes are not read.
fn labels(line: &str) -> Result<Vec<(String, String)>> {
    let Some((_, rest)) = line.split_once('{') else { return Ok(Vec::new()) };
    let (inside, _) = rest.rsplit_once("} ").with_context(|| format!("{line}: no end of the labels"))?;
    let pairs = inside.split_terminator("\",").map(|pair| pair.trim_end_matches('"').split_once("=\""));
    let pairs = pairs.map(|pair| pair.map(|(label, value)| (label.to_owned(), value.to_owned())));
    pairs.collect::<Option<_>>().with_context(|| format!("{line}: not labels"))
}

/// Differences of a response from the page: metrics without a row, other types, other labels, and values beyond their
/// bounds.
pub fn differences(
    page: &BTreeMap<String, DocumentedMetric>,
    scrape: &BTreeMap<String, ExportedMetric>,
) -> Vec<String> {
    let mut found = Vec::new();
    for (name, exported) in scrape {
        let Some(row) = page.get(name) else {
            found.push(format!("{name} is not documented"));
            continue;
        };
        if row.kind != exported.kind {
            found.push(format!("{name} is a {}, not a {}", exported.kind, row.kind));
        }
        let (known, seen): (BTreeSet<_>, BTreeSet<_>) = (row.labels.keys().collect(), exported.labels.keys().collect());
        if known != seen {
            found.push(format!("{name} has the labels {seen:?}, not {known:?}"));
        }
        for (label, values) in &exported.labels {
            found.extend(
                row.labels
                    .get(label)
                    .and_then(|bound| beyond(bound, values))
                    .map(|how| format!("{name}, {label}: {how}")),
            );
        }
    }
    found
}

/// Says how values exceed a bound.
fn beyond(bound: &LabelBound, values: &BTreeSet<String>) -> Option<String> {
    match bound {
        LabelBound::Words(words) => {
            let others: Vec<&String> = values.difference(words).collect();
            (!others.is_empty()).then(|| format!("{others:?} is not in the closed set"))
        }
        LabelBound::AtMost(most) => {
            (values.len() > *most).then(|| format!("{} values, more than {most}", values.len()))
        }
        LabelBound::Described => None,
    }
}

/// Names and units that Prometheus' conventions do not allow.
pub fn unconventional(page: &BTreeMap<String, DocumentedMetric>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, DocumentedMetric { kind, unit, .. }) in page {
        let base = match kind.as_str() {
            "counter" => name.strip_suffix("_total"),
            "info" => name.strip_suffix("_info"),
            "gauge" | "histogram" => Some(name.as_str()).filter(|name| !name.ends_with("_total")),
            _ => None,
        };
        let Some(base) = base else {
            found.push(format!("{name}: the suffix is not that of a {kind}"));
            continue;
        };
        let suffix = base.rsplit_once('_').map(|(_, last)| last).filter(|last| UNITS.contains(last));
        if suffix != unit.as_deref() {
            found.push(format!("{name}: the unit is {unit:?}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "text\n| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n\
        | `ganglion_a_total` | counter | – | `kind` ≤ 1; `outcome`: ok, failed | m |\n\
        | `ganglion_b_seconds` | histogram | seconds | `name` (see below) | m |\n\
        | `ganglion_c` | gauge | – | – | m |\n";

    const SCRAPE: &str = "# HELP ganglion_a A.\n# TYPE ganglion_a counter\n\
        ganglion_a_total{kind=\"x\",outcome=\"ok\"} 1\n# TYPE ganglion_b_seconds histogram\n\
        ganglion_b_seconds_sum{name=\"a, b\"} 1\nganglion_b_seconds_bucket{le=\"1\",name=\"c\"} 1\n\
        # TYPE ganglion_c gauge\nganglion_c 1\n# EOF\n";

    fn compare(scrape: &str) -> Vec<String> {
        differences(&read_page(ROWS).unwrap(), &read_scrape(scrape).unwrap())
    }

    #[test]
    fn a_scrape_that_the_page_describes_has_no_differences() {
        assert_eq!(compare(SCRAPE), [""; 0]);
        let read = read_scrape(SCRAPE).unwrap();
        assert_eq!(read.keys().collect::<Vec<_>>(), ["ganglion_a_total", "ganglion_b_seconds", "ganglion_c"]);
        assert!(read["ganglion_b_seconds"].labels["name"].contains("a, b"));
        assert_eq!(unconventional(&read_page(ROWS).unwrap()), [""; 0]);
    }

    #[test]
    fn differences_are_found() {
        for (from, to, expected) in [
            ("ganglion_c", "ganglion_d", "ganglion_d is not documented"),
            ("ganglion_c gauge", "ganglion_c unknown", "ganglion_c is a unknown, not a gauge"),
            ("outcome=\"ok\"", "outcome=\"odd\"", "ganglion_a_total, outcome: [\"odd\"] is not in the closed set"),
            ("{kind=\"x\",", "{", "ganglion_a_total has the labels {\"outcome\"}, not {\"kind\", \"outcome\"}"),
        ] {
            assert_eq!(compare(&SCRAPE.replace(from, to)), [expected], "{from}");
        }
        let more =
            SCRAPE.replace("# TYPE ganglion_b", "ganglion_a_total{kind=\"y\",outcome=\"ok\"} 1\n# TYPE ganglion_b");
        assert_eq!(compare(&more), ["ganglion_a_total, kind: 2 values, more than 1"]);
    }

    #[test]
    fn wrong_rows_and_names_are_found() {
        for row in ["| `ganglion_a` | gauge | – | – |", "| `ganglion_a` | gauge | – | `kind` | m |"] {
            assert!(read_page(row).is_err(), "{row}");
        }
        let rows = "| `ganglion_a` | counter | – | – | m |\n| `ganglion_b_bytes` | gauge | – | – | m |\n\
            | `ganglion_c` | gauge | bytes | – | m |\n| `ganglion_d_total` | gauge | – | – | m |\n";
        assert_eq!(unconventional(&read_page(rows).unwrap()).len(), 4);
    }
}
