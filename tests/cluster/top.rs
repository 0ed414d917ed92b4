//! `ganglion top` in a pseudo-terminal: it shows objects as they change, changes them after a confirmation, and leaves
//! the terminal as it was.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::closed_loop::{ClosedLoop, LoopMode};
use ganglion_api::node_config::NodeConfig;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;
use tempfile::TempDir;
use testkit::action::move_pod;
use testkit::operator::program;
use testkit::plane::{Plane, kubeconfig};
use testkit::process::{processor_seconds, run};
use testkit::terminal::PtySession;
use testkit::testbed::loops::{SCALES, account, demo, grant_to, loop_story, make, push, ready};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Road, Testbed, story, story_on};
use testkit::{block_on, root};

const WIDE: (u16, u16) = (160, 30);

/// A kubeconfig in a file.
struct Access {
    path: PathBuf,
    _home: TempDir,
}

impl Access {
    fn new(kubeconfig: &str) -> Result<Self> {
        let home = TempDir::new()?;
        let path = home.path().join("kubeconfig");
        std::fs::write(&path, kubeconfig)?;
        Ok(Self { path, _home: home })
    }

    async fn administrator(testbed: &Testbed) -> Result<Self> {
        Self::new(&testbed.administrator().await?)
    }

    /// Starts the view of the testbed's namespace.
    fn top(
        &self,
        testbed: &Testbed,
        args: &[&str],
        variables: &[(&str, &str)],
        size: (u16, u16),
    ) -> Result<PtySession> {
        let path = self.path.display().to_string();
        let common = ["top", "-n", &testbed.ns, "--kubeconfig", &path];
        PtySession::start(&program()?, &[&common, args].concat(), variables, size)
    }
}

/// A Deployment `web` with one replica, and the demo's loop with a first sample.
async fn loop_with_sample(testbed: &Testbed) -> Result<()> {
    Workload::deployment("web", 1).create(testbed).await?;
    account(testbed, SCALES).await?;
    let mut spec = demo();
    // Otherwise, the status has a value only when an alarm begins or ends.
    spec["trace"] = json!("EverySample");
    make(testbed, "web", spec).await?;
    ready(testbed, "web", "True", "Running").await?;
    push(testbed, "web", json!({"cpu": "40", "memory": "60"})).await.map(drop)
}

async fn mode(testbed: &Testbed) -> Result<LoopMode> {
    Ok(testbed.api::<ClosedLoop>().get("web").await?.spec.mode)
}

#[test]
fn a_loop_is_watched_explained_suspended_and_resumed() {
    loop_story("top-loop", async |testbed| {
        loop_with_sample(testbed).await?;
        let access = Access::administrator(testbed).await?;
        let mut top = access.top(testbed, &[], &[], WIDE)?;
        top.shows(&["ganglion top  namespace", "loop web", "Ready", "cpu 40 (>5), memory 60 (>50)"]).await?;
        ensure!(top.is_changed() && top.has_color(), "not a screen of its own:\n{}", top.text());
        push(testbed, "web", json!({"cpu": "41", "memory": "61"})).await?;
        top.shows(&["cpu 41 (>5), memory 61 (>50)", "TREND"]).await?;

        top.press("/nothing\r").await?;
        top.shows(&["that match the filter"]).await?;
        top.press("\x1b").await?;
        top.shows(&["loop web"]).await?;

        let question = format!("Suspend ClosedLoop {}/web? This sets spec.mode from Auto to Paused. (y/n)", testbed.ns);
        top.press("s").await?;
        top.shows(&[&question]).await?;
        top.press("n").await?;
        top.shows(&["nothing was changed"]).await?;
        ensure!(mode(testbed).await? == LoopMode::Auto, "the loop was suspended without a confirmation");
        top.press("s").await?;
        top.shows(&[&question]).await?;
        top.press("y").await?;
        top.shows(&["spec.mode: \"Paused\"", "loop web  Paused"]).await?;
        ready(testbed, "web", "True", "Paused").await?;
        ensure!(mode(testbed).await? == LoopMode::Paused, "the loop was not suspended");
        top.press("r").await?;
        top.shows(&["This sets spec.mode back to Auto. (y/n)"]).await?;
        top.press("y").await?;
        top.shows(&["loop web  Ready"]).await?;
        ensure!(mode(testbed).await? == LoopMode::Auto, "the loop was not resumed");

        let (_, explained) = testbed.ganglion(&["explain", "loop", "web"]).await?;
        let first = explained.lines().next().context("no explanation")?;
        top.press("\r").await?;
        top.shows(&["ClosedLoop", "cpu ", "low 5", first]).await?;
        top.press("\x1b").await?;
        top.shows(&["loop web"]).await?;

        top.resize(20, 12)?;
        top.until("a narrow table", |text| text.contains("NAME STATE") && !text.contains("REASON")).await?;
        top.resize(WIDE.0, WIDE.1)?;
        top.shows(&["REASON", "PROGRESS"]).await?;
        top.press("q").await?;
        top.ends_with(0).await
    });
}

#[test]
fn an_action_is_aborted_and_a_proposal_is_approved() {
    loop_story("top-commands", async |testbed| {
        let mut spec = demo();
        spec["mode"] = json!("Approve");
        Workload::deployment("web", 1).create(testbed).await?;
        account(testbed, SCALES).await?;
        make(testbed, "web", spec).await?;
        ready(testbed, "web", "True", "Running").await?;
        push(testbed, "web", json!({"cpu": "2", "memory": "60"})).await?;
        let access = Access::administrator(testbed).await?;
        let mut top = access.top(testbed, &["loop,wa"], &[], WIDE)?;
        top.shows(&["Proposal"]).await?;
        top.press("a").await?;
        top.shows(&["Approve decision 1 of ClosedLoop", "It proposes: scale by 1"]).await?;
        top.press("y").await?;
        top.shows(&["approved decision 1"]).await?;
        testkit::testbed::loops::until::<k8s_openapi::api::apps::v1::Deployment, _>(
            testbed,
            "web",
            "the approved number of replicas",
            |web| web.spec.and_then(|spec| spec.replicas).filter(|replicas| *replicas == 2),
        )
        .await?;

        // A suspended action has not begun, and is aborted without an effect.
        let pods = testbed.api::<Pod>().list(&ListParams::default()).await?;
        let pod = pods.items.first().context("no pod")?.name_any();
        let mut moves = move_pod(&pod, "absent");
        moves["suspend"] = json!(true);
        testbed.act("go", moves).await?;
        top.shows(&["go ", "Suspended"]).await?;
        top.press("1").await?;
        top.until("only actions", |text| !text.contains("loop web")).await?;
        top.press("x").await?;
        top.shows(&["Abort WorkloadAction"]).await?;
        top.press("y").await?;
        testbed.over("go").await?;
        ensure!(
            testbed.api::<ganglion_api::workload_action::WorkloadAction>().get("go").await?.spec.abort,
            "not aborted"
        );
        top.press("\x03").await?;
        top.ends_with(130).await
    });
}

#[test]
fn a_missing_right_is_named_and_the_others_work() {
    loop_story("top-rights", async |testbed| {
        loop_with_sample(testbed).await?;
        testbed.create::<ServiceAccount>(json!({"metadata": {"name": "viewer"}})).await?;
        let kinds = ["closedloops", "monitorings", "decisions", "executions"];
        let rights: Vec<(&str, &str, &str)> =
            kinds.iter().flat_map(|kind| ["get", "list", "watch"].map(|verb| ("ganglion.dev", *kind, verb))).collect();
        grant_to(testbed, "viewer", &rights).await?;
        let token = testbed.token("viewer").await?;
        let viewer = kubeconfig::direct(&testbed.plane.cluster.config, &token);
        let denied = format!("not permitted: list and watch workloadactions.ganglion.dev in namespace {}", testbed.ns);

        let access = Access::new(&viewer)?;
        let mut top = access.top(testbed, &[], &[("NO_COLOR", "1")], WIDE)?;
        top.shows(&["loop web", &denied, "Policies: not permitted: list and watch placementpolicies.ganglion.dev"])
            .await?;
        ensure!(!top.has_color(), "colors in spite of NO_COLOR:\n{}", top.text());
        top.press("s").await?;
        let missing = format!("patch closedloops.ganglion.dev (web) in namespace {}", testbed.ns);
        top.shows(&["you may not suspend ClosedLoop", &missing]).await?;
        top.press("y").await?;
        ensure!(mode(testbed).await? == LoopMode::Auto, "the loop was suspended without the right");
        let pid = top.pid()?.to_string();
        let mut terminate = tokio::process::Command::new("sh");
        terminate.args(["-c", "kill -TERM \"$0\"", &pid]);
        run(terminate, None).await?;
        top.ends_with(130).await?;

        let (good, said) = testbed.ganglion_as(&viewer, &["top"], "").await?;
        ensure!(!good && said.contains(&denied) && said.contains("cpu 40 (>5)"), "{said}");
        ensure!(!said.contains('\x1b'), "not a plain table: {said:?}");
        let (good, said) = testbed.ganglion_as(&viewer, &["top", "loop", "--once"], "").await?;
        ensure!(good && said.starts_with("KIND   NAME   STATE"), "{said}");
        Ok(())
    });
}

#[test]
fn the_view_survives_a_restart_of_the_api_server() {
    let own = block_on(Plane::own("top", 2)).expect("a plane of its own");
    story_on(&own.0, Road::Direct, "top-restart", async |testbed| {
        let cluster = &own.0.cluster;
        let access = Access::administrator(testbed).await?;
        let mut top = access.top(testbed, &[], &[], WIDE)?;
        top.shows(&["No objects in namespace"]).await?;
        cluster.fault(&["stop", "apiserver"]).await?;
        top.shows(&["stale since ", "8 watches broken, retrying"]).await?;
        // Without an API server, there is no view.
        let (good, said) = testbed.ganglion_as(&std::fs::read_to_string(&access.path)?, &["top"], "").await?;
        ensure!(!good && said.contains("the API server does not answer") && said.contains("kubectl version"), "{said}");
        cluster.fault(&["start", "apiserver"]).await?;
        top.until("a current view", |text| !text.contains("stale since")).await?;
        suspended(testbed, "late").await?;
        top.shows(&["ncfg late", "Suspended"]).await?;

        testbed.kubectl(&["delete", "crd", "placementpolicies.ganglion.dev"], None).await?;
        top.shows(&["Policies: not installed: placementpolicies.ganglion.dev", "ncfg late"]).await?;
        let (good, said) = testbed.ganglion(&["top"]).await?;
        ensure!(!good && said.contains("Policies: not installed") && said.contains("late"), "{said}");
        let crd = root().join("crds/placementpolicies.ganglion.dev.yaml").display().to_string();
        testbed.kubectl(&["apply", "--server-side", "-f", &crd], None).await?;
        cluster.established("placementpolicies.ganglion.dev").await?;
        top.until("the kind to be found", |text| !text.contains("not installed")).await?;
        top.press("q").await?;
        top.ends_with(0).await
    });
}

/// A NodeConfig that is suspended.
async fn suspended(testbed: &Testbed, name: &str) -> Result<()> {
    let config = json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig", "metadata": {"name": name},
        "spec": {"nodeName": "node-0", "suspend": true}});
    testbed.create::<NodeConfig>(config).await.map(drop)
}

#[test]
fn control_z_gives_the_terminal_back_to_the_shell_until_fg() {
    story("top-stop", async |testbed| {
        let access = Access::administrator(testbed).await?;
        // Without line editing, bash itself does not change the terminal.
        let args = ["--norc", "--noprofile", "--noediting", "-i"];
        let mut shell = PtySession::start(Path::new("/bin/bash"), &args, &[], WIDE)?;
        let (program, config) = (program()?.display().to_string(), access.path.display().to_string());
        shell.press(&format!("{program} top -n {} --kubeconfig {config}\r", testbed.ns)).await?;
        shell.shows(&["No objects in namespace"]).await?;
        for (name, columns) in [("first", 120), ("second", 60)] {
            shell.press("\x1a").await?;
            shell.shows(&["Stopped"]).await?;
            ensure!(!shell.is_changed(), "the terminal was not restored:\n{}", shell.text());
            shell.press("clear; stty -a; echo sto''pped\r").await?;
            shell.shows(&[" icanon ", " echo ", "opost -olcuc", "stopped"]).await?;
            suspended(testbed, name).await?;
            shell.resize(columns, 30)?;
            shell.press("fg\r").await?;
            shell.shows(&["ganglion top  namespace", &format!("ncfg {name}"), "Suspended"]).await?;
            ensure!(
                shell.is_changed() && !shell.text().contains("stopped"),
                "not a screen of its own:\n{}",
                shell.text()
            );
        }
        shell.press("q").await?;
        // Keys that are typed earlier may be read by the view.
        shell.until("the prompt", |text| text.trim_end().ends_with(['$', '#'])).await?;
        shell.press("exit 5\r").await?;
        shell.ends_with(5).await?;

        // No shell could continue it.
        let mut top = access.top(testbed, &[], &[], WIDE)?;
        top.shows(&["ncfg first"]).await?;
        top.press("\x1a").await?;
        suspended(testbed, "third").await?;
        top.shows(&["ncfg third"]).await?;
        top.press("q").await?;
        top.ends_with(0).await
    });
}

/// Objects of a view at rest, and the time over which its processor time is measured.
const OBJECTS: usize = 200;
const REST: Duration = Duration::from_secs(20);

/// Share of a processor that a view at rest may use. A build without optimization uses several times that of a release.
const SHARE: f64 = 0.01;

#[test]
fn two_hundred_objects_at_rest_cost_one_percent_of_a_processor() {
    story("top-rest", async |testbed| {
        for at in 0..OBJECTS {
            let config = json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig",
                "metadata": {"name": format!("config-{at}")}, "spec": {"nodeName": format!("absent-{at}"), "suspend": true}});
            testbed.create::<NodeConfig>(config).await?;
        }
        let access = Access::administrator(testbed).await?;
        let mut top = access.top(testbed, &["wa,loop,swp,ncfg"], &[], WIDE)?;
        top.shows(&["200 objects", "Suspended"]).await?;
        top.press("/unseen\r").await?;
        top.shows(&["0 objects"]).await?;
        top.press("\x1b").await?;
        top.shows(&["200 objects"]).await?;
        let pid = top.pid()?;
        let before = processor_seconds(pid)?;
        tokio::time::sleep(REST).await;
        let share = (processor_seconds(pid)? - before) / REST.as_secs_f64();
        println!("a view of {OBJECTS} objects at rest uses {:.2} % of a processor", share * 100.0);
        ensure!(share <= SHARE, "{:.2} % of a processor", share * 100.0);
        top.press("q").await?;
        top.ends_with(0).await
    });
}
