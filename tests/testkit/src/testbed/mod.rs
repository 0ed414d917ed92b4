//! A testbed: one namespace, its own operator behind its own proxy, and an eye on it. Each story has one.
//!
//! Stories run in parallel, up to a limit. A failed story prints a report about its testbed.

pub mod dump;
pub mod guard;
pub mod loops;
pub mod nodes;
pub mod pools;
pub mod replicas;
pub mod rest;
pub mod workload;

use std::any::Any;
use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{FutureExt, StreamExt, stream};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::Role;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Mutex, Semaphore};

use crate::NODE_OWNER;
use crate::eye::Eye;
use crate::operator::{Operator, program};
use crate::plane::install::{NAMESPACE, bind, bind_loops};
use crate::plane::{Plane, is_kept, kubeconfig, namespace};
use crate::proxy::Proxy;
use crate::testbed::nodes::{Size, TestNodes};
use crate::testbed::rest::rest_clean;
use crate::{block_on, kstatus, root};

/// Maximum number of testbeds at once: more would only wait for the two or three processors.
const TESTBEDS: usize = 8;
/// Maximum duration of a story. The longest ones take five minutes; some build a program first, once per machine.
const LONGEST: Duration = Duration::from_secs(45 * 60);

/// Interval at which a testbed looks whether its operator has ended.
const RESTART_PAUSE: Duration = Duration::from_millis(100);

static TURNS: Semaphore = Semaphore::const_new(TESTBEDS);
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Lease identity of the first operator of each testbed.
const FIRST: &str = "one";

/// The servers of tests run on this host.
const SETTINGS: &str = "outbound:\n  allowedNetworks: [127.0.0.0/8]";

pub struct Testbed {
    pub plane: Arc<Plane>,
    pub client: Client,
    pub ns: String,
    pub eye: Eye,
    pub proxy: Proxy,
    pub operator: Mutex<Operator>,
    /// Files of its operators, one directory each.
    home: TempDir,
}

/// Runs one story on the shared plane with a running operator. If the story fails, panics with a report.
pub fn story(name: &str, body: impl AsyncFnOnce(&Testbed) -> Result<()>) {
    block_on(async {
        if let Err(complaint) = run_story(name, body).await {
            panic!("{complaint}");
        }
    });
}

/// Runs the same story for several inputs in parallel. Panics with the reports of all that fail.
pub fn stories<A>(things: Vec<(String, A)>, body: impl AsyncFn(&Testbed, &A) -> Result<()>) {
    let all = things.len();
    let complaints: Vec<String> = block_on(
        stream::iter(&things)
            .map(|(name, thing)| run_story(name, async |testbed: &Testbed| body(testbed, thing).await))
            .buffer_unordered(TESTBEDS)
            .filter_map(async |outcome| outcome.err())
            .collect(),
    );
    assert!(complaints.is_empty(), "{} of {all} stories failed:\n{}", complaints.len(), complaints.join("\n"));
}

/// The same on a given plane.
pub fn stories_on<A>(
    plane: &Arc<Plane>,
    road: Road,
    things: Vec<(String, A)>,
    body: impl AsyncFn(&Testbed, &A) -> Result<()>,
) {
    let all = things.len();
    let complaints: Vec<String> = block_on(
        stream::iter(&things)
            .map(|(name, thing)| {
                run_story_on(plane.clone(), road, name, async |testbed: &Testbed| body(testbed, thing).await)
            })
            .buffer_unordered(TESTBEDS)
            .filter_map(async |outcome| outcome.err())
            .collect(),
    );
    assert!(complaints.is_empty(), "{} of {all} stories failed:\n{}", complaints.len(), complaints.join("\n"));
}

async fn run_story(name: &str, body: impl AsyncFnOnce(&Testbed) -> Result<()>) -> Result<(), String> {
    let plane = Plane::shared().await.map_err(|error| format!("{name}: {error:#}"))?;
    run_story_on(plane, Road::Proxy, name, body).await
}

/// Connection of a testbed's operator to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Road {
    Proxy,
    Direct,
}

/// Runs a story on its own plane, for tests that break components of the plane.
pub fn story_on(plane: &Arc<Plane>, road: Road, name: &str, body: impl AsyncFnOnce(&Testbed) -> Result<()>) {
    block_on(async {
        if let Err(complaint) = run_story_on(plane.clone(), road, name, body).await {
            panic!("{complaint}");
        }
    });
}

async fn run_story_on(
    plane: Arc<Plane>,
    road: Road,
    name: &str,
    body: impl AsyncFnOnce(&Testbed) -> Result<()>,
) -> Result<(), String> {
    let _turn = TURNS.acquire().await.map_err(|error| error.to_string())?;
    let testbed = Testbed::open(plane, road, name).await.map_err(|error| format!("{name}: {error:#}"))?;
    let run = async {
        testbed.operator.lock().await.start()?;
        body(&testbed).await?;
        // After every story, nothing of the operator may be left.
        rest_clean(&testbed).await
    };
    let bounded = async {
        tokio::select! {
            ended = run => ended,
            Err(failed) = testbed.keep_running() => Err(failed),
            () = tokio::time::sleep(LONGEST) => bail!("the story has not ended within {LONGEST:?}"),
        }
    };
    let ended = AssertUnwindSafe(bounded).catch_unwind().await;
    let complaint = match ended {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("{error:#}")),
        Err(panic) => Some(words_of(panic.as_ref())),
    };
    let outcome = match complaint {
        None => Ok(()),
        Some(complaint) => Err(dump::report_all(&testbed, name, &complaint).await),
    };
    testbed.close().await;
    outcome
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_else(|| "a panic".to_owned())
}

impl Testbed {
    async fn open(plane: Arc<Plane>, road: Road, name: &str) -> Result<Self> {
        let client = plane.cluster.client.clone();
        let mut ns = format!("{name}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        if is_kept() {
            // Namespaces of earlier processes may still exist.
            ns += &format!("-{}", std::process::id());
        }
        namespace(&client, &ns).await?;
        grant_lease(&client, &ns).await?;
        bind_loops(&client, &ns).await?;
        let proxy = Proxy::start(&plane).await?;
        let home = open_home(&ns)?;
        let kubeconfig = match road {
            Road::Proxy => kubeconfig::through(&proxy.address, &plane.token),
            Road::Direct => kubeconfig::direct(&plane.cluster.config, &plane.token),
        };
        let operator = operator(home.path(), FIRST, &ns, &kubeconfig)?;
        let eye = Eye::open(&client, &ns).await?;
        Ok(Self { plane, client, ns, eye, proxy, operator: Mutex::new(operator), home })
    }

    /// Starts the operator again whenever it has lost its lease.
    async fn keep_running(&self) -> Result<()> {
        loop {
            if let Ok(mut operator) = self.operator.try_lock() {
                operator.restart_after_lease()?;
            }
            tokio::time::sleep(RESTART_PAUSE).await;
        }
    }

    /// Deletes everything that costs other stories time; the namespace controller deletes the rest.
    async fn close(self) {
        self.operator.lock().await.kill();
        let actions: Api<WorkloadAction> = self.api();
        for name in self.eye.now().actions.keys() {
            // No operator is left to remove a finalizer.
            let _ = actions
                .patch(name, &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}})))
                .await;
        }
        let _ = Api::<Namespace>::all(self.client.clone()).delete(&self.ns, &DeleteParams::default()).await;
        // No new pods are created now. Pods on deleted nodes would stay for a minute, until the pod garbage collector,
        // which is busy with other stories, deletes them.
        let at_once = DeleteParams::default().grace_period(0);
        let _ = self.api::<Pod>().delete_collection(&at_once, &ListParams::default()).await;
        let own = ListParams::default().labels(&format!("{NODE_OWNER}={}", self.ns));
        let _ = Api::<Node>::all(self.client.clone()).delete_collection(&DeleteParams::default(), &own).await;
    }

    /// Objects of one kind in the testbed's namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.ns)
    }

    /// Creates nodes of this testbed, which are deleted at its end.
    pub async fn nodes(&self, count: usize, size: Size) -> Result<TestNodes> {
        let nodes = TestNodes::make(&self.client, &self.ns, count, size).await?;
        Ok(nodes)
    }

    /// Creates an object from a manifest.
    pub async fn create<K>(&self, manifest: Value) -> Result<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope> + serde::de::DeserializeOwned,
        K: Clone + std::fmt::Debug + serde::Serialize,
        K::DynamicType: Default,
    {
        let object: K = serde_json::from_value(manifest)?;
        Ok(self.api().create(&PostParams::default(), &object).await?)
    }

    /// Creates an action.
    pub async fn act(&self, name: &str, spec: Value) -> Result<WorkloadAction> {
        self.create(crate::action::action(name, spec)).await
    }

    /// Waits until the action has ended. Returns it.
    pub async fn over(&self, name: &str) -> Result<Arc<WorkloadAction>> {
        let over = |seen: &crate::eye::Seen| seen.actions.get(name).filter(|action| kstatus::is_over(action)).cloned();
        self.eye.until(&format!("the end of action {name}"), over).await
    }

    /// Waits until the action has ended, and checks its Ready condition: `("True", "Succeeded")`.
    pub async fn ends(&self, name: &str, how: (&str, &str)) -> Result<Arc<WorkloadAction>> {
        let action = self.over(name).await?;
        anyhow::ensure!(
            kstatus::ready(&action) == Some(how),
            "action {name} ended as {:?}, not as {how:?}: {}",
            kstatus::ready(&action),
            kstatus::message(&action),
        );
        Ok(action)
    }

    /// Changes an action by a merge patch.
    pub async fn patch_action(&self, name: &str, patch: Value) -> Result<()> {
        self.api::<WorkloadAction>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Changes a loop by a merge patch.
    pub async fn patch_loop(&self, name: &str, patch: Value) -> Result<()> {
        self.api::<ClosedLoop>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Changes a pod by a merge patch.
    pub async fn patch_pod(&self, name: &str, patch: Value) -> Result<()> {
        self.api::<Pod>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Runs kubectl in this namespace, as the administrator.
    pub async fn kubectl(&self, args: &[&str], stdin: Option<&str>) -> Result<String> {
        let mut all = vec!["-n", self.ns.as_str()];
        all.extend(args);
        self.plane.cluster.kubectl(&all, stdin).await
    }

    /// Runs a command of `ganglion` in its namespace, as an administrator. Returns whether it succeeded, and its
    /// output.
    pub async fn ganglion(&self, args: &[&str]) -> Result<(bool, String)> {
        self.ganglion_as(&self.administrator().await?, args, "").await
    }

    /// Kubeconfig of an administrator.
    pub async fn administrator(&self) -> Result<String> {
        self.plane.cluster.administrator().await
    }

    /// The same with this kubeconfig and this standard input.
    pub async fn ganglion_as(&self, kubeconfig: &str, args: &[&str], stdin: &str) -> Result<(bool, String)> {
        let home = TempDir::new()?;
        let path = home.path().join("kubeconfig");
        fs::write(&path, kubeconfig)?;
        let mut command = tokio::process::Command::new(program()?);
        command.args(args).args(["-n", &self.ns, "--kubeconfig"]).arg(&path).env_clear().kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        // The process may have ended without reading its input.
        let _ = child.stdin.take().context("no standard input")?.write_all(stdin.as_bytes()).await;
        let output = child.wait_with_output().await?;
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok((output.status.success(), said.concat()))
    }

    /// Token of a service account in its namespace.
    pub async fn token(&self, account: &str) -> Result<String> {
        let spec = TokenRequestSpec { expiration_seconds: Some(3_600), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let accounts = self.api::<ServiceAccount>();
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await?;
        Ok(answer.status.context("no token in the answer")?.token)
    }

    /// A second replica of the operator, with the same proxy and lease; not started yet.
    pub fn another(&self, identity: &str) -> Result<Operator> {
        let kubeconfig = kubeconfig::through(&self.proxy.address, &self.plane.token);
        operator(self.home.path(), identity, &self.ns, &kubeconfig)
    }

    /// Adds settings (YAML) to its operator, effective from its next start.
    pub fn settings(&self, yaml: &str) -> Result<()> {
        Ok(fs::write(self.home.path().join(FIRST).join("settings.yaml"), format!("{SETTINGS}\n{yaml}"))?)
    }

    /// Lets the operator watch this namespace as well, from its next start on.
    pub async fn watch_too(&self, namespace: &str) {
        self.operator.lock().await.add_options(&["--watch-namespace", namespace]);
    }

    /// Sends SIGKILL, and starts a new process with the same identity.
    pub async fn kill_and_restart(&self) -> Result<()> {
        let mut operator = self.operator.lock().await;
        operator.kill();
        operator.start()
    }
}

/// Directory for the operators of a testbed. It is deleted with the testbed, unless the plane is kept.
fn open_home(ns: &str) -> Result<TempDir> {
    if !is_kept() {
        return Ok(TempDir::new()?);
    }
    let parent = root().join("target/story/logs");
    fs::create_dir_all(&parent)?;
    let mut home = tempfile::Builder::new().prefix(&format!("{ns}-")).tempdir_in(parent)?;
    home.disable_cleanup(true);
    Ok(home)
}

/// Prepares an operator that watches only this namespace and keeps its lease there.
fn operator(home: &Path, identity: &str, ns: &str, kubeconfig: &str) -> Result<Operator> {
    let home = home.join(identity);
    let settings = home.join("settings.yaml");
    let file = settings.display().to_string();
    let scope = ["--lease-namespace", ns, "--watch-namespace", ns];
    let own = ["--identity", identity, "--settings", &file];
    let operator = Operator::prepare(&home, kubeconfig, &[scope, own].concat())?;
    fs::write(settings, SETTINGS)?;
    Ok(operator)
}

/// The operator keeps its lease in the testbed's own namespace, so that testbeds do not wait for one another. There it
/// gets the permissions that the base manifests grant in the operator's namespace.
async fn grant_lease(client: &Client, ns: &str) -> Result<()> {
    let roles: Api<Role> = Api::namespaced(client.clone(), NAMESPACE);
    let here: Api<Role> = Api::namespaced(client.clone(), ns);
    for role in roles.list(&ListParams::default()).await? {
        let name = role.name_any();
        let copy = Role { metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() }, ..role };
        here.create(&PostParams::default(), &copy).await?;
        bind(client, ns, &name, "Role", &name).await?;
    }
    Ok(())
}
