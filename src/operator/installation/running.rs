//! The running operator: its namespace, Deployment, settings, lease and budget. Pure.

use std::cmp::Ordering;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;

use super::APPLY;
use super::facts::{InstallationFacts, LeaseFact, NotRead, OperatorFacts, SettingsFacts, SettingsProblem};
use super::pods::{container, obstacle};
use ganglion_core::check::CheckReport;
use ganglion_core::layout::age;
use ganglion_core::words::quoted;

/// Label that selects a level of the Pod Security Standards, and the level in kustomize/base.
const POD_SECURITY: (&str, &str) = ("pod-security.kubernetes.io/enforce", "restricted");

/// Reports on the running operator.
pub fn report(facts: &InstallationFacts) -> CheckReport {
    let operator = &facts.operator;
    let mut report = CheckReport::on(format!("Operator in namespace {}", operator.namespace));
    add_home(operator, &mut report);
    add_deployment(facts, &mut report);
    add_settings(&operator.settings, &mut report);
    match &operator.lease {
        Ok(lease) => add_lease(operator, lease.as_ref(), facts.now, &mut report),
        Err(error) => error.add_to(&mut report, "lease"),
    }
    match &operator.budgets {
        Ok(budgets) if budgets.is_empty() => report.unsure_with(
            "there is no PodDisruptionBudget of the operator: drains of nodes can evict all replicas at once",
            APPLY,
        ),
        Ok(_) => report.passed("a PodDisruptionBudget limits evictions of the operator"),
        Err(error) => error.add_to(&mut report, "PodDisruptionBudgets"),
    }
    report
}

fn add_home(operator: &OperatorFacts, report: &mut CheckReport) {
    let name = &operator.namespace;
    if !operator.elsewhere.is_empty() {
        report.unsure_with(
            format!("a Deployment of the operator is also in {}", operator.elsewhere.join(", ")),
            "check each one with -n; two operators that work in the same namespaces disturb each other",
        );
    }
    let home = match &operator.home {
        Ok(Some(home)) => home,
        Ok(None) => {
            report.failed_with(format!("there is no namespace {name}"), APPLY);
            return add_rights_to_install(operator, report);
        }
        Err(error) => return error.add_to(report, &format!("Namespace {name}")),
    };
    let (label, level) = POD_SECURITY;
    let found = home.metadata.labels.as_ref().and_then(|labels| labels.get(label));
    if home.metadata.deletion_timestamp.is_some() {
        report.failed_with(
            format!("namespace {name} is being deleted"),
            format!("wait until `kubectl get namespace {name}` does not find it, then {APPLY}"),
        );
    } else if found.is_some_and(|found| found == level) {
        report.passed(format!("the namespace enforces the Pod Security Standard {level}"));
    } else {
        let found = found.map_or_else(|| "none".to_owned(), |found| quoted(found));
        report.unsure_with(
            format!("the namespace enforces the Pod Security Standard {found}, not {level}"),
            format!("kubectl label namespace {name} --overwrite {label}={level}"),
        );
    }
}

/// Says before an installation what the user may not create.
fn add_rights_to_install(operator: &OperatorFacts, report: &mut CheckReport) {
    match &operator.not_permitted {
        Ok(missing) if missing.is_empty() => report.passed("you may create what an installation consists of"),
        Ok(missing) => report.unsure_with(
            format!("you may not {}", missing.join(", ")),
            "let an administrator of the cluster apply the manifests; kubectl refuses them otherwise, and what it has \
             created until then remains",
        ),
        Err(error) => error.add_to(report, "your permissions to install"),
    }
}

fn add_deployment(facts: &InstallationFacts, report: &mut CheckReport) {
    let namespace = &facts.operator.namespace;
    let deployment = match &facts.operator.deployment {
        Ok(Some(deployment)) => deployment,
        Ok(None) if is_led(&facts.operator, facts.now) => {
            return report.unsure_with(
                "an operator holds the lease, and no Deployment in this namespace runs it",
                "if it runs on another machine (`ganglion run --kubeconfig`), check that it is meant to; otherwise name its \
                 namespace with -n",
            );
        }
        Ok(None) => {
            return report.failed_with(
                "there is no Deployment of the operator in this namespace",
                format!("{APPLY}; if it runs in another namespace, name that one with -n"),
            );
        }
        Err(error) => return error.add_to(report, "Deployment of the operator"),
    };
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    let (cause, advice) = match facts.operator.pods.as_ref().map(|pods| obstacle(deployment, pods)) {
        Ok(Some(found)) => (format!(": {}", found.words), found.advice),
        Ok(None) => (String::new(), look(namespace, name)),
        Err(NotRead::Forbidden(refused) | NotRead::Failed(refused)) => {
            (format!("; its pods were not read: {refused}"), look(namespace, name))
        }
    };
    match (wanted, ready) {
        (0, _) => report.failed_with(
            format!("Deployment {name} is scaled to 0: nobody acts"),
            format!("kubectl scale -n {namespace} deployment/{name} --replicas=2"),
        ),
        (wanted, 0) => {
            report.failed_with(format!("Deployment {name}: none of {wanted} replicas is ready{cause}"), advice)
        }
        (wanted, ready) if ready < wanted => {
            report.unsure_with(format!("Deployment {name}: {ready} of {wanted} replicas are ready{cause}"), advice);
        }
        (1, _) => report.unsure_with(
            format!("Deployment {name} has one replica: nobody acts or answers kube-scheduler while it restarts"),
            format!("kubectl scale -n {namespace} deployment/{name} --replicas=2, or set replicas in your overlay"),
        ),
        (wanted, _) => report.passed(format!("Deployment {name}: {wanted} of {wanted} replicas are ready")),
    }
    add_image(deployment, report);
}

/// Commands that show why pods are not ready.
fn look(namespace: &str, deployment: &str) -> String {
    let pods = "-l app.kubernetes.io/name=ganglion";
    format!("kubectl describe pods -n {namespace} {pods}; kubectl logs -n {namespace} deployment/{deployment}")
}

/// Namespaces that the Deployment names in the variable of the component single-namespace; empty: all.
pub fn watched(deployment: &Deployment) -> Vec<String> {
    let variables = container(deployment).and_then(|container| container.env.as_ref());
    let value = variables.into_iter().flatten().find(|one| one.name == "GANGLION_WATCH_NAMESPACE");
    split(value.and_then(|one| one.value.as_deref()).unwrap_or_default())
}

/// Names in a list that is separated by commas.
pub fn split(names: &str) -> Vec<String> {
    names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Numbers of a version such as `0.1.0` or `v0.1.0`.
fn numbers(version: &str) -> Option<Vec<u64>> {
    version.strip_prefix('v').unwrap_or(version).split('.').map(|part| part.parse().ok()).collect()
}

/// Version in the tag of an image.
fn image_version(image: &str) -> Option<Vec<u64>> {
    let without_digest = image.split('@').next().unwrap_or(image);
    let name = without_digest.rsplit('/').next().unwrap_or(without_digest);
    numbers(name.split_once(':')?.1)
}

fn add_image(deployment: &Deployment, report: &mut CheckReport) {
    let image = container(deployment).and_then(|container| container.image.as_deref()).unwrap_or_default();
    let own = env!("CARGO_PKG_VERSION");
    let order = image_version(image).zip(numbers(own)).map(|(image, own)| image.cmp(&own));
    match order {
        Some(Ordering::Equal) => report.passed(format!("image {image} is of the version of this program")),
        Some(Ordering::Greater) => report.unsure_with(
            format!("image {image} is newer than this program, version {own}"),
            "update this program, so that it checks what that version needs",
        ),
        Some(Ordering::Less) => report.unsure_with(
            format!("image {image} is older than this program, version {own}"),
            "update the image in your overlay, and apply it; or check with the program of that version",
        ),
        None => report.unsure_with(
            format!("the tag of image {image} is no version, so it is not compared with this program, version {own}"),
            "compare the versions yourself: the operator logs its own at the start (`started`)",
        ),
    }
}

fn add_settings(facts: &SettingsFacts, report: &mut CheckReport) {
    let Some(source) = &facts.source else { return };
    match &facts.problem {
        None => report.passed(format!("the settings in {source} are valid")),
        Some(SettingsProblem::NotRead(error)) => {
            error.add_to(report, &format!("settings in {source} (the check goes on with the defaults)"));
        }
        Some(SettingsProblem::Missing) => {
            report.failed_with(format!("{source} does not exist, or has no settings: no replica can start"), APPLY);
        }
        Some(SettingsProblem::Invalid(problem)) => report.failed_with(
            format!("the settings in {source} are not valid for version {}: {problem}", env!("CARGO_PKG_VERSION")),
            "mend the file in your overlay, and apply it again; config/settings.yaml lists all settings",
        ),
    }
}

/// Whether somebody holds the lease.
fn is_led(operator: &OperatorFacts, now: Timestamp) -> bool {
    let lease = operator.lease.as_ref().ok().and_then(Option::as_ref);
    lease.is_some_and(|lease| lease.holder.is_some() && lease.is_current(now))
}

impl LeaseFact {
    /// Whether the holder renews it: by the clock of this machine, or because it was seen to.
    pub fn is_current(&self, now: Timestamp) -> bool {
        self.was_renewed
            || self.renewed.is_some_and(|renewed| now.duration_since(renewed).as_secs().abs() <= self.seconds)
    }
}

fn add_lease(operator: &OperatorFacts, lease: Option<&LeaseFact>, now: Timestamp, report: &mut CheckReport) {
    let namespace = &operator.namespace;
    let logs = format!("look at the operator: kubectl logs -n {namespace} -l app.kubernetes.io/name=ganglion");
    let Some(lease) = lease else {
        let name = &operator.settings.settings.lease.name;
        return report.failed_with(format!("there is no Lease {name}: no operator has ever acted"), logs);
    };
    let name = &lease.name;
    let Some(holder) = &lease.holder else {
        return report.failed_with(format!("nobody holds Lease {name}: no operator acts"), logs);
    };
    let since = lease.renewed.map_or_else(|| "never".to_owned(), |renewed| format!("{} ago", age(renewed, now)));
    if !lease.is_current(now) {
        return report
            .failed_with(format!("{holder} holds Lease {name}, and renewed it {since}: no operator acts"), logs);
    }
    let is_in_time = lease.renewed.is_some_and(|renewed| now.duration_since(renewed).as_secs().abs() <= lease.seconds);
    if is_in_time {
        report.passed(format!("{holder} holds Lease {name}, and renewed it {since}"));
    } else {
        report.passed(format!(
            "{holder} holds Lease {name}, and renews it; its clock differs from the one of this machine"
        ));
    }
    match &lease.namespaces {
        None => report.passed("the operator works in all namespaces"),
        Some(namespaces) => report.passed(format!("the operator works in {}", split(namespaces).join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("ganglion:0.1.0", Some(vec![0, 1, 0]))]
    #[case("registry.example:5000/team/ganglion:v1.20.3@sha256:00", Some(vec![1, 20, 3]))]
    #[case("registry.example:5000/team/ganglion", None)]
    #[case("ganglion@sha256:00", None)]
    #[case("ganglion:latest", None)]
    fn the_version_of_an_image_is_its_tag(#[case] image: &str, #[case] expected: Option<Vec<u64>>) {
        assert_eq!(image_version(image), expected);
    }

    #[test]
    fn a_lease_is_current_by_the_clock_or_by_being_renewed() {
        let now: Timestamp = "2026-11-01T12:00:00Z".parse().unwrap();
        let lease = |seconds: i64, was_renewed: bool| LeaseFact {
            name: "ganglion".to_owned(),
            holder: Some("a".to_owned()),
            renewed: Some(Timestamp::from_second(now.as_second() - seconds).unwrap()),
            seconds: 15,
            namespaces: None,
            was_renewed,
        };
        assert!(lease(3, false).is_current(now) && lease(-3, false).is_current(now));
        assert!(!lease(16, false).is_current(now) && !lease(-16, false).is_current(now));
        assert!(lease(3600, true).is_current(now) && lease(-3600, true).is_current(now));
    }
}
