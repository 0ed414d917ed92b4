//! `ganglion approve`: shows the proposal of a loop, and approves it by its digest.

use clap::Args;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use thiserror::Error;

use super::objects::{self, LoopFamily, Named};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::marks;
use ganglion_loops_plan::explain::{Proposal, proposal};

/// Field manager of the annotation. Flux removes fields of managers whose name starts with kubectl.
const MANAGER: &str = "ganglion-approve";

/// Options of `approve`.
#[derive(Args, Debug, Clone)]
pub struct ApproveArgs {
    #[command(flatten)]
    of: Named,
    /// Digest of the proposal to approve. Without it, the proposal is shown and nothing is approved.
    #[arg(value_name = "DIGEST")]
    digest: Option<String>,
}

/// Error: nothing was approved.
#[derive(Debug, Error)]
pub enum Error {
    #[error("loop {0} has no proposal that waits for approval; `ganglion explain loop {0}` shows its state")]
    NoProposal(String),
    #[error("the proposal changed: it is now {now}; {given} was not approved. Review the new proposal")]
    Changed { given: String, now: String },
    #[error(transparent)]
    Object(#[from] objects::Error),
}

/// Shows or approves the proposal of a loop.
pub async fn approve(ApproveArgs { of, digest }: ApproveArgs) -> Result<(), Error> {
    let family = LoopFamily::read(of).await?;
    let (name, namespace) = (family.parent.name_any(), &family.namespace);
    let Some(Proposal { seq, digest: now, words }) = proposal(&family.subject()) else {
        return Err(Error::NoProposal(name));
    };
    let Some(given) = digest else {
        println!("decision {seq} of loop {namespace}/{name} proposes: {words}");
        println!("to approve it: ganglion approve {name} {now} -n {namespace}");
        return Ok(());
    };
    println!("{}", record(&family, given).await?);
    Ok(())
}

/// Approves the open proposal of a loop if it has this digest. Returns what was approved.
pub async fn record(family: &LoopFamily, given: String) -> Result<String, Error> {
    let (name, namespace) = (family.parent.name_any(), &family.namespace);
    let Some(Proposal { seq, digest: now, words }) = proposal(&family.subject()) else {
        return Err(Error::NoProposal(name));
    };
    if given != now {
        return Err(Error::Changed { given, now: format!("decision {seq} ({words}), digest {now}") });
    }
    // The uid guards against a loop that was deleted and re-created: it has other proposals.
    let patch = json!({"metadata": {"uid": family.parent.uid(), "annotations": {marks::APPROVE: given}}});
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let loops: Api<ClosedLoop> = Api::namespaced(family.client.clone(), namespace);
    loops.patch(&name, &params, &Patch::Merge(patch)).await.map_err(objects::Error::from)?;
    Ok(format!("approved decision {seq} of loop {namespace}/{name}: {words}"))
}
