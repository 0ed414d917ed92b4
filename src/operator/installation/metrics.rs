//! APIs with metrics that other servers provide, and Prometheus. Pure.

use super::facts::{InstallationFacts, NotRead, PrometheusFacts};
use ganglion_core::check::CheckReport;
use ganglion_core::metrics_api::{CUSTOM_METRICS, EXTERNAL_METRICS, MetricsApi, RESOURCE_METRICS};
use ganglion_core::words::counted;

/// An API with metrics, and the effect of its absence.
pub struct CheckedApi {
    pub api: MetricsApi,
    without: &'static str,
    /// Addition to the advice to install a server.
    condition: &'static str,
}

/// All of them.
pub const APIS: [CheckedApi; 3] = [
    CheckedApi {
        api: RESOURCE_METRICS,
        without: "sources `resource` of loops, NodeConfigs of type MetricsServer, and expressions of actions about the usage \
            of nodes have no values",
        condition: ", unless nothing needs it",
    },
    CheckedApi {
        api: CUSTOM_METRICS,
        without: "sources `custom` of loops have no values, and HorizontalPodAutoscalers cannot scale by metrics of objects",
        condition: ", if loops or autoscalers need it",
    },
    CheckedApi {
        api: EXTERNAL_METRICS,
        without: "sources `external` of loops have no values, and HorizontalPodAutoscalers cannot scale by values of nodes",
        condition: ", if loops or autoscalers need it; config/prometheus-adapter/rules.yaml has rules for values of nodes",
    },
];

/// Number of URLs of loops that are named.
const NAMED: usize = 5;

/// Reports on each API.
pub fn report(facts: &InstallationFacts) -> CheckReport {
    let mut report = CheckReport::on("Metrics APIs");
    for checked in &APIS {
        let api = &checked.api;
        match &facts.api_services {
            Ok(services) => {
                let own: Vec<_> = services.iter().filter(|service| service.group == api.group).collect();
                let problem = own.iter().find_map(|service| service.problem.clone());
                let is_available = own.iter().any(|service| service.problem.is_none());
                add(checked, !own.is_empty(), problem.filter(|_| !is_available), &mut report);
            }
            Err(error) => add_discovered(checked, facts, error, &mut report),
        }
    }
    report
}

fn add(checked: &CheckedApi, is_registered: bool, problem: Option<String>, report: &mut CheckReport) {
    let CheckedApi { api: MetricsApi { group, install, .. }, without, condition } = checked;
    match problem {
        _ if !is_registered => report.unsure_with(format!("{group} is not served: {without}"), format!("{install}{condition}")),
        None => report.passed(format!("{group} is served and available")),
        Some(problem) => report.failed_with(
            format!("{group} is registered, and not available: {problem}"),
            format!(
                "kubectl get apiservices shows its server: mend that, or delete the APIService; while it is not available, \
                 namespaces cannot be deleted, and {without}"
            ),
        ),
    }
}

/// Adds the API by discovery, which each user may do.
fn add_discovered(checked: &CheckedApi, facts: &InstallationFacts, error: &NotRead, report: &mut CheckReport) {
    let api = &checked.api;
    let answers: Vec<_> = api.versions.iter().filter_map(|version| facts.served.get(version)).collect();
    if answers.iter().any(|answer| matches!(answer, Ok(Some(_)))) {
        return report.passed(format!("{} is served", api.group));
    }
    match answers.iter().find_map(|answer| answer.as_ref().err()) {
        None if answers.is_empty() => error.add_to(report, api.group),
        None => add(checked, false, None, report),
        Some(error) => error.add_to(report, api.group),
    }
}

/// Reports on Prometheus.
pub fn prometheus(facts: &InstallationFacts) -> CheckReport {
    let mut report = CheckReport::on("Prometheus");
    let PrometheusFacts { queried, named } = &facts.prometheus;
    match queried {
        Some((url, Ok(()))) => report.passed(format!("{url} answers a query from here")),
        Some((url, Err(why))) => report.failed_with(
            format!("{url} does not answer a query from here: {why}"),
            "check the URL, without /api/v1, and whether this machine reaches it; the operator may reach other addresses",
        ),
        None => {}
    }
    match named {
        Err(error) => error.add_to(&mut report, "URLs that loops name"),
        Ok(named) if named.is_empty() && queried.is_none() => report.unsure_with(
            "not checked: no loop names a server",
            "name its URL with --prometheus to send one query from here",
        ),
        Ok(named) => {
            let own = queried.as_ref().map(|(url, _)| url.trim_end_matches('/'));
            let others = named.iter().filter(|(url, _)| Some(url.trim_end_matches('/')) != own);
            for (url, metrics) in others.clone().take(NAMED) {
                report.unsure_with(
                    format!("{url}, which {} of loops use: not checked", counted(*metrics as u64, "metric")),
                    "name a URL with --prometheus to send one query from here; the conditions of the loops show what the \
                     operator gets",
                );
            }
            if others.clone().count() > NAMED {
                report.unsure_with(
                    format!("{} more servers: not checked", others.count() - NAMED),
                    "the conditions of the loops show what the operator gets",
                );
            }
        }
    }
    report
}
