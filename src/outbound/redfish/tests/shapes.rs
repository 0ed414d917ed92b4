//! Shapes of trees of vendors, as their documentation and public trees show them. Readings are in the intake air at 21
//! degrees, or in a warmer place.

use rstest::rstest;
use serde_json::{Value, json};

use super::{Tree, id, inlet, members, sensor, temperature};
use crate::redfish::SensorPath;

const AIR: i32 = 21;
const WARM: i32 = 37;
const CHASSIS: &str = "/redfish/v1/Chassis/1";

/// Entry of Thermal with a mark and an upper critical threshold.
fn entry(name: &str, context: &str, celsius: impl Into<Value>, critical: i32) -> Value {
    let mut entry = temperature(name, celsius);
    entry["PhysicalContext"] = json!(context);
    entry["UpperThresholdCritical"] = json!(critical);
    entry
}

fn absent(mut entry: Value) -> Value {
    entry["Status"] = json!({"State": "Absent"});
    entry
}

/// The temperature, or the words of the question.
async fn read(tree: &Tree) -> Result<f64, String> {
    tree.find(None).await.map(|(celsius, _)| celsius).map_err(|error| error.to_string())
}

#[rstest]
#[case::idrac8(json!([{"Name": "System Board Inlet Temp", "MemberId": "iDRAC.Embedded.1#SystemBoardInletTemp",
    "PhysicalContext": "SystemBoard", "ReadingCelsius": AIR, "UpperThresholdCritical": 47, "UpperThresholdFatal": 47},
    entry("CPU1 Temp", "CPU", 60, 95), entry("System Board Exhaust Temp", "SystemBoard", WARM, 80)]))]
#[case::ilo4(json!([{"Name": "01-Inlet Ambient", "PhysicalContext": "Intake", "CurrentReading": AIR, "Units": "Celsius",
    "LowerThresholdCritical": 46, "Number": 1}, {"Name": "02-CPU 1", "PhysicalContext": "CPU", "CurrentReading": 40}]))]
#[case::ilo5(json!([entry("01-Inlet Ambient", "Intake", AIR, 42), entry("15-Front Ambient", "Intake", 32, 70),
    entry("11-Board Inlet", "SystemBoard", 30, 65), entry("54-P/S 1 Inlet", "PowerSupply", 36, 0)]))]
#[case::xclarity(json!([entry("Ambient Temp", "Intake", AIR, 47), entry("Exhaust Temp", "Exhaust", WARM, 0)]))]
#[case::supermicro_x11(json!([entry("CPU1 Temp", "CPU", 45, 92), entry("System Temp", "SystemBoard", WARM, 90),
    entry("Inlet Temp", "SystemBoard", AIR, 45), entry("GPU Inlet Temp", "GPU", 34, 85), entry("PCH Temp", "SystemBoard", 50, 90)]))]
#[case::cimc(json!([entry("TEMP_SENS_FRONT", "SystemBoard", AIR, 45), entry("RISER1_INLET_TMP", "SystemBoard", WARM, 70)]))]
#[case::ibmc(json!([entry("Inlet Temp", "Intake", AIR, 46), entry("Outlet Temp", "Exhaust", WARM, 75),
    entry("CPU1 Core Rem", "CPU", 55, 0), entry("Mezz1 Temp", "SystemBoard", 50, 0)]))]
#[case::inspur(json!([entry("Inlet_Temp", "Intake", AIR, 45), entry("Outlet_Temp", "SystemBoard", WARM, 75),
    entry("CPU0_Temp", "CPU", 60, 95), entry("HDD_MAX_Temp", "SystemBoard", 40, 62)]))]
#[case::irmc(json!([entry("Ambient", "Intake", AIR, 42), entry("Systemboard 1", "SystemBoard", WARM, 75),
    entry("PSU1 Inlet", "PowerSupply", WARM, 63)]))]
#[case::openbmc_of_ibm(json!([temperature("Ambient 0 Temp", AIR), temperature("PCIE 0 Temp", 50)]))]
#[case::ampere(json!([temperature("TS4_Temp", WARM), temperature("Inlet_Temp", AIR), temperature("SOC_Temp", 60)]))]
#[case::kelvin_free_text(json!([{"Name": "Inlet Temp", "ReadingCelsius": format!(" {AIR}.0 ")}, temperature("CPU", 60)]))]
#[tokio::test]
async fn the_intake_of_each_vendor_is_read(#[case] temperatures: Value) {
    assert_eq!(read(&Tree::new().thermal("1", temperatures)).await, Ok(f64::from(AIR)));
}

/// The question names each of these paths, and the sensor at each path is read.
#[rstest]
#[case::ilo5_without_its_inlet(json!([absent(entry("01-Inlet Ambient", "Intake", 0, 42)), entry("15-Front Ambient", "Intake", 32, 70)]),
    &["15-Front Ambient"])]
#[case::ilo5_board(json!([absent(entry("01-Inlet Ambient", "Intake", 0, 42)), entry("11-Board Inlet", "SystemBoard", 37, 65)]),
    &["11-Board Inlet"])]
#[case::intel_board(json!([temperature("Inlet_BRD_Temp", AIR), temperature("CPU1 Temp", 60)]), &["Inlet_BRD_Temp"])]
#[case::dgx(json!([entry("TEMP_AMBIENT", "Intake", AIR, 40), entry("TEMP_MB_INLET", "Intake", 25, 59), entry("TEMP_CPU0", "Intake", 50, 88),
    entry("TEMP_PSU0", "Intake", 32, 58)]), &["TEMP_AMBIENT", "TEMP_MB_INLET"])]
#[case::storage_server(json!([entry("MOBO_L_IN_TEMP", "SystemBoard", AIR, 45), entry("MOBO_R_IN_TEMP", "SystemBoard", 22, 45)]),
    &["MOBO_L_IN_TEMP", "MOBO_R_IN_TEMP"])]
#[case::nothing_speaks_for_any(json!([temperature("T1", AIR), temperature("TS4_Temp", WARM), temperature("CPU1 Temp", 60)]),
    &["T1", "TS4_Temp"])]
#[case::warm_marks(json!([entry("T1", "Intake", WARM, 95), temperature("T2", AIR)]), &["T1", "T2"])]
#[tokio::test]
async fn a_question_is_answered_by_copying(#[case] temperatures: Value, #[case] names: &[&str]) {
    let tree = Tree::new().thermal("1", temperatures);
    let question = read(&tree).await.unwrap_err();
    for name in names {
        let path = format!("{CHASSIS}/Thermal#{name}");
        assert!(question.contains(&path), "{question}");
        assert!(tree.find(Some(&path)).await.is_ok(), "{path}");
    }
}

/// Numbers that firmware reports for a sensor without a reading, and units.
#[rstest]
#[case(json!({"ReadingCelsius": 0}))]
#[case(json!({"ReadingCelsius": "0.0"}))]
#[case(json!({"ReadingCelsius": -0.0}))]
#[case(json!({"ReadingCelsius": 255}))]
#[case(json!({"ReadingCelsius": -128}))]
#[case(json!({"ReadingCelsius": "NaN"}))]
#[case(json!({"ReadingCelsius": "N/A"}))]
#[case(json!({"ReadingCelsius": true}))]
#[case(json!({"ReadingCelsius": [AIR]}))]
#[case(json!({"CurrentReading": 70, "Units": "Fahrenheit"}))]
#[case(json!({"ReadingCelsius": 70, "Units": "Fahrenheit"}))]
#[case(json!({"Reading": 70, "ReadingType": "Temperature", "ReadingUnits": "Fahrenheit"}))]
#[tokio::test]
async fn what_is_no_reading_is_missing(#[case] reading: Value) {
    let mut entry = json!({"Name": "Inlet Temp", "PhysicalContext": "Intake"});
    entry.as_object_mut().unwrap().extend(reading.as_object().unwrap().clone());
    let tree = Tree::new().thermal("1", json!([entry.clone(), temperature("CPU1 Temp", 60)]));
    assert!(read(&tree).await.is_err());
    assert!(read(&Tree::new().sensors("1", &[("In", entry)])).await.is_err());
}

#[tokio::test]
async fn thresholds_have_the_unit_of_the_reading() {
    let front = |unit: &str, reading: f64, critical: f64| {
        json!({"Name": "Front", "ReadingType": "Temperature", "ReadingUnits": unit, "Reading": reading,
            "Thresholds": {"UpperCritical": {"Reading": critical}}})
    };
    for tree in [front("[degF]", 69.8, 107.6), front("K", 294.15, 315.15)] {
        let celsius = read(&Tree::new().sensors("1", &[("F", tree), ("C", sensor("CPU", "CPU", 60))])).await.unwrap();
        assert!((celsius - f64::from(AIR)).abs() < 1e-9, "{celsius}");
    }
}

/// Service whose pages repeat, since it ignores the query.
#[tokio::test]
async fn a_member_on_several_pages_is_one_sensor() {
    let sensors = format!("{CHASSIS}/Sensors");
    let tree =
        Tree::new().sensors("1", &[("In", sensor("Inlet Temp", "Intake", AIR)), ("C", sensor("CPU", "CPU", 60))]);
    let next = format!("{sensors}?$skip=2");
    let tree = tree.and(&sensors, json!({"Members@odata.nextLink": next}));
    let page = tree.documents[&sensors].clone();
    let tree = tree.with(&next, page);
    assert_eq!(read(&tree).await, Ok(f64::from(AIR)));
    assert!(tree.requests() < 20, "{}", tree.requests());
}

/// Collection that a starting service has not filled: what it contains is not known.
#[rstest]
#[case(json!({}))]
#[case(json!({"Members": null}))]
#[case(json!({"Members": "starting"}))]
#[case(json!({"Members": ["/redfish/v1/Systems/1"]}))]
#[case(json!({"Members": [{}]}))]
#[case(json!({"Members": [{"@odata.id": 1}]}))]
#[case(json!({"Members": [null]}))]
#[tokio::test]
async fn a_collection_without_members_is_not_read(#[case] collection: Value) {
    let shelf = json!([entry("Ambient", "Intake", WARM, 45)]);
    let only = || {
        let tree = Tree::new().with("/redfish/v1/Chassis", members(&["/redfish/v1/Chassis/2"]));
        tree.thermal("2", shelf.clone())
    };
    let tree = only().with("/redfish/v1/Systems", collection.clone());
    assert!(read(&tree).await.is_err());
    // Its own sensor may be in a list that is not filled.
    let around = json!({"Links": {"ContainedBy": id("/redfish/v1/Chassis/2")}});
    let sensors = format!("{CHASSIS}/Sensors");
    let tree = only().and(CHASSIS, around).and(CHASSIS, json!({"Sensors": id(&sensors)})).with(&sensors, collection);
    assert!(read(&tree).await.is_err());
}

/// A chassis that refers to the system, while the system does not refer to it: a tray of a rack may be a Shelf.
#[rstest]
#[case("Blade", false)]
#[case("Sled", false)]
#[case("RackMount", false)]
#[case("Enclosure", true)]
#[case("Shelf", true)]
#[tokio::test]
async fn a_chassis_that_refers_to_the_only_system_is_read_first(#[case] type_: &str, #[case] is_container: bool) {
    let chassis = json!({"ChassisType": type_, "Links": {"ComputerSystems": [id("/redfish/v1/Systems/1")]}});
    let tree = Tree::new()
        .with("/redfish/v1/Systems/1", json!({"Links": {"ManagedBy": [id("/redfish/v1/Managers/CIMC")]}}))
        .and(CHASSIS, chassis)
        .thermal(
            "1",
            json!([entry("TEMP_FRONT", "SystemBoard", AIR, 45), entry("TEMP_REAR_TOP", "SystemBoard", WARM, 0)]),
        )
        .thermal("2", json!([entry("Ambient", "Intake", 30, 45)]));
    let found = inlet(&tree, None, None).await.unwrap();
    assert_eq!(found.celsius, f64::from(AIR));
    assert_eq!(found.choice.unwrap().provisional.is_some(), is_container);
}

#[tokio::test]
async fn an_entry_of_an_old_service_is_polled_like_others() {
    let entry = json!({"Name": "01-Inlet Ambient", "CurrentReading": AIR, "Units": "Celsius"});
    let tree = Tree::new().thermal("1", json!([entry]));
    let known: SensorPath = tree.find(None).await.unwrap().1.parse().unwrap();
    assert_eq!(inlet(&tree, Some(&known), None).await.unwrap().celsius, f64::from(AIR));
}
