//! Tests of saved learned values: saving and restoring, bounds, and rejection of invalid texts.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rstest::rstest;

use super::inventory::at;
use crate::learned::{LearnedRewards, RewardRules};
use crate::learned::{LearnedValues, MAX_TEXT, SavedTextError};
use crate::pigeon::LearnedDemand;
use crate::pigeon::SMOOTHING;

fn memory(values: &[(String, String, f64)]) -> LearnedRewards {
    LearnedRewards::restored(values, &RewardRules::default())
}

#[test]
fn a_text_that_would_be_too_long_loses_what_was_updated_least_recently() {
    let node = "n".repeat(253);
    let values: Vec<(String, String, f64)> =
        (0..9000).map(|nth| (format!("t{nth}"), node.clone(), f64::from(nth) / 10_000.0)).collect();
    let saved = LearnedValues::of_demand(at(1), BTreeMap::new()).with_rewards(&memory(&values), None);
    assert!(saved.text().expect("a text").len() <= MAX_TEXT);
    let kept = saved.rewards.len();
    assert!((2500..9000).contains(&kept), "{kept}");
    assert_eq!(saved.rewards, values[9000 - kept..]);
}

#[rstest]
#[case::not_json("savedAt: 1", "cannot be read")]
#[case::empty("", "cannot be read")]
#[case::no_time("{}", "cannot be read")]
#[case::another_form(r#"{"savedAt": "1970-01-01T00:00:01Z", "rewards": {"web": 1}}"#, "cannot be read")]
#[case::no_part(r#"{"savedAt": "1970-01-01T00:00:01Z", "rewards": [["web", "n", 1.5]]}"#, "1.5 of type web on node n")]
#[case::no_number(r#"{"savedAt": "1970-01-01T00:00:01Z", "rewards": [["web", "n", null]]}"#, "cannot be read")]
#[case::future(r#"{"savedAt": "1970-01-01T01:00:00Z"}"#, "in the future")]
#[case::future_period(r#"{"savedAt": "1970-01-01T00:00:01Z", "rewardedAt": "1970-01-01T01:00:00Z"}"#, "in the future")]
#[case::demand(
    r#"{"savedAt": "1970-01-01T00:00:01Z", "demand": {"s": {"arrivals": 1, "mean": [-1,0,0,0,0], "covariance":
    [[0,0,0,0,0],[0,0,0,0,0],[0,0,0,0,0],[0,0,0,0,0],[0,0,0,0,0]]}}}"#,
    "the demand of scheduler s"
)]
fn a_text_of_somebody_else_is_refused_with_words(#[case] text: &str, #[case] words: &str) {
    let error = LearnedValues::parse(text, at(100)).expect_err("a refusal").to_string();
    assert!(error.contains(words), "{error}");
}

#[test]
fn a_text_that_is_too_long_is_not_looked_at() {
    let text = " ".repeat(MAX_TEXT + 1);
    assert_eq!(LearnedValues::parse(&text, at(1)), Err(SavedTextError::TooLong(MAX_TEXT + 1)));
}

fn values() -> impl Strategy<Value = Vec<(String, String, f64)>> {
    proptest::collection::vec(("t[0-9]{1,2}", "n[0-9]", 0.0..0.99_f64), 0..40)
}

proptest! {
    #[test]
    fn what_is_saved_comes_back(
        values in values(),
        demands in proptest::collection::vec(proptest::collection::vec(0.0..1e12_f64, 5), 0..9),
        seconds in 0..10_000_i64,
    ) {
        let mut learned = LearnedDemand::default();
        demands.iter().for_each(|row| learned.learn(&[row[0], row[1], row[2], row[3], row[4]], SMOOTHING));
        let memory = memory(&values);
        let demand = BTreeMap::from([("default-scheduler".to_owned(), learned)]);
        let saved = LearnedValues::of_demand(at(seconds), demand.clone()).with_rewards(&memory, Some(at(seconds)));
        let again = LearnedValues::parse(&saved.text().expect("a text"), at(seconds)).expect("what was written");
        prop_assert_eq!(again.saved_at, at(seconds));
        prop_assert_eq!(again.rewarded_at, Some(at(seconds)));
        prop_assert!(again.is_like(&saved) && saved.is_like(&again));
        let restored = LearnedRewards::restored(&again.rewards, &RewardRules::default());
        prop_assert_eq!(restored.len().0, memory.len().0);
        for ((pod_type, node, value), (same_type, same_node, same)) in memory.values().zip(restored.values()) {
            prop_assert_eq!((pod_type, node), (same_type, same_node));
            prop_assert!((value - same).abs() <= 5.1e-7);
        }
        // A save at another time is alike; a save with a new value is not.
        let later = LearnedValues::of_demand(at(seconds + 60), demand.clone()).with_rewards(&restored, None);
        prop_assert!(later.is_like(&saved));
        let mut more = restored;
        more.learn(("another", &"n".into()), 0.0, 1, &RewardRules::default());
        prop_assert!(!LearnedValues::of_demand(at(1), demand).with_rewards(&more, None).is_like(&saved));
        learned.learn(&[1.0; 5], SMOOTHING);
        let demand = BTreeMap::from([("default-scheduler".to_owned(), learned)]);
        prop_assert!(!LearnedValues::of_demand(at(1), demand).with_rewards(&memory, None).is_like(&saved));
    }

    #[test]
    fn no_text_breaks_the_reader(text in ".{0,80}", cut in 0..200_usize) {
        drop(LearnedValues::parse(&text, at(1)));
        let whole = LearnedValues::of_demand(at(1), BTreeMap::new())
            .with_rewards(&memory(&[("web".to_owned(), "n".to_owned(), 0.5)]), None)
            .text()
            .expect("a text");
        let cut: String = whole.chars().take(cut).collect();
        prop_assert_eq!(LearnedValues::parse(&cut, at(1)).is_ok(), cut == whole);
    }
}
