//! Replays as a picture: a plot for each metric with its levels, and one for each value that the actions change, on one
//! time axis. Marks at the foot of a plot are decisions. The same replays lead to the same picture.

use std::error::Error as StdError;

use jiff::{SignedDuration, Timestamp};
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Text};
use plotters::prelude::SVGBackend;
use plotters::series::LineSeries;
use plotters::style::{Color, IntoFont, RGBColor, ShapeStyle};

use super::ShownReplay;
use ganglion_api::decision::Outcome;
use ganglion_core::layout::clock;
use ganglion_core::quantity;
use ganglion_loops_plan::replay::{MetricValues, ReplayReport, ReplayedDecision};

const WIDTH: u32 = 1200;
const HEADER: u32 = 56;
/// Height of one plot.
const PLOT: u32 = 190;
/// Distance of the rows of decisions, relative to the height of a plot.
const ROW: f64 = 0.07;
/// Number of points that a line has at most: about two for each pixel.
const POINTS: usize = 2000;

const PAPER: RGBColor = RGBColor(255, 255, 255);
const INK: RGBColor = RGBColor(31, 35, 40);
const GRID: RGBColor = RGBColor(225, 228, 232);
const LEVEL: RGBColor = RGBColor(188, 76, 0);
/// Colors of the replays.
const LINES: [RGBColor; 2] = [RGBColor(9, 105, 218), RGBColor(130, 80, 223)];
const SERVED: RGBColor = RGBColor(26, 127, 55);
const NOT_SERVED: RGBColor = RGBColor(207, 34, 46);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plot<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn<T> = Result<T, Box<dyn StdError>>;

/// A line of a plot: points in seconds after the start. A line ends where values are unknown.
struct PlotLine {
    color: RGBColor,
    parts: Vec<Vec<(f64, f64)>>,
}

/// The content of a plot.
struct PlotContent<'a> {
    name: String,
    lines: Vec<PlotLine>,
    /// Levels, with their names.
    levels: Vec<(f64, String)>,
    /// Decisions, with the index of their replay.
    decisions: Vec<(&'a ReplayedDecision, usize)>,
}

/// The picture, as an SVG document.
pub fn svg(shown: &[ShownReplay]) -> Result<String, String> {
    draw(shown).map_err(|error| error.to_string())
}

fn draw(shown: &[ShownReplay]) -> Drawn<String> {
    let mut text = String::new();
    let start = shown.iter().map(|one| one.report.start).min().unwrap_or_default();
    let end = shown.iter().map(|one| one.report.end).max().unwrap_or_default();
    let plots = plots(shown, start);
    let height = HEADER + PLOT * u32::try_from(plots.len()).unwrap_or(0) + 10;
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        root.fill(&PAPER)?;
        header(&root, shown)?;
        let (_, body) = root.split_vertically(HEADER);
        for (area, plot) in body.split_evenly((plots.len().max(1), 1)).iter().zip(&plots) {
            draw_plot(area, plot, (start, end))?;
        }
        root.present()?;
    }
    Ok(text)
}

fn header(root: &Area, shown: &[ShownReplay]) -> Drawn<()> {
    for ((index, one), color) in (0..).zip(shown).zip(LINES) {
        let report = &one.report;
        let words = format!(
            "{} of {}: {} decisions, {} carried out; {} to {} UTC; effect {}",
            report.name,
            one.file,
            report.totals.decisions,
            report.totals.served,
            clock(report.start),
            clock(report.end),
            report.effect
        );
        root.draw(&Text::new(words, (10, 8 + 20 * index), ("monospace", 13).into_font().color(&color)))?;
    }
    Ok(())
}

/// One plot for each metric, and one for each value that actions change.
fn plots(shown: &[ShownReplay], start: Timestamp) -> Vec<PlotContent<'_>> {
    let mut plots: Vec<PlotContent> = Vec::new();
    for (index, (one, color)) in shown.iter().zip(LINES).enumerate() {
        for values in &one.report.values {
            let plot = named(&mut plots, &values.metric);
            plot.lines.push(PlotLine { color, parts: parts(values, start) });
            add_levels(plot, &one.report, &values.metric);
            let about = one.report.decisions.iter().filter(|decision| is_about(decision, &values.metric));
            plot.decisions.extend(about.map(|decision| (decision, index)));
        }
    }
    for (one, color) in shown.iter().zip(LINES) {
        for change in &one.report.target {
            if named(&mut plots, &change.dimension).lines.iter().all(|line| line.color != color) {
                let steps = steps(&one.report, &change.dimension, start);
                named(&mut plots, &change.dimension).lines.push(PlotLine { color, parts: vec![steps] });
            }
        }
    }
    plots.retain(|plot| plot.lines.iter().any(|line| !line.parts.is_empty()));
    plots
}

/// The plot of this name.
fn named<'b, 'a>(plots: &'b mut Vec<PlotContent<'a>>, name: &str) -> &'b mut PlotContent<'a> {
    let index = plots.iter().position(|plot| plot.name == name).unwrap_or_else(|| {
        let name = name.to_owned();
        plots.push(PlotContent { name, lines: Vec::new(), levels: Vec::new(), decisions: Vec::new() });
        plots.len() - 1
    });
    &mut plots[index]
}

fn is_about(decision: &ReplayedDecision, metric: &str) -> bool {
    decision.when.split(' ').any(|word| word == metric)
}

fn add_levels(plot: &mut PlotContent, report: &ReplayReport, metric: &str) {
    for alarm in report.alarms.iter().filter(|alarm| alarm.metric == metric) {
        let Some(level) = alarm.level.as_ref().and_then(|text| quantity::number(text).ok()) else { continue };
        let name = alarm.side.to_string();
        if !plot.levels.iter().any(|(value, other)| *value == level && *other == name) {
            plot.levels.push((level, name));
        }
    }
}

/// The known values, without the parts between them that are unknown. If there are many points, only the largest and
/// the smallest of each pixel are drawn.
fn parts(values: &MetricValues, start: Timestamp) -> Vec<Vec<(f64, f64)>> {
    let mut parts: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut is_open = false;
    for (at, value) in &values.points {
        match value {
            Some(value) if is_open => {
                parts.last_mut().into_iter().for_each(|part| part.push((after(start, *at), *value)))
            }
            Some(value) => parts.push(vec![(after(start, *at), *value)]),
            None => {}
        }
        is_open = value.is_some();
    }
    let count = values.points.len();
    let size = count.div_ceil(POINTS / 2).max(1);
    parts.into_iter().map(|part| thinned(part, size)).collect()
}

/// The largest and the smallest of each `size` points, in their order.
fn thinned(points: Vec<(f64, f64)>, size: usize) -> Vec<(f64, f64)> {
    if size < 3 {
        return points;
    }
    let mut thin = Vec::new();
    for bucket in points.chunks(size) {
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let ends = [bucket.iter().min_by(by_value), bucket.iter().max_by(by_value)];
        let mut ends: Vec<(f64, f64)> = ends.into_iter().flatten().copied().collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        ends.dedup();
        thin.extend(ends);
    }
    thin
}

/// The values of a dimension as steps.
fn steps(report: &ReplayReport, dimension: &str, start: Timestamp) -> Vec<(f64, f64)> {
    let mut steps: Vec<(f64, f64)> = Vec::new();
    for change in report.target.iter().filter(|change| change.dimension == dimension) {
        let Ok(value) = quantity::number(&change.value) else { continue };
        let at = after(start, change.at);
        steps.extend(steps.last().map(|(_, before)| (at, *before)));
        steps.push((at, value));
    }
    let last = steps.last().map(|(_, value)| (after(start, report.end), *value));
    steps.extend(last);
    steps
}

fn after(start: Timestamp, at: Timestamp) -> f64 {
    at.duration_since(start).as_secs_f64()
}

fn draw_plot(area: &Area, plot: &PlotContent, (start, end): (Timestamp, Timestamp)) -> Drawn<()> {
    let values = || {
        let of_lines = plot.lines.iter().flat_map(|line| line.parts.iter().flatten().map(|(_, value)| *value));
        of_lines.chain(plot.levels.iter().map(|(value, _)| *value))
    };
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    let margin = ((high - low) * 0.12).max(low.abs() * 0.01).max(0.5);
    let (low, high) = (low - margin, high + margin);
    let length = after(start, end);
    let mut chart = ChartBuilder::on(area)
        .caption(plot.name.as_str(), ("monospace", 14).into_font().color(&INK))
        .margin(6)
        .margin_right(90)
        .x_label_area_size(24)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..length, low..high)?;
    let style = ("monospace", 11).into_font().color(&INK);
    chart
        .configure_mesh()
        .light_line_style(PAPER)
        .bold_line_style(GRID)
        .axis_style(GRID)
        .label_style(style)
        .x_labels(8)
        .y_labels(5)
        .x_label_formatter(&|seconds| clock(time(start, *seconds)))
        .y_label_formatter(&|value| format!("{value:.6}").trim_end_matches('0').trim_end_matches('.').to_owned())
        .draw()?;
    draw_levels(&mut chart, plot, length)?;
    for line in &plot.lines {
        for part in &line.parts {
            chart.draw_series(LineSeries::new(part.iter().copied(), line.color.stroke_width(1)))?;
        }
    }
    draw_decisions(&mut chart, plot, start, (low, (high - low) * ROW))
}

fn time(start: Timestamp, seconds: f64) -> Timestamp {
    SignedDuration::try_from_secs_f64(seconds).ok().and_then(|after| start.checked_add(after).ok()).unwrap_or(start)
}

fn draw_levels(chart: &mut Plot, plot: &PlotContent, length: f64) -> Drawn<()> {
    for (level, name) in &plot.levels {
        chart.draw_series([PathElement::new([(0.0, *level), (length, *level)], LEVEL.stroke_width(1))])?;
        let style = ("monospace", 11).into_font().color(&LEVEL);
        chart.plotting_area().draw(&Text::new(format!(" {name}"), (length, *level), style))?;
    }
    Ok(())
}

/// Draws a mark for each decision, one row for each replay: filled if it was carried out, or would be in mode Auto.
fn draw_decisions(chart: &mut Plot, plot: &PlotContent, start: Timestamp, (low, row): (f64, f64)) -> Drawn<()> {
    for (decision, index) in &plot.decisions {
        let (at, height) = (after(start, decision.at), low + row * *index as f64);
        let color = LINES[*index];
        let mark = match decision.outcome {
            Some(Outcome::Served | Outcome::DryRun) => ShapeStyle::from(&SERVED).filled(),
            Some(Outcome::Limited | Outcome::Failed | Outcome::Overtaken | Outcome::Lost | Outcome::Withdrawn)
            | None => ShapeStyle::from(&NOT_SERVED),
        };
        chart.draw_series([Circle::new((at, height), 4, ShapeStyle::from(&color))])?;
        chart.draw_series([Circle::new((at, height), 2, mark)])?;
    }
    Ok(())
}
