//! The files of `hack/release`, and their use. `hack/test release` makes them and runs these stories.
//!
//! `container`: the program of the image, on a control plane with `install.yaml`. `image`: the unpacked image. `files`:
//! contents of each file. `again`: repeated and failing runs.

mod again;
mod container;
mod files;
mod image;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::process::run;
use testkit::{block_on, root};
use tokio::process::Command;

/// Runs a check of files. Panics with its error.
fn check(body: impl Future<Output = Result<()>>) {
    if let Err(error) = block_on(body) {
        panic!("{error:#}");
    }
}

/// Directory of the release.
fn directory() -> PathBuf {
    root().join("target/release-files")
}

/// The only file of the release whose name ends like this.
fn file(end: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(directory()).context("there is no release: run hack/test release")?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(end) {
            found.push(path);
        }
    }
    ensure!(found.len() == 1, "files whose names end with {end}: {found:?}");
    Ok(found.remove(0))
}

fn read_json(path: &Path) -> Result<Value> {
    Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
}

fn read_yaml(path: &Path) -> Result<Vec<Value>> {
    Ok(serde_saphyr::from_multiple(&fs::read_to_string(path)?)?)
}

/// Runs a program to its end in this directory, and returns its output.
async fn output(program: impl AsRef<OsStr>, arguments: &[&str], directory: &Path) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory);
    run(command, None).await
}
