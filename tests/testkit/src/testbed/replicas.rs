//! Several replicas of a testbed's operator, of this or another version: which of them leads, and how they end.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;

use super::{SETTINGS, Testbed, operator};
use crate::TIMEOUT;
use crate::operator::Operator;
use crate::plane::install::ACCOUNT;
use crate::plane::kubeconfig;
use crate::proxy::Proxy;

/// A replica of the operator with a proxy of its own.
pub struct Replica {
    /// Identity in the lease.
    pub identity: String,
    pub operator: Operator,
    pub proxy: Proxy,
}

impl Testbed {
    /// Another replica of the operator, with the same lease and a proxy of its own; not started yet. `settings` are
    /// YAML.
    pub async fn replica(&self, identity: &str, settings: &str) -> Result<Replica> {
        let proxy = Proxy::start(&self.plane).await?;
        let kubeconfig = kubeconfig::through(&proxy.address, &self.plane.token);
        let operator = operator(self.home.path(), identity, &self.ns, &kubeconfig)?;
        fs::write(self.home.path().join(identity).join("settings.yaml"), format!("{SETTINGS}\n{settings}"))?;
        Ok(Replica { identity: identity.to_owned(), operator, proxy })
    }

    pub async fn lease(&self) -> Result<Option<Lease>> {
        Ok(self.api::<Lease>().get_opt(ACCOUNT).await?)
    }

    /// Identity of the replica that holds the lease; empty if none does.
    pub async fn leader(&self) -> Result<String> {
        let lease = self.lease().await?;
        Ok(lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default())
    }

    /// Waits until a replica other than this one holds the lease. Returns its identity.
    pub async fn another_leads(&self, former: &str) -> Result<String> {
        let other = async {
            loop {
                let leader = self.leader().await?;
                if !leader.is_empty() && leader != former {
                    return anyhow::Ok(leader);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, other).await.with_context(|| format!("nobody takes over from {former}"))?
    }

    /// Ends the testbed's own operator, which releases the lease, for stories with replicas of their own.
    pub async fn end_operator(&self) -> Result<()> {
        let mut operator = self.operator.lock().await;
        operator.signal("-TERM")?;
        operator.end().await?.context("the operator does not end")?;
        Ok(())
    }

    /// Runs this build of `ganglion` from now on, after SIGKILL, with the same identity.
    pub async fn run_program(&self, program: &Path) -> Result<()> {
        self.operator.lock().await.run_program(program);
        self.kill_and_restart().await
    }
}
