//! The operators that may carry out the actions of a drain, as their leases show them.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;

use ganglion_api::marks;
use ganglion_core::layout::age;

/// Time after which an operator that runs has seen each action that it works on.
const UNSEEN: SignedDuration = SignedDuration::from_secs(20);

/// Namespaces in which the operators of these leases work. None: all, or it is not known.
pub fn working_namespaces(leases: &[Lease]) -> Option<BTreeSet<&str>> {
    let mut all = BTreeSet::new();
    for lease in leases {
        let namespaces = lease.metadata.annotations.as_ref()?.get(marks::NAMESPACES)?;
        all.extend(namespaces.split(','));
    }
    (!all.is_empty()).then_some(all)
}

/// Why no operator has seen an action since this time, as text; None if that is not unusual yet. `leases` are those
/// with the name.
pub fn unseen_words(leases: &[Lease], name: &str, since: Timestamp, now: Timestamp) -> Option<String> {
    // An operator whose lease has another name sees the action at once.
    if leases.is_empty() && now <= since {
        return None;
    }
    let mut states = Vec::new();
    for lease in leases {
        let namespace = lease.metadata.namespace.as_deref().unwrap_or_default();
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
        let Some((holder, renewed)) = holder.zip(spec.renew_time) else {
            states.push(format!("released in namespace {namespace}"));
            continue;
        };
        let lasts = SignedDuration::from_secs(i64::from(spec.lease_duration_seconds.unwrap_or(0)));
        if now <= renewed.0.checked_add(lasts).unwrap_or(Timestamp::MAX) {
            let is_late = now.duration_since(since) > UNSEEN;
            return is_late.then(|| {
                format!(
                    "operator {holder}, which holds the lease {name}, has not seen an action of this drain for more \
                     than {UNSEEN:#}; the drain waits for it. Check it: kubectl get pods -n {namespace}"
                )
            });
        }
        states.push(format!("last renewed in namespace {namespace} {} ago", age(renewed.0, now)));
    }
    let state = if states.is_empty() { "there is none".to_owned() } else { states.join(", ") };
    Some(format!("no operator holds the lease {name} ({state}), so no replica moves until an operator runs"))
}
