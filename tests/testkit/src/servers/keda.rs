//! The real KEDA: its operator, and its server of external metrics behind the API server's aggregation layer.

use std::fs;

use anyhow::Result;
use tempfile::TempDir;

use super::adapter::EXTERNAL;
use super::aggregation::aggregate;
use super::http::Authority;
use super::prometheus::peer;
use crate::process::{LoggedProcess, attached, free_port};
use crate::testbed::Testbed;

/// KEDA for the namespace of a testbed. Dropping it kills both processes.
pub struct KedaProcesses {
    operator: LoggedProcess,
    adapter: LoggedProcess,
    _home: TempDir,
}

impl KedaProcesses {
    /// Starts both as an administrator of the cluster, which needs KEDA's CRDs. They listen on loopback.
    pub async fn start(testbed: &Testbed) -> Result<Self> {
        let home = TempDir::new()?;
        let file = |name: &str| home.path().join(name);
        let kubeconfig = file("kubeconfig");
        fs::write(&kubeconfig, testbed.plane.cluster.administrator().await?)?;
        // Each presents this certificate to the other.
        let authority = Authority::create();
        let (certificate, key) = authority.files();
        fs::write(file("ca.crt"), authority.pem())?;
        fs::copy(certificate, file("tls.crt"))?;
        fs::copy(key, file("tls.key"))?;
        let prepare = |program: &str| {
            let mut command = attached(peer(program)?);
            command.env("KUBECONFIG", &kubeconfig).arg(format!("--cert-dir={}", home.path().display()));
            for variable in ["WATCH_NAMESPACE", "POD_NAMESPACE", "KEDA_CLUSTER_OBJECT_NAMESPACE"] {
                command.env(variable, &testbed.ns);
            }
            anyhow::Ok(command)
        };
        let service = format!("127.0.0.1:{}", free_port()?);
        let mut operator = prepare("keda-operator")?;
        operator
            .args(["--enable-prometheus-metrics=false", "--health-probe-bind-address=0"])
            .arg(format!("--metrics-service-bind-address={service}"));

        let port = free_port()?;
        let [(group, version)] = EXTERNAL;
        aggregate(testbed, group, version, port).await?;
        let mut adapter = prepare("keda-adapter")?;
        for name in ["lister-kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
            adapter.arg(format!("--{name}={}", kubeconfig.display()));
        }
        adapter
            .args(["--bind-address=127.0.0.1".to_owned(), format!("--secure-port={port}")])
            .args([format!("--metrics-service-address={service}"), format!("--port={}", free_port()?)]);
        Ok(Self {
            operator: LoggedProcess::start(operator, file("operator.log"))?,
            adapter: LoggedProcess::start(adapter, file("adapter.log"))?,
            _home: home,
        })
    }

    /// Output of both.
    pub fn log(&self) -> String {
        format!("--- operator of KEDA\n{}\n--- adapter of KEDA\n{}", self.operator.log(), self.adapter.log())
    }
}
