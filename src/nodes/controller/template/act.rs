//! Writes NodeConfigs, several at once. Each write has a precondition, so that an object that somebody else created or
//! changed meanwhile is not overwritten.

use std::sync::Arc;

use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use serde_json::json;

use ganglion_api::marks;
use ganglion_api::node_config::template::NodeConfigTemplate;
use ganglion_api::node_config::{NodeConfig, NodeConfigSpec};
use ganglion_core::json_patch::JsonPatch;
use ganglion_core::world::Fact;
use ganglion_nodes_plan::template::name;
use ganglion_nodes_plan::template::plan::{ConfigWrite, is_labelled};
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;

/// Maximum number of rejected writes per pass before the rest is left to the next pass.
const MAX_REFUSED: usize = 16;

/// Executes the writes. Returns the first error. An error that concerns a single NodeConfig does not stop the others.
pub async fn write_all(
    ctx: &Context,
    template: &NodeConfigTemplate,
    writes: &[ConfigWrite],
    concurrency: usize,
) -> Result<(), Error> {
    let (mut first, mut refused) = (None, 0);
    let writes: Vec<_> = writes.iter().map(|write| perform(ctx, template, write)).collect();
    let mut done = stream::iter(writes).buffer_unordered(concurrency.max(1));
    while let Some(result) = done.next().await {
        let Err(error) = result else { continue };
        let is_of_one =
            matches!(error, Error::Conflict(_) | Error::AlreadyExists(_) | Error::NotFound(_) | Error::Denied(_));
        refused += 1;
        first.get_or_insert(error);
        // Pending writes are dropped: the next pass reads their outcome from the store.
        if !is_of_one || refused >= MAX_REFUSED || ctx.is_over() {
            break;
        }
    }
    first.map_or(Ok(()), Err)
}

async fn perform(ctx: &Context, template: &NodeConfigTemplate, write: &ConfigWrite) -> Result<(), Error> {
    match write {
        ConfigWrite::Create { name, spec } => create(ctx, template, name, spec).await,
        ConfigWrite::Change { config, spec } => change(ctx, template, config, spec).await,
        ConfigWrite::Delete { config } => ctx.delete_own("DeleteNodeConfig", &**config).await,
    }
}

async fn create(
    ctx: &Context,
    template: &NodeConfigTemplate,
    name: &str,
    spec: &Arc<NodeConfigSpec>,
) -> Result<(), Error> {
    let mut config = NodeConfig::new(name, NodeConfigSpec::clone(spec));
    config.metadata.namespace = template.namespace();
    let owner = template.controller_owner_ref(&());
    config.metadata.owner_references =
        owner.map(|owner| vec![OwnerReference { block_owner_deletion: Some(true), ..owner }]);
    config.metadata.labels = name::label(&template.name_any()).map(|label| [label_of(label)].into());
    let namespace = template.namespace().unwrap_or_default();
    let write = ctx.writer.create(marks::TEMPLATE_MANAGER, &namespace, &config);
    ctx.write_own::<NodeConfigTemplate, NodeConfig>("CreateNodeConfig", &config, write).await
}

fn label_of(template: &str) -> (String, String) {
    (marks::TEMPLATE.to_owned(), template.to_owned())
}

async fn change(
    ctx: &Context,
    template: &NodeConfigTemplate,
    config: &NodeConfig,
    spec: &Arc<NodeConfigSpec>,
) -> Result<(), Error> {
    let key = config.id().key;
    let patch = change_of(template, config, spec);
    let write = ctx.writer.patch_json::<NodeConfig>(marks::TEMPLATE_MANAGER, &key, patch);
    ctx.write_own::<NodeConfigTemplate, NodeConfig>("ChangeNodeConfig", config, write).await
}

/// JSON patch that sets the spec, and the template's label if it is missing.
fn change_of(template: &NodeConfigTemplate, config: &NodeConfig, spec: &NodeConfigSpec) -> JsonPatch {
    let mut patch = JsonPatch::of(config.metadata.uid.as_deref().unwrap_or_default());
    if config.spec != *spec {
        patch.replace(&["spec"], json!(spec));
    }
    let own = template.name_any();
    if let Some(label) = name::label(&own).filter(|_| !is_labelled(config, &own)) {
        patch.add_entry(&["metadata", "labels"], config.labels().is_empty(), marks::TEMPLATE, label);
    }
    patch
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn config(labels: Value) -> NodeConfig {
        let value = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig",
            "metadata": {"namespace": "n", "name": "all-n1", "uid": "u", "labels": labels},
            "spec": {"nodeName": "n1"},
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_change_has_only_what_differs_and_tests_the_uid() {
        let template = NodeConfigTemplate::new("all", Default::default());
        let same = NodeConfigSpec { node_name: "n1".into(), ..NodeConfigSpec::default() };
        let other = NodeConfigSpec { suspend: Some(true), ..same.clone() };
        let test = json!({"op": "test", "path": "/metadata/uid", "value": "u"});
        let spec = json!({"op": "replace", "path": "/spec", "value": {"nodeName": "n1", "suspend": true}});
        for (labels, wanted, expected) in [
            (json!({"ganglion.dev/template": "all"}), &other, vec![test.clone(), spec]),
            (
                json!({"a": "b"}),
                &same,
                vec![
                    test.clone(),
                    json!({"op": "add", "path": "/metadata/labels/ganglion.dev~1template", "value": "all"}),
                ],
            ),
            (
                json!({}),
                &same,
                vec![test, json!({"op": "add", "path": "/metadata/labels", "value": {"ganglion.dev/template": "all"}})],
            ),
        ] {
            assert_eq!(json!(change_of(&template, &config(labels), wanted)), Value::Array(expected));
        }
    }
}
