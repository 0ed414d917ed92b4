//! `ganglion plan`: shows what actions would do before they are applied.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use thiserror::Error;

use super::cluster::{self, ClusterOptions};
use super::manifests;
use super::output::{self, OutputFormat};
use super::progress::CommandProgress;
use super::signals::{SignalsError, interrupts, nothing_changed};
use crate::operator;
use crate::operator::plan::PlanBasis;
use crate::operator::settings::{self, Settings};
use ganglion_actions_plan::preview::ActionPreview;
use ganglion_core::words::cut;

/// Maximum length of the start of a generated name, which the API server completes.
const MAX_PREFIX: usize = 240;

/// Options of `plan`.
#[derive(Args, Debug, Clone)]
pub struct PlanArgs {
    /// File with WorkloadActions, YAML or JSON; - for standard input. May be repeated. Other kinds in it are ignored.
    /// An action that exists, such as one from `kubectl get -o yaml`, is planned as a new one with the same spec. Each
    /// action is planned as if it were the only one and the operator's limits allowed it.
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Namespace of actions without a namespace. Default: the namespace of the context.
    #[arg(short, long, value_name = "NS")]
    namespace: Option<String>,
    /// Output format; json and yaml write a list.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: OutputFormat,
    /// The operator's settings file. Default: all settings have their defaults.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Error: actions were not planned, or would not start.
#[derive(Debug, Error)]
pub enum Error {
    #[error("{not} of {all} actions would not start now")]
    NotStarting { not: usize, all: usize },
    #[error(transparent)]
    Manifests(#[from] manifests::Error),
    #[error(transparent)]
    Output(#[from] output::Error),
    #[error(transparent)]
    Settings(#[from] settings::Error),
    #[error(transparent)]
    Plan(#[from] operator::plan::Error),
    #[error(transparent)]
    App(#[from] operator::Error),
    #[error(transparent)]
    Signals(#[from] SignalsError),
}

/// Writes the plan of each action to standard output.
pub async fn plan(plan: PlanArgs) -> Result<ExitCode, Error> {
    let actions = manifests::all_of_kind("WorkloadAction", &plan.files)?;
    let actions: Vec<Value> = actions.into_iter().map(as_new).collect();
    let settings = plan.settings.as_deref().map(Settings::load).transpose()?.unwrap_or_default();
    let (client, namespace) = cluster::open(plan.cluster, plan.namespace).await?;
    let (progress, mut interrupted) = (CommandProgress::new(plan.output), interrupts()?);
    let say = |text: &str| progress.set(text);
    let work = operator::plan::plan(&client, &namespace, &settings, &actions, PlanBasis::default(), &say);
    let Some(previews) = progress.follow(&mut interrupted, work).await.transpose()? else {
        return Ok(nothing_changed());
    };
    let text = || previews.iter().map(ActionPreview::text).collect::<Vec<_>>().join("\n");
    print!("{}", plan.output.of(&previews, text)?);
    let not = previews.iter().filter(|preview| !preview.starts()).count();
    if not == 0 { Ok(ExitCode::SUCCESS) } else { Err(Error::NotStarting { not, all: previews.len() }) }
}

/// Returns an action that was read from the cluster as a new one with the same spec. Other manifests stay as they are:
/// they are planned with their names.
fn as_new(mut action: Value) -> Value {
    let metadata = &action["metadata"];
    if let (Some(_), Some(name)) = (metadata.get("uid"), metadata["name"].as_str()) {
        let name = cut(name, MAX_PREFIX);
        action["metadata"] = json!({"generateName": format!("{name}-"), "namespace": metadata["namespace"]});
    }
    action
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_of_the_cluster_is_planned_as_a_new_one() {
        let spec = json!({"move": {}});
        let stored =
            json!({"metadata": {"name": "go", "namespace": "shop", "uid": "u", "resourceVersion": "1"}, "spec": spec});
        let new = json!({"metadata": {"generateName": "go-", "namespace": "shop"}, "spec": spec});
        assert_eq!(as_new(stored), new);
        let manifest = json!({"metadata": {"name": "go"}, "spec": spec});
        assert_eq!(as_new(manifest.clone()), manifest);
        assert_eq!(as_new(json!({"metadata": "go"})), json!({"metadata": "go"}));
    }
}
