//! Other clients: users, autoscalers, GitOps tools, and failures of nodes.

use std::sync::Arc;

use ganglion_api::marks;
use ganglion_api::workload_action::WorkloadActionSpec;
use ganglion_core::facts::Key;

use super::api::{Api, FailingWebhook, If};
use super::build::{PodShape, template};
use super::kubelet;
use super::object::{Action, Deployment, DisruptionBudget, FOREVER, Labels, Meta, Node, Phase, Pod, Set, Template};
use crate::random::Rng;
use crate::setup::SOME;

/// Selection of the pod to delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    Victim,
    Replacement,
    Surplus,
    Anybody,
}

/// Act of another client.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Applies this action under this name.
    Apply(String, Box<WorkloadActionSpec>),
    /// Scales a workload by this number.
    Scale(i32),
    DeletePod(Whom),
    /// Lets kubelets not admit this number of further pods.
    Reject(usize),
    /// Ends a running pod in phase Failed, as an eviction by its kubelet does.
    Fail(Whom),
    /// Keeps a pod for this number of seconds by a finalizer, even if it is deleted.
    Hold(Whom, i64),
    /// Deletes a pod that never ends: a finalizer keeps it, or its kubelet is dead.
    Strand(Whom),
    /// Lets the webhook for pods fail for the first number of seconds, each time after the second one.
    FailWebhook(i64, i64),
    /// Deletes a serving pod for the sake of another pod, which takes its place.
    Preempt,
    /// Makes a serving pod unready for this number of seconds.
    Unready(i64),
    Cordon,
    Uncordon,
    DeleteNode,
    /// Changes the template of a Deployment.
    Rollout,
    DeleteWorkload,
    Abort,
    Suspend,
    Resume,
    DeleteAction,
    /// Deletes an action, and applies it again as soon as it is gone.
    Reapply,
    /// Removes our ledger from a workload, like a tool that applies the whole object.
    Revert,
    /// Limits the number of further pods; None removes the quota.
    Quota(Option<usize>),
    /// Removes all finalizers from an action and deletes it.
    Vanish,
    /// Changes a budget so that it allows no disruption any more.
    TightenBudget,
}

impl Act {
    /// Whether it waits for a suitable object: victims and new pods exist for a short time only.
    pub fn waits(&self) -> bool {
        matches!(self, Self::Fail(_) | Self::Hold(..) | Self::Strand(_))
    }
}

/// State of the other clients: actions to apply again.
#[derive(Debug, Default)]
pub struct Foreign {
    wishes: Vec<(String, WorkloadActionSpec)>,
    revisions: usize,
    urgent: usize,
}

impl Foreign {
    /// Performs the act on an object picked by `rng`; false if there is no suitable object.
    pub fn perform(&mut self, api: &mut Api, act: &Act, rng: &mut Rng) -> bool {
        match act {
            Act::Apply(name, spec) => {
                let mut spec = (**spec).clone();
                fill_in(api, &mut spec, rng);
                self.wishes.push((name.clone(), spec));
                self.apply(api)
            }
            Act::Scale(by) => scale(api, *by, rng),
            Act::DeletePod(whom) => delete_pod(api, *whom, rng),
            Act::Reject(count) => {
                api.rejections = *count;
                api.say(|| format!("kubelets do not admit the next {count} pods"));
                true
            }
            Act::Fail(whom) => {
                let pod = find_pod(api, *whom, rng).filter(|pod| pod.node.is_some());
                pod.is_some_and(|pod| kubelet::fail(api, &pod, "Evicted: The node was low on resource: memory."))
            }
            Act::Hold(whom, seconds) => hold(api, *whom, *seconds, rng),
            Act::Strand(whom) => strand(api, *whom, rng),
            Act::FailWebhook(seconds, delay) => {
                api.webhook = Some(FailingWebhook { until: api.seconds() + seconds, delay: *delay });
                api.say(|| format!("webhook: fails for {seconds} s, after {delay} s each time"));
                true
            }
            Act::Preempt => self.preempt(api, rng),
            Act::Unready(seconds) => unready(api, *seconds, rng),
            Act::Cordon => cordon(api, true, rng),
            Act::Uncordon => cordon(api, false, rng),
            Act::DeleteNode => delete_node(api, rng),
            Act::Rollout => self.rollout(api, rng),
            Act::DeleteWorkload => delete_workload(api, rng),
            Act::Abort => edit_action(api, "aborts", rng, |spec| spec.abort = true),
            Act::Suspend => edit_action(api, "suspends", rng, |spec| spec.suspend = true),
            Act::Resume => edit_action(api, "resumes", rng, |spec| spec.suspend = false),
            Act::DeleteAction => delete_action(api, rng).is_some(),
            Act::Reapply => match delete_action(api, rng) {
                Some((name, spec)) => {
                    self.wishes.push((name, spec));
                    true
                }
                None => false,
            },
            Act::Revert => revert(api, rng),
            Act::Quota(spare) => {
                api.quota = spare.map(|spare| api.pods.live.len() + spare);
                api.say(|| format!("somebody: quota, room for {spare:?} more pods"));
                true
            }
            Act::Vanish => vanish(api, rng),
            Act::TightenBudget => tighten(api, rng),
        }
    }

    /// Applies the waiting actions that do not exist.
    pub fn apply(&mut self, api: &mut Api) -> bool {
        let mut did = false;
        self.wishes.retain(|(name, spec)| {
            let done = api.add_action(name, spec.clone()).is_ok();
            if done {
                api.say(|| format!("somebody: applies action {name}"));
            }
            did |= done;
            !done
        });
        did
    }

    pub fn is_done(&self) -> bool {
        self.wishes.is_empty()
    }

    fn preempt(&mut self, api: &mut Api, rng: &mut Rng) -> bool {
        let Some(pod) = any(&api.pods.live, rng, |pod: &Pod| pod.is_serving() && !pod.template.prioritized) else {
            return false;
        };
        self.urgent += 1;
        let key = Key::new(&pod.meta.key.namespace, format!("urgent-{}", self.urgent));
        api.say(|| format!("scheduler: preempts {} for {key}", pod.meta.key));
        let _ = api.delete_pod(&pod.meta.key, If::any());
        let (meta, started) = (Meta { key, ..Meta::default() }, api.seconds());
        let template = Arc::new(Template { requests: pod.template.requests, prioritized: true, ..Template::default() });
        let node = pod.node.clone();
        api.create(Pod { meta, template, node, phase: Phase::Running, started, ..Pod::default() }).is_ok()
    }

    fn rollout(&mut self, api: &mut Api, rng: &mut Rng) -> bool {
        let Some(deployment) = any(&api.deployments.live, rng, |one| one.meta.deleted.is_none()) else { return false };
        self.revisions += 1;
        let old = &deployment.template;
        let shape = PodShape {
            revision: 100 + self.revisions,
            cpu: old.requests.cpu,
            grace: old.grace,
            cost: old.annotations.get(marks::DELETION_COST).cloned(),
            node_selector: old.node_selector.clone(),
            prioritized: old.prioritized,
        };
        let new = template(&deployment.meta.key.name, &shape, &Labels::new());
        api.say(|| format!("somebody: rolls out {} of {}", shape.revision, deployment.meta.key));
        api.update::<Deployment>(&deployment.meta.key, If::any(), |deployment| deployment.template = new).is_ok()
    }
}

/// Fills in the pod or node of an action that was left open.
fn fill_in(api: &Api, spec: &mut WorkloadActionSpec, rng: &mut Rng) {
    let (pod, from, workload) = match (&mut spec.move_, &mut spec.delete) {
        (Some(moved), _) => (moved.pod.as_mut(), moved.from.as_mut(), moved.workload.as_ref()),
        (None, Some(delete)) => (delete.pod.as_mut(), delete.from.as_mut(), delete.workload.as_ref()),
        (None, None) => return,
    };
    let app = workload.map(|workload| workload.name.as_str());
    let fits = |pod: &Pod| pod.is_active() && pod.meta.controller().is_some() && app.is_none_or(|app| pod.app() == app);
    let Some(some) = any(&api.pods.live, rng, fits) else { return };
    if let Some(pod) = pod.filter(|pod| pod.name == SOME) {
        pod.name.clone_from(&some.meta.key.name);
    }
    if let Some(name) = from.and_then(|from| from.node_name.as_mut()).filter(|name| *name == SOME) {
        *name = some.node.clone().unwrap_or_default().into();
    }
}

fn any<T>(all: &std::collections::BTreeMap<Key, Arc<T>>, rng: &mut Rng, fits: impl Fn(&T) -> bool) -> Option<Arc<T>> {
    let fitting: Vec<&Arc<T>> = all.values().filter(|one| fits(one)).collect();
    rng.pick(&fitting).map(|one| Arc::clone(one))
}

fn scale(api: &mut Api, by: i32, rng: &mut Rng) -> bool {
    let deployments = api.deployments.live.values().map(|one| (true, one.meta.key.clone()));
    let sets = api.sets.live.values().filter(|set| set.meta.owners.is_empty()).map(|one| (false, one.meta.key.clone()));
    let all: Vec<(bool, Key)> = deployments.chain(sets).collect();
    let Some((deployment, key)) = rng.pick(&all) else { return false };
    api.say(|| format!("somebody: scales {key} by {by}"));
    if *deployment {
        api.update::<Deployment>(key, If::any(), |one| one.replicas = (one.replicas + by).max(0)).is_ok()
    } else {
        api.update::<Set>(key, If::any(), |one| one.replicas = (one.replicas + by).max(0)).is_ok()
    }
}

fn find_pod(api: &Api, whom: Whom, rng: &mut Rng) -> Option<Arc<Pod>> {
    let role = match whom {
        Whom::Victim => Some(marks::ROLE_VICTIM),
        Whom::Replacement => Some(marks::ROLE_REPLACEMENT),
        Whom::Surplus => Some(marks::ROLE_SURPLUS),
        Whom::Anybody => None,
    };
    let fits = |pod: &Pod| {
        pod.is_active() && role.is_none_or(|role| pod.meta.annotations.get(marks::ROLE).is_some_and(|is| is == role))
    };
    any(&api.pods.live, rng, fits)
}

fn delete_pod(api: &mut Api, whom: Whom, rng: &mut Rng) -> bool {
    let Some(pod) = find_pod(api, whom, rng) else { return false };
    api.say(|| format!("somebody: deletes pod {} ({whom:?})", pod.meta.key));
    api.delete_pod(&pod.meta.key, If::any()).is_ok()
}

fn hold(api: &mut Api, whom: Whom, seconds: i64, rng: &mut Rng) -> bool {
    let Some(pod) = find_pod(api, whom, rng) else { return false };
    let until = api.seconds() + seconds;
    api.say(|| format!("somebody: adds a finalizer to pod {} ({whom:?}) for {seconds} s", pod.meta.key));
    api.update::<Pod>(&pod.meta.key, If::any(), |pod| pod.held_until = until).is_ok()
}

fn strand(api: &mut Api, whom: Whom, rng: &mut Rng) -> bool {
    let Some(pod) = find_pod(api, whom, rng) else { return false };
    let key = &pod.meta.key;
    api.say(|| format!("somebody: deletes pod {key} ({whom:?}), which never ends"));
    api.update::<Pod>(key, If::any(), |pod| pod.held_until = FOREVER).is_ok() && api.delete_pod(key, If::any()).is_ok()
}

fn unready(api: &mut Api, seconds: i64, rng: &mut Rng) -> bool {
    let Some(pod) = any(&api.pods.live, rng, Pod::is_serving) else { return false };
    let until = api.seconds() + seconds;
    api.say(|| format!("kubelet: {} is not Ready for {seconds} s", pod.meta.key));
    let change = |pod: &mut Pod| {
        pod.ready_since = None;
        pod.unwell_until = until;
    };
    api.update::<Pod>(&pod.meta.key, If::any(), change).is_ok()
}

fn cordon(api: &mut Api, on: bool, rng: &mut Rng) -> bool {
    let Some(node) = any(&api.nodes.live, rng, |node| node.cordoned != on) else { return false };
    api.say(|| format!("somebody: cordon of {} is {on}", node.meta.key));
    api.update::<Node>(&node.meta.key, If::any(), |node| node.cordoned = on).is_ok()
}

fn delete_node(api: &mut Api, rng: &mut Rng) -> bool {
    let Some(node) = any(&api.nodes.live, rng, |_| true).filter(|_| api.nodes.live.len() > 2) else { return false };
    api.say(|| format!("somebody: deletes node {}", node.meta.key));
    api.delete::<Node>(&node.meta.key, If::any()).is_ok()
}

fn delete_workload(api: &mut Api, rng: &mut Rng) -> bool {
    if let Some(deployment) = any(&api.deployments.live, rng, |_| true) {
        api.say(|| format!("somebody: deletes deployment {}", deployment.meta.key));
        return api.delete::<Deployment>(&deployment.meta.key, If::any()).is_ok();
    }
    let Some(set) = any(&api.sets.live, rng, |set| set.meta.owners.is_empty()) else { return false };
    api.say(|| format!("somebody: deletes set {}", set.meta.key));
    api.delete::<Set>(&set.meta.key, If::any()).is_ok()
}

fn edit_action(api: &mut Api, what: &str, rng: &mut Rng, edit: impl FnOnce(&mut WorkloadActionSpec)) -> bool {
    let Some(action) = any(&api.actions.live, rng, |action: &Action| !action.finished()) else { return false };
    api.say(|| format!("somebody: {what} action {}", action.meta.key));
    api.update::<Action>(&action.meta.key, If::any(), |action| edit(&mut action.spec)).is_ok()
}

fn delete_action(api: &mut Api, rng: &mut Rng) -> Option<(String, WorkloadActionSpec)> {
    let action = any(&api.actions.live, rng, |action: &Action| action.meta.deleted.is_none())?;
    api.say(|| format!("somebody: deletes action {}", action.meta.key));
    api.delete::<Action>(&action.meta.key, If::any()).ok()?;
    Some((action.meta.key.name.clone(), action.spec.clone()))
}

fn revert(api: &mut Api, rng: &mut Rng) -> bool {
    let bears = |one: &Deployment| one.meta.annotations.contains_key(marks::LEDGER);
    let Some(deployment) = any(&api.deployments.live, rng, bears) else { return false };
    api.say(|| format!("somebody: removes the ledger from {}", deployment.meta.key));
    let change = |one: &mut Deployment| {
        one.meta.annotations.remove(marks::LEDGER);
    };
    api.update::<Deployment>(&deployment.meta.key, If::any(), change).is_ok()
}

fn vanish(api: &mut Api, rng: &mut Rng) -> bool {
    let Some(action) = any(&api.actions.live, rng, |_| true) else { return false };
    let key = &action.meta.key;
    api.say(|| format!("somebody: makes action {key} vanish"));
    let _ = api.update::<Action>(key, If::any(), |action| action.meta.finalizers.clear());
    let _ = api.delete::<Action>(key, If::any());
    true
}

fn tighten(api: &mut Api, rng: &mut Rng) -> bool {
    let Some(budget) = any(&api.budgets.live, rng, |_| true) else { return false };
    api.say(|| format!("somebody: budget {} allows nothing any more", budget.meta.key));
    api.update::<DisruptionBudget>(&budget.meta.key, If::any(), |one| one.rule = super::object::Rule::MinAvailable(100))
        .is_ok()
}
