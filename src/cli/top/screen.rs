//! Draws the view. The content depends on the model, the time and the size alone.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::detail::{DetailLine, detail_lines};
use super::keys::tabs;
use super::model::{TopModel, TopPane, TopPrompt};
use super::rows::{TopRow, TopTone};
use super::table::{GAP, TREND, TopColumn, layout, natural};
use super::trend::TrendBar;
use crate::cli::width::{cut, fit, width, wrap};
use ganglion_core::layout::age;
use ganglion_core::words::counted;

/// Height from which title and tabs are shown.
const TALL: u16 = 10;

const HELP: &str = "\
Up, Down, PgUp, PgDn, Home, End   select an object
Enter, e   explain it                Esc, q   back
Tab, 0-5   kinds                     /        filter
n          namespace (empty: all)    N        all namespaces
o          sort by the next column   O        reverse the order
s          suspend                   r        resume
x          abort an action           a        approve a proposal
q, Ctrl-C  quit                      Ctrl-Z   stop; the shell's fg continues

Each change asks first, and the rights for it are checked.
";

/// Draws the view.
pub fn draw(frame: &mut Frame, model: &TopModel, now: Timestamp) {
    let area = frame.area();
    draw_on(frame.buffer_mut(), area, model, now);
}

fn draw_on(buffer: &mut Buffer, area: Rect, model: &TopModel, now: Timestamp) {
    let pen = &mut Pen { buffer, area, y: area.y, has_color: model.has_color };
    if area.height >= TALL {
        pen.line(title(model));
        pen.line(tab_line(model));
    }
    // The lines at the bottom are for messages and the state of the view.
    let messages = message(model, usize::from(area.height / 2).max(1));
    let below = u16::try_from(messages.len()).unwrap_or(1) + 1;
    let end = area.bottom().saturating_sub(below.min(area.height.saturating_sub(1)));
    match &model.pane {
        TopPane::List => list(pen, model, now, end),
        TopPane::Detail { scroll, .. } => details(pen, model, *scroll, end),
        TopPane::Help => {
            for line in wrap(HELP, usize::from(area.width)) {
                pen.line_before(end, Line::raw(line));
            }
        }
    }
    pen.y = pen.y.max(end);
    if area.height >= 3 {
        messages.into_iter().for_each(|line| pen.line(line));
    }
    pen.line(state(model, now));
}

/// Draws lines from top to bottom; lines below the area are left out.
struct Pen<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    y: u16,
    has_color: bool,
}

impl Pen<'_> {
    fn line(&mut self, line: Line) {
        self.line_before(self.area.bottom(), line);
    }

    fn line_before(&mut self, end: u16, line: Line) {
        if self.y < end.min(self.area.bottom()) {
            let line = if self.has_color { line } else { colorless(line) };
            self.buffer.set_line(self.area.x, self.y, &line, self.area.width);
            self.y += 1;
        }
    }
}

fn colorless(line: Line) -> Line {
    let plain = |style: Style| Style { fg: None, bg: None, ..style };
    let spans = line.spans.into_iter().map(|span| Span { style: plain(span.style), ..span }).collect::<Vec<_>>();
    Line { spans, style: plain(line.style), ..Line::default() }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn tone_style(tone: TopTone) -> Style {
    match tone {
        TopTone::Bad => bold().fg(Color::Red),
        TopTone::Waits => Style::new().fg(Color::Yellow),
        TopTone::Busy => Style::new().fg(Color::Cyan),
        TopTone::Good => Style::new().fg(Color::Green),
        TopTone::Plain => Style::new(),
    }
}

fn title(model: &TopModel) -> Line<'static> {
    let mut text = format!("ganglion top  {}  {}", model.scope.words(), counted(model.rows.len() as u64, "object"));
    if !model.filter.is_empty() {
        text.push_str(&format!("  filter: {}", model.filter));
    }
    let order = if model.descending { ", reversed" } else { "" };
    text.push_str(&format!("  by {}{order}", model.sort.title()));
    Line::styled(cut(&text, usize::from(model.size.0)), bold())
}

fn tab_line(model: &TopModel) -> Line<'static> {
    let mut spans = Vec::new();
    for (at, tab) in tabs(model).into_iter().enumerate() {
        let name = tab.map_or("All", super::kinds::TopKind::title);
        let style = if tab == model.tab { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        spans.push(Span::styled(format!("{at} {name}"), style));
        spans.push(Span::raw("  "));
    }
    Line::from(spans)
}

fn list(pen: &mut Pen, model: &TopModel, now: Timestamp, end: u16) {
    let columns = layout(&natural(&model.rows, &model.columns(), now), usize::from(pen.area.width));
    let titles = columns.iter().map(|(column, width)| fit(column.title(), *width)).collect::<Vec<_>>();
    pen.line_before(end, Line::styled(titles.join(&" ".repeat(GAP)), bold()));
    let room = usize::from(end.saturating_sub(pen.y));
    let gaps = gap_lines(model, room, usize::from(pen.area.width));
    let shown = room - gaps.len();
    let at = model.position();
    let first = at.saturating_sub(shown / 2).min(model.rows.len().saturating_sub(shown));
    for row in model.rows.iter().skip(first).take(shown) {
        let is_selected = Some(&row.id) == model.selected.as_ref();
        pen.line_before(end, row_line(model, row, &columns, now, is_selected));
    }
    if model.rows.is_empty() && shown > 0 {
        let filtered = if model.filter.is_empty() { "" } else { " that match the filter" };
        let text = if model.is_listing() {
            "reading …".to_owned()
        } else {
            format!("No objects in {}{filtered}.", model.scope.words())
        };
        pen.line_before(end, Line::raw(text));
    }
    for gap in gaps {
        pen.line_before(end, Line::styled(gap, Style::new().fg(Color::Yellow)));
    }
}

/// Lines for the kinds that cannot be shown, in at most half of the room, but at least one.
fn gap_lines(model: &TopModel, room: usize, columns: usize) -> Vec<String> {
    let all = model.gaps();
    let most = (room / 2).max(1).min(room);
    let mut lines: Vec<String> = all.iter().flat_map(|gap| wrap(gap, columns)).collect();
    if lines.len() > most {
        lines = all.iter().map(|gap| cut(gap, columns)).take(most).collect();
    }
    lines
}

fn row_line(
    model: &TopModel,
    row: &TopRow,
    columns: &[(TopColumn, usize)],
    now: Timestamp,
    is_selected: bool,
) -> Line<'static> {
    let mut spans = Vec::new();
    for (at, (column, width)) in columns.iter().enumerate() {
        if at > 0 {
            spans.push(Span::raw(" ".repeat(GAP)));
        }
        match column {
            TopColumn::Trend => {
                let bars = bars_of(model, row);
                let blanks = width.saturating_sub(bars.len());
                spans.push(Span::raw(" ".repeat(blanks)));
                spans.extend(bars.iter().map(bar_span));
            }
            TopColumn::State => spans.push(Span::styled(fit(&row.state, *width), tone_style(row.tone))),
            column => spans.push(Span::raw(fit(&column.cell(row, now), *width))),
        }
    }
    let line = Line::from(spans);
    if is_selected { line.style(Style::new().add_modifier(Modifier::REVERSED)) } else { line }
}

fn bars_of(model: &TopModel, row: &TopRow) -> Vec<TrendBar> {
    let Some((metric, levels)) = &row.metric else { return Vec::new() };
    let trend = model.trends.get(&row.id).and_then(|trends| trends.get(metric));
    trend.map(|trend| trend.bars(*levels, TREND)).unwrap_or_default()
}

fn bar_span(bar: &TrendBar) -> Span<'static> {
    Span::styled(bar.glyph.to_string(), tone_style(if bar.beyond { TopTone::Bad } else { TopTone::Good }))
}

fn details(pen: &mut Pen, model: &TopModel, scroll: usize, end: u16) {
    let TopPane::Detail { id, .. } = &model.pane else { return };
    pen.line_before(end, Line::styled(cut(&id.words(), usize::from(pen.area.width)), bold()));
    let lines = detail_lines(model);
    let room = usize::from(end.saturating_sub(pen.y));
    let first = scroll.min(lines.len().saturating_sub(room));
    for line in lines.into_iter().skip(first) {
        pen.line_before(
            end,
            match line {
                DetailLine::Text(text) => Line::raw(text),
                DetailLine::Chart { metric, bars, levels } => {
                    let mut spans = vec![Span::raw(format!("{metric} "))];
                    spans.extend(bars.iter().map(bar_span));
                    spans.push(Span::raw(format!(" {levels}")));
                    Line::from(spans)
                }
            },
        );
    }
}

/// An input, the result of the last key, or the message of the selected object; in at most this number of lines.
fn message(model: &TopModel, most: usize) -> Vec<Line<'static>> {
    let columns = usize::from(model.size.0);
    let yellow = bold().fg(Color::Yellow);
    let wrapped = |text: &str, style: Style| {
        let mut lines = wrap(text, columns);
        if lines.len() > most {
            lines.truncate(most);
            lines.iter_mut().skip(most - 1).for_each(|line| *line = ending(line, "…", columns));
        }
        lines.into_iter().map(|line| Line::styled(line, style)).collect::<Vec<_>>()
    };
    match (&model.prompt, &model.notice) {
        (Some(TopPrompt::Confirm(planned)), _) => wrapped(&format!("{} (y/n)", planned.question), yellow),
        (Some(TopPrompt::Filter(_)), _) => vec![Line::styled(ending("filter: ", &model.filter, columns), yellow)],
        (Some(TopPrompt::Namespace(name)), _) => {
            vec![Line::styled(ending("namespace (empty: all): ", name, columns), yellow)]
        }
        (None, Some(notice)) => {
            wrapped(&notice.text, tone_style(if notice.is_bad { TopTone::Bad } else { TopTone::Busy }))
        }
        (None, None) => {
            let selected = model.rows.iter().find(|row| Some(&row.id) == model.selected.as_ref());
            let text = selected.filter(|_| model.pane == TopPane::List).map(|row| row.message.as_str());
            vec![Line::raw(cut(text.unwrap_or_default(), columns))]
        }
    }
}

/// A text with an end that stays visible.
fn ending(text: &str, end: &str, columns: usize) -> String {
    let end: String = {
        let skipped = end.chars().count().saturating_sub(columns / 2);
        end.chars().skip(skipped).collect()
    };
    cut(text, columns.saturating_sub(width(&end))) + &end
}

/// State of the view: since when it is stale, or the most important keys.
fn state(model: &TopModel, now: Timestamp) -> Line<'static> {
    let columns = usize::from(model.size.0);
    if let Some((since, watches, why)) = model.stale() {
        let clock = since.to_zoned(TimeZone::system()).strftime("%H:%M:%S").to_string();
        let text = format!(
            "stale since {clock} ({}): {} broken, retrying: {why}",
            age(since, now),
            if watches == 1 { "1 watch".to_owned() } else { format!("{watches} watches") }
        );
        return Line::styled(cut(&text, columns), tone_style(TopTone::Bad));
    }
    let keys = match model.pane {
        TopPane::List => "q quit  ? help  Enter explain  / filter  s suspend  r resume  x abort  a approve",
        TopPane::Detail { .. } => "Esc back  s suspend  r resume  x abort  a approve",
        TopPane::Help => "any key: back",
    };
    Line::styled(cut(keys, columns), Style::new().add_modifier(Modifier::DIM))
}
