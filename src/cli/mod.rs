//! The command line: the subcommands of `ganglion` and their options. Each command that connects to a cluster has a
//! file below.

pub mod approve;
pub mod check;
mod check_cluster;
mod cluster;
pub mod completion;
pub mod drain;
pub mod explain;
mod explain_labels;
mod explain_placement;
mod file;
pub mod import;
mod manifests;
mod objects;
mod output;
pub mod plan;
mod progress;
pub mod push;
pub mod remove;
pub mod replay;
mod signals;
pub mod timeline;
pub mod top;
mod width;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use jiff::SignedDuration;
use thiserror::Error;

use crate::operator;
use crate::operator::settings::{self, Settings};
use crate::operator::telemetry::Format;
use cluster::ClusterOptions;
use ganglion_core::duration;
use ganglion_outbound::otlp::OtlpSettings;

/// Name of the program as a kubectl plugin.
const PLUGIN: &str = "kubectl-ganglion";

/// A Kubernetes operator that changes workloads on request and by closed loops.
#[derive(Parser, Debug)]
#[command(name = "ganglion", version, about)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Parses the command line of this process. As a kubectl plugin (`kubectl-ganglion`), the program uses the plugin's
    /// name in its help.
    pub fn read() -> Self {
        let command = Self::command();
        let command = if is_plugin() { command.name(PLUGIN).bin_name("kubectl ganglion") } else { command };
        Self::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
    }
}

/// Whether this process was called as a kubectl plugin.
fn is_plugin() -> bool {
    let called = std::env::args_os().next().map(PathBuf::from);
    called.as_deref().and_then(Path::file_stem).is_some_and(|name| name == PLUGIN)
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Runs the operator.
    Run(RunArgs),
    /// Writes the CRD manifests, one file per kind.
    Crds(CrdsArgs),
    /// Writes the manifest of the admission policies.
    Policies(PoliciesArgs),
    /// Pushes a sample to a loop.
    Push(push::PushArgs),
    /// Explains what a loop, an action, a pool, a policy or a node does, and why.
    Explain(explain::ExplainArgs),
    /// Shows what happened to a loop, an action or a pool, on one time axis: values, decisions, steps and events.
    Timeline(timeline::TimelineArgs),
    /// Shows a live view of actions, loops, pools, nodes and policies, with keys to explain, suspend, resume, abort and
    /// approve; or a plain table of them.
    Top(top::TopArgs),
    /// Shows what WorkloadActions would do before they are applied: which pods would move where, and why. Changes
    /// nothing.
    Plan(plan::PlanArgs),
    /// Drains nodes: cordons them and moves their replicas; each new pod is Ready before the old one is evicted.
    Drain(drain::DrainArgs),
    /// Checks loops before they are applied: whether they would work, and what they would do now. With `cluster`,
    /// checks an installation.
    Check(check::CheckArgs),
    /// Shows what a loop would have decided on the values of the last days, from Prometheus or a CSV file; or two loops
    /// side by side. Changes nothing.
    Replay(replay::ReplayArgs),
    /// Prints a ClosedLoop that does the same as a HorizontalPodAutoscaler or a ScaledObject, and the differences; or
    /// hands over to it, or back.
    Import(import::ImportArgs),
    /// Shows the proposal of a loop with `mode: Approve`, or approves it.
    Approve(approve::ApproveArgs),
    /// Removes everything of the operator from the cluster but the installation itself: ends actions, deletes all
    /// objects of its kinds, and takes its marks off pods, workloads and nodes.
    Remove(remove::RemoveArgs),
    /// Writes the script by which a shell, or kubectl, completes the commands, with names from the cluster.
    Completion(completion::CompletionArgs),
}

/// Options of `run`.
#[derive(Args, Debug, Clone)]
pub struct RunArgs {
    #[command(flatten)]
    pub cluster: ClusterOptions,
    /// Address and port of the HTTP server for health and metrics.
    #[arg(long, env = "GANGLION_BIND", value_name = "ADDR", default_value = "0.0.0.0:8080")]
    pub bind: SocketAddr,
    /// Address and port for kube-scheduler's requests for filters and scores (scheduler extender). Default: the
    /// extender is not served.
    #[arg(long, env = "GANGLION_EXTENDER_BIND", value_name = "ADDR")]
    pub extender_bind: Option<SocketAddr>,
    /// Namespace of the lease. Default: the client's own namespace.
    #[arg(long, env = "GANGLION_LEASE_NAMESPACE", value_name = "NS")]
    pub lease_namespace: Option<String>,
    /// Watch only this namespace; may be repeated or a comma-separated list. The pods of other namespaces still count
    /// as load of their nodes; this requires list and watch on pods and nodes by a ClusterRole. Default: all
    /// namespaces.
    #[arg(long = "watch-namespace", env = "GANGLION_WATCH_NAMESPACE", value_name = "NS", value_delimiter = ',')]
    pub watch_namespaces: Vec<String>,
    /// Settings file, YAML. Default: no file; all settings have their defaults.
    #[arg(long, env = "GANGLION_SETTINGS", value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// Format of log lines.
    #[arg(long, env = "GANGLION_LOG", value_name = "FORMAT", default_value = "text")]
    pub log: Format,
    /// Log filter, in the syntax of RUST_LOG.
    #[arg(long, env = "GANGLION_LOG_FILTER", value_name = "FILTER", default_value = crate::operator::telemetry::DEFAULT_FILTER)]
    pub log_filter: String,
    /// Identity of this replica in the lease; it must be unique. Default: name and uid of the pod (POD_NAME, POD_UID),
    /// or else the host name and a random suffix.
    #[arg(long, env = "GANGLION_IDENTITY", value_name = "NAME")]
    pub identity: Option<String>,
}

/// Options of `crds`.
#[derive(Args, Debug)]
pub struct CrdsArgs {
    /// Directory for the manifests.
    #[arg(long, default_value = "crds", value_name = "DIR")]
    pub dir: PathBuf,
    /// Write nothing, and fail if a file is not up to date.
    #[arg(long)]
    pub check: bool,
}

/// Options of `policies`.
#[derive(Args, Debug)]
pub struct PoliciesArgs {
    /// File for the manifest.
    #[arg(long, default_value = "kustomize/base/admission.yaml", value_name = "FILE")]
    pub file: PathBuf,
    /// Write nothing, and fail if the file is not up to date.
    #[arg(long)]
    pub check: bool,
}

/// Error of a command.
#[derive(Debug, Error)]
pub enum Error {
    #[error(transparent)]
    Settings(#[from] settings::Error),
    #[error(
        "--watch-namespace: {0} is the operator's own namespace, and whoever may create pods there can run them as the \
         operator's account; install the operator in a namespace without tenants"
    )]
    OwnNamespace(String),
    #[error("logging cannot be started")]
    Telemetry(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(transparent)]
    App(#[from] operator::Error),
    #[error(transparent)]
    Push(#[from] push::Error),
    #[error(transparent)]
    Object(#[from] objects::Error),
    #[error(transparent)]
    Approve(#[from] approve::Error),
    #[error(transparent)]
    Import(#[from] import::Error),
    #[error(transparent)]
    Check(#[from] check::Error),
    #[error(transparent)]
    Plan(#[from] plan::Error),
    #[error(transparent)]
    Drain(#[from] drain::Error),
    #[error(transparent)]
    Remove(#[from] remove::Error),
    #[error(transparent)]
    Replay(#[from] replay::Error),
    #[error(transparent)]
    Timeline(#[from] timeline::Error),
    #[error(transparent)]
    Top(#[from] top::Error),
    #[error("cannot read or write {path}")]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("a manifest cannot be serialized as YAML")]
    Render(#[from] serde_saphyr::ser::Error),
    #[error("out of date: {}; run `ganglion crds` or `ganglion policies`", .0.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "))]
    Stale(Vec<PathBuf>),
}

/// Runs the operator until SIGTERM or SIGINT.
pub async fn run(run: RunArgs) -> Result<(), Error> {
    crate::operator::telemetry::start(run.log, &run.log_filter).map_err(Error::Telemetry)?;
    let settings = run.settings.as_deref().map(Settings::load).transpose()?.unwrap_or_default();
    let pod = pod_identity();
    // A manifest may set the variable to the empty string.
    let watch_namespaces = run.watch_namespaces.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>();
    if pod.is_some() {
        refuse_own_namespace(run.lease_namespace.as_deref(), &watch_namespaces)?;
    }
    let options = operator::RunOptions {
        access: run.cluster.into(),
        bind: run.bind,
        extender_bind: run.extender_bind,
        lease_namespace: run.lease_namespace,
        watch_namespaces,
        identity: run.identity.or(pod).unwrap_or_else(host_identity),
        traces: OtlpSettings::read(|name| std::env::var(name).ok()).map_err(operator::Error::from)?,
    };
    Ok(operator::run(options, settings).await?)
}

/// Refuses tenants in the namespace of the operator's pods. A process outside the cluster has no such namespace.
fn refuse_own_namespace(own: Option<&str>, watched: &[String]) -> Result<(), Error> {
    match own.filter(|own| watched.iter().any(|name| name == own)) {
        Some(own) => Err(Error::OwnNamespace(own.to_owned())),
        None => Ok(()),
    }
}

/// Identity of a process in a pod: the pod's name and uid, so that a restarted container acquires its own lease at
/// once; the previous process has certainly ended.
fn pod_identity() -> Option<String> {
    match (std::env::var("POD_NAME"), std::env::var("POD_UID")) {
        (Ok(name), Ok(uid)) if !name.is_empty() && !uid.is_empty() => Some(format!("{name}_{uid}")),
        _ => None,
    }
}

/// Identity of a process elsewhere: the host name and a random suffix, because several processes may run on one host.
fn host_identity() -> String {
    let host = hostname::get().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{host}_{:016x}", fastrand::u64(..))
}

/// Parses the duration of an option: 90s, 10m, 1h.
fn parse_duration(text: &str) -> Result<SignedDuration, String> {
    duration::parse(text).map_err(|error| error.to_string())
}

/// File name and text of each CRD manifest.
pub fn manifests() -> Result<Vec<(String, String)>, Error> {
    let header = "# Generated by `ganglion crds` from the types in src/api. Do not edit.\n";
    ganglion_api::all()
        .iter()
        .map(|crd| {
            let name = crd.metadata.name.clone().unwrap_or_default();
            // A JSON value sorts its members and omits unset fields.
            let value = serde_json::to_value(crd).unwrap_or_default();
            Ok((format!("{name}.yaml"), format!("{header}{}", serde_saphyr::to_string(&value)?)))
        })
        .collect()
}

/// Writes or checks the CRD manifests.
pub fn crds(crds: &CrdsArgs) -> Result<(), Error> {
    let mut stale = Vec::new();
    for (name, text) in manifests()? {
        let path = crds.dir.join(name);
        if crds.check {
            if std::fs::read_to_string(&path).ok().as_deref() != Some(&text) {
                stale.push(path);
            }
        } else {
            write(&path, &text)?;
        }
    }
    if stale.is_empty() { Ok(()) } else { Err(Error::Stale(stale)) }
}

/// Writes or checks the manifest of the admission policies.
pub fn policies(policies: &PoliciesArgs) -> Result<(), Error> {
    let (path, text) = (&policies.file, operator::admission::manifest::text()?);
    if !policies.check {
        return write(path, &text);
    }
    let is_current = std::fs::read_to_string(path).is_ok_and(|there| there == text);
    if is_current { Ok(()) } else { Err(Error::Stale(vec![path.clone()])) }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    let file = |source| Error::File { path: path.to_path_buf(), source };
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(file)?;
    }
    std::fs::write(path, text).map_err(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_option_of_run_can_be_given_by_environment() {
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        for option in run.get_arguments().filter(|option| option.get_id() != "help") {
            let variable = option.get_env().unwrap_or_default().to_string_lossy().into_owned();
            assert!(variable.starts_with("GANGLION_"), "{option}");
        }
    }

    #[test]
    fn namespaces_are_repeated_or_listed() {
        let args = ["ganglion", "run", "--watch-namespace", "a,b", "--watch-namespace", "c"];
        let Command::Run(run) = Cli::try_parse_from(args).unwrap().command else { panic!("not run") };
        assert_eq!(run.watch_namespaces, ["a", "b", "c"]);
    }

    #[test]
    fn manifests_are_written_checked_and_found_stale() {
        let dir = tempfile::tempdir().unwrap();
        let options = |check| CrdsArgs { dir: dir.path().to_path_buf(), check };
        assert!(matches!(crds(&options(true)), Err(Error::Stale(paths)) if paths.len() == ganglion_api::all().len()));
        crds(&options(false)).unwrap();
        crds(&options(true)).unwrap();
        let one = dir.path().join("workloadactions.ganglion.dev.yaml");
        std::fs::write(&one, "changed").unwrap();
        let error = crds(&options(true)).unwrap_err().to_string();
        assert!(error.contains("workloadactions.ganglion.dev.yaml") && error.contains("ganglion crds"), "{error}");
    }

    #[test]
    fn two_processes_of_one_host_have_two_identities() {
        assert_ne!(host_identity(), host_identity());
    }

    #[test]
    fn the_operators_own_namespace_holds_no_tenants() {
        let watched = ["shop", "ops"].map(str::to_owned);
        for own in [None, Some("ganglion-system")] {
            assert!(refuse_own_namespace(own, &watched).is_ok(), "{own:?}");
        }
        let error = refuse_own_namespace(Some("ops"), &watched).unwrap_err().to_string();
        assert!(error.contains("ops is the operator's own namespace"), "{error}");
    }
}
