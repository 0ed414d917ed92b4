//! Common parts of every bench: progress while it runs, a table at its end, and the same figures as JSON.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use comfy_table::{Cell, CellAlignment, Color, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use tempfile::TempDir;
use testkit::operator::Operator;
use testkit::plane::audit::Audit;
use testkit::plane::cluster::{Cluster, Wanted};

/// Observation time of an idle operator.
const AT_REST: Duration = Duration::from_secs(60);

/// Bound of a figure.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    Below(f64),
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::Below(limit) => value < limit,
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Below(limit) => write!(f, "< {limit}"),
            Self::AtMost(limit) => write!(f, "<= {limit}"),
            Self::AtLeast(limit) => write!(f, ">= {limit}"),
        }
    }
}

struct Figure {
    name: String,
    value: f64,
    unit: String,
    bound: Option<Bound>,
}

impl Figure {
    /// Whether the bound holds; None if the figure has none.
    fn holds(&self) -> Option<bool> {
        self.bound.map(|bound| bound.holds(self.value))
    }
}

/// One run of one bench.
pub struct Bench {
    figures: Vec<Figure>,
    only: String,
    home: PathBuf,
    /// Temporary directory, if the logs are not kept; deleted when the run is over.
    _passing: Option<TempDir>,
}

impl Bench {
    /// Runs only parts whose names contain `only`. Keeps audit and operator logs in directory `keep`, if set.
    pub fn new(only: &str, keep: Option<&Path>) -> Result<Self> {
        let passing = if keep.is_none() { Some(TempDir::with_prefix("ganglion-bench-")?) } else { None };
        let home = keep.or(passing.as_ref().map(TempDir::path)).map(std::path::absolute).transpose()?;
        Ok(Self { figures: Vec::new(), only: only.to_owned(), home: home.unwrap_or_default(), _passing: passing })
    }

    /// Whether this part runs.
    pub fn wants(&self, part: &str) -> bool {
        part.contains(&self.only)
    }

    /// Whether the user named this part: for parts that do not run by default.
    pub fn names(&self, part: &str) -> bool {
        !self.only.is_empty() && self.wants(part)
    }

    /// Adds a figure without a bound.
    pub fn note(&mut self, name: &str, value: f64, unit: &str) {
        self.figures.push(Figure { name: name.to_owned(), value, unit: unit.to_owned(), bound: None });
    }

    /// Adds a figure with a bound.
    pub fn claim(&mut self, name: &str, value: f64, unit: &str, bound: Bound) {
        self.figures.push(Figure { name: name.to_owned(), value, unit: unit.to_owned(), bound: Some(bound) });
    }

    pub fn all_hold(&self) -> bool {
        self.figures.iter().all(|figure| figure.holds() != Some(false))
    }

    /// Creates a directory for the files of this part.
    pub fn home(&self, part: &str) -> Result<PathBuf> {
        let home = self.home.join(part);
        std::fs::create_dir_all(&home)?;
        Ok(home)
    }

    /// Starts a control plane for this part. It ends with this process, or by `down`.
    pub async fn plane(&self, part: &str, nodes: usize, more: &[String]) -> Result<Cluster> {
        let progress = Progress::spin(&format!("starting a control plane with {nodes} nodes"));
        let name = format!("bench-{}-{part}", std::process::id());
        let cluster = Cluster::start(&Wanted { name: &name, nodes, more, ..Wanted::default() }).await?;
        progress.end();
        Ok(cluster)
    }

    /// Prints the table to standard output.
    pub fn show(&self) {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY);
        table.set_header(["", "value", "unit", "bound", "holds"]);
        for figure in &self.figures {
            let (word, color) = match figure.holds() {
                Some(true) => ("yes", Color::Green),
                Some(false) => ("NO", Color::Red),
                None => ("", Color::Reset),
            };
            table.add_row([
                Cell::new(&figure.name),
                Cell::new(rounded(figure.value)).set_alignment(CellAlignment::Right),
                Cell::new(&figure.unit),
                Cell::new(figure.bound.map(|bound| bound.to_string()).unwrap_or_default()),
                Cell::new(word).fg(color),
            ]);
        }
        println!("{table}");
    }

    pub fn json(&self) -> Result<String> {
        let figures: Vec<_> = self
            .figures
            .iter()
            .map(|figure| {
                json!({
                    "name": figure.name, "value": figure.value, "unit": figure.unit,
                    "bound": figure.bound.map(|bound| bound.to_string()), "holds": figure.holds(),
                })
            })
            .collect();
        Ok(serde_json::to_string_pretty(&figures)? + "\n")
    }
}

/// Rounds to three significant digits.
fn rounded(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Current activity, shown on standard error while it lasts.
pub struct Progress(ProgressBar);

impl Progress {
    /// An activity of unknown length.
    pub fn spin(what: &str) -> Self {
        let bar = ProgressBar::new_spinner().with_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        Self::announce(what, &bar);
        Self(bar)
    }

    /// An activity with a known number of steps.
    pub fn count(what: &str, steps: usize) -> Self {
        let bar = ProgressBar::new(u64::try_from(steps).unwrap_or(u64::MAX)).with_message(what.to_owned());
        let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self::announce(what, &bar);
        Self(bar)
    }

    /// Prints a line if there is no terminal.
    fn announce(what: &str, bar: &ProgressBar) {
        if bar.is_hidden() {
            eprintln!("{what}");
        }
    }

    pub fn at(&self, step: usize) {
        self.0.set_position(u64::try_from(step).unwrap_or(u64::MAX));
    }

    pub fn end(self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Options of a plane whose components collect garbage with Go's default GOGC. By default, planes start with less
/// frequent collections.
pub fn default_garbage() -> [String; 2] {
    ["--gogc", "100"].map(String::from)
}

/// Starts the operator with these further options, and waits until it is ready.
pub async fn operator(bench: &Bench, part: &str, cluster: &Cluster, more: &[&str]) -> Result<Operator> {
    let home: &Path = &bench.home(part)?;
    let mut operator = Operator::installed(cluster, home, more).await?;
    operator.start()?;
    operator.ready().await?;
    Ok(operator)
}

/// Watches an idle operator, which must write nothing.
pub async fn at_rest(bench: &mut Bench, audit: &Audit, operator: &Operator, title: &str) -> Result<()> {
    let progress = Progress::spin(&format!("watching: {title}"));
    // Lets the previous part settle.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (from, begun) = (Timestamp::now(), operator.processor_seconds()?);
    tokio::time::sleep(AT_REST).await;
    let used = operator.processor_seconds()? - begun;
    let requests = audit.between(from, Timestamp::now()).await?;
    let writes = requests.iter().filter(|one| one.by_operator && one.writes() && !one.is_upkeep()).count();
    progress.end();
    let title = format!("{title}, {} s: writes", AT_REST.as_secs());
    bench.claim(&title, number(writes), "writes", Bound::AtMost(0.0));
    bench.note("  operator's processor time", used / AT_REST.as_secs_f64(), "cores");
    Ok(())
}

/// Quantile of the values: this share of them lies below it; 0 without values.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index"
    )]
    let at = (last as f64 * share).ceil() as usize;
    sorted.get(at.min(last)).copied().unwrap_or(0.0)
}

pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[expect(clippy::cast_precision_loss, reason = "counts are small")]
pub fn number(count: usize) -> f64 {
    count as f64
}
