//! Former versions of the operator, as `hack/releases` lists them: their program and their manifests.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::operator::program;
use crate::plane::install;
use crate::process::run;
use crate::root;

/// Name of the version of this tree.
pub const CURRENT: &str = "current";

/// A version of the operator.
#[derive(Clone, Debug)]
pub struct OperatorVersion {
    /// Name in `hack/releases`, or [`CURRENT`].
    pub name: String,
    /// The program `ganglion`.
    pub program: PathBuf,
    /// Its directory `kustomize/base`.
    pub base: PathBuf,
}

impl OperatorVersion {
    /// The version of this tree.
    pub fn current() -> Result<Self> {
        Ok(Self { name: CURRENT.to_owned(), program: program()?, base: install::base() })
    }

    /// All versions in `hack/releases`. `hack/former` builds those that are not built yet.
    pub async fn former() -> Result<Vec<Self>> {
        let file = root().join("hack/releases");
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let mut all = Vec::new();
        for (commit, name) in entries(&text)? {
            let mut command = Command::new(root().join("hack/former"));
            command.arg(commit);
            let printed = run(command, None).await?;
            let directory = Path::new(printed.trim());
            let (program, base) = (directory.join("ganglion"), directory.join("kustomize/base"));
            all.push(Self { name: name.to_owned(), program, base });
        }
        Ok(all)
    }
}

/// Commits and names in the text of `hack/releases`. Each line has a commit, a name, and a description.
fn entries(text: &str) -> Result<Vec<(&str, &str)>> {
    let mut all = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let (Some(commit), Some(name), Some(_)) = (words.next(), words.next(), words.next()) else {
            anyhow::bail!("hack/releases: this line has no commit, name and description: {line}");
        };
        ensure!(commit.chars().all(|digit| digit.is_ascii_hexdigit()), "hack/releases: {commit} is no commit");
        all.push((commit, name));
    }
    ensure!(!all.is_empty(), "hack/releases lists no version");
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_version() {
        let text = "# words\n\n0a1b 0.1.0 the first release\n2c3d 0.2.0 the second one\n";
        assert_eq!(entries(text).unwrap(), [("0a1b", "0.1.0"), ("2c3d", "0.2.0")]);
    }

    #[test]
    fn a_line_that_names_no_version_is_an_error() {
        for text in ["", "0a1b 0.1.0", "main 0.1.0 the first release"] {
            assert!(entries(text).is_err(), "{text}");
        }
    }
}
