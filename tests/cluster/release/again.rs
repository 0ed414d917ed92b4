//! Repeated runs of `hack/release`, and a run that cannot reach the package registry.

use std::fs;
use std::os::unix::fs::MetadataExt;

use anyhow::{bail, ensure};
use tempfile::TempDir;
use testkit::process::run;
use testkit::root;
use tokio::process::Command;

use super::{check, directory, output};

#[test]
fn a_second_release_has_the_same_files_and_may_replace_those_of_an_earlier_one() {
    check(async {
        let home = TempDir::new()?;
        let out = home.path().join("files");
        let options = ["--out", &out.display().to_string()];
        let first = fs::read_to_string(directory().join("SHA256SUMS"))?;
        output("hack/release", &options, &root()).await?;
        let second = fs::read_to_string(out.join("SHA256SUMS"))?;
        ensure!(second == first, "first\n{first}second\n{second}");
        output("hack/release", &options, &root()).await?;
        ensure!(fs::read_dir(home.path())?.count() == 1, "a temporary directory is left");
        // A file of somebody else is not removed.
        let own = out.join("notes.txt");
        fs::write(&own, "text")?;
        let error = output("hack/release", &options, &root()).await.unwrap_or_else(|error| error.to_string());
        ensure!(error.contains("notes.txt is not a file of an earlier release") && own.exists(), "{error}");
        Ok(())
    });
}

#[test]
fn without_a_network_the_error_names_the_package_registry() {
    check(async {
        let home = TempDir::new()?;
        let mut command = Command::new("unshare");
        if fs::metadata("/proc/self")?.uid() != 0 {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--net", "hack/release.d/root", "/bin/true"]).arg(home.path().join("root"));
        command.current_dir(root()).env("XDG_CACHE_HOME", home.path());
        let error = match run(command, None).await {
            Ok(said) => bail!("it did not fail: {said}"),
            Err(error) => error.to_string(),
        };
        ensure!(error.contains("is the package registry reachable?"), "{error}");
        Ok(())
    });
}
