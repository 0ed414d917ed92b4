//! Owner references of objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// Whether an owner reference has this uid.
pub fn is_owned(owners: Option<&Vec<OwnerReference>>, uid: &str) -> bool {
    owners.is_some_and(|owners| owners.iter().any(|owner| owner.uid == uid))
}
