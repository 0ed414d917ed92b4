//! Watches the NodeConfigs of one namespace, and counts those with the expected state.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::StreamExt;
use ganglion_api::node_config::NodeConfig;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Maximum duration of a phase.
const PATIENCE: Duration = Duration::from_secs(600);

/// Observed state of one NodeConfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Whether its status covers its newest spec.
    pub reported: bool,
    /// Whether its inlet temperature is available.
    pub measured: bool,
    /// Interval of its first source; it differs between the two versions of the template.
    pub interval: Option<String>,
}

/// The watch; ends when it is dropped.
pub struct Eye {
    seen: Arc<Mutex<HashMap<String, Seen>>>,
    changed: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for Eye {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Eye {
    pub fn on(client: &Client, namespace: &str) -> Self {
        let api: Api<NodeConfig> = Api::namespaced(client.clone(), namespace);
        let (seen, changed): (Arc<Mutex<HashMap<String, Seen>>>, Arc<Notify>) = Default::default();
        let (all, bell) = (seen.clone(), changed.clone());
        let task = tokio::spawn(async move {
            let mut events = watcher::watcher(api, watcher::Config::default()).boxed();
            while let Some(event) = events.next().await {
                let mut all = all.lock().expect("no holder panics");
                match event {
                    Ok(Event::Apply(one) | Event::InitApply(one)) => drop(all.insert(one.name_any(), look(&one))),
                    Ok(Event::Delete(one)) => drop(all.remove(&one.name_any())),
                    Ok(Event::Init | Event::InitDone) | Err(_) => {}
                }
                bell.notify_one();
            }
        });
        Self { seen, changed, task }
    }

    /// Waits until this number of NodeConfigs exists and all satisfy `like`. Returns the elapsed time.
    pub async fn until(&self, what: &str, count: usize, like: impl Fn(&Seen) -> bool) -> Result<Duration> {
        let began = Instant::now();
        let wait = async {
            loop {
                {
                    let all = self.seen.lock().expect("no holder panics");
                    if all.len() == count && all.values().all(&like) {
                        return;
                    }
                }
                self.changed.notified().await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.with_context(|| format!("waiting for {what}"))?;
        Ok(began.elapsed())
    }
}

fn look(one: &NodeConfig) -> Seen {
    let source = one.spec.metrics_collector.as_ref().and_then(|collector| collector.inlet_temp.as_ref());
    Seen {
        reported: one.status.as_ref().is_some_and(|status| status.observed_generation == one.metadata.generation),
        measured: one
            .status
            .as_ref()
            .is_some_and(|status| status.inlet_temperature.as_ref().is_some_and(|reading| reading.value.is_some())),
        interval: source.and_then(|source| Some(source.fetch_interval.as_ref()?.as_str().to_owned())),
    }
}
