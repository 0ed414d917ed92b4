//! Servers on loopback whose API the API server serves by aggregation.

use std::fs;

use anyhow::Result;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::plane::cluster::Cluster;
use crate::process::{LoggedProcess, attached, free_port};
use crate::servers::prometheus::peer;
use crate::testbed::Testbed;

/// Cluster that serves the API, and namespace of the Service that stands for the server.
#[derive(Clone, Copy)]
pub struct AggregationHost<'a> {
    pub cluster: &'a Cluster,
    pub namespace: &'a str,
}

impl<'a> From<&'a Testbed> for AggregationHost<'a> {
    fn from(testbed: &'a Testbed) -> Self {
        Self { cluster: &testbed.plane.cluster, namespace: &testbed.ns }
    }
}

/// Such a server. Dropping it stops the process.
pub struct Aggregated {
    server: LoggedProcess,
    _home: TempDir,
}

impl Aggregated {
    /// Starts a program of `hack/peers` as an administrator of the cluster, and registers its APIs, each a group and a
    /// version, with the cluster's API server. `kubeconfig` lists its options that take a kubeconfig.
    pub async fn start(
        host: AggregationHost<'_>,
        program: &str,
        apis: &[(&str, &str)],
        kubeconfig: &[&str],
        options: &[String],
    ) -> Result<Self> {
        let home = TempDir::new()?;
        let file = home.path().join("kubeconfig");
        fs::write(&file, host.cluster.administrator().await?)?;
        let port = free_port()?;
        for (group, version) in apis {
            aggregate(host, group, version, port).await?;
        }
        let mut command = attached(peer(program)?);
        command
            .args(kubeconfig.iter().map(|name| format!("--{name}={}", file.display())))
            .args(options)
            .args(["--bind-address=127.0.0.1".to_owned(), format!("--secure-port={port}")])
            .arg(format!("--cert-dir={}", home.path().display()));
        Ok(Self { server: LoggedProcess::start(command, home.path().join("log"))?, _home: home })
    }

    /// Its output.
    pub fn log(&self) -> String {
        self.server.log()
    }
}

/// Registers this API on this port with the cluster's API server.
pub async fn aggregate(host: impl Into<AggregationHost<'_>>, group: &str, version: &str, port: u16) -> Result<()> {
    let AggregationHost { cluster, namespace } = host.into();
    let apply = async |object: Value| {
        let arguments = ["-n", namespace, "apply", "--server-side", "-f", "-"];
        cluster.kubectl(&arguments, Some(&object.to_string())).await
    };
    let service = group.split('.').next().unwrap_or(group);
    apply(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": service},
            "spec": {"type": "ExternalName", "externalName": "localhost"}}))
    .await?;
    apply(json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.{group}")},
            "spec": {"group": group, "version": version, "insecureSkipTLSVerify": true,
                "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": {"name": service, "namespace": namespace, "port": port}}}))
    .await
    .map(drop)
}
