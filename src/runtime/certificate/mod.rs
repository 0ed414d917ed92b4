//! The certificate of the operator's HTTPS server, in a Secret. The operator creates and renews it, unless another
//! owner provides it. The key of its CA is in a Secret of its own, which only the leader reads.
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
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::error::Error;
use super::writer::Writer;
use ganglion_core::facts::Key;
use secret::{SecretPlan, WantedSecret, plan};
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
        if (plan.write().is_some() || known.as_ref().is_some_and(secret::exposes_ca))
            && let Err(error) = self.write(writer, known, now).await
        {
            warn!(%error, name = self.wanted.name, "the certificate's Secrets cannot be written");
            return RETRY;
        }
        let due = plan.next_look().map(|due| due.duration_since(now).clamp(SignedDuration::from_secs(1), MAX_PAUSE));
        due.map_or(longest, |due| due.unsigned_abs())
    }

    /// Writes the Secret with the key of the CA, then the served one. Plans with that key: a new certificate of the
    /// same CA needs no change at the clients.
    async fn write(&self, writer: &Writer, known: Option<Secret>, now: Timestamp) -> Result<(), Error> {
        let ca_key = Key::new(&self.wanted.namespace, secret::ca_name(&self.wanted.name));
        let ca = writer.get::<Secret>(&ca_key).await?;
        let is_new = known.is_none();
        let known = known.map(|known| secret::joined(known, ca.as_ref()));
        let plan = self.wanted.plan(known.as_ref(), now).map_err(|error| Error::Malformed(error.to_string()))?;
        let (whole, reason, is_new_ca) = match (plan.write(), known) {
            (Some(write), _) => ((*write.secret).clone(), write.reason.to_string(), write.is_new_ca),
            (None, Some(known)) => (known, "the key of the CA moves to a Secret of its own".to_owned(), false),
            (None, None) => return Ok(()),
        };
        let Some((served, new_ca)) = secret::divided(whole, ca.as_ref()) else {
            let owner = format!("Secret {ca_key} exists and is not the operator's: delete or rename it");
            return Err(Error::Malformed(owner));
        };
        let written = async {
            if ca.as_ref().is_none_or(|ca| ca.data != new_ca.data) {
                self.put(writer, ca.is_none(), &new_ca).await?;
            }
            self.put(writer, is_new, &served).await
        };
        match written.await {
            Ok(()) if is_new_ca => {
                warn!(reason, "created a new CA: copy ca.crt of the Secret to kube-scheduler");
                Ok(())
            }
            Ok(()) => {
                info!(reason, "the certificate's Secret was written");
                Ok(())
            }
            // Another replica was faster; the watch delivers its write.
            Err(Error::Conflict(_) | Error::AlreadyExists(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn put(&self, writer: &Writer, is_new: bool, secret: &Secret) -> Result<(), Error> {
        let api = writer.api::<Secret>(&self.wanted.namespace);
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let sent = async {
            if is_new {
                writer.call(api.create(&params, secret)).await
            } else {
                writer.call(api.replace(&secret.name_any(), &params, secret)).await
            }
        };
        writer.counted("WriteCertificate", sent).await.map(drop)
    }
}
