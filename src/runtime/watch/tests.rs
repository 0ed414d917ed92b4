//! Tests of the watches against a simulated API server: pages, broken watches, objects that do not parse, readiness.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex as StdMutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ObjectMeta;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tower_test::mock;

use super::*;
use ganglion_api::foreign::ScaledObject;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::{Identity, Key, NodeFact, OutsidePodFact, PodFact, ScaledObjectFact, SlimPod};
use ganglion_core::world::{Fact, Follows, Origin, Requeue, State, World};

/// A simulated API server: the requests it received and its answers. A watch stays open until the test ends it.
#[derive(Clone, Default)]
struct Server(Arc<StdMutex<Script>>);

#[derive(Default)]
struct Script {
    /// Lists by path: pages of objects, and the version of the list.
    lists: HashMap<String, (Vec<Vec<Value>>, u64)>,
    /// Requests in order of arrival.
    asked: Vec<String>,
    /// Open watches by path.
    watches: HashMap<String, mpsc::UnboundedSender<String>>,
    /// The next requests to this path fail with this code.
    fail: HashMap<String, Vec<u16>>,
}

const PODS: &str = "/api/v1/pods";
const ACTIONS: &str = "/apis/ganglion.dev/v1alpha1/workloadactions";

impl Server {
    fn client(&self) -> Client {
        let (service, mut handle) = mock::pair::<Request<Body>, Response<MockBody>>();
        let server = self.clone();
        tokio::spawn(async move {
            while let Some((request, send)) = handle.next_request().await {
                send.send_response(server.answer(&request.uri().to_string()));
            }
        });
        Client::new(service, "default")
    }

    fn answer(&self, uri: &str) -> Response<MockBody> {
        let mut state = self.0.lock().unwrap();
        state.asked.push(uri.to_owned());
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let param = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(&format!("{name}=")));
        if let Some(code) = state.fail.get_mut(path).and_then(Vec::pop) {
            let status = json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": "x"});
            return Response::builder().status(code).body(whole(&status)).unwrap();
        }
        if param("watch").is_some() {
            let (sender, receiver) = mpsc::unbounded_channel::<String>();
            state.watches.insert(path.to_owned(), sender);
            let lines = futures::stream::unfold(receiver, |mut receiver| async move {
                let line = receiver.recv().await?;
                Some((Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from(line))), receiver))
            });
            return Response::new(StreamBody::new(lines).boxed_unsync());
        }
        let (pages, version) = state.lists.get(path).cloned().unwrap_or((vec![vec![]], 1));
        let page: usize = param("continue").map_or(0, |token| token.parse().unwrap());
        let next = (page + 1 < pages.len()).then(|| (page + 1).to_string());
        let body = json!({
            "metadata": {"resourceVersion": version.to_string(), "continue": next},
            "items": pages.get(page).cloned().unwrap_or_default(),
        });
        Response::new(whole(&body))
    }

    fn lists(&self, path: &str, pages: Vec<Vec<Value>>, version: u64) {
        self.0.lock().unwrap().lists.insert(path.to_owned(), (pages, version));
    }

    fn says(&self, path: &str, kind: &str, object: &Value) {
        // The type comes first, as from a real API server.
        let line = format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n");
        self.0.lock().unwrap().watches[path].send(line).unwrap();
    }

    fn ends(&self, path: &str) {
        self.0.lock().unwrap().watches.remove(path);
    }

    fn fails(&self, path: &str, codes: &[u16]) {
        self.0.lock().unwrap().fail.insert(path.to_owned(), codes.to_vec());
    }

    fn asked(&self, path: &str) -> Vec<String> {
        let state = self.0.lock().unwrap();
        state.asked.iter().filter(|uri| uri.split('?').next() == Some(path)).cloned().collect()
    }
}

/// A complete answer, or a stream of lines.
type MockBody = http_body_util::combinators::UnsyncBoxBody<Bytes, std::io::Error>;

fn whole(body: &Value) -> MockBody {
    Full::new(Bytes::from(body.to_string())).map_err(std::io::Error::other).boxed_unsync()
}

struct Running {
    server: Server,
    store: Store,
    feeds: Feeds,
    metrics: Metrics,
}

fn start(server: Server, namespaces: &[&str]) -> Running {
    let metrics = Metrics::new();
    let namespaces = namespaces.iter().map(|name| (*name).to_owned()).collect();
    let options = WatchOptions { namespaces, timeout: Duration::from_secs(30) };
    let mut world = World::default();
    world.follow::<Requeuer, WorkloadAction>();
    let store = Store::new(world);
    store.queue::<WorkloadAction>().open();
    let stop = CancellationToken::new();
    let mut feeds = Feeds::new(&server.client(), options, store.clone(), metrics.clone(), stop);
    feeds.cluster::<Node, NodeFact>();
    feeds.namespaced::<SlimPod, PodFact>();
    feeds.outside::<SlimPod, OutsidePodFact>();
    feeds.optional::<ScaledObject, ScaledObjectFact>();
    feeds.namespaced::<WorkloadAction, WorkloadAction>();
    Running { server, store, feeds, metrics }
}

/// Requeues each action that changed.
#[derive(Default)]
struct Requeuer;

impl State for Requeuer {
    fn empty() -> &'static Self {
        &Self
    }
}

impl Follows<WorkloadAction> for Requeuer {
    fn requeue(_world: &World, old: Option<&WorkloadAction>, new: Option<&WorkloadAction>) -> Requeue {
        Requeue::all::<WorkloadAction>(new.or(old).map(|action| action.key().into_owned()))
    }
}

/// Whether the pods of other namespaces are cached.
fn knows_load(world: &World) -> bool {
    !world.table::<OutsidePodFact>().is_unavailable()
}

impl Running {
    fn pods(&self) -> usize {
        self.store.read(|world| world.table::<PodFact>().len())
    }

    fn actions(&self) -> usize {
        self.store.read(|world| world.all::<WorkloadAction>().count())
    }

    fn has_unreadable(&self) -> bool {
        self.store.read(|world| !world.table::<WorkloadAction>().unreadable().is_empty())
    }

    fn is_ready(&self) -> bool {
        self.feeds.ready().is_ready()
    }

    async fn settled(&self) {
        self.feeds.ready().ready().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn after(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}

fn pod(name: &str, version: u64) -> Value {
    json!({"metadata": {"namespace": "a", "name": name, "uid": name, "resourceVersion": version.to_string()}})
}

fn action(name: &str, version: u64) -> Value {
    json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction",
        "metadata": {
            "namespace": "a", "name": name, "uid": name, "resourceVersion": version.to_string(),
            "managedFields": [
                {"manager": "later", "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:spec": {}}},
                {"manager": "somebody", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {}}},
                {"manager": "ganglion/workload-action", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {}}},
                {"manager": "status", "subresource": "status", "time": "2025-01-01T00:00:00Z"},
            ],
        },
        "spec": {"delete": {"pod": {"name": "p"}}},
    })
}

#[tokio::test(start_paused = true)]
async fn pages_are_put_together_and_the_watch_goes_on_from_the_list() {
    let server = Server::default();
    server.lists(PODS, vec![vec![pod("one", 3), pod("two", 4)], vec![pod("three", 5)]], 9);
    let running = start(server, &[]);
    assert!(!running.is_ready());
    running.settled().await;
    assert_eq!(running.pods(), 3);
    let asked = running.server.asked(PODS);
    assert!(asked[0].contains("limit=250") && !asked[0].contains("resourceVersion"), "{asked:?}");
    assert!(asked[1].contains("continue=1"), "{asked:?}");
    assert!(asked[2].contains("watch=true") && asked[2].contains("resourceVersion=9"), "{asked:?}");
    assert!(asked[2].contains("allowWatchBookmarks=true"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn the_load_of_other_namespaces_is_watched_where_the_right_is_granted() {
    let server = Server::default();
    server.fails(PODS, &[403; 20]);
    server.lists(PODS, vec![vec![pod("outside", 5)]], 9);
    let running = start(server, &["a", "b"]);
    running.settled().await;
    assert!(!running.store.read(knows_load), "it is ready without these pods");
    running.server.fails(PODS, &[]);
    after(20.0).await;
    assert!(running.store.read(knows_load));
    let asked = running.server.asked(PODS);
    let others = "fieldSelector=metadata.namespace%21%3Da%2Cmetadata.namespace%21%3Db";
    assert!(asked.iter().all(|uri| uri.contains(others)), "{asked:?}");
    assert_eq!(running.store.read(|world| world.table::<OutsidePodFact>().len()), 1);
}

/// An API server that has just started forbids everything until it has loaded its roles.
#[rstest::rstest]
#[tokio::test(start_paused = true)]
async fn the_start_waits_while_the_first_list_fails_for_some_seconds(#[values(403, 503)] code: u16) {
    let server = Server::default();
    server.fails(SCALED, &[code; 5]);
    server.lists(SCALED, vec![vec![scaled("one")]], 9);
    let running = start(server, &[]);
    after(1.0).await;
    assert!(!running.is_ready());
    running.settled().await;
    let known =
        |world: &World| (world.table::<ScaledObjectFact>().len(), world.table::<ScaledObjectFact>().is_unavailable());
    assert_eq!(running.store.read(known), (1, false));
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_stays_forbidden_delays_the_start_by_some_seconds_only() {
    let server = Server::default();
    server.fails(SCALED, &[403; 100]);
    let running = start(server, &[]);
    after(9.0).await;
    assert!(!running.is_ready());
    after(3.0).await;
    assert!(running.is_ready() && running.store.read(|world| world.table::<ScaledObjectFact>().is_unavailable()));
}

const SCALED: &str = "/apis/keda.sh/v1alpha1/scaledobjects";

fn scaled(name: &str) -> Value {
    json!({
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"namespace": "a", "name": name, "uid": name, "resourceVersion": "3"},
        "spec": {"scaleTargetRef": {"name": "web"}},
    })
}

#[rstest::rstest]
#[tokio::test(start_paused = true)]
async fn an_optional_kind_is_forgotten_only_when_it_stays_away(#[values(403, 404)] code: u16) {
    let server = Server::default();
    server.lists(SCALED, vec![vec![scaled("one")]], 9);
    let running = start(server, &[]);
    running.settled().await;
    let known = || running.store.read(|world| world.within::<ScaledObjectFact>("a").count());
    assert_eq!(known(), 1);
    // An API server that has just started, or whose aggregation layer failed for a moment.
    running.server.fails(SCALED, &[code; 4]);
    running.server.ends(SCALED);
    for _ in 0..40 {
        after(1.0).await;
        assert_eq!(known(), 1);
    }
    assert!(running.server.asked(SCALED).last().unwrap().contains("watch=true"), "it is watched again");
    running.server.fails(SCALED, &[code; 100]);
    running.server.ends(SCALED);
    after(50.0).await;
    assert_eq!(known(), 1, "for a minute the kind counts as temporarily unavailable");
    after(60.0).await;
    assert_eq!(known(), 0);
    running.server.fails(SCALED, &[]);
    after(20.0).await;
    assert_eq!(known(), 1, "it is back");
}

#[tokio::test(start_paused = true)]
async fn changes_arrive_and_requeue_the_objects_they_concern() {
    let running = start(Server::default(), &[]);
    running.settled().await;
    running.server.says(PODS, "ADDED", &pod("one", 11));
    running.server.says(ACTIONS, "ADDED", &action("go", 12));
    after(0.001).await;
    assert_eq!(running.pods(), 1);
    assert_eq!(running.store.queue::<WorkloadAction>().get().await, Key::new("a", "go"));
    let managed = running
        .store
        .read(|world| world.get::<WorkloadAction>(&Key::new("a", "go")).unwrap().metadata.managed_fields.clone());
    let managed = managed.expect("the first manager is kept");
    assert!(matches!(managed.as_slice(), [first] if first.manager.as_deref() == Some("somebody")), "{managed:?}");
    assert!(managed[0].fields_v1.is_none());
    running.server.says(PODS, "DELETED", &pod("one", 13));
    after(0.001).await;
    assert_eq!(running.pods(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_goes_on_where_it_was() {
    let running = start(Server::default(), &[]);
    running.settled().await;
    after(10.0).await;
    running.server.says(PODS, "ADDED", &pod("one", 11));
    running.server.says(
        PODS,
        "BOOKMARK",
        &json!({"metadata": {"resourceVersion": "20"}, "kind": "Pod", "apiVersion": "v1"}),
    );
    after(0.001).await;
    running.server.ends(PODS);
    after(0.001).await;
    let asked = running.server.asked(PODS);
    assert!(asked.last().unwrap().contains("resourceVersion=20"), "{asked:?}");
    assert_eq!(running.pods(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_means_a_new_list_and_what_vanished_is_gone() {
    let server = Server::default();
    server.lists(PODS, vec![vec![pod("one", 3), pod("two", 4)]], 9);
    let running = start(server, &[]);
    running.settled().await;
    running.server.lists(PODS, vec![vec![pod("two", 4)]], 30);
    let gone = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"});
    running.server.says(PODS, "ERROR", &gone);
    after(1.0).await;
    assert_eq!(running.pods(), 1);
    assert!(running.is_ready(), "the readiness stays");
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_for_one_kind_and_no_other() {
    let server = Server::default();
    server.fails(PODS, &[503; 6]);
    let running = start(server, &[]);
    after(0.001).await;
    assert!(running.server.asked(ACTIONS).len() >= 2, "the others list and watch");
    assert_eq!(running.server.asked(PODS).len(), 1);
    assert!(!running.is_ready());
    after(10.0).await;
    assert!(running.is_ready());
    assert_eq!(running.server.asked(PODS).len(), 8, "six failures, a list, a watch");
    let text = running.metrics.render(&prometheus_client::registry::Registry::default()).unwrap();
    assert!(text.contains("ganglion_watch_restarts_total{kind=\"Pod\",reason=\"refused\"} 6"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_ended_at_once_every_time_does_not_spin() {
    let server = Server::default();
    let running = start(server.clone(), &[]);
    running.settled().await;
    for _ in 0..2000 {
        server.ends(PODS);
        after(0.01).await;
    }
    let asked = server.asked(PODS).len();
    assert!(asked < 30, "{asked} requests in 20 s");
}

#[tokio::test(start_paused = true)]
async fn what_only_our_own_requests_told_of_is_looked_up_after_a_list() {
    let running = start(Server::default(), &[]);
    running.settled().await;
    // The answer to a request sent before the list: the object was created and deleted before it, and no watch event
    // will report it.
    let id = Identity { key: Key::new("a", "ghost"), uid: "ghost".into(), version: "8".into() };
    running.store.apply(PodFact { id, ..PodFact::default() }, Origin::Own);
    running.server.fails("/api/v1/namespaces/a/pods/ghost", &[404]);
    after(29.0).await;
    assert_eq!(running.pods(), 1);
    after(2.0).await;
    assert_eq!(running.pods(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_taken_for_dead() {
    let running = start(Server::default(), &[]);
    running.settled().await;
    let before = running.server.asked(PODS).len();
    after(200.0).await;
    assert!(running.server.asked(PODS).len() > before);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_parse_stops_nobody_and_is_remembered() {
    let server = Server::default();
    let mut odd = action("odd", 5);
    odd["spec"] = json!({"priority": "high"});
    server.lists(ACTIONS, vec![vec![odd.clone(), action("go", 6)]], 9);
    let running = start(server, &[]);
    running.settled().await;
    assert_eq!(running.actions(), 1);
    assert!(running.has_unreadable());
    running.server.says(ACTIONS, "MODIFIED", &action("odd", 10));
    after(0.001).await;
    assert!(!running.has_unreadable());
    assert_eq!(running.actions(), 2);
    odd["metadata"]["resourceVersion"] = json!("11");
    running.server.says(ACTIONS, "MODIFIED", &odd);
    after(0.001).await;
    assert!(running.has_unreadable());
    assert_eq!(running.actions(), 2, "its last readable version still counts");
    running.server.says(ACTIONS, "DELETED", &odd);
    after(0.001).await;
    assert!(!running.has_unreadable());
}

#[tokio::test(start_paused = true)]
async fn what_does_not_parse_is_remembered_while_lists_fail() {
    let server = Server::default();
    let mut odd = action("odd", 5);
    odd["spec"] = json!({"priority": "high"});
    server.lists(ACTIONS, vec![vec![odd.clone()], vec![action("go", 6)]], 9);
    let running = start(server, &[]);
    running.settled().await;
    assert!(running.has_unreadable());
    for codes in [[404; 3], [403; 3], [503; 3]] {
        let gone = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410,
            "reason": "Expired", "message": "too old"});
        running.server.fails(ACTIONS, &codes);
        running.server.says(ACTIONS, "ERROR", &gone);
        for _ in 0..40 {
            after(0.05).await;
            assert!(running.has_unreadable(), "no list succeeded: {:?}", running.server.asked(ACTIONS));
        }
        after(60.0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_does_not_parse_does_not_end_the_watch() {
    let running = start(Server::default(), &[]);
    running.settled().await;
    let mut odd = pod("odd", 11);
    odd["spec"] = json!({"containers": "none"});
    running.server.says(PODS, "ADDED", &odd);
    running.server.says(PODS, "ADDED", &pod("one", 12));
    after(0.001).await;
    assert_eq!(running.pods(), 1);
    assert_eq!(running.server.asked(PODS).len(), 2, "a list and one watch");
}

#[tokio::test(start_paused = true)]
async fn with_namespaces_each_is_watched_and_a_list_of_one_leaves_the_other_alone() {
    let server = Server::default();
    let path = |namespace: &str| format!("/api/v1/namespaces/{namespace}/pods");
    server.lists(&path("a"), vec![vec![pod("one", 3)]], 9);
    let mut other = pod("two", 4);
    other["metadata"]["namespace"] = json!("b");
    server.lists(&path("b"), vec![vec![other]], 9);
    let running = start(server, &["a", "b"]);
    running.settled().await;
    assert_eq!(running.pods(), 2);
    assert!(running.server.asked(PODS).iter().all(|uri| uri.contains("fieldSelector")), "others only");
    assert_eq!(running.server.asked("/api/v1/nodes").len(), 2, "nodes are in no namespace");
    let knows = |world: &World, namespace: &str, name: &str| world.pod(&Key::new(namespace, name)).is_some();
    assert!(running.store.read(|world| knows(world, "a", "one") && knows(world, "b", "two")));
}

/// The watches of a standby may lag behind what the former leader has done.
#[tokio::test(start_paused = true)]
async fn all_kinds_are_listed_again_on_request_by_consistent_reads() {
    let server = Server::default();
    server.lists(PODS, vec![vec![pod("one", 3)]], 9);
    let running = start(server, &[]);
    running.settled().await;
    running.server.lists(PODS, vec![vec![pod("two", 12)]], 12);
    let relisted = running.feeds.relist().all();
    assert!(!relisted.is_ready());
    relisted.ready().await;
    let names = |world: &World| world.all::<PodFact>().map(|pod| pod.id.key.name.clone()).collect::<Vec<_>>();
    assert_eq!(running.store.read(names), ["two"]);
    assert!(running.is_ready(), "it serves meanwhile");
    after(2.0).await;
    for path in [PODS, ACTIONS, "/api/v1/nodes", SCALED] {
        let asked = running.server.asked(path);
        let lists: Vec<_> = asked.iter().filter(|uri| uri.contains("limit=")).collect();
        assert_eq!(lists.len(), 2, "{asked:?}");
        // An API server may answer a list with a resourceVersion from a cache that lags.
        assert!(lists.iter().all(|uri| !uri.contains("resourceVersion")), "{asked:?}");
        assert!(asked.last().is_some_and(|uri| uri.contains("watch=true")), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_was_requested_before_does_not_count() {
    let server = Server::default();
    server.lists(PODS, vec![vec![pod("one", 3)]], 9);
    let running = start(server, &[]);
    running.settled().await;
    let relist = running.feeds.relist();
    running.server.lists(PODS, vec![vec![pod("two", 12)]], 12);
    let first = relist.all();
    first.ready().await;
    running.server.lists(PODS, vec![vec![pod("three", 15)]], 15);
    let (second, third) = (relist.all(), relist.all());
    second.ready().await;
    third.ready().await;
    let knows = |world: &World| world.pod(&Key::new("a", "three")).is_some();
    assert!(running.store.read(knows));
}

/// The pause between two looks at a missing kind, or its backoff, does not delay a replica that takes over.
#[rstest::rstest]
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_does_not_delay_the_lists(#[values(404, 403)] code: u16) {
    let server = Server::default();
    server.fails(SCALED, &[code; 200]);
    let running = start(server, &[]);
    running.settled().await;
    after(100.0).await;
    let relisted = running.feeds.relist().all();
    tokio::time::timeout(Duration::from_secs(1), relisted.ready()).await.expect("the lists");
}

#[tokio::test(start_paused = true)]
async fn while_the_api_server_fails_a_request_to_list_waits() {
    let running = start(Server::default(), &[]);
    running.settled().await;
    running.server.fails(ACTIONS, &[503; 3]);
    let relisted = running.feeds.relist().all();
    after(0.05).await;
    assert!(!relisted.is_ready());
    tokio::time::timeout(Duration::from_secs(30), relisted.ready()).await.expect("the lists");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_panics_is_noticed() {
    let mut running = start(Server::default(), &[]);
    running.settled().await;
    running.feeds.spawn(async { panic!("a fault of this program") });
    let noticed = tokio::time::timeout(Duration::from_secs(1), running.feeds.ended()).await;
    assert!(noticed.unwrap().is_err_and(|failure| failure.is_panic()));
}

/// Pods whose conversion to facts panics.
#[derive(serde::Deserialize, Clone, Debug)]
#[serde(transparent)]
struct FaultyPod(Pod);

impl Resource for FaultyPod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Pod::kind(&())
    }
    fn group((): &()) -> Cow<'_, str> {
        Pod::group(&())
    }
    fn version((): &()) -> Cow<'_, str> {
        Pod::version(&())
    }
    fn plural((): &()) -> Cow<'_, str> {
        Pod::plural(&())
    }
    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

impl From<FaultyPod> for PodFact {
    fn from(_: FaultyPod) -> Self {
        panic!("a fault of this program")
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_up_that_panics_is_noticed() {
    let mut running = start(Server::default(), &[]);
    running.feeds.namespaced::<FaultyPod, PodFact>();
    running.settled().await;
    after(1.0).await;
    let id = Identity { key: Key::new("a", "ghost"), uid: "ghost".into(), version: "8".into() };
    running.store.apply(PodFact { id, ..PodFact::default() }, Origin::Own);
    let noticed = tokio::time::timeout(Duration::from_secs(31), running.feeds.ended()).await;
    assert!(noticed.unwrap().is_err_and(|failure| failure.is_panic()));
}
