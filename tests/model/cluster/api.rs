//! The API server: one resource version for everything, optimistic concurrency, graceful deletion, finalizers, quota.
//!
//! It is independent of the controllers. Every write leaves a [`Note`] for the invariants.

use std::sync::Arc;

use ganglion_core::facts::Key;

use super::object::{Action, Deployment, DisruptionBudget, Fate, Node, Phase, Pod, Receipt, Scaler, Service, Set};
use super::store::{Store, Stored};
use crate::random::Rng;

/// Start time of every run, in seconds since the epoch.
pub const BEGINNING: i64 = 1_800_000_000;

/// Reason for a rejected request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    NotFound,
    Conflict,
    Exists,
    Quota(String),
    Webhook(String),
    Budget(String),
    Budgets(String),
}

/// Precondition of a write.
#[derive(Clone, Copy, Debug, Default)]
pub struct If<'a> {
    pub uid: Option<&'a str>,
    pub version: Option<u64>,
}

impl<'a> If<'a> {
    pub fn any() -> Self {
        Self::default()
    }
    pub fn uid(uid: &'a str) -> Self {
        Self { uid: Some(uid), version: None }
    }
    pub fn version(version: u64) -> Self {
        Self { uid: None, version: Some(version) }
    }
}

/// An admission webhook for pods and their evictions that does not answer.
#[derive(Clone, Copy, Debug)]
pub struct FailingWebhook {
    /// Time at which it answers again, in seconds since the epoch.
    pub until: i64,
    /// Seconds after which the API server gives up on each request.
    pub delay: i64,
}

/// A change of an object that the invariants follow: before and after.
#[derive(Clone, Debug)]
pub enum Note {
    Pod(Option<Arc<Pod>>, Option<Arc<Pod>>),
    Set(Option<Arc<Set>>, Option<Arc<Set>>),
    Deployment(Option<Arc<Deployment>>, Option<Arc<Deployment>>),
    Action(Option<Arc<Action>>, Option<Arc<Action>>),
}

#[derive(Debug)]
pub struct Api {
    pub pods: Store<Pod>,
    pub nodes: Store<Node>,
    pub sets: Store<Set>,
    pub deployments: Store<Deployment>,
    pub budgets: Store<DisruptionBudget>,
    pub services: Store<Service>,
    pub scalers: Store<Scaler>,
    pub receipts: Store<Receipt>,
    pub actions: Store<Action>,
    /// Maximum number of pods, if limited.
    pub quota: Option<usize>,
    pub webhook: Option<FailingWebhook>,
    /// Number of further pods that their kubelets do not admit.
    pub rejections: usize,
    /// Milliseconds since the epoch.
    pub clock: i64,
    pub notes: Vec<Note>,
    /// Trace of the run; None if no trace is kept.
    pub lines: Option<Vec<String>>,
    /// Fate of pods that the operator creates: (per mille, fate).
    pub replacements: (u32, Fate),
    /// Time that pods take to end: (per mille, seconds).
    pub linger: (u32, i64),
    /// If set, the next eviction that a budget grants is not carried out.
    pub interrupts_eviction: bool,
    pub rng: Rng,
    version: u64,
}

/// A kind that the API server stores.
pub trait Held: Stored {
    fn store(api: &Api) -> &Store<Self>;
    fn store_mut(api: &mut Api) -> &mut Store<Self>;
    fn note(_old: Option<Arc<Self>>, _new: Option<Arc<Self>>) -> Option<Note> {
        None
    }
}

macro_rules! held {
    ($($kind:ident $field:ident $(, $note:expr)?;)*) => {
        $(impl Held for $kind {
            fn store(api: &Api) -> &Store<Self> {
                &api.$field
            }
            fn store_mut(api: &mut Api) -> &mut Store<Self> {
                &mut api.$field
            }
            $(fn note(old: Option<Arc<Self>>, new: Option<Arc<Self>>) -> Option<Note> {
                Some($note(old, new))
            })?
        })*
    };
}
held! {
    Pod pods, Note::Pod;
    Node nodes;
    Set sets, Note::Set;
    Deployment deployments, Note::Deployment;
    DisruptionBudget budgets;
    Service services;
    Scaler scalers;
    Receipt receipts;
    Action actions, Note::Action;
}

impl Api {
    pub fn new(rng: Rng) -> Self {
        Self {
            pods: Store::default(),
            nodes: Store::default(),
            sets: Store::default(),
            deployments: Store::default(),
            budgets: Store::default(),
            services: Store::default(),
            scalers: Store::default(),
            receipts: Store::default(),
            actions: Store::default(),
            quota: None,
            webhook: None,
            rejections: 0,
            clock: BEGINNING * 1000,
            notes: Vec::new(),
            lines: None,
            replacements: (0, Fate::Good),
            linger: (0, 0),
            interrupts_eviction: false,
            rng,
            version: 0,
        }
    }

    /// Seconds since the epoch, as the API writes times.
    pub fn seconds(&self) -> i64 {
        self.clock.div_euclid(1000)
    }

    /// Adds a line to the trace, if there is one.
    pub fn say(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(line());
        }
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// Fate of the next pod that the operator creates.
    pub fn replacement_fate(&mut self) -> Fate {
        let (per_mille, fate) = self.replacements;
        if self.rng.chance(per_mille) { fate } else { Fate::Good }
    }

    /// Latest resource version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Five characters, as the API server appends to `generateName`.
    pub fn suffix(&mut self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5).map(|_| char::from(ALPHABET[self.rng.below(ALPHABET.len())])).collect()
    }

    pub fn create<T: Held>(&mut self, mut object: T) -> Result<Arc<T>, Refused> {
        if T::store(self).get(&object.meta().key).is_some() {
            return Err(Refused::Exists);
        }
        let uid = format!("{:016x}", self.rng.next());
        let (version, created) = (self.next_version(), self.seconds());
        let meta = object.meta_mut();
        meta.uid = uid;
        meta.version = version;
        meta.created = created;
        meta.generation = 1;
        let object = Arc::new(object);
        T::store_mut(self).put(Arc::clone(&object));
        self.notes.extend(T::note(None, Some(Arc::clone(&object))));
        Ok(object)
    }

    /// Asks the webhook. If it is slow, time passes.
    pub fn admit(&mut self) -> Result<(), Refused> {
        let Some(webhook) = self.webhook.filter(|webhook| self.seconds() < webhook.until) else { return Ok(()) };
        self.clock += webhook.delay * 1000;
        Err(Refused::Webhook("Internal error occurred: failed calling webhook \"pods.example.com\"".to_owned()))
    }

    /// Creates a pod, within the quota.
    pub fn create_pod(&mut self, mut pod: Pod) -> Result<Arc<Pod>, Refused> {
        self.admit()?;
        if let Some(limit) = self.quota
            && self.pods.live.len() >= limit
        {
            return Err(Refused::Quota(format!("exceeded quota: pods, limited: {limit}")));
        }
        let (per_mille, seconds) = self.linger;
        pod.linger = if self.rng.chance(per_mille) { seconds } else { 0 };
        self.create(pod)
    }

    fn check<T: Held>(&self, key: &Key, condition: If<'_>) -> Result<Arc<T>, Refused> {
        let object = T::store(self).get(key).cloned().ok_or(Refused::NotFound)?;
        let meta = object.meta();
        if condition.uid.is_some_and(|uid| uid != meta.uid)
            || condition.version.is_some_and(|version| version != meta.version)
        {
            return Err(Refused::Conflict);
        }
        Ok(object)
    }

    /// Changes an object. An update without a change is not a write: no version, no event.
    pub fn update<T: Held>(
        &mut self,
        key: &Key,
        condition: If<'_>,
        change: impl FnOnce(&mut T),
    ) -> Result<Arc<T>, Refused> {
        let old: Arc<T> = self.check(key, condition)?;
        let mut new = T::clone(&old);
        change(&mut new);
        if new == *old {
            return Ok(old);
        }
        if new.spec_differs(&old) {
            new.meta_mut().generation += 1;
        }
        new.meta_mut().version = self.next_version();
        let new = Arc::new(new);
        if new.meta().deleted.is_some() && new.meta().finalizers.is_empty() && !old.meta().finalizers.is_empty() {
            // The last finalizer was removed: the answer and the watch event both carry the version of the deletion.
            T::store_mut(self).drop(Arc::clone(&new));
            self.notes.extend(T::note(Some(old), None));
        } else {
            T::store_mut(self).put(Arc::clone(&new));
            self.notes.extend(T::note(Some(old), Some(Arc::clone(&new))));
        }
        Ok(new)
    }

    /// Removes an object from the store at once.
    pub fn remove<T: Held>(&mut self, key: &Key, condition: If<'_>) -> Result<(), Refused> {
        let old: Arc<T> = self.check(key, condition)?;
        let mut last = T::clone(&old);
        last.meta_mut().version = self.next_version();
        T::store_mut(self).drop(Arc::new(last));
        self.notes.extend(T::note(Some(old), None));
        Ok(())
    }

    /// Deletes an object without a grace period; finalizers delay that.
    pub fn delete<T: Held>(&mut self, key: &Key, condition: If<'_>) -> Result<(), Refused> {
        let object: Arc<T> = self.check(key, condition)?;
        if object.meta().finalizers.is_empty() {
            return self.remove::<T>(key, condition);
        }
        let now = self.seconds();
        self.update::<T>(key, condition, |object| {
            object.meta_mut().deleted.get_or_insert(now);
        })
        .map(|_| ())
    }

    /// Deletes a pod with its grace period, or at once if it does not run. A finalizer keeps it. Returns the remaining
    /// pod, if any.
    pub fn delete_pod(&mut self, key: &Key, condition: If<'_>) -> Result<Option<Arc<Pod>>, Refused> {
        let pod: Arc<Pod> = self.check(key, condition)?;
        if (pod.has_ended() || pod.template.grace == 0) && pod.held_until <= self.seconds() {
            return self.remove::<Pod>(key, condition).map(|()| None);
        }
        let now = self.seconds();
        self.update::<Pod>(key, condition, |pod| {
            pod.meta.deleted.get_or_insert(now);
        })
        .map(Some)
    }

    /// Removes a pod that does not run any more. If a finalizer keeps it, the pod stays in phase Failed.
    pub fn end_pod(&mut self, pod: &Pod) -> bool {
        let (key, now) = (&pod.meta.key, self.seconds());
        if pod.held_until <= now {
            return self.remove::<Pod>(key, If::uid(&pod.meta.uid)).is_ok();
        }
        let end = |pod: &mut Pod| {
            (pod.phase, pod.ready_since) = (Phase::Failed, None);
            pod.meta.deleted.get_or_insert(now);
        };
        self.update::<Pod>(key, If::uid(&pod.meta.uid), end).is_ok()
    }
}
