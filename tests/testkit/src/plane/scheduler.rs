//! The stock kube-scheduler of a plane, restarted with the configuration in config/, so that it queries the operator.

use anyhow::{Result, ensure};
use k8s_openapi::ByteString;

use super::cluster::Cluster;
use crate::root;

/// Extender that the scheduler queries.
pub struct Asked<'a> {
    /// Port of the operator's extender on 127.0.0.1.
    pub port: u16,
    pub policy: &'a str,
    /// Certificate authority, as stored in the Secret (`ca.crt`).
    pub authority: &'a ByteString,
    /// Names of schedulers besides `default-scheduler`.
    pub more: &'a [&'a str],
}

/// Restarts the scheduler of the plane with the shipped configuration.
pub async fn restart(cluster: &Cluster, asked: &Asked<'_>) -> Result<()> {
    let home = tempfile::tempdir()?;
    let file = home.path().join("scheduler.yaml");
    std::fs::write(&file, configuration(asked)?)?;
    cluster.fault(&["restart", "scheduler", "--scheduler-config", &file.display().to_string()]).await
}

fn configuration(asked: &Asked<'_>) -> Result<String> {
    let Asked { port, policy, authority, more } = asked;
    let authority = serde_json::to_value(authority)?;
    let names = ["default-scheduler"].iter().chain(*more);
    let profiles: Vec<String> = names.map(|name| format!("- schedulerName: {name}")).collect();
    let mut config = std::fs::read_to_string(root().join("config/kube-scheduler.yaml"))?;
    for (from, to) in [
        (
            "https://ganglion-extender.ganglion-system.svc/policies/default",
            format!("https://127.0.0.1:{port}/policies/{policy}"),
        ),
        ("caData: \"<see above>\"", format!("caData: {authority}")),
        ("serverName: ganglion-extender.ganglion-system.svc", "serverName: 127.0.0.1".to_owned()),
        ("- schedulerName: default-scheduler", profiles.join("\n  ")),
    ] {
        ensure!(config.contains(from), "config/kube-scheduler.yaml has no {from}");
        config = config.replace(from, &to);
    }
    Ok(config)
}
