//! The timeline: when a watch first showed that a sample reached a hop.
//!
//! Decodes only the needed fields, so that the watch costs the plane's machine little.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use futures::StreamExt;
use ganglion_api::decision::Decision;
use ganglion_api::execution::{Execution, ExecutionState};
use ganglion_api::monitoring::Tag;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{ApiResource, Object};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::TIMEOUT;

/// Observed event, with the name of the loop or Deployment, and the sample's time in microseconds or the generation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// Decision's status shows the sample's tag.
    Decided(String, i64),
    /// Execution's status shows the tag, so the sample is claimed.
    Claimed(String, i64),
    /// Execution's status shows that the execution of the sample ended.
    Ended(String, i64),
    /// The Deployment's spec has this generation.
    Scaled(String, i64),
}

/// Fields that are decoded from each object.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
struct Status {
    tag: Option<Tag>,
    state: Option<ExecutionState>,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
struct Nothing {}

type Thin = Object<Nothing, Status>;

pub struct Timeline {
    state: Arc<State>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    seen: Mutex<HashMap<Mark, Instant>>,
    ticks: watch::Sender<u64>,
}

impl State {
    fn lock(&self) -> MutexGuard<'_, HashMap<Mark, Instant>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Timeline {
    /// Watches one namespace for all marks.
    pub fn open(client: &Client, namespace: &str) -> Self {
        let mut timeline = Self::decisions(client, namespace);
        timeline.watch(client, namespace, &ApiResource::erase::<Execution>(&()), claimed);
        timeline.watch(client, namespace, &ApiResource::erase::<Deployment>(&()), scaled);
        timeline
    }

    /// Watches one namespace for decisions only.
    pub fn decisions(client: &Client, namespace: &str) -> Self {
        let mut timeline = Self { state: Arc::new(State::default()), tasks: Vec::new() };
        timeline.watch(client, namespace, &ApiResource::erase::<Decision>(&()), decided);
        timeline
    }

    fn watch(&mut self, client: &Client, namespace: &str, resource: &ApiResource, marks: fn(&Thin) -> Vec<Mark>) {
        let api = Api::namespaced_with(client.clone(), namespace, resource);
        self.tasks.push(tokio::spawn(follow(api, self.state.clone(), marks)));
    }

    /// Moment at which the mark was first seen; None before.
    pub fn at(&self, mark: &Mark) -> Option<Instant> {
        self.state.lock().get(mark).copied()
    }

    /// Waits for the mark. Returns the moment at which it was first seen.
    pub async fn until(&self, mark: &Mark) -> Result<Instant> {
        let mut ticks = self.state.ticks.subscribe();
        let wait = async {
            loop {
                ticks.mark_unchanged();
                if let Some(at) = self.at(mark) {
                    return at;
                }
                let _ = ticks.changed().await;
            }
        };
        tokio::time::timeout(TIMEOUT, wait).await.with_context(|| format!("no {mark:?} before the timeout"))
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Watches one kind until the task is aborted, and records new marks.
async fn follow(api: Api<Thin>, state: Arc<State>, marks: fn(&Thin) -> Vec<Mark>) {
    let events = watcher::watcher(api, watcher::Config::default()).default_backoff().applied_objects();
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let now = Instant::now();
        // After an error, the watcher retries by itself.
        let Ok(object) = event else { continue };
        let mut seen = state.lock();
        for mark in marks(&object) {
            seen.entry(mark).or_insert(now);
        }
        drop(seen);
        state.ticks.send_modify(|tick| *tick += 1);
    }
}

fn time_of(object: &Thin) -> Option<i64> {
    Some(object.status.as_ref()?.tag.as_ref()?.time.0.as_microsecond())
}

fn decided(object: &Thin) -> Vec<Mark> {
    time_of(object).map(|time| Mark::Decided(object.name_any(), time)).into_iter().collect()
}

fn claimed(object: &Thin) -> Vec<Mark> {
    let Some(time) = time_of(object) else { return Vec::new() };
    let state = object.status.as_ref().and_then(|status| status.state);
    let mut marks = vec![Mark::Claimed(object.name_any(), time)];
    match state {
        Some(ExecutionState::Claimed | ExecutionState::Executing) | None => {}
        Some(_) => marks.push(Mark::Ended(object.name_any(), time)),
    }
    marks
}

fn scaled(object: &Thin) -> Vec<Mark> {
    object.meta().generation.map(|generation| Mark::Scaled(object.name_any(), generation)).into_iter().collect()
}
