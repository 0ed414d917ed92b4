//! Differential pressure of a node, from a server with WAO's DifferentialPressureAPI.

use std::fmt;

use reqwest::{StatusCode, Url};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::Error;
use super::value::{ValueError, is_plain_name};
use super::web::{good, parse};
use ganglion_core::document::{parsed, parsed_without_nan};
use ganglion_core::items::Items;
use ganglion_core::words::kind_of_text;

/// Maximum differential pressure in pascals, in either direction; fans cause some tens.
const MAX_PASCALS: f64 = 10_000.0;

/// Maximum number of sensors in an answer.
const MAX_SENSORS: usize = 64;

/// Sensor that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PressureSensor<'a> {
    /// Sensor that the server assigns to the node of this name.
    OfNode(&'a str),
    /// Sensor with this id.
    Named(&'a str),
}

impl fmt::Display for PressureSensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfNode(node) => write!(f, "sensor of node {node}"),
            Self::Named(id) => write!(f, "sensor {id}"),
        }
    }
}

/// Reading of a sensor.
#[derive(Clone, Debug, PartialEq)]
pub struct PressureReading {
    pub pascals: f64,
    /// Id of the sensor. None: the server returns no id that may be shown.
    pub sensor: Option<String>,
}

/// Answer of the server.
#[derive(Deserialize)]
struct PressureReply {
    #[serde(default)]
    code: Option<Loose>,
    #[serde(default)]
    sensor: Items<ListedSensor, MAX_SENSORS>,
}

#[derive(Deserialize)]
struct ListedSensor {
    #[serde(default)]
    sensorid: Option<Loose>,
    #[serde(default)]
    pressure: Option<Loose>,
}

impl ListedSensor {
    fn id(&self) -> Option<String> {
        match self.sensorid.as_ref()? {
            Loose::Text(text) => Some(text.clone()),
            Loose::Number(number) => Some(number.to_string()),
            Loose::Other => None,
        }
    }
}

/// Number or text. Servers differ in which of the two they return.
enum Loose {
    Number(f64),
    Text(String),
    Other,
}

impl<'de> Deserialize<'de> for Loose {
    /// An untagged enum would first build a tree of the value.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = <&RawValue>::deserialize(deserializer)?.get().as_bytes();
        Ok(match (parsed(json), parsed(json)) {
            (Ok(number), _) => Self::Number(number),
            (Err(_), Ok(text)) => Self::Text(text),
            (Err(_), Err(_)) => Self::Other,
        })
    }
}

impl Loose {
    fn number(&self, field: &str) -> Result<f64, ValueError> {
        let kind = match self {
            Self::Number(number) => return Ok(*number),
            Self::Text(text) => match text.trim().parse() {
                Ok(number) => return Ok(number),
                Err(_) => kind_of_text(text),
            },
            Self::Other => "neither a number nor a text".to_owned(),
        };
        Err(ValueError::Invalid(format!("{field} is {kind}, not a number")))
    }
}

/// URL of a sensor. `endpoint` is the URL of the server, without `/api/sensor`.
pub fn sensor_url(endpoint: &str, sensor: PressureSensor<'_>) -> Result<Url, ValueError> {
    let mut url = parse(endpoint)?;
    let (PressureSensor::OfNode(name) | PressureSensor::Named(name)) = sensor;
    // Dots would be interpreted as path steps; URL parsers drop tabs and line ends.
    if matches!(name, "" | "." | "..") || name.chars().any(char::is_control) {
        return Err(ValueError::Unfit("the name of the node or sensor cannot be part of a URL path".to_owned()));
    }
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(["api", "sensor"]);
        match sensor {
            PressureSensor::OfNode(node) => path.extend(["by_nodename", node]),
            PressureSensor::Named(id) => path.push(id),
        };
    }
    Ok(url)
}

/// Parses the reading of this sensor. Fails unless the answer contains exactly one.
pub fn reading(status: StatusCode, body: &[u8], asked: PressureSensor<'_>) -> Result<PressureReading, ValueError> {
    if status == StatusCode::NOT_FOUND {
        let words = format!("the server answers {status}: it has no {asked}, or is no DifferentialPressureAPI");
        return Err(ValueError::NotFound(words));
    }
    good(status)?;
    let reply: PressureReply = parsed_without_nan(body).map_err(Error::Answer)?;
    check_code(reply.code.as_ref(), asked)?;
    let sensor = only(reply.sensor, asked)?;
    let id = sensor.id();
    let shown = id.as_deref().filter(|id| is_plain_name(id));
    let pressure = sensor.pressure.as_ref().ok_or_else(|| {
        let which = shown.map_or_else(|| asked.to_string(), |id| format!("sensor {id}"));
        ValueError::NoReading(format!("the {which} has no reading at the moment"))
    })?;
    let pascals = pressure.number("pressure")?;
    if pascals.is_nan() || pascals.abs() > MAX_PASCALS {
        return Err(ValueError::Invalid(format!("the pressure is not between -{MAX_PASCALS} and {MAX_PASCALS} Pa")));
    }
    Ok(PressureReading { pascals, sensor: shown.map(str::to_owned) })
}

/// The API repeats the HTTP status in the body, and some servers report errors only there. The code is optional, since
/// WAO ignores it.
fn check_code(code: Option<&Loose>, asked: PressureSensor<'_>) -> Result<(), ValueError> {
    let Some(code) = code else { return Ok(()) };
    match code.number("code")? {
        200.0 => Ok(()),
        404.0 => Err(ValueError::NotFound(format!("the server answers code 404: it has no {asked}"))),
        code if (100.0..600.0).contains(&code) => {
            Err(ValueError::Invalid(format!("the server answers code {code:.0}, not 200")))
        }
        _ => Err(ValueError::Invalid("code is not 200".to_owned())),
    }
}

/// Selects the requested sensor.
fn only(found: Items<ListedSensor, MAX_SENSORS>, asked: PressureSensor<'_>) -> Result<ListedSensor, ValueError> {
    if found.count > MAX_SENSORS {
        let words = format!("the server answers with {} sensors, more than {MAX_SENSORS}", found.count);
        return Err(ValueError::Invalid(words));
    }
    let mut sensors = found.kept;
    if let PressureSensor::Named(name) = asked {
        // A single sensor without an id is accepted: the request named only one.
        let unnamed = sensors.len() == 1;
        sensors.retain(|sensor| sensor.id().map_or(unnamed, |id| id == name));
    }
    let ids: Vec<_> = sensors.iter().filter_map(ListedSensor::id).collect();
    let mut sensors = sensors.into_iter();
    match (sensors.next(), sensors.len()) {
        (None, _) => Err(ValueError::NotFound(format!("the server has no {asked}"))),
        (Some(sensor), 0) => Ok(sensor),
        (Some(_), more) => {
            let shown: Vec<_> = ids.iter().filter(|id| is_plain_name(id)).map(String::as_str).collect();
            let shown = if shown.is_empty() { String::new() } else { format!(" ({})", shown.join(", ")) };
            let words = match (asked, more + 1) {
                (PressureSensor::OfNode(node), count) => {
                    format!("the server has {count} sensors of node {node}{shown}: set sensor to the id of one")
                }
                (PressureSensor::Named(id), count) => format!("the server has {count} sensors with the id {id}"),
            };
            Err(ValueError::AmbiguousSensor(words))
        }
    }
}

#[cfg(test)]
mod tests {
    //! Requests, and parsing of answers.

    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case("http://10.0.0.1:5000", "http://10.0.0.1:5000/api/sensor/by_nodename/worker-0")]
    #[case("http://10.0.0.1:5000/", "http://10.0.0.1:5000/api/sensor/by_nodename/worker-0")]
    #[case("https://dp.example/a/b?key=c", "https://dp.example/a/b/api/sensor/by_nodename/worker-0?key=c")]
    fn the_sensor_of_a_node_is_asked_for_by_its_name(#[case] endpoint: &str, #[case] expected: &str) {
        assert_eq!(sensor_url(endpoint, PressureSensor::OfNode("worker-0")).unwrap().as_str(), expected);
    }

    #[rstest]
    #[case("101037B", "http://dp/api/sensor/101037B")]
    #[case("a b/c?d#e%41", "http://dp/api/sensor/a%20b%2Fc%3Fd%23e%2541")]
    #[case("...", "http://dp/api/sensor/...")]
    fn a_named_sensor_is_one_part_of_the_path(#[case] id: &str, #[case] expected: &str) {
        assert_eq!(sensor_url("http://dp", PressureSensor::Named(id)).unwrap().as_str(), expected);
    }

    #[rstest]
    #[case("http://dp", "..")]
    #[case("http://dp", ".\t.")]
    #[case("http://dp", "")]
    #[case("ftp://dp", "a")]
    #[case("dp:5000", "a")]
    fn what_is_no_address_is_not_asked(#[case] endpoint: &str, #[case] id: &str) {
        assert!(sensor_url(endpoint, PressureSensor::Named(id)).is_err());
    }

    fn read(answer: &Value, asked: PressureSensor<'_>) -> Result<PressureReading, ValueError> {
        reading(StatusCode::OK, answer.to_string().as_bytes(), asked)
    }

    fn sensors(sensors: &Value) -> Value {
        json!({"code": 200, "sensor": sensors})
    }

    const OF_NODE: PressureSensor<'_> = PressureSensor::OfNode("worker-0");

    #[rstest]
    #[case(json!([{"pressure": 0.01, "sensorid": "101037B", "temperature": 26.02}]), 0.01, Some("101037B"))]
    #[case(json!([{"pressure": "-7.5", "sensorid": 12}]), -7.5, Some("12"))]
    #[case(json!([{"pressure": 0, "sensorid": null}]), 0.0, None)]
    #[case(json!([{"pressure": 10_000, "sensorid": "<b>hunter2</b>"}]), 10_000.0, None)]
    fn a_reading_is_read(#[case] list: Value, #[case] pascals: f64, #[case] id: Option<&str>) {
        let expected = PressureReading { pascals, sensor: id.map(str::to_owned) };
        assert_eq!(read(&sensors(&list), OF_NODE), Ok(expected.clone()));
        assert_eq!(read(&json!({ "sensor": list }), OF_NODE), Ok(expected), "without a code, as WAO takes it");
    }

    #[rstest]
    #[case(r#"{"sensor": [{"sensorid": "a", "pressure": 7.5, "temperature": NaN}]}"#, Ok(7.5))]
    #[case(
        r#"{"sensor": [{"sensorid": "a", "pressure": NaN, "temperature": 20}]}"#,
        Err("the sensor a has no reading at the moment")
    )]
    fn a_number_that_json_does_not_have_is_that_of_one_field(
        #[case] answer: &str,
        #[case] expected: Result<f64, &str>,
    ) {
        let found = reading(StatusCode::OK, answer.as_bytes(), OF_NODE).map(|found| found.pascals);
        assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(str::to_owned));
    }

    #[rstest]
    #[case(json!({"code": 500, "sensor": [{"pressure": 1}]}), "the server answers code 500, not 200")]
    #[case(json!({"code": 1e9, "sensor": [{"pressure": 1}]}), "code is not 200")]
    #[case(json!({"code": "hunter2"}), "code is a text of 7 characters, not a number")]
    #[case(json!({"code": 404, "sensor": []}), "the server answers code 404: it has no sensor of node worker-0")]
    #[case(json!({"code": 200, "sensor": []}), "the server has no sensor of node worker-0")]
    #[case(json!({"code": "200", "sensor": null}), "the server has no sensor of node worker-0")]
    #[case(json!({}), "the server has no sensor of node worker-0")]
    #[case(
        json!({"sensor": [{"sensorid": "a", "pressure": 1}, {"sensorid": "<b>", "pressure": 1}]}),
        "the server has 2 sensors of node worker-0 (a): set sensor to the id of one"
    )]
    #[case(json!({"sensor": [{"sensorid": "a", "pressure": null}]}), "the sensor a has no reading at the moment")]
    #[case(json!({"sensor": [{"temperature": 26}]}), "the sensor of node worker-0 has no reading at the moment")]
    #[case(json!({"sensor": [{"pressure": 10_000.1}]}), "the pressure is not between -10000 and 10000 Pa")]
    #[case(json!({"sensor": [{"pressure": "nan"}]}), "the pressure is not between -10000 and 10000 Pa")]
    #[case(json!({"sensor": [{"pressure": "-inf"}]}), "the pressure is not between -10000 and 10000 Pa")]
    #[case(json!({"sensor": [{"pressure": "hunter2"}]}), "pressure is a text of 7 characters, not a number")]
    #[case(json!({"sensor": [{"pressure": true}]}), "pressure is neither a number nor a text, not a number")]
    #[case(json!({"sensor": {"pressure": 1}}), "the answer does not have the expected form at line 1, column 11")]
    #[case(json!([]), "the server has no sensor of node worker-0")]
    fn what_is_no_reading_has_words(#[case] answer: Value, #[case] words: &str) {
        assert_eq!(read(&answer, OF_NODE).unwrap_err().to_string(), words);
    }

    #[test]
    fn a_named_sensor_is_told_from_others() {
        let two = sensors(&json!([{"sensorid": "a", "pressure": 1}, {"sensorid": "b", "pressure": 2}]));
        let of = |id| read(&two, PressureSensor::Named(id)).map(|found| found.pascals);
        assert_eq!((of("a"), of("b")), (Ok(1.0), Ok(2.0)));
        assert_eq!(of("c"), Err(ValueError::NotFound("the server has no sensor c".into())));
        let twice = sensors(&json!([{"sensorid": "a", "pressure": 1}, {"sensorid": "a", "pressure": 2}]));
        let error = read(&twice, PressureSensor::Named("a")).unwrap_err();
        assert_eq!(error, ValueError::AmbiguousSensor("the server has 2 sensors with the id a".into()));
        let unnamed = sensors(&json!([{"pressure": 3}]));
        assert_eq!(read(&unnamed, PressureSensor::Named("a")).map(|found| found.pascals), Ok(3.0));
    }

    #[rstest]
    #[case(
        StatusCode::NOT_FOUND,
        "the server answers 404 Not Found: it has no sensor of node worker-0, or is no DifferentialPressureAPI"
    )]
    #[case(StatusCode::UNAUTHORIZED, "the server answers 401 Unauthorized")]
    #[case(StatusCode::OK, "the answer is no JSON document: error at line 1, column 1")]
    fn an_error_need_not_be_json(#[case] status: StatusCode, #[case] words: &str) {
        assert_eq!(reading(status, b"<html>hunter2", OF_NODE).unwrap_err().to_string(), words);
    }

    #[test]
    fn an_answer_with_too_many_sensors_is_refused() {
        let many = sensors(&json!(vec![json!({"pressure": 1}); MAX_SENSORS + 1]));
        let error = read(&many, OF_NODE).unwrap_err();
        assert_eq!(error, ValueError::Invalid("the server answers with 65 sensors, more than 64".into()));
    }

    proptest! {
        #[test]
        fn a_name_never_leaves_its_part_of_the_path(id in ".*") {
            if let Ok(url) = sensor_url("http://dp/x/?k=v", PressureSensor::Named(&id)) {
                let parts: Vec<_> = url.path_segments().unwrap().collect();
                prop_assert_eq!(parts.len(), 4, "{}", url);
                prop_assert_eq!(&parts[..3], ["x", "api", "sensor"].as_slice());
                prop_assert_eq!((url.host_str(), url.query()), (Some("dp"), Some("k=v")));
            }
        }

        #[test]
        fn what_is_read_is_what_was_written(pascals in -10_000.0..10_000.0_f64, id in "[a-zA-Z0-9]{1,20}") {
            let found = read(&sensors(&json!([{"sensorid": id, "pressure": pascals}])), OF_NODE).unwrap();
            prop_assert!((found.pascals - pascals).abs() < 1e-9);
            prop_assert_eq!(found.sensor, Some(id));
        }
    }
}
