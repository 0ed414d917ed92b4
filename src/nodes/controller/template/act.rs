//! Writes NodeConfigs, several at once. Each write has a precondition, so that an object that somebody else created or
//! changed meanwhile is not overwritten.

use std::sync::Arc;

use futures::{StreamExt, stream};
use kube::ResourceExt;

use ganglion_api::marks;
use ganglion_api::node_config::{NodeConfig, NodeConfigSpec, NodeConfigTemplate};
use ganglion_nodes_plan::template::name;
use ganglion_nodes_plan::template::plan::ConfigWrite;
use ganglion_runtime::children::{ChildWriter, OwnerDeletion, owned_by};
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;

/// Maximum number of rejected writes per pass before the rest is left to the next pass.
const MAX_REFUSED: usize = 16;

/// Executes the writes. An error that concerns a single NodeConfig does not stop the others. Returns the error of the
/// earliest write in the plan: the status has its words, and would change if it were that of the earliest answer.
pub async fn write_all(
    ctx: &Context,
    template: &NodeConfigTemplate,
    writes: &[ConfigWrite],
    concurrency: usize,
) -> Result<(), Error> {
    let (mut first, mut refused): (Option<(usize, Error)>, _) = (None, 0);
    let numbered = |(place, write)| async move { (place, perform(ctx, template, write).await) };
    let writes: Vec<_> = writes.iter().enumerate().map(numbered).collect();
    let mut done = stream::iter(writes).buffer_unordered(concurrency.max(1));
    while let Some((place, result)) = done.next().await {
        let Err(error) = result else { continue };
        let is_of_one =
            matches!(error, Error::Conflict(_) | Error::AlreadyExists(_) | Error::NotFound(_) | Error::Denied(_));
        refused += 1;
        if first.as_ref().is_none_or(|(earliest, _)| place < *earliest) {
            first = Some((place, error));
        }
        // Pending writes are dropped: the next pass reads their outcome from the store.
        if !is_of_one || refused >= MAX_REFUSED || ctx.is_over() {
            break;
        }
    }
    first.map_or(Ok(()), |(_, error)| Err(error))
}

const CONFIGS: ChildWriter = ChildWriter {
    manager: marks::TEMPLATE_MANAGER,
    create: "CreateNodeConfig",
    update: "ChangeNodeConfig",
    others: &[],
    restores_metadata: false,
};

async fn perform(ctx: &Context, template: &NodeConfigTemplate, write: &ConfigWrite) -> Result<(), Error> {
    match write {
        ConfigWrite::Create { name, spec } => {
            CONFIGS.create::<NodeConfigTemplate, _>(ctx, &desired(template, name, spec)).await
        }
        ConfigWrite::Change { config, spec } => {
            let desired = desired(template, &config.name_any(), spec);
            CONFIGS.update::<NodeConfigTemplate, _>(ctx, &**config, &desired).await
        }
        ConfigWrite::Delete { config } => ctx.delete_own("DeleteNodeConfig", &**config).await,
    }
}

/// The NodeConfig of a template with this spec. A template whose name is no label value sets no label.
fn desired(template: &NodeConfigTemplate, name: &str, spec: &Arc<NodeConfigSpec>) -> NodeConfig {
    let label = name::label(&template.name_any()).map(|label| (marks::TEMPLATE.to_owned(), label.to_owned()));
    let config = NodeConfig::new(name, NodeConfigSpec::clone(spec));
    owned_by(template, OwnerDeletion::Waits, label.into_iter().collect(), config)
}
