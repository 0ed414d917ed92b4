//! `ganglion check cluster`: a complete installation passes, and each gap is named with what to do about it.

use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ServiceAccount;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::operator::{Operator, program};
use testkit::plane::install::NAMESPACE;
use testkit::plane::{Plane, kubeconfig};
use testkit::plugin::Plugin;
use testkit::process::free_port;
use testkit::servers::http::{Manner, Server};
use testkit::testbed::{Road, Testbed, story, story_on};
use testkit::{TIMEOUT, block_on, root};
use tokio::process::Command;

/// Exit code, and the output as one line.
type Said = (i32, String);

fn said(output: Output) -> Result<Said> {
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    let code = output.status.code().context("the command was killed")?;
    Ok((code, text.split_whitespace().collect::<Vec<_>>().join(" ")))
}

/// Checks the cluster of this kubeconfig.
async fn check(kubeconfig: &str, args: &[&str]) -> Result<Said> {
    let home = TempDir::new()?;
    let path = home.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig)?;
    let mut command = Command::new(program()?);
    command.args(["check", "cluster"]).args(args).arg("--kubeconfig").arg(&path).env_clear().kill_on_drop(true);
    said(command.stdin(Stdio::null()).output().await?)
}

/// Checks until the exit code is this one and all these texts are there.
async fn until(kubeconfig: &str, args: &[&str], code: i32, words: &[&str]) -> Result<String> {
    let mut last = (0, String::new());
    let met = async {
        loop {
            last = check(kubeconfig, args).await?;
            if last.0 == code && words.iter().all(|word| last.1.contains(word)) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    match tokio::time::timeout(TIMEOUT, met).await {
        Ok(done) => done.map(|()| last.1),
        Err(_) => anyhow::bail!("not exit code {code} with {words:?}, but {}: {}", last.0, last.1),
    }
}

/// An installation with a running operator. Everything runs on a plane of its own, because most of it is of the whole
/// cluster.
struct Installation<'a> {
    testbed: &'a Testbed,
    kubeconfig: String,
    operator: Operator,
    _home: TempDir,
}

impl<'a> Installation<'a> {
    async fn open(testbed: &'a Testbed) -> Result<Self> {
        let home = TempDir::new()?;
        let bind = format!("127.0.0.1:{}", free_port()?);
        let mut operator =
            Operator::installed(&testbed.plane.cluster, home.path(), &["--extender-bind", &bind]).await?;
        operator.start()?;
        operator.ready().await?;
        Ok(Self { testbed, kubeconfig: testbed.administrator().await?, operator, _home: home })
    }

    async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.testbed.plane.cluster.kubectl(args, None).await
    }

    /// Waits until the check fails with these texts.
    async fn fails(&self, words: &[&str]) -> Result<String> {
        until(&self.kubeconfig, &[], 1, words).await
    }

    /// Waits until the check passes with these texts.
    async fn passes(&self, words: &[&str]) -> Result<String> {
        until(&self.kubeconfig, &[], 0, words).await
    }

    /// Applies a folder or file of the tree, as the advice says.
    async fn apply(&self, flag: &str, path: &str) -> Result<()> {
        let path = root().join(path).display().to_string();
        self.kubectl(&["apply", "--server-side", "--force-conflicts", flag, &path]).await.map(drop)
    }

    /// Changes an object of the whole cluster by a JSON patch.
    async fn patch(&self, kind: &str, name: &str, patch: Value) -> Result<()> {
        self.kubectl(&["patch", kind, name, "--type=json", "-p", &patch.to_string()]).await.map(drop)
    }

    async fn complete(&self) -> Result<()> {
        let version = format!("the server has the version {}", self.testbed.plane.cluster.version().await?);
        let said = self
            .passes(&[
                &version,
                "ok ValidatingAdmissionPolicy",
                "ok 10 of 10 are installed, served, and the same as in this program",
                "policies are installed, bound with Deny, and unmodified",
                "ok ServiceAccount ganglion-system/ganglion exists",
                "permissions of kustomize/base, as the API server says",
                "ok the namespace enforces the Pod Security Standard restricted",
                "ok Deployment ganglion: 2 of 2 replicas are ready",
                "is of the version of this program",
                "ok the settings in ConfigMap ganglion-settings",
                "holds Lease ganglion, and renewed it",
                "ok the operator works in all namespaces",
                "ok a PodDisruptionBudget limits evictions of the operator",
                "ok Service ganglion-extender has 2 endpoints that are ready",
                "ok the certificate in Secret ganglion-extender-tls is valid until",
                "? whether kube-scheduler uses the extender",
                "? metrics.k8s.io is not served",
                ", 0 failed",
            ])
            .await?;
        ensure!(!said.contains("FAIL"), "{said}");
        let plugin = Plugin::new(&self.kubeconfig).await?;
        let (code, json) = self::said(plugin.command(&["check", "cluster", "-o", "json"]).output().await?)?;
        let report: Value = serde_json::from_str(&json).with_context(|| json.clone())?;
        ensure!(code == 0 && report["failed"] == 0, "{json}");
        ensure!(report["groups"][0]["subject"] == "Kubernetes" && report["groups"].as_array().map(Vec::len) == Some(8));
        ensure!(report["groups"][0]["points"][0]["state"] == "Passed", "{json}");
        Ok(())
    }

    async fn policies(&self) -> Result<()> {
        self.kubectl(&["delete", "validatingadmissionpolicy", "ganglion-children"]).await?;
        self.kubectl(&["delete", "validatingadmissionpolicybinding", "ganglion-workloadactions"]).await?;
        let edit = json!([{"op": "replace", "path": "/spec/validations/0/expression", "value": "true"}]);
        self.patch("validatingadmissionpolicy", "ganglion-swarmpools", edit).await?;
        self.fails(&[
            "FAIL ganglion-children is not installed: the operator does not act on ClosedLoop, Decision",
            "FAIL ganglion-workloadactions has no binding that denies all writes that it does not allow",
            "FAIL ganglion-swarmpools was edited: the operator does not act on SwarmPool",
            "→ kubectl apply --server-side --force-conflicts -f kustomize/base/admission.yaml",
            "Error: 3 of",
        ])
        .await?;
        self.apply("-f", "kustomize/base/admission.yaml").await?;
        self.passes(&["unmodified"]).await.map(drop)
    }

    async fn definitions(&self) -> Result<()> {
        let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
        let older = json!([{"op": "remove", "path": format!("{status}/replicasPath")}]);
        self.patch("crd", "closedloops.ganglion.dev", older).await?;
        let newer = json!([{"op": "add", "path": format!("{status}/later"), "value": {"type": "string"}}]);
        self.patch("crd", "swarmpools.ganglion.dev", newer).await?;
        self.kubectl(&["delete", "crd", "placementpolicies.ganglion.dev"]).await?;
        self.fails(&[
            "FAIL closedloops.ganglion.dev is older than this program; it lacks status.replicasPath",
            "? swarmpools.ganglion.dev is newer than this program, which does not have status.later",
            "FAIL placementpolicies.ganglion.dev is not installed",
            "ok 7 of 10 are installed",
            "Error: 2 of",
        ])
        .await?;
        // A field that somebody else has added is not removed by an apply.
        let same = json!([{"op": "remove", "path": format!("{status}/later")}]);
        self.patch("crd", "swarmpools.ganglion.dev", same).await?;
        self.apply("-k", "crds").await?;
        self.passes(&["ok 10 of 10 are installed"]).await.map(drop)
    }

    async fn rights(&mut self) -> Result<()> {
        let rules = self.kubectl(&["get", "clusterrole", "ganglion", "-o", "json"]).await?;
        let rules: Value = serde_json::from_str(&rules)?;
        let rules = rules["rules"].as_array().context("no rules")?;
        let at = rules.iter().position(|rule| rule["resources"] == json!(["pods/eviction"])).context("no such rule")?;
        self.patch("clusterrole", "ganglion", json!([{"op": "remove", "path": format!("/rules/{at}")}])).await?;
        self.kubectl(&["delete", "rolebinding", "ganglion-lease", "-n", NAMESPACE]).await?;
        self.fails(&[
            "FAIL the account may not create pods/eviction",
            "FAIL the account may not get, create, update leases.coordination.k8s.io in namespace ganglion-system",
            "→ kubectl apply --server-side -k OVERLAY",
        ])
        .await?;
        self.apply("-k", "kustomize/base").await?;
        // Without the right to renew its lease, the operator has ended, as it must.
        self.operator.kill();
        self.operator.start()?;
        self.operator.ready().await?;
        self.passes(&["permissions of kustomize/base"]).await.map(drop)
    }

    async fn prometheus(&self) -> Result<()> {
        let answer = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"1"]}]}}"#;
        let server = Server::start(Manner::Says("200 OK", answer.to_owned())).await;
        let url = server.url("");
        until(&self.kubeconfig, &["--prometheus", &url], 0, &["answers a query from here"]).await?;
        ensure!(server.heard().contains("/api/v1/query?query=vector"), "{}", server.heard());
        let closed = format!("http://127.0.0.1:{}", free_port()?);
        let words = [&format!("FAIL {closed} does not answer a query from here: cannot connect") as &str];
        until(&self.kubeconfig, &["--prometheus", &closed], 1, &words).await.map(drop)
    }

    async fn metrics(&self) -> Result<()> {
        let service = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1beta1.external.metrics.k8s.io"},
            "spec": {"group": "external.metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100,
                "versionPriority": 100, "insecureSkipTLSVerify": true,
                "service": {"name": "nobody", "namespace": NAMESPACE}},
        });
        let cluster = &self.testbed.plane.cluster;
        cluster.kubectl(&["create", "-f", "-"], Some(&service.to_string())).await?;
        self.fails(&[
            "FAIL external.metrics.k8s.io is registered, and not available: service/nobody in \"ganglion-system\"",
            "kubectl get apiservices shows its server",
        ])
        .await?;
        self.kubectl(&["delete", "apiservice", "v1beta1.external.metrics.k8s.io"]).await?;
        // Without a Service, the API server itself stands for the API, so it is available. Other stories use a real
        // metrics-server.
        let local = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1beta1.metrics.k8s.io"},
            "spec": {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100,
                "versionPriority": 100},
        });
        cluster.kubectl(&["create", "-f", "-"], Some(&local.to_string())).await?;
        self.passes(&["ok metrics.k8s.io is served and available", "? external.metrics.k8s.io is not served"]).await?;
        self.kubectl(&["delete", "apiservice", "v1beta1.metrics.k8s.io"]).await.map(drop)
    }

    async fn nobody_runs(mut self) -> Result<()> {
        self.operator.kill();
        self.fails(&["FAIL", "holds Lease ganglion, and renewed it", "no operator acts", "Error: 1 of"]).await?;
        self.kubectl(&["delete", "deployment", "ganglion", "-n", NAMESPACE]).await?;
        self.fails(&[
            "FAIL there is no Deployment of the operator in this namespace",
            "FAIL Service ganglion-extender has no endpoint that is ready",
        ])
        .await?;
        until(&self.kubeconfig, &["-n", "nowhere"], 1, &["FAIL there is no namespace nowhere", "ok you may create"])
            .await
            .map(drop)
    }
}

#[test]
fn each_gap_of_an_installation_is_named() {
    let plane = block_on(Plane::own("check-cluster", 2)).expect("a plane of its own");
    story_on(&plane.0, Road::Direct, "check-cluster", async |testbed| {
        let mut installation = Installation::open(testbed).await?;
        installation.complete().await?;
        installation.policies().await?;
        installation.definitions().await?;
        installation.rights().await?;
        installation.prometheus().await?;
        installation.metrics().await?;
        installation.nobody_runs().await
    });
}

#[test]
fn who_may_not_read_the_installation_is_told_the_missing_permissions() {
    story("check-cluster-user", async |testbed| {
        testbed.create::<ServiceAccount>(json!({"metadata": {"name": "nobody"}})).await?;
        let kubeconfig = kubeconfig::direct(&testbed.plane.cluster.config, &testbed.token("nobody").await?);
        let said = until(
            &kubeconfig,
            &[],
            0,
            &[
                "ok the server has the version",
                "ok ValidatingAdmissionPolicy",
                "? workloadactions.ganglion.dev: not read: customresourcedefinitions.apiextensions.k8s.io",
                "? policies and their bindings: not read",
                "? permissions of the account: not read: subjectaccessreviews.authorization.k8s.io is forbidden",
                "cannot create resource \"subjectaccessreviews\"",
                "? Namespace ganglion-system: not read",
                "? Deployment of the operator: not read: deployments.apps is forbidden",
                "? lease: not read: leases.coordination.k8s.io \"ganglion\" is forbidden",
                "? Services: not read",
                "? Secret ganglion-extender-tls with the certificate of the extender: not read",
                "? URLs that loops name: not read",
                "→ get the permission that the message names",
            ],
        )
        .await?;
        ensure!(!said.contains("FAIL"), "{said}");
        // A user who may read roles gets the answer from them.
        let viewer = format!("{}:nobody", testbed.ns);
        let name = format!("{}-roles", testbed.ns);
        let resources = "--resource=roles,rolebindings,clusterroles,clusterrolebindings";
        testbed.kubectl(&["create", "clusterrole", &name, "--verb=list", resources], None).await?;
        let subject = format!("--serviceaccount={viewer}");
        let role = format!("--clusterrole={name}");
        testbed.kubectl(&["create", "clusterrolebinding", &name, &role, &subject], None).await?;
        let answer = until(&kubeconfig, &[], 0, &["permissions of kustomize/base, by its roles"]).await;
        testbed.kubectl(&["delete", "clusterrolebinding", &name], None).await?;
        testbed.kubectl(&["delete", "clusterrole", &name], None).await?;
        answer?;
        let wrong = kubeconfig::direct(&testbed.plane.cluster.config, "wrong");
        let (code, said) = check(&wrong, &[]).await?;
        ensure!(code == 1 && said.contains("does not accept your credentials") && said.contains("--context"), "{said}");
        Ok(())
    });
}

#[test]
fn an_api_server_that_does_not_answer_is_an_error_that_says_what_to_look_at() {
    let said = block_on(async {
        let address = format!("127.0.0.1:{}", free_port()?).parse()?;
        check(&kubeconfig::through(&address, "token"), &[]).await
    });
    let (code, said) = said.expect("the command runs");
    assert_eq!(code, 1, "{said}");
    for words in ["does not answer: ", "Connection refused", "kubectl config view --minify"] {
        assert!(said.contains(words), "{words:?} is not in: {said}");
    }
}
