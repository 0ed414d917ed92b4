//! Plans the Secret with the server's certificate: use, create, renew, or leave it to its owner.
//!
//! The key of the CA is in a Secret of its own; plans are made from both together ([`joined`], [`divided`]).
//!
//! Owns the layout of the Secrets, and the rule that only a Secret of ours is ever written. Sends no requests: the
//! caller writes the plan, and serves only stored certificates, since another replica may have been faster.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use thiserror::Error;

use super::issue::{self, CertificateError, CertificateFlaw, CertificateState, Issued, Pair};

/// Label, and its value, that marks a Secret as ours.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "ganglion");

/// Annotation of cert-manager on the Secrets that it writes. cert-manager does not remove our label from them.
const CERT_MANAGER: &str = "cert-manager.io/certificate-name";

const SECRET_TYPE: &str = "kubernetes.io/tls";
const CA_CRT: &str = "ca.crt";
const CA_KEY: &str = "ca.key";
const TLS_CRT: &str = "tls.crt";
const TLS_KEY: &str = "tls.key";

/// Name of the Secret, and the names and addresses that clients use for the server.
#[derive(Clone, Copy, Debug)]
pub struct WantedSecret<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub server_names: &'a [String],
}

/// Action for the Secret.
#[derive(Clone, Debug, PartialEq)]
pub enum SecretPlan {
    /// Serve its certificate.
    Use(Usable),
    /// Serve its certificate until the replacement is stored.
    UseAndReplace(Usable, SecretWrite),
    /// The Secret does not exist.
    Create(SecretWrite),
    /// The Secret is ours and not usable.
    Replace(SecretWrite),
    /// The Secret belongs to another owner and is not usable. Keep serving the current certificate until the Secret
    /// changes.
    Wait(Blocked),
}

impl SecretPlan {
    /// Stored certificate, if it can be served.
    pub fn usable(&self) -> Option<&Usable> {
        match self {
            Self::Use(usable) | Self::UseAndReplace(usable, _) => Some(usable),
            Self::Create(_) | Self::Replace(_) | Self::Wait(_) => None,
        }
    }

    /// Secret to write, if any.
    pub fn write(&self) -> Option<&SecretWrite> {
        match self {
            Self::UseAndReplace(_, write) | Self::Create(write) | Self::Replace(write) => Some(write),
            Self::Use(_) | Self::Wait(_) => None,
        }
    }

    /// Time to plan again if the Secret does not change; None if only a change can help.
    pub fn next_look(&self) -> Option<Timestamp> {
        self.usable().map(|usable| usable.next_look)
    }
}

/// Stored certificate that can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usable {
    pub pair: Pair,
    pub expires: Timestamp,
    /// Reason to replace it, if any: [`Reason::Due`] or [`Reason::NotYetValid`].
    pub warning: Option<Reason>,
    /// The operator renews it; otherwise its owner must.
    pub is_ours: bool,
    /// Next change of its state over time: renewal, start of validity, or expiry.
    pub next_look: Timestamp,
}

impl Usable {
    /// Whether its renewal is overdue: two thirds of its validity have passed.
    pub fn expires_soon(&self) -> bool {
        self.warning == Some(Reason::Due)
    }
}

/// Name of the Secret with the key of the CA.
pub fn ca_name(name: &str) -> String {
    format!("{name}-ca")
}

/// Whether this Secret of ours contains the key of the CA, as earlier versions of the operator wrote it.
pub fn exposes_ca(secret: &Secret) -> bool {
    is_ours(secret) && !bytes(secret, CA_KEY).is_empty()
}

/// The Secret together with the key of its CA, if the other Secret contains it.
#[must_use]
pub fn joined(mut secret: Secret, ca: Option<&Secret>) -> Secret {
    let Some(ca) = ca.filter(|ca| is_ours(ca) && bytes(ca, CA_CRT) == bytes(&secret, CA_CRT)) else { return secret };
    secret.data.get_or_insert_default().insert(CA_KEY.to_owned(), ByteString(bytes(ca, CA_KEY).to_vec()));
    secret
}

/// Divides a Secret into the one that is served, without the key of the CA, and the one with that key. The served
/// Secret may be mounted, copied or shown to those who configure schedulers; who has the key can issue certificates.
/// `stored` is the second one as stored; None if that belongs to another owner.
pub fn divided(mut secret: Secret, stored: Option<&Secret>) -> Option<(Secret, Secret)> {
    let key = secret.data.as_mut().and_then(|data| data.remove(CA_KEY))?;
    let data =
        BTreeMap::from([(CA_CRT.to_owned(), ByteString(bytes(&secret, CA_CRT).to_vec())), (CA_KEY.to_owned(), key)]);
    let metadata = match stored {
        Some(stored) if !is_ours(stored) => return None,
        Some(stored) => ObjectMeta { managed_fields: None, ..stored.metadata.clone() },
        None => ours(&secret.metadata.namespace.clone().unwrap_or_default(), &ca_name(&secret.name_any())),
    };
    Some((secret, Secret { metadata, data: Some(data), ..Secret::default() }))
}

/// Metadata of a Secret of ours.
fn ours(namespace: &str, name: &str) -> ObjectMeta {
    let (label, value) = MANAGED_BY;
    ObjectMeta {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        labels: Some(BTreeMap::from([(label.to_owned(), value.to_owned())])),
        ..ObjectMeta::default()
    }
}

/// Secret to write, with details for the log.
#[derive(Clone, PartialEq)]
pub struct SecretWrite {
    /// Contains the key of the CA: [`divided`] before it is written. Carries uid and resourceVersion of the Secret that
    /// it replaces, as preconditions.
    pub secret: Box<Secret>,
    pub reason: Reason,
    /// The CA is new: clients refuse the server until they receive the new `ca.crt`.
    pub is_new_ca: bool,
}

impl fmt::Debug for SecretWrite {
    /// Omits data and annotations: both may contain the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { secret, reason, is_new_ca } = self;
        let mut shown = f.debug_struct("SecretWrite");
        shown.field("name", &secret.metadata.name).field("reason", reason).field("is_new_ca", is_new_ca);
        shown.finish_non_exhaustive()
    }
}

/// Defect of a stored certificate.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Reason {
    #[error("the Secret does not exist")]
    Missing,
    #[error("two thirds of the validity have passed")]
    Due,
    #[error("the certificate is not valid yet")]
    NotYetValid,
    #[error("the certificate has expired")]
    Expired,
    #[error(transparent)]
    Flawed(#[from] CertificateFlaw),
}

/// An unusable Secret of another owner. Its text says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    pub namespace: String,
    pub name: String,
    pub reason: Reason,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, name, reason } = self;
        write!(
            f,
            "Secret {namespace}/{name} is not usable, and the operator does not manage it: {reason}; \
             replace its certificate, or delete the Secret to let the operator create one"
        )
    }
}

/// Plans the action for the stored Secret.
pub fn plan(secret: Option<&Secret>, wanted: WantedSecret<'_>, now: Timestamp) -> Result<SecretPlan, CertificateError> {
    let Some(secret) = secret else { return Ok(SecretPlan::Create(created(wanted, now)?)) };
    let pair = pair(secret, TLS_CRT, TLS_KEY);
    if is_ours(secret) { of_ours(secret, pair, wanted, now) } else { Ok(of_others(pair, wanted, now)) }
}

/// Whether the operator may change the Secret.
pub fn is_ours(secret: &Secret) -> bool {
    let (label, value) = MANAGED_BY;
    let labelled = secret.metadata.labels.as_ref().and_then(|labels| labels.get(label));
    let issued_into = secret.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(CERT_MANAGER));
    labelled.is_some_and(|found| found == value) && !issued_into && secret.immutable != Some(true)
}

/// Plan for a Secret of ours: renewed in time, and replaced when it is not usable.
fn of_ours(
    secret: &Secret,
    pair: Pair,
    wanted: WantedSecret<'_>,
    now: Timestamp,
) -> Result<SecretPlan, CertificateError> {
    // Clients read the CA from the Secret: without it, the certificate is not usable.
    let ca = bytes(secret, CA_CRT);
    let state = issue::state(&pair, Some(ca), wanted.server_names, now);
    let replaced = |reason| replaced(secret, wanted, now, reason);
    let usable = |expires, warning, next_look| Usable { pair, expires, warning, is_ours: true, next_look };
    Ok(match state {
        CertificateState::Good { renew, expires } => SecretPlan::Use(usable(expires, None, renew)),
        CertificateState::RenewSoon { expires } => {
            SecretPlan::UseAndReplace(usable(expires, Some(Reason::Due), expires), replaced(Reason::Due)?)
        }
        CertificateState::NotYetValid { from, expires } => {
            let write = replaced(Reason::NotYetValid)?;
            SecretPlan::UseAndReplace(usable(expires, Some(Reason::NotYetValid), from), write)
        }
        CertificateState::Expired => SecretPlan::Replace(replaced(Reason::Expired)?),
        CertificateState::Invalid(flaw) => SecretPlan::Replace(replaced(flaw.into())?),
    })
}

/// Plan for a Secret of another owner: used as long as possible, never changed.
fn of_others(pair: Pair, wanted: WantedSecret<'_>, now: Timestamp) -> SecretPlan {
    // Its ca.crt is ignored: it may be absent, and clients may get their trust in another way.
    let state = issue::state(&pair, None, wanted.server_names, now);
    let usable =
        |expires, warning, next_look| SecretPlan::Use(Usable { pair, expires, warning, is_ours: false, next_look });
    let blocked = |reason| {
        let (namespace, name) = (wanted.namespace.to_owned(), wanted.name.to_owned());
        SecretPlan::Wait(Blocked { namespace, name, reason })
    };
    match state {
        CertificateState::Good { renew, expires } => usable(expires, None, renew),
        CertificateState::RenewSoon { expires } => usable(expires, Some(Reason::Due), expires),
        // Clients with a faster clock than ours accept it already.
        CertificateState::NotYetValid { from, expires } => usable(expires, Some(Reason::NotYetValid), from),
        CertificateState::Expired => blocked(Reason::Expired),
        CertificateState::Invalid(flaw) => blocked(flaw.into()),
    }
}

/// Creates the missing Secret.
fn created(wanted: WantedSecret<'_>, now: Timestamp) -> Result<SecretWrite, CertificateError> {
    let issued = issue::issue(wanted.server_names, now, None)?;
    let metadata = ours(wanted.namespace, wanted.name);
    let secret = Secret { metadata, type_: Some(SECRET_TYPE.to_owned()), ..Secret::default() };
    Ok(written(secret, issued, Reason::Missing))
}

/// The Secret with a new certificate, signed by the same CA if possible.
fn replaced(
    secret: &Secret,
    wanted: WantedSecret<'_>,
    now: Timestamp,
    reason: Reason,
) -> Result<SecretWrite, CertificateError> {
    let ca = pair(secret, CA_CRT, CA_KEY);
    let issued = issue::issue(wanted.server_names, now, Some(&ca))?;
    let mut secret = secret.clone();
    // The API server fills in managedFields. The type is immutable, so it stays.
    secret.metadata.managed_fields = None;
    Ok(written(secret, issued, reason))
}

fn written(mut secret: Secret, issued: Issued, reason: Reason) -> SecretWrite {
    let Issued { ca, tls, is_new_ca } = issued;
    let data = secret.data.get_or_insert_default();
    for (key, value) in [(CA_CRT, ca.certificate), (CA_KEY, ca.key), (TLS_CRT, tls.certificate), (TLS_KEY, tls.key)] {
        data.insert(key.to_owned(), ByteString(value));
    }
    SecretWrite { secret: Box::new(secret), reason, is_new_ca }
}

/// A certificate and its key; missing keys of the Secret become empty.
fn pair(secret: &Secret, certificate: &str, key: &str) -> Pair {
    Pair { certificate: bytes(secret, certificate).to_vec(), key: bytes(secret, key).to_vec() }
}

fn bytes<'a>(secret: &'a Secret, key: &str) -> &'a [u8] {
    secret.data.as_ref().and_then(|data| data.get(key)).map_or(&[], |bytes| bytes.0.as_slice())
}

#[cfg(test)]
mod tests;
