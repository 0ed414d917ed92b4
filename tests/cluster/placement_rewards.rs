//! The outcome of pods on nodes is learned from their statuses, and persists across restarts of the operator.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::placement_policy::PlacementPolicy;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testkit::plane::Plane;
use testkit::process::free_port;
use testkit::testbed::loops::until;
use testkit::testbed::{Road, Testbed, story_on};
use testkit::{TIMEOUT, block_on};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const POLICY: &str = "learn";

/// Longer than the minimum interval between two writes of learned data.
const IDLE: Duration = Duration::from_secs(75);

/// Two nodes, and an operator that serves schedulers.
struct Scene<'a> {
    testbed: &'a Testbed,
    nodes: [String; 2],
    port: u16,
}

impl<'a> Scene<'a> {
    async fn open(testbed: &'a Testbed) -> Result<Self> {
        let port = free_port()?;
        testbed.settings("placement:\n  tls: false")?;
        testbed.operator.lock().await.add_options(&["--extender-bind", &format!("127.0.0.1:{port}")]);
        testbed.kill_and_restart().await?;
        let nodes = Api::<Node>::all(testbed.client.clone()).list(&ListParams::default()).await?;
        let mut names = nodes.iter().map(Node::name_any);
        let nodes = [names.next().context("a node")?, names.next().context("another node")?];
        Ok(Self { testbed, nodes, port })
    }

    fn policies(&self) -> Api<PlacementPolicy> {
        Api::all(self.testbed.client.clone())
    }

    /// Starts a pod of this type on a node, and waits until it runs.
    async fn runs(&self, name: &str, of: &str, at: usize) -> Result<()> {
        let spec = json!({
            "nodeName": self.nodes[at], "containers": [{"name": "c", "image": "none"}],
        });
        let pod = json!({"metadata": {"name": name, "labels": {"app": of}}, "spec": spec});
        self.testbed.create::<Pod>(pod).await?;
        until::<Pod, _>(self.testbed, name, "the pod to run", |pod| {
            (pod.status?.phase.as_deref() == Some("Running")).then_some(())
        })
        .await
    }

    /// Lets the pod's container end with an error, as a kubelet reports it.
    async fn fails(&self, name: &str) -> Result<()> {
        let now = jiff::Timestamp::now();
        let state = json!({"terminated": {"exitCode": 1, "startedAt": now, "finishedAt": now}});
        let container = json!({
            "name": "c", "image": "none", "imageID": "", "ready": false, "restartCount": 0, "state": state,
        });
        let patch = Patch::Merge(json!({"status": {"containerStatuses": [container]}}));
        self.testbed.api::<Pod>().patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Scores that kube-scheduler would get for a pod of this type; None while the operator abstains.
    async fn scores(&self, of: &str) -> Result<Option<[i64; 2]>> {
        let pod = json!({
            "metadata": {"name": "new", "namespace": self.testbed.ns, "uid": "new", "labels": {"app": of}},
            "spec": {"schedulerName": "default-scheduler", "containers": []},
        });
        let body = json!({"Pod": pod, "NodeNames": self.nodes}).to_string();
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)).await else { return Ok(None) };
        let head = format!(
            "POST /policies/{POLICY}/prioritize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (_, text) = answer.split_once("\r\n\r\n").context("an answer with a body")?;
        let list: Value = serde_json::from_str(text).with_context(|| answer.clone())?;
        let score = |node: &String| {
            let found = list.as_array()?.iter().find(|one| one["Host"] == json!(node))?;
            found["Score"].as_i64()
        };
        let [first, second] = &self.nodes;
        let scores = [score(first).context("a score")?, score(second).context("a score")?];
        Ok((scores != [0, 0]).then_some(scores))
    }

    /// First scores for a pod of this type.
    async fn opinion(&self, of: &str) -> Result<[i64; 2]> {
        let asked = async {
            loop {
                if let Some(scores) = self.scores(of).await? {
                    return anyhow::Ok(scores);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, asked).await.context("the operator has no opinion")?
    }

    /// Output of the command about a pod of this type.
    async fn explained(&self, of: &str) -> Result<Value> {
        let home = tempfile::tempdir()?;
        let file = home.path().join("pod.yaml");
        let pod = format!("metadata: {{name: new, labels: {{app: {of}}}}}\nspec: {{containers: [{{name: c}}]}}\n");
        std::fs::write(&file, pod)?;
        let file = file.display().to_string();
        let asked = ["explain", "placement", "--policy", POLICY, "-f", &file, "-o", "json"];
        let (done, said) = self.testbed.ganglion(&asked).await?;
        ensure!(done, "{said}");
        Ok(serde_json::from_str(&said)?)
    }

    /// Name of the ConfigMap in the policy's status.
    async fn map(&self) -> Result<String> {
        let told = async {
            loop {
                let memory = self.policies().get(POLICY).await?.status.and_then(|status| status.memory);
                if let Some((namespace, name)) = memory.as_deref().and_then(|memory| memory.split_once('/')) {
                    ensure!(namespace == self.testbed.ns, "{namespace}");
                    return anyhow::Ok(name.to_owned());
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, told).await.context("the policy names no ConfigMap")?
    }

    /// Waits until the ConfigMap contains this text. Returns its version.
    async fn saved(&self, map: &str, text: &str) -> Result<String> {
        until::<ConfigMap, _>(self.testbed, map, "what was learned to be saved", |map| {
            let version = map.metadata.resource_version?;
            map.data?.get("memory.json")?.contains(text).then_some(version)
        })
        .await
    }
}

#[test]
fn what_was_learned_outlives_the_operator() {
    let plane = block_on(Plane::own("rewards", 2)).expect("a plane of its own");
    story_on(&plane.0, Road::Direct, "rewards", async |testbed| {
        let scene = Scene::open(testbed).await?;
        let agents = json!([{"name": "learn", "reward": {"learningRate": "0.5"}}]);
        let policy = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "PlacementPolicy", "metadata": {"name": POLICY},
            "spec": {"agents": agents},
        });
        let params = PatchParams::apply("test").force();
        scene.policies().patch(POLICY, &params, &Patch::Apply(policy)).await?;
        let map = learned(&scene).await?;
        remembered(&scene, &map).await?;
        idle(&scene, &map).await?;
        lost(&scene, &map).await?;
        scene.policies().delete(POLICY, &DeleteParams::default()).await?;
        let gone = async {
            while testbed.api::<ConfigMap>().get_opt(&map).await?.is_some() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(TIMEOUT, gone).await.context("the ConfigMap stays without its policy")?
    });
}

/// A failure lowers the score of a node for pods of the type, but not for others.
async fn learned(scene: &Scene<'_>) -> Result<String> {
    scene.runs("web-0", "web", 0).await?;
    scene.runs("web-1", "web", 1).await?;
    ensure!(scene.scores("web").await?.is_none(), "an opinion before anything failed");
    scene.fails("web-0").await?;
    let scores = scene.opinion("web").await?;
    ensure!(scores == [5, 10], "{scores:?}");
    ensure!(scene.scores("db").await?.is_none(), "an opinion about pods of another type");
    let map = scene.map().await?;
    scene.saved(&map, "\"web\"").await?;
    let said = scene.explained("web").await?;
    let reason = |at: usize| said["nodes"][at]["agents"][0]["reason"].as_str().unwrap_or_default();
    ensure!(said["nodes"][1]["name"] == json!(scene.nodes[0]), "{said}");
    ensure!(reason(0) == "initial value 1.00 of type web on this node", "{said}");
    ensure!(reason(1) == "value 0.50 of type web on this node", "{said}");
    let said = scene.explained("db").await?;
    ensure!(said["agents"][0]["abstains"].as_str().is_some_and(|why| why.contains("for pods of type db")), "{said}");
    Ok(map)
}

/// After a restart, the operator still has the record, although the pod is gone, and does not count old events again.
async fn remembered(scene: &Scene<'_>, map: &str) -> Result<()> {
    let testbed = scene.testbed;
    testbed.kill_and_restart().await?;
    let scores = scene.opinion("web").await?;
    ensure!(scores == [5, 10], "{scores:?} while the failed pod is there");
    let now = DeleteParams::default().grace_period(0);
    testbed.api::<Pod>().delete("web-0", &now).await?;
    testbed.kill_and_restart().await?;
    let scores = scene.opinion("web").await?;
    ensure!(scores == [5, 10], "{scores:?} once the failed pod has gone");
    let said = std::fs::read_to_string(testbed.operator.lock().await.log())?;
    ensure!(said.contains("the saved values of a policy are restored"), "no word about {map}");
    Ok(())
}

/// Nothing is written while nothing is learned.
async fn idle(scene: &Scene<'_>, map: &str) -> Result<()> {
    let before = scene.saved(map, "\"web\"").await?;
    tokio::time::sleep(IDLE).await;
    let after = scene.saved(map, "\"web\"").await?;
    ensure!(before == after, "it was written though nothing was learned");
    Ok(())
}

/// A ConfigMap with invalid content is reported and rewritten.
async fn lost(scene: &Scene<'_>, map: &str) -> Result<()> {
    let testbed = scene.testbed;
    let broken = Patch::Merge(json!({"data": {"memory.json": "nothing"}}));
    testbed.api::<ConfigMap>().patch(map, &PatchParams::default(), &broken).await?;
    testbed.kill_and_restart().await?;
    let told = async {
        let events: Api<Event> = Api::all(testbed.client.clone());
        loop {
            let found = events.list(&ListParams::default()).await?.into_iter().find(|event| {
                event.reason.as_deref() == Some("MemoryLost")
                    && event.regarding.as_ref().is_some_and(|one| {
                        one.kind.as_deref() == Some("PlacementPolicy") && one.name.as_deref() == Some(POLICY)
                    })
            });
            if let Some(event) = found {
                return anyhow::Ok(event.note.unwrap_or_default());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let note = tokio::time::timeout(TIMEOUT, told).await.context("no event says that it is lost")??;
    ensure!(note.contains(map) && note.contains("cannot be read"), "{note}");
    scene.saved(map, "savedAt").await?;
    ensure!(scene.scores("web").await?.is_none(), "an opinion from nothing");
    Ok(testbed.api::<Pod>().delete("web-1", &DeleteParams::default().grace_period(0)).await.map(drop)?)
}
