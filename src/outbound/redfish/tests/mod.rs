//! Searches and polls in trees of documents: each place where a sensor can be, deviations of vendors from the schema,
//! and nonsensical documents.

mod evidence;
mod power;
mod shapes;

use std::collections::BTreeMap;
use std::sync::Mutex;

use proptest::prelude::*;
use reqwest::StatusCode;
use rstest::rstest;
use serde_json::{Value, json};

use super::walk::REQUESTS;
use super::{BmcDocument, Error, Fetch, Inlet, SensorPath, SensorPaths, inlet, model};
use crate as clients;

/// Documents by path, and the requested paths.
#[derive(Default)]
struct Tree {
    documents: BTreeMap<String, Value>,
    /// Paths that return this error instead.
    errors: BTreeMap<String, clients::Error>,
    asked: Mutex<Vec<String>>,
}

impl Fetch for Tree {
    async fn get(&self, path: &str) -> Result<BmcDocument, clients::Error> {
        self.asked.lock().unwrap().push(path.to_owned());
        let path = path.strip_suffix('/').unwrap_or(path);
        if let Some(error) = self.errors.get(path) {
            return Err(error.clone());
        }
        match self.documents.get(path) {
            Some(document) => {
                let document = BmcDocument::parse(document.to_string().as_bytes())?;
                Ok(document.at_origin("https://10.0.0.1".to_owned()))
            }
            None => Err(clients::Error::Status(StatusCode::NOT_FOUND)),
        }
    }
}

fn id(path: &str) -> Value {
    json!({"@odata.id": path})
}

fn members(paths: &[&str]) -> Value {
    json!({"Members": paths.iter().map(|path| id(path)).collect::<Vec<_>>()})
}

impl Tree {
    /// Service with one system in chassis 1.
    fn new() -> Self {
        Self::default()
            .with("/redfish/v1", json!({"Systems": id("/redfish/v1/Systems"), "Chassis": id("/redfish/v1/Chassis/")}))
            .with("/redfish/v1/Systems", members(&["/redfish/v1/Systems/1"]))
            .with("/redfish/v1/Systems/1", json!({"Links": {"Chassis": [id("/redfish/v1/Chassis/1/")]}}))
            .with("/redfish/v1/Chassis", members(&["/redfish/v1/Chassis/1", "/redfish/v1/Chassis/2"]))
            .with("/redfish/v1/Chassis/1", json!({"ChassisType": "RackMount"}))
            .with("/redfish/v1/Chassis/2", json!({"ChassisType": "Enclosure"}))
    }

    fn with(mut self, path: &str, document: Value) -> Self {
        self.documents.insert(path.to_owned(), document);
        self
    }

    fn fails(mut self, path: &str, status: u16) -> Self {
        let error = clients::Error::Status(StatusCode::from_u16(status).unwrap());
        self.errors.insert(path.to_owned(), error);
        self
    }

    /// Adds properties to a document.
    fn and(mut self, path: &str, more: Value) -> Self {
        let document = self.documents.get_mut(path).unwrap().as_object_mut().unwrap();
        document.extend(more.as_object().unwrap().clone());
        self
    }

    /// Adds these sensors to a chassis.
    fn sensors(self, chassis: &str, sensors: &[(&str, Value)]) -> Self {
        let chassis = format!("/redfish/v1/Chassis/{chassis}");
        let paths: Vec<String> = sensors.iter().map(|(id, _)| format!("{chassis}/Sensors/{id}")).collect();
        let tree = self.and(&chassis, json!({"Sensors": id(&format!("{chassis}/Sensors"))}));
        let tree =
            tree.with(&format!("{chassis}/Sensors"), members(&paths.iter().map(String::as_str).collect::<Vec<_>>()));
        sensors.iter().zip(paths).fold(tree, |tree, ((id, sensor), path)| {
            let mut sensor = sensor.clone();
            sensor.as_object_mut().unwrap().insert("Id".into(), json!(id));
            sensor.as_object_mut().unwrap().insert("@odata.id".into(), json!(path));
            tree.with(&path, sensor)
        })
    }

    /// Adds a resource Thermal with these temperatures to a chassis.
    fn thermal(self, chassis: &str, temperatures: Value) -> Self {
        let path = format!("/redfish/v1/Chassis/{chassis}");
        let thermal = format!("{path}/Thermal");
        self.and(&path, json!({"Thermal": id(&thermal)})).with(&thermal, json!({"Temperatures": temperatures}))
    }

    /// Adds an intake summary to chassis 1.
    fn summary(self, intake: Value) -> Self {
        let subsystem = "/redfish/v1/Chassis/1/ThermalSubsystem";
        let metrics = format!("{subsystem}/ThermalMetrics");
        self.and("/redfish/v1/Chassis/1", json!({"ThermalSubsystem": id(subsystem)}))
            .with(subsystem, json!({"ThermalMetrics": id(&metrics)}))
            .with(&metrics, json!({"TemperatureSummaryCelsius": {"Intake": intake}}))
    }

    async fn find(&self, wanted: Option<&str>) -> Result<(f64, String), Error> {
        inlet(self, None, wanted).await.map(|Inlet { celsius, sensor, .. }| (celsius, sensor.to_string()))
    }

    fn requests(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

fn sensor(name: &str, context: &str, reading: impl Into<Value>) -> Value {
    let reading: Value = reading.into();
    json!({"Name": name, "PhysicalContext": context, "ReadingType": "Temperature", "ReadingUnits": "Cel",
        "Reading": reading, "Status": {"State": "Enabled", "Health": "OK"}})
}

fn temperature(name: &str, reading: impl Into<Value>) -> Value {
    let reading: Value = reading.into();
    json!({"Name": name, "MemberId": "0", "ReadingCelsius": reading})
}

fn found(celsius: f64, path: &str) -> Result<(f64, String), Error> {
    Ok((celsius, format!("/redfish/v1/Chassis/{path}")))
}

#[tokio::test]
async fn the_summary_comes_first_and_its_sensor_is_what_is_polled() {
    let intake = json!({"Reading": 24.5, "DataSourceUri": "/redfish/v1/Chassis/1/Sensors/In"});
    let sensors = [("In", sensor("In", "Intake", 25)), ("Too", sensor("Inlet Temp", "Intake", 30))];
    let tree = Tree::new().summary(intake.clone()).sensors("1", &sensors);
    assert_eq!(tree.find(None).await, found(25.0, "1/Sensors/In"));
    // The referenced sensor does not exist, or the service references none: the summary itself is used.
    let metrics = "1/ThermalSubsystem/ThermalMetrics#/TemperatureSummaryCelsius/Intake";
    assert_eq!(Tree::new().summary(intake).find(None).await, found(24.5, metrics));
    let tree = Tree::new().summary(json!({"Reading": "24.5"}));
    let first = inlet(&tree, None, None).await.unwrap();
    assert_eq!((first.celsius, first.sensor.to_string()), found(24.5, metrics).unwrap());
    let before = tree.requests();
    let again = inlet(&tree, Some(&first.sensor), None).await.unwrap();
    assert_eq!((again.celsius, again.sensor), (first.celsius, first.sensor));
    assert_eq!(tree.requests() - before, 1, "one GET");
    // A summary without a reading does not hide other sensors.
    let tree = Tree::new().summary(json!({"Reading": null})).thermal("1", json!([temperature("Inlet Temp", 21)]));
    assert_eq!(tree.find(None).await, found(21.0, "1/Thermal#Inlet Temp"));
}

#[rstest]
#[case::xclarity(&[("128L0", sensor("Ambient Temp", "Intake", 22)), ("129L0", sensor("CPU1 Temp", "CPU", 60))], 22.0, "128L0")]
#[case::idrac(&[("SystemBoardInletTemp", sensor("System Board Inlet Temp", "SystemBoard", 23)),
    ("SystemBoardExhaustTemp", sensor("System Board Exhaust Temp", "SystemBoard", 40))], 23.0, "SystemBoardInletTemp")]
#[case::openbmc(&[("temperature_inlet", json!({"Name": "temperature inlet", "Reading": 21.25, "ReadingUnits": "Cel"}))],
    21.25, "temperature_inlet")]
#[case::marked_beside_another_kind(&[("Flow", json!({"PhysicalContext": "Intake", "ReadingType": "AirFlow", "Reading": 9})),
    ("T1", sensor("T1", "Intake", 20))], 20.0, "T1")]
#[case::a_name_tells_two_marked_apart(&[("A", sensor("Left", "Intake", 20)), ("B", sensor("INLET_TEMP", "Intake", 21))],
    21.0, "B")]
#[case::absent(&[("A", json!({"Name": "Inlet Temp", "PhysicalContext": "Intake", "Reading": 0, "ReadingUnits": "Cel",
    "Status": {"State": "Absent"}})), ("B", sensor("Inlet Temp", "Intake", 21))], 21.0, "B")]
#[case::the_better_name(&[("A", sensor("Inlet Temp", "SystemBoard", 30)), ("B", sensor("Ambient Temp", "", 21))], 30.0, "A")]
#[tokio::test]
async fn sensors_are_found(#[case] sensors: &[(&str, Value)], #[case] celsius: f64, #[case] path: &str) {
    let tree = Tree::new().sensors("1", sensors);
    let expected = found(celsius, &format!("1/Sensors/{path}"));
    assert_eq!(tree.find(None).await, expected);
    // If the service expands members, one request reads all of them.
    let expand = json!({"ProtocolFeaturesSupported": {"ExpandQuery": {"NoLinks": true}}});
    let all: Vec<Value> =
        sensors.iter().map(|(id, _)| tree.documents[&format!("/redfish/v1/Chassis/1/Sensors/{id}")].clone()).collect();
    let expanded = "/redfish/v1/Chassis/1/Sensors?$expand=.($levels=1)";
    let tree = tree.and("/redfish/v1", expand).with(expanded, json!({"Members": all}));
    tree.asked.lock().unwrap().clear();
    assert_eq!(tree.find(None).await, expected);
    assert_eq!(tree.requests(), 5, "{:?}", tree.asked);
}

#[tokio::test]
async fn a_service_that_says_it_expands_but_does_not_is_asked_plainly() {
    let tree = Tree::new().sensors("1", &[("T", sensor("T", "Intake", 20))]);
    let references = tree.documents["/redfish/v1/Chassis/1/Sensors"].clone();
    let tree = tree
        .and("/redfish/v1", json!({"ProtocolFeaturesSupported": {"ExpandQuery": {"ExpandAll": true}}}))
        .with("/redfish/v1/Chassis/1/Sensors?$expand=*($levels=1)", references);
    assert_eq!(tree.find(None).await, found(20.0, "1/Sensors/T"));
    let tree = tree.fails("/redfish/v1/Chassis/1/Sensors?$expand=*($levels=1)", 501);
    assert_eq!(tree.find(None).await, found(20.0, "1/Sensors/T"));
}

#[rstest]
#[case::ilo(json!([{"Name": "01-Inlet Ambient", "MemberId": "0", "PhysicalContext": "Intake", "ReadingCelsius": 19},
    {"Name": "02-CPU 1", "MemberId": "1", "PhysicalContext": "CPU", "ReadingCelsius": 40}]), 19.0, "01-Inlet Ambient")]
#[case::supermicro(json!([{"Name": "System Temp", "ReadingCelsius": 44}, {"Name": "Inlet Temp", "ReadingCelsius": 28}]),
    28.0, "Inlet Temp")]
#[case::number_of_the_sensor_is_a_text(json!([{"Name": "Inlet Temp", "SensorNumber": "4h", "ReadingCelsius": "22.5"}]),
    22.5, "Inlet Temp")]
#[case::name_that_is_not_plain(json!([{"Name": "Inlet\u{1}Temp", "MemberId": "iDRAC.1_Inlet", "ReadingCelsius": 22}]),
    22.0, "iDRAC.1_Inlet")]
#[case::nothing_plain(json!([{}, {"Name": "<Inlet Temp>", "MemberId": "a#b", "ReadingCelsius": 22}]), 22.0, "/Temperatures/1")]
#[case::two_of_a_name(json!([{"Name": "Inlet Temp", "MemberId": "0", "Status": {"State": "Absent"}},
    {"Name": "Inlet Temp", "MemberId": "7", "ReadingCelsius": 22}]), 22.0, "7")]
#[tokio::test]
async fn temperatures_are_found_and_found_again(#[case] all: Value, #[case] celsius: f64, #[case] member: &str) {
    let tree = Tree::new().thermal("1", all);
    let first = inlet(&tree, None, None).await.unwrap();
    assert_eq!((first.celsius, first.sensor.to_string()), found(celsius, &format!("1/Thermal#{member}")).unwrap());
    // Path from the status of an object, after a restart.
    let known: SensorPath = first.sensor.to_string().parse().unwrap();
    let before = tree.requests();
    let again = inlet(&tree, Some(&known), None).await.unwrap();
    assert_eq!((again.celsius, again.sensor, again.choice), (first.celsius, first.sensor, None));
    assert_eq!(tree.requests() - before, 1, "one GET");
}

#[tokio::test]
async fn a_known_sensor_that_moved_or_went_is_found_anew() {
    let other = json!({"Name": "CPU1 Temp", "MemberId": "0", "ReadingCelsius": 60});
    let inlet_temp = json!({"Name": "Inlet Temp", "MemberId": "1", "ReadingCelsius": 20});
    let before = Tree::new().thermal("1", json!([other, inlet_temp]));
    let known = inlet(&before, None, None).await.unwrap().sensor;
    // Other firmware, with another order.
    let tree = Tree::new().thermal("1", json!([inlet_temp, other]));
    let again = inlet(&tree, Some(&known), None).await.unwrap();
    assert_eq!((again.celsius, &again.sensor), (20.0, &known));
    assert_eq!(tree.requests(), 1);
    // Another name, another resource, an absent sensor.
    let renamed = Tree::new().thermal("1", json!([{"Name": "Front Intake", "ReadingCelsius": 21}]));
    let moved = Tree::new().sensors("1", &[("In", sensor("In", "Intake", 22))]);
    let absent = json!({"Name": "Inlet Temp", "ReadingCelsius": 20, "Status": {"State": "Absent"}});
    let absent = Tree::new().thermal("1", json!([absent, {"Name": "Ambient Temp", "ReadingCelsius": 23}]));
    for (tree, celsius, path) in [
        (renamed, 21.0, "1/Thermal#Front Intake"),
        (moved, 22.0, "1/Sensors/In"),
        (absent, 23.0, "1/Thermal#Ambient Temp"),
    ] {
        let again = inlet(&tree, Some(&known), None).await.unwrap();
        assert_eq!((again.celsius, again.sensor.to_string()), found(celsius, path).unwrap());
    }
    // A missing reading does not start a search.
    let tree = Tree::new().thermal("1", json!([{"Name": "Inlet Temp", "ReadingCelsius": null}]));
    assert_eq!(inlet(&tree, Some(&known), None).await, Err(Error::NoReading(known.clone())));
    assert_eq!(tree.requests(), 1);
    // A refusal does not, either.
    let tree = before.fails("/redfish/v1/Chassis/1/Thermal", 401);
    tree.asked.lock().unwrap().clear();
    assert!(inlet(&tree, Some(&known), None).await.unwrap_err().is_refusal());
    assert_eq!(tree.requests(), 1);
}

#[tokio::test]
async fn the_intake_of_a_blade_is_on_its_enclosure() {
    let links = json!({"ChassisType": "Blade", "Links": {"ContainedBy": id("/redfish/v1/Chassis/2")}});
    let blade = Tree::new()
        .and("/redfish/v1/Chassis/1", links.clone())
        .sensors("1", &[("CPU", sensor("CPU Temp", "CPU", 50))])
        .thermal("2", json!([temperature("Ambient Temp", 18)]))
        .with("/redfish/v1/Chassis", members(&[]));
    assert_eq!(blade.find(None).await, found(18.0, "2/Thermal#Ambient Temp"));
    // Its own sensor takes precedence, even over a better name in another chassis.
    let own = Tree::new()
        .and("/redfish/v1/Chassis/1", links)
        .thermal("1", json!([temperature("Ambient Temp", 24)]))
        .thermal("2", json!([temperature("Inlet Temp", 18)]));
    assert_eq!(own.find(None).await, found(24.0, "1/Thermal#Ambient Temp"));
    // Without a link to its chassis, all chassis are searched.
    let loose =
        Tree::new().thermal("2", json!([temperature("Inlet Temp", 18)])).with("/redfish/v1/Systems/1", json!({}));
    assert_eq!(loose.find(None).await, found(18.0, "2/Thermal#Inlet Temp"));
    // Cycle of chassis.
    let circle =
        Tree::new().and("/redfish/v1/Chassis/1", json!({"Links": {"ContainedBy": id("/redfish/v1/Chassis/1")}}));
    assert_eq!(circle.find(None).await, Err(Error::NoIntake(SensorPaths::default())));
}

#[tokio::test]
async fn a_part_of_a_machine_is_not_the_machine() {
    let card = Tree::new()
        .and(
            "/redfish/v1/Systems/1",
            json!({"Links": {"Chassis": [id("/redfish/v1/Chassis/2"), id("/redfish/v1/Chassis/1")]}}),
        )
        .and("/redfish/v1/Chassis/2", json!({"ChassisType": "Module"}))
        .sensors("2", &[("Card", sensor("Inlet Temp", "Intake", 40))])
        .sensors("1", &[("Board", sensor("Front Intake", "", 20))]);
    assert_eq!(card.find(None).await, found(20.0, "1/Sensors/Board"));
}

#[tokio::test]
async fn sensors_that_cannot_be_told_apart_are_named() {
    let two = [("L", sensor("Left", "Intake", 20)), ("R", sensor("Right", "Intake", 21))];
    let error = Tree::new().sensors("1", &two).find(None).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "several sensors cannot be told apart, name the path of one in sensor: \
         /redfish/v1/Chassis/1/Sensors/L, /redfish/v1/Chassis/1/Sensors/R"
    );
    // Trailing digits do not distinguish sensors, nor does a reading that is missing at the moment.
    let numbered = [("1", sensor("Inlet Temp 1", "Intake", 20)), ("2", sensor("Inlet Temp 2", "Intake", json!(null)))];
    let error = Tree::new().sensors("1", &numbered).find(None).await.unwrap_err();
    assert!(matches!(&error, Error::Ambiguous(of) if of.0.len() == 2), "{error}");
    let all: Vec<Value> = (0..20)
        .map(|nth| json!({"Name": format!("In {nth}"), "PhysicalContext": "Intake", "ReadingCelsius": 20}))
        .collect();
    let error = Tree::new().thermal("1", json!(all)).find(None).await.unwrap_err();
    assert!(error.to_string().ends_with("/redfish/v1/Chassis/1/Thermal#In 7 and 12 more"), "{error}");
}

#[rstest]
#[case::path("/redfish/v1/Chassis/2/Sensors/Rear", found(33.0, "2/Sensors/Rear"))]
#[case::path_with_a_slash("/redfish/v1/Chassis/2/Sensors/Rear/", found(33.0, "2/Sensors/Rear"))]
#[case::pointer("/redfish/v1/Chassis/1/Thermal#/Temperatures/0", found(40.0, "1/Thermal#CPU Temp"))]
#[case::member("/redfish/v1/Chassis/1/Thermal#cpu temp", found(40.0, "1/Thermal#CPU Temp"))]
#[case::name("rear  TEMP", found(33.0, "2/Sensors/Rear"))]
#[case::id("Rear", found(33.0, "2/Sensors/Rear"))]
#[case::number("7", found(40.0, "1/Thermal#CPU Temp"))]
#[case::nobody("Front", Err(Error::SensorNotFound))]
#[case::no_such_path("/redfish/v1/Chassis/2/Sensors/Front", Err(Error::SensorNotFound))]
#[case::no_such_member("/redfish/v1/Chassis/1/Thermal#/Temperatures/9", Err(Error::SensorNotFound))]
#[case::out_of_the_service("/etc/passwd", Err(Error::SensorNotFound))]
#[case::above("/redfish/v1/%2E./../x", Err(Error::SensorNotFound))]
#[case::a_fan("/redfish/v1/Chassis/2/Sensors/Fan", Err(Error::NoTemperature("/redfish/v1/Chassis/2/Sensors/Fan".parse().unwrap())))]
#[case::silent("Quiet", Err(Error::NoReading("/redfish/v1/Chassis/2/Sensors/Quiet".parse().unwrap())))]
#[case::of_two("Twin", Err(Error::Ambiguous(SensorPaths(
    ["A", "B"].map(|id| format!("/redfish/v1/Chassis/2/Sensors/{id}").parse().unwrap()).to_vec()))))]
#[tokio::test]
async fn a_sensor_that_is_named_wins(#[case] wanted: &str, #[case] expected: Result<(f64, String), Error>) {
    let fan = json!({"Name": "Fan", "ReadingType": "Rotational", "Reading": 4000});
    let sensors = [
        ("Rear", sensor("Rear Temp", "Exhaust", 33)),
        ("Fan", fan),
        ("Quiet", sensor("Quiet", "", json!(null))),
        ("A", sensor("Twin", "", 1)),
        ("B", sensor("Twin", "", 2)),
    ];
    let tree = Tree::new()
        .summary(json!({"Reading": 20}))
        .thermal("1", json!([{"Name": "CPU Temp", "SensorNumber": 7, "ReadingCelsius": 40}]))
        .sensors("2", &sensors);
    assert_eq!(tree.find(Some(wanted)).await, expected);
    let Ok((celsius, path)) = expected else { return };
    // The next polls take one request, and the sensor of an earlier `wanted` is not used for another one.
    let known: SensorPath = path.parse().unwrap();
    tree.asked.lock().unwrap().clear();
    let again = inlet(&tree, Some(&known), Some(wanted)).await.unwrap();
    assert_eq!((again.celsius, &again.sensor, tree.requests()), (celsius, &known, 1));
    let before: SensorPath = "/redfish/v1/Chassis/2/Sensors/A".parse().unwrap();
    assert_eq!(inlet(&tree, Some(&before), Some(wanted)).await.unwrap().sensor, known);
}

#[rstest]
#[case::cold(json!(-40), Ok(-40.0))]
#[case::hot(json!("125"), Ok(125.0))]
#[case::text(json!(" 22.5 "), Ok(22.5))]
#[case::too_hot(json!(125.5), Err("is not between -40 and 125 °C"))]
#[case::too_cold(json!(-41), Err("is not between -40 and 125 °C"))]
#[case::null(json!(null), Err("has no reading"))]
#[case::no_number(json!("hunter2"), Err("has no reading"))]
#[case::not_finite(json!("inf"), Err("has no reading"))]
#[case::object(json!({"hunter2": 1}), Err("has no reading"))]
#[tokio::test]
async fn readings(#[case] reading: Value, #[case] expected: Result<f64, &str>) {
    for tree in [
        Tree::new().sensors("1", &[("In", sensor("In", "Intake", reading.clone()))]),
        Tree::new().thermal("1", json!([temperature("Inlet Temp", reading.clone())])),
        Tree::new().summary(json!({"Reading": reading})),
    ] {
        match (tree.find(None).await, expected) {
            (Ok((celsius, _)), Ok(expected)) => assert_eq!(celsius, expected),
            (Err(error), Err(words)) => assert!(error.to_string().ends_with(words), "{error}"),
            (got, _) => panic!("{got:?}"),
        }
    }
}

#[rstest]
#[case("Cel", Ok(86.0))]
#[case("cel", Ok(86.0))]
#[case("[degF]", Ok(30.0))]
#[case("K", Err("is not between -40 and 125 °C"))]
#[case("%", Err("is not in degrees Celsius"))]
#[tokio::test]
async fn units(#[case] unit: &str, #[case] expected: Result<f64, &str>) {
    let reading = json!({"Name": "Inlet", "ReadingType": "Temperature", "ReadingUnits": unit, "Reading": 86});
    match (Tree::new().sensors("1", &[("In", reading)]).find(None).await, expected) {
        (Ok((celsius, _)), Ok(expected)) => assert_eq!(celsius, expected),
        (Err(error), Err(words)) => assert!(error.to_string().ends_with(words), "{error}"),
        (got, _) => panic!("{got:?}"),
    }
    let humidity = json!({"Name": "Inlet", "PhysicalContext": "Intake", "ReadingUnits": "%", "Reading": 30});
    assert_eq!(
        Tree::new().sensors("1", &[("In", humidity)]).find(None).await,
        Err(Error::NoIntake(SensorPaths::default()))
    );
}

#[tokio::test]
async fn what_fails_beside_the_sensor_hides_nothing_and_a_refusal_ends_the_search() {
    let tree = || Tree::new().sensors("1", &[("A", sensor("A", "CPU", 50)), ("In", sensor("Inlet", "Intake", 20))]);
    let broken = "/redfish/v1/Chassis/1/Sensors/A";
    assert_eq!(tree().fails(broken, 500).find(None).await, found(20.0, "1/Sensors/In"));
    let mut list = tree();
    list.documents.insert(broken.to_owned(), json!([1, 2]));
    assert_eq!(list.find(None).await, found(20.0, "1/Sensors/In"));
    for status in [401, 403, 429, 503] {
        let tree = tree().fails(broken, status);
        let error = clients::Error::Status(StatusCode::from_u16(status).unwrap());
        assert_eq!(tree.find(None).await, Err(Error::Request(error)));
        assert_eq!(tree.asked.lock().unwrap().last().map(String::as_str), Some(broken), "{status}: nothing after it");
    }
    // The unreadable document may have been the sensor.
    let error = tree().fails("/redfish/v1/Chassis/1/Sensors/In", 500).find(None).await;
    assert_eq!(error, Err(Error::Request(clients::Error::Status(StatusCode::INTERNAL_SERVER_ERROR))));
    assert_eq!(Tree::default().find(None).await, Err(Error::NoService));
    assert_eq!(Tree::new().find(None).await, Err(Error::NoIntake(SensorPaths::default())));
}

#[tokio::test]
async fn large_machines_are_searched_within_bounds() {
    let crowd: Vec<(String, Value)> = (0..300).map(|nth| (format!("S{nth}"), sensor("DIMM", "Memory", 30))).collect();
    let mut crowd: Vec<(&str, Value)> = crowd.iter().map(|(id, sensor)| (id.as_str(), sensor.clone())).collect();
    crowd.push(("Inlet1", sensor("Inlet 1", "Intake", 20)));
    let tree = Tree::new().sensors("1", &crowd);
    assert_eq!(tree.find(None).await, found(20.0, "1/Sensors/Inlet1"));
    assert!(tree.requests() < 10, "{}", tree.requests());
    assert_eq!(tree.find(Some("S299")).await, found(30.0, "1/Sensors/S299"));
    assert_eq!(tree.find(Some("Rear Temp")).await, Err(Error::TooManyRequests(SensorPaths::default())));
    // Thermal has the sensor.
    let tree = tree.thermal("1", json!([temperature("Rear Temp", 33)]));
    assert_eq!(tree.find(Some("Rear Temp")).await, found(33.0, "1/Thermal#Rear Temp"));
    // Chassis of components are read last.
    let names: Vec<String> = (0..60).map(|nth| format!("/redfish/v1/Chassis/HGX_GPU_{nth}")).collect();
    let mut tree =
        Tree::new().sensors("1", &[("F", sensor("Front IO Temp 0", "Intake", 20)), ("C", sensor("CPU", "CPU", 60))]);
    for name in &names {
        let link = json!({"Sensors": id(&format!("{name}/Sensors")), "ChassisType": "Module"});
        tree = tree.with(name, link).with(&format!("{name}/Sensors"), members(&[]));
    }
    let chassis: Vec<Value> = names.iter().map(String::as_str).chain(["/redfish/v1/Chassis/1"]).map(id).collect();
    let tree = tree.with("/redfish/v1/Systems/1", json!({"Links": {"Chassis": chassis}}));
    assert_eq!(tree.find(None).await, found(20.0, "1/Sensors/F"));
    assert!(tree.requests() < REQUESTS, "{}", tree.requests());
    // Excessive number of chassis.
    let mut tree = Tree::new();
    let paths: Vec<String> = (0..500).map(|nth| format!("/redfish/v1/Systems/{nth}")).collect();
    for path in &paths {
        let chassis: Vec<Value> = (0..100).map(|nth| id(&format!("/redfish/v1/Chassis{path}/{nth}"))).collect();
        tree = tree.with(path, json!({"Links": {"Chassis": chassis}}));
    }
    let all: Vec<&str> = paths.iter().map(String::as_str).collect();
    let tree = tree.with("/redfish/v1/Systems", members(&all));
    assert!(tree.find(None).await.is_err());
    assert!(tree.requests() <= REQUESTS, "{}", tree.requests());
}

#[tokio::test]
async fn pages_of_a_collection_are_followed() {
    let tree = Tree::new().sensors("1", &[("A", sensor("A", "CPU", 50)), ("In", sensor("Inlet", "Intake", 20))]);
    let sensors = "/redfish/v1/Chassis/1/Sensors";
    let page = |member: &str, next: &str| json!({"Members": [id(&format!("{sensors}/{member}"))], "Members@odata.nextLink": next});
    let tree = tree.with(sensors, page("A", &format!("{sensors}?$skip=1")));
    let tree = tree.with(&format!("{sensors}?$skip=1"), page("In", "https://elsewhere/redfish/v1"));
    assert_eq!(tree.find(None).await, found(20.0, "1/Sensors/In"));
    let tree = tree.with(&format!("{sensors}?$skip=1"), page("A", &format!("{sensors}?$skip=1")));
    assert_eq!(tree.find(None).await, Err(Error::TooManyRequests(SensorPaths::default())));
    assert!(tree.requests() < 40, "a circle of pages: {}", tree.requests());
}

#[tokio::test]
async fn links_may_have_the_origin_of_the_service() {
    let tree = |origin: &str| {
        let links = json!({"Chassis": [id(&format!("{origin}/redfish/v1/Chassis/1"))]});
        let tree = Tree::new().with("/redfish/v1/Systems/1", json!({"Links": links}));
        tree.thermal("1", json!([temperature("Inlet Temp", 20)])).thermal("2", json!([temperature("Inlet Temp", 30)]))
    };
    assert_eq!(tree("https://10.0.0.1").find(None).await, found(20.0, "1/Thermal#Inlet Temp"));
    assert!(tree("https://10.0.0.2").find(None).await.is_err());
}

#[tokio::test]
async fn an_unreadable_root_is_not_a_missing_service() {
    for status in [400, 405, 500] {
        let error = Error::Request(clients::Error::Status(StatusCode::from_u16(status).unwrap()));
        assert_eq!(Tree::new().fails("/redfish/v1", status).find(None).await, Err(error));
    }
    let html = BmcDocument::parse(b" <html>hunter2</html>").unwrap_err();
    assert_eq!(html.to_string(), "the answer is HTML or XML, not JSON");
    let document = BmcDocument::parse(br#"{"Readings": [{"ReadingCelsius": nan}, {"ReadingCelsius": 21}]}"#);
    assert!(document.is_ok_and(|document| document.object().value("Readings").is_some()));
    assert!(BmcDocument::parse(b"\xef\xbb\xbf{}").is_ok());
}

#[rstest]
#[case("/redfish/v1/Chassis/1/Sensors/In", true)]
#[case("/redfish/v1/Chassis/1/Thermal#Inlet Temp", true)]
#[case("/redfish/v1/Chassis/1/Thermal#", false)]
#[case("//evil.example/redfish/v1", false)]
#[case("https://evil.example/redfish/v1", false)]
#[case("/redfish/../admin", false)]
#[case("/redfish/%2e%2E/admin", false)]
#[case("/redfish/v1\\..\\x", false)]
#[case("/redfish/v1?x=1", false)]
#[case("/redfish/v1/\u{e9}", false)]
#[case("/redfish/v1/a\nb", false)]
#[case("", false)]
fn paths(#[case] text: &str, #[case] expected: bool) {
    assert_eq!(text.parse::<SensorPath>().is_ok(), expected);
    if expected {
        assert_eq!(text.parse::<SensorPath>().unwrap().to_string(), text);
    }
}

#[test]
fn paths_that_are_not_plain_are_followed_but_not_shown() {
    for text in ["/redfish/v1/Chassis/1/Sensors/iDRAC%23Inlet", "/redfish/v1/a<script>", "/redfish/v1/Thermal#a;b"] {
        let path: SensorPath = text.parse().unwrap();
        assert_eq!(Error::NoReading(path).to_string(), "a sensor whose path is not plain has no reading");
    }
    let long = format!("/redfish/v1/{}", "a".repeat(256));
    assert!(long.parse::<SensorPath>().is_err());
}

#[tokio::test]
async fn only_the_first_items_of_a_list_are_read() {
    let with_inlet = |place: usize| {
        let mut all = vec![json!({"Name": "CPU", "ReadingCelsius": 50}); 1100];
        all[place] = json!({"Name": "Inlet Temp", "ReadingCelsius": 21});
        Tree::new().thermal("1", json!(all))
    };
    assert_eq!(inlet(&with_inlet(1023), None, None).await.map(|inlet| inlet.celsius), Ok(21.0));
    assert_eq!(inlet(&with_inlet(1024), None, None).await.err(), Some(Error::NoIntake(SensorPaths::default())));
}

fn models(power: Value) -> Tree {
    Tree::new().with("/redfish/v1/Systems/1/MachineLearningModel", json!({"PowerConsumptionModel": power}))
}

#[rstest]
#[case(json!({"Type": "V2InferenceProtocol", "Url": "http://10.0.0.20", "Name": "PC-PowerEdge", "Version": "v0.1.0"}),
    "http://10.0.0.20/v2/models/PC-PowerEdge/versions/v0.1.0/infer")]
#[case(json!({"Type": "V2InferenceProtocol", "Url": "https://m.example:8080/base/", "Name": "m", "Version": null}),
    "https://m.example:8080/base/v2/models/m/infer")]
#[case(json!({"Type": "V2InferenceProtocol", "Url": "http://m.example", "Name": "m", "Version": 2}),
    "http://m.example/v2/models/m/versions/2/infer")]
#[tokio::test]
async fn the_power_model_is_found(#[case] power: Value, #[case] url: &str) {
    let found = model(&models(power.clone())).await.unwrap();
    assert_eq!((found.type_.as_str(), found.infer_url().as_str()), ("V2InferenceProtocol", url));
    // At the path that the system refers to, and on a server that serves only systems.
    let elsewhere = Tree::new()
        .and("/redfish/v1/Systems/1", json!({"MachineLearningModel": id("/redfish/v1/Models")}))
        .with("/redfish/v1/Models", json!({"PowerConsumptionModel": power.clone()}));
    let mut bare = models(power);
    bare.documents.retain(|path, _| path.starts_with("/redfish/v1/Systems"));
    bare.documents.remove("/redfish/v1/Systems/1");
    for tree in [elsewhere, bare] {
        assert_eq!(model(&tree).await, Ok(found.clone()));
    }
}

#[rstest]
#[case(json!({"Url": "http://a", "Name": "m"}), Error::Model("Type"))]
#[case(json!({"Type": "T", "Name": "m"}), Error::Model("Url"))]
#[case(json!({"Type": "T", "Url": "file:///etc/passwd", "Name": "m"}), Error::Model("Url"))]
#[case(json!({"Type": "T", "Url": "http://me:word@a", "Name": "m"}), Error::Model("Url"))]
#[case(json!({"Type": "T", "Url": "http://a?x=1", "Name": "m"}), Error::Model("Url"))]
#[case(json!({"Type": "T", "Url": "http://a", "Name": ""}), Error::Model("Name"))]
#[case(json!({"Type": "T", "Url": "http://a", "Name": "../../x"}), Error::Model("Name"))]
#[case(json!({"Type": "T", "Url": "http://a", "Name": ".."}), Error::Model("Name"))]
#[case(json!({"Type": "T", "Url": "http://a", "Name": "m", "Version": "hunter 2"}), Error::Model("Version"))]
#[case(json!(null), Error::NoModel)]
#[tokio::test]
async fn a_power_model_that_cannot_be_used(#[case] power: Value, #[case] expected: Error) {
    assert_eq!(model(&models(power)).await, Err(expected));
}

/// Values that a BMC might return, built from the words that the search uses.
fn anything() -> impl Strategy<Value = Value> {
    let paths = (0..6_u8).prop_map(|nth| json!(format!("/redfish/v1/{nth}")));
    let leaf = prop_oneof![
        Just(json!(null)),
        (-100..200_i32).prop_map(|number| json!(number)),
        prop::sample::select(
            &["Intake", "Absent", "Cel", "Inlet Temp", "Temperature", "Module", "21.5", "SECRET\u{1}"][..]
        )
        .prop_map(|text| json!(text)),
        paths.clone(),
    ];
    leaf.prop_recursive(4, 32, 5, move |inner| {
        let key = prop::sample::select(
            &[
                "@odata.id",
                "Members",
                "Members@odata.nextLink",
                "Links",
                "Chassis",
                "Systems",
                "ContainedBy",
                "Sensors",
                "Thermal",
                "ThermalSubsystem",
                "ThermalMetrics",
                "TemperatureSummaryCelsius",
                "Intake",
                "DataSourceUri",
                "Temperatures",
                "Reading",
                "ReadingCelsius",
                "ReadingUnits",
                "ReadingType",
                "Name",
                "MemberId",
                "PhysicalContext",
                "Status",
                "State",
                "ChassisType",
                "PowerConsumptionModel",
            ][..],
        );
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            paths.clone().prop_map(|path| json!({"@odata.id": path})),
            prop::collection::vec((key.prop_map(str::to_owned), inner), 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Temperature that may be the intake sensor's, with a reading that may be an air temperature.
fn any_temperature() -> impl Strategy<Value = Value> {
    let word = |words: &'static [&'static str]| prop::sample::select(words);
    let reading = prop_oneof![(-100..200_i32).prop_map(|number| json!(number)), anything()];
    (word(&["Inlet Temp", "Front", "SECRET\u{1}"]), word(&["Intake", "CPU"]), word(&["Enabled", "Absent"]), reading).prop_map(
        |(name, context, state, reading)| {
            json!({"Name": name, "PhysicalContext": context, "Status": {"State": state}, "ReadingCelsius": reading})
        },
    )
}

proptest! {
    /// For any answers: a bounded number of requests, a plausible air temperature, and no answer text in an error.
    #[test]
    fn no_answer_leads_astray(documents in prop::collection::vec(anything(), 8),
        temperatures in prop::collection::vec(any_temperature(), 0..3),
        known in 0..6_u8) {
        let mut tree = Tree::new().thermal("1", json!(temperatures));
        for (nth, document) in documents.into_iter().enumerate() {
            let path = ["/redfish/v1", "/redfish/v1/Chassis/1"].get(nth).map_or_else(|| format!("/redfish/v1/{}", nth - 2), |path| (*path).to_owned());
            match (document, tree.documents.get_mut(&path).and_then(Value::as_object_mut)) {
                (Value::Object(more), Some(known)) => known.extend(more),
                (document, _) => drop(tree.documents.insert(path, document)),
            }
        }
        let known: SensorPath = format!("/redfish/v1/{known}#Inlet Temp").parse().unwrap();
        let run = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (known, wanted) in [(None, None), (Some(&known), None), (None, Some("Inlet Temp")), (Some(&known), Some("0"))] {
            tree.asked.lock().unwrap().clear();
            match run.block_on(inlet(&tree, known, wanted)) {
                Ok(inlet) => {
                    prop_assert!((-40.0..=125.0).contains(&inlet.celsius));
                    // A second search finds the same sensor.
                    let again = run.block_on(super::inlet(&tree, Some(&inlet.sensor), wanted)).unwrap();
                    prop_assert_eq!((again.celsius, again.sensor), (inlet.celsius, inlet.sensor));
                }
                Err(error) => prop_assert!(!error.to_string().contains("SECRET"), "{}", error),
            }
            prop_assert!(tree.requests() <= REQUESTS + 2);
        }
        let _ = run.block_on(model(&tree));
    }
}
