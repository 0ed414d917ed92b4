//! The ReplicaSet controller: adopts, releases, creates and deletes pods according to its own, lagging cache.
//!
//! Follows `pkg/controller/replicaset`. Expectations prevent it from acting again before it has observed its own
//! writes. It deletes by name, without a precondition. It adopts matching orphans, and releases pods that no longer
//! match.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ganglion_core::facts::Key;

use super::api::{Api, If, Refused};
use super::object::{Fate, OwnerRef, Pod, Set, SetStatus, selects};
use super::store::{Turn, View};
use super::victims;

/// Seconds after which it no longer waits for its expectations; 300 in Kubernetes. In a working cluster, the watch is
/// never that late. Our clock leaps, so the timeout is longer here: the controller would otherwise create pods twice.
const EXPECTATION_TIMEOUT: i64 = 20 * 3600;

/// Time within which a change of a pod reaches the controller, in milliseconds. Its watches of pods and ReplicaSets lag
/// separately, but not without limit.
const LAG: i64 = 1000;

/// Writes of a ReplicaSet's last sync that the controller has not observed yet.
#[derive(Debug, Default)]
struct Expectation {
    creations: i64,
    deletions: BTreeSet<Key>,
    since: i64,
}

#[derive(Debug, Default)]
pub struct ReplicaSets {
    pub pods: View<Pod>,
    pub sets: View<Set>,
    queue: BTreeSet<Key>,
    expected: BTreeMap<Key, Expectation>,
    /// Failed syncs to retry later.
    retries: BTreeSet<Key>,
    /// Last time at which it had received every change of a pod, in milliseconds.
    current: i64,
}

impl ReplicaSets {
    /// Receives the next change of a ReplicaSet.
    pub fn hear_set(&mut self, api: &Api) -> bool {
        let Some(Turn { old, new }) = self.sets.advance(&api.sets) else { return false };
        if new.is_none()
            && let Some(old) = &old
        {
            self.expected.remove(&old.meta.key);
        }
        self.queue.extend(new.or(old).map(|set| set.meta.key.clone()));
        true
    }

    /// Receives the next change of a pod.
    pub fn hear_pod(&mut self, api: &Api) -> bool {
        let Some(turn) = self.pods.advance(&api.pods) else { return false };
        match (turn.old, turn.new) {
            (old, Some(pod)) if pod.meta.deleted.is_some() => {
                self.saw_deletion(&pod);
                if let Some(old) = old {
                    self.saw_deletion(&old);
                }
            }
            (None, Some(pod)) => match self.set_of(&pod) {
                Some(set) => {
                    if let Some(expected) = self.expected.get_mut(&set) {
                        expected.creations -= 1;
                    }
                    self.queue.insert(set);
                }
                None => self.requeue_adopters(&pod),
            },
            (Some(old), Some(pod)) => {
                let owner_changed = old.meta.controller() != pod.meta.controller();
                if owner_changed {
                    self.queue.extend(self.set_of(&old));
                }
                if pod.meta.controller().is_some() {
                    self.queue.extend(self.set_of(&pod));
                } else if owner_changed || old.meta.labels != pod.meta.labels {
                    self.requeue_adopters(&pod);
                }
            }
            (Some(old), None) => self.saw_deletion(&old),
            (None, None) => {}
        }
        true
    }

    /// Receives the changes of pods that are late, after time has passed.
    pub fn keep_up(&mut self, api: &Api) {
        let is_late = api.clock - self.current >= LAG;
        while is_late && self.hear_pod(api) {}
        if !self.pods.behind(&api.pods) {
            self.current = api.clock;
        }
    }

    fn saw_deletion(&mut self, pod: &Pod) {
        let Some(set) = self.set_of(pod) else { return };
        if let Some(expected) = self.expected.get_mut(&set) {
            expected.deletions.remove(&pod.meta.key);
        }
        self.queue.insert(set);
    }

    /// ReplicaSet that controls the pod, according to the cache.
    fn set_of(&self, pod: &Pod) -> Option<Key> {
        let owner = pod.meta.controller()?;
        let key = Key::new(pod.meta.key.namespace.clone(), owner.name.clone());
        self.sets.items.get(&key).filter(|set| set.meta.uid == owner.uid).map(|_| key)
    }

    fn requeue_adopters(&mut self, pod: &Pod) {
        let matching = self.sets.items.values().filter(|set| selects(&set.selector, &pod.meta.labels));
        self.queue.extend(matching.map(|set| set.meta.key.clone()));
    }

    /// Syncs one ReplicaSet that is due; false if none is.
    pub fn sync(&mut self, api: &mut Api) -> bool {
        let due: Vec<Key> = self.queue.iter().cloned().collect();
        let Some(key) = api.rng.pick(&due).cloned() else { return false };
        self.queue.remove(&key);
        if self.sync_set(api, &key).is_err() {
            self.retries.insert(key);
        }
        true
    }

    /// Requeues failed syncs, and all other objects like the controller's own resync.
    pub fn retry(&mut self) -> bool {
        let again = !self.retries.is_empty();
        self.queue.append(&mut self.retries);
        again
    }

    /// Next time at which expectations expire.
    pub fn next_timeout(&self) -> Option<i64> {
        self.expected.values().filter(|one| one.open()).map(|one| one.since + EXPECTATION_TIMEOUT).min()
    }

    pub fn resync(&mut self) {
        self.queue.extend(self.sets.items.keys().cloned());
    }

    fn sync_set(&mut self, api: &mut Api, key: &Key) -> Result<(), Refused> {
        let Some(set) = self.sets.items.get(key).cloned() else {
            self.expected.remove(key);
            return Ok(());
        };
        let now = api.seconds();
        let satisfied = self.expected.get(key).is_none_or(|one| !one.open() || one.since + EXPECTATION_TIMEOUT < now);
        let pods = self.claim(api, &set)?;
        let managed = if satisfied && set.meta.deleted.is_none() { self.manage(api, &set, &pods) } else { Ok(()) };
        let failure = match &managed {
            Err(Refused::Quota(text) | Refused::Webhook(text)) => {
                Some(set.status.failure.clone().unwrap_or_else(|| text.clone()))
            }
            _ => None,
        };
        let ready = pods.iter().filter(|pod| pod.ready_since.is_some()).count();
        let status = SetStatus {
            observed: set.meta.generation,
            replicas: i32::try_from(pods.len()).unwrap_or(i32::MAX),
            ready: i32::try_from(ready).unwrap_or(i32::MAX),
            failure,
        };
        if status != set.status {
            // Retries with a fresh version of the object, but the same status.
            api.update::<Set>(key, If::uid(&set.meta.uid), |set| set.status = status)?;
        }
        managed
    }

    /// Active pods of the ReplicaSet after adoption and release.
    fn claim(&self, api: &mut Api, set: &Set) -> Result<Vec<Arc<Pod>>, Refused> {
        let mut claimed = Vec::new();
        for pod in self.pods.items.values().filter(|pod| pod.is_active()) {
            let key = &pod.meta.key;
            let matching = key.namespace == set.meta.key.namespace && selects(&set.selector, &pod.meta.labels);
            match pod.meta.controller() {
                Some(owner) if owner.uid != set.meta.uid => {}
                Some(_) if matching => claimed.push(Arc::clone(pod)),
                Some(_) => {
                    api.say(|| format!("replicaset controller: {key} released by {}", set.meta.key));
                    let done = api.update::<Pod>(key, If::uid(&pod.meta.uid), |pod| {
                        pod.meta.owners.retain(|owner| owner.uid != set.meta.uid);
                    });
                    if let Err(refused) = done
                        && refused != Refused::NotFound
                    {
                        return Err(refused);
                    }
                }
                None if matching && set.meta.deleted.is_none() => {
                    let live = api.sets.get(&set.meta.key).filter(|live| live.meta.uid == set.meta.uid);
                    if live.is_none_or(|live| live.meta.deleted.is_some()) {
                        return Err(Refused::Conflict);
                    }
                    api.say(|| format!("replicaset controller: {key} adopted by {}", set.meta.key));
                    let owner = OwnerRef::controller("ReplicaSet", &set.meta);
                    let adopted = api.update::<Pod>(key, If::uid(&pod.meta.uid), |pod| {
                        pod.meta.owners.retain(|there| there.uid != owner.uid);
                        pod.meta.owners.push(owner);
                    });
                    match adopted {
                        Ok(_) => claimed.push(Arc::clone(pod)),
                        Err(Refused::NotFound) => {}
                        Err(refused) => return Err(refused),
                    }
                }
                None => {}
            }
        }
        Ok(claimed)
    }

    fn manage(&mut self, api: &mut Api, set: &Set, pods: &[Arc<Pod>]) -> Result<(), Refused> {
        let wanted = usize::try_from(set.replicas).unwrap_or(0);
        if pods.len() < wanted {
            return self.make(api, set, wanted - pods.len());
        }
        if pods.len() > wanted {
            self.cull(api, set, pods, pods.len() - wanted);
        }
        Ok(())
    }

    fn make(&mut self, api: &mut Api, set: &Set, count: usize) -> Result<(), Refused> {
        let expected = self.expected.entry(set.meta.key.clone()).or_default();
        *expected = Expectation { since: api.seconds(), ..Expectation::default() };
        for _ in 0..count {
            let mut pod = from_template(set, &format!("{}-{}", set.meta.key.name, api.suffix()));
            pod.meta.owners.push(OwnerRef::controller("ReplicaSet", &set.meta));
            pod.generated = true;
            let made = api.create_pod(pod);
            api.say(|| match &made {
                Ok(pod) => format!("replicaset controller: makes {}", pod.meta.key),
                Err(refused) => format!("replicaset controller: {} creates no pod: {refused:?}", set.meta.key),
            });
            match made {
                Ok(_) => expected.creations += 1,
                Err(Refused::Exists) => {}
                Err(refused) => return Err(refused),
            }
        }
        Ok(())
    }

    fn cull(&mut self, api: &mut Api, set: &Set, pods: &[Arc<Pod>], count: usize) {
        let mut ranked = pods.to_vec();
        if count < ranked.len() {
            let related = self.related(set);
            victims::sort(&mut ranked, &related, api.clock);
        }
        let expected = self.expected.entry(set.meta.key.clone()).or_default();
        *expected = Expectation { since: api.seconds(), ..Expectation::default() };
        for pod in ranked.iter().take(count) {
            let key = &pod.meta.key;
            let done = api.delete_pod(key, If::any());
            api.say(|| format!("replicaset controller: deletes {key}, one too many of {}", set.meta.key));
            if done.is_ok() {
                expected.deletions.insert(key.clone());
            }
        }
    }

    /// Pods of all ReplicaSets with the same owner.
    fn related(&self, set: &Set) -> Vec<Arc<Pod>> {
        let family: BTreeSet<&str> = match set.meta.controller() {
            None => [set.meta.uid.as_str()].into(),
            Some(owner) => self
                .sets
                .items
                .values()
                .filter(|other| other.meta.is_of(&owner.uid))
                .map(|other| other.meta.uid.as_str())
                .collect(),
        };
        let of_family = |pod: &&Arc<Pod>| pod.meta.controller().is_some_and(|owner| family.contains(&*owner.uid));
        self.pods.items.values().filter(of_family).cloned().collect()
    }
}

impl Expectation {
    fn open(&self) -> bool {
        self.creations > 0 || !self.deletions.is_empty()
    }
}

/// A pod from the ReplicaSet's template, without an owner.
pub fn from_template(set: &Set, name: &str) -> Pod {
    let mut pod = Pod { template: Arc::clone(&set.template), fate: Fate::Good, ..Pod::default() };
    pod.meta.key = Key::new(set.meta.key.namespace.clone(), name);
    pod.meta.labels.clone_from(&set.template.labels);
    pod.meta.annotations.clone_from(&set.template.annotations);
    pod
}
