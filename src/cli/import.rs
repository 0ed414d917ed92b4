//! `ganglion import`: prints a loop that does the same as a HorizontalPodAutoscaler or a ScaledObject, and hands over
//! to it or back.

mod handover;
mod objects;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use jiff::SignedDuration;
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

use super::cluster::{self, ClusterOptions};
use super::output::{self, OutputFormat};
use super::parse_duration;
use super::progress::CommandProgress;
use super::signals::{INTERRUPTED, SignalsError, interrupts, nothing_changed};
use crate::cli::objects as cluster_objects;
use crate::operator;
use ganglion_api::closed_loop::TargetRef;
use ganglion_loops_plan::execution::ownership::{TargetObject, replicas_advice};
use ganglion_loops_plan::import::{
    HandoverRefusal, ImportOptions, ImportRefusal, ImportedKind, ImportedLoop, ScaledObjectInput, convert_hpa,
    convert_scaled_object,
};
use handover::AutoscalerHandover;
use objects::ImportObjects;

/// Exit code: the timeout has expired.
const TIMED_OUT: u8 = 4;

/// Options of `import`.
#[derive(Args, Debug, Clone)]
pub struct ImportArgs {
    #[command(subcommand)]
    what: ImportedObject,
}

/// The object to import.
#[derive(Subcommand, Debug, Clone)]
enum ImportedObject {
    /// Imports a HorizontalPodAutoscaler.
    #[command(alias = "horizontalpodautoscaler")]
    Hpa(ImportedName),
    /// Imports a ScaledObject of KEDA.
    #[command(alias = "so")]
    Scaledobject(ImportedName),
}

/// The object, and what to do with it.
#[derive(Args, Debug, Clone)]
#[command(
    after_help = "Without --apply and --undo, nothing is changed: the manifest is written to standard output, and each \
    difference as a comment.\n\n\
    --apply creates the loop in mode DryRun, waits until it has data and may act, switches the autoscaler off and starts the \
    loop. --undo pauses the loop, switches the autoscaler on as it was, and deletes the loop. Both continue where an \
    interrupted one stopped.\n\n\
    Exit code: 0 done; 1 error, or a loop cannot do the same; 2 invalid arguments; 4 timeout; 130 interrupted."
)]
struct ImportedName {
    /// Name of the autoscaler.
    #[arg(value_name = "NAME")]
    name: String,
    /// Namespace of the autoscaler. Default: the namespace of the context.
    #[arg(short, long, value_name = "NS")]
    namespace: Option<String>,
    /// Name of the loop. Default: the name of the autoscaler.
    #[arg(id = "loop_name", long = "name", value_name = "LOOP")]
    loop_name: Option<String>,
    /// Service account of the loop; it needs the rights to read the metrics and to scale the target. Default:
    /// `default`.
    #[arg(long, value_name = "ACCOUNT")]
    service_account: Option<String>,
    /// Hand over: create the loop, switch the autoscaler off, and start the loop.
    #[arg(long, conflicts_with = "undo")]
    apply: bool,
    /// Hand back: pause the loop, switch the autoscaler on, and delete the loop.
    #[arg(long)]
    undo: bool,
    /// Maximum time to wait with --apply and --undo, such as 90s or 10m.
    #[arg(long, value_name = "DURATION", default_value = "3m", value_parser = parse_duration)]
    timeout: SignedDuration,
    /// Output format; json and yaml write the manifest together with the differences as data.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: OutputFormat,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Error: nothing was imported, or a handover did not end.
#[derive(Debug, Error)]
pub enum Error {
    #[error("there is no {kind} {name} in namespace {namespace}; `kubectl get {argument} -A` lists all of them")]
    NotFound { kind: &'static str, argument: &'static str, name: String, namespace: String },
    #[error(transparent)]
    Refused(#[from] ImportRefusal),
    #[error(transparent)]
    Handover(#[from] HandoverRefusal),
    #[error("nothing was changed: the loop would not act, since {0}")]
    ReplicasOwned(String),
    #[error(transparent)]
    Object(#[from] cluster_objects::Error),
    #[error(transparent)]
    Output(#[from] output::Error),
    #[error(transparent)]
    App(#[from] operator::Error),
    #[error(transparent)]
    Signals(#[from] SignalsError),
}

/// Result of a conversion, for programs.
#[derive(Serialize)]
struct ImportReport {
    manifest: Value,
    differences: Vec<String>,
    warnings: Vec<String>,
}

/// End of a handover, for programs.
#[derive(Serialize)]
struct HandoverReport {
    done: Vec<String>,
    waits_for: Option<String>,
}

/// Prints the loop, or hands over to it or back.
pub async fn import(args: ImportArgs) -> Result<ExitCode, Error> {
    let (kind, args) = match args.what {
        ImportedObject::Hpa(args) => (ImportedKind::HorizontalPodAutoscaler, args),
        ImportedObject::Scaledobject(args) => (ImportedKind::ScaledObject, args),
    };
    let (client, namespace) = cluster::open(args.cluster.clone(), args.namespace.clone()).await?;
    let objects = ImportObjects { client, namespace, kind, name: args.name.clone() };
    let (progress, mut interrupted) = (CommandProgress::new(args.output), interrupts()?);
    progress.set("reads the autoscaler");
    let Some(seen) = progress.follow(&mut interrupted, objects.autoscaler()).await.transpose()? else {
        return Ok(nothing_changed());
    };
    let claimed = seen.scaler(kind).claim()?.map(|claim| claim.by);
    // A handover goes on with the loop with which it began.
    let by_claim = claimed.filter(|_| args.undo);
    let name = args.loop_name.clone().or(by_claim).unwrap_or_else(|| args.name.clone());
    if args.undo {
        let handover = AutoscalerHandover {
            objects: &objects,
            name: &name,
            import: None,
            progress: &progress,
            format: args.output,
        };
        return end(&args, &handover, &mut interrupted).await;
    }
    let options = ImportOptions { service_account: args.service_account.clone() };
    let original = seen.scaler(kind).restored()?;
    let converted = match kind {
        ImportedKind::HorizontalPodAutoscaler => convert_hpa(&original, &options),
        ImportedKind::ScaledObject => {
            let now = jiff::Timestamp::now();
            convert_scaled_object(ScaledObjectInput { object: &original, hpa: seen.hpa.as_ref(), now }, &options)
        }
    };
    // A handover that has begun has its loop, which users may have changed.
    let has_loop = args.apply && objects.find_loop(&name).await?.is_some();
    let mut import = match converted {
        Ok(import) => Some(import),
        Err(_) if has_loop => None,
        Err(refusal) => return Err(refusal.into()),
    };
    if let Some(import) = &mut import {
        let advice = owned_replicas(&objects, &import.spec.target).await?;
        match advice {
            Some(advice) if args.apply => return Err(Error::ReplicasOwned(advice)),
            advice => import.warnings.extend(advice),
        }
    }
    if args.apply {
        let import = import.as_ref();
        let handover =
            AutoscalerHandover { objects: &objects, name: &name, import, progress: &progress, format: args.output };
        return end(&args, &handover, &mut interrupted).await;
    }
    let Some(import) = import else { return Ok(ExitCode::SUCCESS) };
    let manifest = handover::manifest(&name, &objects.namespace, &import.manifest);
    print!("{}", printed(&args, &manifest, import)?);
    Ok(ExitCode::SUCCESS)
}

/// The manifest with its differences.
fn printed(args: &ImportedName, manifest: &Value, import: ImportedLoop) -> Result<String, Error> {
    let ImportedLoop { differences, warnings, .. } = import;
    if args.output != OutputFormat::Text {
        let report = ImportReport { manifest: manifest.clone(), differences, warnings };
        return Ok(args.output.of(&report, String::new)?);
    }
    let comments = |title: &str, lines: &[String]| {
        let lines: String = lines.iter().map(|line| format!("#   - {}\n", line.replace('\n', " "))).collect();
        if lines.is_empty() { String::new() } else { format!("# {title}\n{lines}") }
    };
    let warned = comments("To do first:", &warnings);
    let differs = comments("Differs from the autoscaler:", &differences);
    Ok(warned + &differs + &OutputFormat::Yaml.of(manifest, String::new)?)
}

/// Performs a handover, and describes its end.
async fn end(
    args: &ImportedName,
    handover: &AutoscalerHandover<'_>,
    interrupted: &mut super::signals::Interrupts,
) -> Result<ExitCode, Error> {
    let limit = std::time::Duration::try_from(args.timeout).unwrap_or_default();
    let mut done = Vec::new();
    let work = handover.run(args.undo, limit, &mut done);
    let Some(waits_for) = handover.progress.follow(interrupted, work).await else {
        eprintln!(
            "Interrupted. Run the same command again to continue, or the other one of --apply and --undo to go back."
        );
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let waits_for = waits_for?;
    if args.output != OutputFormat::Text {
        print!("{}", args.output.of(&HandoverReport { done, waits_for: waits_for.clone() }, String::new)?);
    }
    let Some(waits_for) = waits_for else { return Ok(ExitCode::SUCCESS) };
    eprintln!(
        "Timeout: it waits for {waits_for}. Solve that and run the same command again to continue, or the other one of --apply \
         and --undo to go back."
    );
    Ok(ExitCode::from(TIMED_OUT))
}

/// Advice on the handover of `spec.replicas`, if somebody else applies it to this target.
async fn owned_replicas(objects: &ImportObjects, target: &TargetRef) -> Result<Option<String>, Error> {
    let object = objects.target(target).await?;
    let seen = |object| TargetObject { target, namespace: &objects.namespace, object };
    Ok(object.as_ref().and_then(|object| replicas_advice(seen(object))))
}
