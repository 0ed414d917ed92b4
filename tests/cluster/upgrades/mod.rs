//! Upgrades and downgrades between the current version and each one in `hack/releases`, with work in flight, and with
//! CRDs of another version. `hack/test upgrades` builds the former versions and runs these stories.

mod definitions;
mod flight;
mod rolling;
mod steps;
mod stored;

use anyhow::Result;
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
        let mut changes = Vec::new();
        for former in OperatorVersion::former().await? {
            let name = former.name.replace('.', "-");
            let (from, to) = (former.clone(), current.clone());
            changes.push(VersionChange { name: format!("up-{name}"), from, to });
            changes.push(VersionChange { name: format!("down-{name}"), from: current.clone(), to: former });
        }
        anyhow::Ok(changes)
    };
    block_on(all).unwrap_or_else(|error| panic!("{error:#}"))
}

/// A plane with the manifests of this version.
fn plane(name: &str, version: &OperatorVersion) -> OwnPlane {
    let own: Result<OwnPlane> = block_on(Plane::own_with(name, NODES, &version.base));
    own.unwrap_or_else(|error| panic!("a plane with version {}: {error:#}", version.name))
}
