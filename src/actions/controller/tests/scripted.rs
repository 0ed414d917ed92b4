//! An API server that follows a script, a controller that uses it, and the objects of both.

use std::collections::VecDeque;
use std::sync::Mutex as StdMutex;

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower_test::mock;

use super::super::error::ActError;
use super::super::*;
use ganglion_actions_plan::effect::{NewPod, PodPlace};
use ganglion_actions_plan::rank::NoRanker;
use ganglion_actions_plan::world::register;
use ganglion_api::workload_action::status::SetRef;
use ganglion_core::facts::{Identity, PodFact};
use ganglion_core::world::{Fact, Origin, World};
use ganglion_outbound::address::{self, Names, Rules};
use ganglion_outbound::client::{AnswerLimits, OutboundClient};
use ganglion_outbound::web::Web;
use ganglion_runtime::events;
use ganglion_runtime::fairness::FairLimit;
use ganglion_runtime::frame::reconcile;
use ganglion_runtime::metrics::Metrics;
use ganglion_runtime::run::ReconcileResult;
use ganglion_runtime::store::Store;
use ganglion_runtime::writer::Writer;

/// One received request: method, path with query, body.
#[derive(Clone, Debug)]
pub struct Seen {
    pub what: String,
    pub body: Value,
}

/// An API server that returns the responses of a script in order, whatever the request is. After the last one it does
/// not respond.
pub struct Scripted {
    pub controller: Arc<WorkloadActionController>,
    pub leader: CancellationToken,
    seen: Arc<StdMutex<Vec<Seen>>>,
}

pub fn scripted(answers: impl IntoIterator<Item = (u16, Value)>) -> Scripted {
    let (service, mut handle) = mock::pair::<Request<Body>, Response<Body>>();
    let seen = Arc::new(StdMutex::new(Vec::new()));
    let mut answers: VecDeque<(u16, Value)> = answers.into_iter().collect();
    let log = Arc::clone(&seen);
    tokio::spawn(async move {
        let mut unanswered = Vec::new();
        while let Some((request, send)) = handle.next_request().await {
            let (head, body) = request.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let what = format!("{} {}", head.method, head.uri);
            let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            log.lock().unwrap().push(Seen { what, body: body.clone() });
            match answers.pop_front() {
                Some((code, mut answer)) => {
                    // The API server answers with the status that it has stored.
                    if code == 200 && head.method == http::Method::PUT {
                        answer["status"] = body["status"].clone();
                    }
                    let response = Response::builder().status(code).body(answer.to_string().into_bytes().into());
                    send.send_response(response.unwrap());
                }
                None => unanswered.push(send),
            }
        }
    });
    let leader = CancellationToken::new();
    Scripted { controller: controller(Client::new(service, "default"), leader.clone()), leader, seen }
}

fn controller(client: Client, leader: CancellationToken) -> Arc<WorkloadActionController> {
    let metrics = Metrics::new();
    let mut world = World::default();
    register(&mut world);
    let store = Store::new(world);
    store.queue::<WorkloadAction>().open();
    let ctx = Context {
        store,
        writer: Writer::new(client, Duration::from_secs(10), leader, metrics.clone()),
        events: events::line(&metrics).0,
        metrics,
        clock: Timestamp::now,
        term: "term".into(),
        stop: CancellationToken::new(),
    };
    let resync = Duration::from_secs(300);
    Arc::new(WorkloadActionController {
        notifier: Notifier::new(ctx.clone(), outbound()),
        ctx,
        limits: Limits::default(),
        ranker: Arc::new(NoRanker),
        resync,
        memories: Memories::default(),
        shared: SharedState::default(),
    })
}

/// Sends requests to servers on loopback.
fn outbound() -> Arc<OutboundClient> {
    let limit = || FairLimit::new(1 << 20, Counter::default());
    let rules = Rules { allowed_networks: vec!["127.0.0.0/8".parse().unwrap()], ..Rules::default() };
    let web = Arc::new(Web::new(Names::new(rules, address::system), limit()));
    let limits = AnswerLimits { sample: 65_536, object: 65_536, pods: 1, node: 1, nodes: 1 };
    Arc::new(OutboundClient::new(web, Duration::from_secs(10), limit(), limits))
}

pub fn key() -> Key {
    Key::new("shop", "go")
}

/// An action that the planner refuses at once, with one write of its status.
pub fn action(version: &str) -> Value {
    json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction",
        "metadata": {"namespace": "shop", "name": "go", "uid": "u1", "resourceVersion": version, "generation": 1},
        "spec": {"delete": {"pod": {"name": "a"}}, "abort": true},
    })
}

pub fn ended(version: &str) -> Value {
    let mut ended = action(version);
    ended["status"] = json!({"observedGeneration": 1, "finishedAt": "2026-01-01T00:00:00Z"});
    ended
}

pub fn status(code: u16, reason: &str, message: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}))
}

pub fn pod_json(slot: Option<&str>) -> Value {
    let annotations = slot.map(|slot| json!({"ganglion.dev/slot": slot, "ganglion.dev/role": "replacement"}));
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": "web-1", "uid": "p1", "resourceVersion": "7", "annotations": annotations},
    })
}

pub fn pod_id() -> Identity {
    Identity { key: Key::new("shop", "web-1"), uid: "p1".into(), version: "5".into() }
}

pub fn new_pod() -> NewPod {
    NewPod {
        key: Key::new("shop", "web-1"),
        place: PodPlace::On("n".into()),
        slot: "s1".into(),
        set: SetRef { name: "web".into(), uid: "r1".into() },
        label: "pod-template-hash".into(),
    }
}

impl Scripted {
    pub fn knows<F: Fact>(&self, fact: F) {
        self.controller.ctx.store.write(|world| world.apply(fact, Origin::Watch));
    }

    pub fn knows_action(&self, action: Value) {
        let action: WorkloadAction = serde_json::from_value(action).unwrap();
        self.knows(action);
    }

    pub fn knows_pod(&self) {
        self.knows(PodFact { id: pod_id(), ..PodFact::default() });
    }

    pub async fn reconcile(&self) -> ReconcileResult {
        reconcile(Arc::clone(&self.controller), key()).await
    }

    pub async fn perform(&self, effect: &Effect) -> Result<(), ActError> {
        self.controller.perform(effect).await
    }

    pub fn pod(&self) -> Option<PodFact> {
        self.controller.ctx.store.read(|world| world.pod(&pod_id().key).cloned())
    }

    pub fn asked(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|seen| seen.what.clone()).collect()
    }

    pub fn body(&self, index: usize) -> Value {
        self.seen.lock().unwrap()[index].body.clone()
    }
}
