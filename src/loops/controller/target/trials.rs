//! Tries the rungs of a loop without changing the target, for preflights and for `ganglion check`.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::authorization::v1::ResourceAttributes;

use super::{Actor, Targets, discover, read_ahead, webhook_request};
use ganglion_api::closed_loop::action::Rung;
use ganglion_api::closed_loop::metric::Source;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::status::SeenOwner;
use ganglion_loops_plan::execution::ownership::{remembered, seen_owner};
use ganglion_loops_plan::execution::{TargetState, Trial, trial};
use ganglion_loops_plan::rung;
use ganglion_loops_plan::validate::preflight::{
    AccessRight, TargetResource, described_object, needs_rights, rights, source_rights,
};
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

    /// Returns why the account may not read the metric of an adapter; None if it may.
    pub async fn source_problem(&mut self, source: &Source) -> Result<Option<String>, Error> {
        let discovered = match described_object(source) {
            Some(object) => discover(self.targets, object).await?,
            None => None,
        };
        let rights = source_rights(source, discovered.as_ref().map(|kind| kind.plural.as_str()));
        let namespace = rights.iter().find_map(|right| right.namespace.clone());
        let Some(refused) = self.missing(rights).await? else { return Ok(None) };
        self.actor.refusals.note_forbidden(&refused, self.targets.ctx.now())?;
        let account = &self.actor.account;
        Ok(Some(account.refusal_message_in(namespace.as_deref().unwrap_or(&account.namespace), &refused)))
    }

    /// Returns a message about the permissions for a rung that the account lacks; None if it has all of them.
    async fn missing_rights(&mut self, rung: &Rung) -> Result<Option<String>, Error> {
        if !needs_rights(rung) {
            return Ok(None);
        }
        let target = &self.actor.target;
        // An unknown kind was already reported when the target was read.
        let Some(discovered) = discover(self.targets, target).await? else { return Ok(None) };
        let kind = TargetResource { plural: &discovered.plural, reads_scale: !discovered.replicas_in_spec };
        self.missing(rights(rung, target, kind)).await
    }

    /// Returns a message about those of these permissions that the account lacks; None if it has all of them.
    async fn missing(&mut self, rights: Vec<AccessRight>) -> Result<Option<String>, Error> {
        let account = &self.actor.account;
        let mut missing = Vec::new();
        for right in rights {
            if self.granted.contains(&right) {
                continue;
            }
            let AccessRight { namespace, verb, group, resource, subresource, name } = right.clone();
            let attributes = ResourceAttributes {
                namespace,
                verb: Some(verb.to_owned()),
                group: Some(group),
                resource: Some(resource),
                subresource,
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
