//! Laws of every timeline: entries are sorted, none is lost, none is doubled, and a picture is well-formed XML.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::cli::timeline::follow::ShownEntries;
use crate::cli::timeline::model::{Draft, Lane, ShownLevel, TimelineEntry, Tone, UnknownSpan};
use crate::cli::timeline::svg::svg;
use crate::cli::timeline::text::{TextStyle, text};
use crate::cli::timeline::width::{columns, wrap};
use ganglion_api::closed_loop::metric::Side;

fn moment() -> impl Strategy<Value = Timestamp> {
    (0_i64..100_000).prop_map(|half| Timestamp::from_millisecond(half * 500).unwrap())
}

fn entry() -> impl Strategy<Value = TimelineEntry> {
    (moment(), 0_usize..12, 0_u8..40, any::<String>(), any::<bool>()).prop_map(|(at, lane, key, text, bad)| {
        let tone = if bad { Tone::Warning } else { Tone::Plain };
        let entry = TimelineEntry::new(at, Lane::ALL[lane], format!("key/{key}"), text).tone(tone);
        if bad { entry.result() } else { entry }
    })
}

fn draft() -> impl Strategy<Value = Draft> {
    let values = prop::collection::vec((any::<String>(), moment(), "-?[0-9]{1,9}(\\.[0-9]{1,3})?|[a-z]{0,3}"), 0..20);
    let levels = prop::collection::vec((any::<String>(), any::<f64>(), prop::option::of(moment())), 0..5);
    let gaps = prop::collection::vec((moment(), moment(), any::<String>()), 0..4);
    let texts = (any::<String>(), any::<String>(), prop::collection::vec(any::<String>(), 0..3));
    (prop::collection::vec(entry(), 0..40), values, levels, gaps, texts).prop_map(
        |(entries, values, levels, gaps, texts)| {
            let mut draft = Draft {
                title: texts.0,
                about: texts.1,
                limits: texts.2.clone(),
                now: texts.2,
                entries,
                ..Draft::default()
            };
            for (name, at, value) in values {
                draft.add_value(&name, at, &value);
            }
            draft.levels = levels
                .into_iter()
                .map(|(text, value, since)| {
                    let metric = draft.series.first().map_or_else(String::new, |series| series.name.clone());
                    ShownLevel { metric, side: Side::Low, clears: false, value, text, since }
                })
                .collect();
            draft.gaps = gaps.into_iter().map(|(from, to, text)| UnknownSpan { from, to, text }).collect();
            draft
        },
    )
}

proptest! {
    #[test]
    fn entries_are_sorted_none_is_lost_and_none_is_doubled(draft in draft(), since in prop::option::of(moment())) {
        let keys: BTreeSet<String> = draft.entries.iter().flat_map(|entry| entry.keys.clone()).collect();
        // The first entry of each key is the one that is kept.
        let mut kept = BTreeSet::new();
        for entry in &draft.entries {
            if !kept.iter().any(|(key, _)| key == &entry.keys[0]) {
                kept.insert((entry.keys[0].clone(), entry.at));
            }
        }
        prop_assert_eq!(kept.len(), keys.len());
        let expected: BTreeSet<(String, Timestamp)> =
            kept.into_iter().filter(|(_, at)| since.is_none_or(|since| *at >= since)).collect();
        let now = Timestamp::from_second(25_000).unwrap();
        let timeline = draft.finish(now, since);
        prop_assert!(timeline.entries.is_sorted_by_key(TimelineEntry::place));
        prop_assert!(timeline.entries.is_sorted_by_key(|entry| entry.at.as_second()));
        let shown = timeline.entries.iter().map(|entry| (entry.keys[0].clone(), entry.at));
        let shown: Vec<(String, Timestamp)> = shown.collect();
        prop_assert_eq!(shown.len(), expected.len());
        prop_assert_eq!(shown.into_iter().collect::<BTreeSet<_>>(), expected);
        let mut known = ShownEntries::default();
        prop_assert_eq!(known.news(&timeline).len(), timeline.entries.len());
        prop_assert!(known.news(&timeline).is_empty());
    }

    #[test]
    fn a_picture_is_well_formed_and_a_text_fits(draft in draft(), width in 20_usize..130) {
        let timeline = draft.finish(now(), None);
        let picture = svg(&timeline);
        let parsed = roxmltree::Document::parse(&picture);
        prop_assert!(parsed.is_ok(), "{:?} in {picture}", parsed.err());
        for node in parsed.unwrap().descendants() {
            for attribute in node.attributes() {
                prop_assert!(!attribute.value().contains("NaN") && !attribute.value().contains("inf"), "{attribute:?}");
            }
        }
        let style = TextStyle { width: Some(width), colors: false };
        for line in text(&timeline, style).lines() {
            prop_assert!(columns(line) <= width, "{line:?}");
        }
    }

    #[test]
    fn wrapped_text_loses_no_character(words in any::<String>(), width in 8_usize..60) {
        let all = |text: &str| text.split_whitespace().collect::<String>();
        let lines = wrap(&words, Some(width));
        prop_assert_eq!(all(&lines.concat()), all(&words));
    }
}
