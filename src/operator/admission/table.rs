//! The table: which rights the author of a write needs, for each kind and subresource.
//!
//! Owns the content of the policies. `tests/cluster/policies.rs` compares the table with what the API server serves:
//! every kind and subresource that can be written is in it.

use super::rights::{AskedRight, CelText, RightScope, RightsRule};
use super::{AdmissionPolicy, Guarded, Operation, WRITES};
use Operation::Update;

const EVICT: AskedRight = AskedRight::to("create", "", "pods").sub("eviction");
const CREATE_PODS: AskedRight = AskedRight::to("create", "", "pods");
const DELETE_PODS: AskedRight = AskedRight::to("delete", "", "pods");
const PATCH_PODS: AskedRight = AskedRight::to("patch", "", "pods");
const PATCH_NODES: AskedRight = AskedRight::to("patch", "", "nodes").at(RightScope::Cluster);
const LIST_CONFIG_MAPS: AskedRight = AskedRight::to("list", "", "configmaps");
const WRITE_CONFIG_MAPS: [AskedRight; 2] =
    [AskedRight::to("create", "", "configmaps"), AskedRight::to("patch", "", "configmaps")];
const GET_SECRETS: AskedRight = AskedRight::to("get", "", "secrets");

const fn scale_apps(resource: &'static str) -> AskedRight {
    AskedRight::scale(CelText::Fixed("apps"), CelText::Fixed(resource))
}

const fn patch_apps(resource: &'static str) -> AskedRight {
    AskedRight::to("patch", "apps", resource)
}

/// Expression: the operator does not write. It is recognized by the right for a path that no role for users grants.
const NOT_THE_OPERATOR: (&str, &str) =
    ("not-by-the-operator", "!authorizer.path('/ganglion.dev/nodeconfigs').check('write').allowed()");

/// Expression: the object is created, or its spec is changed.
const SPEC_IS_WRITTEN: (&str, &str) =
    ("spec-is-written", "request.operation == 'CREATE' || object.spec != oldObject.spec");

/// The same, or the status is written.
const SPEC_OR_STATUS_IS_WRITTEN: (&str, &str) = (
    "spec-or-status-is-written",
    "request.operation == 'CREATE' || request.?subResource.orValue('') != '' || object.spec != oldObject.spec",
);

/// All policies on the objects of the operator. The policy on the operator's own account is in `account`.
pub fn policies() -> Vec<AdmissionPolicy> {
    vec![
        closed_loops(),
        actions(),
        action_records(),
        children(),
        node_configs(),
        placement_policies(),
        pools(),
        pool_statuses(),
        pool_scales(),
        metadata(),
    ]
}

/// The Secrets that a policy asks for: each one by name, so that a role with resourceNames is sufficient.
struct Secrets {
    /// Expression for the list of names.
    names: &'static str,
    /// Number of Secrets that are checked by name. If there are more, the author needs all of the namespace.
    most: usize,
    /// Why the operator uses them.
    why: &'static str,
    too_many: &'static str,
    /// Namespace of the Secrets.
    place: RightScope,
}

impl Secrets {
    /// The right to read them.
    const fn get(&self) -> AskedRight {
        GET_SECRETS.at(self.place)
    }

    /// Each of the lists `secrets2` and so on begins with a different name.
    fn variables(&self) -> Vec<(&'static str, String)> {
        const NAMES: [&str; 5] = ["secrets", "secrets2", "secrets3", "secrets4", "secrets5"];
        let mut variables = vec![("secrets", self.names.to_owned())];
        for pair in NAMES[..=self.most].windows(2) {
            let list = pair[0];
            variables.push((pair[1], format!("variables.{list}.filter(name, name != variables.{list}[0])")));
        }
        let all = format!("variables.secrets.size() == 0 || {}", self.get().check());
        variables.push(("every", all));
        variables
    }

    fn rules(&self) -> Vec<RightsRule> {
        const FIRST: [&str; 4] =
            ["variables.secrets[0]", "variables.secrets2[0]", "variables.secrets3[0]", "variables.secrets4[0]"];
        let why = format!("{}; it is missing for Secret ", self.why);
        let mut rules = Vec::new();
        for (index, name) in FIRST[..self.most].iter().enumerate() {
            let when = match index {
                0 => "!variables.every".to_owned(),
                _ => format!("!variables.every && variables.secrets{}.size() > 0", index + 1),
            };
            rules.push(RightsRule::ask([self.get().named(name)], &why).when(when).about(name));
        }
        let why = format!("{}; it is missing for all Secrets of the namespace, and {}", self.why, self.too_many);
        let when = format!("!variables.every && variables.secrets{}.size() > 0", self.most + 1);
        rules.push(RightsRule::ask([self.get()], &why).when(when).known_missing());
        rules
    }
}

/// Expression for the names of the Secrets of all requests of a loop or of its children: of the metrics, of the rungs,
/// of a decision and of a claim. Lists of lists can only be flattened as text; names contain no blanks.
const LOOP_SECRETS: &str = "([variables.spec.?metrics.orValue([])\
    .map(m, m.source.?http.orValue(m.source.?prometheus.orValue(m.source.?scaler.orValue({}))))] \
    + variables.spec.?actions.orValue([]).map(a, a.ladder.map(r, r.?webhook.orValue({}))) \
    + [[variables.status.?chosen[?'do'].?webhook.orValue({}), variables.status.?claim[?'do'].?webhook.orValue({})]])\
    .map(list, list.map(r, r.?auth.?bearer.?name.orValue('') + ' ' + r.?auth.?basic.?name.orValue('') + ' ' \
    + r.?ca.?secret.?name.orValue('') + ' ' + r.?tls.?ca.?secret.?name.orValue('') + ' ' \
    + r.?tls.?certificate.?name.orValue('') + ' ' + r.?headers.orValue([]).map(h, h.?secret.?name.orValue('')).join(' ')\
    ).join(' ')).join(' ').split(' ').filter(name, name != '')";

fn loop_secrets() -> Secrets {
    Secrets {
        names: LOOP_SECRETS,
        most: 4,
        why: "the operator sends the Secrets of a ClosedLoop to servers",
        too_many: "the loop names more than four",
        place: RightScope::Same,
    }
}

fn closed_loops() -> AdmissionPolicy {
    let author = RightsRule::ask([CREATE_PODS], "a ClosedLoop acts as a service account, here ")
        .about("variables.spec.?serviceAccountName.orValue('default')");
    AdmissionPolicy {
        name: "ganglion-closedloops",
        about: "A loop acts as a service account of its namespace, and sends Secrets to addresses that its author wrote. \
                A user who can create pods in a namespace can act as any of its service accounts. An approval lets the \
                loop act, like a change of the spec.",
        guards: vec![Guarded::new("closedloops", WRITES)],
        conditions: vec![(
            "spec-or-approval-is-written",
            "request.operation == 'CREATE' || object.spec != oldObject.spec \
             || object.metadata.?annotations[?'ganglion.dev/approve'] \
             != oldObject.metadata.?annotations[?'ganglion.dev/approve']",
        )],
        against: None,
        variables: loop_secrets().variables(),
        rules: [vec![author], loop_secrets().rules()].concat(),
        invariants: vec![],
    }
}

/// Expression: only fields of the metadata are written that the garbage collector changes.
pub const COLLECTED: &str = "request.operation == 'UPDATE' && request.?subResource.orValue('') == '' \
    && object.spec == oldObject.spec && object.metadata.?labels == oldObject.metadata.?labels \
    && object.metadata.?annotations == oldObject.metadata.?annotations";

fn children() -> AdmissionPolicy {
    let collect = AskedRight::to("delete", "ganglion.dev", "")
        .at(RightScope::Cluster)
        .on(CelText::Cel("request.resource.resource"));
    let author = RightsRule::ask(
        [CREATE_PODS],
        "a loop acts as a service account as this object specifies; of a Monitoring, spec.sample may be written without it",
    )
    .when(format!("!({COLLECTED} && {})", collect.check()));
    AdmissionPolicy {
        name: "ganglion-children",
        about: "The children of a loop, and the statuses that the operator acts on: a user who writes them controls the \
                loop like its author. A user who can write a Monitoring but cannot create pods can only push samples: \
                no other field, and no metadata. The garbage collector, which may delete the objects of all namespaces, \
                changes owner references and finalizers.",
        guards: vec![
            Guarded::new("monitorings", WRITES),
            Guarded::new("decisions", WRITES),
            Guarded::new("executions", WRITES),
            Guarded::new("monitorings/status", &[Update]),
            Guarded::new("decisions/status", &[Update]),
            Guarded::new("executions/status", &[Update]),
            Guarded::new("closedloops/status", &[Update]),
        ],
        conditions: vec![
            (
                "more-than-a-sample-is-written",
                "request.operation == 'CREATE' || request.?subResource.orValue('') != '' \
                 || dyn(object.spec).exists(field, field != 'sample' && !(field in dyn(oldObject.spec))) \
                 || dyn(oldObject.spec).exists(field, field != 'sample' \
                 && !(field in dyn(object.spec) && dyn(object.spec)[field] == dyn(oldObject.spec)[field])) \
                 || ['labels', 'annotations', 'finalizers', 'ownerReferences']\
                 .exists(field, dyn(object.metadata)[?field] != dyn(oldObject.metadata)[?field])",
            ),
            NOT_THE_OPERATOR,
        ],
        against: None,
        variables: loop_secrets().variables(),
        rules: [vec![author], loop_secrets().rules()].concat(),
        invariants: vec![],
    }
}

/// Expression for the plural of the workload's kind, which the API server does not tell: derived as CRD tools do. Empty
/// if no workload is scaled by name.
const PLURAL: &str = "variables.kind.matches('(s|x|z|ch|sh)$') ? variables.kind + 'es' \
    : variables.kind.matches('[^aeiou]y$') ? variables.kind.substring(0, size(variables.kind) - 1) + 'ies' \
    : variables.kind != '' ? variables.kind + 's' : ''";

/// The Secrets of `notify`.
const NOTIFY: Secrets = Secrets {
    names: "variables.receivers.map(r, r.?secretRef.?name.orValue('')).filter(name, name != '')",
    most: 2,
    why: "the operator signs requests with the Secrets that notify names",
    too_many: "notify names more than two",
    place: RightScope::Same,
};

fn actions() -> AdmissionPolicy {
    let scales = "the WorkloadAction changes replicas";
    let scaled =
        AskedRight::scale(CelText::Cel("variables.group"), CelText::Cel("variables.plural")).named("variables.name");
    let by_pod = "variables.byPod";
    AdmissionPolicy {
        name: "ganglion-workloadactions",
        about: "An action evicts pods with the operator's permissions, and a plan shows the pods of nodes. Create and \
                delete also change replicas: of the workload, and of the Deployment that a ReplicaSet may belong to. The \
                API server does not know the workload of a pod: by the name of a pod, the operator deletes replicas of \
                Deployments, ReplicaSets and StatefulSets. With notify, the operator sends requests that are signed by \
                Secrets to addresses that the author wrote, as a pod of the namespace could.",
        guards: vec![Guarded::new("workloadactions", WRITES)],
        conditions: vec![SPEC_IS_WRITTEN],
        against: None,
        variables: [
            vec![
                (
                    "workload",
                    "variables.spec.?create.?workload.orValue(variables.spec.?delete.?workload.orValue({}))".to_owned(),
                ),
                ("version", "variables.workload.?apiVersion.orValue('apps/v1')".to_owned()),
                ("group", "variables.version.contains('/') ? variables.version.split('/')[0] : ''".to_owned()),
                ("kind", "variables.workload.?kind.orValue('').lowerAscii()".to_owned()),
                ("plural", PLURAL.to_owned()),
                ("name", "variables.workload.?name.orValue('')".to_owned()),
                ("byPod", "has(variables.spec.delete) && variables.kind == ''".to_owned()),
                ("receivers", "variables.spec.?notify.orValue([])".to_owned()),
            ],
            NOTIFY.variables(),
        ]
        .concat(),
        rules: [
            vec![
                RightsRule::ask([EVICT], "a WorkloadAction evicts pods"),
                RightsRule::ask([scaled], &format!("{scales} of "))
                    .when("variables.plural != ''")
                    .about("variables.name"),
                RightsRule::ask([scale_apps("deployments"), scale_apps("replicasets")], scales).when(by_pod),
                RightsRule::ask([scale_apps("statefulsets")], scales).when(by_pod),
                RightsRule::ask([scale_apps("deployments")], "the ReplicaSet may belong to a Deployment")
                    .when("variables.kind == 'replicaset'"),
                RightsRule::ask(
                    [CREATE_PODS],
                    "notify makes the operator send requests, as a pod of the namespace could",
                )
                .when("variables.receivers.size() > 0"),
            ],
            NOTIFY.rules(),
        ]
        .concat(),
        invariants: vec![],
    }
}

fn action_records() -> AdmissionPolicy {
    let why = "the operator acts on the status of an action, and on its receipt";
    AdmissionPolicy {
        name: "ganglion-workloadactions-status",
        about: "The operator acts on the status of an action and on its receipt with its own permissions: it creates, \
                deletes, evicts and changes pods, and changes the replicas of workloads, also of kinds that others have \
                installed.",
        guards: vec![Guarded::new("workloadactions/status", &[Update]), Guarded::new("workloadactionreceipts", WRITES)],
        // The garbage collector changes only the metadata of a receipt, for which there is a policy of its own.
        conditions: vec![SPEC_OR_STATUS_IS_WRITTEN, NOT_THE_OPERATOR],
        against: None,
        variables: vec![],
        rules: vec![
            RightsRule::ask([EVICT], why),
            RightsRule::ask([CREATE_PODS, DELETE_PODS], why),
            RightsRule::ask([PATCH_PODS, patch_apps("deployments")], why),
            RightsRule::ask([patch_apps("replicasets"), patch_apps("statefulsets")], why),
            RightsRule::ask([AskedRight::scale(CelText::Fixed("*"), CelText::Fixed("*"))], why),
        ],
        invariants: vec![],
    }
}

/// The Secrets of a NodeConfig.
const NODE_SECRETS: Secrets = Secrets {
    names: "variables.names.split(' ').filter(name, name != '')",
    most: 2,
    why: "the operator sends the Secrets of a NodeConfig to servers",
    too_many: "the object names more than two",
    place: RightScope::Same,
};

fn node_configs() -> AdmissionPolicy {
    let by_expression = format!(
        "{}; it is missing for all Secrets of the namespace, and the template names them by expressions",
        NODE_SECRETS.why
    );
    AdmissionPolicy {
        name: "ganglion-nodeconfigs",
        about: "The values of a node decide where pods run, and a template shows the labels of nodes. The operator sends \
                the named Secrets to addresses that the author wrote. The operator itself creates the NodeConfigs of \
                templates and writes the statuses.",
        guards: vec![
            Guarded::new("nodeconfigs", WRITES),
            Guarded::new("nodeconfigtemplates", WRITES),
            Guarded::new("nodeconfigs/status", &[Update]),
            Guarded::new("nodeconfigtemplates/status", &[Update]),
        ],
        conditions: vec![SPEC_OR_STATUS_IS_WRITTEN, NOT_THE_OPERATOR],
        against: None,
        variables: [
            vec![
                ("node", "'template' in variables.spec ? variables.spec.template : variables.spec".to_owned()),
                (
                    "sources",
                    "[variables.node.?metricsCollector.?inletTemp.orValue({}), \
                     variables.node.?metricsCollector.?deltaP.orValue({}), \
                     variables.node.?metricsCollector.?usage.orValue({}), \
                     variables.node.?metricsCollector.?power.orValue({}), \
                     variables.node.?predictor.?powerConsumption.orValue({}), \
                     variables.node.?predictor.?powerConsumptionEndpointProvider.orValue({})]"
                        .to_owned(),
                ),
                // The names in a template may contain expressions.
                (
                    "names",
                    "variables.sources.map(s, s.?basicAuthSecret.?name.orValue('') + ' ' \
                     + s.?ca.?secret.?name.orValue('') + ' ' \
                     + s.?headers.orValue([]).map(h, h.?secret.?name.orValue('')).join(' ')).join(' ')"
                        .to_owned(),
                ),
            ],
            NODE_SECRETS.variables(),
        ]
        .concat(),
        rules: [
            vec![
                RightsRule::ask([PATCH_NODES], "values of nodes decide where pods run"),
                RightsRule::ask([GET_SECRETS], &by_expression)
                    .when("!variables.every && variables.names.contains('{{')")
                    .known_missing(),
            ],
            NODE_SECRETS.rules(),
        ]
        .concat(),
        invariants: vec![],
    }
}

const POLICY_SECRETS: Secrets = Secrets {
    names: "(variables.server.?auth.?bearer.?name.orValue('') + ' ' + variables.server.?auth.?basic.?name.orValue('') + ' ' \
            + variables.server.?ca.?secret.?name.orValue('') + ' ' \
            + variables.server.?headers.orValue([]).map(h, h.?secret.?name.orValue('')).join(' '))\
            .split(' ').filter(name, name != '')",
    most: 3,
    why: "the operator sends the Secrets of a PlacementPolicy to Prometheus",
    too_many: "the policy names more than three",
    place: RightScope::Other("variables.place"),
};

fn placement_policies() -> AdmissionPolicy {
    AdmissionPolicy {
        name: "ganglion-placementpolicies",
        about: "A policy decides where pods run, and can make the operator annotate all nodes. The operator sends the \
                named Secrets to an address that the author wrote. The status says which policy annotates nodes.",
        guards: vec![Guarded::new("placementpolicies", WRITES), Guarded::new("placementpolicies/status", &[Update])],
        conditions: vec![SPEC_OR_STATUS_IS_WRITTEN, NOT_THE_OPERATOR],
        against: None,
        variables: [
            vec![
                ("server", "variables.spec.?publishUsage.?prometheus.orValue({})".to_owned()),
                ("place", "variables.server[?'namespace'].orValue('')".to_owned()),
            ],
            POLICY_SECRETS.variables(),
        ]
        .concat(),
        rules: [
            vec![RightsRule::ask([PATCH_NODES], "a PlacementPolicy decides where pods run")],
            POLICY_SECRETS.rules(),
        ]
        .concat(),
        invariants: vec![],
    }
}

fn pools() -> AdmissionPolicy {
    let scale = AskedRight::scale(CelText::Fixed("apps"), CelText::Cel("variables.workloads"))
        .named("object.spec.workload.name");
    AdmissionPolicy {
        name: "ganglion-swarmpools",
        about: "A pool writes ConfigMaps, restarts or annotates pods, sends HTTP requests to them, and may scale the \
                workload, all with the operator's permissions. Workers of a Deployment, and workers with HotReload, are \
                annotated.",
        guards: vec![Guarded::new("swarmpools", WRITES)],
        conditions: vec![SPEC_IS_WRITTEN],
        against: None,
        variables: vec![
            ("reads", "has(object.spec.jobs.configMaps)".to_owned()),
            ("restarts", "variables.spec.?refresh.?policy.orValue('Restart') == 'Restart'".to_owned()),
            (
                "annotates",
                "object.spec.workload.kind == 'Deployment' \
                 || variables.spec.?refresh.?policy.orValue('') == 'HotReload'"
                    .to_owned(),
            ),
            ("workloads", "object.spec.workload.kind.lowerAscii() + 's'".to_owned()),
            (
                "scales",
                "has(object.spec.replicas) && (request.operation == 'CREATE' \
                 || object.spec.?replicas != oldObject.spec.?replicas)"
                    .to_owned(),
            ),
        ],
        rules: vec![
            RightsRule::ask(WRITE_CONFIG_MAPS, "a SwarmPool writes the jobs of its workers to ConfigMaps"),
            RightsRule::ask([LIST_CONFIG_MAPS], "a SwarmPool reads its jobs from ConfigMaps").when("variables.reads"),
            RightsRule::ask([EVICT], "refresh.policy Restart evicts pods").when("variables.restarts"),
            RightsRule::ask([PATCH_PODS], "the SwarmPool annotates its workers").when("variables.annotates"),
            RightsRule::ask([scale], "spec.replicas scales ")
                .when("variables.scales")
                .about("object.spec.workload.name"),
        ],
        invariants: vec![],
    }
}

fn pool_statuses() -> AdmissionPolicy {
    let why = "the operator acts on the status of a SwarmPool";
    AdmissionPolicy {
        name: "ganglion-swarmpools-status",
        about: "The operator acts on the versions and workers in the status of a pool: it writes ConfigMaps, evicts or \
                annotates pods, and scales the workload.",
        guards: vec![Guarded::new("swarmpools/status", &[Update])],
        conditions: vec![NOT_THE_OPERATOR],
        against: None,
        variables: vec![],
        rules: vec![
            RightsRule::ask([EVICT, PATCH_PODS], why),
            RightsRule::ask(WRITE_CONFIG_MAPS, why),
            RightsRule::ask([scale_apps("deployments"), scale_apps("statefulsets")], why),
        ],
        invariants: vec![],
    }
}

fn pool_scales() -> AdmissionPolicy {
    let scaled = |resource| {
        let patch = scale_apps(resource);
        RightsRule::ask([patch, AskedRight { verb: "update", ..patch }], "the SwarmPool scales its workload").any()
    };
    AdmissionPolicy {
        name: "ganglion-swarmpools-scale",
        about: "The scale subresource of a pool changes the replicas of its workload. The request does not \
                name this workload, so the author needs the right for all Deployments and StatefulSets of the namespace. \
                The policy also checks requests that leave the number unchanged: for a pool without replicas, zero is a \
                change, and the API server shows no difference. HorizontalPodAutoscalers have the right update. The \
                operator writes the number that the workload has.",
        guards: vec![Guarded::new("swarmpools/scale", &[Update])],
        conditions: vec![NOT_THE_OPERATOR],
        against: None,
        variables: vec![],
        rules: vec![scaled("deployments"), scaled("statefulsets")],
        invariants: vec![],
    }
}

fn metadata() -> AdmissionPolicy {
    let delete = AskedRight::to("delete", "ganglion.dev", "")
        .on(CelText::Cel("request.resource.resource"))
        .named("request.name");
    AdmissionPolicy {
        name: "ganglion-metadata",
        about: "Owner references and finalizers decide when an object is deleted: a dead owner deletes it, and a finalizer \
                keeps it. The policy ganglion-children checks the metadata of the children of a loop.",
        guards: [
            "closedloops",
            "workloadactions",
            "workloadactionreceipts",
            "nodeconfigs",
            "nodeconfigtemplates",
            "swarmpools",
            "placementpolicies",
        ]
        .map(|plural| Guarded::new(plural, &[Update]))
        .to_vec(),
        conditions: vec![(
            "owners-or-finalizers-are-written",
            "object.metadata.?ownerReferences != oldObject.metadata.?ownerReferences \
             || object.metadata.?finalizers != oldObject.metadata.?finalizers",
        )],
        against: None,
        variables: vec![],
        rules: vec![RightsRule::ask([delete], "owner references and finalizers decide when an object is deleted")],
        invariants: vec![],
    }
}
