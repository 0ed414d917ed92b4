//! PlanetLab: a file for each virtual machine, with a CPU usage in percent on each line, one per five minutes.
//!
//! Requests are not in the data: each machine has one core and 2 GiB, as small instances have.

use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::csv::DataFault;
use crate::trace::{TraceError, UsagePoint, UsageSeries, WorkKind, WorkPod, WorkTrace, open};

/// Seconds between two values.
const INTERVAL: f64 = 300.0;

const CORES: f64 = 1.0;
const GIB: f64 = 2.0;

pub fn read(directory: &Path) -> Result<WorkTrace, TraceError> {
    let failed = |error| TraceError::File { file: directory.display().to_string(), error };
    let mut files = Vec::new();
    for entry in directory.read_dir().map_err(failed)? {
        files.push(entry.map_err(failed)?.path());
    }
    files.sort();
    let mut pods = Vec::new();
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let usage = series(&name, open(&path)?)?;
        let lifetime = INTERVAL * usage.points().len() as f64;
        let (pool, kind) = (name.clone(), WorkKind::Service);
        pods.push(WorkPod { name, pool, kind, arrival: 0.0, lifetime, cpu: CORES, memory: GIB, usage });
    }
    if pods.is_empty() {
        return Err(fault(&directory.display().to_string(), 0, "no files".to_owned()).into());
    }
    Ok(WorkTrace::new(pods))
}

fn fault(file: &str, line: usize, problem: String) -> DataFault {
    DataFault { file: file.to_owned(), line, field: "usage".to_owned(), problem }
}

fn series(file: &str, reader: BufReader<impl std::io::Read>) -> Result<UsageSeries, DataFault> {
    let mut points = Vec::new();
    for (line, text) in (1..).zip(reader.lines()) {
        let text = text.map_err(|error| fault(file, line, error.to_string()))?;
        // Some editions begin with a comment that has the number of lines.
        if line == 1 && text.starts_with('#') {
            continue;
        }
        let percent = text.trim().parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
        let percent = percent.ok_or_else(|| fault(file, line, format!("\"{text}\" is no percentage")))?;
        points.push(UsagePoint { offset: INTERVAL * points.len() as f64, cores: CORES * percent / 100.0 });
    }
    if points.is_empty() { Err(fault(file, 0, "no values".to_owned())) } else { Ok(UsageSeries::new(points)) }
}
