//! KServe's own server and Triton on loopback, with the same power models: `tests/peers/kserve_models.py`, and those
//! that [`TRITON_MODELS`] configures for `tests/peers/triton_models.py`.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::process::{free_port, run};
use crate::servers::prometheus::peer;
use crate::servers::serves;
use crate::{TIMEOUT, root};

/// Models of Triton: name, type of the input, maximum number of rows in a request, and dimensions of the input.
const TRITON_MODELS: [(&str, &str, u32, &str); 3] = [
    ("power", "TYPE_FP64", 1000, "3"),
    ("narrow", "TYPE_FP32", 4, "3"),
    // Without batches, the dimensions are those of the whole input.
    ("single", "TYPE_FP32", 0, "1, 3"),
];

/// A Python program that prints what its caller needs to start Triton: its directory, the directory of the shared
/// libraries, and directory, version and prefix of Python.
const WHERE: &str = "import importlib.util as u, os, sys, sysconfig as c; \
    p = os.path.dirname(u.find_spec('pytriton').origin); \
    print(p + '/tritonserver', os.path.dirname(p), c.get_config_var('LIBDIR'), c.get_python_version(), sys.base_prefix, \
    sep='\\n')";

/// A server with the V2 protocol. Dropping it stops the process.
pub struct PowerModels {
    home: TempDir,
    port: u16,
    server: Child,
}

impl PowerModels {
    /// Starts KServe's own server.
    pub async fn kserve() -> Result<Self> {
        let (home, port) = (TempDir::new()?, free_port()?);
        let mut command = attached(&peer("kserve")?.join("python"));
        command.arg(root().join("tests/peers/kserve_models.py")).arg(port.to_string());
        Self::start(home, port, command).await
    }

    /// Starts Triton without PyTriton, which needs the very Python that its programs were linked with.
    pub async fn triton() -> Result<Self> {
        let (home, port) = (TempDir::new()?, free_port()?);
        let mut command = tokio::process::Command::new(peer("triton")?.join("python"));
        command.args(["-c", WHERE]);
        let answer = run(command, None).await?;
        let [triton, packages, libraries, version, prefix] = answer.lines().collect::<Vec<_>>()[..] else {
            anyhow::bail!("an unexpected answer of Python: {answer}");
        };
        let (triton, backend) = (Path::new(triton), home.path().join("backends/python"));
        fs::create_dir_all(&backend)?;
        let stub = "triton_python_backend_stub";
        fs::copy(triton.join("python_backend_stubs").join(version).join(stub), backend.join(stub))?;
        for entry in fs::read_dir(triton.join("backends/python"))? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                fs::copy(entry.path(), backend.join(entry.file_name()))?;
            }
        }
        for model in TRITON_MODELS {
            configure(home.path(), model)?;
        }
        let mut command = attached(&triton.join("bin/tritonserver"));
        command
            .args(["--model-repository=models", "--backend-directory=backends", "--http-address=127.0.0.1"])
            .args([&format!("--http-port={port}"), "--allow-grpc=false", "--allow-metrics=false"])
            // The backend embeds Python.
            .env("LD_LIBRARY_PATH", format!("{libraries}:{packages}/nvidia_pytriton.libs"))
            .env("PYTHONHOME", prefix)
            .env("MODEL_PACKAGES", packages);
        Self::start(home, port, command).await
    }

    async fn start(home: TempDir, port: u16, mut command: Command) -> Result<Self> {
        let log = fs::File::create(home.path().join("log"))?;
        command.current_dir(home.path()).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let server = command.spawn().context("cannot start the model server")?;
        let mut this = Self { home, port, server };
        let ready = async {
            while !serves(port, "/v2/health/ready").await {
                let ended = this.server.try_wait()?;
                ensure!(ended.is_none(), "the model server has ended");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Ok(())
        };
        let result = match tokio::time::timeout(TIMEOUT, ready).await {
            Ok(result) => result,
            Err(_) => Err(anyhow::anyhow!("the model server is not ready")),
        };
        result.with_context(|| format!("output of the model server:\n{}", this.log()))?;
        Ok(this)
    }

    /// URL of this path.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Its output.
    pub fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }
}

impl Drop for PowerModels {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A program that ends with this process.
fn attached(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// Writes a model of Triton.
fn configure(home: &Path, (name, datatype, batch, dimensions): (&str, &str, u32, &str)) -> Result<()> {
    let model = home.join("models").join(name);
    fs::create_dir_all(model.join("1"))?;
    fs::copy(root().join("tests/peers/triton_models.py"), model.join("1/model.py"))?;
    let outputs = if batch == 0 { "1, 1" } else { "1" };
    let output = |name: &str| format!("{{ name: \"{name}\" data_type: TYPE_FP32 dims: [ {outputs} ] }}");
    let text = format!(
        "backend: \"python\"\nmax_batch_size: {batch}\n\
         input [ {{ name: \"usage\" data_type: {datatype} dims: [ {dimensions} ] }} ]\n\
         output [ {}, {} ]\n",
        output("std"),
        output("power")
    );
    Ok(fs::write(model.join("config.pbtxt"), text)?)
}
