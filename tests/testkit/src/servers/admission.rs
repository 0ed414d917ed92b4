//! A mutating webhook on loopback that the API server calls for new pods.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::TIMEOUT;
use crate::servers::http::{Authority, Manner, Server};
use crate::testbed::Testbed;
use crate::verdict::APP;

/// Such a webhook, for pods of some apps in the namespace of a testbed.
pub struct PodWebhook {
    server: Server,
    name: String,
    _authority: Authority,
}

impl PodWebhook {
    /// Starts it, and waits until the API server calls it. `change` returns a JSON patch for a pod.
    pub async fn start(
        testbed: &Testbed,
        apps: &[&str],
        change: impl Fn(&Value) -> Value + Send + Sync + 'static,
    ) -> Result<Self> {
        let authority = Authority::create();
        let server = Server::secure(Self::manner(Duration::ZERO, change), &authority).await;
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
        let hook = json!({
            "name": "pods.example.com", "rules": [rule], "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": format!("https://{}/", server.address), "caBundle": ByteString(authority.pem())},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": testbed.ns}},
            "objectSelector": {"matchExpressions": [{"key": APP, "operator": "In", "values": apps}]},
            "failurePolicy": "Fail", "timeoutSeconds": 10,
        });
        let hooks = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": testbed.ns}, "webhooks": [hook],
        });
        testbed.kubectl(&["create", "-f", "-"], Some(&hooks.to_string())).await?;
        let webhook = Self { server, name: testbed.ns.clone(), _authority: authority };
        let asked = async {
            while webhook.calls() == 0 {
                let pod = json!({"metadata": {"name": "asks", "labels": {APP: apps[0]}},
                    "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]}});
                let dry = PostParams { dry_run: true, ..PostParams::default() };
                testbed.api::<Pod>().create(&dry, &serde_json::from_value(pod)?).await?;
            }
            Ok::<(), anyhow::Error>(())
        };
        tokio::time::timeout(TIMEOUT, asked).await.context("the webhook is not called")??;
        Ok(webhook)
    }

    fn manner(delay: Duration, change: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Manner {
        let answer = move |body: &str| {
            let review: Value = serde_json::from_str(body).unwrap_or_default();
            let patch = change(&review["request"]["object"]);
            let encoded = ByteString(patch.to_string().into_bytes());
            let response = json!({
                "uid": review["request"]["uid"], "allowed": true, "patchType": "JSONPatch", "patch": encoded,
            });
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).to_string()
        };
        Manner::Computes(delay, Arc::new(answer))
    }

    /// From now on, changes nothing and answers after this time.
    pub fn delay(&self, delay: Duration) {
        self.server.turn(Self::manner(delay, |_| json!([])));
    }

    /// Number of calls so far.
    pub fn calls(&self) -> usize {
        self.server.asked.lock().map_or(0, |asked| asked.len())
    }

    /// Removes it from the API server.
    pub async fn stop(self, testbed: &Testbed) -> Result<()> {
        testbed.kubectl(&["delete", "mutatingwebhookconfiguration", &self.name], None).await.map(drop)
    }
}
