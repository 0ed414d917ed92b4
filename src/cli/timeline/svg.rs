//! A timeline as a picture that stands alone: SVG without scripts, fonts or links, in light or dark colors as
//! the reader prefers.
//!
//! Every text has a position of its own that follows from the width of a fixed-width font, so that no two overlap.

use std::fmt::Write;

use super::model::{Lane, SeriesPoint, ShownLevel, Timeline, TimelineEntry, Tone, ValueSeries};
use super::scale::{TimeScale, ValueScale};
use super::width::{columns, fit, wrap};
use ganglion_core::layout::clock;

/// Width of the picture.
const WIDTH: f64 = 1000.0;
/// Left and right end of the time axis.
const LEFT: f64 = 92.0;
const RIGHT: f64 = 880.0;
const MARGIN: f64 = 20.0;
/// Font size, and an upper bound of the width of its characters: 0.62 em, where fixed-width fonts have 0.6.
const FONT: f64 = 11.0;
const CHAR: f64 = FONT * 0.62;
const LINE: f64 = 15.0;
/// Distance of the names of two levels.
const LABEL: f64 = 14.0;
/// Height of the plot of one metric.
const PLOT: f64 = 84.0;
const LANE: f64 = 20.0;
/// Beginning of the columns of the list.
const LANE_AT: f64 = MARGIN + 21.0 * CHAR;
const TEXT_AT: f64 = LANE_AT + 10.0 * CHAR;
/// Maximum number of entries in the list; the oldest are left out.
const LISTED: usize = 120;
/// Maximum number of metrics that are drawn: a loop has at most 16, and the replicas.
const METRICS: usize = 17;

const STYLE: &str = include_str!("svg.css");

/// The picture, as an SVG document.
pub fn svg(timeline: &Timeline) -> String {
    let mut page = Page { body: String::new(), y: MARGIN };
    let time = TimeScale { start: timeline.start, end: timeline.end };
    page.head(timeline);
    let (plots_from, before_plots) = (page.y, page.body.len());
    for series in timeline.series.iter().take(METRICS) {
        page.plot(series, timeline, time);
    }
    page.lanes(timeline, time);
    let grid = page.axis(time, plots_from);
    page.body.insert_str(before_plots, &grid);
    page.list(timeline);
    page.section("Now", &timeline.now);
    let skews: Vec<String> = timeline.skews.iter().map(super::model::ClockSkew::words).collect();
    page.section("Where it ends", &timeline.limits.iter().cloned().chain(skews).collect::<Vec<_>>());
    let (height, title) = ((page.y + MARGIN).ceil(), escaped(&format!("Timeline of {}", timeline.title)));
    let about = escaped(&describe(timeline));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         role=\"img\" aria-labelledby=\"title about\">\n<title id=\"title\">{title}</title>\n<desc id=\"about\">{about}</desc>\n\
         <style>{STYLE}</style>\n<rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n{}</svg>\n",
        page.body
    )
}

/// Describes the picture for readers who do not see it.
fn describe(timeline: &Timeline) -> String {
    let series: Vec<&str> = timeline.series.iter().map(|series| series.name.as_str()).collect();
    let values = if series.is_empty() { String::new() } else { format!(", the values of {}", series.join(", ")) };
    format!(
        "{} entries from {} to {} UTC{values}. The list in the picture has each entry as text.",
        timeline.entries.len(),
        clock(timeline.start),
        clock(timeline.end)
    )
}

/// Text for XML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in super::model::plain(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A document that grows downwards.
struct Page {
    body: String,
    /// Upper end of the free part.
    y: f64,
}

impl Page {
    /// Writes a text with its baseline at `y`. A text with characters of unknown width is fitted into its columns.
    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let fitted = if text.is_ascii() || class == "title" {
            String::new()
        } else {
            format!(" textLength=\"{:.1}\" lengthAdjust=\"spacingAndGlyphs\"", columns(text) as f64 * FONT * 0.6)
        };
        let _ =
            writeln!(self.body, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\"{fitted}>{}</text>", escaped(text));
    }

    fn text_to(&mut self, right: f64, y: f64, class: &str, text: &str) {
        self.text(right - columns(text) as f64 * CHAR, y, class, text);
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = writeln!(
            self.body,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        );
    }

    fn dot(&mut self, x: f64, y: f64, class: &str, title: &str) {
        let title = escaped(title);
        let _ = writeln!(
            self.body,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" class=\"{class}\"><title>{title}</title></circle>"
        );
    }

    fn head(&mut self, timeline: &Timeline) {
        // The font of the title is larger.
        for line in wrap(&timeline.title, Some(((WIDTH - 2.0 * MARGIN) / (16.0 * 0.62)) as usize)) {
            self.y += 18.0;
            let y = self.y;
            self.text(MARGIN, y, "title", &line);
        }
        let span = format!("{} to {} UTC", clock(timeline.start), clock(timeline.end));
        let about = if timeline.about.is_empty() { span } else { format!("{}; {span}", timeline.about) };
        self.paragraph(MARGIN, &about, "soft");
        self.y += 8.0;
    }

    fn paragraph(&mut self, x: f64, text: &str, class: &str) {
        for line in wrap(text, Some(((WIDTH - MARGIN - x) / CHAR) as usize)) {
            self.y += LINE;
            let y = self.y;
            self.text(x, y, class, &line);
        }
    }

    /// Draws the values of one metric: dots, with nothing between them.
    fn plot(&mut self, series: &ValueSeries, timeline: &Timeline, time: TimeScale) {
        let levels: Vec<&ShownLevel> = timeline.levels.iter().filter(|level| level.metric == series.name).collect();
        let scale = ValueScale::of(&series.points, &levels);
        self.y += LINE;
        let name_at = self.y;
        self.text(MARGIN, name_at, "head", &series.name);
        self.y += 8.0;
        let (top, bottom) = (self.y, self.y + PLOT);
        let _ = writeln!(
            self.body,
            "<rect x=\"{LEFT}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{PLOT}\" class=\"band\"/>",
            RIGHT - LEFT
        );
        let y_of = |value: f64| bottom - 10.0 - scale.part(value) * (PLOT - 24.0);
        self.text_to(LEFT - 8.0, top + 17.0, "soft", scale.high_text());
        self.text_to(LEFT - 8.0, bottom - 6.0, "soft", scale.low_text());
        for gap in timeline.gaps.iter().filter(|gap| gap.text.starts_with(&format!("{} is unknown", series.name))) {
            let (from, to) = (x_of(time, gap.from), x_of(time, gap.to));
            let title = escaped(&gap.text);
            let _ = writeln!(
                self.body,
                "<rect x=\"{from:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{PLOT}\" class=\"gap\"><title>{title}</title></rect>",
                (to - from).max(1.0)
            );
        }
        self.levels(&levels, time, y_of);
        for point in &series.points {
            let title = format!("{} {} at {}", series.name, point.text, clock(point.at));
            self.dot(x_of(time, point.at), y_of(point.value), "value", &title);
        }
        self.values(&series.points, time, y_of);
        self.y = bottom + 6.0;
    }

    /// Draws the levels, and their names beside the plot, moved apart where they would overlap.
    fn levels(&mut self, levels: &[&ShownLevel], time: TimeScale, y_of: impl Fn(f64) -> f64) {
        let mut sorted: Vec<&&ShownLevel> = levels.iter().collect();
        sorted.sort_by(|a, b| b.value.total_cmp(&a.value));
        let at: Vec<f64> = sorted.iter().map(|level| y_of(level.value)).collect();
        for ((level, y), label_at) in sorted.iter().zip(&at).zip(apart(&at, self.y + PLOT)) {
            let known = level.since.map_or(RIGHT, |since| x_of(time, since));
            self.line((LEFT, *y), (known, *y), "maybe");
            self.line((known, *y), (RIGHT, *y), "level");
            let label = fit(&level.label(), ((WIDTH - RIGHT - 14.0) / CHAR) as usize);
            self.text(RIGHT + 8.0, label_at, "levelname", &label);
        }
    }

    /// Writes values above their dots, where the text before leaves room.
    fn values(&mut self, points: &[SeriesPoint], time: TimeScale, y_of: impl Fn(f64) -> f64) {
        let mut free = LEFT;
        for point in points {
            let wide = columns(&point.text) as f64 * CHAR;
            let x = (x_of(time, point.at) - wide / 2.0).clamp(LEFT, (RIGHT - wide).max(LEFT));
            if x >= free && wide < 120.0 {
                self.text(x, y_of(point.value) - 6.0, "value", &point.text);
                free = x + wide + CHAR;
            }
        }
    }

    /// Draws one row for each lane that has entries.
    fn lanes(&mut self, timeline: &Timeline, time: TimeScale) {
        self.y += 6.0;
        for lane in Lane::ALL {
            let entries: Vec<&TimelineEntry> = timeline.entries.iter().filter(|entry| entry.lane == lane).collect();
            if entries.is_empty() || lane == Lane::Value {
                continue;
            }
            let y = self.y + LANE / 2.0;
            self.text(MARGIN, y + 4.0, "soft", lane.as_str());
            self.line((LEFT, y), (RIGHT, y), "grid");
            for entry in entries {
                let title = format!("{} {}", clock(entry.at), entry.text);
                self.dot(x_of(time, entry.at), y, class(entry.tone), &title);
            }
            self.y += LANE;
        }
    }

    /// Draws the time axis. Returns the lines of its marks, which are behind everything else.
    fn axis(&mut self, time: TimeScale, top: f64) -> String {
        let bottom = self.y;
        let mut grid = Self { body: String::new(), y: 0.0 };
        let mut free = LEFT;
        for mark in time.marks(8) {
            let x = x_of(time, mark);
            grid.line((x, top + LINE), (x, bottom + 4.0), "grid");
            let label = time.label(mark);
            let wide = columns(&label) as f64 * CHAR;
            let at = (x - wide / 2.0).clamp(MARGIN, WIDTH - MARGIN - wide);
            if at >= free {
                self.text(at, bottom + 17.0, "soft", &label);
                free = at + wide + 2.0 * CHAR;
            }
        }
        self.line((LEFT, bottom), (RIGHT, bottom), "grid");
        self.y = bottom + 24.0;
        grid.body
    }

    fn list(&mut self, timeline: &Timeline) {
        let left_out = timeline.entries.len().saturating_sub(LISTED);
        if left_out > 0 {
            let words = format!(
                "{left_out} earlier entries are not listed here; `ganglion timeline` without --svg lists them."
            );
            self.paragraph(MARGIN, &words, "soft");
        }
        let room = ((WIDTH - MARGIN - TEXT_AT) / CHAR) as usize;
        let mut gaps = timeline.gaps.iter().peekable();
        for entry in timeline.entries.iter().skip(left_out) {
            while let Some(gap) = gaps.next_if(|gap| gap.to <= entry.at) {
                self.paragraph(TEXT_AT, &format!("… {}", gap.text), "soft");
            }
            let first = self.y + LINE;
            self.text(MARGIN, first, "soft", &clock(entry.at));
            self.text(LANE_AT, first, class(entry.tone), entry.lane.as_str());
            for line in wrap(&entry.text, Some(room)) {
                self.y += LINE;
                let y = self.y;
                self.text(TEXT_AT, y, "", &line);
            }
        }
        for gap in gaps {
            self.paragraph(TEXT_AT, &format!("… since {}: {}", clock(gap.from), gap.text), "soft");
        }
    }

    fn section(&mut self, name: &str, items: &[String]) {
        if items.is_empty() {
            return;
        }
        self.y += 8.0;
        self.paragraph(MARGIN, name, "head");
        for item in items.iter().take(LISTED) {
            self.paragraph(MARGIN + 2.0 * CHAR, item, "soft");
        }
    }
}

/// Baselines of labels beside these heights, ordered from the top, each below the one before and none below `bottom`.
fn apart(heights: &[f64], bottom: f64) -> Vec<f64> {
    let mut at: Vec<f64> = Vec::new();
    for height in heights {
        at.push(at.last().map_or(height + 4.0, |above| (height + 4.0).max(above + LABEL)));
    }
    let mut most = bottom;
    for one in at.iter_mut().rev() {
        *one = one.min(most);
        most = *one - LABEL;
    }
    at
}

fn x_of(time: TimeScale, at: jiff::Timestamp) -> f64 {
    // Dots at both ends stay within the plot.
    LEFT + 6.0 + time.part(at) * (RIGHT - LEFT - 12.0)
}

fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "plain",
        Tone::Good => "good",
        Tone::Warning => "bad",
    }
}
