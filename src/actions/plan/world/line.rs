//! Waiting lines: the actions of each namespace without running slots, in the order of their turns.
//!
//! Kept up to date with each change of an action, so that neither a plan nor a change scans all waiting actions.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_api::workload_action::status::Step;
use ganglion_core::facts::Key;

/// Order within a namespace: by priority, age and name. The smallest is first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueRank {
    /// The negative priority.
    urgency: i64,
    created: Timestamp,
    name: String,
}

impl QueueRank {
    pub fn of(action: &WorkloadAction) -> Self {
        let metadata = &action.metadata;
        Self {
            urgency: -i64::from(action.spec.priority),
            created: metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            name: metadata.name.clone().unwrap_or_default(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

/// An action that waits for a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitedAction {
    /// Number of replicas that it admits at once.
    pub replicas: usize,
    /// Whether it waits for the limit of the cluster, not only for that of its namespace.
    pub waits_for_all: bool,
}

/// The waiting actions of one namespace.
#[derive(Debug, Default)]
pub struct WaitingLine {
    all: BTreeSet<QueueRank>,
    /// Actions that wait for a limit.
    limited: BTreeMap<QueueRank, LimitedAction>,
    /// Actions that wait for the limit of the cluster, with their replicas.
    for_all: BTreeMap<QueueRank, usize>,
    replicas_for_all: usize,
}

impl WaitingLine {
    /// The actions that wait for a limit and have their turn before this one, the first of them first.
    pub fn limited_before(&self, own: &QueueRank) -> impl Iterator<Item = (&QueueRank, &LimitedAction)> {
        self.limited.range(..own.clone()).inspect(|_| visited())
    }

    /// The actions that wait for the limit of the cluster, the first of them first, each with its replicas.
    pub fn for_all(&self) -> impl Iterator<Item = (&QueueRank, usize)> {
        self.for_all.iter().map(|(rank, replicas)| (rank, *replicas)).inspect(|_| visited())
    }

    /// Replicas of this action, if it waits for the limit of the cluster.
    pub fn replicas_of(&self, rank: &QueueRank) -> Option<usize> {
        self.for_all.get(rank).copied()
    }

    /// Replicas of all actions that wait for the limit of the cluster.
    pub fn replicas_for_all(&self) -> usize {
        self.replicas_for_all
    }

    /// Number of waiting actions.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    fn put(&mut self, rank: QueueRank, limited: Option<LimitedAction>) {
        if let Some(limited) = limited {
            self.limited.insert(rank.clone(), limited);
            if limited.waits_for_all {
                self.for_all.insert(rank.clone(), limited.replicas);
                self.replicas_for_all += limited.replicas;
            }
        }
        self.all.insert(rank);
    }

    fn remove(&mut self, rank: &QueueRank) {
        self.all.remove(rank);
        self.limited.remove(rank);
        if let Some(replicas) = self.for_all.remove(rank) {
            self.replicas_for_all = self.replicas_for_all.saturating_sub(replicas);
        }
    }
}

/// The waiting lines of all namespaces that have one.
#[derive(Debug, Default)]
pub struct WaitingLines(BTreeMap<String, WaitingLine>);

impl WaitingLines {
    pub fn put(&mut self, action: &WorkloadAction) {
        let line = self.0.entry(namespace_of(action).to_owned()).or_default();
        line.put(QueueRank::of(action), limited(action));
    }

    pub fn remove(&mut self, action: &WorkloadAction) {
        let namespace = namespace_of(action);
        let Some(line) = self.0.get_mut(namespace) else { return };
        line.remove(&QueueRank::of(action));
        if line.all.is_empty() {
            self.0.remove(namespace);
        }
    }

    pub fn of(&self, namespace: &str) -> Option<&WaitingLine> {
        self.0.get(namespace)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &WaitingLine)> {
        self.0.iter().map(|(namespace, line)| (namespace.as_str(), line))
    }

    pub fn keys(&self) -> impl Iterator<Item = Key> {
        let keys = |(namespace, line): (&str, &WaitingLine)| -> Vec<Key> {
            line.all.iter().map(|rank| Key::new(namespace, &rank.name)).collect()
        };
        self.iter().flat_map(keys)
    }

    /// At most this many of the actions that are first in their lines. Namespaces take turns, beginning with the one
    /// whose last turn was longest ago.
    pub fn first(&self, count: usize, last_turn: impl Fn(&str) -> u64) -> Vec<Key> {
        let mut namespaces: Vec<(u64, &str, &WaitingLine)> =
            self.iter().map(|(namespace, line)| (last_turn(namespace), namespace, line)).collect();
        namespaces.sort_by_key(|(turn, namespace, _)| (*turn, *namespace));
        let mut lines: Vec<_> =
            namespaces.iter().take(count).map(|(_, namespace, line)| (*namespace, line.all.iter())).collect();
        let mut first = Vec::new();
        while first.len() < count && !lines.is_empty() {
            lines.retain_mut(|(namespace, line)| match line.next() {
                Some(rank) if first.len() < count => {
                    visited();
                    first.push(Key::new(*namespace, &rank.name));
                    true
                }
                Some(_) | None => false,
            });
        }
        first
    }
}

fn namespace_of(action: &WorkloadAction) -> &str {
    action.metadata.namespace.as_deref().unwrap_or_default()
}

/// How the action waits for a limit; None if something else keeps it, too, or if it has running slots.
fn limited(action: &WorkloadAction) -> Option<LimitedAction> {
    let status = action.status.as_ref().filter(|_| !action.spec.suspend)?;
    let is_idle = status.slots.iter().all(|slot| slot.step.is_end() || slot.step == Step::Queued);
    let reason = &status.conditions.iter().find(|one| one.type_ == "Reconciling")?.reason;
    let limits = [Reason::LimitReached, Reason::NamespaceLimitReached];
    let limit = limits.into_iter().find(|limit| is_idle && limit.as_str() == reason)?;
    Some(LimitedAction { replicas: together(action), waits_for_all: limit == Reason::LimitReached })
}

/// Number of replicas that the action admits at once.
fn together(action: &WorkloadAction) -> usize {
    action.spec.swap.as_ref().map_or(1, |swap| 1 + swap.with.len())
}

#[cfg(test)]
thread_local! {
    /// Number of waiting actions that this thread has visited.
    pub static VISITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
fn visited() {
    VISITED.set(VISITED.get() + 1);
}

#[cfg(not(test))]
fn visited() {}
