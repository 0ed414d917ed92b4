//! A real Redfish service on loopback, from sushy-tools: the emulator of a machine, or a tree of documents.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::TIMEOUT;
use crate::process::{attached, free_port, signal};
use crate::servers::http::Authority;
use crate::servers::prometheus::{HASH, USER, peer};

/// The service. Dropping it stops the process.
pub struct RedfishServer {
    home: TempDir,
    port: u16,
    secure: bool,
    server: Child,
}

impl RedfishServer {
    /// Emulates a machine over TLS; only [`USER`] may read its documents.
    pub async fn emulator(authority: &Authority) -> Result<Self> {
        let home = TempDir::new()?;
        let (users, config) = (home.path().join("users"), home.path().join("config.py"));
        fs::write(&users, format!("{USER}:{HASH}\n"))?;
        let settings = [("AUTH_FILE", users.as_path()), ("STATE_DIR", home.path())];
        let settings = settings.map(|(name, path)| format!("SUSHY_EMULATOR_{name} = {path:?}\n"));
        fs::write(&config, settings.concat())?;
        let (cert, key) = authority.files();
        let mut command = program("sushy-emulator")?;
        command.args(["--fake", "--config"]).arg(config);
        command.arg("--ssl-certificate").arg(cert).arg("--ssl-key").arg(key);
        Self::start(home, command, true).await
    }

    /// Serves the documents in this folder. Each is a file `index.json` in the folder of its path below `/redfish/v1`.
    /// Without TLS: this server closes connections in a way that TLS cannot distinguish from a truncated answer.
    pub async fn documents(folder: &Path) -> Result<Self> {
        let mut command = program("sushy-static")?;
        command.arg("--mockup-files").arg(folder);
        Self::start(TempDir::new()?, command, false).await
    }

    async fn start(home: TempDir, mut command: Command, secure: bool) -> Result<Self> {
        let port = free_port()?;
        let log = fs::File::create(home.path().join("log"))?;
        command.args(["--interface", "127.0.0.1", "--port", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let server = command.spawn().context("cannot start sushy-tools")?;
        let mut this = Self { home, port, secure, server };
        tokio::time::timeout(TIMEOUT, this.listens()).await.context("sushy-tools does not listen")??;
        Ok(this)
    }

    async fn listens(&mut self) -> Result<()> {
        while TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
            if let Some(status) = self.server.try_wait()? {
                bail!("sushy-tools ended ({status}):\n{}", self.log());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.server.id()
    }

    /// Sends SIGSTOP: connections are accepted, but not answered.
    pub fn pause(&self) -> Result<()> {
        signal(&self.server, "-STOP")
    }

    /// Sends SIGCONT.
    pub fn resume(&self) -> Result<()> {
        signal(&self.server, "-CONT")
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", if self.secure { "https" } else { "http" }, self.port)
    }

    /// Its output; for a tree, the heads of all requests.
    pub fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }
}

impl Drop for RedfishServer {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A machine whose BMC reports its inlet temperature, which can be set.
pub struct HeatedMachine {
    folder: TempDir,
    server: RedfishServer,
}

impl HeatedMachine {
    /// Starts the BMC.
    pub async fn start(celsius: f64) -> Result<Self> {
        let folder = TempDir::new()?;
        let chassis = "/redfish/v1/Chassis";
        let one = format!("{chassis}/1");
        let documents = [
            ("", json!({"@odata.id": "/redfish/v1/", "Chassis": {"@odata.id": chassis}})),
            ("Chassis", json!({"@odata.id": chassis, "Members": [{"@odata.id": one}]})),
            (
                "Chassis/1",
                json!({"@odata.id": one, "ChassisType": "RackMount", "Thermal": {"@odata.id": format!("{one}/Thermal")}}),
            ),
        ];
        for (path, document) in documents {
            let path = folder.path().join(path);
            fs::create_dir_all(&path)?;
            fs::write(path.join("index.json"), document.to_string())?;
        }
        fs::create_dir(folder.path().join(THERMAL))?;
        write_inlet(folder.path(), celsius)?;
        let server = RedfishServer::documents(folder.path()).await?;
        Ok(Self { folder, server })
    }

    /// Sets the inlet temperature.
    pub fn set_inlet(&self, celsius: f64) -> Result<()> {
        write_inlet(self.folder.path(), celsius)
    }

    /// Port of the BMC.
    pub const fn port(&self) -> u16 {
        self.server.port
    }
}

/// Folder of the document with the temperatures.
const THERMAL: &str = "Chassis/1/Thermal";

/// Replaces the document at once, so that no reader gets half of it.
fn write_inlet(folder: &Path, celsius: f64) -> Result<()> {
    let sensor = json!({"MemberId": "0", "Name": "Inlet Temp", "ReadingCelsius": celsius, "PhysicalContext": "Intake",
        "Status": {"State": "Enabled"}});
    let document = json!({"@odata.id": format!("/redfish/v1/{THERMAL}"), "Temperatures": [sensor]});
    let next = folder.join("next.json");
    fs::write(&next, document.to_string())?;
    Ok(fs::rename(next, folder.join(THERMAL).join("index.json"))?)
}

/// Starts one of the programs; it dies with the test, even if the test is killed.
fn program(name: &str) -> Result<Command> {
    let mut command = attached(peer("sushy-tools")?.join(name));
    command.env("PYTHONUNBUFFERED", "1");
    Ok(command)
}
