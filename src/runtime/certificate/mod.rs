//! The certificate of the operator's HTTPS server, in a Secret. The operator creates and renews it, unless another
//! owner provides it.
//!
//! Every replica watches the Secret and serves its certificate, so a change needs no restart. Only the leader writes
//! it.
//!
//! | file | content |
//! |---|---|
//! | `issue` | issues and validates certificates |
//! | `secret` | decides whether to use, create, renew or leave the Secret |
//! | `tls` | certificate of new TLS connections |

pub mod issue;
pub mod secret;
pub mod tls;

use std::time::Duration;

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::error::Error;
use super::writer::Writer;
use secret::{SecretPlan, SecretWrite, WantedSecret, plan};
use tls::ReloadingCertificate;

/// Field manager of the Secret.
const MANAGER: &str = "ganglion/certificate";

/// Maximum time between two checks of the Secret; clocks jump.
const MAX_PAUSE: SignedDuration = SignedDuration::from_hours(1);

/// Delay after a failed write.
const RETRY: Duration = Duration::from_secs(5);

/// Name of the Secret, and the names and addresses that clients use for the server.
#[derive(Clone, Debug)]
pub struct CertificateSecret {
    pub namespace: String,
    pub name: String,
    pub server_names: Vec<String>,
}

impl CertificateSecret {
    fn plan(&self, found: Option<&Secret>, now: Timestamp) -> Result<SecretPlan, issue::CertificateError> {
        let wanted = WantedSecret { namespace: &self.namespace, name: &self.name, server_names: &self.server_names };
        plan(found, wanted, now)
    }
}

/// Last observed Secret; the outer None before the first list is complete, the inner None if the Secret does not exist.
type SeenSecret = Option<Option<Secret>>;

/// Serves the certificate in the Secret, and creates and renews it. Cheap to clone.
#[derive(Clone)]
pub struct CertificateKeeper {
    wanted: CertificateSecret,
    seen: watch::Sender<SeenSecret>,
    served: ReloadingCertificate,
}

impl CertificateKeeper {
    pub fn new(wanted: CertificateSecret) -> Self {
        Self { wanted, seen: watch::Sender::new(None), served: ReloadingCertificate::default() }
    }

    /// Certificate of new TLS connections.
    pub fn served(&self) -> ReloadingCertificate {
        self.served.clone()
    }

    /// Watches the Secret until `stop`. Runs on every replica.
    pub async fn follow(self, client: Client, stop: CancellationToken) {
        let api: Api<Secret> = Api::namespaced(client, &self.wanted.namespace);
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.wanted.name));
        let mut events = std::pin::pin!(watcher(api, only).default_backoff());
        let mut listed = None;
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => event,
            };
            match event {
                Some(Ok(Event::Init)) => listed = None,
                Some(Ok(Event::InitApply(secret))) => listed = Some(secret),
                Some(Ok(Event::InitDone)) => self.take(listed.take()),
                Some(Ok(Event::Apply(secret))) => self.take(Some(secret)),
                Some(Ok(Event::Delete(_))) => self.take(None),
                Some(Err(error)) => {
                    warn!(%error, name = self.wanted.name, "the certificate's Secret cannot be watched")
                }
                None => return,
            }
        }
    }

    fn take(&self, secret: Option<Secret>) {
        match self.wanted.plan(secret.as_ref(), Timestamp::now()) {
            Ok(plan) => {
                if let SecretPlan::Wait(blocked) = &plan {
                    warn!(%blocked, "the certificate cannot be served");
                }
                if let Some(usable) = plan.usable() {
                    match self.served.replace(&usable.pair) {
                        Ok(()) => info!(expires = %usable.expires, ours = usable.is_ours, "serving a certificate"),
                        Err(flaw) => warn!(%flaw, "the certificate cannot be served"),
                    }
                }
            }
            Err(error) => warn!(%error, "no certificate can be made"),
        }
        self.seen.send_replace(Some(secret));
    }

    /// Creates the Secret, and renews the operator's own certificate, until this replica loses the lease. Runs on the
    /// leader.
    pub async fn renew(self, writer: Writer) {
        let mut seen = self.seen.subscribe();
        loop {
            let pause = self.look(&writer, &mut seen).await;
            tokio::select! {
                () = writer.fenced() => return,
                changed = seen.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Writes the Secret if necessary, and returns the delay before the next check if the Secret does not change.
    async fn look(&self, writer: &Writer, seen: &mut watch::Receiver<SeenSecret>) -> Duration {
        let known = seen.borrow_and_update().clone();
        let longest = MAX_PAUSE.unsigned_abs();
        let Some(known) = known else { return longest };
        let now = Timestamp::now();
        let plan = match self.wanted.plan(known.as_ref(), now) {
            Ok(plan) => plan,
            Err(error) => {
                warn!(%error, "no certificate can be made");
                return longest;
            }
        };
        if let Some(write) = plan.write()
            && let Err(error) = self.write(writer, known.is_none(), write).await
        {
            warn!(%error, name = self.wanted.name, "the certificate's Secret cannot be written");
            return RETRY;
        }
        let due = plan.next_look().map(|due| due.duration_since(now).clamp(SignedDuration::from_secs(1), MAX_PAUSE));
        due.map_or(longest, |due| due.unsigned_abs())
    }

    async fn write(&self, writer: &Writer, is_new: bool, write: &SecretWrite) -> Result<(), Error> {
        let api = writer.api::<Secret>(&self.wanted.namespace);
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let sent = async {
            if is_new {
                writer.call(api.create(&params, &write.secret)).await
            } else {
                writer.call(api.replace(&self.wanted.name, &params, &write.secret)).await
            }
        };
        match writer.counted("WriteCertificate", sent).await {
            Ok(_) => {
                if write.is_new_ca {
                    warn!(reason = %write.reason, "created a new CA: copy ca.crt of the Secret to kube-scheduler");
                } else {
                    info!(reason = %write.reason, "the certificate was renewed");
                }
                Ok(())
            }
            // Another replica was faster; the watch delivers its write.
            Err(Error::Conflict(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
