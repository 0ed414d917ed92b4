//! The scheduler extender: its Service, its endpoints, and its certificate. Pure.

use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::APPLY;
use super::facts::InstallationFacts;
use crate::operator::extender::server_names;
use ganglion_core::check::CheckReport;
use ganglion_core::layout::clock;
use ganglion_runtime::certificate::secret::{SecretPlan, Usable, WantedSecret, plan};

/// End of the name of the Service; an overlay may add a prefix.
const SERVICE: &str = "ganglion-extender";

/// Label of an EndpointSlice: the name of its Service.
const OF_SERVICE: &str = "kubernetes.io/service-name";

/// Reports on the extender.
pub fn report(facts: &InstallationFacts) -> CheckReport {
    let mut report = CheckReport::on("Scheduler extender");
    add_service(facts, &mut report);
    add_certificate(facts, &mut report);
    let namespace = &facts.operator.namespace;
    report.unsure_with(
        "whether kube-scheduler uses the extender: its configuration is a file that no API shows",
        format!(
            "if you use PlacementPolicies: the file of kube-scheduler's option --config has the extender of \
             config/kube-scheduler.yaml, with the address of Service {SERVICE} in namespace {namespace}, the caData of the \
             Secret and nodeCacheCapable: true; the metric ganglion_extender_requests then counts its requests"
        ),
    );
    report
}

fn add_service(facts: &InstallationFacts, report: &mut CheckReport) {
    let services = match &facts.extender.services {
        Ok(services) => services,
        Err(error) => return error.add_to(report, "Services"),
    };
    let name = |service: &Service| service.metadata.name.clone().unwrap_or_default();
    let Some(service) = services.iter().map(name).find(|name| name.contains(SERVICE)) else {
        return report.failed_with(format!("there is no Service {SERVICE}"), APPLY);
    };
    match &facts.extender.slices {
        Err(error) => error.add_to(report, &format!("endpoints of Service {service}")),
        Ok(slices) => match ready_endpoints(slices, &service) {
            0 => report.failed_with(
                format!("Service {service} has no endpoint that is ready: kube-scheduler gets no answer"),
                format!(
                    "look at the pods: kubectl describe pods -n {} -l app.kubernetes.io/name=ganglion",
                    facts.operator.namespace
                ),
            ),
            ready => report.passed(format!("Service {service} has {ready} endpoints that are ready")),
        },
    }
}

/// Number of addresses behind the Service that are ready.
fn ready_endpoints(slices: &[EndpointSlice], service: &str) -> usize {
    let is_of_service = |slice: &&EndpointSlice| {
        let labels = slice.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(OF_SERVICE)).is_some_and(|name| name == service)
    };
    let endpoints = slices.iter().filter(is_of_service).flat_map(|slice| slice.endpoints.iter());
    // No condition means ready.
    endpoints.filter(|one| one.conditions.as_ref().and_then(|all| all.ready) != Some(false)).count()
}

fn add_certificate(facts: &InstallationFacts, report: &mut CheckReport) {
    let placement = &facts.operator.settings.settings.placement;
    let (namespace, name) = (&facts.operator.namespace, &placement.tls_secret);
    if !placement.tls {
        return report.passed("the settings select HTTP: the extender needs no certificate");
    }
    let secret = match &facts.extender.secret {
        Ok(Some(secret)) => secret,
        Ok(None) => {
            return report.failed_with(
                format!("there is no Secret {name} with the certificate of the extender"),
                format!(
                    "the holder of the lease creates it within seconds; if it does not, look at its log: kubectl logs -n \
                     {namespace} -l app.kubernetes.io/name=ganglion"
                ),
            );
        }
        Err(error) => return error.add_to(report, &format!("Secret {name} with the certificate of the extender")),
    };
    let server_names = server_names(placement, namespace);
    let wanted = WantedSecret { namespace, name, server_names: &server_names };
    add_plan(secret, wanted, facts, report);
}

fn add_plan(secret: &Secret, wanted: WantedSecret<'_>, facts: &InstallationFacts, report: &mut CheckReport) {
    let name = wanted.name;
    let renewed = format!(
        "the holder of the lease renews it; if it does not, look at its log: kubectl logs -n {} -l \
         app.kubernetes.io/name=ganglion",
        wanted.namespace
    );
    let advice = |usable: &Usable| {
        if usable.is_ours { renewed.clone() } else { format!("renew the certificate in Secret {name}") }
    };
    match plan(Some(secret), wanted, facts.now) {
        Ok(SecretPlan::Use(usable) | SecretPlan::UseAndReplace(usable, _)) => match &usable.warning {
            None => report.passed(format!("the certificate in Secret {name} is valid until {}", clock(usable.expires))),
            Some(reason) => report.unsure_with(
                format!("the certificate in Secret {name} is valid until {}: {reason}", clock(usable.expires)),
                advice(&usable),
            ),
        },
        Ok(SecretPlan::Replace(write)) => {
            report.failed_with(format!("the certificate in Secret {name} is not usable: {}", write.reason), renewed);
        }
        Ok(SecretPlan::Wait(blocked)) => report.failed_with(
            format!("the certificate in Secret {name} is not usable: {}", blocked.reason),
            "replace its certificate, or delete the Secret to let the operator create one",
        ),
        Ok(SecretPlan::Create(_)) => {}
        Err(error) => report.unsure_with(
            format!("the certificate in Secret {name} is not checked: {error}"),
            "look at the setting placement.serverNames, and at the clock of this machine",
        ),
    }
}
