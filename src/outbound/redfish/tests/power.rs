//! Power of a machine: where it can be, what else is there, and questions.

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::{Tree, id, members};
use crate as clients;
use crate::redfish::{Error, MachinePower, SensorPath, power};

const CHASSIS: &str = "/redfish/v1/Chassis/1";
const ENVIRONMENT: &str = "/redfish/v1/Chassis/1/EnvironmentMetrics";
const SUPPLIES: &str = "/redfish/v1/Chassis/1/PowerSubsystem/PowerSupplies";

impl Tree {
    /// Adds EnvironmentMetrics with this PowerWatts to a chassis.
    fn environment(self, chassis: &str, watts: Value) -> Self {
        let path = format!("/redfish/v1/Chassis/{chassis}");
        let metrics = format!("{path}/EnvironmentMetrics");
        self.and(&path, json!({"EnvironmentMetrics": id(&metrics)})).with(&metrics, json!({"PowerWatts": watts}))
    }

    /// Adds a resource Power with these entries of PowerControl to a chassis.
    fn controls(self, chassis: &str, controls: Value) -> Self {
        let path = format!("/redfish/v1/Chassis/{chassis}");
        let power = format!("{path}/Power");
        self.and(&path, json!({"Power": id(&power)})).with(&power, json!({"PowerControl": controls}))
    }

    /// Adds power supplies with these readings to chassis 1.
    fn supplies(self, readings: &[Value]) -> Self {
        let subsystem = format!("{CHASSIS}/PowerSubsystem");
        let paths: Vec<String> = (0..readings.len()).map(|nth| format!("{SUPPLIES}/{nth}")).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let tree = self
            .and(CHASSIS, json!({"PowerSubsystem": id(&subsystem)}))
            .with(&subsystem, json!({"CapacityWatts": 1600, "PowerSupplies": id(SUPPLIES)}))
            .with(SUPPLIES, members(&paths));
        paths.iter().zip(readings).fold(tree, |tree, (path, reading)| {
            let metrics = format!("{path}/Metrics");
            tree.with(path, json!({"Metrics": id(&metrics), "PowerCapacityWatts": 800}))
                .with(&metrics, json!({"InputPowerWatts": {"Reading": reading}, "OutputPowerWatts": {"Reading": 1}}))
        })
    }

    async fn power(&self, wanted: Option<&str>) -> Result<(f64, String), Error> {
        power(self, None, wanted).await.map(|MachinePower { watts, sensor }| (watts, sensor.to_string()))
    }
}

fn control(name: &str, watts: Value) -> Value {
    json!({"Name": name, "MemberId": "0", "PowerConsumedWatts": watts, "PowerCapacityWatts": 800})
}

fn system() -> Value {
    control("System Power Control", json!(250))
}

#[tokio::test]
async fn the_power_is_found_in_each_place() {
    let watts = json!({"Reading": 243.5, "DataSourceUri": "/redfish/v1/Chassis/1/Sensors/Total"});
    let tree = Tree::new().environment("1", watts);
    assert_eq!(tree.power(None).await, Ok((243.5, ENVIRONMENT.to_owned())));
    let tree = Tree::new().controls("1", json!([system()]));
    assert_eq!(tree.power(None).await, Ok((250.0, format!("{CHASSIS}/Power#System Power Control"))));
    let tree = Tree::new().supplies(&[json!(130), json!(125.5), json!(0)]);
    assert_eq!(tree.power(None).await, Ok((255.5, SUPPLIES.to_owned())));
    // The first that has a reading.
    let tree = tree.environment("1", json!({"Reading": null})).controls("1", json!([system()]));
    assert_eq!(tree.power(None).await, Ok((250.0, format!("{CHASSIS}/Power#System Power Control"))));
}

#[rstest]
#[case(json!({"Reading": 243.5}), json!([]), &[])]
#[case(json!(null), json!([system()]), &[])]
#[case(json!(null), json!([]), &[130, 120])]
#[tokio::test]
async fn a_known_reading_is_polled_without_a_search(
    #[case] environment: Value,
    #[case] controls: Value,
    #[case] supplies: &[i32],
) {
    let supplies: Vec<Value> = supplies.iter().map(|watts| json!(watts)).collect();
    let tree = Tree::new().environment("1", environment).controls("1", controls).supplies(&supplies);
    let first = power(&tree, None, None).await.unwrap();
    let before = tree.requests();
    assert_eq!(power(&tree, Some(&first.sensor), None).await, Ok(first));
    assert_eq!(tree.requests() - before, if supplies.is_empty() { 1 } else { 5 });
}

#[tokio::test]
async fn a_known_reading_without_a_number_is_missing_and_one_that_is_gone_is_searched() {
    let path: SensorPath = ENVIRONMENT.parse().unwrap();
    let tree = Tree::new().environment("1", json!(null)).controls("1", json!([system()]));
    assert_eq!(power(&tree, Some(&path), None).await, Err(Error::NoReading(path.clone())));
    let tree = Tree::new().controls("1", json!([system()]));
    assert_eq!(power(&tree, Some(&path), None).await.unwrap().watts, 250.0);
}

#[rstest]
// Lenovo and others list parts beside the whole.
#[case(json!([control("Server Power Control", json!(250)), control("CPU Sub-system Power", json!(80)), control("Memory Sub-system Power", json!(20))]), Some(250.0))]
#[case(json!([control("CPU Sub-system Power", json!(80))]), None)]
#[case(json!([control("GPU1", json!(80)), control("Total Power", json!(250))]), Some(250.0))]
#[case(json!([control("Power Domain A", json!(100)), control("Power Domain B", json!(150))]), None)]
#[case(json!([{"PowerConsumedWatts": 250}]), Some(250.0))]
#[case(json!([{"PowerConsumedWatts": 100, "PhysicalContext": "CPU"}]), None)]
#[case(json!([{"PowerConsumedWatts": 250, "PhysicalContext": "Chassis"}]), Some(250.0))]
#[case(json!([{"PowerConsumedWatts": 250, "RelatedItem": [{"@odata.id": "/redfish/v1/Systems/1/"}]}, {"PowerConsumedWatts": 600}]), Some(250.0))]
#[case(json!([{"PowerConsumedWatts": 600, "RelatedItem": [{"@odata.id": "/redfish/v1/Systems/2"}]}]), None)]
#[case(json!([{"PowerConsumedWatts": 600, "RelatedItem": [{"@odata.id": "/redfish/v1/Chassis/Enclosure"}]}]), None)]
#[case(json!([{"PowerConsumedWatts": 90, "Status": {"State": "Absent"}}]), None)]
#[case(json!([{"PowerConsumedWatts": null}]), None)]
#[case(json!([{"PowerConsumedWatts": 0}]), None)]
#[case(json!([{"PowerConsumedWatts": -5}]), None)]
#[case(json!([{"PowerConsumedWatts": 1e9}]), None)]
#[case(json!([{"PowerConsumedWatts": "250"}]), Some(250.0))]
#[case(json!([{"PowerConsumedWatts": "250 W"}]), None)]
#[case(json!([{"PowerLimit": {"LimitInWatts": 500}, "PowerCapacityWatts": 800}]), None)]
#[case(json!({"PowerConsumedWatts": 250}), Some(250.0))]
#[tokio::test]
async fn an_entry_is_the_power_of_the_machine_or_a_question(#[case] controls: Value, #[case] watts: Option<f64>) {
    let found = Tree::new().controls("1", controls).power(None).await;
    assert_eq!(found.as_ref().ok().map(|(watts, _)| *watts), watts, "{found:?}");
}

#[tokio::test]
async fn a_question_names_paths_that_answer_it() {
    let tree = Tree::new().controls("1", json!([control("Domain A", json!(100)), control("Domain B", json!(150))]));
    let error = tree.power(None).await.unwrap_err().to_string();
    let path = "/redfish/v1/Chassis/1/Power#Domain B";
    assert!(error.ends_with(&format!("{CHASSIS}/Power#Domain A, {path}")), "{error}");
    assert_eq!(tree.power(Some(path)).await, Ok((150.0, path.to_owned())));
    // Entries without names of their own.
    let tree = Tree::new().controls("1", json!([{"PowerConsumedWatts": 1}, {"PowerConsumedWatts": 2}]));
    let error = tree.power(None).await.unwrap_err().to_string();
    assert!(error.ends_with("Power#/PowerControl/0, /redfish/v1/Chassis/1/Power#/PowerControl/1"), "{error}");
    let path = "/redfish/v1/Chassis/1/Power#/PowerControl/1";
    assert_eq!(tree.power(Some(path)).await, Ok((2.0, path.to_owned())));
    // Sensors whose names suggest it.
    let sensor = json!({"Name": "Total Power", "ReadingType": "Power", "ReadingUnits": "W", "Reading": 300});
    let other = json!({"Name": "CPU", "ReadingType": "Power", "Reading": 80});
    let tree = Tree::new().sensors("1", &[("TotalPower", sensor), ("CPU_Power", other)]);
    let error = tree.power(None).await.unwrap_err().to_string();
    let path = "/redfish/v1/Chassis/1/Sensors/TotalPower";
    assert!(error.ends_with(&format!("such as {path}")), "{error}");
    assert_eq!(tree.power(Some(path)).await, Ok((300.0, path.to_owned())));
}

#[rstest]
#[case(json!({"ReadingType": "Power", "ReadingUnits": "W", "Reading": 300}), Some(300.0))]
#[case(json!({"ReadingType": "Power", "ReadingUnits": "kW", "Reading": 0.3}), Some(300.0))]
#[case(json!({"ReadingType": "Power", "Reading": 300}), Some(300.0))]
#[case(json!({"ReadingUnits": "Watts", "Reading": 300}), Some(300.0))]
#[case(json!({"Reading": 300}), None)]
#[case(json!({"ReadingType": "Power", "ReadingUnits": "MW", "Reading": 300}), None)]
#[case(json!({"ReadingType": "EnergykWh", "ReadingUnits": "kW.h", "Reading": 300}), None)]
#[case(json!({"ReadingType": "Temperature", "ReadingUnits": "Cel", "Reading": 30}), None)]
#[case(json!({"ReadingType": "Power", "ReadingBasis": "Headroom", "Reading": 30}), None)]
#[case(json!({"ReadingType": "Power", "Reading": null}), None)]
#[tokio::test]
async fn a_sensor_that_the_user_names_is_power(#[case] sensor: Value, #[case] watts: Option<f64>) {
    let tree = Tree::new().sensors("1", &[("P", sensor)]);
    let found = tree.power(Some("/redfish/v1/Chassis/1/Sensors/P")).await;
    assert_eq!(found.as_ref().ok().map(|(watts, _)| *watts), watts, "{found:?}");
}

#[tokio::test]
async fn readings_that_contradict_each_other_are_a_question() {
    let tree = Tree::new().environment("1", json!({"Reading": 12})).controls("1", json!([system()]));
    assert!(matches!(tree.power(None).await, Err(Error::Ambiguous(_))));
    let tree = Tree::new().environment("1", json!({"Reading": 230})).controls("1", json!([system()]));
    assert_eq!(tree.power(None).await.unwrap().0, 230.0);
}

#[tokio::test]
async fn a_supply_without_a_reading_is_not_left_out_of_the_sum() {
    let tree = Tree::new().supplies(&[json!(130), json!(null)]);
    assert!(tree.power(None).await.is_err());
    // An absent supply draws nothing.
    let absent = json!({"Status": {"State": "Absent"}});
    let tree = tree.with(&format!("{SUPPLIES}/1"), absent);
    assert_eq!(tree.power(None).await.unwrap().0, 130.0);
    let tree = Tree::new().supplies(&[json!(130), json!(120)]).fails(&format!("{SUPPLIES}/1/Metrics"), 500);
    assert!(tree.power(None).await.is_err());
}

/// Power that is not the machine's alone: of chassis with several machines, and of the chassis around it.
#[tokio::test]
async fn the_power_of_several_machines_is_not_that_of_one() {
    let two = members(&["/redfish/v1/Systems/1", "/redfish/v1/Systems/2"]);
    let second = json!({"Links": {"Chassis": [id(CHASSIS)]}});
    let shared = || Tree::new().with("/redfish/v1/Systems", two.clone()).with("/redfish/v1/Systems/2", second.clone());
    let error = shared().environment("1", json!({"Reading": 900})).power(None).await.unwrap_err();
    assert!(error.to_string().ends_with(ENVIRONMENT), "{error}");
    let contains = json!({"Links": {"ComputerSystems": [id("/redfish/v1/Systems/1"), id("/redfish/v1/Systems/2")]}});
    let tree = Tree::new().and(CHASSIS, contains).environment("1", json!({"Reading": 900}));
    assert!(matches!(tree.power(None).await, Err(Error::NoPower(_))));
    for type_ in ["Enclosure", "Shelf", "rack"] {
        let tree = Tree::new().and(CHASSIS, json!({"ChassisType": type_})).environment("1", json!({"Reading": 900}));
        assert!(matches!(tree.power(None).await, Err(Error::NoPower(_))), "{type_}");
    }
    // A blade in an enclosure.
    let around = json!({"ChassisType": "Blade", "Links": {"ContainedBy": id("/redfish/v1/Chassis/2")}});
    let tree = Tree::new().and(CHASSIS, around).environment("2", json!({"Reading": 4000}));
    assert!(matches!(tree.power(None).await, Err(Error::NoPower(_))));
    let tree = tree.supplies(&[json!(2000), json!(2000)]);
    assert!(matches!(tree.power(None).await, Err(Error::NoPower(_))), "supplies of the enclosure");
    let tree = tree.environment("1", json!({"Reading": 400}));
    assert_eq!(tree.power(None).await.unwrap().0, 400.0);
}

#[tokio::test]
async fn what_cannot_be_read_for_a_moment_is_not_replaced() {
    let tree = Tree::new().environment("2", json!({"Reading": 900})).fails(CHASSIS, 500);
    assert!(matches!(tree.power(None).await, Err(Error::Request(clients::Error::Status(_)))));
    let tree = Tree::new().environment("1", json!({"Reading": 900})).fails("/redfish/v1/Systems/1", 500);
    assert!(tree.power(None).await.is_err());
    // The whole is in another place of the same chassis.
    let tree = Tree::new().controls("1", json!([system()])).environment("1", json!({})).fails(ENVIRONMENT, 500);
    assert_eq!(tree.power(None).await.unwrap().0, 250.0);
}

/// Entries that only the input of the supplies confirms: of Supermicro, which refer to processors, and of Cisco, which
/// have the context of a supply.
#[rstest]
#[case::supermicro(json!({"Name": "System Power Control", "PowerConsumedWatts": 2161,
    "RelatedItem": [id("/redfish/v1/Systems/1/Processors/1"), id("/redfish/v1/Systems/1/Processors/2")]}),
    json!([361, 363, 363, 342, 368, null, 367]), true)]
#[case::cisco(json!({"PhysicalContext": "PowerSupply", "PowerConsumedWatts": 252}), json!([126, 136]), true)]
#[case::one_of_two_supplies(json!({"PhysicalContext": "PowerSupply", "PowerConsumedWatts": 126}), json!([126, 136]), false)]
#[case::node_of_several(json!({"PhysicalContext": "PowerSupply", "PowerConsumedWatts": 300}), json!([600, 650]), false)]
#[case::unnamed_parts(json!({"Name": "Power", "PowerConsumedWatts": 250, "RelatedItem": [id("/redfish/v1/Systems/1/Processors/1")]}),
    json!([260]), false)]
#[case::no_input(json!({"PhysicalContext": "PowerSupply", "PowerConsumedWatts": 252}), json!([null, null]), false)]
#[case::processors(json!({"Name": "CPU Power", "PowerConsumedWatts": 252}), json!([252]), false)]
#[case::other_machine(json!({"PowerConsumedWatts": 252, "RelatedItem": [id("/redfish/v1/Systems/2")]}), json!([252]), false)]
#[case::similar_path(json!({"PowerConsumedWatts": 252, "RelatedItem": [id("/redfish/v1/Systems/10/Processors/1")]}), json!([252]), false)]
#[tokio::test]
async fn the_supplies_confirm_an_entry(#[case] control: Value, #[case] inputs: Value, #[case] is_read: bool) {
    let inputs = inputs.as_array().unwrap().iter();
    let supplies: Vec<Value> = inputs.map(|watts| json!({"Name": "PSU", "PowerInputWatts": watts})).collect();
    let power = format!("{CHASSIS}/Power");
    let tree = Tree::new().controls("1", json!([control])).and(&power, json!({"PowerSupplies": supplies}));
    match tree.power(None).await {
        Ok((watts, _)) => assert!(is_read && Some(watts) == control["PowerConsumedWatts"].as_f64(), "{watts}"),
        Err(error) => assert!(!is_read && error.to_string().contains(&power), "{error}"),
    }
}

/// Shapes of chassis whose reading is named and not read, or read: the type, whether it refers to the system, and
/// whether the system refers to a component instead.
#[rstest]
#[case::ucs_x("Blade", true, false, true)]
#[case::tray_of_a_rack("Shelf", true, true, false)]
#[case::enclosure("Enclosure", false, false, false)]
#[case::component_only("RackMount", true, true, true)]
#[tokio::test]
async fn a_question_names_readings_of_other_chassis(
    #[case] type_: &str,
    #[case] refers: bool,
    #[case] has_component: bool,
    #[case] is_read: bool,
) {
    let links = json!({"ComputerSystems": if refers { json!([id("/redfish/v1/Systems/1")]) } else { json!([]) }});
    let own = if has_component { json!([id("/redfish/v1/Chassis/BMC_0")]) } else { json!([]) };
    let tree = Tree::new()
        .with("/redfish/v1/Systems/1", json!({"Links": {"Chassis": own}}))
        .with("/redfish/v1/Chassis/BMC_0", json!({"ChassisType": "Component"}))
        .with("/redfish/v1/Chassis", members(&["/redfish/v1/Chassis/BMC_0", "/redfish/v1/Chassis/1"]))
        .and(CHASSIS, json!({"ChassisType": type_, "Links": links}))
        .environment("1", json!({"Reading": 1073, "DataSourceUri": format!("{CHASSIS}/Sensors/TotalHSC_Power_0")}));
    match tree.power(None).await {
        Ok(found) => assert!(is_read && found == (1073.0, ENVIRONMENT.to_owned()), "{found:?}"),
        Err(error) => assert!(!is_read && error.to_string().ends_with(ENVIRONMENT), "{error}"),
    }
}

#[rstest]
#[case("PSU1_Input_Power")]
#[case("CPU1Power")]
#[case("HGX_GPU_0_Power_0")]
#[tokio::test]
async fn a_reading_whose_source_is_a_component_is_a_question(#[case] source: &str) {
    let watts = json!({"Reading": 90, "DataSourceUri": format!("{CHASSIS}/Sensors/{source}")});
    let error = Tree::new().environment("1", watts.clone()).power(None).await.unwrap_err().to_string();
    assert!(error.ends_with(ENVIRONMENT), "{error}");
    let tree = Tree::new().environment("1", watts).controls("1", json!([system()]));
    assert_eq!(tree.power(None).await.unwrap().0, 250.0);
}

/// Entries of PowerControl that are not the power of the machine, and a machine's own.
fn entries() -> impl Strategy<Value = Vec<Value>> {
    let parts = ["CPU Power", "Memory Power", "GPU 1", "PSU1", "Fans", "CPU Sub-system Power", "NVMe", "PCIe Slot 3"];
    let part = (prop::sample::select(parts.to_vec()), 1..200_i32).prop_map(|(name, watts)| control(name, json!(watts)));
    let other = (1..9000_i32).prop_map(
        |watts| json!({"Name": "Power", "PowerConsumedWatts": watts, "RelatedItem": [id("/redfish/v1/Systems/9")]}),
    );
    let supply = (1..200_i32).prop_map(|watts| json!({"PhysicalContext": "PowerSupply", "PowerConsumedWatts": watts}));
    let processors = (1..400_i32).prop_map(|watts| {
        json!({"Name": "Power", "PowerConsumedWatts": watts, "RelatedItem": [id("/redfish/v1/Systems/1/Processors/1")]})
    });
    prop::collection::vec(prop_oneof![part, other, supply, processors], 0..4)
}

/// Reading of the machine itself: as it is, missing, or nonsense of firmware.
fn reading(watts: i32) -> impl Strategy<Value = Value> {
    let nothing = [json!(null), json!(0), json!("N/A"), json!(1e12)];
    prop_oneof![Just(json!(watts)), prop::sample::select(nothing.to_vec())]
}

const WATTS: i32 = 311;

proptest! {
    /// Whatever else a service contains: the power is that of the machine, or missing.
    #[test]
    fn no_power_is_read_wrongly(
        environment in prop::option::of(reading(WATTS)),
        own in prop::option::of(reading(WATTS)),
        names in prop::sample::select(&["System Power Control", "Server Power", "Chassis Power", "Total", "X"][..]),
        mut entries in entries(),
        place in any::<prop::sample::Index>(),
        supplies in prop::option::of(prop::collection::vec(prop::option::weighted(0.8, Just(())), 1..4)),
        input in prop::option::of(prop::collection::vec(prop::option::weighted(0.8, Just(WATTS / 2)), 2)),
        source in prop::sample::select(&["Total", "PSU1_Power", "CPU1Power"][..]),
        enclosure in prop::option::of(reading(4000)),
        fails in prop::collection::vec(prop::sample::select(&[
            "/redfish/v1/Systems", "/redfish/v1/Systems/1", "/redfish/v1/Chassis", "/redfish/v1/Chassis/1",
            "/redfish/v1/Chassis/1/Power", ENVIRONMENT, SUPPLIES, "/redfish/v1/Chassis/1/PowerSubsystem",
        ][..]), 0..2),
        status in prop::sample::select(&[404_u16, 500, 503][..]),
    ) {
        let mut tree = Tree::new().and(CHASSIS, json!({"Links": {"ContainedBy": id("/redfish/v1/Chassis/2")}}));
        let is_readable = [&environment, &own].iter().any(|one| one.as_ref().is_some_and(|one| *one == json!(WATTS)));
        if let Some(reading) = environment {
            let reading = if source == "Total" || reading != json!(WATTS) { reading } else { json!(WATTS / 3) };
            let source = format!("{CHASSIS}/Sensors/{source}");
            tree = tree.environment("1", json!({"Reading": reading, "DataSourceUri": source}));
        }
        if let Some(reading) = own {
            entries.insert(place.index(entries.len() + 1), control(names, reading));
        }
        if !entries.is_empty() {
            let input: Vec<Value> =
                input.into_iter().flatten().map(|watts| json!({"PowerInputWatts": watts})).collect();
            tree = tree.controls("1", json!(entries)).and("/redfish/v1/Chassis/1/Power", json!({"PowerSupplies": input}));
        }
        if let Some(supplies) = supplies {
            // The parts sum up to the whole, unless one of them has no reading.
            let share = WATTS / i32::try_from(supplies.len()).unwrap();
            let mut readings: Vec<Value> = supplies.iter().map(|one| json!(one.map(|()| share))).collect();
            if let Some(first) = readings.first_mut().filter(|first| !first.is_null()) {
                *first = json!(WATTS - share * (i32::try_from(supplies.len()).unwrap() - 1));
            }
            tree = tree.supplies(&readings);
        }
        if let Some(reading) = enclosure {
            tree = tree.environment("2", json!({"Reading": reading})).controls("2", json!([control("Power", reading)]));
        }
        let is_whole = fails.is_empty();
        for path in fails {
            tree = tree.fails(path, status);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        match runtime.block_on(tree.power(None)) {
            Ok((watts, _)) => prop_assert_eq!(watts, f64::from(WATTS)),
            Err(error) if is_whole && is_readable => {
                prop_assert!(error.to_string().contains(CHASSIS), "no path to copy: {}", error);
            }
            Err(_) => {}
        }
    }

    /// No document of any form is a panic, and none costs more than the bound.
    #[test]
    fn any_document_is_an_answer_or_an_error(
        value in prop::sample::select(vec![json!(null), json!([]), json!({}), json!("x"), json!([[1]]), json!(-1)]),
    ) {
        let tree = Tree::new().environment("1", value.clone()).controls("1", value.clone());
        let tree = tree.and(CHASSIS, json!({"PowerSubsystem": value, "Sensors": value}));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        prop_assert!(runtime.block_on(tree.power(None)).is_err());
        prop_assert!(tree.requests() < 20);
    }
}
