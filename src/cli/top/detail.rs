//! Lines of the detail pane: charts of a loop, and the explanation of the object.

use super::facts::{TopDetail, TopObject};
use super::kinds::TopKind;
use super::model::{TopModel, TopPane};
use super::trend::{TopLevels, Trend, TrendBar};
use crate::cli::width::{cut, wrap};

/// Maximum number of bars of a chart.
const BARS: usize = 60;

/// Maximum number of lines of an explanation.
const LINES: usize = 5_000;

/// A line of the detail pane.
#[derive(Clone, Debug, PartialEq)]
pub enum DetailLine {
    Text(String),
    /// Metric, bars, and the levels as text.
    Chart {
        metric: String,
        bars: Vec<TrendBar>,
        levels: String,
    },
}

/// The lines for the width of the terminal; none if no detail is shown.
pub fn detail_lines(model: &TopModel) -> Vec<DetailLine> {
    let TopPane::Detail { id, text, .. } = &model.pane else { return Vec::new() };
    let columns = usize::from(model.size.0);
    let object = model.objects.get(id);
    let mut lines = object.map(|object| charts(model, object, columns)).unwrap_or_default();
    let mut all = object.map(|object| hops(model, object)).unwrap_or_default();
    if object.is_none() {
        all.push_str(&format!("{} no longer exists, or cannot be read.\n", id.words()));
    }
    match (text, object) {
        (Some(Ok(explanation)), _) => all.push_str(explanation),
        (None, Some(object)) if id.kind == TopKind::Policy => all.push_str(&policy(object)),
        (None, Some(_)) => all.push_str("reading …"),
        (Some(Err(why)), object) => {
            all.push_str(&format!("It cannot be explained: {why}\n"));
            all.push_str(&object.map(conditions).unwrap_or_default());
        }
        (None, None) => {}
    }
    lines.extend(wrap(&all, columns).into_iter().take(LINES).map(DetailLine::Text));
    lines
}

/// One chart for each metric of a loop with recent values.
fn charts(model: &TopModel, object: &TopObject, columns: usize) -> Vec<DetailLine> {
    let Some(trends) = model.trends.get(&object.id) else { return Vec::new() };
    let monitoring = model.objects.get(&object.id.as_kind(TopKind::Monitoring));
    let levels = |metric: &str| match monitoring.map(|monitoring| &monitoring.detail) {
        Some(TopDetail::Monitoring { levels, .. }) => {
            levels.iter().find(|(name, _)| name == metric).map(|(_, all)| *all)
        }
        _ => None,
    };
    let chart = |(metric, trend): (&String, &Trend)| {
        let levels = levels(metric).unwrap_or_default();
        let bars = trend.bars(levels, columns.saturating_sub(24).clamp(1, BARS));
        DetailLine::Chart { metric: cut(metric, 12), bars, levels: levels_text(levels) }
    };
    let mut lines: Vec<DetailLine> = trends.iter().map(chart).collect();
    lines.push(DetailLine::Text(String::new()));
    lines
}

/// One line for each child of a loop: alarms, decision, result.
fn hops(model: &TopModel, object: &TopObject) -> String {
    let child = |kind| model.objects.get(&object.id.as_kind(kind)).map(|child| &child.detail);
    let mut text = String::new();
    if object.id.kind != TopKind::Loop {
        return text;
    }
    if let Some(TopDetail::Monitoring { alarms, .. }) = child(TopKind::Monitoring) {
        let alarms = if alarms.is_empty() { "no alarm".to_owned() } else { alarms.join("; ") };
        text.push_str(&format!("Monitoring  {alarms}\n"));
    }
    if let Some(TopDetail::Decision { message: Some(message), .. }) = child(TopKind::Decision) {
        text.push_str(&format!("Decision    {message}\n"));
    }
    if let Some(TopDetail::Execution { state: Some(state), message }) = child(TopKind::Execution) {
        let message = message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        text.push_str(&format!("Execution   {state}{message}\n"));
    }
    text.push('\n');
    text
}

fn levels_text(levels: TopLevels) -> String {
    let one = |name: &str, level: Option<f64>| level.map(|level| format!("{name} {level}"));
    [one("low", levels.low), one("high", levels.high)].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn policy(object: &TopObject) -> String {
    let name = &object.id.name;
    format!(
        "{}\nTo explain its choice for a pod: ganglion explain placement --policy {name} --pod POD -n NAMESPACE\n",
        conditions(object)
    )
}

fn conditions(object: &TopObject) -> String {
    if object.conditions.is_empty() {
        return "It has no conditions: no operator has observed it yet.\n".to_owned();
    }
    let lines = object.conditions.iter().map(|condition| {
        let colon = if condition.message.is_empty() { "" } else { ": " };
        format!("{} {} {}{colon}{}\n", condition.kind, condition.status, condition.reason, condition.message)
    });
    lines.collect()
}
