//! Permissions that the operator's account needs: those of the roles in `kustomize/base`, which this program contains.
//! Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use serde_json::Value;

use super::APPLY;
use super::facts::{InstallationFacts, RequiredRight, RightObject, RightsFacts};
use ganglion_core::check::CheckReport;
use ganglion_runtime::certificate::secret::ca_name;

/// Roles of the base.
const BASE: &str = include_str!("../../../kustomize/base/rbac.yaml");

/// Role for what is not in a namespace, of the component single-namespace.
const SINGLE_NAMESPACE: &str = include_str!("../../../kustomize/components/single-namespace/roles.yaml");

/// Name of the Secret with the certificate in the role of the base.
const TLS_SECRET: &str = "ganglion-extender-tls";

/// Number of missing permissions that are listed.
const LISTED: usize = 20;

/// Number of watched namespaces whose permissions are checked.
pub const MOST_NAMESPACES: usize = 5;

/// Rules of the role of this kind and name.
fn rules(manifests: &str, kind: &str, name: &str) -> Vec<PolicyRule> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(manifests).unwrap_or_default();
    let found = documents.into_iter().find(|one| one["kind"] == kind && one["metadata"]["name"] == name);
    let rules = match kind {
        "Role" => found.and_then(|found| serde_json::from_value::<Role>(found).ok()?.rules),
        _ => found.and_then(|found| serde_json::from_value::<ClusterRole>(found).ok()?.rules),
    };
    rules.unwrap_or_default()
}

/// Each permission of these rules.
fn expand(rules: &[PolicyRule], namespace: Option<&str>) -> Vec<RequiredRight> {
    let mut rights = Vec::new();
    let add = |rights: &mut Vec<RequiredRight>, rule: &PolicyRule, object: RightObject| {
        rights.extend(rule.verbs.iter().map(|verb| RequiredRight {
            namespace: namespace.map(str::to_owned),
            object: object.clone(),
            verb: verb.clone(),
        }));
    };
    for rule in rules {
        // Paths are not in a namespace.
        for path in rule.non_resource_urls.iter().flatten().filter(|_| namespace.is_none()) {
            add(&mut rights, rule, RightObject::Path(path.clone()));
        }
        let names = rule.resource_names.as_ref().filter(|names| !names.is_empty());
        let names: Vec<Option<String>> =
            names.map_or_else(|| vec![None], |names| names.iter().cloned().map(Some).collect());
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for name in &names {
                    let (group, resource, name) = (group.clone(), resource.clone(), name.clone());
                    add(&mut rights, rule, RightObject::Resource { group, resource, name });
                }
            }
        }
    }
    rights
}

/// Permissions that the operator needs if it runs in this namespace, watches these namespaces (none: all), and serves
/// the certificate in this Secret.
pub fn required(namespace: &str, watched: &[String], tls_secret: &str) -> Vec<RequiredRight> {
    let base = rules(BASE, "ClusterRole", "ganglion");
    let mut rights = Vec::new();
    if watched.is_empty() {
        rights.extend(expand(&base, None));
    } else {
        rights.extend(expand(&rules(SINGLE_NAMESPACE, "ClusterRole", "ganglion-nodes"), None));
        for watched in watched.iter().take(MOST_NAMESPACES) {
            rights.extend(expand(&base, Some(watched)));
        }
    }
    let mut own = expand(&rules(BASE, "Role", "ganglion-lease"), Some(namespace));
    for right in &mut own {
        if let RightObject::Resource { name: Some(name), .. } = &mut right.object {
            *name = if name == TLS_SECRET { tls_secret.to_owned() } else { ca_name(tls_secret) };
        }
    }
    rights.extend(own);
    rights
}

/// Reports on the permissions of the operator's account.
pub fn report(facts: &InstallationFacts) -> CheckReport {
    let mut report = CheckReport::on("Permissions of the operator");
    let RightsFacts { account, exists, watched, answers, by_authorizer } = &facts.rights;
    let account = format!("{}/{account}", facts.operator.namespace);
    match exists {
        Ok(true) => report.passed(format!("ServiceAccount {account} exists")),
        Ok(false) => report.failed_with(format!("there is no ServiceAccount {account}"), APPLY),
        Err(error) => error.add_to(&mut report, &format!("ServiceAccount {account}")),
    }
    if watched.len() > MOST_NAMESPACES {
        report.unsure_with(
            format!("permissions in {MOST_NAMESPACES} of {} namespaces are checked", watched.len()),
            "apply kustomize/tenant again in each of the others",
        );
    }
    let answers = match answers {
        Ok(answers) => answers,
        Err(error) => {
            error.add_to(&mut report, "permissions of the account");
            return report;
        }
    };
    let missing: Vec<&RequiredRight> = answers.iter().filter(|(_, holds)| !holds).map(|(right, _)| right).collect();
    if missing.is_empty() {
        let way = if *by_authorizer { "as the API server says" } else { "by its roles" };
        report.passed(format!("the account has all {} permissions of kustomize/base, {way}", answers.len()));
    }
    let missing = grouped(&missing);
    for words in missing.iter().take(LISTED) {
        report.failed_with(format!("the account may not {words}"), APPLY);
    }
    if missing.len() > LISTED {
        report.failed_with(format!("and {} more", missing.len() - LISTED), APPLY);
    }
    report
}

/// One text for each object, with all verbs that are missing.
fn grouped(missing: &[&RequiredRight]) -> Vec<String> {
    let mut verbs: BTreeMap<(&Option<String>, &RightObject), Vec<&str>> = BTreeMap::new();
    for right in missing {
        verbs.entry((&right.namespace, &right.object)).or_default().push(&right.verb);
    }
    let text = |((namespace, object), verbs): ((&Option<String>, &RightObject), Vec<&str>)| {
        let object = match object {
            RightObject::Path(path) => path.clone(),
            RightObject::Resource { group, resource, name } => {
                let group = if group.is_empty() { String::new() } else { format!(".{group}") };
                let name = name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
                format!("{resource}{group}{name}")
            }
        };
        let place = namespace.as_ref().map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
        format!("{} {object}{place}", verbs.join(", "))
    };
    verbs.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(rights: &[RequiredRight], namespace: Option<&str>, resource: &str, name: Option<&str>, verb: &str) -> bool {
        rights.iter().any(|right| {
            let is_it = matches!(&right.object, RightObject::Resource { resource: of, name: called, .. }
                if of == resource && called.as_deref() == name);
            is_it && right.namespace.as_deref() == namespace && right.verb == verb
        })
    }

    #[test]
    fn the_roles_of_the_base_are_required() {
        let rights = required("ops", &[], "certificate");
        assert!(rights.len() > 100, "{}", rights.len());
        assert!(has(&rights, None, "pods/eviction", None, "create"));
        assert!(has(&rights, Some("ops"), "leases", None, "update"));
        assert!(has(&rights, Some("ops"), "secrets", Some("certificate"), "get"));
        assert!(has(&rights, Some("ops"), "secrets", Some("certificate-ca"), "get"));
        let path = RightObject::Path("/ganglion.dev/nodeconfigs".to_owned());
        assert!(rights.iter().any(|right| right.object == path));
    }

    #[test]
    fn an_operator_of_some_namespaces_needs_the_rights_there() {
        let watched: Vec<String> = (0..9).map(|number| format!("ns{number}")).collect();
        let rights = required("ops", &watched, "certificate");
        assert!(has(&rights, Some("ns0"), "pods/eviction", None, "create"));
        assert!(!has(&rights, None, "pods/eviction", None, "create"));
        assert!(has(&rights, None, "nodes", None, "watch"));
        assert!(has(&rights, Some("ns4"), "pods", None, "patch") && !has(&rights, Some("ns5"), "pods", None, "patch"));
    }

    #[test]
    fn missing_rights_are_grouped_by_object() {
        let right = |namespace: Option<&str>, resource: &str, verb: &str| RequiredRight {
            namespace: namespace.map(str::to_owned),
            object: RightObject::Resource { group: "apps".to_owned(), resource: resource.to_owned(), name: None },
            verb: verb.to_owned(),
        };
        let rights =
            [right(None, "deployments", "get"), right(Some("a"), "x", "list"), right(None, "deployments", "patch")];
        let words = grouped(&rights.iter().collect::<Vec<_>>());
        assert_eq!(words, ["get, patch deployments.apps", "list x.apps in namespace a"]);
    }
}
