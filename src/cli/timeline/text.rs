//! A timeline as text, for a terminal of any width and for a pipe.

use jiff::Timestamp;

use super::graph::graph;
use super::model::{Lane, Timeline, TimelineEntry, Tone};
use super::width::wrap;
use ganglion_core::layout::{age, clock};

/// Width from which an entry is one line with columns; in a narrower terminal, its text is below its time.
const COLUMNS_FROM: usize = 60;

/// Minimum width of a terminal.
const LEAST: usize = 20;

/// Width of the columns before the text of an entry: time, age, lane, and gaps.
const HEAD: usize = 19 + 2 + AGE + 2 + 8 + 2;

/// Width of the age of an entry.
const AGE: usize = 5;

/// Where the text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStyle {
    /// Columns of the terminal; None: no terminal, one line for each entry.
    pub width: Option<usize>,
    pub colors: bool,
}

/// The whole timeline.
pub fn text(timeline: &Timeline, style: TextStyle) -> String {
    let mut out = String::new();
    let about = if timeline.about.is_empty() { String::new() } else { format!(": {}", timeline.about) };
    push_wrapped(&mut out, "", &format!("{}{about}", timeline.title), style);
    if let Some(width) = style.width.filter(|width| *width >= COLUMNS_FROM) {
        for series in &timeline.series {
            let graph = graph(series, timeline, width.min(120));
            if !graph.is_empty() {
                out.push('\n');
                out.push_str(&graph);
            }
        }
    }
    out.push('\n');
    if timeline.entries.is_empty() {
        push_wrapped(&mut out, "", "Nothing is recorded in this time.", style);
    }
    let mut gaps = timeline.gaps.iter().peekable();
    for entry in &timeline.entries {
        while let Some(gap) = gaps.next_if(|gap| gap.to <= entry.at) {
            push_wrapped(&mut out, "   … ", &format!("{} … {}: {}", clock(gap.from), clock(gap.to), gap.text), style);
        }
        out.push_str(&line(entry, timeline.end, style));
    }
    for gap in gaps {
        push_wrapped(&mut out, "   … ", &format!("since {}: {}", clock(gap.from), gap.text), style);
    }
    push_section(&mut out, "Now:", timeline.now.iter().map(String::as_str), style);
    let skews: Vec<String> = timeline.skews.iter().map(super::model::ClockSkew::words).collect();
    let limits = timeline.limits.iter().chain(&skews).map(String::as_str);
    push_section(&mut out, "Where it ends:", limits, style);
    out
}

fn push_section<'a>(out: &mut String, name: &str, items: impl Iterator<Item = &'a str>, style: TextStyle) {
    let mut items = items.peekable();
    if items.peek().is_none() {
        return;
    }
    out.push('\n');
    push_wrapped(out, "", name, style);
    for item in items {
        push_wrapped(out, "  ", item, style);
    }
}

/// One entry: absolute time, age, lane and text.
pub fn line(entry: &TimelineEntry, now: Timestamp, style: TextStyle) -> String {
    let (time, ago, lane) = (clock(entry.at), shown_age(entry.at, now), entry.lane.as_str());
    let mut out = String::new();
    match style.width {
        Some(width) if width < COLUMNS_FROM => {
            let head = format!("{time} {ago} {lane}");
            push_wrapped(&mut out, "", &colored(&head, entry, style, true), TextStyle { colors: false, ..style });
            push_wrapped(&mut out, "  ", &entry.text, style);
        }
        _ => {
            let head = format!("{time}  {ago:>AGE$}  {}  ", colored(&format!("{lane:<8}"), entry, style, false));
            let lines = wrap(&entry.text, style.width.map(|width| width.saturating_sub(HEAD)));
            for (index, words) in lines.iter().enumerate() {
                let begin = if index == 0 { head.clone() } else { " ".repeat(HEAD) };
                out.push_str(format!("{begin}{words}").trim_end());
                out.push('\n');
            }
        }
    }
    out
}

/// Age of an entry, in at most five characters. A time in the future of this machine's clock has none.
fn shown_age(at: Timestamp, now: Timestamp) -> String {
    let text = if at > now { "-".to_owned() } else { age(at, now) };
    if text.len() > AGE { "years".to_owned() } else { text }
}

/// Text in the color of the entry. A head that is wrapped later must have no color.
fn colored(text: &str, entry: &TimelineEntry, style: TextStyle, is_wrapped: bool) -> String {
    let code = match (entry.tone, entry.lane) {
        (Tone::Warning, _) => "33",
        (Tone::Good, _) => "32",
        (Tone::Plain, Lane::Decision) => "36",
        (Tone::Plain, _) => "",
    };
    if style.colors && !is_wrapped && !code.is_empty() {
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

fn push_wrapped(out: &mut String, begin: &str, words: &str, style: TextStyle) {
    let indent = begin.chars().count();
    let lines = wrap(words, style.width.map(|width| width.max(LEAST) - indent));
    for (index, words) in lines.iter().enumerate() {
        let begin = if index == 0 { begin.to_owned() } else { " ".repeat(indent) };
        out.push_str(format!("{begin}{words}").trim_end());
        out.push('\n');
    }
}
