//! Evaluates roles and bindings for an account, for users who may read them and may not ask the API server's
//! authorizer about others. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};

use super::facts::{RequiredRight, RightObject};

/// Roles and bindings that can concern an account.
#[derive(Clone, Debug, Default)]
pub struct RolesAndBindings {
    pub cluster_roles: Vec<ClusterRole>,
    pub cluster_bindings: Vec<ClusterRoleBinding>,
    /// Roles of the namespaces of the required permissions.
    pub roles: Vec<Role>,
    pub bindings: Vec<RoleBinding>,
}

/// Groups of a service account.
pub fn groups(namespace: &str) -> [String; 3] {
    [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ]
}

/// User name of a service account.
pub fn user(namespace: &str, account: &str) -> String {
    format!("system:serviceaccount:{namespace}:{account}")
}

/// Rules that an account has, by namespace; None: everywhere.
pub struct AccountRules<'a>(BTreeMap<Option<&'a str>, Vec<&'a PolicyRule>>);

impl<'a> AccountRules<'a> {
    /// Collects the rules of this service account.
    pub fn new(all: &'a RolesAndBindings, namespace: &str, account: &str) -> Self {
        let mut rules: BTreeMap<Option<&'a str>, Vec<&'a PolicyRule>> = BTreeMap::new();
        let of_cluster_role = |role: &RoleRef| {
            let found = all.cluster_roles.iter().find(|one| one.metadata.name.as_deref() == Some(&role.name));
            found.and_then(|found| found.rules.as_ref()).into_iter().flatten()
        };
        let is_bound =
            |subjects: &Option<Vec<Subject>>| subjects.iter().flatten().any(|one| is_it(one, namespace, account));
        for binding in all.cluster_bindings.iter().filter(|binding| is_bound(&binding.subjects)) {
            rules.entry(None).or_default().extend(of_cluster_role(&binding.role_ref));
        }
        for binding in all.bindings.iter().filter(|binding| is_bound(&binding.subjects)) {
            let Some(place) = binding.metadata.namespace.as_deref() else { continue };
            let own = rules.entry(Some(place)).or_default();
            if binding.role_ref.kind == "ClusterRole" {
                own.extend(of_cluster_role(&binding.role_ref));
                continue;
            }
            let is_named = |role: &&Role| {
                role.metadata.namespace.as_deref() == Some(place)
                    && role.metadata.name.as_deref() == Some(&binding.role_ref.name)
            };
            let role = all.roles.iter().find(is_named);
            own.extend(role.and_then(|role| role.rules.as_ref()).into_iter().flatten());
        }
        Self(rules)
    }

    /// Whether the account has this permission.
    pub fn allow(&self, right: &RequiredRight) -> bool {
        let everywhere = self.0.get(&None).into_iter().flatten();
        let there = right.namespace.as_deref().and_then(|namespace| self.0.get(&Some(namespace)));
        everywhere.chain(there.into_iter().flatten()).any(|rule| allows(rule, right))
    }
}

fn is_it(subject: &Subject, namespace: &str, account: &str) -> bool {
    match subject.kind.as_str() {
        "ServiceAccount" => subject.name == account && subject.namespace.as_deref() == Some(namespace),
        "Group" => groups(namespace).contains(&subject.name),
        "User" => subject.name == user(namespace, account),
        _ => false,
    }
}

/// Whether the rule allows this, as the authorizer of Kubernetes evaluates rules.
fn allows(rule: &PolicyRule, right: &RequiredRight) -> bool {
    if !rule.verbs.iter().any(|verb| verb == "*" || *verb == right.verb) {
        return false;
    }
    match &right.object {
        RightObject::Path(path) => rule.non_resource_urls.iter().flatten().any(|pattern| {
            pattern == path || pattern.strip_suffix('*').is_some_and(|beginning| path.starts_with(beginning))
        }),
        RightObject::Resource { group, resource, name } => {
            let subresource = resource.split_once('/').map(|(_, subresource)| format!("*/{subresource}"));
            let has_group = rule.api_groups.iter().flatten().any(|one| one == "*" || one == group);
            let has_resource = rule
                .resources
                .iter()
                .flatten()
                .any(|one| one == "*" || one == resource || Some(one) == subresource.as_ref());
            let names = rule.resource_names.as_deref().unwrap_or_default();
            let has_name = names.is_empty() || name.as_ref().is_some_and(|name| names.contains(name));
            has_group && has_resource && has_name
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::operator::installation::rights::required;

    fn rule(rule: Value) -> PolicyRule {
        serde_json::from_value(rule).unwrap()
    }

    fn resource(resource: &str, name: Option<&str>, verb: &str) -> RequiredRight {
        let object = RightObject::Resource {
            group: "apps".to_owned(),
            resource: resource.to_owned(),
            name: name.map(str::to_owned),
        };
        RequiredRight { namespace: None, object, verb: verb.to_owned() }
    }

    #[rstest]
    #[case(json!({"apiGroups": ["apps"], "resources": ["sets"], "verbs": ["get"]}), true)]
    #[case(json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}), true)]
    #[case(json!({"apiGroups": ["apps"], "resources": ["sets"], "verbs": ["list"]}), false)]
    #[case(json!({"apiGroups": [""], "resources": ["sets"], "verbs": ["get"]}), false)]
    #[case(json!({"apiGroups": ["apps"], "resources": ["sets/status"], "verbs": ["get"]}), false)]
    #[case(json!({"apiGroups": ["apps"], "resources": ["sets"], "resourceNames": ["a"], "verbs": ["get"]}), false)]
    fn a_rule_for_resources(#[case] given: Value, #[case] expected: bool) {
        assert_eq!(allows(&rule(given), &resource("sets", None, "get")), expected);
    }

    #[test]
    fn names_subresources_and_paths() {
        let named =
            rule(json!({"apiGroups": ["apps"], "resources": ["sets"], "resourceNames": ["a"], "verbs": ["get"]}));
        assert!(allows(&named, &resource("sets", Some("a"), "get")));
        assert!(!allows(&named, &resource("sets", Some("b"), "get")));
        let scales = rule(json!({"apiGroups": ["apps"], "resources": ["*/scale"], "verbs": ["get"]}));
        assert!(allows(&scales, &resource("sets/scale", None, "get")));
        assert!(!allows(&scales, &resource("sets/status", None, "get")));
        let path = |path: &str| RequiredRight {
            namespace: None,
            object: RightObject::Path(path.to_owned()),
            verb: "get".to_owned(),
        };
        let paths = rule(json!({"nonResourceURLs": ["/a", "/b/*"], "verbs": ["get"]}));
        assert!(allows(&paths, &path("/a")) && allows(&paths, &path("/b/c")) && !allows(&paths, &path("/c")));
    }

    /// The roles and bindings of the base, with these subjects.
    fn base(subject: &Value) -> RolesAndBindings {
        let text = include_str!("../../../kustomize/base/rbac.yaml");
        let mut all = RolesAndBindings::default();
        for mut document in serde_saphyr::from_multiple::<Value>(text).unwrap() {
            if document["kind"] == "Role" || document["kind"] == "RoleBinding" {
                document["metadata"]["namespace"] = json!("ganglion-system");
            }
            if document["subjects"].is_array() {
                document["subjects"] = json!([subject]);
            }
            match document["kind"].as_str() {
                Some("ClusterRole") => all.cluster_roles.push(serde_json::from_value(document).unwrap()),
                Some("ClusterRoleBinding") => all.cluster_bindings.push(serde_json::from_value(document).unwrap()),
                Some("Role") => all.roles.push(serde_json::from_value(document).unwrap()),
                Some("RoleBinding") => all.bindings.push(serde_json::from_value(document).unwrap()),
                _ => {}
            }
        }
        all
    }

    #[test]
    fn the_base_grants_what_is_required_to_its_account_alone() {
        let required = required("ganglion-system", &[], "ganglion-extender-tls");
        let lacks = |all: &RolesAndBindings| {
            let rules = AccountRules::new(all, "ganglion-system", "ganglion");
            required.iter().filter(|right| !rules.allow(right)).count()
        };
        let account = json!({"kind": "ServiceAccount", "name": "ganglion", "namespace": "ganglion-system"});
        for (subject, expected) in [
            (account.clone(), 0),
            (json!({"kind": "Group", "name": "system:serviceaccounts:ganglion-system"}), 0),
            (json!({"kind": "User", "name": "system:serviceaccount:ganglion-system:ganglion"}), 0),
            (json!({"kind": "ServiceAccount", "name": "ganglion", "namespace": "other"}), required.len()),
        ] {
            assert_eq!(lacks(&base(&subject)), expected, "{subject}");
        }
        let mut less = base(&account);
        less.cluster_roles[0].rules.as_mut().unwrap().remove(0);
        assert!(lacks(&less) > 0);
        let mut unbound = base(&account);
        unbound.bindings.clear();
        assert!(lacks(&unbound) > 0);
    }
}
