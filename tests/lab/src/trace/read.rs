//! Reads a trace from its directory and checks it. Nothing is skipped: whatever does not fit is a fault.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use thiserror::Error;

use super::{HistoryPoint, UsagePoint, UsageSeries, WorkKind, WorkPod, WorkTrace};
use crate::csv::{CsvFile, CsvHeader, CsvRecord, DataFault};

/// File of the pods in the directory of a trace.
pub const PODS_FILE: &str = "pods.csv";

/// File of the usage in the directory of a trace.
pub const USAGE_FILE: &str = "usage.csv";

pub(super) const PODS_COLUMNS: &[&str] = &["pod", "pool", "kind", "arrival_s", "lifetime_s", "cpu_cores", "memory_gib"];

pub(super) const USAGE_COLUMNS: &[&str] = &["pod", "offset_s", "cpu_cores"];

/// File of the history in the directory of a trace; a trace may have none.
pub const HISTORY_FILE: &str = "history.csv";

pub(super) const HISTORY_COLUMNS: &[&str] = &["pool", "time_s", "cpu_cores"];

/// Why a trace cannot be read or written.
#[derive(Debug, Error)]
pub enum TraceError {
    #[error("cannot use {file}: {error}")]
    File { file: String, error: io::Error },
    #[error(transparent)]
    Data(#[from] DataFault),
}

/// Opens a file of a trace.
pub fn open(path: &Path) -> Result<BufReader<File>, TraceError> {
    let file = File::open(path).map_err(|error| TraceError::File { file: path.display().to_string(), error })?;
    Ok(BufReader::new(file))
}

impl WorkTrace {
    /// Reads the trace in this directory. Fails with the file, the line and the field that are wrong.
    pub fn read(directory: &Path) -> Result<Self, TraceError> {
        let pods = open(&directory.join(PODS_FILE))?;
        let usage = open(&directory.join(USAGE_FILE))?;
        let mut trace = Self::parse(pods, usage)?;
        let history = directory.join(HISTORY_FILE);
        if history.exists() {
            trace.add_history(open(&history)?)?;
        }
        Ok(trace)
    }

    /// Reads the history of the services of this trace.
    pub fn add_history(&mut self, reader: impl BufRead) -> Result<(), DataFault> {
        for record in CsvFile::new(HISTORY_FILE, reader, HISTORY_COLUMNS, CsvHeader::Present)? {
            let record = record?;
            let pool = record.name("pool")?;
            if !self.pods.iter().any(|pod| pod.pool == pool && pod.kind == WorkKind::Service) {
                return Err(record.fault("pool", format!("{pool} is no pool of services in {PODS_FILE}")));
            }
            let point = HistoryPoint { time: record.number("time_s")?, cores: record.amount("cpu_cores")? };
            if point.time >= 0.0 {
                return Err(record.fault("time_s", format!("{} is not below 0, the begin of the trace", point.time)));
            }
            let points = self.history.entry(pool.to_owned()).or_default();
            if points.last().is_some_and(|last| last.time >= point.time) {
                return Err(record.fault("time_s", format!("{} is not after the one above of {pool}", point.time)));
            }
            points.push(point);
        }
        Ok(())
    }

    /// Reads a trace from the contents of its files.
    pub fn parse(pods: impl BufRead, usage: impl BufRead) -> Result<Self, DataFault> {
        let mut parsed = ParsedPods::default();
        for record in CsvFile::new(PODS_FILE, pods, PODS_COLUMNS, CsvHeader::Present)? {
            parsed.add(&record?)?;
        }
        for record in CsvFile::new(USAGE_FILE, usage, USAGE_COLUMNS, CsvHeader::Present)? {
            parsed.add_usage(&record?)?;
        }
        parsed.finish()
    }
}

/// Pods that have been read so far.
#[derive(Default)]
struct ParsedPods {
    pods: Vec<WorkPod>,
    points: Vec<Vec<UsagePoint>>,
    by_name: BTreeMap<String, usize>,
    pools: BTreeMap<String, WorkKind>,
}

impl ParsedPods {
    fn add(&mut self, record: &CsvRecord) -> Result<(), DataFault> {
        let pod = pod(record)?;
        if let Some(last) = self.pods.last()
            && last.arrival > pod.arrival
        {
            let problem =
                format!("{} is before {}, the arrival above: sort the pods by time", pod.arrival, last.arrival);
            return Err(record.fault("arrival_s", problem));
        }
        if self.by_name.insert(pod.name.clone(), self.pods.len()).is_some() {
            return Err(record.fault("pod", format!("{} is in the file twice", pod.name)));
        }
        if *self.pools.entry(pod.pool.clone()).or_insert(pod.kind) != pod.kind {
            return Err(record.fault("kind", format!("pool {} has services and jobs", pod.pool)));
        }
        self.pods.push(pod);
        self.points.push(Vec::new());
        Ok(())
    }

    fn add_usage(&mut self, record: &CsvRecord) -> Result<(), DataFault> {
        let name = record.name("pod")?;
        let Some(index) = self.by_name.get(name).copied() else {
            return Err(record.fault("pod", format!("{name} is not in {PODS_FILE}")));
        };
        let point = UsagePoint { offset: record.amount("offset_s")?, cores: record.amount("cpu_cores")? };
        let (points, lifetime) = (&mut self.points[index], self.pods[index].lifetime);
        match points.last() {
            None if point.offset > 0.0 => {
                return Err(record.fault("offset_s", format!("the first of pod {name} must be 0")));
            }
            Some(last) if last.offset >= point.offset => {
                let problem = format!("{} is not after {}, the one above of pod {name}", point.offset, last.offset);
                return Err(record.fault("offset_s", problem));
            }
            None | Some(_) => {}
        }
        if point.offset >= lifetime {
            return Err(record.fault("offset_s", format!("pod {name} ends after {lifetime} s")));
        }
        points.push(point);
        Ok(())
    }

    fn finish(self) -> Result<WorkTrace, DataFault> {
        let fault = |file: &str, field: &str, problem: String| DataFault {
            file: file.to_owned(),
            line: 0,
            field: field.to_owned(),
            problem,
        };
        if self.pods.is_empty() {
            return Err(fault(PODS_FILE, "pod", "no pods".to_owned()));
        }
        let mut pods = self.pods;
        for (pod, points) in pods.iter_mut().zip(self.points) {
            if points.is_empty() {
                return Err(fault(USAGE_FILE, "pod", format!("no usage of pod {}", pod.name)));
            }
            pod.usage = UsageSeries::new(points);
        }
        Ok(WorkTrace { pods, history: BTreeMap::new() })
    }
}

fn pod(record: &CsvRecord) -> Result<WorkPod, DataFault> {
    let kind = match record.text("kind") {
        "service" => WorkKind::Service,
        "job" => WorkKind::Job,
        other => return Err(record.fault("kind", format!("\"{other}\" is neither service nor job"))),
    };
    Ok(WorkPod {
        name: record.name("pod")?.to_owned(),
        pool: record.name("pool")?.to_owned(),
        kind,
        arrival: record.amount("arrival_s")?,
        lifetime: record.positive("lifetime_s")?,
        cpu: record.positive("cpu_cores")?,
        memory: record.amount("memory_gib")?,
        usage: UsageSeries::default(),
    })
}
