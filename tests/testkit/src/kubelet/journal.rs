//! The journal of a test's workers: starts and stops of jobs, with their times.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// One line. A worker that died runs no jobs any more.
#[derive(Deserialize, Clone, Debug)]
pub struct JournalLine {
    /// Nanoseconds since 1970, as text.
    at: String,
    pub worker: String,
    pid: u32,
    /// `start`, `stop` or `dead`.
    pub event: String,
    #[serde(default)]
    pub job: Option<String>,
}

/// All lines recorded so far.
#[derive(Clone, Debug, Default)]
pub struct Journal(Vec<JournalLine>);

impl Journal {
    /// Reads the journal; a missing file counts as empty.
    pub fn read(path: &Path) -> Result<Self> {
        let text = if path.exists() { fs::read_to_string(path)? } else { String::new() };
        let lines: Result<Vec<JournalLine>, _> = text.lines().map(serde_json::from_str).collect();
        let mut lines = lines.context("a line of the journal")?;
        lines.sort_by_key(|line| line.at.parse::<u128>().unwrap_or(0));
        Ok(Self(lines))
    }

    /// Jobs that ran on two workers at the same time, with the process ids of both.
    pub fn doubled(&self) -> Vec<(String, u32, u32)> {
        let mut found = Vec::new();
        self.replay(|job, before, new| {
            if let Some(other) = before.iter().find(|pid| **pid != new) {
                found.push((job.to_owned(), *other, new));
            }
        });
        found
    }

    /// Running jobs by worker.
    pub fn running(&self) -> BTreeMap<String, BTreeSet<String>> {
        let names: BTreeMap<u32, &str> = self.0.iter().map(|line| (line.pid, line.worker.as_str())).collect();
        let mut by_worker: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (job, pids) in self.replay(|_, _, _| {}) {
            for name in pids.iter().filter_map(|pid| names.get(pid)) {
                by_worker.entry((*name).to_owned()).or_default().insert(job.clone());
            }
        }
        by_worker
    }

    /// Number of starts of jobs.
    pub fn starts(&self) -> usize {
        self.0.iter().filter(|line| line.event == "start").count()
    }

    /// Number of processes that ended without stopping their jobs.
    pub fn deaths(&self) -> usize {
        self.0.iter().filter(|line| line.event == "dead").count()
    }

    /// Replays the journal and returns the processes that run each job at the end. Calls `starts` for each start, with
    /// the job, the processes that already run it, and the process that starts it.
    fn replay(&self, mut starts: impl FnMut(&str, &BTreeSet<u32>, u32)) -> BTreeMap<String, BTreeSet<u32>> {
        let mut running: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for line in &self.0 {
            match (line.event.as_str(), &line.job) {
                ("start", Some(job)) => {
                    let pids = running.entry(job.clone()).or_default();
                    starts(job, pids, line.pid);
                    pids.insert(line.pid);
                }
                ("stop", Some(job)) => {
                    running.entry(job.clone()).or_default().remove(&line.pid);
                }
                _ => running.values_mut().for_each(|pids| pids.retain(|pid| *pid != line.pid)),
            }
        }
        running
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(lines: &[(u32, &str, Option<&str>)]) -> Journal {
        let line = |(at, (pid, event, job)): (usize, &(u32, &str, Option<&str>))| JournalLine {
            at: at.to_string(),
            worker: format!("w-{pid}"),
            pid: *pid,
            event: (*event).to_owned(),
            job: job.map(str::to_owned),
        };
        Journal(lines.iter().enumerate().map(line).collect())
    }

    #[test]
    fn a_job_of_two_is_found_and_one_that_was_stopped_or_whose_worker_died_is_free() {
        let (a, b) = (Some("a"), Some("b"));
        assert!(journal(&[(1, "start", a), (1, "stop", a), (2, "start", a)]).doubled().is_empty());
        assert!(journal(&[(1, "start", a), (1, "dead", None), (2, "start", a)]).doubled().is_empty());
        assert_eq!(journal(&[(1, "start", a), (2, "start", b), (2, "start", a)]).doubled(), [("a".to_owned(), 1, 2)]);
        let running = journal(&[(1, "start", a), (1, "start", b), (1, "stop", a)]).running();
        assert_eq!(running["w-1"], ["b".to_owned()].into());
    }
}
