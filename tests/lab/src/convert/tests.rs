//! A few lines of each format, written by hand, and their faults.

use std::path::Path;

use super::{TraceFormat, alibaba, opendc};
use crate::trace::{WorkKind, WorkTrace};

const TASKS: &str = "id,submission_time,duration,cpu_count,cpu_capacity,mem_capacity
1,1000000,600000,2,4800,2048
2,1060000,300000,1,2400,1024
";

const FRAGMENTS: &str = "id,duration,cpu_usage
1,300000,2400
1,300000,4800
2,300000,1200
";

fn opendc_of(tasks: &str, fragments: &str) -> Result<WorkTrace, String> {
    opendc::parse(tasks.as_bytes(), fragments.as_bytes()).map_err(|fault| fault.to_string())
}

#[test]
fn a_task_of_opendc_is_a_job() {
    let trace = opendc_of(TASKS, FRAGMENTS).unwrap();
    let [first, second] = &trace.pods[..] else { panic!("{trace:?}") };
    assert_eq!((first.kind, first.arrival, first.lifetime), (WorkKind::Job, 0.0, 600.0));
    assert_eq!((first.cpu, first.memory, first.usage.at(0.0), first.usage.at(300.0)), (2.0, 2.0, 1.0, 2.0));
    assert_eq!((second.arrival, second.usage.at(0.0)), (60.0, 0.5));
}

#[test]
fn faults_of_opendc_are_named() {
    let with = |line: &str| format!("{FRAGMENTS}{line}\n");
    for (tasks, fragments, expected) in [
        (TASKS.to_owned(), with("3,1,1"), "fragments.csv, line 5, field id: 3 is not in tasks.csv"),
        (TASKS.to_owned(), with("2,1,2500"), "fragments.csv, line 5, field cpu_usage: more than the cpu_capacity of"),
        (TASKS.to_owned(), with("2,0,1"), "fragments.csv, line 5, field duration: 0 is not above 0"),
        (
            TASKS.to_owned(),
            with("2,300000,1"),
            "fragments.csv, line 0, field duration: the fragments of task 2 last 600 s",
        ),
        (format!("{TASKS}2,1,1,1,1,1\n"), FRAGMENTS.to_owned(), "tasks.csv, line 4, field id: 2 is in the file twice"),
        (format!("{TASKS}3,1,0,1,1,1\n"), FRAGMENTS.to_owned(), "tasks.csv, line 4, field duration: 0 is not above 0"),
    ] {
        let problem = opendc_of(&tasks, &fragments).unwrap_err();
        assert!(problem.starts_with(expected), "{problem}");
    }
}

const CONTAINERS: &str = "c_1,m_2,0,app_7,started,400,800,1.5
c_1,m_2,900,app_7,started,400,800,1.5
";
const USAGE: &str = "c_1,m_2,1000,50,80,,,,,,
c_1,m_2,1300,75,80,,,,,,
";
const BATCH_TASKS: &str = "M1,2,j_9,1,Terminated,1200,1500,100,0.5\n";
const INSTANCES: &str = "ins_1,M1,j_9,1,Terminated,1200,1500,m_3,1,1,60,90,0.2,0.3\n";

fn alibaba_of(files: [&str; 4]) -> Result<WorkTrace, String> {
    let [containers, usage, tasks, instances] = files.map(str::as_bytes);
    alibaba::parse(alibaba::AlibabaFiles { containers, usage, tasks, instances }).map_err(|fault| fault.to_string())
}

#[test]
fn containers_of_alibaba_are_services_and_instances_are_jobs() {
    let trace = alibaba_of([CONTAINERS, USAGE, BATCH_TASKS, INSTANCES]).unwrap();
    let [container, instance] = &trace.pods[..] else { panic!("{trace:?}") };
    assert_eq!((container.kind, container.pool.as_str()), (WorkKind::Service, "app_7"));
    assert_eq!((container.arrival, container.lifetime, container.cpu), (0.0, 600.0, 4.0));
    assert_eq!((container.usage.at(0.0), container.usage.at(300.0)), (2.0, 3.0));
    assert!((container.memory - 1.5 * 3.84).abs() < 1e-9);
    assert_eq!((instance.kind, instance.pool.as_str()), (WorkKind::Job, "j_9/M1"));
    assert_eq!((instance.arrival, instance.lifetime, instance.cpu), (200.0, 300.0, 1.0));
    assert_eq!(instance.usage.at(0.0), 0.6);
}

#[test]
fn faults_of_alibaba_are_named() {
    let with = |text: &str, line: &str| format!("{text}{line}\n");
    let usage = |line: &str| [CONTAINERS.to_owned(), with(USAGE, line), BATCH_TASKS.to_owned(), INSTANCES.to_owned()];
    let batch = |line: &str| [CONTAINERS.to_owned(), USAGE.to_owned(), BATCH_TASKS.to_owned(), with(INSTANCES, line)];
    for (files, expected) in [
        (usage("c_2,m_2,1,1,1,,,,,,"), "container_usage.csv, line 3, field container_id: c_2 is not in container_meta"),
        (usage("c_1,m_2,1300,1,1,,,,,,"), "container_usage.csv, line 3, field time_stamp: 1300 is not after the one"),
        (usage("c_1,m_2,1600,,1,,,,,,"), "container_usage.csv, line 3, field cpu_util_percent: \"\" is not a number"),
        (usage("c_1,m_2,1600"), "container_usage.csv, line 3, field line: 3 fields instead of 11"),
        (batch("i,M2,j_9,1,Terminated,1,2,m,1,1,1,1,1,1"), "batch_instance.csv, line 2, field task_name: task M2 of"),
        (batch("i,M1,j_9,1,Failed,1,2,m,1,1,1,1,1,1"), "batch_instance.csv, line 2, field status: \"Failed\" is not"),
        (
            batch("i,M1,j_9,1,Terminated,2,2,m,1,1,1,1,1,1"),
            "batch_instance.csv, line 2, field end_time: 2 is not after",
        ),
    ] {
        let [containers, usage, tasks, instances] = &files;
        let problem = alibaba_of([containers, usage, tasks, instances]).unwrap_err();
        assert!(problem.starts_with(expected), "{problem}");
    }
    let problem = alibaba_of([CONTAINERS, "c_1,m_2,1000,50,80,,,,,,\n", BATCH_TASKS, INSTANCES]).unwrap_err();
    assert!(problem.contains("container c_1 has fewer than two samples"), "{problem}");
}

fn planetlab_of(files: &[(&str, &str)]) -> Result<WorkTrace, String> {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    TraceFormat::PlanetLab.read(directory.path()).map_err(|error| error.to_string())
}

#[test]
fn a_file_of_planetlab_is_a_service() {
    let trace = planetlab_of(&[("vm_b", "10\n20\n"), ("vm_a", "# 2\n50\n")]).unwrap();
    let [first, second] = &trace.pods[..] else { panic!("{trace:?}") };
    assert_eq!((first.name.as_str(), first.lifetime, first.usage.at(0.0)), ("vm_a", 300.0, 0.5));
    assert_eq!((second.name.as_str(), second.lifetime, second.usage.at(300.0)), ("vm_b", 600.0, 0.2));
}

#[test]
fn faults_of_planetlab_are_named() {
    assert_eq!(planetlab_of(&[("vm", "10\nx\n")]).unwrap_err(), "vm, line 2, field usage: \"x\" is no percentage");
    assert_eq!(planetlab_of(&[("vm", "101\n")]).unwrap_err(), "vm, line 1, field usage: \"101\" is no percentage");
    assert_eq!(planetlab_of(&[("vm", "")]).unwrap_err(), "vm, line 0, field usage: no values");
    assert!(planetlab_of(&[]).unwrap_err().ends_with("line 0, field usage: no files"));
}

#[test]
fn formats_have_names() {
    for format in TraceFormat::ALL {
        assert_eq!(TraceFormat::from_name(format.name()), Ok(format));
        assert!(format.read(Path::new("/does/not/exist")).is_err());
    }
    assert_eq!(
        TraceFormat::from_name("swf"),
        Err("\"swf\" is none of lab, alibaba-2018, opendc, planetlab".to_owned())
    );
}
