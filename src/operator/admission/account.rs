//! The policy on the operator's own account: whoever has its token cannot do more with pods and workloads than actions
//! and pools do.
//!
//! The operator is recognized by its right for a path that no role for users grants. An administrator, who
//! may write every path, is not the operator.

use super::{AdmissionPolicy, Guarded, Invariant, Operation, Parameters};
use Operation::{Create, Delete, Update};
use ganglion_api::marks;
use ganglion_core::namespaces::RESERVED;

/// Expression: the operator writes. The first part is cheap, and excludes most requests.
const THE_OPERATOR: (&str, &str) = (
    "by-the-operator",
    "request.userInfo.username.startsWith('system:serviceaccount:') \
     && authorizer.path('/ganglion.dev/nodeconfigs').check('write').allowed() \
     && !authorizer.path('/ganglion.dev/every-path').check('write').allowed()",
);

/// Expression: an installed component lets the operator copy pods with access to the host, or with powerful accounts.
const SYSTEM_WORKLOADS: &str = "authorizer.path('/ganglion.dev/system-workloads').check('write').allowed()";

/// Expression: this field of the object and of its previous version are equal, except for keys for which `except` is
/// true. Both are maps, or absent.
fn same(field: &str, except: &str) -> String {
    format!(
        "variables.new.?{field}.orValue({{}}).all(key, {except} \
         || variables.old.?{field}[?key] == variables.new.?{field}[?key]) \
         && variables.old.?{field}.orValue({{}}).all(key, {except} || key in variables.new.?{field}.orValue({{}}))"
    )
}

/// Expression: the annotation belongs to the operator, or orders pods for scaling down.
const OUR_ANNOTATION: &str = "key.startsWith('ganglion.dev/') || key == 'controller.kubernetes.io/pod-deletion-cost'";

/// Expression: the pod does not use the namespaces or files of its host, and no container is privileged or has more
/// capabilities than the baseline Pod Security Standard allows, except those over the pod's own network, which service
/// meshes give to a container that they add. It needs the variables `spec` and `contexts`.
const NO_HOST_ACCESS: &str = "!(variables.spec.?hostNetwork.orValue(false) || variables.spec.?hostPID.orValue(false) \
    || variables.spec.?hostIPC.orValue(false) \
    || variables.spec.?securityContext.?windowsOptions.?hostProcess.orValue(false) \
    || variables.spec.?volumes.orValue([]).exists(volume, has(volume.hostPath)) \
    || variables.contexts.exists(context, context.?privileged.orValue(false) \
    || context.?procMount.orValue('Default') != 'Default' || context.?windowsOptions.?hostProcess.orValue(false) \
    || context.?capabilities.?add.orValue([]).exists(one, !(one in ['AUDIT_WRITE', 'CHOWN', 'DAC_OVERRIDE', 'FOWNER', \
    'FSETID', 'KILL', 'MKNOD', 'NET_ADMIN', 'NET_BIND_SERVICE', 'NET_RAW', 'SETFCAP', 'SETGID', 'SETPCAP', 'SETUID', \
    'SYS_CHROOT']))))";

/// Expression: the account of the new pod does not have this right in all namespaces.
fn account_lacks(verb: &str, resource: &str) -> String {
    format!(
        "!variables.isNewPod || !authorizer.serviceAccount(request.namespace, variables.account).group('')\
         .resource('{resource}').check('{verb}').allowed() || {SYSTEM_WORKLOADS}"
    )
}

/// Expression for the security contexts of all containers of a pod's spec.
fn contexts(spec: &str) -> String {
    format!(
        "({spec}.?containers.orValue([]) + {spec}.?initContainers.orValue([]))\
         .map(one, one.?securityContext.orValue({{}}))"
    )
}

/// Expression for the service account in a pod's spec.
fn account_of(spec: &str) -> String {
    format!("{spec}.?serviceAccountName.orValue('default')")
}

/// The policy that compares a new pod with the ReplicaSet that it names as owner.
///
/// Parameters cannot express that one of them must exist. A pod of a ReplicaSet that does not exist is deleted by the
/// garbage collector, before its containers start.
pub fn copies() -> AdmissionPolicy {
    let is_set = "params.metadata.uid != variables.set";
    AdmissionPolicy {
        name: "ganglion-operator-copies",
        about: "A pod that the operator creates has the service account of the ReplicaSet that owns it, and access to \
                the host only if pods of that ReplicaSet have it. Each ReplicaSet of the namespace is a parameter. The \
                images are not compared, since webhooks may change them. The garbage collector deletes a pod whose \
                owner does not exist.",
        guards: vec![Guarded::other("", "pods", &[Create])],
        conditions: vec![THE_OPERATOR],
        against: Some(Parameters {
            version: "apps/v1",
            kind: "ReplicaSet",
            label: (marks::ROLE, marks::ROLE_REPLACEMENT),
        }),
        variables: vec![
            ("set", "dyn(object).metadata.?ownerReferences[0].?uid.orValue('')".to_owned()),
            ("account", account_of("variables.spec")),
            ("expected", account_of("params.spec.template.spec")),
            ("contexts", contexts("variables.spec")),
            ("ofSet", "dyn(params).spec.template.spec".to_owned()),
            ("contextsOfSet", contexts("variables.ofSet")),
        ],
        rules: vec![],
        invariants: vec![
            Invariant {
                expression: format!("{is_set} || variables.account == variables.expected"),
                message: "'the operator does not create pods of ReplicaSet ' + params.metadata.name \
                          + ' with service account ' + variables.account + '; its template has ' + variables.expected"
                    .to_owned(),
            },
            Invariant {
                expression: format!(
                    "{is_set} || {NO_HOST_ACCESS} || !({})",
                    NO_HOST_ACCESS
                        .replace("variables.spec", "variables.ofSet")
                        .replace("variables.contexts", "variables.contextsOfSet")
                ),
                message: "'the operator does not create pods of ReplicaSet ' + params.metadata.name \
                          + ' with access to the host; its template has none'"
                    .to_owned(),
            },
        ],
    }
}

pub fn policy() -> AdmissionPolicy {
    let advice = "install the component system-workloads to allow it";
    let account = |can: &str| {
        format!(
            "'the operator does not create pods with service account ' + variables.account + ', which may {can} in all \
             namespaces; {advice}'"
        )
    };
    AdmissionPolicy {
        name: "ganglion-operator",
        about: "Bounds for the operator's own account, so that its token is worth less to a thief. No writes in the \
                namespaces of Kubernetes. New pods only as copies that belong to a ReplicaSet, without access to the host, \
                and without accounts that have power over all namespaces. Of existing pods, only labels, annotations, \
                the controller among the owners and the scheduling gate change; of workloads, only replicas and the operator's annotations.",
        guards: vec![
            Guarded::other("", "pods", &[Create, Update, Delete]),
            Guarded::other("", "pods/eviction", &[Create]),
            Guarded::other("apps", "deployments", &[Update]),
            Guarded::other("apps", "replicasets", &[Update]),
            Guarded::other("apps", "statefulsets", &[Update]),
            Guarded::other("argoproj.io", "rollouts", &[Update]),
        ],
        conditions: vec![THE_OPERATOR],
        against: None,
        variables: vec![
            ("new", "dyn(object)".to_owned()),
            ("old", "dyn(oldObject)".to_owned()),
            ("isPod", "request.resource.resource == 'pods' && request.?subResource.orValue('') == ''".to_owned()),
            ("isNewPod", "variables.isPod && request.operation == 'CREATE'".to_owned()),
            ("isUpdate", "request.operation == 'UPDATE'".to_owned()),
            ("owners", "variables.new.metadata.?ownerReferences.orValue([])".to_owned()),
            ("contexts", contexts("variables.spec")),
            ("account", account_of("variables.spec")),
        ],
        rules: vec![],
        invariants: vec![
            Invariant {
                expression: format!(
                    "!request.namespace.startsWith('{RESERVED}') \
                     || authorizer.path('/ganglion.dev/kube-namespaces').check('write').allowed()"
                ),
                message: "'the operator does not write in namespace ' + request.namespace \
                          + ', which belongs to Kubernetes; install the component kube-namespaces to allow it'"
                    .to_owned(),
            },
            Invariant {
                // In a dry run, the operator asks what admission gives to a pod that the ReplicaSet controls.
                expression: "!variables.isNewPod || (variables.owners.size() == 1 \
                             && variables.owners[0].apiVersion == 'apps/v1' && variables.owners[0].kind == 'ReplicaSet' \
                             && (variables.owners[0].?controller.orValue(false) ? request.?dryRun.orValue(false) \
                             : (has(variables.new.metadata.annotations) \
                             && variables.new.metadata.annotations[?'ganglion.dev/slot'].orValue('') != '' \
                             && variables.new.metadata.annotations[?'ganglion.dev/role'].orValue('') == 'replacement' \
                             && variables.new.metadata.?labels[?'ganglion.dev/role'].orValue('') == 'replacement' \
                             && !has(variables.spec.nodeName))))"
                    .to_owned(),
                message: "'the operator creates pods only as replacements that belong to a ReplicaSet'".to_owned(),
            },
            Invariant {
                expression: format!("!variables.isNewPod || {NO_HOST_ACCESS} || {SYSTEM_WORKLOADS}"),
                message: format!("'the operator does not create pods with access to the host; {advice}'"),
            },
            Invariant { expression: account_lacks("get", "secrets"), message: account("get Secrets") },
            Invariant { expression: account_lacks("create", "pods"), message: account("create pods") },
            Invariant {
                expression: format!(
                    "!(variables.isPod && variables.isUpdate) || ({} && {} \
                     && variables.owners.map(owner, owner.uid) \
                     == variables.old.metadata.?ownerReferences.orValue([]).map(owner, owner.uid))",
                    same("spec", "key in ['affinity', 'schedulingGates']"),
                    same("metadata.?annotations", OUR_ANNOTATION)
                ),
                message: "'of a pod, the operator changes only labels, its own annotations, which owner is the \
                          controller, and the scheduling gate'"
                    .to_owned(),
            },
            Invariant {
                expression: format!(
                    "variables.isPod || !variables.isUpdate || ({} && {} && {} \
                     && variables.new.metadata.?ownerReferences == variables.old.metadata.?ownerReferences \
                     && variables.new.metadata.?finalizers == variables.old.metadata.?finalizers)",
                    same("spec", "key == 'replicas'"),
                    same("metadata.?labels", "false"),
                    same("metadata.?annotations", "key.startsWith('ganglion.dev/')")
                ),
                message: "'of a workload, the operator changes only replicas and its own annotations'".to_owned(),
            },
        ],
    }
}
