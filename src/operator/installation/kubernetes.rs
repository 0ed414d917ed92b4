//! The version of Kubernetes, and the features that depend on it. One table has them all. Pure.

use super::facts::{InstallationFacts, NotRead};
use ganglion_core::check::CheckReport;

/// Oldest and newest minor version of Kubernetes 1 that the tests of Ganglion cover.
pub const SUPPORTED: (u32, u32) = (30, 37);

/// API version of admission policies.
const ADMISSION: &str = "admissionregistration.k8s.io/v1";

/// API versions whose resources [`FEATURES`] name.
pub const DISCOVERED: [&str; 2] = ["v1", ADMISSION];

/// How the check detects a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureSign {
    /// The API server serves this resource of this API version.
    Served(&'static str, &'static str),
    /// The API server has stored the selectable fields of the definitions.
    SelectableFields,
    /// The version of the server: its discovery does not show the feature.
    Version,
}

/// A feature of Kubernetes that Ganglion uses and that not each supported version has.
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    pub name: &'static str,
    /// First minor version that has it by default.
    pub since: u32,
    pub sign: FeatureSign,
    /// Effect of its absence.
    pub without: &'static str,
    pub advice: &'static str,
    /// The operator does not work without it.
    pub is_required: bool,
}

/// All of them, by version. The page on the installation (`kustomize/README.md`) has the same table; a test compares
/// the two.
pub const FEATURES: [Feature; 5] = [
    Feature {
        name: "ValidatingAdmissionPolicy",
        since: 30,
        sign: FeatureSign::Served(ADMISSION, "validatingadmissionpolicies"),
        without: "nobody checks the authors of objects, so the operator reads and does not act",
        advice: "upgrade Kubernetes, or let the API server serve admissionregistration.k8s.io/v1",
        is_required: true,
    },
    Feature {
        name: "field selectors of custom resources",
        since: 31,
        sign: FeatureSign::SelectableFields,
        without: "`kubectl get --field-selector` is refused for kinds of Ganglion",
        advice: "select by labels; after an upgrade of Kubernetes, apply the CRDs again",
        is_required: false,
    },
    Feature {
        name: "`matchLabelKeys` in pod affinity",
        since: 31,
        sign: FeatureSign::Version,
        without: "the API server drops the field from templates, so pods keep away from pods of other revisions, too",
        advice: "use `matchLabelKeys` of topologySpreadConstraints, or upgrade Kubernetes",
        is_required: false,
    },
    Feature {
        name: "in-place resize of pods",
        since: 33,
        sign: FeatureSign::Served("v1", "pods/resize"),
        without: "loops with a rung `resize` for pods are NotSupported",
        advice: "use the rungs `scale` or `patch`, or upgrade Kubernetes",
        is_required: false,
    },
    Feature {
        name: "MutatingAdmissionPolicy",
        since: 36,
        sign: FeatureSign::Served(ADMISSION, "mutatingadmissionpolicies"),
        without: "the components pin-statefulsets and placement-labels cannot be installed",
        advice: "add the scheduling gate ganglion.dev/placement to the templates of StatefulSets, and let a scheduler \
                 read the labels of PlacementPolicies (component scheduler); or upgrade Kubernetes",
        is_required: false,
    },
];

/// Major and minor version of a text such as `v1.36.3` or `v1.30.14-eks-1`.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Minor version of the server; None if it is unknown. A later major version has every feature.
fn minor(facts: &InstallationFacts) -> Option<u32> {
    let (major, minor) = numbers(facts.version.as_ref().ok()?)?;
    Some(if major > 1 { u32::MAX } else { minor })
}

/// Reports the version and each feature.
pub fn report(facts: &InstallationFacts) -> CheckReport {
    let mut report = CheckReport::on("Kubernetes");
    version(facts, &mut report);
    for feature in &FEATURES {
        add_feature(facts, feature, &mut report);
    }
    report
}

fn version(facts: &InstallationFacts, report: &mut CheckReport) {
    let (oldest, newest) = SUPPORTED;
    let version = match &facts.version {
        Ok(version) => version,
        Err(error) => return error.add_to(report, "version of the server"),
    };
    match minor(facts) {
        None => report.unsure_with(
            format!("the server has the version {version}, which is not one of Kubernetes"),
            format!("compare it with the supported versions, Kubernetes 1.{oldest} to 1.{newest}"),
        ),
        Some(number) if number < oldest => report.failed_with(
            format!("the server has the version {version}; Ganglion requires Kubernetes 1.{oldest} or later"),
            format!("upgrade the cluster to Kubernetes 1.{oldest} or later"),
        ),
        Some(number) if number > newest => report.unsure_with(
            format!(
                "the server has the version {version}; Ganglion is tested with Kubernetes 1.{oldest} to 1.{newest}"
            ),
            "look for a newer version of Ganglion, and try it on a test cluster first",
        ),
        Some(_) => report.passed(format!("the server has the version {version}, which Ganglion supports")),
    }
}

/// Whether the cluster has the feature; the error says what is unknown.
fn is_there(facts: &InstallationFacts, feature: &Feature) -> Result<bool, Option<NotRead>> {
    match feature.sign {
        FeatureSign::Served(api_version, resource) => match facts.served.get(api_version) {
            Some(Ok(names)) => Ok(names.as_ref().is_some_and(|names| names.contains(resource))),
            Some(Err(error)) => Err(Some(error.clone())),
            None => Err(None),
        },
        FeatureSign::SelectableFields => {
            let mut is_there = true;
            for (own, stored) in &facts.definitions {
                let Some(stored) = stored.as_ref().map_err(|error| Some(error.clone()))? else { continue };
                let wants = own.spec.versions.iter().any(|version| version.selectable_fields.is_some());
                let versions = stored["spec"]["versions"].as_array();
                let has = versions.is_some_and(|all| all.iter().any(|one| one["selectableFields"].is_array()));
                is_there &= has || !wants;
            }
            Ok(is_there)
        }
        FeatureSign::Version => match minor(facts) {
            Some(number) => Ok(number >= feature.since),
            None => Err(None),
        },
    }
}

fn add_feature(facts: &InstallationFacts, feature: &Feature, report: &mut CheckReport) {
    let Feature { name, since, without, advice, is_required, .. } = feature;
    match is_there(facts, feature) {
        Ok(true) => report.passed(*name),
        Ok(false) => {
            let message = format!("{name}: missing (Kubernetes 1.{since} or later has it): {without}");
            if *is_required { report.failed_with(message, *advice) } else { report.unsure_with(message, *advice) }
        }
        Err(Some(error)) => error.add_to(report, name),
        Err(None) => report.unsure_with(
            format!("{name}: unknown, since the version of the server is"),
            format!("Kubernetes 1.{since} or later has it; without it, {without}"),
        ),
    }
}
