//! Choice of the intake sensor: misleading marks and names, partial answers, other machines and components.
//!
//! Each tree has at most one sensor in the intake air. A reading is that of this sensor, or it is missing.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::select;
use rstest::rstest;
use serde_json::{Value, json};

use super::{Error, Tree, id, members, sensor, temperature};

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
    temperature("T2", 30)]),
    "such as /redfish/v1/Chassis/1/Thermal#T1, /redfish/v1/Chassis/1/Thermal#T2")]
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

/// Form of a reading.
#[derive(Clone, Copy, Debug)]
enum Form {
    Number,
    Text,
    Fahrenheit,
    Kelvin,
}

/// How a service returns the sensors of the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Listed {
    Plainly,
    /// One member on the first page, the others on the second.
    OnPages,
    /// Each page has all members.
    Repeatedly,
    Expanded,
    /// The collection has no members yet.
    NotYet,
}

/// One sensor of a generated machine.
#[derive(Clone, Debug)]
struct Made {
    name: &'static str,
    context: &'static str,
    limit: Option<i32>,
    is_absent: bool,
    in_thermal: bool,
    form: Form,
    /// Status with which its resource answers instead.
    fails: Option<u16>,
}

impl Made {
    /// Path by which a question names the sensor.
    fn path(&self, nth: usize) -> String {
        match (self.in_thermal, self.name) {
            (false, _) => format!("/redfish/v1/Chassis/1/Sensors/{nth}"),
            (true, "") => format!("/redfish/v1/Chassis/1/Thermal#{nth}"),
            (true, name) => format!("/redfish/v1/Chassis/1/Thermal#{name}"),
        }
    }

    /// Whether a question must name it: it can be read, its name or its mark speaks for it, and no mark against it.
    fn is_nameable(&self, lists_fail: [Option<u16>; 2], listed: Listed) -> bool {
        let is_listed =
            if self.in_thermal { lists_fail[1].is_none() } else { lists_fail[0].is_none() && listed != Listed::NotYet };
        let is_component = ["CPU", "PowerSupply", "Exhaust"].contains(&self.context);
        let speaks = !["T1", ""].contains(&self.name) || self.context == "Intake";
        is_listed && !self.is_absent && !is_component && speaks && (self.in_thermal || self.fails.is_none())
    }
}

fn made(names: &'static [&'static str], limits: &'static [Option<i32>]) -> impl Strategy<Value = Made> {
    let contexts = &["", "SystemBoard", "Intake", "Intake", "CPU", "PowerSupply", "Exhaust"][..];
    let fails = &[None, None, None, None, Some(404), Some(500)][..];
    let forms = &[Form::Number, Form::Text, Form::Fahrenheit, Form::Kelvin][..];
    let choose = (select(names), select(contexts), select(limits), any::<[bool; 3]>(), select(fails), select(forms));
    choose.prop_map(|(name, context, limit, [absent, absent_too, in_thermal], fails, form)| Made {
        name,
        context,
        limit,
        is_absent: absent && absent_too,
        in_thermal,
        form,
        fails,
    })
}

/// Adds how the service lists the sensors of the machine.
fn list(mut tree: Tree, listed: Listed) -> Tree {
    const SENSORS: &str = "/redfish/v1/Chassis/1/Sensors";
    let all = tree.documents[SENSORS]["Members"].as_array().unwrap().clone();
    let next = format!("{SENSORS}?$skip=1");
    let first = |members: &[Value]| json!({"Members": members, "Members@odata.nextLink": next});
    match listed {
        Listed::Plainly => tree,
        Listed::NotYet => tree.with(SENSORS, json!({})),
        Listed::OnPages if all.is_empty() => tree,
        Listed::OnPages => tree.with(SENSORS, first(&all[..1])).with(&next, json!({"Members": all[1..]})),
        Listed::Repeatedly => tree.with(SENSORS, first(&all)).with(&next, first(&all)),
        Listed::Expanded => {
            let expand = json!({"ProtocolFeaturesSupported": {"ExpandQuery": {"NoLinks": true}}});
            let query = format!("{SENSORS}?$expand=.($levels=1)");
            let read = |member: &Value| tree.documents[member["@odata.id"].as_str().unwrap()].clone();
            let expanded = json!({"Members": all.iter().map(read).collect::<Vec<_>>()});
            if let Some(error) = tree.errors.get(SENSORS).cloned() {
                tree.errors.insert(query.clone(), error);
            }
            tree.and("/redfish/v1", expand).with(&query, expanded)
        }
    }
}

/// Adds these sensors to a chassis, each with this reading.
fn add(mut tree: Tree, chassis: &str, all: &[(Made, i32)], lists_fail: [Option<u16>; 2]) -> Tree {
    let (mut sensors, mut temperatures, mut fails) = (Vec::new(), Vec::new(), Vec::new());
    let ids: Vec<String> = (0..all.len()).map(|nth| nth.to_string()).collect();
    for ((made, celsius), id) in all.iter().zip(&ids) {
        let state = if made.is_absent { "Absent" } else { "Enabled" };
        let status = json!({"Status": {"State": state}, "PhysicalContext": made.context});
        let text = json!(format!(" {celsius}.0"));
        if made.in_thermal {
            let reading = if matches!(made.form, Form::Text) { text } else { json!(celsius) };
            let known =
                with(temperature(made.name, reading), json!({"MemberId": id, "UpperThresholdCritical": made.limit}));
            temperatures.push(with(known, status));
            continue;
        }
        let convert = |celsius: i32| match made.form {
            Form::Number | Form::Text => f64::from(celsius),
            Form::Fahrenheit => f64::from(celsius) * 1.8 + 32.0,
            Form::Kelvin => f64::from(celsius) + 273.15,
        };
        let (unit, reading) = match made.form {
            Form::Number => ("Cel", json!(celsius)),
            Form::Text => ("Cel", text),
            Form::Fahrenheit => ("[degF]", json!(convert(*celsius))),
            Form::Kelvin => ("K", json!(convert(*celsius))),
        };
        let known = with(sensor(made.name, made.context, reading), json!({"ReadingUnits": unit}));
        let limit = made.limit.map(|limit| if limit == 0 { 0.0 } else { convert(limit) });
        let limit = limit.map_or(json!({}), |limit| json!({"Thresholds": {"UpperCritical": {"Reading": limit}}}));
        sensors.push((id.as_str(), with(with(known, status), limit)));
        fails.extend(made.fails.map(|status| (format!("/redfish/v1/Chassis/{chassis}/Sensors/{id}"), status)));
    }
    tree = tree.sensors(chassis, &sensors).thermal(chassis, json!(temperatures));
    let lists = ["Sensors", "Thermal"].map(|list| format!("/redfish/v1/Chassis/{chassis}/{list}"));
    fails.extend(lists.into_iter().zip(lists_fail).filter_map(|(path, status)| Some((path, status?))));
    fails.into_iter().fold(tree, |tree, (path, status)| tree.fails(&path, status))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// A machine with at most one sensor in the intake air, components with misleading names, marks and readings, and
    /// another chassis. Whatever cannot be read, no other sensor is read for it; and if nothing is read, the question
    /// contains the path of the sensor, which is the answer.
    #[test]
    fn no_tree_is_read_wrongly(
        inlet in prop::option::of(made(&INLETS, &[None, Some(0), Some(38), Some(42), Some(47)])),
        components in prop::collection::vec(
            (made(&TRAPS, &[None, None, Some(0), Some(60), Some(85), Some(105)]), select(&[OTHER, OTHER, 0, 255][..])),
            2..6,
        ),
        beside in prop::option::of(made(&INLETS, &[None, Some(42)])),
        type_ in select(&["Card", "Sled", "Shelf", "StorageEnclosure", "RackMount", "Enclosure", "Module", ""][..]),
        lists_fail in [select(&FAILURES[..]), select(&FAILURES[..])],
        marks_all in any::<bool>(),
        is_summary in any::<bool>(),
        listed in select(
            &[Listed::Plainly, Listed::OnPages, Listed::Repeatedly, Listed::Expanded, Listed::NotYet][..]
        ),
    ) {
        let mut own = components;
        own.extend(inlet.into_iter().map(|made| (made, AIR)));
        // Two sensors of one name in both lists of a chassis would be one sensor.
        let mut names = BTreeSet::new();
        own.retain(|(made, _)| names.insert(made.name));
        prop_assume!(own.len() > 1);
        for (made, celsius) in &mut own {
            // A wrong mark, without any sign that it is wrong, could be found by nobody.
            let is_neutral = *celsius != AIR && ["System Temp", "T1", "Zone 4", ""].contains(&made.name);
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
        let tree = list(tree, listed);
        let is_near = |celsius: f64| (celsius - f64::from(AIR)).abs() < 1e-6;
        let run = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let question = match run.block_on(tree.find(None)) {
            Ok((celsius, path)) => {
                prop_assert!(is_near(celsius), "{} of {}", celsius, path);
                return Ok(());
            }
            Err(Error::Request(_)) => return Ok(()),
            Err(question) => question,
        };
        let no_reading = matches!(question, Error::NoReading(_) | Error::OutOfRange(_) | Error::OutsideRange(_));
        prop_assert!(!no_reading, "a sensor without a reading was chosen: {}", question);
        let is_named = |made: &Made, celsius: i32| celsius == AIR && made.is_nameable(lists_fail, listed);
        let air = own.iter().enumerate().find(|(_, (made, celsius))| is_named(made, *celsius));
        if let Some((nth, (made, _))) = air {
            let path = made.path(nth);
            prop_assert!(question.to_string().contains(&path), "{} not in: {}", path, question);
            let copied = run.block_on(tree.find(Some(&path)));
            prop_assert!(matches!(copied, Ok((celsius, _)) if is_near(celsius)), "{:?}", copied);
        }
    }
}
