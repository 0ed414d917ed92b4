//! Upgrades and downgrades between the current version and each one in `hack/releases`, with work in flight, and with
//! CRDs of another version. `hack/test upgrades` builds the former versions and runs these stories.

mod definitions;
mod flight;
mod rolling;
mod steps;
mod stored;

use std::collections::BTreeMap;
use std::fs;

use anyhow::Result;
use ganglion_api::marks;
use serde_json::Value;
use testkit::block_on;
use testkit::former::OperatorVersion;
use testkit::plane::{NODES, OwnPlane, Plane};

/// Direction of a change of the version.
struct VersionChange {
    name: String,
    from: OperatorVersion,
    to: OperatorVersion,
}

/// The upgrade from each former version, and the downgrade to it.
fn changes() -> Vec<VersionChange> {
    let all = async {
        let current = OperatorVersion::current()?;
        let former = OperatorVersion::former().await?;
        let mut changes = Vec::new();
        for former in former {
            counts_policies(&former, &current)?;
            let name = former.name.replace('.', "-");
            let (from, to) = (former.clone(), current.clone());
            changes.push(VersionChange { name: format!("up-{name}"), from, to });
            changes.push(VersionChange { name: format!("down-{name}"), from: current.clone(), to: former });
        }
        anyhow::Ok(changes)
    };
    block_on(all).unwrap_or_else(|error| panic!("{error:#}"))
}

/// Refuses changed policies with the version number of the former ones. A running operator takes them for edited ones,
/// and stops acting.
fn counts_policies(former: &OperatorVersion, current: &OperatorVersion) -> Result<()> {
    let (before, now) = (policies(former)?, policies(current)?);
    for (name, (version, digest)) in &before {
        let Some((_, other)) = now.get(name).filter(|(later, other)| later == version && other != digest) else {
            continue;
        };
        anyhow::bail!(
            "policy {name} has changed since version {}, from {digest} to {other}, and both say {version}: raise the \
             version in Cargo.toml",
            former.name
        );
    }
    Ok(())
}

/// Version and digest of each admission policy, as its annotations say.
fn policies(version: &OperatorVersion) -> Result<BTreeMap<String, (Value, Value)>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(version.base.join("admission.yaml"))?)?;
    let annotated = documents.into_iter().filter(|one| one["kind"] == "ValidatingAdmissionPolicy").map(|one| {
        let annotation = |mark: &str| one["metadata"]["annotations"][mark].clone();
        let name = one["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        (name, (annotation(marks::POLICY_VERSION), annotation(marks::POLICY_DIGEST)))
    });
    Ok(annotated.collect())
}

/// A plane with the manifests of this version.
fn plane(name: &str, version: &OperatorVersion) -> OwnPlane {
    let own: Result<OwnPlane> = block_on(Plane::own_with(name, NODES, &version.base));
    own.unwrap_or_else(|error| panic!("a plane with version {}: {error:#}", version.name))
}
