//! The Deployment controller: one ReplicaSet for each template, and rollouts with one pod of surge and none
//! unavailable.
//!
//! Follows `pkg/controller/deployment`, including the copy of the Deployment's annotations to the current ReplicaSet.

use std::collections::BTreeSet;
use std::sync::Arc;

use ganglion_api::marks;
use ganglion_core::facts::Key;
use serde_json::{Value, json};

use super::api::{Api, If, Refused};
use super::build::as_fact;
use super::object::{Deployment, DeploymentStatus, Meta, OwnerRef, Set, Template};
use super::store::View;

/// Annotation of a ReplicaSet: replicas of its Deployment when it was last scaled.
pub const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";

const SURGE: i32 = 1;

#[derive(Debug, Default)]
pub struct Deployments {
    pub deployments: View<Deployment>,
    pub sets: View<Set>,
    queue: BTreeSet<Key>,
    retries: BTreeSet<Key>,
}

impl Deployments {
    pub fn hear_deployment(&mut self, api: &Api) -> bool {
        let Some(turn) = self.deployments.advance(&api.deployments) else { return false };
        self.queue.extend(turn.new.or(turn.old).map(|deployment| deployment.meta.key.clone()));
        true
    }

    pub fn hear_set(&mut self, api: &Api) -> bool {
        let Some(turn) = self.sets.advance(&api.sets) else { return false };
        if let Some(owner) = turn.new.or(turn.old).as_ref().and_then(|set| set.meta.controller()) {
            let owners = self.deployments.items.values().filter(|deployment| deployment.meta.uid == owner.uid);
            self.queue.extend(owners.map(|deployment| deployment.meta.key.clone()));
        }
        true
    }

    /// Syncs one Deployment that is due; false if none is.
    pub fn sync(&mut self, api: &mut Api) -> bool {
        let due: Vec<Key> = self.queue.iter().cloned().collect();
        let Some(key) = api.rng.pick(&due).cloned() else { return false };
        self.queue.remove(&key);
        if let Some(deployment) = self.deployments.items.get(&key).cloned()
            && self.roll(api, &deployment).is_err()
        {
            self.retries.insert(key);
        }
        true
    }

    /// Requeues failed syncs.
    pub fn retry(&mut self) -> bool {
        let again = !self.retries.is_empty();
        self.queue.append(&mut self.retries);
        again
    }

    fn roll(&self, api: &mut Api, deployment: &Deployment) -> Result<(), Refused> {
        if deployment.meta.deleted.is_some() {
            return Ok(());
        }
        let sets: Vec<Arc<Set>> = self
            .sets
            .items
            .values()
            .filter(|set| set.meta.is_of(&deployment.meta.uid) && set.meta.deleted.is_none())
            .cloned()
            .collect();
        let hash = hash_of(&deployment.template);
        let (mut current, old): (Vec<_>, Vec<_>) =
            sets.into_iter().partition(|set| set.template.labels.get(marks::POD_TEMPLATE_HASH) == Some(&hash));
        let Some(current) = current.pop() else { return self.make(api, deployment, &hash, &old) };
        if copy_annotations(api, deployment, &current)? {
            return Ok(());
        }
        let revision = current.meta.annotations.get(marks::REVISION);
        if deployment.meta.annotations.get(marks::REVISION) != revision {
            let (key, revision) = (&deployment.meta.key, revision.cloned().unwrap_or_default());
            api.update::<Deployment>(key, If::version(deployment.meta.version), |deployment| {
                deployment.meta.annotations.insert(marks::REVISION.to_owned(), revision);
            })?;
            return Ok(());
        }
        let scaled = if is_scaling(deployment, &current, &old) {
            scale_all(api, deployment, &current, &old)?
        } else {
            grow(api, deployment, &current, &old)? || shrink(api, deployment, &current, &old)?
        };
        let _ = scaled;
        report(api, deployment, &current, &old)
    }

    fn make(&self, api: &mut Api, deployment: &Deployment, hash: &str, old: &[Arc<Set>]) -> Result<(), Refused> {
        let name = format!("{}-{hash}", deployment.meta.key.name);
        let mut template = Template {
            labels: deployment.template.labels.clone(),
            annotations: deployment.template.annotations.clone(),
            node_selector: deployment.template.node_selector.clone(),
            requests: deployment.template.requests,
            grace: deployment.template.grace,
            prioritized: deployment.template.prioritized,
            fact: Arc::default(),
        };
        template.labels.insert(marks::POD_TEMPLATE_HASH.to_owned(), hash.to_owned());
        let mut sent: Value = serde_json::from_str(&deployment.template.fact.json).expect("a pod template");
        sent["metadata"]["labels"][marks::POD_TEMPLATE_HASH] = json!(hash);
        template.fact = Arc::new(as_fact(&sent));
        let mut selector = deployment.template.labels.clone();
        selector.insert(marks::POD_TEMPLATE_HASH.to_owned(), hash.to_owned());
        let revision =
            old.iter().filter_map(|set| set.meta.annotations.get(marks::REVISION)?.parse::<i64>().ok()).max();
        let mut set = Set {
            meta: Meta::named(&deployment.meta.key.namespace, &name),
            replicas: room(deployment, 0, old),
            selector,
            template: Arc::new(template),
            ..Set::default()
        };
        set.meta.owners.push(OwnerRef::controller("Deployment", &deployment.meta));
        set.meta.annotations.extend(copied(deployment));
        set.meta.annotations.insert(marks::REVISION.to_owned(), (revision.unwrap_or(0) + 1).to_string());
        set.meta.annotations.insert(DESIRED.to_owned(), deployment.replicas.to_string());
        match api.create(set) {
            Ok(set) => {
                api.say(|| format!("deployment controller: creates set {} of {}", set.meta.key, set.replicas));
                Ok(())
            }
            Err(refused) => Err(refused),
        }
    }
}

/// Annotations that the controller copies to the current ReplicaSet, and never removes there.
fn copied(deployment: &Deployment) -> impl Iterator<Item = (String, String)> {
    deployment
        .meta
        .annotations
        .iter()
        .filter(|(key, _)| key.as_str() != marks::REVISION && key.as_str() != DESIRED)
        .map(|(key, value)| (key.clone(), value.clone()))
}

fn copy_annotations(api: &mut Api, deployment: &Deployment, current: &Set) -> Result<bool, Refused> {
    if copied(deployment).all(|(key, value)| current.meta.annotations.get(&key) == Some(&value)) {
        return Ok(false);
    }
    let all: Vec<(String, String)> = copied(deployment).collect();
    api.update::<Set>(&current.meta.key, If::version(current.meta.version), |set| set.meta.annotations.extend(all))?;
    Ok(true)
}

/// Hash of the template in a ReplicaSet's name and label: the template's own `template` annotation.
fn hash_of(template: &Template) -> String {
    template.annotations.get("template").cloned().unwrap_or_default()
}

fn total(sets: &[Arc<Set>]) -> i32 {
    sets.iter().map(|set| set.replicas).sum()
}

/// Maximum replicas of a ReplicaSet that has `has`, so that the surge is not exceeded in total.
fn room(deployment: &Deployment, has: i32, old: &[Arc<Set>]) -> i32 {
    let free = deployment.replicas + SURGE - total(old) - has;
    if free <= 0 { has } else { has + free.min(deployment.replicas - has) }
}

fn is_scaling(deployment: &Deployment, current: &Arc<Set>, old: &[Arc<Set>]) -> bool {
    old.iter().chain([current]).filter(|set| set.replicas > 0).any(|set| {
        let desired = set.meta.annotations.get(DESIRED).and_then(|text| text.parse::<i32>().ok());
        desired.is_some_and(|desired| desired != deployment.replicas)
    })
}

fn resize(api: &mut Api, deployment: &Deployment, set: &Set, replicas: i32) -> Result<bool, Refused> {
    let desired = deployment.replicas.to_string();
    if set.replicas == replicas && set.meta.annotations.get(DESIRED) == Some(&desired) {
        return Ok(false);
    }
    let (key, from) = (&set.meta.key, set.replicas);
    api.update::<Set>(key, If::version(set.meta.version), |set| {
        set.replicas = replicas;
        set.meta.annotations.insert(DESIRED.to_owned(), desired);
    })?;
    api.say(|| format!("deployment controller: set {key} from {from} to {replicas}"));
    Ok(from != replicas)
}

/// Follows a change of the Deployment's replicas. The only ReplicaSet with pods follows; several are scaled in
/// proportion (the largest gets the rounding difference, which is close enough for few pods).
fn scale_all(api: &mut Api, deployment: &Deployment, current: &Arc<Set>, old: &[Arc<Set>]) -> Result<bool, Refused> {
    let active: Vec<&Arc<Set>> = old.iter().chain([current]).filter(|set| set.replicas > 0).collect();
    match active.as_slice() {
        [] => resize(api, deployment, current, deployment.replicas),
        [only] => resize(api, deployment, only, deployment.replicas),
        several => {
            if current.replicas == deployment.replicas && current.status.ready == deployment.replicas {
                for set in several.iter().filter(|set| set.meta.uid != current.meta.uid) {
                    resize(api, deployment, set, 0)?;
                }
                return Ok(true);
            }
            let allowed = if deployment.replicas > 0 { deployment.replicas + SURGE } else { 0 };
            let mut left = allowed - several.iter().map(|set| set.replicas).sum::<i32>();
            let mut largest_first = several.to_vec();
            largest_first.sort_by_key(|set| std::cmp::Reverse(set.replicas));
            for set in largest_first {
                let replicas = (set.replicas + left).max(0);
                left -= replicas - set.replicas;
                resize(api, deployment, set, replicas)?;
            }
            Ok(true)
        }
    }
}

fn grow(api: &mut Api, deployment: &Deployment, current: &Set, old: &[Arc<Set>]) -> Result<bool, Refused> {
    match current.replicas.cmp(&deployment.replicas) {
        std::cmp::Ordering::Equal => Ok(false),
        std::cmp::Ordering::Greater => resize(api, deployment, current, deployment.replicas),
        std::cmp::Ordering::Less => resize(api, deployment, current, room(deployment, current.replicas, old)),
    }
}

fn shrink(api: &mut Api, deployment: &Deployment, current: &Set, old: &[Arc<Set>]) -> Result<bool, Refused> {
    if total(old) == 0 {
        return Ok(false);
    }
    let mut left = total(old) + current.replicas - deployment.replicas - (current.replicas - current.status.ready);
    if left <= 0 {
        return Ok(false);
    }
    let mut scaled = false;
    let mut sizes: Vec<(i32, i32)> = old.iter().map(|set| (set.replicas, set.status.ready)).collect();
    for (size, ready) in &mut sizes {
        let unhealthy = (*size - *ready).clamp(0, left);
        *size -= unhealthy;
        left -= unhealthy;
    }
    let ready = current.status.ready + sizes.iter().map(|(_, ready)| *ready).sum::<i32>();
    let mut spare = (ready - deployment.replicas).max(0);
    for (size, _) in &mut sizes {
        let less = spare.min(*size);
        *size -= less;
        spare -= less;
    }
    for (set, (size, _)) in old.iter().zip(sizes) {
        scaled |= resize(api, deployment, set, size)?;
    }
    Ok(scaled)
}

fn report(api: &mut Api, deployment: &Deployment, current: &Set, old: &[Arc<Set>]) -> Result<(), Refused> {
    let status = DeploymentStatus {
        observed: deployment.meta.generation,
        replicas: current.status.replicas + old.iter().map(|set| set.status.replicas).sum::<i32>(),
        updated: current.status.replicas,
    };
    if status == deployment.status {
        return Ok(());
    }
    let condition = If::version(deployment.meta.version);
    api.update::<Deployment>(&deployment.meta.key, condition, |deployment| deployment.status = status)?;
    Ok(())
}
