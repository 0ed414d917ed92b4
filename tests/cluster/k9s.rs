//! config/k9s in the real k9s, in a terminal: the columns of each kind, and the commands.

use std::fs;
use std::os::unix::fs::symlink;

use anyhow::{Context, Result, ensure};
use ganglion_api::decision::Decision;
use ganglion_api::execution::{Execution, ExecutionState};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::action::move_pod;
use testkit::operator::program;
use testkit::plane::cluster::kubectl;
use testkit::plane::{NODES, Plane};
use testkit::servers::prometheus::peer;
use testkit::terminal::PtySession;
use testkit::testbed::loops::{self, SCALES, make, push, until};
use testkit::testbed::nodes::Size;
use testkit::testbed::{Road, Testbed, pools, story_on};
use testkit::{block_on, root};

use crate::node_configs::{fake, put, ready, template};
use crate::scenes::Scene;

/// Wide enough for all columns.
const SIZE: (u16, u16) = (320, 50);

/// A directory with kubectl, its plugin, the kubeconfig of an administrator, and the files of config/k9s.
struct K9sHome(TempDir);

impl K9sHome {
    async fn create(testbed: &Testbed) -> Result<Self> {
        let home = TempDir::new()?;
        fs::write(home.path().join("kubeconfig"), testbed.administrator().await?)?;
        fs::create_dir(home.path().join("bin"))?;
        symlink(kubectl().await?, home.path().join("bin/kubectl"))?;
        symlink(program()?, home.path().join("bin/kubectl-ganglion"))?;
        fs::create_dir(home.path().join("config"))?;
        for file in ["views.yaml", "plugins.yaml"] {
            fs::copy(root().join("config/k9s").join(file), home.path().join("config").join(file))?;
        }
        Ok(Self(home))
    }

    /// Opens k9s with this kind.
    fn open(&self, kind: &str, namespace: &str) -> Result<PtySession> {
        let home = self.0.path();
        let at = |name: &str| home.join(name).display().to_string();
        let path = format!("{}:{}", at("bin"), std::env::var("PATH")?);
        let (kubeconfig, config, log) = (at("kubeconfig"), at("config"), at("log"));
        let arguments = ["--kubeconfig", &kubeconfig, "-n", namespace, "-c", kind, "--logLevel", "debug"];
        let arguments = [&arguments[..], &["--logFile", &log, "--splashless"]].concat();
        let (home, path) = (home.display().to_string(), path.as_str());
        let variables =
            [("K9S_CONFIG_DIR", config.as_str()), ("HOME", &home), ("KUBECONFIG", &kubeconfig), ("PATH", path)];
        PtySession::start(&peer("k9s")?, &arguments, &variables, SIZE)
    }

    /// Complaints of k9s about its files.
    fn complaints(&self) -> Result<Vec<String>> {
        let log = fs::read_to_string(self.0.path().join("log")).context("k9s wrote no log")?;
        let words = ["Validation failed", "validation failed", "Unable to grok", "duplicate plugin", "Unknown column"];
        Ok(log.lines().filter(|line| words.iter().any(|word| line.contains(word))).map(str::to_owned).collect())
    }
}

/// Plural name and names of the columns of each kind.
fn views() -> Result<Vec<(String, Vec<String>)>> {
    let views: Value = serde_saphyr::from_str(&fs::read_to_string(root().join("config/k9s/views.yaml"))?)?;
    let name =
        |column: &Value| column.as_str().unwrap_or_default().split([':', '|']).next().unwrap_or_default().to_owned();
    let columns = |view: &Value| view["columns"].as_array().into_iter().flatten().map(name).collect();
    let all = views["views"].as_object().context("no views")?;
    Ok(all.iter().map(|(kind, view)| (kind.rsplit('/').next().unwrap_or_default().to_owned(), columns(view))).collect())
}

#[test]
fn every_kind_has_a_view() {
    let mut kinds: Vec<String> = ganglion_api::all().into_iter().map(|crd| crd.spec.names.plural).collect();
    let mut viewed: Vec<String> = views().unwrap().into_iter().map(|(kind, _)| kind).collect();
    kinds.sort();
    viewed.sort();
    assert_eq!(viewed, kinds);
}

/// One object of each kind.
async fn objects(testbed: &Testbed) -> Result<()> {
    let nodes = testbed.nodes(2, Size::default()).await?;
    template(testbed, &nodes.names[0]).await?;
    put(testbed, "one", &nodes.names[1], json!({"inletTemp": fake()})).await?;
    ready(testbed, "one", "True", "Sampled").await?;
    let scene = Scene::guarded(testbed, "web", 2).await?;
    testbed.act("go", move_pod(&scene.pod(0).0, &scene.free(0))).await?;
    testbed.ends("go", ("True", "Succeeded")).await?;
    loops::account(testbed, SCALES).await?;
    make(testbed, "web", loops::demo()).await?;
    push(testbed, "web", json!({"cpu": "20", "memory": "60"})).await?;
    pools::pool(testbed, "workers", pools::reloading(json!({}))).await.map(drop)
}

#[test]
fn k9s_shows_the_columns_and_runs_the_commands() {
    // The policy is of the whole cluster, and the operators of other stories would write its status, too.
    let plane = block_on(Plane::own("k9s", NODES)).expect("a plane of its own");
    story_on(&plane.0, Road::Direct, "k9s", async |testbed| {
        objects(testbed).await?;
        let policy = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "PlacementPolicy", "metadata": {"name": testbed.ns},
            "spec": {"agents": [{"name": "pack", "pigeon": {"objective": "Consolidate"}}]},
        });
        testbed.kubectl(&["apply", "-f", "-"], Some(&policy.to_string())).await?;
        in_k9s(testbed).await
    });
}

async fn in_k9s(testbed: &Testbed) -> Result<()> {
    let home = K9sHome::create(testbed).await?;
    let mut terminal = home.open("workloadactions", &testbed.ns)?;
    terminal.shows(&["Move", "Succeeded"]).await?;
    for (kind, columns) in views()? {
        terminal.press(&format!(":{kind}\r")).await?;
        let columns: Vec<&str> = columns.iter().map(String::as_str).filter(|name| *name != "NAMESPACE").collect();
        let title = format!("{kind}(");
        let mut words = vec![title.as_str()];
        words.extend(&columns);
        // k9s adds values of nodes after the columns of the view.
        if kind == "nodeconfigs" {
            words.extend(["INLET(C)", "15.5", "Sampled"]);
        }
        let is_complete = |text: &str| words.iter().all(|word| text.contains(word)) && !text.contains("<none>");
        terminal.until(&format!("{words:?}, and no column without values"), is_complete).await?;
    }
    read(testbed, &mut terminal).await?;
    abort(testbed, &mut terminal).await?;
    plan_drain(testbed, &mut terminal).await?;
    approve(testbed, &mut terminal).await?;
    let complaints = home.complaints()?;
    ensure!(complaints.is_empty(), "k9s complains: {complaints:?}");
    Ok(())
}

/// Opens the view of this kind. Its only object is selected once its row, with this word, is there.
async fn open(terminal: &mut PtySession, kind: &str, word: &str) -> Result<()> {
    terminal.press(&format!(":{kind}\r")).await?;
    terminal.shows(&[&format!("{kind}("), word]).await
}

/// The keys x, t and p explain the selected action, show its timeline, and plan it again.
async fn read(testbed: &Testbed, terminal: &mut PtySession) -> Result<()> {
    // From another view: the row of the action may be there already.
    open(terminal, "closedloops", "Running").await?;
    open(terminal, "workloadactions", "Succeeded").await?;
    terminal.shows(&["<x>", "<p>", "<t>", "<shift-k>"]).await?;
    let title = format!("WorkloadAction {}/go", testbed.ns);
    // The pod that the action moved is gone.
    let planned = "PodNotFound: no pod";
    for (key, words) in [
        ("x", ["WorkloadAction", "Nothing to do."]),
        ("t", [&title, "ended: Succeeded"]),
        ("p", ["would not start", planned]),
    ] {
        terminal.press(key).await?;
        terminal.shows(&words).await?;
        terminal.press("q").await?;
        terminal.shows(&["workloadactions("]).await?;
    }
    Ok(())
}

/// The key p plans a drain of the selected node.
async fn plan_drain(testbed: &Testbed, terminal: &mut PtySession) -> Result<()> {
    open(terminal, "nodes", &testbed.ns).await?;
    terminal.press("p").await?;
    terminal.shows(&["would be cordoned. Nothing was changed."]).await?;
    terminal.press("q").await?;
    terminal.shows(&["nodes("]).await
}

/// Shift-Y shows the proposal of the selected loop, and approves it after a yes.
async fn approve(testbed: &Testbed, terminal: &mut PtySession) -> Result<()> {
    testbed.patch_loop("web", json!({"spec": {"mode": "Approve"}})).await?;
    push(testbed, "web", json!({"cpu": "2", "memory": "60"})).await?;
    let proposed = |one: Decision| one.status?.chosen?.digest;
    let digest = until::<Decision, _>(testbed, "web", "the proposal", proposed).await?;
    open(terminal, "closedloops", "AwaitsApproval").await?;
    terminal.press("Y").await?;
    terminal.shows(&["proposes: ", &digest, "Approve it? [y/N]"]).await?;
    terminal.press("y\r").await?;
    terminal.shows(&["approved decision 1 of loop", "Press Enter to return."]).await?;
    terminal.press("\r").await?;
    terminal.shows(&["closedloops("]).await?;
    let done = |one: Execution| (one.status?.state? == ExecutionState::Done).then_some(());
    until::<Execution, _>(testbed, "web", "what was approved in k9s", done).await
}

/// Shift-K asks, then sets `spec.abort`.
async fn abort(testbed: &Testbed, terminal: &mut PtySession) -> Result<()> {
    terminal.press("K").await?;
    terminal.shows(&["Confirm Abort"]).await?;
    // The buttons are Cancel and OK.
    terminal.press("\t").await?;
    terminal.press("\r").await?;
    terminal.until("no dialog", |text| !text.contains("Confirm Abort") && text.contains("workloadactions(")).await?;
    testbed
        .eye
        .until("the abort that k9s asked for", |seen| {
            seen.actions.get("go").filter(|action| action.spec.abort).cloned()
        })
        .await
        .map(drop)
}
