//! Reads a workers' file that k8s-swarm or a person wrote: YAML in any form, with any additional fields.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_saphyr::options::DuplicateKeyPolicy;

use super::listing::{FileLists, WorkerList, version};
use crate::yaml;

#[derive(Deserialize)]
struct File {
    workloads: Option<BTreeMap<String, Option<Worker>>>,
    version: Option<String>,
}

#[derive(Default, Deserialize)]
struct Worker {
    jobs: Option<Vec<Option<String>>>,
    version: Option<String>,
}

/// Returns None if the text is not YAML, or has other values in the places of names and versions.
pub fn read(text: &str) -> Option<FileLists> {
    let mut options = yaml::options();
    options.duplicate_keys = DuplicateKeyPolicy::LastWins;
    let file: File = serde_saphyr::from_str_with_options(text, options).ok()?;
    let number = |text: Option<String>| text.as_deref().and_then(version);
    let workers = file.workloads.unwrap_or_default().into_iter().map(|(name, worker)| {
        let worker = worker.unwrap_or_default();
        let jobs = worker.jobs.unwrap_or_default().into_iter().flatten().map(Into::into).collect();
        (name, WorkerList { jobs, version: number(worker.version) })
    });
    Some(FileLists { workers: workers.collect(), version: number(file.version) })
}
