//! Servers on loopback whose API the API server serves by aggregation.

use std::fs;

use anyhow::Result;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{LoggedProcess, attached, free_port};
use crate::servers::prometheus::peer;
use crate::testbed::Testbed;

/// Such a server. Dropping it stops the process.
pub struct Aggregated {
    server: LoggedProcess,
    _home: TempDir,
}

impl Aggregated {
    /// Starts a program of `hack/peers` as an administrator of the testbed's plane, and registers its APIs, each a
    /// group and a version, with the plane's API server. `kubeconfig` lists its options that take a kubeconfig.
    pub async fn start(
        testbed: &Testbed,
        program: &str,
        apis: &[(&str, &str)],
        kubeconfig: &[&str],
        options: &[String],
    ) -> Result<Self> {
        let home = TempDir::new()?;
        let file = home.path().join("kubeconfig");
        fs::write(&file, testbed.administrator().await?)?;
        let port = free_port()?;
        for (group, version) in apis {
            aggregate(testbed, group, version, port).await?;
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

/// Registers this API on this port with the API server of the testbed's plane.
pub async fn aggregate(testbed: &Testbed, group: &str, version: &str, port: u16) -> Result<()> {
    let apply =
        async |object: Value| testbed.kubectl(&["apply", "--server-side", "-f", "-"], Some(&object.to_string())).await;
    let service = group.split('.').next().unwrap_or(group);
    apply(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": service},
            "spec": {"type": "ExternalName", "externalName": "localhost"}}))
    .await?;
    apply(json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.{group}")},
            "spec": {"group": group, "version": version, "insecureSkipTLSVerify": true,
                "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": {"name": service, "namespace": testbed.ns, "port": port}}}))
    .await
    .map(drop)
}
