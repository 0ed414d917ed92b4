//! `ganglion explain`: describes the state of an object and its children in words.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use kube::Api;
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::cluster::{self, Cluster};
use crate::api::closed_loop::ClosedLoop;
use crate::api::decision::Decision;
use crate::api::execution::Execution;
use crate::api::monitoring::Monitoring;
use crate::app;
use crate::logic::closed_loop::explain::{ExplainedLoop, explain as text};

/// Options of `explain`.
#[derive(Args, Debug, Clone)]
pub struct ExplainArgs {
    #[command(subcommand)]
    what: What,
}

/// What can be explained.
#[derive(Subcommand, Debug, Clone)]
enum What {
    /// Explains a loop: its recent decisions and their reasons, its state, and what to do.
    Loop(LoopName),
}

/// Options of `explain loop`.
#[derive(Args, Debug, Clone)]
struct LoopName {
    /// Name of the loop.
    #[arg(value_name = "NAME")]
    name: String,
    /// Namespace of the loop. Default: the namespace of the context.
    #[arg(short, long, value_name = "NS")]
    namespace: Option<String>,
    #[command(flatten)]
    cluster: Cluster,
}

/// Why nothing was explained.
#[derive(Debug, Error)]
pub enum Error {
    #[error("there is no ClosedLoop {name} in namespace {namespace}; `kubectl get loop -A` lists all loops")]
    NoLoop { name: String, namespace: String },
    #[error("access is denied; you need the verb get on the object that the API server names ({0})")]
    NotAllowed(String),
    #[error("the API server did not answer")]
    Api(#[source] Box<kube::Error>),
    #[error(transparent)]
    App(#[from] app::Error),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.is_forbidden() => Self::NotAllowed(status.message.clone()),
            error => Self::Api(Box::new(error)),
        }
    }
}

/// Writes the explanation to standard output.
///
/// # Errors
/// The object does not exist or cannot be read.
pub async fn explain(explain: ExplainArgs) -> Result<(), Error> {
    let What::Loop(LoopName { name, namespace, cluster }) = explain.what;
    let (client, namespace) = cluster::open(cluster, namespace).await?;
    let parent: Option<ClosedLoop> = Api::namespaced(client.clone(), &namespace).get_opt(&name).await?;
    let Some(parent) = parent else { return Err(Error::NoLoop { name, namespace }) };
    let monitoring = child::<Monitoring>(Api::namespaced(client.clone(), &namespace), &parent).await?;
    let decision = child::<Decision>(Api::namespaced(client.clone(), &namespace), &parent).await?;
    let execution = child::<Execution>(Api::namespaced(client, &namespace), &parent).await?;
    let subject = ExplainedLoop {
        parent: &parent,
        monitoring: monitoring.as_ref(),
        decision: decision.as_ref(),
        execution: execution.as_ref(),
        now: Timestamp::now(),
    };
    print!("{}", text(&subject));
    Ok(())
}

/// A child of the loop; none if it does not exist or the loop does not own it.
async fn child<K>(api: Api<K>, parent: &ClosedLoop) -> Result<Option<K>, Error>
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let found = api.get_opt(parent.metadata.name.as_deref().unwrap_or_default()).await?;
    let owned = |child: &K| {
        let owners = child.meta().owner_references.iter().flatten();
        owners.into_iter().any(|owner| Some(&owner.uid) == parent.metadata.uid.as_ref())
    };
    Ok(found.filter(owned))
}
