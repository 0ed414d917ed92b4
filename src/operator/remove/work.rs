//! The deletion of the objects of users, and the wait for their end. Owns the order and the pace.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::api::DynamicObject;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::cluster::{RemovalClient, display, is_readable};
use super::kinds::NamedKind;
use super::{Error, kinds};
use crate::operator::ProgressLine;
use ganglion_api::marks;
use ganglion_core::facts::Identity;

/// Interval between two reads of the objects that go.
const PACE: Duration = Duration::from_secs(1);

/// Interval between two reads of all marks: it reads all pods.
const MARKS_PACE: Duration = Duration::from_secs(3);

/// Maximum number of consecutive failures of the API server.
const MOST_FAILURES: u32 = 30;

/// Maximum number of objects that a message names.
pub const NAMED: usize = 10;

/// The deletion of the objects of users.
pub struct RemovalWork<'a> {
    pub cluster: &'a RemovalClient,
    pub until: Option<Instant>,
    pub stop: &'a CancellationToken,
    pub say: ProgressLine<'a>,
}

impl RemovalWork<'_> {
    /// Fails if the removal must not go on. `waits_for`: objects that are not gone yet.
    pub fn check(&self, waits_for: &[String]) -> Result<(), Error> {
        if self.stop.is_cancelled() {
            return Err(Error::Interrupted(waits_for.iter().take(NAMED).cloned().collect()));
        }
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return Err(Error::TimedOut(waits_for.iter().take(NAMED).cloned().collect()));
        }
        Ok(())
    }

    /// Requests the deletion of all objects once, in the order of their kinds.
    pub async fn delete_once(&self, deleted: &mut BTreeMap<String, usize>) -> Result<Vec<String>, Error> {
        let mut waits_for = Vec::new();
        for kind in kinds::of_users() {
            self.check(&waits_for)?;
            let objects = self.cluster.objects(&kind).await?;
            let (going, staying): (Vec<DynamicObject>, Vec<DynamicObject>) =
                objects.into_iter().partition(|object| object.metadata.deletion_timestamp.is_some());
            let new: Vec<Identity> = staying.iter().map(|object| Identity::from(&object.metadata)).collect();
            self.cluster.delete(&kind, &new).await?;
            if !new.is_empty() {
                *deleted.entry(kind.resource.kind.clone()).or_default() += new.len();
            }
            waits_for.extend(staying.iter().chain(&going).map(|object| waiting(&kind, object)));
            self.let_go(&kind, &going).await?;
        }
        Ok(waits_for)
    }

    /// Removes the finalizer of actions that no controller can read, and so none can end.
    async fn let_go(&self, kind: &NamedKind, going: &[DynamicObject]) -> Result<(), Error> {
        if *kind != kinds::actions() {
            return Ok(());
        }
        for action in going.iter().filter(|action| !is_readable(action)) {
            (self.say)(&format!("{}: it does not parse, so its finalizer is removed", waiting(kind, action)));
            self.cluster.let_go(kind, action).await?;
        }
        Ok(())
    }

    /// Deletes all objects of a kind.
    pub async fn delete_kind(&self, kind: &NamedKind) -> Result<BTreeMap<String, usize>, Error> {
        let found = self.cluster.objects(kind).await?;
        let ids: Vec<Identity> = found.iter().map(|object| Identity::from(&object.metadata)).collect();
        self.cluster.delete(kind, &ids).await?;
        Ok(BTreeMap::from([(kind.resource.kind.clone(), ids.len())]))
    }

    /// Deletes all objects until none is left, then waits until the controllers have cleaned up, for at most this time.
    /// Returns the number of deletions by kind.
    pub async fn end_all(&self, cleanup: Duration) -> Result<BTreeMap<String, usize>, Error> {
        let mut deleted = BTreeMap::new();
        let mut told = BTreeSet::new();
        let (mut waits_for, mut failures) = (Vec::new(), 0);
        loop {
            match self.delete_once(&mut deleted).await {
                Ok(all) if all.is_empty() => break,
                Ok(all) => (waits_for, failures) = (all, 0),
                Err(error @ Error::Api { .. }) if failures < MOST_FAILURES => {
                    (self.say)(&error.to_string());
                    failures += 1;
                }
                Err(error) => return Err(error),
            }
            self.tell(&mut told, &waits_for);
            self.pause(PACE, &waits_for).await?;
        }
        let begun = Instant::now();
        loop {
            let marked = self.cluster.marks().await?.marked;
            let in_flight: Vec<String> = marked
                .iter()
                .filter(|object| object.step.is_in_flight)
                .map(|object| format!("{} to be cleaned up", object.cleaned().object))
                .collect();
            if in_flight.is_empty() || begun.elapsed() >= cleanup {
                return Ok(deleted);
            }
            self.tell(&mut told, &in_flight);
            self.pause(MARKS_PACE, &in_flight).await?;
        }
    }

    /// Shows what the removal waits for, each line once.
    fn tell(&self, told: &mut BTreeSet<String>, waits_for: &[String]) {
        for line in waits_for.iter().take(NAMED) {
            if told.insert(line.clone()) {
                (self.say)(&format!("waiting for {line}"));
            }
        }
        if waits_for.len() > NAMED {
            let more = format!("waiting for {} more objects", waits_for.len() - NAMED);
            if told.insert(more.clone()) {
                (self.say)(&more);
            }
        }
    }

    async fn pause(&self, time: Duration, waits_for: &[String]) -> Result<(), Error> {
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = sleep(time) => {}
        }
        self.check(waits_for)
    }
}

/// An object that is not gone yet, with what it waits for, as far as it says so.
pub fn waiting(kind: &NamedKind, object: &DynamicObject) -> String {
    let name = display(kind, &Identity::from(&object.metadata).key);
    let conditions = object.data["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    let message = ready.and_then(|ready| ready["message"].as_str()).filter(|message| !message.is_empty());
    let finalizers = object.metadata.finalizers.iter().flatten().map(String::as_str);
    let others: Vec<&str> = finalizers.filter(|name| *name != marks::FINALIZER).collect();
    let mut text = name;
    if !others.is_empty() {
        text += &format!(", which has the finalizers {}", others.join(", "));
    }
    match message {
        Some(message) => format!("{text} ({message})"),
        None => text,
    }
}
