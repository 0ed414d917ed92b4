//! Alibaba's cluster-trace-v2018: containers are services, and instances of batch tasks are jobs.
//!
//! The files have no headers and the columns of the published `schema.txt`. A user takes part of them, such as the
//! containers of some applications and some hours: the whole is 270 GB.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;

use super::from_first;
use crate::csv::{CsvFile, CsvHeader, CsvRecord, DataFault};
use crate::fleet::GIB_PER_THREAD;
use crate::trace::{TraceError, UsagePoint, UsageSeries, WorkKind, WorkPod, WorkTrace, open};

const CONTAINERS_FILE: &str = "container_meta.csv";
const USAGE_FILE: &str = "container_usage.csv";
const TASKS_FILE: &str = "batch_task.csv";
const INSTANCES_FILE: &str = "batch_instance.csv";

const CONTAINERS_COLUMNS: &[&str] =
    &["container_id", "machine_id", "time_stamp", "app_du", "status", "cpu_request", "cpu_limit", "mem_size"];

const USAGE_COLUMNS: &[&str] = &[
    "container_id",
    "machine_id",
    "time_stamp",
    "cpu_util_percent",
    "mem_util_percent",
    "cpi",
    "mem_gps",
    "mpki",
    "net_in",
    "net_out",
    "disk_io_percent",
];

const TASKS_COLUMNS: &[&str] =
    &["task_name", "instance_num", "job_name", "task_type", "status", "start_time", "end_time", "plan_cpu", "plan_mem"];

const INSTANCES_COLUMNS: &[&str] = &[
    "instance_name",
    "task_name",
    "job_name",
    "task_type",
    "status",
    "start_time",
    "end_time",
    "machine_id",
    "seq_no",
    "total_seq_no",
    "cpu_avg",
    "cpu_max",
    "mem_avg",
    "mem_max",
];

/// Requests and averages of CPU are in hundredths of a core.
const PER_CORE: f64 = 100.0;

/// Memory in GiB for one unit of the trace, a hundredth of a machine with 96 threads: the trace hides the size.
const GIB_PER_UNIT: f64 = 96.0 * GIB_PER_THREAD / 100.0;

/// Files of a trace.
pub struct AlibabaFiles<R> {
    pub containers: R,
    pub usage: R,
    pub tasks: R,
    pub instances: R,
}

pub fn read(directory: &Path) -> Result<WorkTrace, TraceError> {
    let file = |name| open(&directory.join(name));
    let (containers, usage) = (file(CONTAINERS_FILE)?, file(USAGE_FILE)?);
    let (tasks, instances) = (file(TASKS_FILE)?, file(INSTANCES_FILE)?);
    Ok(parse(AlibabaFiles { containers, usage, tasks, instances })?)
}

pub fn parse<R: BufRead>(files: AlibabaFiles<R>) -> Result<WorkTrace, DataFault> {
    let mut pods = containers(files.containers, files.usage)?;
    pods.extend(instances(files.tasks, files.instances)?);
    Ok(from_first(pods))
}

/// A container whose usage is read.
struct AlibabaContainer {
    pool: String,
    cpu: f64,
    memory: f64,
    /// Times of the trace, and cores.
    samples: Vec<(f64, f64)>,
}

fn containers<R: BufRead>(meta: R, usage: R) -> Result<Vec<WorkPod>, DataFault> {
    let mut containers = BTreeMap::new();
    for record in CsvFile::new(CONTAINERS_FILE, meta, CONTAINERS_COLUMNS, CsvHeader::Absent)? {
        let record = record?;
        let container = AlibabaContainer {
            pool: record.name("app_du")?.to_owned(),
            cpu: record.positive("cpu_request")? / PER_CORE,
            memory: record.amount("mem_size")? * GIB_PER_UNIT,
            samples: Vec::new(),
        };
        // Further lines are events of the same container; its first requests count.
        containers.entry(record.name("container_id")?.to_owned()).or_insert(container);
    }
    for record in CsvFile::new(USAGE_FILE, usage, USAGE_COLUMNS, CsvHeader::Absent)? {
        add_sample(&mut containers, &record?)?;
    }
    containers.into_iter().map(|(name, container)| service(name, container)).collect()
}

fn add_sample(containers: &mut BTreeMap<String, AlibabaContainer>, record: &CsvRecord) -> Result<(), DataFault> {
    let id = record.name("container_id")?;
    let container = containers
        .get_mut(id)
        .ok_or_else(|| record.fault("container_id", format!("{id} is not in {CONTAINERS_FILE}")))?;
    let (time, percent) = (record.amount("time_stamp")?, record.amount("cpu_util_percent")?);
    if container.samples.last().is_some_and(|(last, _)| *last >= time) {
        return Err(record.fault("time_stamp", format!("{time} is not after the one above of container {id}")));
    }
    container.samples.push((time, container.cpu * percent / 100.0));
    Ok(())
}

/// A service from its first sample to its last, which lasts as long as the one before.
fn service(name: String, container: AlibabaContainer) -> Result<WorkPod, DataFault> {
    let AlibabaContainer { pool, cpu, memory, samples } = container;
    let (&[(first, _), ..], &[.., (before, _), (last, _)]) = (&samples[..], &samples[..]) else {
        let problem = format!("container {name} has fewer than two samples");
        return Err(DataFault { file: USAGE_FILE.to_owned(), line: 0, field: "container_id".to_owned(), problem });
    };
    let points = samples.iter().map(|(time, cores)| UsagePoint { offset: time - first, cores: *cores }).collect();
    Ok(WorkPod {
        name,
        pool,
        kind: WorkKind::Service,
        arrival: first,
        lifetime: last - first + (last - before),
        cpu,
        memory,
        usage: UsageSeries::new(points),
    })
}

fn instances<R: BufRead>(tasks: R, instances: R) -> Result<Vec<WorkPod>, DataFault> {
    let mut requests = BTreeMap::new();
    for record in CsvFile::new(TASKS_FILE, tasks, TASKS_COLUMNS, CsvHeader::Absent)? {
        let record = record?;
        let task = (record.name("job_name")?.to_owned(), record.name("task_name")?.to_owned());
        let cpu = record.positive("plan_cpu")? / PER_CORE;
        requests.insert(task, (cpu, record.amount("plan_mem")? * GIB_PER_UNIT));
    }
    let mut pods = Vec::new();
    for record in CsvFile::new(INSTANCES_FILE, instances, INSTANCES_COLUMNS, CsvHeader::Absent)? {
        let record = record?;
        let (job, task) = (record.name("job_name")?, record.name("task_name")?);
        let Some((cpu, memory)) = requests.get(&(job.to_owned(), task.to_owned())).copied() else {
            return Err(record.fault("task_name", format!("task {task} of job {job} is not in {TASKS_FILE}")));
        };
        pods.push(instance(&record, (job, task), (cpu, memory))?);
    }
    Ok(pods)
}

/// An instance. `requests`: cores and GiB.
fn instance(record: &CsvRecord, (job, task): (&str, &str), requests: (f64, f64)) -> Result<WorkPod, DataFault> {
    let status = record.text("status");
    if status != "Terminated" {
        return Err(record.fault("status", format!("\"{status}\" is not Terminated: leave such instances out")));
    }
    let (start, end) = (record.amount("start_time")?, record.positive("end_time")?);
    if end <= start {
        return Err(record.fault("end_time", format!("{end} is not after {start}, the start")));
    }
    Ok(WorkPod {
        name: format!("{}-{}", record.name("instance_name")?, record.text("seq_no")),
        pool: format!("{job}/{task}"),
        kind: WorkKind::Job,
        arrival: start,
        lifetime: end - start,
        cpu: requests.0,
        memory: requests.1,
        usage: UsageSeries::constant(record.amount("cpu_avg")? / PER_CORE),
    })
}
