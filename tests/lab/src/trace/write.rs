//! Writes a trace to a directory, in the format that is read.

use std::fmt::Write as _;
use std::path::Path;

use super::read::{HISTORY_COLUMNS, HISTORY_FILE, PODS_COLUMNS, PODS_FILE, TraceError, USAGE_COLUMNS, USAGE_FILE};
use super::{WorkKind, WorkPod, WorkTrace};

impl WorkTrace {
    /// Writes the files of the trace to this directory, which must exist.
    pub fn write(&self, directory: &Path) -> Result<(), TraceError> {
        let pods = self.pods.iter().map(pod_line);
        let usage = self.pods.iter().map(usage_lines);
        for (name, columns, lines) in [
            (PODS_FILE, PODS_COLUMNS, pods.collect::<String>()),
            (USAGE_FILE, USAGE_COLUMNS, usage.collect::<String>()),
            (HISTORY_FILE, HISTORY_COLUMNS, self.history_lines()),
        ] {
            let path = directory.join(name);
            std::fs::write(&path, format!("{}\n{lines}", columns.join(",")))
                .map_err(|error| TraceError::File { file: path.display().to_string(), error })?;
        }
        Ok(())
    }

    fn history_lines(&self) -> String {
        let mut lines = String::new();
        for (pool, points) in &self.history {
            for point in points {
                // Writing to a string cannot fail.
                let _ = writeln!(lines, "{pool},{},{}", point.time, point.cores);
            }
        }
        lines
    }
}

fn pod_line(pod: &WorkPod) -> String {
    let WorkPod { name, pool, kind, arrival, lifetime, cpu, memory, usage: _ } = pod;
    let kind = match kind {
        WorkKind::Service => "service",
        WorkKind::Job => "job",
    };
    format!("{name},{pool},{kind},{arrival},{lifetime},{cpu},{memory}\n")
}

fn usage_lines(pod: &WorkPod) -> String {
    let mut lines = String::new();
    for point in pod.usage.points() {
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "{},{},{}", pod.name, point.offset, point.cores);
    }
    lines
}
