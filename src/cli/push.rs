//! `ganglion push`: sends a sample to a loop. For scripts and experiments.
//!
//! Writes `spec.sample` of the loop's Monitoring by server-side apply, and nothing else. Never creates a Monitoring: a
//! loop cannot use a Monitoring that the operator did not create.

use std::collections::BTreeMap;
use std::io::BufRead;

use clap::Args;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::Status;
use kube::{Api, Client};
use serde_json::json;
use thiserror::Error;

use super::cluster::{self, ClusterOptions};
use crate::operator;
use ganglion_api::monitoring::{Monitoring, Sample};
use ganglion_core::quantity::{self, QuantityError};
use ganglion_core::words::quoted;
use ganglion_runtime::error::failure;

/// Argument that reads samples from standard input.
const STDIN: &str = "-";

/// Options of `push`.
#[derive(Args, Debug, Clone)]
pub struct PushArgs {
    /// Name of the loop.
    #[arg(value_name = "LOOP")]
    name: String,
    /// Measured values by metric name, or by the `key` of the metric's source, such as `cpu=2 memory=40`. A single `-`
    /// reads samples from standard input, one per line, and pushes each when it is read.
    #[arg(value_name = "KEY=NUMBER", required = true)]
    values: Vec<String>,
    /// Namespace of the loop. Default: the namespace of the context.
    #[arg(short, long, value_name = "NS")]
    namespace: Option<String>,
    /// Time of the measurement, RFC 3339, such as 2026-11-21T10:00:00Z. Default: now.
    #[arg(long, value_name = "TIME")]
    time: Option<Timestamp>,
    /// Field manager of the write. Each sender should have its own.
    #[arg(long, value_name = "NAME", default_value = "ganglion-push")]
    field_manager: String,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Error: a sample was not pushed.
#[derive(Debug, Error)]
pub enum Error {
    #[error("{} is not a value: write NAME=NUMBER, such as cpu=2", quoted(.0))]
    NoValue(String),
    #[error("{key} is not a number: {problem}")]
    NoNumber { key: String, problem: QuantityError },
    #[error("{0} is given twice")]
    Twice(String),
    #[error(
        "- cannot be combined with values or --time: each line of standard input is a sample with the current time"
    )]
    MoreThanStdin,
    #[error("line {line} of standard input, after {} pushed", samples(*pushed))]
    Line {
        line: usize,
        pushed: usize,
        #[source]
        source: Box<Error>,
    },
    #[error("standard input cannot be read")]
    Stdin(#[source] std::io::Error),
    #[error(
        "there is no Monitoring {name} in namespace {namespace}; the operator creates it for the ClosedLoop {name}: `kubectl \
         get loop -A` lists all loops, and -n selects another namespace"
    )]
    NoMonitoring { name: String, namespace: String },
    #[error(
        "you are not allowed to push to loop {name} in namespace {namespace}: you need the verb patch on \
         monitorings.ganglion.dev with resourceNames [{name}] there, as in samples/sender.yaml ({message})"
    )]
    NotAllowed { name: String, namespace: String, message: String },
    #[error(
        "the cluster does not have the kind Monitoring: install the operator's CRDs with `kubectl apply --server-side -k crds`"
    )]
    NoKind,
    #[error("the API server did not accept the sample: {}", failure(.0))]
    Api(Box<kube::Error>),
    #[error(transparent)]
    App(#[from] operator::Error),
}

fn samples(count: usize) -> String {
    if count == 1 { "1 sample".to_owned() } else { format!("{count} samples") }
}

/// Pushes one sample, or one for each line of standard input, and confirms each on standard output.
pub async fn push(push: PushArgs) -> Result<(), Error> {
    let lines = push.values.iter().any(|value| value == STDIN);
    if lines && (push.values.len() > 1 || push.time.is_some()) {
        return Err(Error::MoreThanStdin);
    }
    // Parse before the first request to the cluster.
    let values = if lines { BTreeMap::new() } else { parse(push.values.iter().map(String::as_str))? };
    let (client, namespace) = cluster::open(push.cluster, push.namespace).await?;
    let mut sender = Sender::new(&client, push.name, namespace, push.field_manager);
    sender.refresh().await?;
    if !lines {
        return sender.send(push.time.unwrap_or_else(Timestamp::now), values).await;
    }
    let mut pushed = 0;
    for (index, line) in std::io::stdin().lock().lines().enumerate() {
        let line = line.map_err(Error::Stdin)?;
        if line.trim().is_empty() {
            continue;
        }
        let sent = match parse(line.split_whitespace()) {
            Ok(values) => sender.send(Timestamp::now(), values).await,
            Err(error) => Err(error),
        };
        sent.map_err(|error| Error::Line { line: index + 1, pushed, source: Box::new(error) })?;
        pushed += 1;
    }
    Ok(())
}

/// Parses `cpu=2 memory=40`. Rejects text that is not a number here, so that the user sees it at once.
fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Result<BTreeMap<String, String>, Error> {
    let mut values = BTreeMap::new();
    for word in words {
        let (key, value) = word.split_once('=').ok_or_else(|| Error::NoValue(word.to_owned()))?;
        if key.is_empty() {
            return Err(Error::NoValue(word.to_owned()));
        }
        quantity::number(value).map_err(|problem| Error::NoNumber { key: key.to_owned(), problem })?;
        if values.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(Error::Twice(key.to_owned()));
        }
    }
    Ok(values)
}

/// Pushes samples to one loop.
struct Sender {
    monitorings: Api<Monitoring>,
    name: String,
    namespace: String,
    manager: String,
    /// uid of the Monitoring, if the user can read it. An apply with a uid cannot create an object.
    uid: Option<String>,
}

impl Sender {
    fn new(client: &Client, name: String, namespace: String, manager: String) -> Self {
        Self { monitorings: Api::namespaced(client.clone(), &namespace), name, namespace, manager, uid: None }
    }

    /// Checks that the Monitoring exists. Without the permission to read it, the check is skipped: the API server then
    /// rejects the apply, because such a sender cannot create a Monitoring either.
    async fn refresh(&mut self) -> Result<(), Error> {
        match self.monitorings.get_metadata(&self.name).await {
            Ok(found) => self.uid = found.metadata.uid,
            Err(kube::Error::Api(status)) if status.is_forbidden() => {}
            Err(error) => return Err(self.explained(error)),
        }
        Ok(())
    }

    async fn send(&self, time: Timestamp, values: BTreeMap<String, String>) -> Result<(), Error> {
        let words: Vec<String> = values.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let time = Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time).to_string();
        let sample = Sample { time, values };
        let body = json!({
            "apiVersion": "ganglion.dev/v1alpha1",
            "kind": "Monitoring",
            "metadata": {"name": self.name, "uid": self.uid},
            "spec": {"sample": sample},
        });
        let params = PatchParams::apply(&self.manager).force();
        let pushed = self.monitorings.patch(&self.name, &params, &Patch::Apply(body)).await;
        pushed.map_err(|error| self.explained(error))?;
        println!("pushed to {}/{} at {}: {}", self.namespace, self.name, sample.time, words.join(" "));
        Ok(())
    }

    /// Converts an error of the API server to an error with advice.
    fn explained(&self, error: kube::Error) -> Error {
        let kube::Error::Api(status) = error else { return Error::Api(Box::new(error)) };
        let (name, namespace) = (self.name.clone(), self.namespace.clone());
        let nobody = Error::NoMonitoring { name: name.clone(), namespace: namespace.clone() };
        match status.code {
            404 if !names_an_object(&status) => Error::NoKind,
            // The Monitoring with that uid no longer exists.
            404 | 409 => nobody,
            403 if status.message.contains("cannot create resource") => nobody,
            403 => Error::NotAllowed { name, namespace, message: status.message.clone() },
            _ => Error::Api(Box::new(kube::Error::Api(status))),
        }
    }
}

/// Whether the object was not found, rather than its kind.
fn names_an_object(status: &Status) -> bool {
    status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<BTreeMap<String, String>, String> {
        parse(text.split_whitespace()).map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_read_as_they_were_written() {
        let values = read("cpu=2 memory=1.5Gi delta=-3").unwrap();
        let pairs: Vec<(&str, &str)> = values.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("cpu", "2"), ("delta", "-3"), ("memory", "1.5Gi")]);
    }

    #[test]
    fn what_cannot_be_pushed_is_named() {
        for (text, words) in [
            ("cpu", "\"cpu\" is not a value: write NAME=NUMBER"),
            ("=2", "\"=2\" is not a value"),
            ("cpu=", "cpu is not a number: an empty quantity"),
            ("cpu=busy", "cpu is not a number: \"busy\""),
            ("cpu=NaN", "cpu is not a number"),
            ("cpu=2 cpu=3", "cpu is given twice"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
