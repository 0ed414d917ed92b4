//! `ganglion check cluster`: checks an installation, with the user's permissions and from the user's machine. Changes
//! nothing.
//!
//! [`read`] collects the facts, and [`reports`] evaluates them without a request. Each part of the report has a file.
//! Each point that did not pass has advice; what the user may not read is unsure, and names the permission.

mod ask;
mod definitions;
mod extender;
mod facts;
mod kubernetes;
mod metrics;
mod pods;
mod policies;
mod read;
mod read_operator;
mod request;
mod rights;
mod roles;
mod running;
#[cfg(test)]
mod tests;

use kube::Client;
use thiserror::Error;

use crate::operator::ProgressLine;
use crate::operator::settings::Settings;
use facts::InstallationFacts;
use ganglion_core::check::CheckReport;
use ganglion_runtime::error::failure;

/// Advice where objects of the base are missing or outdated.
const APPLY: &str = "kubectl apply --server-side -k OVERLAY, with your overlay of kustomize/base";

/// Options of the check.
#[derive(Clone, Debug, Default)]
pub struct InstallationOptions {
    /// Namespace of the operator. None: it is found.
    pub namespace: Option<String>,
    /// None: the settings are read from the cluster.
    pub settings: Option<Settings>,
    /// URL of a Prometheus server that gets one query.
    pub prometheus: Option<String>,
}

/// Error: the cluster cannot be checked at all.
#[derive(Debug, Error)]
pub enum Error {
    #[error(
        "the API server at {url} does not answer: {}; check the address in the kubeconfig (kubectl config view --minify), \
         the network, and that the cluster runs",
        failure(.error)
    )]
    Unreachable { url: String, error: Box<kube::Error> },
    #[error("the API server at {url} does not answer within {seconds} s; check the network, and that the cluster runs")]
    Timeout { url: String, seconds: u64 },
    #[error(
        "the API server at {url} does not accept your credentials ({message}); log in again, or choose other ones with \
         --context or --kubeconfig"
    )]
    Unauthorized { url: String, message: String },
}

/// Checks the installation in the cluster at this URL. Returns one report for each part.
pub async fn check(
    client: &Client,
    url: &str,
    options: &InstallationOptions,
    say: ProgressLine<'_>,
) -> Result<Vec<CheckReport>, Error> {
    Ok(reports(&read::read(client, url, options, say).await?))
}

/// Evaluates the facts.
fn reports(facts: &InstallationFacts) -> Vec<CheckReport> {
    vec![
        kubernetes::report(facts),
        definitions::report(&facts.definitions),
        policies::report(facts),
        rights::report(facts),
        running::report(facts),
        extender::report(facts),
        metrics::report(facts),
        metrics::prometheus(facts),
    ]
}
