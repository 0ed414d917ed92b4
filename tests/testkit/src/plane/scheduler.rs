//! The stock kube-scheduler of a plane, restarted with the configuration in config/, so that it queries the operator;
//! and a second one beside it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::cluster::Cluster;
use super::kubeconfig;
use crate::process::{LoggedProcess, attached, free_port};
use crate::root;

/// A second stock kube-scheduler, which ends when it is dropped.
pub struct SecondScheduler {
    process: LoggedProcess,
    _home: TempDir,
}

impl SecondScheduler {
    /// Starts the program of the plane's own scheduler with this configuration, with the token of an account.
    pub fn start(cluster: &Cluster, configuration: &Path, token: &str) -> Result<Self> {
        Self::launch(cluster, tempfile::tempdir()?, read(configuration)?, token, &[])
    }

    /// The same with further options of the program, such as `--v=4`.
    pub fn with_options(cluster: &Cluster, config: Value, token: &str, options: &[&str]) -> Result<Self> {
        Self::launch(cluster, tempfile::tempdir()?, config, token, options)
    }

    /// Starts it with a configuration that queries an extender: that of the component, with what a cluster provides.
    /// The kubelet would write the authority of the Secret to a file, and the Service would have the name of the
    /// extender.
    pub fn asking(cluster: &Cluster, configuration: &Path, asked: &Asked<'_>, token: &str) -> Result<Self> {
        let (home, mut config) = (tempfile::tempdir()?, read(configuration)?);
        let authority = home.path().join("ca.crt");
        std::fs::write(&authority, &asked.authority.0)?;
        let extender = &mut config["extenders"][0];
        extender["urlPrefix"] = json!(format!("https://127.0.0.1:{}/policies/{}", asked.port, asked.policy));
        extender["tlsConfig"] = json!({"serverName": "127.0.0.1", "caFile": authority});
        Self::launch(cluster, home, config, token, &[])
    }

    /// Its log from this byte on.
    pub fn log_from(&self, byte: u64) -> Result<String> {
        self.process.log_from(byte)
    }

    fn launch(cluster: &Cluster, home: TempDir, mut config: Value, token: &str, options: &[&str]) -> Result<Self> {
        let [access, file] = ["kubeconfig", "scheduler.yaml"].map(|name| home.path().join(name));
        std::fs::write(&access, kubeconfig::direct(&cluster.config, token))?;
        config["clientConnection"] = json!({"kubeconfig": access});
        std::fs::write(&file, config.to_string())?;
        let own = cluster.pid("scheduler")?;
        let program = std::fs::read_link(format!("/proc/{own}/exe")).context("the plane has no scheduler")?;
        let mut command = attached(program);
        command.arg(format!("--config={}", file.display())).args(options);
        command.args(["--bind-address=127.0.0.1", &format!("--secure-port={}", free_port()?)]);
        Ok(Self { process: LoggedProcess::start(command, home.path().join("log"))?, _home: home })
    }
}

/// The shipped configuration with an extender at this address, which is served without TLS.
pub fn plain_extender(url: &str) -> Result<Value> {
    let mut config = read(&root().join("config/kube-scheduler.yaml"))?;
    let extender = config["extenders"][0].as_object_mut().context("config/kube-scheduler.yaml has no extender")?;
    extender.remove("tlsConfig");
    extender.extend([("urlPrefix".to_owned(), json!(url)), ("enableHTTPS".to_owned(), json!(false))]);
    Ok(config)
}

fn read(configuration: &Path) -> Result<Value> {
    Ok(serde_saphyr::from_str(&std::fs::read_to_string(configuration)?)?)
}

/// Extender that the scheduler queries.
pub struct Asked<'a> {
    /// Port of the operator's extender on 127.0.0.1.
    pub port: u16,
    pub policy: &'a str,
    /// Certificate authority, as stored in the Secret (`ca.crt`).
    pub authority: &'a ByteString,
    /// Names of schedulers besides `default-scheduler`.
    pub more: &'a [&'a str],
    /// Files with the scheduler's own certificate and key, if it has one.
    pub identity: Option<(&'a Path, &'a Path)>,
}

/// Restarts the scheduler of the plane with the shipped configuration.
pub async fn restart(cluster: &Cluster, asked: &Asked<'_>) -> Result<()> {
    let home = tempfile::tempdir()?;
    let file = home.path().join("scheduler.yaml");
    std::fs::write(&file, configuration(asked)?)?;
    cluster.fault(&["restart", "scheduler", "--scheduler-config", &file.display().to_string()]).await
}

/// A configuration without an extender. The plane adds the connection to it, as text.
const ALONE: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
";

/// Restarts the scheduler of the plane without an extender.
pub async fn restart_alone(cluster: &Cluster) -> Result<()> {
    let home = tempfile::tempdir()?;
    let file = home.path().join("scheduler.yaml");
    std::fs::write(&file, ALONE)?;
    cluster.fault(&["restart", "scheduler", "--scheduler-config", &file.display().to_string()]).await
}

fn configuration(asked: &Asked<'_>) -> Result<String> {
    let Asked { port, policy, authority, more, identity } = asked;
    let authority = serde_json::to_value(authority)?;
    let names = ["default-scheduler"].iter().chain(*more);
    let profiles: Vec<String> = names.map(|name| format!("- schedulerName: {name}")).collect();
    let mut config = std::fs::read_to_string(root().join("config/kube-scheduler.yaml"))?;
    let mut changes = vec![
        (
            "https://ganglion-extender.ganglion-system.svc/policies/default",
            format!("https://127.0.0.1:{port}/policies/{policy}"),
        ),
        ("caData: \"<see above>\"", format!("caData: {authority}")),
        ("serverName: ganglion-extender.ganglion-system.svc", "serverName: 127.0.0.1".to_owned()),
        ("- schedulerName: default-scheduler", profiles.join("\n  ")),
    ];
    if let Some((certificate, key)) = identity {
        let example = [
            "# certFile: /etc/kubernetes/pki/ganglion-client.crt",
            "# keyFile: /etc/kubernetes/pki/ganglion-client.key",
        ];
        changes.push((example[0], format!("certFile: {}", certificate.display())));
        changes.push((example[1], format!("keyFile: {}", key.display())));
    }
    for (from, to) in changes {
        ensure!(config.contains(from), "config/kube-scheduler.yaml has no {from}");
        config = config.replace(from, &to);
    }
    Ok(config)
}
