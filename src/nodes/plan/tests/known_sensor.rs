//! Searches for a sensor that is known.

use super::*;
use crate::known_sensor::KnownSensor;
use ganglion_api::node_config::status::{NodeReading, SensorChoice};

fn choice(provisional: Option<&str>) -> Option<SensorChoice> {
    Some(SensorChoice { provisional: provisional.map(str::to_owned), ..SensorChoice::default() })
}

fn restored(choice: Option<SensorChoice>) -> Option<KnownSensor> {
    let reading = NodeReading { source: Some("/in".to_owned()), ..NodeReading::default() };
    KnownSensor::restored(Some(&reading), choice)
}

#[test]
fn a_provisional_choice_is_searched_again_and_does_not_survive_a_restart() {
    let known = KnownSensor::found("/in".to_owned(), choice(Some("a part could not be read")), at(0));
    assert_eq!(known.path(at(59)), Some("/in"));
    assert_eq!(known.path(at(60)), None);
    assert_eq!(restored(choice(Some("a part could not be read"))), None);
    let known = KnownSensor::found("/in".to_owned(), choice(None), at(0));
    assert_eq!(known.path(at(1_000_000)), Some("/in"));
    for choice in [choice(None), None] {
        let restored = restored(choice.clone()).unwrap();
        assert_eq!((restored.path(at(0)), restored.choice()), (Some("/in"), choice.as_ref()));
    }
}

#[test]
fn a_sensor_that_cannot_be_read_is_searched_again() {
    let mut known = KnownSensor::found("/in".to_owned(), choice(None), at(0));
    for is_usable in [false, false, true, false, false] {
        known.record(is_usable);
        assert_eq!(known.path(at(9)), Some("/in"));
    }
    known.record(false);
    assert_eq!(known.path(at(9)), None);
}

#[test]
fn the_choice_is_in_the_status() {
    let choice = SensorChoice { evidence: Some("its name means the inlet".to_owned()), ..SensorChoice::default() };
    let (parsed, readings, curve) = (parsed(), all(0), KnownCurve::default());
    let stamp = Stamp { generation: 1, now: at(0) };
    let standing = &Standing::Clear;
    let situation = Situation {
        parsed: Ok(&parsed),
        standing,
        readings: &readings,
        curve: &curve,
        accuracy: None,
        choice: Some(&choice),
        old: &[],
        stamp,
    };
    assert_eq!(situation.status().inlet_sensor, Some(choice));
}
