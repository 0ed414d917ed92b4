//! Owner references of objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use ganglion_api::identity::Uid;

/// Whether an owner reference has this uid.
pub fn is_owned(owners: Option<&Vec<OwnerReference>>, uid: &Uid) -> bool {
    owners.is_some_and(|owners| owners.iter().any(|owner| *uid == *owner.uid))
}
