//! Installs what the operator needs: CRDs, service account and RBAC rules, as in kustomize/base.
//!
//! The tests apply kustomize/base as a user does ([`apply`]), on planes that end with them, so that the manifests are
//! tested as well. The demo and the benches ([`Installed`]) omit the Deployment, because the operator runs as a local
//! process. They leave existing objects of the cluster unchanged, and delete only what they created.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use kube::runtime::conditions;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::plane::cluster::Cluster;
use crate::root;

/// Namespace of the operator's service account in kustomize/base.
pub const NAMESPACE: &str = "ganglion-system";

/// Name of that service account, and of the operator's lease.
pub const ACCOUNT: &str = "ganglion";

/// Kinds in kustomize/base except the running operator itself, in order of their creation.
const KINDS: [&str; 8] = [
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
];

const TIMEOUT: Duration = Duration::from_secs(60);

/// Manifests of this version: the directory kustomize/base.
pub fn base() -> PathBuf {
    root().join("kustomize/base")
}

/// Installs the operator as a user does: by a directory `kustomize/base` of this or another version, or by a file of a
/// release. Installed already, it is upgraded or downgraded.
pub async fn apply(cluster: &Cluster, manifests: &Path) -> Result<()> {
    let option = if manifests.is_dir() { "-k" } else { "-f" };
    cluster.kubectl(&["apply", "--server-side", option, &manifests.display().to_string()], None).await?;
    cluster.established("--all").await
}

/// Objects created here.
#[derive(Default)]
pub struct Installed {
    made: Vec<DynamicObject>,
}

impl Installed {
    /// Creates the missing objects.
    pub async fn install(&mut self, cluster: &Cluster) -> Result<()> {
        let client = &cluster.client;
        for crd in ganglion_api::all() {
            let name = crd.name_any();
            let crd: DynamicObject = serde_json::from_value(serde_json::to_value(&crd)?)?;
            self.make(client, crd).await?;
            let all: Api<CustomResourceDefinition> = Api::all(client.clone());
            let established = await_condition(all, &name, conditions::is_crd_established());
            tokio::time::timeout(TIMEOUT, established).await.with_context(|| format!("CRD {name} is not served"))??;
        }
        let rendered = cluster.kubectl(&["kustomize", &base().display().to_string()], None).await?;
        let objects: Vec<DynamicObject> = serde_saphyr::from_multiple(&rendered)?;
        for kind in KINDS {
            for object in objects.iter().filter(|object| kind_of(object) == kind) {
                self.make(client, object.clone()).await?;
            }
        }
        Ok(())
    }

    async fn make(&mut self, client: &Client, object: DynamicObject) -> Result<()> {
        match api(client, &object)?.create(&PostParams::default(), &object).await {
            Ok(made) => {
                self.made.push(made);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => {
                Err(error).with_context(|| format!("{} {} cannot be created", kind_of(&object), object.name_any()))
            }
        }
    }

    /// Deletes the objects created here, in reverse order, and waits until they are gone.
    pub async fn remove(&mut self, client: &Client) -> Result<()> {
        while let Some(object) = self.made.pop() {
            let (api, name) = (api(client, &object)?, object.name_any());
            match api.delete(&name, &DeleteParams::default()).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error.into()),
            }
            let uid = object.uid().unwrap_or_default();
            let gone = tokio::time::timeout(TIMEOUT, await_condition(api, &name, conditions::is_deleted(&uid))).await;
            gone.with_context(|| format!("{} {name} still exists", kind_of(&object)))??;
        }
        Ok(())
    }
}

fn kind_of(object: &DynamicObject) -> &str {
    object.types.as_ref().map_or("", |types| types.kind.as_str())
}

fn api(client: &Client, object: &DynamicObject) -> Result<Api<DynamicObject>> {
    let types = object.types.as_ref().context("an object without a kind")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types)?);
    // Older versions of kustomize treat the policies as namespaced.
    let namespace = object.metadata.namespace.as_ref().filter(|_| !types.kind.starts_with("ValidatingAdmissionPolicy"));
    Ok(match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    })
}

/// Name of the binding that lets the operator act as the service accounts of a namespace.
pub const LOOPS: &str = "ganglion";

/// Lets the operator act as the service accounts of this namespace, which its loops require.
pub async fn bind_loops(client: &Client, namespace: &str) -> Result<()> {
    bind(client, namespace, LOOPS, "ClusterRole", "ganglion-namespace").await
}

/// Binds a role to the operator in this namespace.
pub async fn bind(client: &Client, namespace: &str, name: &str, kind: &str, role: &str) -> Result<()> {
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    }))?;
    Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &binding).await?;
    Ok(())
}

/// Token of the operator's service account, valid for a day.
pub async fn token(client: &Client) -> Result<String> {
    token_of(client, NAMESPACE, ACCOUNT).await
}

/// Token of this service account, valid for a day.
pub async fn token_of(client: &Client, namespace: &str, account: &str) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let spec = TokenRequestSpec { expiration_seconds: Some(86_400), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    match answer.status {
        Some(status) => Ok(status.token),
        None => bail!("the server issued no token for service account {namespace}/{account}"),
    }
}

/// Holder of the operator's lease in this cluster, if any.
pub async fn running(client: &Client) -> Result<Option<String>> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let Some(spec) = leases.get_opt(ACCOUNT).await?.and_then(|lease| lease.spec) else { return Ok(None) };
    let (Some(holder), Some(renewed)) = (spec.holder_identity.filter(|name| !name.is_empty()), spec.renew_time) else {
        return Ok(None);
    };
    let age = Timestamp::now().duration_since(renewed.0).as_secs();
    Ok((age <= i64::from(spec.lease_duration_seconds.unwrap_or(15))).then_some(holder))
}
