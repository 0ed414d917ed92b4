//! `ganglion timeline`: tells what a loop, an action and a pool did, in order and each thing once, while it happens and
//! afterwards; names what the user may not read.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ganglion_api::decision::Decision;
use ganglion_api::execution::Execution;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, ServiceAccount};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tempfile::TempDir;
use testkit::NODE_OWNER;
use testkit::action::{deployment, move_pod};
use testkit::operator::program;
use testkit::plane::{Plane, kubeconfig};
use testkit::servers::browser::{Browser, ColorScheme};
use testkit::testbed::loops::{
    SCALES, account, grant_to, loop_story, make, on, push, ready, replicas, travelled, until,
};
use testkit::testbed::nodes::Size;
use testkit::testbed::pools::{self, pool_story};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Road, Testbed, story, story_on};
use testkit::{block_on, root};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// Maximum time until a line appears.
const SOON: Duration = Duration::from_secs(30);

/// Checks that these parts appear in this order, each on a line of its own.
fn in_order(said: &str, parts: &[&str]) -> Result<()> {
    let mut lines = said.lines();
    for part in parts {
        ensure!(lines.any(|line| line.contains(part)), "{part:?} is not in this place of\n{said}");
    }
    Ok(())
}

async fn timeline(testbed: &Testbed, args: &[&str]) -> Result<String> {
    let (good, said) = testbed.ganglion(&[&["timeline"], args].concat()).await?;
    ensure!(good, "{said}");
    Ok(said)
}

/// `ganglion timeline -w`, which runs until it is dropped.
struct Followed {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    said: String,
    _home: TempDir,
}

impl Followed {
    async fn start(testbed: &Testbed, kind: &str, name: &str) -> Result<Self> {
        Self::start_as(&testbed.administrator().await?, testbed, kind, name).await
    }

    /// Starts it with the rights of this kubeconfig.
    async fn start_as(kubeconfig: &str, testbed: &Testbed, kind: &str, name: &str) -> Result<Self> {
        let home = TempDir::new()?;
        let path = home.path().join("kubeconfig");
        std::fs::write(&path, kubeconfig)?;
        // Messages arrive among the lines.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec \"$@\" 2>&1", "sh"]).arg(program()?);
        command.args(["timeline", kind, name, "-w", "-n", &testbed.ns, "--kubeconfig"]).arg(&path);
        command.env_clear().kill_on_drop(true).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let mut followed = Self { child, lines, said: String::new(), _home: home };
        followed.until("Waiting for what happens next").await?;
        Ok(followed)
    }

    /// Waits until it has ended by itself, without an error.
    async fn ends(mut self) -> Result<()> {
        let status = tokio::time::timeout(SOON, self.child.wait()).await??;
        ensure!(status.success(), "{status} after\n{}", self.said);
        Ok(())
    }

    /// Reads until a line contains this, unless an earlier one does.
    async fn until_any(&mut self, part: &str) -> Result<()> {
        if self.said.contains(part) { Ok(()) } else { self.until(part).await }
    }

    /// Reads until a line contains this.
    async fn until(&mut self, part: &str) -> Result<()> {
        loop {
            let line = match tokio::time::timeout(SOON, self.lines.next_line()).await {
                Ok(line) => line?,
                Err(_) => bail!("{part:?} does not appear after\n{}", self.said),
            };
            let line = line.with_context(|| format!("it ended before {part:?} after\n{}", self.said))?;
            self.said.push_str(&format!("{line}\n"));
            if line.contains(part) {
                return Ok(());
            }
        }
    }
}

async fn scale_as_somebody(testbed: &Testbed, replicas: i32) -> Result<()> {
    let params = PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() };
    let back = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    testbed.api::<Deployment>().patch_scale("web", &params, &back).await?;
    Ok(())
}

#[test]
fn a_loop_that_scales_and_is_undone_is_told_in_order() {
    loop_story("timeline-loop", async |testbed| {
        Workload::deployment("web", 1).create(testbed).await?;
        account(testbed, SCALES).await?;
        make(testbed, "web", on("Low", json!([{"scale": {"by": 1, "max": 100}}]))).await?;
        ready(testbed, "web", "True", "Running").await?;
        let mut followed = Followed::start(testbed, "loop", "web").await?;
        let time = push(testbed, "web", json!({"cpu": "2"})).await?;
        ensure!(travelled(testbed, "web", time).await?.2.is_some(), "no act");
        followed.until("decision 1 Served").await?;
        scale_as_somebody(testbed, 1).await?;
        let time = push(testbed, "web", json!({"cpu": "3"})).await?;
        ensure!(travelled(testbed, "web", time).await?.2.is_some(), "no second act");
        until::<Execution, _>(testbed, "web", "the undone change", |one| {
            (!one.status?.undone.is_empty()).then_some(())
        })
        .await?;
        until::<Decision, _>(testbed, "web", "the second decision", |one| (one.status?.seq == 2).then_some(())).await?;
        followed.until("decision 2 Served").await?;
        let time = push(testbed, "web", json!({"cpu": "50"})).await?;
        travelled(testbed, "web", time).await?;
        followed.until("Low cpu: no longer so, seen at this time").await?;
        ensure!(replicas(testbed, "web").await?.1 == 2, "{:?}", replicas(testbed, "web").await?);

        let said = timeline(testbed, &["loop", "web"]).await?;
        let title = format!("ClosedLoop {}/web: acts on Deployment/web, mode Auto", testbed.ns);
        in_order(
            &said,
            &[
                &title,
                " object    created",
                " decision  decision 1: Low cpu, value 2 → scale by 1, at most 100",
                " effect    decision 1 Served: ",
                " undone    replicas: the loop's change was undone by somebody",
                " effect    decision 2 Served: ",
                " value     cpu 50",
                "Where it ends:",
                "The history holds 2 decisions, from the first on.",
                "Events expire after an hour",
            ],
        )?;
        let decided = " decision  decision 2: Low cpu, value 3 → scale by 1, at most 100";
        for once in [" effect    decision 1 Served", decided, "undone by somebody", "1 → 2: cpu 2 is below 5"] {
            ensure!(said.matches(once).count() == 1, "{once:?} is not there once:\n{said}");
        }
        ensure!(!said.contains("Clocks differ"), "{said}");
        for once in ["decision 1: ", "decision 2: ", "decision 2 Served"] {
            ensure!(followed.said.matches(once).count() == 1, "{once:?} is not there once:\n{}", followed.said);
        }
        check_terminals(testbed).await?;
        check_picture(testbed, "loop").await?;

        testbed.api::<ganglion_api::closed_loop::ClosedLoop>().delete("web", &DeleteParams::default()).await?;
        followed.until("web was deleted; its timeline ends.").await?;
        followed.ends().await
    });
}

/// Output of `ganglion timeline` in a terminal of this width.
async fn in_terminal(testbed: &Testbed, columns: usize, env: &[(&str, &str)]) -> Result<String> {
    let home = TempDir::new()?;
    let path = home.path().join("kubeconfig");
    std::fs::write(&path, testbed.administrator().await?)?;
    let (program, path) = (program()?, path.display().to_string());
    let line = format!(
        "stty cols {columns} rows 24; exec {} timeline loop web -n {} --kubeconfig {path}",
        program.display(),
        testbed.ns
    );
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).env_clear().env("PATH", "/usr/bin:/bin").env("TERM", "xterm-256color");
    command.envs(env.iter().copied()).kill_on_drop(true).stdin(Stdio::null());
    let done = tokio::time::timeout(SOON, command.output()).await?.context("cannot start script, of util-linux")?;
    ensure!(done.status.success(), "{done:?}");
    Ok(String::from_utf8_lossy(&done.stdout).replace('\r', ""))
}

/// Checks that a terminal shows a graph if it is wide enough, that every line fits, and colors.
async fn check_terminals(testbed: &Testbed) -> Result<()> {
    for (columns, has_graph) in [(20, false), (80, true)] {
        let said = in_terminal(testbed, columns, &[("NO_COLOR", "1")]).await?;
        ensure!(said.contains('●') == has_graph && said.contains("undone"), "{columns}: {said}");
        let wide = said.lines().find(|line| line.chars().count() > columns);
        ensure!(wide.is_none() && !said.contains('\u{1b}'), "{columns}: {wide:?} in {said}");
    }
    let said = in_terminal(testbed, 80, &[]).await?;
    ensure!(said.contains("\u{1b}[33mundone"), "no colors: {said:?}");
    Ok(())
}

/// Writes a picture of the loop, and opens it in a browser. `hack/pictures` takes the picture from its folder.
async fn check_picture(testbed: &Testbed, name: &str) -> Result<()> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures");
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{name}.svg"));
    let file = path.to_str().context("a path that is no text")?;
    let said = timeline(testbed, &["loop", "web", "--svg", file]).await?;
    ensure!(said == format!("wrote {file}\n"), "{said}");
    let picture = std::fs::read_to_string(&path)?;
    let browser = Browser::new()?;
    for (scheme, word) in [(ColorScheme::Light, "light"), (ColorScheme::Dark, "dark")] {
        browser.screenshot(&picture, scheme, &folder.join(format!("{name}-{word}.png")))?;
        let measured = browser.measure(&picture, scheme)?;
        ensure!(measured.overlaps.is_empty() && measured.outside.is_empty(), "{measured:?}");
        ensure!(measured.drawn * 100 > measured.pixels && measured.texts > 20, "{measured:?}");
    }
    let (good, said) = testbed.ganglion(&["timeline", "loop", "web", "--svg", "/no/such/folder/x.svg"]).await?;
    ensure!(
        !good && said.contains("cannot write /no/such/folder/x.svg: ") && said.contains("choose another file"),
        "{said}"
    );
    Ok(())
}

#[test]
fn a_move_is_told_step_by_step() {
    story("timeline-move", async |testbed| {
        let nodes = testbed.nodes(2, Size { cpu: "4", ..Size::default() }).await?;
        nodes.open_only(&[&nodes.names[0]]).await?;
        Workload::deployment("web", 2).spec(nodes.terms()).requests(json!({"cpu": "1"})).make(testbed).await?;
        nodes.open_all().await?;
        let to = json!({"nodeSelector": {NODE_OWNER: testbed.ns}});
        let moves = json!({"suspend": true, "move": {"workload": deployment("web"), "to": to, "from": {"nodeName": nodes.names[0]}, "count": 1}});
        testbed.act("go", moves).await?;
        let mut followed = Followed::start(testbed, "action", "go").await?;
        testbed.patch_action("go", json!({"spec": {"suspend": false}})).await?;
        followed.until("state     ended: Succeeded").await?;
        let slot = format!("on {} → ", nodes.names[0]);
        for step in ["state     admitted", &slot, "the old pod is being evicted", ": done"] {
            ensure!(followed.said.contains(step), "{step:?} is not in\n{}", followed.said);
        }
        testbed.ends("go", ("True", "Succeeded")).await?;
        let said = timeline(testbed, &["wa", "go"]).await?;
        let title = format!("WorkloadAction {}/go: Move of Deployment/web", testbed.ns);
        in_order(
            &said,
            &[
                &title,
                "object    created",
                "state     admitted",
                ": done",
                "Where it ends:",
                "Earlier steps of a replica are not kept",
            ],
        )?;
        for once in ["ended: Succeeded", "object    created", "WorkloadAction/go"] {
            let times = said.matches(once).count();
            ensure!(times == usize::from(once != "WorkloadAction/go"), "{once:?} is there {times} times:\n{said}");
        }
        ensure!(followed.said.matches("replica   replica 0").count() >= 2, "no steps:\n{}", followed.said);
        Ok(())
    });
}

#[test]
fn a_pool_is_told_by_its_assignments() {
    pool_story("timeline-pool", async |testbed| {
        let _kubelet = pools::scaled(testbed, "cameras").await?;
        let said = timeline(testbed, &["pool", "cameras"]).await?;
        in_order(
            &said,
            &["SwarmPool ", "object    created", "version 1: first deal", "2 to 3 workers", "Now:", "Converged"],
        )?;
        ensure!(said.matches("2 to 3 workers").count() == 1, "{said}");
        ensure!(timeline(testbed, &["swp", "cameras"]).await?.contains("2 to 3 workers"), "another name of the kind");
        Ok(())
    });
}

#[test]
fn what_the_user_may_not_read_is_named_and_the_rest_is_told() {
    loop_story("timeline-rights", async |testbed| {
        Workload::deployment("web", 1).create(testbed).await?;
        account(testbed, SCALES).await?;
        make(testbed, "web", on("Low", json!([{"scale": {"by": 1, "max": 100}}]))).await?;
        let time = push(testbed, "web", json!({"cpu": "2"})).await?;
        ensure!(travelled(testbed, "web", time).await?.2.is_some(), "no act");
        testbed.create::<ServiceAccount>(json!({"metadata": {"name": "reader"}})).await?;
        let kubeconfig = kubeconfig::direct(&testbed.plane.cluster.config, &testbed.token("reader").await?);
        let run = async |name: &str, args: &[&str]| {
            testbed.ganglion_as(&kubeconfig, &[&["timeline", "loop", name], args].concat(), "").await
        };
        let (good, said) = run("web", &[]).await?;
        ensure!(!good && said.contains("access is denied") && said.contains("closedloops"), "{said}");
        grant_to(testbed, "reader", &[("ganglion.dev", "closedloops", "get"), ("ganglion.dev", "decisions", "get")])
            .await?;
        let (good, said) = run("web", &[]).await?;
        ensure!(good, "{said}");
        in_order(
            &said,
            &[
                "decision 1: Low cpu, value 2",
                "No Event is shown: access is denied",
                "No Execution is shown",
                "No Monitoring is shown",
            ],
        )?;
        // Watches need more verbs. Each problem is said once, and solved while the command runs.
        let mut followed = Followed::start_as(&kubeconfig, testbed, "loop", "web").await?;
        for kind in ["ClosedLoop", "Decision", "Execution", "Event"] {
            followed.until_any(&format!("No {kind} is shown: access is denied.")).await?;
        }
        let kinds = "--resource=closedloops.ganglion.dev,decisions.ganglion.dev";
        testbed.kubectl(&["create", "role", "watcher", "--verb=list,watch", kinds], None).await?;
        let reader = format!("--serviceaccount={}:reader", testbed.ns);
        testbed.kubectl(&["create", "rolebinding", "watcher", "--role=watcher", &reader], None).await?;
        let time = push(testbed, "web", json!({"cpu": "3"})).await?;
        ensure!(travelled(testbed, "web", time).await?.2.is_some(), "no second act");
        followed.until_any(" decision  decision 2: Low cpu, value 3").await?;
        let times = followed.said.matches("No Decision is shown: access is denied.").count();
        ensure!(times == 1, "said {times} times:\n{}", followed.said);

        let (good, said) = run("wen", &[]).await?;
        let words = format!(
            "there is no ClosedLoop wen in namespace {}; `kubectl get closedloops -A` lists all of them",
            testbed.ns
        );
        ensure!(!good && said.contains(&words), "{said}");
        let (good, said) = run("web", &["--since", "yesterday"]).await?;
        ensure!(!good && said.contains("is not a duration"), "{said}");
        let (good, said) = run("web", &["--since", "1ms"]).await?;
        ensure!(
            good && said.contains("Nothing is recorded in this time.") && said.contains("not shown: --since begins at"),
            "{said}"
        );
        Ok(())
    });
}

#[test]
fn following_survives_a_restart_of_the_api_server_and_names_missing_kinds() {
    let own = block_on(Plane::own("timeline", 2)).expect("a plane of its own");
    story_on(&own.0, Road::Direct, "timeline-restart", async |testbed| {
        let cluster = &own.0.cluster;
        let mut moves = move_pod("absent", "node-0");
        moves["suspend"] = json!(true);
        let action = testbed.act("go", moves).await?;
        testbed.kubectl(&["delete", "crd", "workloadactionreceipts.ganglion.dev"], None).await?;
        let mut followed = Followed::start(testbed, "wa", "go").await?;
        let missing = "No WorkloadActionReceipt is shown: its kind is not installed; apply the CRDs of the operator.";
        ensure!(followed.said.contains(missing), "{}", followed.said);

        cluster.fault(&["stop", "apiserver"]).await?;
        followed.until("the API server failed").await?;
        ensure!(followed.said.contains("Trying again."), "{}", followed.said);
        cluster.fault(&["start", "apiserver"]).await?;
        let about = json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction", "name": "go",
            "namespace": testbed.ns, "uid": action.uid()});
        let event = json!({"metadata": {"name": "go.1"}, "involvedObject": about, "type": "Normal", "reason": "Checked",
            "message": "after the restart", "firstTimestamp": "2026-11-21T10:00:30Z"});
        testbed.create::<Event>(event).await?;
        followed.until("after the restart").await?;

        testbed.kubectl(&["delete", "wa", "go"], None).await?;
        followed.until("go was deleted; its timeline ends.").await?;
        ensure!(followed.said.matches("object    created").count() == 1, "shown again:\n{}", followed.said);
        followed.ends().await?;
        testbed.kubectl(&["delete", "crd", "workloadactions.ganglion.dev"], None).await?;
        for args in [&["timeline", "wa", "go"][..], &["timeline", "wa", "go", "-w"]] {
            let (good, said) = testbed.ganglion(args).await?;
            ensure!(
                !good && said.contains("the API server has no kind WorkloadAction: install the operator's CRDs"),
                "{said}"
            );
        }
        for kind in ["workloadactions", "workloadactionreceipts"] {
            let crd = root().join(format!("crds/{kind}.ganglion.dev.yaml")).display().to_string();
            testbed.kubectl(&["apply", "--server-side", "-f", &crd], None).await?;
            cluster.established(&format!("{kind}.ganglion.dev")).await?;
        }
        Ok(())
    });
}
