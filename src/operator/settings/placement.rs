//! Settings of placement.

use serde::Deserialize;

/// Settings of the scheduler extender and of placement policies.
#[derive(Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Placement {
    /// Maximum size of a request of kube-scheduler in bytes, 65536 to 268435456; two requests of this size are read at
    /// the same time. Default: 67108864, enough for 5,000 full nodes.
    pub max_body_bytes: usize,
    /// true: the extender serves HTTPS. false: HTTP, for a scheduler on the same machine. Default: true.
    pub tls: bool,
    /// Secret in the operator's namespace with the certificate. A Secret that the operator did not create is used and
    /// never written; if there is none, the operator creates it and renews the certificate. Default:
    /// ganglion-extender-tls.
    pub tls_secret: String,
    /// File with the PEM certificates of authorities. If it is set, the extender serves only clients with a certificate
    /// of one of them. It requires `tls`. A change of the file takes effect within seconds; while the file cannot be
    /// used, the previous authorities stay. Default: none; every client is served.
    pub client_ca_file: String,
    /// Names and addresses that schedulers use for the server; the certificate is issued for them. Default:
    /// `ganglion-extender.NAMESPACE.svc` with the operator's namespace.
    pub server_names: Vec<String>,
    /// Number of policies that are reconciled at the same time, 1 to 1000. Default: 4.
    pub concurrency: usize,
}

impl Default for Placement {
    fn default() -> Self {
        Self {
            tls: true,
            tls_secret: "ganglion-extender-tls".to_owned(),
            client_ca_file: String::new(),
            server_names: Vec::new(),
            max_body_bytes: 64 << 20,
            concurrency: 4,
        }
    }
}
