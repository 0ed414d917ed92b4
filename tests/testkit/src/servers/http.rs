//! A server of a few lines on loopback, which does what a test tells it to.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// What it does with a request.
#[derive(Clone)]
pub enum Manner {
    /// This status, head and body.
    Says(&'static str, String),
    /// Nothing at all.
    Hangs,
    /// A head, and then no body.
    Stops,
    /// A body without end.
    Floods,
    /// This body, to who sends this line in the head; 401 to others.
    Guarded(&'static str, String),
}

/// The server, which ends with the runtime.
pub struct Server {
    pub address: SocketAddr,
    manner: Arc<Mutex<Manner>>,
    /// The heads of the requests that came.
    pub asked: Arc<Mutex<Vec<String>>>,
    /// Connections that were made.
    pub connections: Arc<Mutex<usize>>,
}

impl Server {
    /// Without TLS.
    pub async fn start(manner: Manner) -> Self {
        Self::listen(manner, None).await
    }

    /// With a certificate for `localhost` and `127.0.0.1`.
    pub async fn secure(manner: Manner, authority: &Authority) -> Self {
        Self::listen(manner, Some(authority.acceptor())).await
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

    /// From now on it does this.
    pub fn turn(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    /// Where it serves this path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// All that came, as text.
    pub fn heard(&self) -> String {
        self.asked.lock().unwrap().join("\n")
    }
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
        notes.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
        let manner = manner.lock().unwrap().clone();
        let manner = match manner {
            Manner::Guarded(line, body) if String::from_utf8_lossy(&head).contains(line) => {
                Manner::Says("200 OK", body)
            }
            Manner::Guarded(..) => Manner::Says("401 Unauthorized", String::new()),
            other => other,
        };
        match manner {
            Manner::Says(status, body) => {
                let (status, more) = status.split_once('\n').unwrap_or((status, ""));
                let length = body.len();
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{more}\r\n");
                stream.write_all(head.as_bytes()).await.ok()?;
                stream.write_all(body.as_bytes()).await.ok()?;
            }
            Manner::Guarded(..) => return None,
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

/// An authority of its own, with a certificate for this host.
pub struct Authority(TempDir);

impl Authority {
    /// Makes its keys and certificates with openssl.
    pub fn create() -> Self {
        let home = Self(TempDir::new().unwrap());
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
        let ssl = |arguments: &[&str]| {
            let done =
                Command::new("openssl").args(arguments).current_dir(home.0.path()).stderr(Stdio::null()).status();
            assert!(done.is_ok_and(|status| status.success()), "openssl {arguments:?}");
        };
        let (name, host) = ("/CN=authority", "subjectAltName=DNS:localhost,IP:127.0.0.1");
        ssl(&[&["req", "-x509", "-subj", name, "-keyout", "ca.key", "-out", "ca.pem"], key.as_slice()].concat());
        let leaf = ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", host, "-addext", "basicConstraints=CA:FALSE"];
        ssl(&[&["req", "-x509", "-subj", "/CN=localhost", "-keyout", "key", "-out", "cert"], &key[..], &leaf].concat());
        home
    }

    /// Its own certificate, for those who are to trust it.
    pub fn pem(&self) -> Vec<u8> {
        std::fs::read(self.0.path().join("ca.pem")).unwrap()
    }

    /// Where certificate and key are, for other servers.
    pub fn files(&self) -> (PathBuf, PathBuf) {
        (self.0.path().join("cert"), self.0.path().join("key"))
    }

    fn acceptor(&self) -> TlsAcceptor {
        let (cert, key) = self.files();
        let chain = vec![CertificateDer::from_pem_file(cert).unwrap()];
        let key = PrivateKeyDer::from_pem_file(key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap()))
    }
}
