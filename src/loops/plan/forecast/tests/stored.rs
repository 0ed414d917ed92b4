//! The stored form: small, written hourly, exact.

use proptest::prelude::*;
use rstest::rstest;

use super::bench::{DAILY, DAY, FollowedLoad, HOUR, MINUTE, SHORT, at, office, offices, rules};
use crate::forecast::samples::BucketSamples;
use crate::forecast::{ForecastMemory, ForecastMemoryError, ForecastTrust};

fn load(second: i64) -> Option<f64> {
    Some(office(second))
}

/// Memory after a restart.
fn restarted(memory: &ForecastMemory) -> ForecastMemory {
    ForecastMemory::parse(&memory.text(), &DAILY).unwrap()
}

#[test]
fn the_form_is_short() {
    let text = offices(4).memory.text();
    assert!(text.len() < 1900, "{}", text.len());
    assert!(text.starts_with("1;300;288;2;6001343;0;288;"), "{text}");
    let kept = ForecastMemory::new(&SHORT, at(0)).unwrap().text();
    let empty = "A".repeat(36);
    assert_eq!(kept, format!("1;60;12;1;30000960;0;0;-;0e0,0e0,0e0;{empty};{empty};"));
}

/// The largest form: most buckets, longest horizon, numbers with many digits.
#[test]
fn the_form_is_bounded() {
    let mut this = FollowedLoad::new(&rules(HOUR, DAY));
    this.follow(4 * DAY, |second| Some(1e9 / 3.0 + office(second) * 1e-7));
    let text = this.memory.text();
    assert!(text.len() < 2000, "{}", text.len());
}

#[test]
fn the_form_is_written_hourly() {
    let mut this = FollowedLoad::new(&DAILY);
    let mut stored: Option<String> = None;
    let mut writes = 0;
    while this.second < DAY {
        let next = this.second + MINUTE;
        this.follow(next, load);
        if this.memory.needs_write(stored.as_deref()) {
            stored = Some(this.memory.text());
            writes += 1;
            assert!(!this.memory.needs_write(stored.as_deref()));
        }
    }
    assert!((23..=24).contains(&writes), "{writes}");
    for other in ["", "1;300;288;2;x", "1;300;144;2;6000192;0", "1;300;288;2;999999999;0"] {
        assert!(this.memory.needs_write(Some(other)), "{other}");
    }
}

#[test]
fn trust_survives_a_restart() {
    let mut this = offices(4);
    let exact = this.forecast();
    assert!(this.is_trusted());
    this.memory = restarted(&this.memory);
    assert_eq!(this.forecast(), exact);
    // An operator that was away for an hour, and has lost the values of the hour before.
    let text = this.memory.text();
    this.follow(4 * DAY + HOUR, load);
    this.memory = ForecastMemory::parse(&text, &DAILY).unwrap();
    this.second += HOUR;
    this.follow(4 * DAY + 2 * HOUR + 10 * MINUTE, load);
    assert!(this.is_trusted(), "{}", this.forecast());
}

/// Both memories are the same from the next bucket on.
#[test]
fn a_restart_forgets_at_most_the_open_bucket() {
    let mut this = offices(3);
    this.follow(3 * DAY + 12 * HOUR, load);
    let mut other = FollowedLoad { memory: restarted(&this.memory), second: this.second };
    assert_eq!(other.memory.text(), this.memory.text());
    for hours in [13, 20, 36] {
        this.follow(3 * DAY + hours * HOUR, load);
        other.follow(3 * DAY + hours * HOUR, load);
        let (exact, restored) = (this.forecast(), other.forecast());
        assert_eq!(restored.trust, exact.trust);
        assert!((restored.demand.unwrap() - exact.demand.unwrap()).abs() < 1.0, "{exact} {restored}");
    }
}

#[test]
fn other_rules() {
    let this = offices(4);
    let text = this.memory.text();
    // The same buckets: the values stay.
    let memory = ForecastMemory::parse(&text, &rules(20 * MINUTE, DAY)).unwrap();
    assert_eq!(memory.forecast(at(4 * DAY - 1)).trust, ForecastTrust::Learning { horizons: 0, needed: 288 });
    let mut other = FollowedLoad { memory, second: this.second };
    other.follow(5 * DAY + 2 * HOUR, load);
    assert!(other.is_trusted(), "{}", other.forecast());
    for other in [rules(16 * MINUTE, DAY), rules(10 * MINUTE, DAY / 2), rules(HOUR, 7 * DAY)] {
        assert_eq!(ForecastMemory::parse(&text, &other).map(drop), Err(ForecastMemoryError::OtherBuckets));
    }
    let bad = rules(10, DAY);
    let problem = bad.check().unwrap_err();
    assert_eq!(ForecastMemory::parse(&text, &bad).map(drop), Err(ForecastMemoryError::Rules(problem)));
}

/// A short form, with this change.
fn changed(from: &str, to: &str) -> String {
    let mut this = FollowedLoad::new(&SHORT);
    this.follow(3 * HOUR, |second| Some((second / MINUTE % 12) as f64));
    let text = this.memory.text();
    assert!(text.contains(from), "{text}");
    text.replacen(from, to, 1)
}

#[rstest]
#[case(String::new(), ForecastMemoryError::Version)]
#[case(changed("1;60", "2;60"), ForecastMemoryError::Version)]
#[case(changed(";60;", ";0;"), ForecastMemoryError::Malformed)]
#[case(changed(";60;", ";61;"), ForecastMemoryError::OtherBuckets)]
#[case(changed(";12;1;", ";13;1;"), ForecastMemoryError::OtherBuckets)]
#[case(changed(";12;1;", ";12;-1;"), ForecastMemoryError::Malformed)]
#[case(changed(";3000", ";9999999993000"), ForecastMemoryError::Malformed)]
#[case(changed(";0;12;", ";13;12;"), ForecastMemoryError::Malformed)]
#[case(changed(";0;12;", ";0;13;"), ForecastMemoryError::Malformed)]
#[case(changed(";0;12;", ";0;11;"), ForecastMemoryError::Malformed)]
#[case(changed(";12;h;", ";12;x;"), ForecastMemoryError::Malformed)]
#[case(changed(";h;", ";h;NaN,"), ForecastMemoryError::Malformed)]
#[case(changed(";h;", ";h;-1,"), ForecastMemoryError::Malformed)]
#[case(changed(",", ";"), ForecastMemoryError::Malformed)]
#[case(changed(";", ";;"), ForecastMemoryError::Malformed)]
#[case(changed("", "1"), ForecastMemoryError::Version)]
#[case(changed("", "1;60;12;1;").replace("1;60;12;1;1;", "1;60;12;1;"), ForecastMemoryError::Malformed)]
#[case(format!("{}A", changed("", "")), ForecastMemoryError::Malformed)]
#[case(format!("{}AAAAAAAAA", changed("", "")), ForecastMemoryError::Malformed)]
#[case(format!("{};", changed("", "")), ForecastMemoryError::Malformed)]
#[case("1".repeat(3000), ForecastMemoryError::TooLong)]
fn bad_forms_are_refused(#[case] text: String, #[case] expected: ForecastMemoryError) {
    assert_eq!(ForecastMemory::parse(&text, &SHORT).map(drop), Err(expected), "{text}");
}

/// Values with pauses between them, also negative ones.
pub fn records() -> impl Strategy<Value = Vec<(i64, Option<f64>)>> {
    let pause = prop_oneof![20 => 1..90_i64, 2 => 90..2000_i64, 1 => -200..0_i64, 1 => -3000..100_000_i64];
    let value = prop_oneof![8 => (0.0..100.0_f64).prop_map(Some), 1 => Just(None), 1 => (0.0..1e12_f64).prop_map(Some)];
    prop::collection::vec((pause, value), 0..120)
}

/// Memory of records.
pub fn recorded(records: &[(i64, Option<f64>)]) -> (ForecastMemory, i64) {
    let mut memory = ForecastMemory::new(&SHORT, at(0)).unwrap();
    let mut second = 0;
    for (pause, value) in records {
        second += pause;
        memory.record(*value, at(second));
    }
    (memory, second)
}

proptest! {
    #[test]
    fn the_form_is_exact(records in records()) {
        let (mut memory, second) = recorded(&records);
        let restored = ForecastMemory::parse(&memory.text(), &SHORT).unwrap();
        memory.samples = BucketSamples::default();
        prop_assert_eq!(&restored, &memory);
        prop_assert_eq!(restored.forecast(at(second)), memory.forecast(at(second)));
        prop_assert_eq!(restored.text(), memory.text());
    }

    #[test]
    fn no_text_panics(
        records in records(), cut in 0..140_usize, part in "[0-9A-Za-z;,.@_e-]{0,12}|.{0,6}", more in 0..12_usize,
        after in records(),
    ) {
        let text = recorded(&records).0.text();
        let text = format!("{}{part}{}", &text[..cut.min(text.len())], &text[(cut + more).min(text.len())..]);
        if let Ok(mut memory) = ForecastMemory::parse(&text, &SHORT) {
            let mut second = 0;
            for (pause, value) in after {
                second += pause;
                memory.record(value, at(second));
                let demand = memory.forecast(at(second)).demand;
                prop_assert!(demand.is_none_or(|demand| demand.is_finite() && demand >= 0.0));
                memory.needs_write(Some(&text));
            }
            prop_assert!(ForecastMemory::parse(&memory.text(), &SHORT).is_ok());
        }
        let _ = ForecastMemory::parse(&part, &SHORT);
    }
}
