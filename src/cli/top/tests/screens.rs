//! The screen, as text, for some models and sizes.

use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};
use serde_json::json;

use super::*;
use crate::cli::top::screen::draw;
use crate::cli::width::width;

fn buffer(model: &mut TopModel, size: (u16, u16)) -> Buffer {
    update(model, TopEvent::Resized(size.0, size.1), now());
    model.refresh();
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal.draw(|frame| draw(frame, model, now())).unwrap();
    terminal.backend().buffer().clone()
}

/// Lines of the screen, without blanks at their ends.
fn screen(model: &mut TopModel, size: (u16, u16)) -> Vec<String> {
    let buffer = buffer(model, size);
    let row = |y: u16| {
        let cells = (0..size.0).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        cells.trim_end().to_owned()
    };
    (0..size.1).map(row).collect()
}

fn contains(lines: &[String], words: &str) {
    assert!(lines.iter().any(|line| line.contains(words)), "{words:?} is not in\n{}", lines.join("\n"));
}

#[test]
fn the_list_has_80_columns() {
    let lines = screen(&mut filled((80, 24)), (80, 24));
    assert_eq!(
        lines[..6],
        [
            "ganglion top  namespace shop  3 objects  by KIND",
            "0 All  1 Actions  2 Loops  3 Pools  4 Nodes  5 Policies",
            "KIND NAME    STATE   REASON   PROGRESS                  TREND        AGE",
            "wa   go      Working Moving   1/3: 1 Readying, 1 Queued              60s",
            "loop web     Ready   Running  cpu 93 (5..80)                     ▁▄█ 60s",
            "swp  cameras Ready   Assigned 3/3 converged, 9 jobs                  60s",
        ]
    );
    assert_eq!(lines[22], "web-1 becomes Ready");
    assert_eq!(lines[23], "q quit  ? help  Enter explain  / filter  s suspend  r resume  x abort  a approve");
    assert!(lines[6..22].iter().all(String::is_empty));
}

#[test]
fn the_picture_in_the_readme_is_the_screen() {
    let readme = include_str!("../../../../README.md").lines().collect::<Vec<_>>();
    let picture = screen(&mut filled((80, 10)), (80, 10));
    let is_there = readme.windows(picture.len()).any(|lines| lines == picture);
    assert!(is_there, "replace the picture in README.md by this one:\n{}", picture.join("\n"));
}

#[test]
fn a_wide_screen_has_messages() {
    let lines = screen(&mut filled((140, 24)), (140, 24));
    contains(&lines[2..3], "AGE MESSAGE");
    contains(&lines[4..5], "60s it watches");
}

#[test]
fn a_screen_of_20_columns_has_name_and_state() {
    let mut model = filled((20, 12));
    let lines = screen(&mut model, (20, 12));
    assert_eq!(lines[2..6], ["KIND NAME    STATE", "wa   go      Working", "loop web     Ready", "swp  cameras Ready"]);
    press(&mut model, crossterm::event::KeyCode::Enter);
    update(&mut model, TopEvent::Explained(id(TopKind::Action, "go"), Ok("web-1 becomes Ready".to_owned())), now());
    let lines = screen(&mut model, (20, 12));
    assert_eq!(lines[2..4], ["WorkloadAction shop…", "web-1 becomes Ready"]);
}

#[test]
fn long_and_wide_names_are_cut_by_display_width() {
    let mut model = filled((80, 24));
    let long = [object(TopKind::Action, &"n".repeat(253), json!({}), json!({}))];
    let wide =
        [object(TopKind::Loop, &"漢".repeat(80), json!({}), json!({"conditions": ready("True", "Running", "")}))];
    listed(&mut model, TopKind::Action, long.into());
    listed(&mut model, TopKind::Loop, wide.into());
    for size in [(20, 10), (80, 24), (300, 24)] {
        let lines = screen(&mut model, size);
        contains(&lines, if size.0 == 300 { "nnnnnnnnnn" } else { "nnnn…" });
        contains(&lines, if size.0 == 300 { "漢" } else { "…" });
        contains(&lines, "Unseen");
    }
}

#[test]
fn the_state_line_says_since_when_the_view_is_stale() {
    let mut model = filled((80, 24));
    let broke = |model: &mut TopModel, kind| {
        let news = WatchNews::Broke("connection refused".to_owned());
        let ten_seconds_ago = now() - jiff::SignedDuration::from_secs(10);
        update(model, TopEvent::Watched { epoch: 0, kind, news }, ten_seconds_ago);
    };
    broke(&mut model, TopKind::Loop);
    let lines = screen(&mut model, (80, 24));
    assert!(lines[23].starts_with("stale since "), "{}", lines[23]);
    assert!(lines[23].ends_with(" (10s): 1 watch broken, retrying: connection refused"), "{}", lines[23]);
    contains(&lines, "loop web     Ready");
    broke(&mut model, TopKind::Pool);
    contains(&screen(&mut model, (80, 24))[23..], "2 watches broken");
    listed(&mut model, TopKind::Loop, Vec::new());
    listed(&mut model, TopKind::Pool, Vec::new());
    assert!(!screen(&mut model, (80, 24))[23].contains("stale"));
}

#[test]
fn kinds_that_cannot_be_shown_are_named_below_the_others() {
    let mut model = filled((80, 24));
    news(&mut model, TopKind::Action, WatchNews::Denied);
    news(&mut model, TopKind::Policy, WatchNews::Missing);
    let lines = screen(&mut model, (80, 24));
    contains(&lines, "Actions: not permitted: list and watch workloadactions.ganglion.dev in namespace");
    contains(&lines, "Policies: not installed: placementpolicies.ganglion.dev");
    contains(&lines, "loop web     Ready");
    let lines = screen(&mut model, (20, 9));
    contains(&lines, "Actions: not");
    contains(&lines, "loop web     Ready");
}

#[test]
fn an_empty_view_says_so() {
    let mut model = empty((80, 24));
    contains(&screen(&mut model, (80, 24)), "reading …");
    for kind in TopKind::watched(&TopKind::SHOWN) {
        listed(&mut model, kind, Vec::new());
    }
    contains(&screen(&mut model, (80, 24)), "No objects in namespace shop.");
    model.filter = "none".to_owned();
    contains(&screen(&mut model, (80, 24)), "No objects in namespace shop that match the filter.");
}

#[test]
fn a_question_is_shown_completely() {
    let mut model = filled((40, 24));
    model.select(Some(id(TopKind::Loop, "web")));
    let effects = press(&mut model, crossterm::event::KeyCode::Char('s'));
    let [TopEffect::Check(planned)] = &effects[..] else { panic!("{effects:?}") };
    update(&mut model, TopEvent::Checked(Ok(planned.clone())), now());
    let lines = screen(&mut model, (40, 24));
    assert_eq!(
        lines[21..23].join(" "),
        "Suspend ClosedLoop shop/web? This sets spec.mode from DryRun to Paused. (y/n)"
    );
}

#[test]
fn a_loop_is_drawn_as_a_chart_with_its_levels() {
    let mut model = filled((80, 24));
    model.select(Some(id(TopKind::Loop, "web")));
    press(&mut model, crossterm::event::KeyCode::Enter);
    let lines = screen(&mut model, (80, 24));
    assert_eq!(lines[2..6], ["ClosedLoop shop/web", "cpu ▁▄█ low 5, high 80", "", "Monitoring  no alarm"]);
    assert_eq!(lines[6..8], ["", "reading …"]);
    let why = "its status has another form".to_owned();
    update(&mut model, TopEvent::Explained(id(TopKind::Loop, "web"), Err(why)), now());
    let lines = screen(&mut model, (80, 24));
    assert_eq!(lines[7..9], ["It cannot be explained: its status has another form", "Ready True Running: it watches"]);
    news(&mut model, TopKind::Loop, WatchNews::Deleted(id(TopKind::Loop, "web")));
    contains(&screen(&mut model, (80, 24)), "ClosedLoop shop/web no longer exists");
}

#[test]
fn colors_are_used_unless_they_are_refused() {
    let mut model = filled((80, 24));
    let colors = |buffer: &Buffer| buffer.content.iter().filter(|cell| cell.fg != Color::Reset).count();
    let with = buffer(&mut model, (80, 24));
    assert!(colors(&with) > 0);
    model.has_color = false;
    let without = buffer(&mut model, (80, 24));
    assert_eq!(colors(&without), 0);
    assert!(without.content.iter().all(|cell| cell.bg == Color::Reset));
    assert!(without[(0, 3)].modifier.contains(Modifier::REVERSED), "the selected row is visible without colors");
}

#[test]
fn the_help_names_every_key() {
    let mut model = filled((80, 24));
    press(&mut model, crossterm::event::KeyCode::Char('?'));
    let lines = screen(&mut model, (80, 24));
    for words in ["suspend", "resume", "abort", "approve", "namespace", "filter", "sort", "quit"] {
        contains(&lines, words);
    }
}

#[test]
fn a_text_of_a_status_cannot_move_the_cursor() {
    let mut model = filled((80, 24));
    let hostile = ready("False", "\u{1b}[2J", "\u{1b}]0;title\u{7}\r\nnext");
    listed(&mut model, TopKind::Action, vec![object(TopKind::Action, "go", json!({}), json!({"conditions": hostile}))]);
    let buffer = buffer(&mut model, (80, 24));
    assert!(buffer.content.iter().all(|cell| !cell.symbol().contains(char::is_control)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn no_size_is_a_panic(columns in 0_u16..120, rows in 0_u16..40, keys in "[jkeo/?n0-5sx]{0,12}") {
        let mut model = filled((80, 24));
        news(&mut model, TopKind::Node, WatchNews::Denied);
        write(&mut model, &keys);
        let lines = screen(&mut model, (columns, rows));
        prop_assert!(lines.iter().all(|line| width(line) <= usize::from(columns)));
    }
}
