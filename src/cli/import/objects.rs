//! The objects of a handover, and the writes of its steps. Each write has the version or the uid that was read.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::discovery::pinned_kind;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::Error;
use crate::cli::objects as cluster_objects;
use ganglion_api::closed_loop::{ClosedLoop, LoopMode, TargetRef};
use ganglion_api::execution::Execution;
use ganglion_api::foreign::ScaledObject;
use ganglion_api::marks;
use ganglion_loops_plan::import::{ImportedKind, ImportedScaler, hpa_name};

/// Number of loops per request.
const PAGE: u32 = 500;

/// Access to the objects of a handover.
pub struct ImportObjects {
    pub client: Client,
    pub namespace: String,
    pub kind: ImportedKind,
    /// Name of the autoscaler.
    pub name: String,
}

/// An autoscaler, and the HorizontalPodAutoscaler of a ScaledObject.
pub struct SeenAutoscaler {
    pub object: DynamicObject,
    pub hpa: Option<DynamicObject>,
}

impl SeenAutoscaler {
    /// The autoscaler with its kind.
    pub fn scaler(&self, kind: ImportedKind) -> ImportedScaler<'_> {
        ImportedScaler { kind, object: &self.object }
    }
}

impl ImportObjects {
    fn hpas(&self) -> Api<DynamicObject> {
        let kind = ApiResource::erase::<HorizontalPodAutoscaler>(&());
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind)
    }

    /// Autoscalers of the kind that is imported.
    fn scalers(&self) -> Api<DynamicObject> {
        match self.kind {
            ImportedKind::HorizontalPodAutoscaler => self.hpas(),
            ImportedKind::ScaledObject => {
                let kind = ApiResource::erase::<ScaledObject>(&());
                Api::namespaced_with(self.client.clone(), &self.namespace, &kind)
            }
        }
    }

    fn loops(&self) -> Api<ClosedLoop> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Reads the autoscaler.
    pub async fn autoscaler(&self) -> Result<SeenAutoscaler, Error> {
        let found = self.scalers().get_opt(&self.name).await.map_err(cluster_objects::Error::from)?;
        let Some(object) = found else {
            let (kind, argument) = (self.kind.as_str(), self.kind.argument());
            return Err(Error::NotFound { kind, argument, name: self.name.clone(), namespace: self.namespace.clone() });
        };
        let hpa = match self.kind {
            ImportedKind::HorizontalPodAutoscaler => None,
            ImportedKind::ScaledObject => {
                self.hpas().get_opt(&hpa_name(&object)).await.map_err(cluster_objects::Error::from)?
            }
        };
        Ok(SeenAutoscaler { object, hpa })
    }

    /// Reads the loop of this name.
    pub async fn find_loop(&self, name: &str) -> Result<Option<ClosedLoop>, Error> {
        Ok(self.loops().get_opt(name).await.map_err(cluster_objects::Error::from)?)
    }

    /// Reads all loops of the namespace.
    pub async fn all_loops(&self) -> Result<Vec<ClosedLoop>, Error> {
        let mut params = ListParams::default().limit(PAGE);
        let mut loops = Vec::new();
        loop {
            let page = self.loops().list(&params).await.map_err(cluster_objects::Error::from)?;
            loops.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(loops),
            }
        }
    }

    /// Reads the Execution of the loop of this name.
    pub async fn execution(&self, name: &str) -> Result<Option<Execution>, Error> {
        let api: Api<Execution> = Api::namespaced(self.client.clone(), &self.namespace);
        Ok(api.get_opt(name).await.map_err(cluster_objects::Error::from)?)
    }

    /// Reads the target. None: it does not exist.
    pub async fn target(&self, target: &TargetRef) -> Result<Option<DynamicObject>, Error> {
        let (group, version) = target.api_version.split_once('/').unwrap_or(("", &target.api_version));
        let kind = GroupVersionKind::gvk(group, version, &target.kind);
        let (kind, _) = pinned_kind(&self.client, &kind).await.map_err(cluster_objects::Error::from)?;
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &kind);
        Ok(api.get_opt(&target.name).await.map_err(cluster_objects::Error::from)?)
    }

    /// Creates the loop.
    pub async fn create_loop(&self, manifest: Value) -> Result<(), kube::Error> {
        let object: ClosedLoop = serde_json::from_value(manifest).map_err(kube::Error::SerdeError)?;
        let params = PostParams { field_manager: Some(marks::IMPORT_MANAGER.to_owned()), ..PostParams::default() };
        self.loops().create(&params, &object).await.map(drop)
    }

    /// Sets the mode of the loop, in the version that was read.
    pub async fn set_mode(&self, parent: &ClosedLoop, mode: LoopMode) -> Result<(), kube::Error> {
        let version = parent.resource_version();
        let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"mode": mode}});
        let params = PatchParams { field_manager: Some(marks::IMPORT_MANAGER.to_owned()), ..PatchParams::default() };
        self.loops().patch(&parent.name_any(), &params, &Patch::Merge(patch)).await.map(drop)
    }

    /// Replaces the autoscaler. It has the version that was read.
    pub async fn replace(&self, object: &DynamicObject) -> Result<(), kube::Error> {
        let params = PostParams { field_manager: Some(marks::IMPORT_MANAGER.to_owned()), ..PostParams::default() };
        self.scalers().replace(&self.name, &params, object).await.map(drop)
    }

    /// Deletes the loop, if it is the one that was read.
    pub async fn delete_loop(&self, parent: &ClosedLoop) -> Result<(), kube::Error> {
        let preconditions = Some(Preconditions { uid: parent.uid(), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        match self.loops().delete(&parent.name_any(), &params).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => deleted.map(drop),
        }
    }
}
