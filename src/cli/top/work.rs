//! Tasks of the view in the cluster: checks of rights, changes, and explanations.

use kube::api::{Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;

use super::command::{PlannedCommand, TopWrite};
use super::facts::{TopDetail, TopObject};
use super::kinds::TopKind;
use super::model::TopScope;
use super::watch::api;
use crate::cli::approve::record;
use crate::cli::explain::{explain_action, explain_loop, explain_node, explain_pool};
use crate::cli::objects::LoopFamily;
use crate::operator::read::missing_rights;
use ganglion_loops_plan::explain::{Proposal, proposal};
use ganglion_runtime::error::failure;

/// Field manager of changes of the spec.
const MANAGER: &str = "ganglion-top";

/// Checks whether the user may make the change, and reads the proposal of an approval.
pub async fn check(client: Client, planned: PlannedCommand) -> Result<PlannedCommand, String> {
    let verb = planned.command.verb();
    let words = planned.id.words();
    let missing = missing_rights(&client, vec![planned.right()]).await;
    let missing = missing.map_err(|error| format!("your rights cannot be checked: {}", failure(&error)))?;
    if let Some(right) = missing.first() {
        return Err(format!(
            "you may not {verb} {words}: you need the right to {right}; an administrator can grant it"
        ));
    }
    if planned.write != TopWrite::Approval(None) {
        return Ok(planned);
    }
    let family = family(client, &planned).await?;
    match proposal(&family.subject()) {
        Some(Proposal { seq, digest, words }) => Ok(planned.with_proposal(seq, digest, &words)),
        None => Err(format!("{words} has no proposal any more")),
    }
}

/// Makes the change. Returns what was done.
pub async fn perform(client: Client, planned: PlannedCommand) -> Result<String, String> {
    let words = planned.id.words();
    match &planned.write {
        TopWrite::Spec(spec) => {
            let scope = TopScope::Namespace(planned.id.namespace.clone());
            let patch = json!({"metadata": {"uid": planned.uid}, "spec": spec});
            let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
            let objects = api(&client, planned.id.kind, &scope);
            let patched = objects.patch(&planned.id.name, &params, &Patch::Merge(patch)).await;
            patched.map_err(|error| format!("{words} was not changed: {}", failure(&error)))?;
            let fields = spec.as_object().into_iter().flatten().map(|(name, value)| format!("spec.{name}: {value}"));
            Ok(format!("{words} now has {}", fields.collect::<Vec<_>>().join(", ")))
        }
        TopWrite::Approval(digest) => {
            let family = family(client, &planned).await?;
            let digest = digest.clone().unwrap_or_default();
            record(&family, digest).await.map_err(|error| error.to_string())
        }
    }
}

async fn family(client: Client, planned: &PlannedCommand) -> Result<LoopFamily, String> {
    let found = LoopFamily::fetch(client, planned.id.namespace.clone(), planned.id.name.clone()).await;
    let family = found.map_err(|error| error.to_string())?;
    if family.parent.uid().as_deref() != Some(planned.uid.as_str()) {
        return Err(format!("{} was deleted and created again; review the new one", planned.id.words()));
    }
    Ok(family)
}

/// The explanation of an object, as `ganglion explain` prints it.
pub async fn explain(client: Client, object: TopObject) -> Result<String, String> {
    let (namespace, name) = (object.id.namespace.clone(), object.id.name.clone());
    let explained = match (object.id.kind, &object.detail) {
        (TopKind::Loop, _) => explain_loop(client, namespace, name).await,
        (TopKind::Action, _) => explain_action(client, namespace, name).await,
        (TopKind::Pool, _) => explain_pool(client, namespace, name).await,
        (TopKind::Node, TopDetail::Node { node: Some(node), .. }) => explain_node(client, &namespace, node).await,
        (kind, _) => return Err(format!("there is no explanation of this {}", kind.kind())),
    };
    explained.map_err(|error| error.to_string())
}
