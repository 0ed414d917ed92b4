//! A real Prometheus on loopback, which scrapes a real node-exporter, whose textfile collector says what a test sets, or whose
//! other collectors say what this host does.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::process::{free_port, run, signal};
use crate::servers::http::Authority;
use crate::servers::serves;
use crate::{TIMEOUT, root};

/// The one who may ask where a password is wanted.
pub const USER: &str = "me";

/// That one's password, and its bcrypt hash.
pub const PASSWORD: &str = "word";
pub(super) const HASH: &str = "$2b$04$abcdefghijklmnopqrstuuB/GrfUOm5dtrEiT8lcouu5XB5ftbWLi";

/// Prometheus and its exporter. Dropped, both are killed.
pub struct Prometheus {
    home: TempDir,
    port: u16,
    arguments: Vec<String>,
    server: Option<Child>,
    exporter: Child,
    secure: bool,
}

/// How one differs from others.
#[derive(Default)]
struct Setup<'a> {
    /// Whom its certificate is of, if it asks for a password.
    authority: Option<&'a Authority>,
    /// The address of what it scrapes besides node-exporter.
    more: Option<&'a str>,
    /// Options for further collectors of node-exporter.
    collectors: &'a [&'a str],
}

impl Prometheus {
    /// One that answers everybody.
    pub async fn start() -> Result<Self> {
        Self::begin(TempDir::new()?, Setup::default()).await
    }

    /// One that answers everybody, and scrapes the metrics at this address, too.
    pub async fn scraping(address: &str) -> Result<Self> {
        Self::begin(TempDir::new()?, Setup { more: Some(address), ..Setup::default() }).await
    }

    /// One that asks for a password, over TLS.
    pub async fn guarded(authority: &Authority) -> Result<Self> {
        Self::begin(TempDir::new()?, Setup { authority: Some(authority), ..Setup::default() }).await
    }

    /// One that scrapes the processors and the memory of this host.
    pub async fn of_this_host() -> Result<Self> {
        let collectors = &["--collector.cpu", "--collector.meminfo"];
        Self::begin(TempDir::new()?, Setup { collectors, ..Setup::default() }).await
    }

    /// One that has scraped these samples, which are in the text format of OpenMetrics.
    pub async fn with_history(samples: &str) -> Result<Self> {
        let home = TempDir::new()?;
        let (file, data) = (home.path().join("samples"), home.path().join("data"));
        fs::write(&file, samples)?;
        let mut command = tokio::process::Command::new(peer("prometheus")?.with_file_name("promtool"));
        command.args(["tsdb", "create-blocks-from", "openmetrics"]).arg(file).arg(data);
        run(command, None).await?;
        Self::begin(home, Setup::default()).await
    }

    async fn begin(home: TempDir, setup: Setup<'_>) -> Result<Self> {
        let Setup { authority, more, collectors } = setup;
        let (port, scraped) = (free_port()?, free_port()?);
        let text = home.path().join("text");
        fs::create_dir(&text)?;
        let mut options = vec![
            "--collector.disable-defaults".to_owned(),
            "--collector.textfile".to_owned(),
            format!("--collector.textfile.directory={}", text.display()),
            format!("--web.listen-address=127.0.0.1:{scraped}"),
        ];
        options.extend(collectors.iter().map(|collector| (*collector).to_owned()));
        let exporter = spawn("node-exporter", &options)?;
        let config = home.path().join("prometheus.yml");
        let scraped = format!("127.0.0.1:{scraped}");
        let job =
            |(name, target): (&str, &str)| format!("{{job_name: {name}, static_configs: [{{targets: ['{target}']}}]}}");
        let jobs = [Some(("node", scraped.as_str())), more.map(|address| ("more", address))];
        let jobs: Vec<String> = jobs.into_iter().flatten().map(job).collect();
        fs::write(
            &config,
            format!(
                "global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}\nscrape_configs: [{}]\n",
                jobs.join(", ")
            ),
        )?;
        let mut arguments = vec![
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", home.path().join("data").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ];
        if let Some(authority) = authority {
            let (cert, key) = authority.files();
            let file = home.path().join("web.yml");
            let (cert, key) = (cert.display(), key.display());
            let text = format!(
                "tls_server_config: {{cert_file: {cert}, key_file: {key}}}\nbasic_auth_users: {{{USER}: '{HASH}'}}\n"
            );
            fs::write(&file, text)?;
            arguments.push(format!("--web.config.file={}", file.display()));
        }
        let mut this = Self { home, port, arguments, server: None, exporter, secure: authority.is_some() };
        this.again().await?;
        Ok(this)
    }

    /// Where it is asked.
    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", if self.secure { "https" } else { "http" }, self.port)
    }

    /// From the next scrape on this metric has this value.
    pub fn set(&self, metric: &str, value: &str) -> Result<()> {
        self.export(metric, &format!("# TYPE {metric} gauge\n{metric} {value}\n"))
    }

    /// From the next scrape on this is what is exported of this metric.
    pub fn export(&self, metric: &str, text: &str) -> Result<()> {
        let (place, new) = (self.home.path().join("text"), self.home.path().join("new"));
        fs::write(&new, text)?;
        Ok(fs::rename(new, place.join(format!("{metric}.prom")))?)
    }

    /// It ends.
    pub fn end(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// It is started, and answers.
    pub async fn again(&mut self) -> Result<()> {
        self.server = Some(spawn("prometheus", &self.arguments)?);
        let ready = async {
            while tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            // It listens before it has opened its database. Who asks for a password is not asked for that.
            while !self.secure && !serves(self.port, "/-/ready").await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, ready).await.context("Prometheus does not answer")
    }

    /// SIGSTOP: it takes connections, and says nothing.
    pub fn pause(&self) -> Result<()> {
        self.signal("-STOP")
    }

    /// SIGCONT.
    pub fn resume(&self) -> Result<()> {
        self.signal("-CONT")
    }

    fn signal(&self, word: &str) -> Result<()> {
        signal(self.server.as_ref().context("Prometheus does not run")?, word)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.end();
        let _ = self.exporter.kill();
        let _ = self.exporter.wait();
    }
}

/// The path of one of the programs of `hack/peers`.
pub fn peer(name: &str) -> Result<PathBuf> {
    let script = root().join("hack/peers");
    let done = Command::new(script).arg(name).output().context("cannot start hack/peers")?;
    if !done.status.success() {
        bail!("hack/peers {name}: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(PathBuf::from(String::from_utf8(done.stdout)?.trim()))
}

/// Starts one of them; it dies with the test even where that is killed.
fn spawn(name: &str, arguments: &[String]) -> Result<Child> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(peer(name)?).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().with_context(|| format!("cannot start {name}"))
}
