//! A minimal server on loopback that behaves as a test requires.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
pub use tokio_rustls::TlsAcceptor;

/// Behavior of the server.
#[derive(Clone)]
pub enum Manner {
    /// Sends this status, head and body.
    Says(&'static str, String),
    /// Never answers.
    Hangs,
    /// Sends a head, but no body.
    Stops,
    /// Sends an endless body.
    Floods,
    /// Sends this body if the head contains this line; otherwise 401.
    Guarded(&'static str, String),
    /// Behaves as listed for the requested path; 404 for other paths.
    Paths(Vec<(&'static str, Manner)>),
    /// Behaves as this function says for the requested path with its query.
    Routes(Arc<dyn Fn(&str) -> Manner + Send + Sync>),
    /// Computes the answer from the body of the request, and sends it with status 200 after this time.
    Computes(Duration, Arc<dyn Fn(&str) -> String + Send + Sync>),
}

impl Manner {
    /// Behavior for a request with this head.
    fn of(self, head: &str) -> Self {
        match self {
            Self::Guarded(line, body) if head.contains(line) => Self::Says("200 OK", body),
            Self::Guarded(..) => Self::Says("401 Unauthorized", String::new()),
            Self::Paths(paths) => {
                let path = head.split(' ').nth(1).unwrap_or_default();
                let found = paths.into_iter().find(|(known, _)| *known == path);
                found.map_or(Self::Says("404 Not Found", String::new()), |(_, manner)| manner.of(head))
            }
            Self::Routes(route) => route(head.split(' ').nth(1).unwrap_or_default()).of(head),
            other => other,
        }
    }
}

/// The server, which stops with the tokio runtime.
pub struct Server {
    pub address: SocketAddr,
    manner: Arc<Mutex<Manner>>,
    /// The received requests, each with its body.
    pub asked: Arc<Mutex<Vec<String>>>,
    /// Number of accepted connections.
    pub connections: Arc<Mutex<usize>>,
}

impl Server {
    /// Starts it without TLS.
    pub async fn start(manner: Manner) -> Self {
        Self::listen(manner, None).await
    }

    /// Starts it with a certificate for `localhost` and `127.0.0.1`.
    pub async fn secure(manner: Manner, authority: &Authority) -> Self {
        Self::listen(manner, Some(authority.acceptor())).await
    }

    /// Starts it with the certificate of this authority's server, but without its private key.
    pub async fn impostor(manner: Manner, authority: &Authority) -> Self {
        Self::listen(manner, Some(authority.impostor())).await
    }

    async fn listen(manner: Manner, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, connections): (Arc<Mutex<Vec<String>>>, Arc<Mutex<usize>>) = Default::default();
        let manner = Arc::new(Mutex::new(manner));
        let (shared, notes, count) = (manner.clone(), asked.clone(), connections.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *count.lock().unwrap() += 1;
                let (manner, notes, tls) = (shared.clone(), notes.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, &manner, &notes).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => serve(stream, &manner, &notes).await,
                            Err(_) => None,
                        },
                    }
                });
            }
        });
        Self { address, manner, asked, connections }
    }

    /// Changes its behavior from now on.
    pub fn turn(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    /// URL of this path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// All received requests, as text.
    pub fn heard(&self) -> String {
        self.asked.lock().unwrap().join("\n")
    }
}

/// Length of the body of a request with this head.
fn body_length(head: &str) -> usize {
    let headers = head.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = headers.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    lengths.next().map_or(0, |(_, length)| length.trim().parse().unwrap())
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    manner: &Mutex<Manner>,
    notes: &Mutex<Vec<String>>,
) -> Option<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let mut body = vec![0; body_length(&head)];
        stream.read_exact(&mut body).await.ok()?;
        notes.lock().unwrap().push(format!("{head}{}", String::from_utf8_lossy(&body)));
        let manner = manner.lock().unwrap().clone();
        match manner.of(&head) {
            Manner::Says(status, body) => say(&mut stream, status, &body).await?,
            Manner::Computes(delay, answer) => {
                tokio::time::sleep(delay).await;
                let body = answer(&String::from_utf8_lossy(&body));
                say(&mut stream, "200 OK\nContent-Type: application/json\r\n", &body).await?;
            }
            Manner::Guarded(..) | Manner::Paths(_) | Manner::Routes(_) => return None,
            Manner::Hangs => std::future::pending().await,
            Manner::Stops => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{\"a\"").await.ok()?;
                std::future::pending().await
            }
            Manner::Floods => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.ok()?;
                loop {
                    stream.write_all(format!("10000\r\n{}\r\n", " ".repeat(0x10000)).as_bytes()).await.ok()?;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
    }
}

/// Sends an answer. Lines after the status are headers.
async fn say(stream: &mut (impl AsyncWrite + Unpin), status: &str, body: &str) -> Option<()> {
    let (status, more) = status.split_once('\n').unwrap_or((status, ""));
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{more}\r\n");
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.write_all(body.as_bytes()).await.ok()
}

/// Options that create a new key for a certificate or a certificate request.
const KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

/// A certificate authority, with a certificate for this host.
pub struct Authority(TempDir);

impl Authority {
    /// Creates keys and certificates with openssl.
    pub fn create() -> Self {
        let home = Self(TempDir::new().unwrap());
        home.openssl("req -x509 -subj /CN=authority -days 2 -keyout ca.key -out ca.pem", &KEY);
        home.issue("DNS:localhost,IP:127.0.0.1", 2);
        home
    }

    /// Self-signed certificate as BMCs create it: a CA certificate, for another name and valid for this number of days.
    pub fn of_own_making(days: i32) -> Self {
        let home = Self(TempDir::new().unwrap());
        home.request("/CN=bmc");
        home.sign("-signkey key", "basicConstraints=critical,CA:TRUE", days);
        std::fs::copy(home.0.path().join("cert"), home.0.path().join("ca.pem")).unwrap();
        home
    }

    /// Replaces the server's certificate by one for these names and this number of days.
    pub fn issue(&self, names: &str, days: i32) {
        self.request("/CN=localhost");
        let extensions = format!("subjectAltName={names}\nbasicConstraints=CA:FALSE");
        self.sign("-CA ca.pem -CAkey ca.key -CAcreateserial", &extensions, days);
    }

    /// Replaces the server's certificate by one for clients.
    pub fn issue_for_client(&self) {
        self.request("/CN=scheduler");
        let extensions = "extendedKeyUsage=clientAuth\nbasicConstraints=CA:FALSE";
        self.sign("-CA ca.pem -CAkey ca.key -CAcreateserial", extensions, 2);
    }

    fn request(&self, subject: &str) {
        self.openssl(&format!("req -new -subj {subject} -keyout key -out request"), &KEY);
    }

    fn sign(&self, by: &str, extensions: &str, days: i32) {
        std::fs::write(self.0.path().join("extensions"), extensions).unwrap();
        self.openssl(&format!("x509 -req -in request -out cert -extfile extensions -days {days} {by}"), &[]);
    }

    fn openssl(&self, words: &str, more: &[&str]) {
        let mut command = Command::new("openssl");
        command.args(words.split(' ')).args(more).current_dir(self.0.path()).stderr(Stdio::null());
        assert!(command.status().is_ok_and(|status| status.success()), "openssl {words}");
    }

    /// CA certificate, for clients that trust it.
    pub fn pem(&self) -> Vec<u8> {
        std::fs::read(self.0.path().join("ca.pem")).unwrap()
    }

    /// Paths of certificate and key, for other servers.
    pub fn files(&self) -> (PathBuf, PathBuf) {
        (self.0.path().join("cert"), self.0.path().join("key"))
    }

    /// TLS acceptor with the server's certificate.
    pub fn acceptor(&self) -> TlsAcceptor {
        let (_, key) = self.files();
        self.with_key(PrivateKeyDer::from_pem_file(key).unwrap())
    }

    fn impostor(&self) -> TlsAcceptor {
        let other = Self::create();
        self.with_key(PrivateKeyDer::from_pem_file(other.files().1).unwrap())
    }

    /// TLS acceptor with the server's certificate and any key, matching or not.
    fn with_key(&self, key: PrivateKeyDer<'static>) -> TlsAcceptor {
        let chain = vec![CertificateDer::from_pem_file(self.files().0).unwrap()];
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = provider.key_provider.load_private_key(key).unwrap();
        let certified = Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key)));
        let config =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_cert_resolver(certified)))
    }
}
