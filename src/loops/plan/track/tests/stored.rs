//! The stored form of the memory: small, seldom written, never less careful than the memory.

use proptest::prelude::*;
use rstest::rstest;

use super::bench::{Tracked, at, direct, policy, queue, rules};
use super::laws::track_rules;
use crate::track::{PolicySelect, RateChange, ScalePace, ScaleRules, TrackMemory, TrackMemoryError, TrackRules};

fn default_rules() -> TrackRules {
    TrackRules { pace: ScalePace::rules(None, None), ..direct(1, 60) }
}

#[test]
fn the_form_is_short() {
    let mut this = Tracked::new(default_rules(), 10);
    this.raw(0, 10);
    this.raw(15, 4);
    assert_eq!(this.memory.text(&this.rules, at(60)), "1;1800000060;10@-60,4@-45;4@-45;;");
    assert_eq!(this.memory.text(&this.rules, at(20)), "1;1800000020;10;10;;".replace("10;10", "10;4"));
    this.raw(100, 12);
    assert_eq!(this.memory.text(&this.rules, at(110)), "1;1800000110;12;4@-95,12;2@-10;");
}

/// Number of writes of an hour with these proposals, one each 15 s.
fn writes(this: &mut Tracked, raw: impl Fn(i64) -> i32) -> usize {
    let mut stored: Option<String> = None;
    let mut writes = 0;
    for step in 0..240 {
        this.raw(step * 15, raw(step));
        if this.memory.needs_write(stored.as_deref(), &this.rules, this.replicas, at(step * 15)) {
            let text = this.memory.text(&this.rules, at(step * 15));
            assert!(text.len() < 1500, "{text}");
            stored = Some(text);
            writes += 1;
            assert!(!this.memory.needs_write(stored.as_deref(), &this.rules, this.replicas, at(step * 15)));
        }
    }
    writes
}

#[rstest]
#[case::steady(|_| 10, 0)]
#[case::one_fall(|step| if step < 100 { 10 } else { 4 }, 4)]
#[case::noise_below(|step| if step < 100 { 10 } else { 4 + (step % 3) as i32 }, 8)]
#[case::noise_around(|step| 9 + (step * 7 % 3) as i32, 8)]
#[case::waves(|step| 10 + (step / 30 % 2) as i32 * 5, 60)]
fn the_form_is_written_seldom(#[case] raw: fn(i64) -> i32, #[case] most: usize) {
    let found = writes(&mut Tracked::new(default_rules(), 10), raw);
    assert!(found <= most, "{found} writes");
}

#[test]
fn the_memory_is_small() {
    let mut this = Tracked::new(default_rules(), 10);
    for step in 0..10_000 {
        this.raw(step * 15, 10 + (step % 7) as i32);
        assert!(this.memory.proposals.len() <= 40, "{}", this.memory.proposals.len());
        assert!(this.memory.changes.len() <= 240, "{}", this.memory.changes.len());
    }
}

#[rstest]
#[case("", TrackMemoryError::Version)]
#[case("2;0;;;;", TrackMemoryError::Version)]
#[case("1;0;;;", TrackMemoryError::Malformed)]
#[case("1;0;;;;;", TrackMemoryError::Malformed)]
#[case("1;x;;;;", TrackMemoryError::Malformed)]
#[case("1;0;5@1;;;", TrackMemoryError::Malformed)]
#[case("1;0;-5;5;;", TrackMemoryError::Malformed)]
#[case("1;0;4@1,5@2;4@1,5@2;;", TrackMemoryError::Malformed)]
#[case("1;0;5@2,4@1;4;;", TrackMemoryError::Malformed)]
#[case("1;9223372036854775807;5@1;5;;", TrackMemoryError::Malformed)]
#[case("1;0;5;5;0@1;", TrackMemoryError::Malformed)]
#[case("1;0;5;5;1@2~1;", TrackMemoryError::Malformed)]
fn bad_forms_are_refused(#[case] text: &str, #[case] expected: TrackMemoryError) {
    assert_eq!(TrackMemory::parse(text, at(0)), Err(expected));
}

#[test]
fn long_forms_are_refused() {
    assert_eq!(TrackMemory::parse(&"1".repeat(5000), at(0)), Err(TrackMemoryError::TooLong));
}

/// A clock that was set back does not hold a window for longer than its length.
#[test]
fn a_clock_that_steps_back_ends_a_window() {
    let mut this = Tracked::new(default_rules(), 10);
    this.raw(3600, 10);
    let results: Vec<i32> = [0, 100, 299, 300].map(|second| this.raw(second, 2)).into();
    assert_eq!(results, [10, 10, 10, 2]);
}

#[test]
fn a_clock_that_steps_forward_ends_a_window() {
    let mut this = Tracked::new(default_rules(), 10);
    this.raw(0, 10);
    assert_eq!([this.raw(15, 2), this.raw(7200, 2)], [10, 2]);
}

#[test]
fn merged_changes_are_careful_in_both_directions() {
    let up = rules(0, &[policy(RateChange::Pods(30), 300)], PolicySelect::Max);
    let down = rules(0, &[policy(RateChange::Pods(30), 300)], PolicySelect::Max);
    let pace = ScalePace::rules(Some(up), Some(down));
    let mut this = Tracked::new(TrackRules { pace, ..direct(0, 1000) }, 100);
    for second in 0..60 {
        this.raw(second, 100 + (second % 2) as i32);
    }
    let text = this.memory.text(&this.rules, at(60));
    assert!(text.len() < 700, "{text}");
    for second in [61, 300, 330, 361] {
        let restored = TrackMemory::parse(&text, at(second)).unwrap();
        for raw in [0, 500] {
            let of = |memory: &TrackMemory| {
                let mut other = Tracked {
                    rules: this.rules.clone(),
                    memory: memory.clone(),
                    replicas: this.replicas,
                    tolerances: None,
                };
                other.result(second, &[queue(&raw.to_string(), "1")]).replicas
            };
            let (exact, careful) = (of(&this.memory), of(&restored));
            assert!(
                (careful - this.replicas).abs() <= (exact - this.replicas).abs(),
                "{second} {raw} {exact} {careful}"
            );
        }
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "(1;)?[0-9;,@~-]{0,80}|.{0,80}", raw in 0..50_i32) {
        if let Ok(memory) = TrackMemory::parse(&text, at(0)) {
            let mut this = Tracked { rules: default_rules(), memory, replicas: 10, tolerances: None };
            prop_assert!((1..=60).contains(&this.raw(0, raw)));
            let again = this.memory.text(&this.rules, at(1));
            prop_assert!(TrackMemory::parse(&again, at(1)).is_ok(), "{}", again);
        }
    }

    /// After a restart with the form that was written last, each result is the same, or nearer to the current number.
    #[test]
    fn a_restart_is_never_less_careful(
        rules in track_rules(),
        raws in prop::collection::vec((1..200_i64, 0..60_i32), 1..30),
        after in prop::collection::vec((1..400_i64, 0..60_i32), 1..6),
        replicas in 1..60_i32,
    ) {
        let mut this = Tracked::new(rules, replicas);
        let mut now = 0;
        let mut stored: Option<String> = None;
        for (pause, raw) in raws {
            now += pause;
            this.raw(now, raw);
            if this.memory.needs_write(stored.as_deref(), &this.rules, this.replicas, at(now)) {
                stored = Some(this.memory.text(&this.rules, at(now)));
            }
        }
        let parsed = stored.and_then(|text| TrackMemory::parse(&text, at(now)).ok());
        let memory = parsed.unwrap_or_default();
        let mut restored = Tracked { rules: this.rules.clone(), memory, replicas: this.replicas, tolerances: None };
        for (pause, raw) in after {
            now += pause;
            let metrics = [queue(&raw.to_string(), "1")];
            let (exact, careful) = (this.result(now, &metrics).replicas, restored.result(now, &metrics).replicas);
            let current = this.replicas;
            prop_assert!((careful - current).abs() <= (exact - current).abs(), "{} {} {}", current, exact, careful);
            prop_assert!((careful - current).signum() * (exact - current).signum() >= 0);
            // Both continue from the same number.
            for one in [&mut this, &mut restored] {
                one.memory.record_change(current, careful, at(now));
                one.replicas = careful;
            }
        }
    }
}

#[test]
fn default_rules_are_those_of_the_autoscaler() {
    let ScalePace::Rules { down, .. } = default_rules().pace else { panic!("rules") };
    assert_eq!(down, ScaleRules::default_down());
}
