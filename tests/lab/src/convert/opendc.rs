//! OpenDC: tasks, and the fragments of their CPU usage, exported from Parquet as CSV with these columns.
//!
//! A task is a job: what is missing delays it. It requests its cores.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;

use super::from_first;
use crate::csv::{CsvFile, CsvHeader, CsvRecord, DataFault};
use crate::trace::{TraceError, UsagePoint, UsageSeries, WorkKind, WorkPod, WorkTrace, open};

const TASKS_FILE: &str = "tasks.csv";
const FRAGMENTS_FILE: &str = "fragments.csv";

const TASKS_COLUMNS: &[&str] = &["id", "submission_time", "duration", "cpu_count", "cpu_capacity", "mem_capacity"];
const FRAGMENTS_COLUMNS: &[&str] = &["id", "duration", "cpu_usage"];

/// Times are in milliseconds, memory in MB.
const MILLIS: f64 = 1000.0;
const MB_PER_GIB: f64 = 1024.0;

pub fn read(directory: &Path) -> Result<WorkTrace, TraceError> {
    let tasks = open(&directory.join(TASKS_FILE))?;
    let fragments = open(&directory.join(FRAGMENTS_FILE))?;
    Ok(parse(tasks, fragments)?)
}

/// A task whose fragments are read.
struct OpenDcTask {
    pod: WorkPod,
    points: Vec<UsagePoint>,
    /// End of its fragments, in seconds since its start.
    end: f64,
    /// Cores per MHz.
    cores: f64,
}

pub fn parse(tasks: impl BufRead, fragments: impl BufRead) -> Result<WorkTrace, DataFault> {
    let mut parsed = BTreeMap::new();
    for record in CsvFile::new(TASKS_FILE, tasks, TASKS_COLUMNS, CsvHeader::Present)? {
        let record = record?;
        let task = task(&record)?;
        let name = task.pod.name.clone();
        if parsed.insert(name.clone(), task).is_some() {
            return Err(record.fault("id", format!("{name} is in the file twice")));
        }
    }
    for record in CsvFile::new(FRAGMENTS_FILE, fragments, FRAGMENTS_COLUMNS, CsvHeader::Present)? {
        let record = record?;
        let id = record.name("id")?;
        let task: &mut OpenDcTask =
            parsed.get_mut(id).ok_or_else(|| record.fault("id", format!("{id} is not in {TASKS_FILE}")))?;
        let cores = record.amount("cpu_usage")? * task.cores;
        if cores > 1.01 * task.pod.cpu {
            return Err(
                record.fault("cpu_usage", format!("more than the cpu_capacity of task {id}, in MHz of all cores"))
            );
        }
        task.points.push(UsagePoint { offset: task.end, cores });
        task.end += record.positive("duration")? / MILLIS;
    }
    let mut pods = Vec::new();
    for task in parsed.into_values() {
        let OpenDcTask { mut pod, points, end, .. } = task;
        // Fragments are the record; the duration of the task is the same but for rounding.
        if points.is_empty() || (end - pod.lifetime).abs() > 1.0 + 0.01 * pod.lifetime {
            let problem = format!("the fragments of task {} last {end} s, the task {} s", pod.name, pod.lifetime);
            return Err(DataFault { file: FRAGMENTS_FILE.to_owned(), line: 0, field: "duration".to_owned(), problem });
        }
        (pod.lifetime, pod.usage) = (end, UsageSeries::new(points));
        pods.push(pod);
    }
    Ok(from_first(pods))
}

fn task(record: &CsvRecord) -> Result<OpenDcTask, DataFault> {
    let name = record.name("id")?.to_owned();
    let cpu = record.positive("cpu_count")?;
    let pod = WorkPod {
        pool: name.clone(),
        name,
        kind: WorkKind::Job,
        arrival: record.amount("submission_time")? / MILLIS,
        lifetime: record.positive("duration")? / MILLIS,
        cpu,
        memory: record.amount("mem_capacity")? / MB_PER_GIB,
        usage: UsageSeries::default(),
    };
    Ok(OpenDcTask { pod, points: Vec::new(), end: 0.0, cores: cpu / record.positive("cpu_capacity")? })
}
