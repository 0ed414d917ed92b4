//! Settings of placement.

use serde::Deserialize;

/// The scheduler extender.
#[derive(Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Placement {
    /// Maximum size of a request of kube-scheduler in bytes, 65536 to 268435456; two of this size are read at the same time.
    /// Default: 67108864, 5,000 full nodes.
    pub max_body_bytes: usize,
    /// Serves HTTPS. false: HTTP, for a scheduler on the same machine. Default: true.
    pub tls: bool,
    /// Secret in the operator's namespace with the certificate. One that the operator did not make is used and never written; where
    /// there is none, the operator makes one and renews it. Default: ganglion-extender-tls.
    pub tls_secret: String,
    /// Names and addresses by which schedulers know the server; the certificate is for them. Default: `ganglion-extender.` and the
    /// operator's namespace and `.svc`.
    pub server_names: Vec<String>,
    /// How many policies are reconciled at the same time, 1 to 1000. Default: 4.
    pub concurrency: usize,
}

impl Default for Placement {
    fn default() -> Self {
        Self {
            tls: true,
            tls_secret: "ganglion-extender-tls".to_owned(),
            server_names: Vec::new(),
            max_body_bytes: 64 << 20,
            concurrency: 4,
        }
    }
}
