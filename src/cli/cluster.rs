//! Which cluster a command talks to, and as whom: the same options for all commands.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kube::Client;

use crate::app::{self, Access};

/// How long a command waits for one answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Args, Debug, Clone, Default)]
pub struct Cluster {
    /// Kubeconfig file. Default: KUBECONFIG, or ~/.kube/config, or the pod's own service account.
    #[arg(long, env = "GANGLION_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Default: its current one.
    #[arg(long, env = "GANGLION_CONTEXT", value_name = "NAME")]
    context: Option<String>,
}

impl From<Cluster> for Access {
    fn from(cluster: Cluster) -> Self {
        // An empty variable in a manifest means nothing given.
        let given = |context: &String| !context.is_empty();
        Self { kubeconfig: cluster.kubeconfig, context: cluster.context.filter(given) }
    }
}

/// A client for a command that asks a little and ends, and the namespace: the given one, or the context's.
///
/// # Errors
/// There is no cluster to talk to, or the kubeconfig cannot be used.
pub async fn open(cluster: Cluster, namespace: Option<String>) -> Result<(Client, String), app::Error> {
    let mut config = app::config(&cluster.into()).await?;
    config.read_timeout = Some(REQUEST_TIMEOUT);
    let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
    Ok((app::client(config)?, namespace))
}
