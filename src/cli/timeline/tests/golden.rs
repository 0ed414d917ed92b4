//! The texts and pictures of a loop, an action and a pool, as users read them.

use super::*;
use crate::cli::timeline::svg::svg;
use crate::cli::timeline::text::{TextStyle, text};

const PIPE: TextStyle = TextStyle { width: None, colors: false };

fn narrow(width: usize) -> TextStyle {
    TextStyle { width: Some(width), colors: false }
}

#[test]
fn a_loop_is_told_in_order() {
    let expected = include_str!("golden/loop.txt");
    assert_eq!(text(&timeline(TimelineKind::Loop, &loop_objects()), PIPE), expected);
}

#[test]
fn an_action_is_told_in_order() {
    let expected = include_str!("golden/action.txt");
    assert_eq!(text(&timeline(TimelineKind::Action, &action_objects()), PIPE), expected);
}

#[test]
fn a_pool_is_told_in_order() {
    let expected = include_str!("golden/pool.txt");
    assert_eq!(text(&timeline(TimelineKind::Pool, &pool_objects()), PIPE), expected);
}

#[test]
fn a_wide_terminal_shows_values_against_levels() {
    let expected = include_str!("golden/graph.txt");
    let shown = text(&timeline(TimelineKind::Loop, &loop_objects()), narrow(80));
    let graph: String =
        shown.lines().skip_while(|line| *line != "cpu").take(9).map(|line| format!("{line}\n")).collect();
    assert_eq!(graph, expected);
}

#[test]
fn every_line_fits_the_terminal() {
    let mut objects = loop_objects();
    let name = "n".repeat(253);
    objects.parent["metadata"]["name"] = json!(name);
    objects.parent["status"]["tuning"][0]["by"] = json!("s".repeat(253));
    for kind in [TimelineKind::Loop, TimelineKind::Action, TimelineKind::Pool] {
        let mut objects = match kind {
            TimelineKind::Loop => objects.clone(),
            TimelineKind::Action => action_objects(),
            TimelineKind::Pool => pool_objects(),
        };
        objects.problems.insert("x".repeat(300));
        for width in [20, 40, 59, 60, 80, 200] {
            for line in text(&timeline(kind, &objects), narrow(width)).lines() {
                assert!(line.chars().count() <= width && line.trim_end() == line, "{width}: {line:?}");
            }
        }
    }
    let shown = text(&timeline(TimelineKind::Loop, &objects), narrow(20));
    let all: String = shown.split_whitespace().collect();
    assert!(all.contains(&name), "a long name is broken into lines, and not cut");
}

#[test]
fn colors_are_only_where_they_are_wanted() {
    let timeline = timeline(TimelineKind::Loop, &loop_objects());
    let colored = text(&timeline, TextStyle { width: Some(100), colors: true });
    assert!(colored.contains("\u{1b}[33mundone  \u{1b}[0m"), "{colored}");
    assert!(!text(&timeline, narrow(100)).contains('\u{1b}'));
}

#[test]
fn a_picture_has_every_entry_as_text_and_as_a_dot() {
    let timeline = timeline(TimelineKind::Loop, &loop_objects());
    let picture = svg(&timeline);
    let document = roxmltree::Document::parse(&picture).unwrap();
    let names = |name: &str| {
        document.descendants().filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", name))).count()
    };
    let values: usize = timeline.series.iter().map(|series| series.points.len()).sum();
    let shown = timeline.entries.iter().filter(|entry| entry.lane.as_str() != "value").count();
    assert_eq!(names("circle"), values + shown);
    let texts: Vec<&str> =
        document.descendants().filter(|node| node.is_text()).filter_map(|node| node.text()).collect();
    let all = texts.concat().replace(' ', "");
    for entry in &timeline.entries {
        assert!(all.contains(&entry.text.replace(' ', "")), "{} is not in the picture", entry.text);
    }
    for forbidden in ["<script", "http://", "https://", "@import", "url(", "onload"] {
        let rest = picture.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        assert!(!rest.contains(forbidden), "{forbidden}");
    }
}
