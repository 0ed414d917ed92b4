//! Creates nodes, workloads and their related objects, as a user would apply them.

use std::sync::Arc;

use ganglion_api::marks;
use ganglion_api::workload_action::{WorkloadActionSpec, WorkloadActionStatus};
use ganglion_core::facts::{Requests, TemplateFact};
use serde_json::{Value, json};

use super::api::{Api, Refused};
use super::object::{
    APP, Action, BudgetStatus, Deployment, DisruptionBudget, Fate, Labels, Meta, Node, Rule, Scaler, Service, Set,
    Template,
};

/// Namespace of objects named without one.
pub const NAMESPACE: &str = "shop";

/// Splits `NAMESPACE/NAME`, or a name alone, into namespace and name.
pub fn place(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or((NAMESPACE, name))
}

fn named(name: &str) -> Meta {
    let (namespace, name) = place(name);
    Meta::named(namespace, name)
}

/// Label of a standalone ReplicaSet's pods that only the ReplicaSet selects by.
pub const TRACK: &str = "track";

pub fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// Label of every workload: all belong to one application.
pub const PART_OF: (&str, &str) = ("part-of", "shop");

fn of_application(app: &str) -> Meta {
    Meta { labels: labels(&[PART_OF]), ..named(app) }
}

/// Properties of a workload's pods.
#[derive(Clone, Debug, Default)]
pub struct PodShape {
    /// Distinguishes successive templates of a workload.
    pub revision: usize,
    pub cpu: i64,
    pub grace: i64,
    /// Deletion cost in the template.
    pub cost: Option<String>,
    pub node_selector: Labels,
    pub prioritized: bool,
}

/// The template as the operator reads it.
pub fn as_fact(template: &Value) -> TemplateFact {
    serde_json::from_str(&template.to_string()).expect("a pod template")
}

/// Template of a workload; `extra` labels are added to that of the app.
pub fn template(app: &str, shape: &PodShape, extra: &Labels) -> Arc<Template> {
    let mut labels: Labels = labels(&[(APP, app)]);
    labels.extend(extra.clone());
    let mut annotations = self::labels(&[("template", &format!("r{}", shape.revision))]);
    if let Some(cost) = &shape.cost {
        annotations.insert(marks::DELETION_COST.to_owned(), cost.clone());
    }
    let requests = Requests { cpu: shape.cpu, memory: 1 << 20, ..Requests::default() };
    let asks = json!({"cpu": format!("{}m", requests.cpu), "memory": "1Mi"});
    let mut template = json!({
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": asks}}],
            "nodeSelector": shape.node_selector, "terminationGracePeriodSeconds": shape.grace,
        },
    });
    if shape.prioritized {
        template["spec"]["priorityClassName"] = json!("high");
    }
    Arc::new(Template {
        labels,
        annotations,
        node_selector: shape.node_selector.clone(),
        requests,
        grace: shape.grace,
        prioritized: shape.prioritized,
        fact: Arc::new(as_fact(&template)),
    })
}

impl Api {
    pub fn add_node(&mut self, name: &str, zone: &str, cpu: i64, pods: i64, fate: Fate) {
        let mut meta = Meta::named("", name);
        meta.labels = labels(&[("zone", zone), ("kubernetes.io/hostname", name)]);
        let capacity = Requests { cpu, memory: 1 << 40, ..Requests::default() };
        let _ = self.create(Node { meta, ready: true, cordoned: false, capacity, pods, fate });
    }

    pub fn add_deployment(&mut self, app: &str, replicas: i32, shape: &PodShape) {
        let template = template(place(app).1, shape, &Labels::new());
        let meta = of_application(app);
        let _ = self.create(Deployment { meta, replicas, template, ..Deployment::default() });
        self.add_service(app);
    }

    pub fn add_set(&mut self, app: &str, replicas: i32, shape: &PodShape) {
        let template = template(place(app).1, shape, &labels(&[(TRACK, "stable")]));
        let selector = template.labels.clone();
        let meta = of_application(app);
        let _ = self.create(Set { meta, replicas, selector, template, ..Set::default() });
        self.add_service(app);
    }

    fn add_service(&mut self, app: &str) {
        let _ = self.create(Service { meta: named(app), selector: labels(&[(APP, place(app).1)]) });
    }

    pub fn add_budget(&mut self, name: &str, app: &str, rule: Rule) {
        let (meta, selector) = (named(name), labels(&[(APP, place(app).1)]));
        let _ = self.create(DisruptionBudget { meta, selector, rule, status: BudgetStatus::default() });
    }

    pub fn add_scaler(&mut self, app: &str) {
        let (target_kind, target_name) = ("Deployment".to_owned(), place(app).1.to_owned());
        let _ = self.create(Scaler { meta: named(app), target_kind, target_name });
    }

    /// Creates an action; the API server sets the default status.
    pub fn add_action(&mut self, name: &str, spec: WorkloadActionSpec) -> Result<Arc<Action>, Refused> {
        self.make_action(named(name), spec)
    }

    /// Creates an action with the given metadata.
    pub fn make_action(&mut self, meta: Meta, spec: WorkloadActionSpec) -> Result<Arc<Action>, Refused> {
        let status = WorkloadActionStatus {
            observed_generation: Some(ganglion_api::UNSEEN_GENERATION),
            ..WorkloadActionStatus::default()
        };
        self.create(Action { meta, spec, status: Some(status) })
    }
}
