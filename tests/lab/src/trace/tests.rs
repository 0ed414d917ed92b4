//! A trace survives being written and read; faults are named.

use super::{UsagePoint, UsageSeries, WorkKind, WorkTrace};

const PODS: &str = "pod,pool,kind,arrival_s,lifetime_s,cpu_cores,memory_gib
web-1,web,service,0,3600,2,4
sum-1,sum,job,30,120,0.5,1
";

const USAGE: &str = "pod,offset_s,cpu_cores
web-1,0,1
sum-1,0,0.5
web-1,1800,1.5
";

fn parse(pods: &str, usage: &str) -> Result<WorkTrace, String> {
    WorkTrace::parse(pods.as_bytes(), usage.as_bytes()).map_err(|fault| fault.to_string())
}

#[test]
fn a_trace_has_pods_with_usage() {
    let trace = parse(PODS, USAGE).unwrap();
    let [web, sum] = &trace.pods[..] else { panic!("{trace:?}") };
    assert_eq!((web.kind, web.cpu, web.memory, web.ends()), (WorkKind::Service, 2.0, 4.0, 3600.0));
    assert_eq!([0.0, 1799.0, 1800.0, 4000.0].map(|offset| web.usage.at(offset)), [1.0, 1.0, 1.5, 1.5]);
    assert!((web.usage.work(3600.0) - 1800.0 * 2.5).abs() < 1e-9);
    assert_eq!((sum.kind, sum.arrival), (WorkKind::Job, 30.0));
    assert!((trace.work() - (4500.0 + 60.0)).abs() < 1e-9);
    assert!((trace.duration() - 3600.0).abs() < 1e-9);
    assert_eq!(trace.pools()["sum"], [1]);
}

#[test]
fn a_written_trace_is_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = parse(PODS, USAGE).unwrap();
    trace.add_history(&b"pool,time_s,cpu_cores\nweb,-120,1.5\nweb,-60,1\n"[..]).unwrap();
    assert_eq!(trace.history["web"].len(), 2);
    trace.write(directory.path()).unwrap();
    assert_eq!(WorkTrace::read(directory.path()).unwrap(), trace);
}

#[test]
fn faults_of_the_history_are_named() {
    for (line, expected) in [
        ("sum,-60,1", "history.csv, line 2, field pool: sum is no pool of services in pods.csv"),
        ("web,0,1", "history.csv, line 2, field time_s: 0 is not below 0, the begin of the trace"),
        ("web,-60,1\nweb,-60,1", "history.csv, line 3, field time_s: -60 is not after the one above of web"),
    ] {
        let text = format!("pool,time_s,cpu_cores\n{line}\n");
        let problem = parse(PODS, USAGE).unwrap().add_history(text.as_bytes()).unwrap_err();
        assert_eq!(problem.to_string(), expected);
    }
}

#[test]
fn a_missing_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let problem = WorkTrace::read(directory.path()).unwrap_err().to_string();
    assert!(problem.contains("pods.csv: No such file"), "{problem}");
}

#[test]
fn a_series_of_one_value_lasts() {
    let series = UsageSeries::constant(2.0);
    assert_eq!(series.points(), [UsagePoint { offset: 0.0, cores: 2.0 }]);
    assert!((series.work(10.0) - 20.0).abs() < 1e-9);
}

#[test]
fn faults_name_file_line_and_field() {
    let with_pod = |line: &str| format!("{PODS}{line}\n");
    let with_usage = |line: &str| format!("{USAGE}{line}\n");
    for (pods, usage, expected) in [
        ("time,load\n1,2\n".to_owned(), USAGE.to_owned(), "pods.csv, line 1, field header: \"time,load\" is not"),
        (with_pod("b,b,job,10,1,1,1"), USAGE.to_owned(), "pods.csv, line 4, field arrival_s: 10 is before 30"),
        (with_pod("b,b,job,40,0,1,1"), USAGE.to_owned(), "pods.csv, line 4, field lifetime_s: 0 is not above 0"),
        (with_pod("b,b,cron,40,1,1,1"), USAGE.to_owned(), "pods.csv, line 4, field kind: \"cron\" is neither service"),
        (with_pod("b,b,job,40,1,-1,1"), USAGE.to_owned(), "pods.csv, line 4, field cpu_cores: -1 is not above 0"),
        (with_pod("b,b,job,40,1,1,-1"), USAGE.to_owned(), "pods.csv, line 4, field memory_gib: -1 is below 0"),
        (with_pod("sum-1,b,job,40,1,1,1"), USAGE.to_owned(), "pods.csv, line 4, field pod: sum-1 is in the file twice"),
        (with_pod("b,web,job,40,1,1,1"), USAGE.to_owned(), "pods.csv, line 4, field kind: pool web has services and"),
        (with_pod("b,b,job,40,1,1,1"), USAGE.to_owned(), "usage.csv, line 0, field pod: no usage of pod b"),
        (PODS.to_owned(), with_usage("b,0,1"), "usage.csv, line 5, field pod: b is not in pods.csv"),
        (PODS.to_owned(), with_usage("web-1,1800,1"), "usage.csv, line 5, field offset_s: 1800 is not after 1800"),
        (PODS.to_owned(), with_usage("web-1,3600,1"), "usage.csv, line 5, field offset_s: pod web-1 ends after 3600 s"),
        (PODS.to_owned(), with_usage("web-1,2000,x"), "usage.csv, line 5, field cpu_cores: \"x\" is not a number"),
        (
            PODS.to_owned(),
            "pod,offset_s,cpu_cores\nweb-1,5,1\n".to_owned(),
            "usage.csv, line 2, field offset_s: the first of pod web-1 must be 0",
        ),
        ("pod,pool,kind,arrival_s,lifetime_s,cpu_cores,memory_gib\n".to_owned(), USAGE.to_owned(), "usage.csv, line 2"),
        (
            "pod,pool,kind,arrival_s,lifetime_s,cpu_cores,memory_gib\n".to_owned(),
            "pod,offset_s,cpu_cores\n".to_owned(),
            "pods.csv, line 0, field pod: no pods",
        ),
    ] {
        let problem = parse(&pods, &usage).unwrap_err();
        assert!(problem.starts_with(expected), "{problem}");
    }
}
