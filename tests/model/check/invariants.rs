//! The invariants after every write: follows all writes, and reports a write that must not happen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ganglion_actions_plan::Limits;
use ganglion_api::marks;
use ganglion_api::workload_action::status::Step;
use ganglion_core::facts::{Key, Ledger, SlotId};

use super::accounts::Account;
use super::{Cause, Terms, Violation, intent, limits, outcome, violation, waits};
use crate::cluster::api::{Api, Note};
use crate::cluster::object::{Action, Deployment, Pod, Set};
use crate::cluster::{Part, SimulatedCluster};
use crate::face::deed::Deed;

/// Effects of a decision so far.
#[derive(Clone, Debug, Default)]
pub struct Spent {
    pub evicted: BTreeSet<String>,
    pub scaled: i32,
}

#[derive(Debug)]
pub struct Invariants {
    limits: Limits,
    /// See [`Setup::has_room`](crate::setup::Setup::has_room).
    has_room: bool,
    pub accounts: BTreeMap<String, Account>,
    /// Slot of each pod that the operator created, by uid.
    pub replacements: BTreeMap<String, SlotId>,
    /// Creation time of each pod, by uid.
    born: BTreeMap<String, u64>,
    pub terms: BTreeMap<String, Terms>,
    /// uid of the last action of each name.
    last: BTreeMap<Key, String>,
    pub spent: BTreeMap<Key, Spent>,
    /// uids of the actions that report an effect.
    pub effective: BTreeSet<String>,
    /// Workloads whose ledger was removed by others, so that their scaling can no longer be tracked.
    pub unledgered: BTreeSet<String>,
    /// uids of the actions that were suspended. They count only for the limits of their namespace and workload, and
    /// continue afterwards without a new admission.
    suspended: BTreeSet<String>,
    /// Whether any action vanished in the middle of its work.
    pub vanished: bool,
    /// Actions in the order in which their first replicas were admitted.
    pub begun: Vec<Key>,
    /// Number of actions by outcome, for the statistics.
    pub ends: BTreeMap<String, usize>,
}

impl Invariants {
    pub fn new(limits: Limits, has_room: bool) -> Self {
        Self {
            limits,
            has_room,
            accounts: BTreeMap::new(),
            replacements: BTreeMap::new(),
            born: BTreeMap::new(),
            terms: BTreeMap::new(),
            last: BTreeMap::new(),
            spent: BTreeMap::new(),
            effective: BTreeSet::new(),
            unledgered: BTreeSet::new(),
            suspended: BTreeSet::new(),
            vanished: false,
            begun: Vec::new(),
            ends: BTreeMap::new(),
        }
    }

    pub fn account(&mut self, app: &str) -> &mut Account {
        self.accounts.entry(app.to_owned()).or_default()
    }

    /// Processes the writes of one step.
    pub fn take(&mut self, cluster: &mut SimulatedCluster, cause: &Cause) -> Result<(), Violation> {
        let notes = std::mem::take(&mut cluster.api.notes);
        let api = &cluster.api;
        if let Cause::Operator { action, deed } = cause {
            intent::check(self, api, action, deed, !notes.is_empty())?;
        }
        for note in &notes {
            match note {
                Note::Pod(old, new) => self.pod(api, cause, old.as_ref(), new.as_ref())?,
                Note::Deployment(old, new) => self.deployment(cause, old.as_ref(), new.as_ref())?,
                Note::Set(old, new) => self.set(cause, old.as_ref(), new.as_ref())?,
                Note::Action(old, new) => self.action(api, old.as_ref(), new.as_ref())?,
            }
        }
        if !notes.is_empty() && self.accounts.values().any(|account| account.disturbed) {
            self.settle(cluster);
        }
        Ok(())
    }

    fn pod(
        &mut self,
        api: &Api,
        cause: &Cause,
        old: Option<&Arc<Pod>>,
        new: Option<&Arc<Pod>>,
    ) -> Result<(), Violation> {
        let Some(pod) = new.or(old) else { return Ok(()) };
        if old.is_none() {
            self.born.insert(pod.meta.uid.clone(), pod.meta.version);
            self.replacement(api, cause, pod)?;
        }
        let was = old.is_some_and(|pod| pod.is_serving());
        let is = new.is_some_and(|pod| pod.is_serving());
        let app = pod.app().to_owned();
        self.account(&app).serving += i32::from(is) - i32::from(was);
        let active = |pod: Option<&Arc<Pod>>| pod.is_some_and(|pod| pod.is_active());
        let Some(old) = old.filter(|_| active(old) && (!active(new) || (was && !is))) else { return Ok(()) };
        self.loss(cause, old, was)
    }

    /// Handles an active pod that terminates or no longer serves.
    fn loss(&mut self, cause: &Cause, pod: &Arc<Pod>, served: bool) -> Result<(), Violation> {
        let (app, key) = (pod.app().to_owned(), &pod.meta.key);
        match cause {
            Cause::Operator { action, deed: Deed::Evict { .. } } => {
                let terms = self.terms_of(action);
                self.spend(&terms, |spent| {
                    spent.evicted.insert(pod.meta.uid.clone());
                })?;
                if served && terms.disruption {
                    self.account(&app).excuse_one();
                }
                self.account(&app).check(&app, &format!("{action} evicts {key}"))
            }
            Cause::Operator { action, .. } => self.account(&app).check(&app, &format!("{action} deletes {key}")),
            Cause::Cluster(Part::SetsSync) => {
                if self.account(&app).disturbed {
                    if served {
                        self.account(&app).excuse_one();
                    }
                    return Ok(());
                }
                self.innocent(pod)?;
                self.account(&app).check(&app, &format!("the set deletes {key}"))
            }
            Cause::Cluster(Part::Scheduler) if self.has_room => {
                violation("BystanderPreempted", format!("the scheduler preempts {key}"))
            }
            Cause::Cluster(_) | Cause::Foreign => {
                let account = self.account(&app);
                account.disturb();
                if served {
                    account.excuse_one();
                }
                Ok(())
            }
        }
    }

    /// Checks a pod that an undisturbed ReplicaSet deletes: it must be marked, or created by the ReplicaSet since the
    /// action started and not needed by any slot.
    fn innocent(&self, pod: &Pod) -> Result<(), Violation> {
        let marked = pod.meta.annotations.contains_key(marks::SLOT)
            && pod.meta.annotations.get(marks::DELETION_COST).is_some_and(|cost| cost == marks::LOWEST_COST);
        if marked {
            return Ok(());
        }
        let since = self.accounts.get(pod.app()).and_then(|account| account.opened);
        let old = since.zip(self.born.get(&pod.meta.uid)).is_none_or(|(since, born)| *born < since);
        // The replacement of a vanished action is given back to its set, which has one pod too many then.
        if old || (self.replacements.contains_key(&pod.meta.uid) && !self.vanished) {
            return violation("InnocentDied", format!("the set deletes {}, which is not marked", pod.meta.key));
        }
        Ok(())
    }

    fn replacement(&mut self, api: &Api, cause: &Cause, pod: &Pod) -> Result<(), Violation> {
        let Cause::Operator { deed: Deed::CreatePod { slot: mine, .. }, .. } = cause else { return Ok(()) };
        let live =
            |pod: &&Arc<Pod>| pod.is_active() && self.replacements.get(&pod.meta.uid).is_some_and(|slot| slot == mine);
        if let Some(other) = api.pods.values().find(live) {
            let text = format!("slot {mine} has {} and creates {}", other.meta.key, pod.meta.key);
            return violation("TwoReplacements", text);
        }
        self.replacements.insert(pod.meta.uid.clone(), mine.clone());
        Ok(())
    }

    fn deployment(
        &mut self,
        cause: &Cause,
        old: Option<&Arc<Deployment>>,
        new: Option<&Arc<Deployment>>,
    ) -> Result<(), Violation> {
        let Some(name) = new.or(old).map(|one| one.meta.key.name.clone()) else { return Ok(()) };
        let rolled = old.zip(new).is_some_and(|(old, new)| !Arc::ptr_eq(&old.template, &new.template));
        let ledger = |one: Option<&Arc<Deployment>>| one?.meta.annotations.get(marks::LEDGER).cloned();
        if matches!(cause, Cause::Foreign) && ledger(old) != ledger(new) {
            self.unledgered.insert(name.clone());
        }
        if rolled {
            self.account(&name).disturb();
        }
        self.replicas(cause, &name, old.map(|one| one.replicas), new.map(|one| one.replicas))
    }

    fn set(&mut self, cause: &Cause, old: Option<&Arc<Set>>, new: Option<&Arc<Set>>) -> Result<(), Violation> {
        let Some(set) = new.or(old).filter(|set| set.meta.owners.is_empty()) else { return Ok(()) };
        let name = set.meta.key.name.clone();
        self.replicas(cause, &name, old.map(|one| one.replicas), new.map(|one| one.replicas))
    }

    fn replicas(&mut self, cause: &Cause, app: &str, old: Option<i32>, new: Option<i32>) -> Result<(), Violation> {
        self.account(app).exists = new.is_some();
        if old == new {
            return self.taken_back_from_none(cause, new);
        }
        let (Cause::Operator { action, .. }, Some(before), Some(after)) = (cause, old, new) else {
            self.account(app).ask(new.unwrap_or(0));
            return Ok(());
        };
        let terms = self.terms_of(action);
        let account = self.account(app);
        account.asked = after;
        account.check(app, &format!("{action} scales to {after}"))?;
        if terms.scale.1 > 0 {
            account.raised += after - before;
        }
        if self.unledgered.contains(app) {
            return Ok(());
        }
        self.spend(&terms, |spent| spent.scaled += after - before)
    }

    /// If there are zero replicas, undoing a create leaves zero. This counts as undone, because another client lowered
    /// the number before.
    fn taken_back_from_none(&mut self, cause: &Cause, replicas: Option<i32>) -> Result<(), Violation> {
        let Cause::Operator { action, deed: Deed::Scale { ledger, .. } } = cause else { return Ok(()) };
        let terms = self.terms_of(action);
        let undone = Ledger::parse(ledger.as_deref()).is_some_and(|ledger| ledger.undone);
        if replicas != Some(0) || !undone || terms.scale.1 == 0 {
            return Ok(());
        }
        self.spend(&terms, |spent| spent.scaled -= 1)
    }

    fn action(&mut self, api: &Api, old: Option<&Arc<Action>>, new: Option<&Arc<Action>>) -> Result<(), Violation> {
        let Some(action) = new else { return Ok(()) };
        if old.is_none() {
            let terms = Terms::of(action.decision(), &action.spec);
            self.terms.insert(action.meta.uid.clone(), terms);
            self.last.insert(action.meta.key.clone(), action.meta.uid.clone());
        }
        if action.spec.suspend {
            self.suspended.insert(action.meta.uid.clone());
        }
        for slot in action.open_slots() {
            self.account(&slot.workload.name).opened.get_or_insert(action.meta.version);
        }
        if old.is_some_and(|old| old.status == action.status) {
            return Ok(());
        }
        let has_begun = |action: &Arc<Action>| action.status.as_ref().is_some_and(|status| status.started_at.is_some());
        if has_begun(action) && !old.is_some_and(has_begun) {
            self.begun.push(action.meta.key.clone());
        }
        limits::check(&self.limits, &self.suspended, api)?;
        waits::check(action)?;
        let moved = action.status.iter().filter_map(|status| status.application.as_ref());
        let has_moved = moved.into_iter().any(|progress| progress.moved > 0);
        if has_moved || action.slots().any(|slot| matches!(slot.step, Step::Succeeded | Step::Failed)) {
            self.effective.insert(action.meta.uid.clone());
        }
        // The old pod was removed first, as the action allowed, and the new one does not run: the ReplicaSet has all
        // its pods, but not all serve.
        for slot in action.slots().filter(|slot| slot.step == Step::Failed && slot.break_first) {
            self.account(&slot.workload.name).disturb();
        }
        for slot in action.slots().filter(|slot| slot.step == Step::Succeeded) {
            let before = old.and_then(|old| old.slots().find(|before| before.id == slot.id));
            if before.is_none_or(|before| before.step != Step::Succeeded) {
                outcome::slot(self, api, action, slot)?;
            }
        }
        if action.finished() && old.is_none_or(|old| !old.finished()) {
            let word = outcome::word(action);
            *self.ends.entry(word).or_default() += 1;
            self.lower(action);
            outcome::check(self, action)?;
        }
        Ok(())
    }

    /// Once a create has ended, its new replicas count as desired by the user.
    fn lower(&mut self, action: &Action) {
        let Some(terms) = self.terms.get(&action.meta.uid).filter(|terms| terms.scale.1 > 0) else { return };
        let scaled = self.spent.get(&terms.decision).map_or(0, |spent| spent.scaled);
        if let Some(slot) = action.slots().next() {
            self.account(&slot.workload.name).raised -= scaled;
        }
    }

    /// Effects that the action may have. A vanished action still counts, because its reconcile may not have observed
    /// that yet.
    pub fn terms_of(&self, action: &Key) -> Terms {
        let none = || Terms { decision: action.clone(), evictions: 0, scale: (0, 0), disruption: false };
        self.last.get(action).and_then(|uid| self.terms.get(uid)).cloned().unwrap_or_else(none)
    }

    /// Records the effects of a decision, and reports a violation if they exceed its terms.
    pub fn spend(&mut self, terms: &Terms, note: impl FnOnce(&mut Spent)) -> Result<(), Violation> {
        let spent = self.spent.entry(terms.decision.clone()).or_default();
        note(spent);
        if spent.evicted.len() > terms.evictions {
            let text = format!("{} evicted {} pods of {}", terms.decision, spent.evicted.len(), terms.evictions);
            return violation("EvictedTooMany", text);
        }
        if spent.scaled < terms.scale.0 || spent.scaled > terms.scale.1 {
            let text = format!("{} changed replicas by {}, allowed {:?}", terms.decision, spent.scaled, terms.scale);
            return violation("ScaledTooMuch", text);
        }
        Ok(())
    }

    /// Workloads in the desired state without work in progress count as undisturbed again.
    fn settle(&mut self, cluster: &SimulatedCluster) {
        let api = &cluster.api;
        if cluster.sets.pods.behind(&api.pods) || cluster.sets.sets.behind(&api.sets) {
            return;
        }
        for (app, account) in self.accounts.iter_mut().filter(|(_, account)| account.disturbed && account.exists) {
            let at_work = api.actions.values().any(|action| action.open_slots().any(|slot| slot.workload.name == *app));
            let active = api.pods.values().filter(|pod| pod.app() == app && pod.meta.deleted.is_none()).count();
            let full = account.serving == account.asked && i32::try_from(active) == Ok(account.asked);
            let rolled = api.deployments.values().filter(|one| one.meta.key.name == *app).all(|one| {
                one.status.observed == one.meta.generation
                    && one.status.updated == one.replicas
                    && one.status.replicas == one.replicas
            });
            let fits = |set: &&Arc<Set>| set.template.labels.get("app").is_some_and(|label| label == app);
            let counted = api.sets.values().filter(fits).all(|set| set.status.replicas == set.replicas);
            if !at_work && full && rolled && counted {
                account.settle();
            }
        }
    }
}
