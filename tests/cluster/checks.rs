//! `ganglion check`: its report about a loop before it is applied matches what the operator reports afterwards.

use anyhow::{Result, ensure};
use ganglion_api::closed_loop::ClosedLoop;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};
use testkit::plane::kubeconfig;
use testkit::testbed::loops::{SCALES, account, demo, grant_to, loop_story, make, on};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Testbed, stories};

/// Checks a loop with this spec. Returns whether it would work, and the report as one line.
async fn check(testbed: &Testbed, spec: &Value, args: &[&str]) -> Result<(bool, String)> {
    check_as(testbed, &testbed.administrator().await?, spec, args).await
}

/// The same with this kubeconfig.
async fn check_as(testbed: &Testbed, kubeconfig: &str, spec: &Value, args: &[&str]) -> Result<(bool, String)> {
    let manifest = json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop", "metadata": {"name": "web"}, "spec": spec,
    });
    let args = [&["check", "-f", "-"], args].concat();
    let (good, said) = testbed.ganglion_as(kubeconfig, &args, &manifest.to_string()).await?;
    Ok((good, said.split_whitespace().collect::<Vec<_>>().join(" ")))
}

/// Checks a loop, and requires this verdict and these texts.
async fn says(testbed: &Testbed, spec: &Value, args: &[&str], (good, words): (bool, &[&str])) -> Result<()> {
    let (found, said) = check(testbed, spec, args).await?;
    ensure!(found == good, "{found}: {said}");
    for word in words {
        ensure!(said.contains(word), "{word:?} is not in: {said}");
    }
    Ok(())
}

#[test]
fn a_loop_that_would_work_is_shown_with_its_value_and_its_change() {
    loop_story("check-works", async |testbed| {
        Workload::deployment("web", 3).create(testbed).await?;
        account(testbed, SCALES).await?;
        let mut spec = demo();
        let field = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "path": "spec.replicas"});
        spec["metrics"][0]["source"] = json!({"object": field});
        let words = [
            "ok the API server accepts it (dry run)",
            "ok a binding to ganglion-namespace lets the operator act here",
            "ok rung 1 on Low cpu (scale by 1, at most 100): replicas 3 → 4",
            "ok metric cpu: 3",
            "? metric memory: pushed; try a value with --value memory=NUMBER",
            "now cpu 3 is below 5: replicas 3 → 4",
        ];
        says(testbed, &spec, &[], (true, &words)).await?;
        let words = ["ok metric cpu: 7, as given", "now memory 40 is below 50: replicas 3 → 4"];
        says(testbed, &spec, &["--value", "cpu=7", "--value", "memory=40"], (true, &words)).await?;
        let none = ["now nothing would be done: no value is beyond a level"];
        says(testbed, &spec, &["--value", "cpu=7", "--value", "memory=60"], (true, &none)).await?;
        let mut computed = demo();
        computed["metrics"][0]["source"] = json!({"formula": {"expression": "memory / replicas"}});
        let words = ["ok metric cpu: 20 = memory / replicas (memory 60, replicas 3)", "now nothing would be done"];
        says(testbed, &computed, &["--value", "memory=60"], (true, &words)).await?;
        let words =
            ["? metric cpu: unknown: no value has been received yet: memory / replicas (memory unknown, replicas 3)"];
        says(testbed, &computed, &[], (true, &words)).await?;
        // The check has changed nothing.
        let loops = testbed.api::<ClosedLoop>().list(&ListParams::default()).await?.items;
        ensure!(loops.is_empty(), "{:?}", loops.iter().map(ResourceExt::name_any).collect::<Vec<_>>());
        Ok(())
    });
}

#[test]
fn each_thing_in_the_way_is_named_and_fails_the_check() {
    loop_story("check-fails", async |testbed| {
        let cpu = ["--value", "cpu=2", "--value", "memory=60"];
        let words = [
            "FAIL rung 1 on Low cpu (scale by 1, at most 100): there is no Deployment web",
            "now cpu 2 is below 5: rung 1 on Low cpu (scale by 1, at most 100) would fail, see above",
            "Error: 2 of",
        ];
        account(testbed, &SCALES[..1]).await?;
        says(testbed, &demo(), &cpu, (false, &words)).await?;
        Workload::deployment("web", 1).create(testbed).await?;
        says(
            testbed,
            &demo(),
            &cpu,
            (false, &["FAIL rung 1 on Low cpu", "cannot patch resource \"deployments/scale\""]),
        )
        .await?;

        let mut unknown = demo();
        unknown["metrics"][0]["sorce"] = json!({});
        says(testbed, &unknown, &cpu, (false, &["FAIL the API server refuses it", "sorce"])).await?;
        let mut invalid = demo();
        invalid["policy"]["rank"] = json!(["latncy"]);
        says(testbed, &invalid, &cpu, (false, &["FAIL the API server refuses it", "rank"])).await?;
        let mut unreadable = demo();
        unreadable["actions"][0]["during"] = json!([{"cron": "0 0 31 2 *", "duration": "1h"}]);
        says(
            testbed,
            &unreadable,
            &cpu,
            (false, &["FAIL actions[Low cpu].during", "names a time that does not come within five years"]),
        )
        .await?;

        let auth = json!({"bearer": {"name": "hooks", "key": "token"}});
        let hook = on("Low", json!([{"webhook": {"url": "https://hooks.example.com/", "auth": auth}}]));
        says(testbed, &hook, &cpu[..2], (false, &["there is no Secret hooks in namespace"])).await
    });
}

#[test]
fn what_acts_on_the_same_target_is_named() {
    loop_story("check-conflict", async |testbed| {
        Workload::deployment("web", 1).create(testbed).await?;
        account(testbed, SCALES).await?;
        make(testbed, "first", demo()).await?;
        says(testbed, &demo(), &[], (false, &["FAIL ClosedLoop first acts on replicas of the same target"])).await?;
        let mut watching = demo();
        watching["mode"] = json!("DryRun");
        says(testbed, &watching, &["--value", "cpu=2"], (true, &["now cpu 2 is below 5: replicas 1 → 2"])).await
    });
}

#[test]
fn a_source_that_only_the_cluster_reaches_is_no_failure() {
    let cases = [
        (
            "check-name",
            "http://no-such-service.no-such-namespace.svc/",
            true,
            "no-such-service.no-such-namespace.svc has no address",
        ),
        // The operator would reject it, too.
        (
            "check-loopback",
            "http://127.0.0.1:9/",
            false,
            "FAIL metric cpu: the address is refused: 127.0.0.1 is a loopback address",
        ),
    ];
    stories(cases.map(|case| (case.0.to_owned(), case)).into(), async |testbed, (_, url, good, words)| {
        Workload::deployment("web", 1).create(testbed).await?;
        account(testbed, SCALES).await?;
        let mut spec = on("Low", json!([{"scale": {"by": 1, "max": 9}}]));
        spec["metrics"][0]["source"] = json!({"http": {"url": url, "path": "value"}});
        says(testbed, &spec, &[], (*good, &[words])).await
    });
}

#[test]
fn who_may_not_act_as_the_account_is_told_what_was_not_checked() {
    loop_story("check-user", async |testbed| {
        Workload::deployment("web", 1).create(testbed).await?;
        account(testbed, SCALES).await?;
        // Exactly the permissions that the admission policy requires of an author.
        let author = [
            ("ganglion.dev", "closedloops", "patch"),
            ("ganglion.dev", "closedloops", "create"),
            ("", "pods", "create"),
        ];
        testbed.create::<ServiceAccount>(json!({"metadata": {"name": "author"}})).await?;
        grant_to(testbed, "author", &author).await?;
        let kubeconfig = kubeconfig::direct(&testbed.plane.cluster.config, &testbed.token("author").await?);
        let (good, said) = check_as(testbed, &kubeconfig, &demo(), &["--value", "cpu=2"]).await?;
        let unsure = [
            "ok the API server accepts it (dry run)",
            "? horizontalpodautoscalers: not read: horizontalpodautoscalers.autoscaling is forbidden",
            "? Deployment web: not read",
            "? whether the operator may act here: not read",
            "? actions and rights of service account web-loop: not checked: you may not impersonate it",
            "now cpu 2 is below 5: rung 1 on Low cpu",
        ];
        ensure!(good && unsure.iter().all(|words| said.contains(words)), "{good}: {said}");
        Ok(())
    });
}
