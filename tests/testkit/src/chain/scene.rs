//! The manifests of the chain, as a user would apply them.

use serde_json::{Value, json};

use super::{PORT, RACK, VERSION};
use crate::servers::inference::MODEL;
use crate::testbed::pools::{JOBS, WORKERS, template};

/// Workload whose replicas move and multiply, and its loop.
pub const WEB: &str = "web";

/// Loop that moves the workers of the pool, and the pool.
pub const CAMERAS: &str = "cameras";

/// Slow loop, which tunes [`WEB`].
pub const SLOW: &str = "web-rank";

/// Policy by which nodes are chosen.
pub const POLICY: &str = "default";

/// Replicas of [`WEB`], of the pool, and its jobs.
pub const REPLICAS: usize = 10;
pub const CREW: usize = 4;
pub const STREAMS: usize = 24;

/// Account of the loops: it moves replicas and scales.
pub const ACCOUNT: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: rack}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: rack}
rules:
- {apiGroups: [apps], resources: [deployments, statefulsets], verbs: [get]}
- {apiGroups: [apps], resources: [deployments/scale], verbs: [patch]}
- {apiGroups: [ganglion.dev], resources: [workloadactions], verbs: [create]}
- {apiGroups: [\"\"], resources: [pods/eviction], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: rack}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: rack}
subjects: [{kind: ServiceAccount, name: rack}]
";

/// Prefers nodes whose power rises least, and rejects nodes that are hot or nearly full: the scheduler also spreads the
/// replicas, which may outvote a preference.
pub const PLACEMENT: &str = "\
apiVersion: ganglion.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: default, labels: {ganglion.dev/default-policy: \"true\"}}
spec:
  delivery: [Labels]                     # the stock scheduler reads labels of nodes
  labels: {rejections: Required}
  agents:
  - {name: safe, weight: 5, safe: {utilization: \"0.9\"}}
  - {name: cool, weight: 0, expression: {filter: \"!has(node.inletTemperature) || node.inletTemperature < 35.0\"}}
  - {name: power, weight: 20, power: {}}
";

/// The fast loop: temperature first.
pub const FAST_LOOP: &str = "\
apiVersion: ganglion.dev/v1alpha1
kind: ClosedLoop
metadata: {name: web}
spec:
  interval: 1s
  serviceAccountName: rack
  target: {apiVersion: apps/v1, kind: Deployment, name: web}
  metrics:
  - name: inlet                          # highest inlet temperature of rack a
    source: {nodeConfig: {nodeSelector: {example.com/rack: a}, field: inletTemperature, of: Max}}
    high: {raise: \"35\", clear: \"30\"}
  - {name: queue, source: {push: {}}, high: {raise: \"100\"}}
  policy: {rank: [inlet, queue]}         # temperature first
  actions:
  - when: {metric: inlet, side: High}
    ladder:
    - workloadAction: {move: {from: {nodeSelector: {example.com/rack: a}}, to: {policy: default}}}
  - when: {metric: queue, side: High}
    ladder: [{scale: {by: 2, max: 12}}]
  tunable: {by: [web-rank], rank: true}
";

/// Moves the workers of the pool. A replica of a StatefulSet keeps its name, so it stops before it starts elsewhere.
pub const POOL_LOOP: &str = "\
apiVersion: ganglion.dev/v1alpha1
kind: ClosedLoop
metadata: {name: cameras}
spec:
  interval: 1s
  serviceAccountName: rack
  target: {apiVersion: apps/v1, kind: StatefulSet, name: swarm-worker}
  metrics:
  - name: inlet
    source: {nodeConfig: {nodeSelector: {example.com/rack: a}, field: inletTemperature, of: Max}}
    high: {raise: \"35\", clear: \"30\"}
  actions:
  - when: {metric: inlet, side: High}
    ladder:
    - workloadAction:
        disruption: Allowed
        move: {from: {nodeSelector: {example.com/rack: a}}, to: {policy: default}}
";

/// The slow loop: three decisions for one metric, while another one waits, raise the other one.
pub const SLOW_LOOP: &str = "\
apiVersion: ganglion.dev/v1alpha1
kind: ClosedLoop
metadata: {name: web-rank}
spec:
  interval: 1s
  target: {apiVersion: ganglion.dev/v1alpha1, kind: ClosedLoop, name: web}
  metrics:
  - {name: imbalance, source: {loop: {rule: LastServed, window: 3}}, high: {raise: \"0\"}}
  actions:
  - when: {metric: imbalance, side: High}
    ladder: [{tune: {raiseRank: LeastServed}}]
";

/// The Deployment, spread over both racks, whose replicas belong to its loop; the StatefulSet of the pool's workers;
/// and the pool.
pub fn workloads(namespace: &str) -> Vec<Value> {
    let labels = json!({"app": WEB});
    let container = json!({
        "name": WEB, "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}},
    });
    let apart = |app: &str| {
        let selector = json!({"matchLabels": {"app": app}});
        json!([{"maxSkew": 1, "topologyKey": RACK, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}])
    };
    let mut workers = template(namespace, JOBS);
    workers["spec"]["topologySpreadConstraints"] = apart(WORKERS);
    let jobs: Vec<Value> = (1..=STREAMS).map(|nth| json!({"name": format!("stream:{nth:02}")})).collect();
    vec![
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": WEB},
            "spec": {"selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [container], "topologySpreadConstraints": apart(WEB)},
            }},
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": WORKERS},
            "spec": {"serviceName": WORKERS, "replicas": CREW, "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": {"app": WORKERS}}, "template": workers},
        }),
        json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "SwarmPool", "metadata": {"name": CAMERAS},
            "spec": {
                "workload": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": WORKERS},
                "jobs": {"inline": jobs}, "output": {"configMap": JOBS},
                "refresh": {"policy": "HotReload"}, "version": {"probe": {"port": 9090}},
            },
        }),
    ]
}

/// A template for all machines: each has a BMC, and the model predicts their power. The usage is the same everywhere,
/// so that only the inlet temperature makes a difference.
pub fn machines(pressure: &str, models: &str) -> String {
    format!(
        "\
apiVersion: ganglion.dev/v1alpha1
kind: NodeConfigTemplate
metadata: {{name: racks}}
spec:
  nodeSelector: {{matchExpressions: [{{key: {RACK}, operator: Exists}}]}}
  template:
    metricsCollector:
      inletTemp:
        type: Redfish
        endpoint: 'http://127.0.0.1:{{{{ node.labels[\"{PORT}\"] }}}}'
        fetchInterval: 1s
      deltaP: {{type: DifferentialPressureAPI, endpoint: \"{pressure}\", fetchInterval: 1s}}
      usage: {{type: Fake, fetchInterval: 1s}}
    predictor:
      powerConsumption:
        type: V2InferenceProtocol
        endpoint: \"{models}/v2/models/{MODEL}/versions/{VERSION}/infer\"
        fetchInterval: 1s
"
    )
}
