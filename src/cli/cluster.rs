//! Options for access to the cluster, the same for all commands.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Args};
use kube::{Client, Config};

use crate::operator::{self, ClusterAccess};

/// Read timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Options for access to the cluster.
#[derive(Args, Debug, Clone, Default)]
pub struct ClusterOptions {
    /// Kubeconfig file. Default: $KUBECONFIG, ~/.kube/config, or the pod's service account.
    #[arg(long, env = "GANGLION_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig. Default: its current context.
    #[arg(long, env = "GANGLION_CONTEXT", value_name = "NAME")]
    context: Option<String>,
}

impl ClusterOptions {
    /// The options in the matches of a command, as far as the command has them.
    pub fn found_in(matches: &ArgMatches) -> Self {
        let kubeconfig = matches.try_get_one("kubeconfig").ok().flatten().cloned();
        Self { kubeconfig, context: matches.try_get_one("context").ok().flatten().cloned() }
    }
}

impl From<ClusterOptions> for ClusterAccess {
    fn from(cluster: ClusterOptions) -> Self {
        // A manifest may set the variable to the empty string.
        let given = |context: &String| !context.is_empty();
        Self { kubeconfig: cluster.kubeconfig, context: cluster.context.filter(given) }
    }
}

/// A client for a short command, and the namespace: the given one, or else that of the context.
pub async fn open(cluster: ClusterOptions, namespace: Option<String>) -> Result<(Client, String), operator::Error> {
    let (config, namespace) = configured(cluster, namespace).await?;
    Ok((operator::client(config)?, namespace))
}

/// The configuration of such a client, and the namespace.
pub async fn configured(
    cluster: ClusterOptions,
    namespace: Option<String>,
) -> Result<(Config, String), operator::Error> {
    let mut config = operator::config(&cluster.into()).await?;
    config.read_timeout = Some(REQUEST_TIMEOUT);
    let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
    Ok((config, namespace))
}
