//! Choice of the intake sensor: misleading marks and names, partial answers, other machines and components.
//!
//! Each tree has at most one sensor in the intake air. A reading is that of this sensor, or it is missing.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::select;
use rstest::rstest;
use serde_json::{Value, json};

use super::{Tree, id, members, sensor, temperature};

/// Temperature of the intake air, and of everything else.
const AIR: i32 = 21;
const OTHER: i32 = 55;

async fn celsius(tree: &Tree) -> Option<f64> {
    tree.find(None).await.ok().map(|(celsius, _)| celsius)
}

async fn words(tree: &Tree) -> String {
    tree.find(None).await.unwrap_err().to_string()
}

fn with(mut sensor: Value, more: Value) -> Value {
    sensor.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    sensor
}

fn absent(sensor: Value) -> Value {
    with(sensor, json!({"Status": {"State": "Absent"}}))
}

/// Thresholds of a sensor in Sensors.
fn critical(sensor: Value, celsius: i32) -> Value {
    with(sensor, json!({"Thresholds": {"UpperCritical": {"Reading": celsius}}}))
}

/// Machine with a CPU sensor, beside an enclosure with a sensor of its own.
fn beside(type_: &str, contains: bool) -> Tree {
    let around = json!({"Links": {"ContainedBy": id("/redfish/v1/Chassis/2")}});
    let shelf = json!([{"Name": "Ambient", "PhysicalContext": "Intake", "ReadingCelsius": OTHER}]);
    let tree = Tree::new().and("/redfish/v1/Chassis/2", json!({"ChassisType": type_})).thermal("2", shelf);
    if contains { tree.and("/redfish/v1/Chassis/1", around) } else { tree }
}

#[rstest]
#[tokio::test]
async fn an_unreadable_machine_is_not_read_elsewhere(
    #[values("Enclosure", "Shelf", "RackMount", "")] type_: &str,
    #[values(true, false)] contains: bool,
) {
    let inlet = |reading: Value| json!([temperature("Inlet Temp", reading), temperature("CPU1 Temp", OTHER)]);
    let tree = || beside(type_, contains).thermal("1", inlet(json!(AIR)));
    assert_eq!(celsius(&tree()).await, Some(f64::from(AIR)));
    for status in [400, 404, 405, 410, 500, 501, 503] {
        for path in ["Chassis/1/Thermal", "Chassis/1", "Systems", "Systems/1"] {
            let tree = tree().fails(&format!("/redfish/v1/{path}"), status);
            assert_eq!(celsius(&tree).await, None, "{path} answers {status}");
        }
    }
    // While a machine starts, its sensor may have no reading, and its service no system.
    assert_eq!(celsius(&beside(type_, contains).thermal("1", inlet(json!(null)))).await, None);
    assert_ne!(celsius(&tree().with("/redfish/v1/Systems", members(&[]))).await, Some(f64::from(OTHER)));
    let gone = beside(type_, contains).thermal("1", json!([absent(temperature("Inlet Temp", 0))]));
    assert_eq!(celsius(&gone).await, None);
    assert_eq!(celsius(&gone.with("/redfish/v1/Systems/1", json!({}))).await, None, "no link to its chassis");
}

#[rstest]
#[case::r2(json!([absent(temperature("Inlet Temp", 0)), {"Name": "System Temp", "ReadingCelsius": 37, "UpperThresholdCritical": 85}]),
    "such as /redfish/v1/Chassis/1/Thermal#System Temp")]
#[case::system_only(json!([temperature("System Temp", 37)]), "such as /redfish/v1/Chassis/1/Thermal#System Temp")]
#[case::threshold_only(json!([{"Name": "TR1", "ReadingCelsius": AIR, "UpperThresholdCritical": 42}]),
    "such as /redfish/v1/Chassis/1/Thermal#TR1")]
#[case::warm_threshold(json!([{"Name": "T1", "PhysicalContext": "Intake", "ReadingCelsius": 37, "UpperThresholdCritical": 95},
    temperature("T2", 30)]), "name one in sensor")]
#[tokio::test]
async fn one_weak_witness_is_a_question(#[case] temperatures: Value, #[case] end: &str) {
    let words = words(&Tree::new().thermal("1", temperatures)).await;
    assert!(words.ends_with(end), "{words}");
}

#[rstest]
#[case::all_but_one_absent("TEMP_1")]
#[case::cpu("CPU0_TEMP")]
#[case::gpu("GPU_INLET")]
#[tokio::test]
async fn a_mark_that_most_sensors_have_says_nothing(#[case] name: &str) {
    let marked = |name: &str| sensor(name, "Intake", OTHER);
    let all = [("A", marked(name)), ("B", absent(marked("TEMP_2"))), ("C", absent(marked("TEMP_3")))];
    assert_eq!(celsius(&Tree::new().sensors("1", &all)).await, None);
    // The others cannot be read.
    let tree = Tree::new().sensors("1", &all);
    let tree = tree.fails("/redfish/v1/Chassis/1/Sensors/B", 500).fails("/redfish/v1/Chassis/1/Sensors/C", 404);
    assert_eq!(celsius(&tree).await, None);
    // Its name or its threshold still says which one it is.
    let inlet = ("D", sensor("Inlet Temp", "Intake", AIR));
    let tree = Tree::new().sensors("1", &[all[0].clone(), all[1].clone(), inlet]);
    assert_eq!(celsius(&tree).await, Some(f64::from(AIR)));
}

#[tokio::test]
async fn a_summary_of_an_absent_sensor_is_none() {
    let summary = json!({"Reading": 0, "DataSourceUri": "/redfish/v1/Chassis/1/Sensors/In"});
    let tree = || Tree::new().summary(summary.clone());
    assert_eq!(celsius(&tree().sensors("1", &[("In", absent(sensor("In", "Intake", 0)))])).await, None);
    let off = with(sensor("In", "Intake", 0), json!({"Enabled": false}));
    assert_eq!(celsius(&tree().sensors("1", &[("In", off)])).await, None);
    assert_eq!(celsius(&tree().fails("/redfish/v1/Chassis/1/Sensors/In", 500)).await, None);
    // A summary that names a component contradicts itself.
    let psu = ("In", sensor("PSU1 Inlet", "PowerSupply", OTHER));
    assert_eq!(celsius(&tree().sensors("1", &[psu])).await, None);
}

#[rstest]
#[tokio::test]
async fn components_and_other_machines_are_named_and_not_read(
    #[values("Card", "Sled", "Shelf", "StorageEnclosure", "Module", "Blade", "RackMount", "Enclosure")] type_: &str,
) {
    let tree = beside(type_, false).thermal("1", json!([temperature("CPU1 Temp", OTHER)]));
    assert!(words(&tree).await.ends_with("such as /redfish/v1/Chassis/2/Thermal#Ambient"), "{type_}");
}

#[rstest]
#[case::headroom(json!({"ReadingBasis": "Headroom"}))]
#[case::delta(json!({"ReadingBasis": "Delta"}))]
#[case::disabled(json!({"Enabled": false}))]
#[case::out_of_range(json!({"ReadingRangeMax": 50, "ReadingRangeMin": 0}))]
#[tokio::test]
async fn only_absolute_temperatures_in_range_are_read(#[case] more: Value) {
    let odd = with(sensor("Inlet Temp", "Intake", OTHER), more);
    assert_eq!(celsius(&Tree::new().sensors("1", &[("In", odd)])).await, None);
    // Firmware that leaves both limits at 0.
    let zero = json!({"ReadingRangeMax": 0, "ReadingRangeMin": 0, "ReadingBasis": "Zero", "Enabled": true});
    let zero = with(sensor("Inlet Temp", "Intake", AIR), zero);
    assert_eq!(celsius(&Tree::new().sensors("1", &[("In", zero)])).await, Some(f64::from(AIR)));
}

#[tokio::test]
async fn witnesses_that_contradict_each_other_are_a_question() {
    let psu = ("P", sensor("PSU1 Inlet", "Intake", 41));
    let cpu = ("C", sensor("CPU1 Temp", "CPU", OTHER));
    let board = ("I", sensor("Inlet Temp", "SystemBoard", AIR));
    let tree = Tree::new().sensors("1", &[psu.clone(), board, cpu.clone()]);
    let paths = "sensor: /redfish/v1/Chassis/1/Sensors/P, /redfish/v1/Chassis/1/Sensors/I";
    assert!(words(&tree).await.ends_with(paths), "{}", words(&tree).await);
    // A mark and a name of the same sensor outweigh the mark of a component.
    let marked = ("I", sensor("Inlet Temp", "Intake", AIR));
    let tree = Tree::new().sensors("1", &[psu, marked, cpu.clone(), ("D", sensor("DIMM", "Memory", OTHER))]);
    assert_eq!(celsius(&tree).await, Some(f64::from(AIR)));
    let exhaust = ("E", sensor("Inlet Temp", "Exhaust", OTHER));
    assert_eq!(celsius(&Tree::new().sensors("1", &[exhaust, cpu])).await, None);
}

#[rstest]
#[case("TEMP_SENS_FRONT")]
#[case("BB Inlet Temp")]
#[case("TEMP_AMBIENT")]
#[case("Chassis 0 Front IO Temp 0")]
#[case("Front Panel Temperature")]
#[tokio::test]
async fn names_of_vendors_are_read(#[case] name: &str) {
    let all = [("A", sensor(name, "", AIR)), ("B", sensor("CPU0_TEMP", "CPU", OTHER))];
    assert_eq!(celsius(&Tree::new().sensors("1", &all)).await, Some(f64::from(AIR)));
}

#[tokio::test]
async fn a_threshold_is_a_second_witness() {
    let (warm, air) = (critical(sensor("Front 1", "", OTHER), 60), critical(sensor("Front 2", "", AIR), 40));
    let tree = Tree::new().sensors("1", &[("A", warm), ("B", air)]);
    assert_eq!(celsius(&tree).await, Some(f64::from(AIR)));
    // Thermal has the threshold of a sensor in Sensors.
    let both = [("A", sensor("Front 1", "", OTHER)), ("B", sensor("Front 2", "", AIR))];
    let thermal = json!([{"Name": "Front 2", "ReadingCelsius": AIR, "UpperThresholdCritical": 42}]);
    assert_eq!(celsius(&Tree::new().sensors("1", &both)).await, None);
    assert_eq!(celsius(&Tree::new().sensors("1", &both).thermal("1", thermal)).await, Some(f64::from(AIR)));
}

#[tokio::test]
async fn readings_in_thermal_metrics_are_read_and_found_again() {
    let metrics = "/redfish/v1/Chassis/1/ThermalSubsystem/ThermalMetrics";
    let readings = json!({"TemperatureReadingsCelsius": [
        {"DeviceName": "CPU1 Temp", "PhysicalContext": "CPU", "Reading": OTHER},
        {"DeviceName": "Inlet Temp", "PhysicalContext": "Intake", "Reading": AIR}]});
    let tree = Tree::new().summary(json!(null)).and(metrics, readings.clone());
    let first = super::inlet(&tree, None, None).await.unwrap();
    assert_eq!(first.sensor.to_string(), format!("{metrics}#Inlet Temp"));
    let before = tree.requests();
    assert_eq!(super::inlet(&tree, Some(&first.sensor), None).await.unwrap().celsius, f64::from(AIR));
    assert_eq!(tree.requests() - before, 1, "one GET");
    assert_eq!(tree.find(Some("Inlet Temp")).await.map(|(celsius, _)| celsius), Ok(f64::from(AIR)));
    // A reading that repeats a sensor is polled there.
    let source = json!({"TemperatureReadingsCelsius": [{"DeviceName": "Front IO Temp", "PhysicalContext": "Intake",
        "Reading": AIR, "DataSourceUri": "/redfish/v1/Chassis/1/Sensors/F"}]});
    let tree = Tree::new().summary(json!(null)).and(metrics, source).sensors("1", &[("F", sensor("F", "", AIR))]);
    assert_eq!(tree.find(None).await, super::found(f64::from(AIR), "1/Sensors/F"));
}

/// Service with two machines, each in its own chassis.
fn siblings(first: Value, second: Value) -> Tree {
    Tree::new()
        .with("/redfish/v1/Systems", members(&["/redfish/v1/Systems/1", "/redfish/v1/Systems/2"]))
        .with("/redfish/v1/Systems/2", json!({"Links": {"Chassis": [id("/redfish/v1/Chassis/2")]}}))
        .thermal("1", first)
        .thermal("2", second)
}

#[tokio::test]
async fn nothing_says_which_of_several_machines_is_meant() {
    let inlet = || json!([temperature("Inlet Temp", OTHER)]);
    let cpu = || json!([temperature("CPU1 Temp", OTHER)]);
    assert_eq!(celsius(&siblings(inlet(), inlet())).await, None);
    assert!(words(&siblings(cpu(), inlet())).await.ends_with("such as /redfish/v1/Chassis/2/Thermal#Inlet Temp"));
    assert_eq!(celsius(&siblings(inlet(), cpu()).fails("/redfish/v1/Systems/2", 500)).await, None);
    assert_eq!(celsius(&siblings(inlet(), cpu()).fails("/redfish/v1/Systems/2", 404)).await, None);
    // Both are in one enclosure.
    let around = json!({"Links": {"ContainedBy": [id("/redfish/v1/Chassis/3")]}});
    let blades = siblings(cpu(), cpu())
        .and("/redfish/v1/Chassis/1", around.clone())
        .and("/redfish/v1/Chassis/2", around)
        .with("/redfish/v1/Chassis/3", json!({"ChassisType": "Enclosure"}))
        .thermal("3", json!([temperature("Ambient Temp", AIR)]));
    assert_eq!(celsius(&blades).await, Some(f64::from(AIR)));
    // Accelerators are parts of the machine.
    let mut tree = siblings(json!([temperature("Inlet Temp", AIR)]), json!([temperature("GPU Inlet", OTHER)]));
    let baseboard = tree.documents.remove("/redfish/v1/Systems/2").unwrap();
    let systems = members(&["/redfish/v1/Systems/1", "/redfish/v1/Systems/HGX_Baseboard_0"]);
    let tree = tree.with("/redfish/v1/Systems", systems).with("/redfish/v1/Systems/HGX_Baseboard_0", baseboard);
    assert_eq!(celsius(&tree).await, Some(f64::from(AIR)));
}

#[tokio::test]
async fn a_chassis_that_refers_to_the_system_is_a_part_of_the_machine() {
    let related = json!({"ChassisType": "RackMount", "Links": {"ComputerSystems": [id("/redfish/v1/Systems/1")]}});
    let front = Tree::new()
        .and("/redfish/v1/Chassis/2", related.clone())
        .thermal("2", json!([temperature("Front Inlet", AIR)]));
    assert_eq!(celsius(&front).await, Some(f64::from(AIR)));
    // Its own sensor may be in the part that cannot be read.
    for status in [404, 500] {
        let warm = json!([{"Name": "Front Inlet", "PhysicalContext": "Intake", "ReadingCelsius": OTHER}]);
        let tree = Tree::new()
            .and("/redfish/v1/Chassis/2", related.clone())
            .thermal("2", warm)
            .thermal("1", json!([]))
            .fails("/redfish/v1/Chassis/1/Thermal", status);
        assert_eq!(celsius(&tree).await, None, "{status}");
    }
}

#[tokio::test]
async fn a_choice_that_may_change_says_why() {
    let provisional = async |tree: Tree| super::inlet(&tree, None, None).await.unwrap().choice.unwrap().provisional;
    let own = || Tree::new().thermal("1", json!([temperature("Inlet Temp", AIR), temperature("Ambient Temp", OTHER)]));
    assert_eq!(provisional(own()).await, None);
    let unread = own().sensors("1", &[("X", json!({}))]).fails("/redfish/v1/Chassis/1/Sensors/X", 500);
    assert_eq!(provisional(unread).await, Some("a part of the machine could not be read"));
    let better = json!([absent(temperature("Inlet Temp", 0)), temperature("Ambient Temp", AIR)]);
    assert_eq!(provisional(Tree::new().thermal("1", better)).await, Some("a better sensor is absent"));
    let around = beside("Enclosure", true);
    assert_eq!(provisional(around).await, Some("no chassis of the machine itself has an intake sensor"));
}

#[tokio::test]
async fn the_evidence_and_the_runner_up_are_shown() {
    let all = [
        ("A", critical(sensor("Inlet Temp", "Intake", AIR), 42)),
        ("B", sensor("Ambient", "", AIR)),
        ("C", sensor("C", "", AIR)),
    ];
    let choice = super::inlet(&Tree::new().sensors("1", &all), None, None).await.unwrap().choice.unwrap();
    assert_eq!(choice.evidence, "PhysicalContext is Intake, its name means the inlet, critical above 42 °C");
    let runner_up = "/redfish/v1/Chassis/1/Sensors/B: its name means the front";
    assert_eq!(choice.runner_up.as_deref(), Some(runner_up));
}

/// Status codes of a list that may fail.
const FAILURES: [Option<u16>; 5] = [None, None, None, Some(404), Some(500)];

/// Names that mislead: components, other places, the machine as a whole, and unknown ones.
const TRAPS: [&str; 24] = [
    "PSU1 Inlet",
    "P/S 2 Inlet",
    "PowerSupplyInlet",
    "GPU_INLET",
    "GPU1 Ambient",
    "PCIe Slot 1 Inlet",
    "NIC Inlet Temp",
    "OCP Ambient",
    "HDD Front",
    "NVMe Inlet",
    "CPU0_TEMP",
    "CPU Inlet",
    "DIMM Ambient",
    "VR Inlet",
    "Front Fan Temp",
    "Rear Ambient",
    "Exhaust Temp",
    "Coolant Inlet",
    "System Temp",
    "Riser Front",
    "PCH Temp",
    "T1",
    "Zone 4",
    "",
];

/// Names of the intake sensor.
const INLETS: [&str; 14] = [
    "Inlet Temp",
    "01-Inlet Ambient",
    "SystemBoardInletTemp",
    "BB Inlet Temp",
    "MB_Inlet",
    "TEMP_SENS_FRONT",
    "TEMP_AMBIENT",
    "Chassis 0 Front IO Temp 0",
    "Temp_Ambient_FP",
    "FP Inlet",
    "Air inlet",
    "Inlet 1 Temp",
    "T1",
    "",
];

/// One sensor of a generated machine.
#[derive(Clone, Debug)]
struct Made {
    name: &'static str,
    context: &'static str,
    limit: Option<i32>,
    is_absent: bool,
    in_thermal: bool,
    /// Status with which its resource answers instead.
    fails: Option<u16>,
}

fn made(names: &'static [&'static str], limits: &'static [Option<i32>]) -> impl Strategy<Value = Made> {
    let contexts = &["", "SystemBoard", "Intake", "Intake", "CPU", "PowerSupply", "Exhaust"][..];
    let fails = &[None, None, None, None, Some(404), Some(500)][..];
    let choose = (select(names), select(contexts), select(limits), any::<[bool; 3]>(), select(fails));
    choose.prop_map(|(name, context, limit, [absent, absent_too, in_thermal], fails)| Made {
        name,
        context,
        limit,
        is_absent: absent && absent_too,
        in_thermal,
        fails,
    })
}

/// Adds these sensors to a chassis, each with this reading.
fn add(mut tree: Tree, chassis: &str, all: &[(Made, i32)], lists_fail: [Option<u16>; 2]) -> Tree {
    let (mut sensors, mut temperatures, mut fails) = (Vec::new(), Vec::new(), Vec::new());
    let ids: Vec<String> = (0..all.len()).map(|nth| nth.to_string()).collect();
    for ((made, celsius), id) in all.iter().zip(&ids) {
        let state = if made.is_absent { "Absent" } else { "Enabled" };
        let status = json!({"Status": {"State": state}, "PhysicalContext": made.context});
        if made.in_thermal {
            let known =
                with(temperature(made.name, *celsius), json!({"MemberId": id, "UpperThresholdCritical": made.limit}));
            temperatures.push(with(known, status));
            continue;
        }
        let known = with(sensor(made.name, made.context, *celsius), status);
        sensors.push((id.as_str(), made.limit.map_or_else(|| known.clone(), |limit| critical(known.clone(), limit))));
        fails.extend(made.fails.map(|status| (format!("/redfish/v1/Chassis/{chassis}/Sensors/{id}"), status)));
    }
    tree = tree.sensors(chassis, &sensors).thermal(chassis, json!(temperatures));
    let lists = ["Sensors", "Thermal"].map(|list| format!("/redfish/v1/Chassis/{chassis}/{list}"));
    fails.extend(lists.into_iter().zip(lists_fail).filter_map(|(path, status)| Some((path, status?))));
    fails.into_iter().fold(tree, |tree, (path, status)| tree.fails(&path, status))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// A machine with at most one sensor in the intake air, warm components with misleading names and marks, and
    /// another chassis. Whatever cannot be read, no other sensor is read for it.
    #[test]
    fn no_tree_is_read_wrongly(
        inlet in prop::option::of(made(&INLETS, &[None, Some(0), Some(38), Some(42), Some(47)])),
        components in prop::collection::vec(made(&TRAPS, &[None, None, Some(0), Some(60), Some(85), Some(105)]), 2..6),
        beside in prop::option::of(made(&INLETS, &[None, Some(42)])),
        type_ in select(&["Card", "Sled", "Shelf", "StorageEnclosure", "RackMount", "Enclosure", "Module", ""][..]),
        lists_fail in [select(&FAILURES[..]), select(&FAILURES[..])],
        marks_all in any::<bool>(),
        is_summary in any::<bool>(),
    ) {
        let mut own: Vec<(Made, i32)> = components.into_iter().map(|made| (made, OTHER)).collect();
        own.extend(inlet.into_iter().map(|made| (made, AIR)));
        // Two sensors of one name in both lists of a chassis would be one sensor.
        let mut names = BTreeSet::new();
        own.retain(|(made, _)| names.insert(made.name));
        prop_assume!(own.len() > 1);
        for (made, celsius) in &mut own {
            // A wrong mark, without any sign that it is wrong, could be found by nobody.
            let is_neutral = *celsius == OTHER && ["System Temp", "T1", "Zone 4", ""].contains(&made.name);
            match (marks_all, made.context) {
                (true, _) => made.context = "Intake",
                (false, "Intake") if is_neutral => made.context = "SystemBoard",
                (false, _) => {}
            }
        }
        let beside: Vec<(Made, i32)> = beside.into_iter().map(|made| (made, OTHER)).collect();
        let tree = add(Tree::new(), "1", &own, lists_fail).and("/redfish/v1/Chassis/2", json!({"ChassisType": type_}));
        let mut tree = add(tree, "2", &beside, [None, None]);
        let is_air = |(made, celsius): &(Made, i32)| *celsius == AIR && !made.in_thermal;
        if let (true, Some(nth)) = (is_summary, own.iter().position(is_air)) {
            let source = format!("/redfish/v1/Chassis/1/Sensors/{nth}");
            tree = tree.summary(json!({"Reading": AIR, "DataSourceUri": source}));
        }
        let run = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let read = run.block_on(tree.find(None));
        prop_assert!(!matches!(read, Ok((celsius, _)) if celsius != f64::from(AIR)), "{:?}", read);
    }
}
