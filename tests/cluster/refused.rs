//! Bad input that `kubectl apply` rejects, by the schema or by a rule, with a message that says what would be valid.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::action::{action, create_on, delete_pod, deployment, move_pod, with};
use testkit::testbed::loops::demo;
use testkit::testbed::{Testbed, story};
use testkit::wrong_loops::{WrongLoop, wrong_loops};

/// Message of the rejection of this action; an error if it is accepted.
async fn refusal(testbed: &Testbed, name: &str, spec: Value) -> Result<String> {
    let output = testbed.kubectl(&["apply", "-f", "-"], Some(&action(name, spec.clone()).to_string())).await;
    match output {
        Ok(output) => anyhow::bail!("{name} was accepted ({output}): {spec}"),
        Err(error) => Ok(format!("{error:#}")),
    }
}

/// Each spec with a text that its rejection must contain.
fn wrong() -> Vec<(&'static str, Value, &'static str)> {
    let to = json!({"nodeName": "node-0"});
    let web = deployment("web");
    let moving = move_pod("p", "node-0");
    vec![
        ("nothing", json!({}), "set exactly one of create, delete, move, swap, moveApplication"),
        (
            "two-things",
            with(moving.clone(), delete_pod("p")),
            "set exactly one of create, delete, move, swap, moveApplication",
        ),
        ("count-0", json!({"create": {"workload": web, "to": to, "count": 0}}), "greater than or equal to 1"),
        ("count-0-delete", json!({"delete": {"workload": web, "count": 0}}), "greater than or equal to 1"),
        ("count-0-move", json!({"move": {"workload": web, "to": to, "count": 0}}), "greater than or equal to 1"),
        ("count-minus", json!({"delete": {"workload": web, "count": -3}}), "greater than or equal to 1"),
        ("count-many", json!({"create": {"workload": web, "to": to, "count": 101}}), "less than or equal to 100"),
        ("count-word", json!({"create": {"workload": web, "to": to, "count": "two"}}), "must be of type integer"),
        (
            "pod-and-workload",
            json!({"move": {"workload": web, "pod": {"name": "p"}, "to": to}}),
            "set exactly one of workload, pod",
        ),
        ("no-subject", json!({"delete": {}}), "set exactly one of workload, pod"),
        ("pod-and-count", json!({"delete": {"pod": {"name": "p"}, "count": 2}}), "pod names the one replica"),
        ("pod-and-from", json!({"move": {"pod": {"name": "p"}, "from": to, "to": to}}), "pod names the one replica"),
        ("no-target", json!({"create": {"workload": web}}), "to: Required value"),
        ("count-most", json!({"move": {"workload": web, "count": "all"}}), "should match '^All$'"),
        ("up-to-alone", json!({"move": {"workload": web, "upTo": 2}}), "upTo goes with count: All"),
        ("up-to-number", json!({"delete": {"workload": web, "count": 3, "upTo": 2}}), "upTo goes with count: All"),
        ("no-preference", json!({"move": {"workload": web, "to": {"preferences": [{}]}}}), "nodeSelector, where"),
        (
            "empty-target",
            json!({"move": {"pod": {"name": "p"}, "to": {}}}),
            "name at least one of nodeName, nodeSelector, where, policy",
        ),
        (
            "empty-source",
            json!({"delete": {"workload": web, "from": {}}}),
            "name at least one of nodeName, nodeSelector, where",
        ),
        ("empty-name", json!({"move": {"pod": {"name": ""}, "to": to}}), "at least 1 chars long"),
        ("empty-node", json!({"move": {"pod": {"name": "p"}, "to": {"nodeName": ""}}}), "at least 1 chars long"),
        (
            "no-kind",
            json!({"create": {"workload": {"apiVersion": "apps/v1", "name": "web"}, "to": to}}),
            "kind: Required value",
        ),
        (
            "unknown-member",
            json!({"move": {"pod": {"name": "p"}, "to": {"node": "node-0"}}}),
            "unknown field \"spec.move.to.node\"",
        ),
        ("misspelt", with(moving.clone(), json!({"supend": true})), "unknown field \"spec.supend\""),
        (
            "long-where",
            json!({"create": {"workload": web, "to": {"where": "x".repeat(513)}}}),
            "may not be more than 512",
        ),
        ("mode", with(moving.clone(), json!({"mode": "Now"})), "supported values: \"Execute\", \"Plan\""),
        (
            "disruption",
            with(moving.clone(), json!({"disruption": "Maybe"})),
            "supported values: \"Never\", \"Allowed\"",
        ),
        ("owner", with(moving.clone(), json!({"onReplicaOwner": "Fight"})), "supported values: \"Yield\", \"Force\""),
        (
            "policy",
            with(moving.clone(), json!({"runPolicy": "Twice"})),
            "supported values: \"Auto\", \"Once\", \"OncePerObject\"",
        ),
        ("priority", with(moving.clone(), json!({"priority": 1001})), "less than or equal to 1000"),
        ("stable", with(moving.clone(), json!({"stableSeconds": -1})), "greater than or equal to 0"),
        ("grace", with(moving.clone(), json!({"gracePeriodSeconds": -1})), "greater than or equal to 0"),
        ("timeout-0", with(moving.clone(), json!({"timeouts": {"readySeconds": 0}})), "greater than or equal to 1"),
        ("timeout-float", with(moving.clone(), json!({"timeouts": {"drainSeconds": 1.5}})), "must be of type integer"),
        ("ttl", with(moving.clone(), json!({"ttlSecondsAfterFinished": -1})), "greater than or equal to 0"),
        ("not-after", with(moving.clone(), json!({"notAfter": "tomorrow"})), "must be of type date-time"),
        ("notify", with(moving, json!({"notify": [{"url": "ftp://example.com"}]})), "spec.notify[0].url"),
        ("swap-one-sided", json!({"swap": {"replica": {"pod": {"name": "a"}}, "with": []}}), "at least 1 items"),
        (
            "swap-both",
            json!({"swap": {"replica": {"pod": {"name": "a"}, "workload": web}, "with": [{"pod": {"name": "b"}}]}}),
            "set exactly one of workload, pod",
        ),
    ]
}

#[test]
fn kubectl_apply_refuses_what_is_wrong_and_says_what_is_right() {
    story("refused", async |testbed| {
        let mut bad = Vec::new();
        for (name, spec, words) in wrong() {
            match refusal(testbed, name, spec).await {
                Ok(output) if output.contains(words) => {}
                Ok(output) => bad.push(format!("{name}: no word of {words:?} in: {output}")),
                Err(error) => bad.push(format!("{error:#}")),
            }
        }
        ensure!(bad.is_empty(), "{}", bad.join("\n"));
        Ok(())
    });
}

#[test]
fn a_refused_loop_says_what_is_wrong_with_it() {
    story("refused-loops", async |testbed| {
        let mut bad = Vec::new();
        for WrongLoop { name, spec, path, message } in wrong_loops() {
            let manifest = json!({
                "apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop", "metadata": {"name": name}, "spec": spec,
            });
            let applied = testbed.kubectl(&["apply", "--server-side", "-f", "-"], Some(&manifest.to_string())).await;
            let expected = format!("The ClosedLoop \"{name}\" is invalid: {path}: Invalid value: {message}");
            match applied {
                Ok(output) => bad.push(format!("{name} was accepted: {output}")),
                Err(error) if format!("{error:#}").trim_end().ends_with(&expected) => {}
                Err(error) => bad.push(format!("{name}: no word of {expected:?} in: {error:#}")),
            }
        }
        ensure!(bad.is_empty(), "{}", bad.join("\n"));
        Ok(())
    });
}

/// Forms of `when` that the types do not have.
#[test]
fn a_condition_of_an_action_is_one_alarm_or_a_flat_combination() {
    story("refused-conditions", async |testbed| {
        let (cpu, memory) = (json!({"metric": "cpu", "side": "Low"}), json!({"metric": "memory", "side": "Low"}));
        let set = "set metric and side, or all, or any";
        let nine: Vec<Value> = (0..9).map(|index| json!({"metric": format!("m{index}"), "side": "Low"})).collect();
        let mut bad = Vec::new();
        for (when, words) in [
            (json!({}), set),
            (json!({"metric": "cpu"}), set),
            (json!({"side": "Low"}), set),
            (with(cpu.clone(), json!({"all": [cpu, memory]})), set),
            (json!({"all": [cpu, memory], "any": [cpu, memory]}), set),
            (json!({"all": []}), "should have at least 2 items"),
            (json!({"any": [cpu]}), "should have at least 2 items"),
            (json!({"any": nine}), "must have at most 8 items"),
            (json!({"all": [cpu, {"any": [cpu, memory]}]}), "unknown field \"spec.actions[0].when.all[1].any\""),
            (json!({"all": [cpu, {"metric": "memory"}]}), "spec.actions[0].when.all[1].side: Required value"),
        ] {
            let mut spec = demo();
            spec["actions"][0]["when"] = when.clone();
            let manifest = json!({
                "apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop", "metadata": {"name": "one"}, "spec": spec,
            });
            match testbed.kubectl(&["create", "-f", "-"], Some(&manifest.to_string())).await {
                Ok(output) => bad.push(format!("{when} was accepted: {output}")),
                Err(error) if format!("{error:#}").contains(words) => {}
                Err(error) => bad.push(format!("{when}: no word of {words:?} in: {error:#}")),
            }
        }
        ensure!(bad.is_empty(), "{}", bad.join("\n"));
        Ok(())
    });
}

#[test]
fn what_makes_an_action_this_action_is_immutable() {
    story("immutable", async |testbed| {
        let whole = with(
            create_on("nobody", "node-0"),
            json!({"mode": "Plan", "notAfter": "2030-01-01T00:00:00Z", "suspend": true}),
        );
        testbed.act("fixed", whole.clone()).await?;
        let mut bad = Vec::new();
        for (change, words) in [
            (create_on("somebody", "node-0"), "create is immutable; make a new WorkloadAction"),
            (create_on("nobody", "node-1"), "create is immutable; make a new WorkloadAction"),
            (json!({"mode": "Execute"}), "mode is immutable; make a new WorkloadAction with mode: Execute"),
            (json!({"priority": 3}), "priority are immutable; make a new WorkloadAction"),
            (json!({"stableSeconds": 3}), "stableSeconds and priority are immutable"),
            (json!({"gracePeriodSeconds": 3}), "gracePeriodSeconds is immutable; make a new WorkloadAction"),
            (json!({"disruption": "Allowed"}), "are immutable; make a new WorkloadAction"),
            (json!({"onReplicaOwner": "Force"}), "are immutable; make a new WorkloadAction"),
            (json!({"runPolicy": "OncePerObject"}), "are immutable; make a new WorkloadAction"),
            (json!({"notAfter": "2031-01-01T00:00:00Z"}), "notAfter is immutable; make a new WorkloadAction"),
            (json!({"notify": [{"url": "http://example.com/"}]}), "notify is immutable; make a new WorkloadAction"),
        ] {
            match refusal(testbed, "fixed", with(whole.clone(), change.clone())).await {
                Ok(output) if output.contains(words) => {}
                Ok(output) => bad.push(format!("{change}: no word of {words:?} in: {output}")),
                Err(error) => bad.push(format!("{error:#}")),
            }
        }
        let free =
            json!({"suspend": false, "abort": true, "timeouts": {"readySeconds": 7}, "ttlSecondsAfterFinished": 86400});
        testbed.kubectl(&["apply", "-f", "-"], Some(&action("fixed", with(whole, free)).to_string())).await?;
        ensure!(bad.is_empty(), "{}", bad.join("\n"));
        Ok(())
    });
}

#[test]
fn every_field_is_explained() {
    story("explain", async |testbed| {
        let output = testbed.kubectl(&["explain", "workloadaction.spec", "--recursive"], None).await?;
        for field in ["moveApplication", "stableSeconds", "onReplicaOwner", "drainSeconds", "ttlSecondsAfterFinished"] {
            ensure!(output.contains(field), "{field} is not in:\n{output}");
        }
        let output = testbed.kubectl(&["explain", "workloadaction.spec.timeouts.drainSeconds"], None).await?;
        ensure!(output.contains("Seconds") && output.contains("Default: 300"), "{output}");
        Ok(())
    });
}
