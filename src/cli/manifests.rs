//! Reads manifests for commands, from files or standard input.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;
use thiserror::Error;

/// File name that means standard input.
const STDIN: &str = "-";

/// Error: manifests cannot be used.
#[derive(Debug, Error)]
pub enum Error {
    #[error("cannot read {path}")]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} is not valid YAML: {problem}")]
    Parse { path: PathBuf, problem: String },
    #[error("there is no {kind} in {path}")]
    None { kind: &'static str, path: PathBuf },
}

/// Returns the documents of this kind in a file, if they belong to our API group.
pub fn of_kind(kind: &'static str, path: &Path) -> Result<Vec<Value>, Error> {
    let file = |source| Error::File { path: path.to_path_buf(), source };
    let mut text = String::new();
    if path == Path::new(STDIN) {
        std::io::stdin().read_to_string(&mut text).map_err(file)?;
    } else {
        text = std::fs::read_to_string(path).map_err(file)?;
    }
    let parsed: Result<Vec<Value>, _> = serde_saphyr::from_multiple(&text);
    let mut found = parsed.map_err(|error| Error::Parse { path: path.to_path_buf(), problem: error.to_string() })?;
    found.retain(|one| one["kind"] == kind && one["apiVersion"].as_str().is_some_and(is_ours));
    if found.is_empty() { Err(Error::None { kind, path: path.to_path_buf() }) } else { Ok(found) }
}

/// Returns the documents of this kind in several files.
pub fn all_of_kind(kind: &'static str, paths: &[PathBuf]) -> Result<Vec<Value>, Error> {
    let mut all = Vec::new();
    for path in paths {
        all.extend(of_kind(kind, path)?);
    }
    Ok(all)
}

fn is_ours(api_version: &str) -> bool {
    api_version.starts_with("ganglion.dev/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_found_among_other_documents() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("all.yaml");
        let one = "apiVersion: ganglion.dev/v1alpha1\nkind: ClosedLoop\nmetadata: {name: web}\n";
        std::fs::write(&path, format!("kind: ServiceAccount\n---\n{one}---\n---\nkind: ClosedLoop\n")).unwrap();
        let found = of_kind("ClosedLoop", &path).unwrap();
        assert_eq!(found.iter().map(|one| one["metadata"]["name"].as_str()).collect::<Vec<_>>(), [Some("web")]);
        let none = of_kind("WorkloadAction", &path).unwrap_err().to_string();
        assert!(none.starts_with("there is no WorkloadAction in "), "{none}");
        std::fs::write(&path, "a: [").unwrap();
        assert!(matches!(of_kind("ClosedLoop", &path), Err(Error::Parse { .. })));
        assert!(matches!(of_kind("ClosedLoop", &dir.path().join("none")), Err(Error::File { .. })));
    }
}
