//! Performs a handover: reads, determines the next step, writes, and reads again.

use std::time::Duration;

use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::Error;
use super::objects::ImportObjects;
use crate::cli::objects as cluster_objects;
use crate::cli::output::OutputFormat;
use crate::cli::progress::CommandProgress;
use ganglion_api::closed_loop::{ClosedLoop, LoopMode};
use ganglion_api::marks;
use ganglion_loops_plan::import::handover::{HandoverStep, HandoverView, next_apply, next_undo};
use ganglion_loops_plan::import::{ImportRecord, ImportedKind, ImportedLoop};

/// Time between two looks at what is awaited.
const PAUSE: Duration = Duration::from_millis(500);

/// A handover of one autoscaler.
pub struct AutoscalerHandover<'a> {
    pub objects: &'a ImportObjects,
    /// Name of the loop.
    pub name: &'a str,
    /// The loop to create. None: it exists, or it is to be deleted.
    pub import: Option<&'a ImportedLoop>,
    pub progress: &'a CommandProgress,
    pub format: OutputFormat,
}

/// The manifest of a loop with this spec.
pub fn manifest(name: &str, namespace: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "ganglion.dev/v1alpha1",
        "kind": "ClosedLoop",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    })
}

impl AutoscalerHandover<'_> {
    /// Performs all steps. Each that changes something is added to `done`. Returns what is awaited if the time is over.
    pub async fn run(&self, undo: bool, limit: Duration, done: &mut Vec<String>) -> Result<Option<String>, Error> {
        let begun = Instant::now();
        loop {
            let seen = self.objects.autoscaler().await?;
            let (loops, execution) = (self.objects.all_loops().await?, self.objects.execution(self.name).await?);
            let view = HandoverView {
                name: self.name,
                scaler: seen.scaler(self.objects.kind),
                has_hpa: seen.hpa.is_some(),
                loops: &loops,
                execution: execution.as_ref(),
            };
            let parent = loops.iter().find(|one| one.name_any() == self.name);
            let step = if undo { next_undo(view)? } else { next_apply(view)? };
            let waits_for = match &step {
                HandoverStep::Done => {
                    let end = self.summary(undo, done.is_empty());
                    self.say(&end, done);
                    return Ok(None);
                }
                HandoverStep::Await(what) => what.clone(),
                step => match self.perform(step, parent).await {
                    Ok(line) => {
                        self.say(&line, done);
                        continue;
                    }
                    // Somebody else has changed the object meanwhile: read again.
                    Err(kube::Error::Api(status)) if status.code == 409 => "a write without a conflict".to_owned(),
                    Err(error) => return Err(cluster_objects::Error::from(error).into()),
                },
            };
            if begun.elapsed() >= limit {
                return Ok(Some(waits_for));
            }
            self.progress.set(&format!("waits for {waits_for}"));
            sleep(PAUSE).await;
        }
    }

    /// Performs a step. Returns what was done.
    async fn perform(&self, step: &HandoverStep, parent: Option<&ClosedLoop>) -> Result<String, kube::Error> {
        let (name, objects) = (self.name, self.objects);
        let scaler = format!("{} {}", objects.kind.as_str(), objects.name);
        match (step, parent) {
            (HandoverStep::CreateLoop(record), _) => {
                objects.create_loop(self.loop_to_create(record)?).await?;
                Ok(format!("created ClosedLoop {name} in mode DryRun"))
            }
            (HandoverStep::SwitchOff(object), _) => {
                objects.replace(object).await?;
                Ok(match objects.kind {
                    ImportedKind::HorizontalPodAutoscaler => format!("switched {scaler} off: selectPolicy is Disabled"),
                    ImportedKind::ScaledObject => format!("paused {scaler}"),
                })
            }
            (HandoverStep::SwitchOn(object), _) => {
                objects.replace(object).await?;
                Ok(format!("restored {scaler}"))
            }
            (HandoverStep::Rehearse, Some(parent)) => {
                objects.set_mode(parent, LoopMode::DryRun).await?;
                Ok(format!("set the mode of ClosedLoop {name} to DryRun"))
            }
            (HandoverStep::Start, Some(parent)) => {
                objects.set_mode(parent, LoopMode::Auto).await?;
                Ok(format!("started ClosedLoop {name}: its mode is Auto"))
            }
            (HandoverStep::Pause, Some(parent)) => {
                objects.set_mode(parent, LoopMode::Paused).await?;
                Ok(format!("paused ClosedLoop {name}"))
            }
            (HandoverStep::DeleteLoop, Some(parent)) => {
                objects.delete_loop(parent).await?;
                Ok(format!("deleted ClosedLoop {name}"))
            }
            // These steps are of a loop that exists, and the others are not performed.
            (HandoverStep::Rehearse | HandoverStep::Start | HandoverStep::Pause | HandoverStep::DeleteLoop, None)
            | (HandoverStep::Await(_) | HandoverStep::Done, _) => Ok(String::new()),
        }
    }

    fn loop_to_create(&self, record: &ImportRecord) -> Result<Value, kube::Error> {
        let spec = self.import.map(|import| import.manifest.clone()).unwrap_or_default();
        let mut manifest = manifest(self.name, &self.objects.namespace, &spec);
        manifest["spec"]["mode"] = json!(LoopMode::DryRun);
        let record = serde_json::to_string(record).map_err(kube::Error::SerdeError)?;
        manifest["metadata"]["annotations"] = json!({marks::IMPORTED_FROM: record});
        Ok(manifest)
    }

    fn summary(&self, undo: bool, is_nothing: bool) -> String {
        let (name, objects) = (self.name, self.objects);
        let scaler = format!("{} {}", objects.kind.as_str(), objects.name);
        match (undo, is_nothing) {
            (true, true) => format!("nothing to undo: no import has switched {scaler} off"),
            (true, false) => format!("{scaler} scales again"),
            (false, _) => format!(
                "ClosedLoop {name} scales in place of {scaler}; to go back: ganglion import {} {} --undo -n {}",
                objects.kind.argument(),
                objects.name,
                objects.namespace
            ),
        }
    }

    fn say(&self, line: &str, done: &mut Vec<String>) {
        match self.format {
            OutputFormat::Text => self.progress.print(line),
            OutputFormat::Json | OutputFormat::Yaml => self.progress.set(line),
        }
        done.push(line.to_owned());
    }
}
