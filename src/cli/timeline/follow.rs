//! Follows an object: watches it, its children and its events, and shows new entries as they come.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event as Change, watcher};
use serde_json::Value;

use super::build::{ObjectSelector, TimelineKind, TimelineObjects};
use super::model::{Lane, Timeline, TimelineEntry};
use super::read::{TimelineSubject, add_child, add_event, problem};

/// Changes that arrive together are shown together.
const TOGETHER: usize = 64;

/// Maximum number of events that are kept; those that were shown are not shown again.
const EVENTS: usize = 4000;

/// A change of one of the watched objects.
enum Update {
    Parent(Box<DynamicObject>),
    ParentDeleted,
    Child(String, Box<DynamicObject>),
    Event(Box<Event>),
    Failed(String),
}

/// Entries that were already shown.
#[derive(Default)]
pub struct ShownEntries {
    keys: BTreeSet<String>,
    /// Time and text of the alarms that were active, by key.
    alarms: BTreeMap<String, (Timestamp, String)>,
}

impl ShownEntries {
    /// Returns the entries that were not shown before, and alarms that have ended since the last call. An entry that
    /// shares a key with a shown one is the same happening. A state is shown although its event was: the watch of
    /// events may be earlier, and an event does not say how long something took.
    pub fn news(&mut self, timeline: &Timeline) -> Vec<TimelineEntry> {
        let mut news = self.ended(timeline);
        for entry in &timeline.entries {
            let own = if entry.lane == Lane::State { 1 } else { entry.keys.len() };
            let is_known = entry.keys.iter().take(own).any(|key| self.keys.contains(key));
            self.keys.extend(entry.keys.iter().cloned());
            if !is_known {
                news.push(entry.clone());
            }
        }
        news
    }

    /// Alarms that are no longer active. No status records when an alarm ended, so that the time is that of the watch.
    fn ended(&mut self, timeline: &Timeline) -> Vec<TimelineEntry> {
        let mut active = BTreeMap::new();
        for entry in timeline.entries.iter().filter(|entry| entry.lane == Lane::Alarm) {
            active.extend(entry.keys.iter().map(|key| (key.clone(), (entry.at, entry.text.clone()))));
        }
        let before = std::mem::replace(&mut self.alarms, active);
        let mut ended = Vec::new();
        for (key, (since, text)) in before {
            // With --since, an old alarm leaves the timeline although it is active.
            if !self.alarms.contains_key(&key) && since >= timeline.start {
                let name = text.split(':').next().unwrap_or_default();
                let words = format!("{name}: no longer so, seen at this time");
                ended.push(TimelineEntry::new(timeline.end, Lane::Alarm, format!("ended/{key}"), words));
            }
        }
        ended
    }
}

/// Watches until the object is deleted, or `show` returns false. `show` gets the objects after each change.
pub async fn follow(
    subject: &TimelineSubject,
    mut objects: TimelineObjects,
    mut show: impl FnMut(&TimelineObjects) -> bool,
) -> FollowEnd {
    let mut updates = stream::select_all(streams(subject, &objects)).ready_chunks(TOGETHER);
    let mut failures = BTreeSet::new();
    while let Some(batch) = updates.next().await {
        for update in batch {
            match update {
                Update::Parent(parent) => objects.parent = super::read::json(&parent),
                Update::ParentDeleted => return FollowEnd::Deleted(Timestamp::now()),
                Update::Child(kind, child) => add_child(&mut objects, &kind, &child),
                Update::Event(event) => add_event(&mut objects, *event),
                // Each failure is shown once; the watch tries again by itself.
                Update::Failed(words) => {
                    if failures.insert(words.clone()) {
                        eprintln!("{words}");
                    }
                }
            }
        }
        forget_events(&mut objects);
        if !show(&objects) {
            break;
        }
    }
    FollowEnd::Closed
}

/// Why following ended.
pub enum FollowEnd {
    Deleted(Timestamp),
    Closed,
}

fn streams(subject: &TimelineSubject, objects: &TimelineObjects) -> Vec<BoxStream<'static, Update>> {
    let resource = subject.kind.resource();
    let named = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
    let uid = super::build::text(&objects.parent, "/metadata/uid").to_owned();
    let kind = resource.kind.clone();
    let mut is_listed = false;
    let parent = watcher(subject.api(&resource), named(&subject.name)).default_backoff().filter_map(move |change| {
        let update = match change {
            Ok(Change::Init) => {
                is_listed = false;
                None
            }
            Ok(Change::Apply(object) | Change::InitApply(object)) if object.metadata.uid.as_deref() == Some(&uid) => {
                is_listed = true;
                Some(Update::Parent(Box::new(object)))
            }
            // Another object of this name, which was created later.
            Ok(Change::Apply(_) | Change::InitApply(_) | Change::Delete(_)) => Some(Update::ParentDeleted),
            // It was deleted while there was no watch.
            Ok(Change::InitDone) => (!is_listed).then_some(Update::ParentDeleted),
            Err(error) => Some(Update::Failed(failed(&kind, &error))),
        };
        std::future::ready(update)
    });
    let mut all = vec![parent.boxed()];
    for wanted in subject.kind.children(&objects.parent) {
        let config = match &wanted.selector {
            ObjectSelector::Name(name) => named(name),
            ObjectSelector::Labels(labels) => watcher::Config::default().labels(labels),
        };
        let kind = wanted.resource.kind.clone();
        let changes = watch(subject.api(&wanted.resource), config).map(move |change| match change {
            Ok(object) => Update::Child(kind.clone(), Box::new(object)),
            Err(error) => Update::Failed(failed(&kind, &error)),
        });
        all.push(changes.boxed());
    }
    for selector in event_selectors(subject.kind, &objects.parent) {
        let changes =
            watch(subject.events(), watcher::Config::default().fields(&selector)).map(|change| match change {
                Ok(event) => Update::Event(Box::new(event)),
                Err(error) => Update::Failed(failed("Event", &error)),
            });
        all.push(changes.boxed());
    }
    all
}

/// Selectors of the events to watch. The new pods of an action are not known yet, so events of all pods are watched.
fn event_selectors(kind: TimelineKind, parent: &Value) -> Vec<String> {
    let mut all = kind.events(parent);
    if kind == TimelineKind::Action {
        all.retain(|selector| !selector.contains("kind=Pod"));
        all.push("involvedObject.kind=Pod".to_owned());
    }
    all
}

/// Existing objects, then new and changed ones. Deleted objects stay in the timeline.
fn watch<K>(api: kube::Api<K>, config: watcher::Config) -> impl Stream<Item = Result<K, watcher::Error>> + Send
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
    K::DynamicType: Clone,
{
    watcher(api, config).default_backoff().filter_map(async |change| match change {
        Ok(Change::Apply(object) | Change::InitApply(object)) => Some(Ok(object)),
        Ok(Change::Delete(_) | Change::Init | Change::InitDone) => None,
        Err(error) => Some(Err(error)),
    })
}

fn failed(kind: &str, error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => format!("{} Trying again.", problem(kind, error)),
        watcher::Error::WatchError(status) => format!("The watch of {kind} ended: {}. Trying again.", status.message),
        watcher::Error::NoResourceVersion => format!("The list of {kind} has no version. Trying again."),
    }
}

/// Removes the oldest events if there are too many.
fn forget_events(objects: &mut TimelineObjects) {
    while objects.events.len() > EVENTS {
        let created = |event: &Event| event.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let oldest = objects.events.iter().min_by_key(|(_, event)| created(event)).map(|(id, _)| id.clone());
        let Some(oldest) = oldest else { return };
        objects.events.remove(&oldest);
    }
}

/// Read timeout of watches: the API server ends a watch after five minutes at most, and sends bookmarks before that.
pub const READ_TIMEOUT: Duration = Duration::from_secs(300);
