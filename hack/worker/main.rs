//! A minimal worker of a SwarmPool, compatible with the workers of k8s-swarm: reads its jobs from a file, "runs" them,
//! and answers on `/internal/version` and `/internal/health`. For tests, demo and bench.
//!
//! Each start or stop of a job is a line in the journal, which all workers of a test share. A version counts as read
//! when all jobs that it removes have stopped and all jobs that it adds have started.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use axum::Router;
use axum::routing::get;
use clap::Parser;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

/// Interval at which the file is checked.
const LOOK: Duration = Duration::from_millis(5);

#[derive(Parser)]
struct Options {
    /// Name of the worker in the file.
    #[arg(long, env = "HOSTNAME")]
    name: String,
    /// Directory of the file.
    #[arg(long, env = "CONFIG_PATH")]
    config_path: PathBuf,
    /// Name of the file.
    #[arg(long, default_value = "config.yml")]
    config: String,
    /// Address on which it answers.
    #[arg(long, env = "LISTEN")]
    listen: SocketAddr,
    /// Read the file again when it changes.
    #[arg(long)]
    hot_reload: bool,
    /// Time that a job takes to stop, in milliseconds.
    #[arg(long, default_value_t = 0)]
    stop_delay_ms: u64,
    /// Time until the worker answers, in milliseconds.
    #[arg(long, default_value_t = 0)]
    start_delay_ms: u64,
    /// File in which starts and stops are recorded.
    #[arg(long, env = "JOURNAL")]
    journal: Option<PathBuf>,
}

#[derive(Deserialize, Default)]
struct Config {
    #[serde(default)]
    workloads: Option<BTreeMap<String, Workload>>,
    #[serde(default)]
    version: i64,
}

#[derive(Deserialize, Default)]
struct Workload {
    #[serde(default)]
    jobs: Option<BTreeSet<String>>,
}

/// Running jobs, and the version of the file that lists them.
#[derive(Default)]
struct Running {
    jobs: BTreeSet<String>,
    version: i64,
}

struct Worker {
    options: Options,
    running: Mutex<Running>,
    journal: Option<File>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = Options::parse();
    let journal =
        options.journal.as_ref().map(|path| OpenOptions::new().append(true).create(true).open(path)).transpose()?;
    let listen = options.listen;
    let worker = Arc::new(Worker { options, running: Mutex::default(), journal });
    let (answers, mut end) = (Arc::clone(&worker), signal(SignalKind::terminate())?);
    let text = worker.read();
    worker.follow(text.as_deref()).await;
    let router = Router::new()
        .route("/internal/health", get(|| async { "ok" }))
        .route("/internal/version", get(move || async move { answers.report().to_string() }));
    tokio::time::sleep(Duration::from_millis(worker.options.start_delay_ms)).await;
    let listener = tokio::net::TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    tokio::spawn(async move { axum::serve(listener, router).await });
    tokio::select! {
        _ = end.recv() => {}
        () = worker.watch(text) => {}
    }
    worker.change(BTreeSet::new(), None).await;
    Ok(())
}

impl Worker {
    fn file(&self) -> PathBuf {
        self.options.config_path.join(&self.options.config)
    }

    fn read(&self) -> Option<String> {
        std::fs::read_to_string(self.file()).ok()
    }

    /// Identifies a state of the file. A kubelet replaces the file, so its inode changes.
    fn state(&self) -> Option<(u64, i64, i64)> {
        std::fs::metadata(self.file()).ok().map(|file| (file.ino(), file.mtime(), file.mtime_nsec()))
    }

    /// Applies each change of the file.
    async fn watch(&self, mut known: Option<String>) {
        let mut state = None;
        loop {
            tokio::time::sleep(LOOK).await;
            if !self.options.hot_reload {
                continue;
            }
            let now = self.state();
            if now == state {
                continue;
            }
            state = now;
            let text = self.read();
            if text.is_some() && text != known {
                self.follow(text.as_deref()).await;
                known = text;
            }
        }
    }

    /// Applies the content of the file. Unreadable content changes nothing.
    async fn follow(&self, text: Option<&str>) {
        let Some(config) = text.and_then(|text| serde_saphyr::from_str::<Config>(text).ok()) else { return };
        let mut workloads = config.workloads.unwrap_or_default();
        let jobs = workloads.remove(&self.options.name).and_then(|own| own.jobs).unwrap_or_default();
        self.change(jobs, Some(config.version)).await;
    }

    /// Stops the jobs that are no longer listed, and starts the new ones.
    async fn change(&self, wanted: BTreeSet<String>, version: Option<i64>) {
        let before = self.running().jobs.clone();
        if before.difference(&wanted).next().is_some() {
            tokio::time::sleep(Duration::from_millis(self.options.stop_delay_ms)).await;
        }
        for job in before.difference(&wanted) {
            self.record("stop", job);
        }
        for job in wanted.difference(&before) {
            self.record("start", job);
        }
        let mut running = self.running();
        running.jobs = wanted;
        running.version = version.unwrap_or(running.version);
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self) -> Value {
        let running = self.running();
        json!({"jobs": running.jobs, "version": running.version})
    }

    fn record(&self, event: &str, job: &str) {
        let Some(mut journal) = self.journal.as_ref() else { return };
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let pid = std::process::id();
        let line = format!(
            "{}\n",
            json!({"at": at.to_string(), "worker": self.options.name, "pid": pid, "event": event, "job": job})
        );
        // Writes each line with one call, so that lines of several workers do not mix.
        let _ = journal.write_all(line.as_bytes());
    }
}
