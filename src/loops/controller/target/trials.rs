//! Tries the rungs of a loop without changing the target, for preflights and for `ganglion check`.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::authorization::v1::ResourceAttributes;

use super::{Actor, Targets, discover, read_ahead, webhook_request};
use ganglion_api::closed_loop::action::Rung;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::status::SeenOwner;
use ganglion_loops_plan::execution::ownership::{remembered, seen_owner};
use ganglion_loops_plan::execution::{TargetState, Trial, trial};
use ganglion_loops_plan::rung;
use ganglion_loops_plan::validate::preflight::{AccessRight, TargetResource, needs_rights, rights};
use ganglion_outbound::client::OutboundClient;
use ganglion_runtime::error::Error;

/// Tries the rungs of one loop as its account. Rungs that need the same state of the target share one read, and each
/// granted permission is checked once.
pub struct Trials<'a> {
    targets: &'a Targets,
    outbound: &'a OutboundClient,
    pub actor: &'a mut Actor,
    seen: BTreeMap<String, TargetState>,
    granted: BTreeSet<AccessRight>,
    /// Dimensions of the rungs whose target was read.
    read: BTreeSet<String>,
    /// Owners because of which a rung is impossible.
    owners: Vec<SeenOwner>,
    /// Path of the number of replicas in the target, if it is known.
    pub replicas_path: Option<String>,
}

impl<'a> Trials<'a> {
    pub fn new(targets: &'a Targets, outbound: &'a OutboundClient, actor: &'a mut Actor) -> Self {
        let (seen, granted, read, owners) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new(), Vec::new());
        Self { targets, outbound, actor, seen, granted, read, owners, replicas_path: None }
    }

    /// Owners of fields to remember after these trials.
    pub fn owners(&self) -> Vec<SeenOwner> {
        remembered(&self.actor.owners, |dimension| self.read.contains(dimension), &self.owners)
    }

    /// Tries a rung.
    pub async fn try_rung(&mut self, rung: &Rung) -> Result<Trial, Error> {
        let reading = rung::reading(rung);
        let state = match self.seen.get(&reading) {
            Some(state) => state.clone(),
            None => read_ahead(self.targets, self.actor, rung).await?,
        };
        let result = trial(&self.actor.loop_key.name, &self.actor.target, rung, &state);
        self.read.insert(state.dimension(rung));
        self.replicas_path = state.replicas_path().map(str::to_owned).or(self.replicas_path.take());
        self.owners.extend(seen_owner(rung, &state));
        if matches!(result, Trial::Impossible(..)) {
            return Ok(result);
        }
        self.seen.insert(reading, state);
        if let Some(refused) = self.missing_rights(rung).await? {
            let problem = self.actor.forbidden(self.targets.ctx.now(), &refused)?;
            return Ok(Trial::Impossible(LoopReason::Forbidden, problem));
        }
        let Some(webhook) = &rung.webhook else { return Ok(result) };
        let request = webhook_request(webhook, self.outbound.request_timeout);
        Ok(match self.outbound.prepare(&self.actor.account, request).await {
            Ok(()) => result,
            Err(why) if why.passing => Trial::Unknown(why.words),
            Err(why) => Trial::Impossible(LoopReason::Failed, why.words),
        })
    }

    /// Returns a message about the permissions that the account lacks; None if it has all of them.
    async fn missing_rights(&mut self, rung: &Rung) -> Result<Option<String>, Error> {
        if !needs_rights(rung) {
            return Ok(None);
        }
        let (target, account) = (&self.actor.target, &self.actor.account);
        // An unknown kind was already reported when the target was read.
        let Some(discovered) = discover(self.targets, target).await? else { return Ok(None) };
        let kind = TargetResource { plural: &discovered.plural, reads_scale: !discovered.replicas_in_spec };
        let mut missing = Vec::new();
        for right in rights(rung, target, kind) {
            if self.granted.contains(&right) {
                continue;
            }
            let AccessRight { verb, group, resource, subresource, name } = right.clone();
            let attributes = ResourceAttributes {
                verb: Some(verb.to_owned()),
                group: Some(group),
                resource: Some(resource),
                subresource: subresource.map(str::to_owned),
                name,
                ..ResourceAttributes::default()
            };
            if account.may(attributes).await? {
                self.granted.insert(right);
            } else {
                missing.push(right.refusal(&account.namespace, &account.name));
            }
        }
        Ok((!missing.is_empty()).then(|| missing.join("; ")))
    }
}
