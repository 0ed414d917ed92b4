//! One pod: its volume, its process, its status.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use super::{KubeletState, NEVER_READY, NO_SYNC, PORT, address, journal_in};

/// Interval of the probes while a program starts.
const LOOK: Duration = Duration::from_millis(10);

/// Pause before a dead container is restarted.
const RESTART: Duration = Duration::from_millis(100);

pub struct PodProcess {
    shared: Arc<KubeletState>,
    pod: Pod,
    address: String,
    child: Child,
    /// resourceVersion of the ConfigMap in the volume.
    volume: Option<String>,
    restarts: u32,
    ready: bool,
}

impl PodProcess {
    /// Runs a pod from its first event until it is deleted.
    pub async fn run(shared: Arc<KubeletState>, mut changes: mpsc::UnboundedReceiver<Pod>) {
        let Some(pod) = changes.recv().await else { return };
        let name = pod.name_any();
        if let Err(error) = Self::live(shared, pod, &mut changes).await {
            eprintln!("kubelet: pod {name}: {error:#}");
        }
    }

    async fn live(shared: Arc<KubeletState>, pod: Pod, changes: &mut mpsc::UnboundedReceiver<Pod>) -> Result<()> {
        if pod.metadata.deletion_timestamp.is_some() {
            return remove(&shared, &pod).await;
        }
        let address = address();
        let volume = sync(&shared, &pod, None)?;
        let child = start(&shared, &pod, &address)?;
        let mut this = Self { shared, pod, address, child, volume, restarts: 0, ready: false };
        let mut maps = this.shared.maps.clone();
        let mut due: Option<Instant> = None;
        loop {
            let looks = !this.ready;
            tokio::select! {
                change = changes.recv() => {
                    let Some(pod) = change else { return Ok(()) };
                    this.pod = pod;
                    if this.pod.metadata.deletion_timestamp.is_some() {
                        return this.end().await;
                    }
                    let soon = Instant::now() + this.shared.options.react;
                    due = Some(due.map_or(soon, |due| due.min(soon)));
                }
                changed = maps.changed() => {
                    if changed.is_err() {
                        // The kubelet stops.
                        return Ok(());
                    }
                    due.get_or_insert(Instant::now() + this.shared.options.sync);
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    due = None;
                    this.sync()?;
                }
                ended = this.child.wait() => {
                    ended?;
                    this.died()?;
                    this.restarts += 1;
                    sleep(RESTART).await;
                    this.ready = false;
                    this.sync()?;
                    this.child = start(&this.shared, &this.pod, &this.address)?;
                }
                () = sleep(LOOK), if looks => this.look().await?,
            }
        }
    }

    fn sync(&mut self) -> Result<()> {
        if !self.pod.annotations().contains_key(NO_SYNC) && !self.shared.is_silent() {
            self.volume = sync(&self.shared, &self.pod, self.volume.take())?;
        }
        Ok(())
    }

    /// Writes the status once the program answers.
    async fn look(&mut self) -> Result<()> {
        let waits = self.shared.is_silent() || self.pod.annotations().contains_key(NEVER_READY);
        if waits || !answers(&self.address).await {
            return Ok(());
        }
        self.ready = true;
        let now = jiff::Timestamp::now().to_string();
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
        let containers = self.pod.spec.iter().flat_map(|spec| &spec.containers).map(|container| {
            json!({"name": container.name, "image": container.image, "imageID": "", "ready": true, "started": true,
                "restartCount": self.restarts, "state": {"running": {"startedAt": now}}})
        });
        let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
        let status = json!({"status": {
            "phase": "Running", "podIP": self.address, "podIPs": [{"ip": self.address}], "hostIP": "127.0.0.1",
            "startTime": now, "containerStatuses": containers.collect::<Vec<_>>(),
            "conditions": conditions,
        }});
        let api: Api<Pod> = Api::namespaced(self.shared.client.clone(), &self.shared.namespace);
        match api.patch_status(&self.pod.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Stops the process as a kubelet does, and removes the pod.
    async fn end(mut self) -> Result<()> {
        let grace = self.pod.metadata.deletion_grace_period_seconds.unwrap_or(30);
        if let Some(pid) = self.child.id() {
            let _ = Command::new("kill").args(["-TERM", &pid.to_string()]).status().await;
            let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
            if tokio::time::timeout(grace, self.child.wait()).await.is_err() {
                self.child.kill().await?;
                self.died()?;
            }
        }
        remove(&self.shared, &self.pod).await
    }

    /// Records that the process runs no jobs any more.
    fn died(&self) -> Result<()> {
        use std::io::Write;
        let at = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos().to_string();
        let pid = fs::read_to_string(self.pid_file())?.trim().parse::<u32>()?;
        let line = json!({"at": at, "worker": self.pod.name_any(), "pid": pid, "event": "dead"});
        let mut journal = fs::OpenOptions::new().append(true).create(true).open(journal_in(self.shared.home.path()))?;
        journal.write_all(format!("{line}\n").as_bytes())?;
        Ok(())
    }

    /// Path of the process's pid file.
    fn pid_file(&self) -> PathBuf {
        directory(&self.shared, &self.pod).join("pid")
    }
}

impl Drop for PodProcess {
    /// Kills the process, like a node that loses power.
    fn drop(&mut self) {
        if self.child.id().is_some() && self.child.start_kill().is_ok() {
            let _ = self.died();
        }
    }
}

fn directory(shared: &KubeletState, pod: &Pod) -> PathBuf {
    shared.home.path().join(pod.uid().unwrap_or_default())
}

fn start(shared: &KubeletState, pod: &Pod, address: &str) -> Result<Child> {
    let home = directory(shared, pod);
    fs::create_dir_all(home.join("config"))?;
    // setpriv makes the worker end when this process is killed.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(&shared.program).args(&shared.options.arguments);
    command.env_clear().env("HOSTNAME", pod.name_any()).env("CONFIG_PATH", home.join("config"));
    command.env("LISTEN", format!("{address}:{PORT}")).env("JOURNAL", journal_in(shared.home.path()));
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let child = command.stdin(Stdio::null()).kill_on_drop(true).spawn().context("the worker cannot be started")?;
    fs::write(home.join("pid"), child.id().unwrap_or(0).to_string())?;
    Ok(child)
}

/// Updates the pod's volume if there is a newer ConfigMap. Returns its resourceVersion.
fn sync(shared: &KubeletState, pod: &Pod, known: Option<String>) -> Result<Option<String>> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let Some(name) = volumes.filter_map(|volume| volume.config_map.as_ref()).next().map(|map| map.name.clone()) else {
        return Ok(None);
    };
    let map: Option<ConfigMap> = shared.maps.borrow().get(&name).cloned();
    let Some(map) = map.filter(|map| map.resource_version() != known) else { return Ok(known) };
    let config = directory(shared, pod).join("config");
    let version = map.resource_version().unwrap_or_default();
    let new = config.join(format!("..{version}"));
    fs::create_dir_all(&new)?;
    for (key, text) in map.data.iter().flatten() {
        fs::write(new.join(key), text)?;
        let link = config.join(key);
        if fs::symlink_metadata(&link).is_err() {
            std::os::unix::fs::symlink(format!("..data/{key}"), &link)?;
        }
    }
    std::os::unix::fs::symlink(format!("..{version}"), config.join("..tmp"))?;
    fs::rename(config.join("..tmp"), config.join("..data"))?;
    Ok(Some(version))
}

/// Whether the program is healthy.
async fn answers(address: &str) -> bool {
    let asked = async {
        let mut stream = TcpStream::connect((address, PORT)).await?;
        stream.write_all(b"GET /internal/health HTTP/1.1\r\nHost: worker\r\nConnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer.starts_with("HTTP/1.1 200"))
    };
    asked.await.unwrap_or(false)
}

/// Removes the pod object after its process has ended.
async fn remove(shared: &KubeletState, pod: &Pod) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(shared.client.clone(), &shared.namespace);
    let only = Preconditions { uid: pod.uid(), resource_version: None };
    let params = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }.preconditions(only);
    match api.delete(&pod.name_any(), &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
