//! `ganglion explain`: describes the state of an object and its children as text, with advice.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use kube::Client;

use super::objects::{self, Error, LoopFamily, Named, NamedAction, NamedNode, NamedPool};
use ganglion_actions_plan::explain::{ActionStory, ExplainedAction};
use ganglion_loops_plan::explain::explain as loop_text;
use ganglion_nodes_plan::explain::{ExplainedNode, explain as node_text};
use ganglion_pools_plan::explain::{ExplainedPool, explain as pool_text};

/// Options of `explain`.
#[derive(Args, Debug, Clone)]
pub struct ExplainArgs {
    #[command(subcommand)]
    what: ExplainedObject,
}

/// The object to explain.
#[derive(Subcommand, Debug, Clone)]
enum ExplainedObject {
    /// Explains a loop: its recent decisions and their reasons, its state, and what to do.
    Loop(Named),
    /// Explains a WorkloadAction: why it waited, the outcome of each replica and its reason, how the action ended, and
    /// what to do.
    #[command(aliases = ["action", "workloadaction"])]
    Wa(NamedAction),
    /// Explains a SwarmPool: its workers, or the worker of a job, since when and why.
    #[command(alias = "swarmpool")]
    Swp(NamedPool),
    /// Explains the result of a PlacementPolicy for a pod: each node, each agent's score, and the reasons.
    Placement(super::explain_placement::PlacementArgs),
    /// Explains a node: its values with their sources and ages, and problems.
    Node(NamedNode),
}

/// Writes the explanation to standard output.
pub async fn explain(explain: ExplainArgs) -> Result<(), Error> {
    let text = match explain.what {
        ExplainedObject::Loop(named) => loop_text(&LoopFamily::read(named).await?.subject()),
        ExplainedObject::Wa(named) => {
            let (action, receipts) = objects::action(&named).await?;
            let story = ActionStory::of(ExplainedAction {
                action: &action,
                receipts: receipts.as_deref(),
                now: Timestamp::now(),
            });
            named.output.of(&story, || story.text())?
        }
        ExplainedObject::Swp(named) => {
            let (pool, published) = objects::pool(&named).await?;
            let job = named.job.as_deref();
            pool_text(ExplainedPool { pool: &pool, published: &published, job, now: Timestamp::now() })
        }
        ExplainedObject::Placement(asked) => super::explain_placement::explain(asked).await?,
        ExplainedObject::Node(named) => {
            let configs = objects::node_configs(&named).await?;
            node_text(ExplainedNode { name: &named.name, configs: &configs, now: Timestamp::now() })
        }
    };
    print!("{text}");
    Ok(())
}

/// Explains a loop.
pub async fn explain_loop(client: Client, namespace: String, name: String) -> Result<String, Error> {
    Ok(loop_text(&LoopFamily::fetch(client, namespace, name).await?.subject()))
}

/// Explains a WorkloadAction.
pub async fn explain_action(client: Client, namespace: String, name: String) -> Result<String, Error> {
    let (action, receipts) = objects::fetch_action(client, namespace, name).await?;
    let subject = ExplainedAction { action: &action, receipts: receipts.as_deref(), now: Timestamp::now() };
    Ok(ActionStory::of(subject).text())
}

/// Explains a SwarmPool.
pub async fn explain_pool(client: Client, namespace: String, name: String) -> Result<String, Error> {
    let (pool, published) = objects::fetch_pool(client, namespace, name).await?;
    Ok(pool_text(ExplainedPool { pool: &pool, published: &published, job: None, now: Timestamp::now() }))
}

/// Explains a node by its NodeConfigs of one namespace.
pub async fn explain_node(client: Client, namespace: &str, node: &str) -> Result<String, Error> {
    let configs = objects::fetch_node_configs(client, Some(namespace), node).await?;
    Ok(node_text(ExplainedNode { name: node, configs: &configs, now: Timestamp::now() }))
}
