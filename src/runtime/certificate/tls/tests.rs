//! Real handshakes over TCP: the certificate and the authorities of clients before and after a replacement, the
//! protocol versions, and slow or silent clients, which must not delay others.

use std::net::SocketAddr;

use jiff::{SignedDuration, Timestamp};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::time_provider::TimeProvider;
use rustls::{CertificateError, ClientConfig, HandshakeKind, ProtocolVersion, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_rustls::{TlsConnector, client};

use super::super::issue::{Issued, issue};
use super::*;

const NAME: &str = "ganglion.system.svc";

/// Longer than any handshake here takes on a busy machine, short enough for a test.
const LIMIT: Duration = Duration::from_secs(2);

fn now() -> Timestamp {
    "2026-11-20T10:00:00Z".parse().unwrap()
}

fn issued(days_ago: i64, ca: Option<&Pair>) -> Issued {
    issue(&[NAME.to_owned()], now() - SignedDuration::from_hours(24 * days_ago), ca).unwrap()
}

/// A fixed clock.
#[derive(Debug)]
struct Clock;

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let second = u64::try_from(now().as_second()).unwrap();
        Some(UnixTime::since_unix_epoch(Duration::from_secs(second)))
    }
}

/// An authority, and the certificate of a client that it has signed.
struct ClientIdentity {
    ca: Vec<u8>,
    own: Pair,
}

impl ClientIdentity {
    fn create() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&ca_key).unwrap().pem().into_bytes();
        let mut own = CertificateParams::new(["scheduler".to_owned()]).unwrap();
        own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = own.signed_by(&key, &Issuer::new(params, ca_key)).unwrap().pem().into_bytes();
        Self { ca, own: Pair { certificate, key: key.serialize_pem().into_bytes() } }
    }
}

/// A client that trusts this CA.
fn trusting(ca: &Pair, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    client_config(ca, versions, None)
}

/// The same, with a certificate of its own.
fn client_config(
    ca: &Pair,
    versions: &[&'static SupportedProtocolVersion],
    identity: Option<&ClientIdentity>,
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&ca.certificate).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_details(Arc::new(ring::default_provider()), Arc::new(Clock));
    let builder = builder.with_protocol_versions(versions).unwrap().with_root_certificates(roots);
    let mut config = match identity {
        Some(ClientIdentity { own, .. }) => {
            let chain = vec![CertificateDer::from_pem_slice(&own.certificate).unwrap()];
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(&own.key).unwrap()).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::in_memory_sessions(8);
    config
}

/// A server for all clients that sends the result of each handshake to the channel.
async fn serve(
    certificate: &ReloadingCertificate,
) -> (SocketAddr, mpsc::UnboundedReceiver<Result<(), HandshakeError>>) {
    serve_clients_of(None, certificate).await
}

/// The same, for clients of these authorities.
async fn serve_clients_of(
    client_ca: Option<ReloadingClientCa>,
    certificate: &ReloadingCertificate,
) -> (SocketAddr, mpsc::UnboundedReceiver<Result<(), HandshakeError>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(server_config(certificate.clone(), client_ca).unwrap());
    let (results, seen) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, results) = (acceptor.clone(), results.clone());
            tokio::spawn(async move {
                let mut stream = match handshake(&acceptor, stream, LIMIT).await {
                    Ok(stream) => stream,
                    Err(error) => return results.send(Err(error)).unwrap(),
                };
                results.send(Ok(())).unwrap();
                let mut byte = [0];
                while stream.read_exact(&mut byte).await.is_ok() {
                    stream.write_all(&byte).await.unwrap();
                    stream.flush().await.unwrap();
                }
            });
        }
    });
    (address, seen)
}

/// Connects and exchanges a byte: in TLS 1.3 the client finishes its handshake before the server.
async fn connect(to: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<client::TlsStream<TcpStream>> {
    let stream = TcpStream::connect(to).await?;
    let connector = TlsConnector::from(config.clone());
    let mut stream = connector.connect(ServerName::try_from(NAME).unwrap(), stream).await?;
    echo(&mut stream).await?;
    Ok(stream)
}

async fn echo(stream: &mut client::TlsStream<TcpStream>) -> io::Result<()> {
    stream.write_all(b"x").await?;
    stream.flush().await?;
    let mut byte = [0];
    stream.read_exact(&mut byte).await.map(drop)
}

/// The TLS error of a client.
fn fault(result: io::Result<client::TlsStream<TcpStream>>) -> rustls::Error {
    let error = result.map(drop).unwrap_err();
    error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()).cloned().unwrap()
}

#[tokio::test]
async fn a_certificate_is_replaced_while_the_server_runs() {
    let expired = issued(100, None);
    let renewed = issued(0, Some(&expired.ca));
    assert_eq!(expired.ca, renewed.ca);
    let certificate = ReloadingCertificate::default();
    certificate.replace(&expired.tls).unwrap();
    let (address, mut seen) = serve(&certificate).await;
    let client = Arc::new(trusting(&expired.ca, &[&TLS13, &TLS12]));

    let refused = fault(connect(address, &client).await);
    assert!(
        matches!(refused, rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { .. })),
        "{refused:?}"
    );
    assert!(matches!(seen.recv().await.unwrap(), Err(HandshakeError::Failed(_))));

    certificate.replace(&renewed.tls).unwrap();
    let mut open = connect(address, &client).await.unwrap();
    assert!(seen.recv().await.unwrap().is_ok());

    // An open connection outlives the certificate that it started with.
    certificate.replace(&expired.tls).unwrap();
    echo(&mut open).await.unwrap();
    assert!(connect(address, &client).await.is_err());
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_does_not_replace_the_old_one() {
    let (good, other) = (issued(0, None), issued(0, None));
    let certificate = ReloadingCertificate::default();
    certificate.replace(&good.tls).unwrap();
    let (address, _seen) = serve(&certificate).await;
    let client = Arc::new(trusting(&good.ca, &[&TLS13]));
    let unusable = [
        (Pair { certificate: b"nothing".to_vec(), ..other.tls.clone() }, CertificateFlaw::Certificate),
        (Pair { key: b"nothing".to_vec(), ..other.tls.clone() }, CertificateFlaw::Key),
        (Pair { key: good.tls.key.clone(), ..other.tls.clone() }, CertificateFlaw::OtherKey),
    ];
    for (pair, flaw) in unusable {
        assert_eq!(certificate.replace(&pair), Err(flaw));
        let stream = connect(address, &client).await.unwrap();
        let shown = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
        assert_eq!(shown, CertificateDer::from_pem_slice(&good.tls.certificate).unwrap());
    }
}

#[tokio::test]
async fn only_clients_of_the_current_authorities_are_served() {
    let (one, other) = (ClientIdentity::create(), ClientIdentity::create());
    let good = issued(0, None);
    let certificate = ReloadingCertificate::default();
    certificate.replace(&good.tls).unwrap();
    for version in [&TLS12, &TLS13] {
        let client_ca = ReloadingClientCa::new(&one.ca).unwrap();
        let (address, mut seen) = serve_clients_of(Some(client_ca.clone()), &certificate).await;
        let client = |identity| Arc::new(client_config(&good.ca, &[version], identity));
        let [of_one, of_other, nobody] = [client(Some(&one)), client(Some(&other)), client(None)];
        let mut open = connect(address, &of_one).await.unwrap();
        assert!(seen.recv().await.unwrap().is_ok());
        for refused in [&of_other, &nobody] {
            assert!(connect(address, refused).await.is_err());
            assert!(matches!(seen.recv().await.unwrap(), Err(HandshakeError::Failed(_))));
        }

        client_ca.replace(&other.ca).unwrap();
        assert!(connect(address, &of_other).await.is_ok());
        assert!(connect(address, &of_one).await.is_err() && connect(address, &nobody).await.is_err());
        echo(&mut open).await.unwrap();

        assert!(matches!(client_ca.replace(b"nothing"), Err(ServerConfigError::ClientCa)));
        assert!(connect(address, &of_other).await.is_ok());
        client_ca.replace(&[one.ca.as_slice(), &other.ca].concat()).unwrap();
        assert!(connect(address, &of_one).await.is_ok() && connect(address, &of_other).await.is_ok());
    }
    assert!(matches!(ReloadingClientCa::new(b""), Err(ServerConfigError::ClientCa)));
}

#[tokio::test]
async fn without_a_certificate_handshakes_fail_until_there_is_one() {
    let good = issued(0, None);
    let certificate = ReloadingCertificate::default();
    assert!(!certificate.is_set());
    let (address, mut seen) = serve(&certificate).await;
    for versions in [[&TLS13], [&TLS12]] {
        let client = Arc::new(trusting(&good.ca, &versions));
        // The client gets an alert, not just the end of the connection.
        assert!(matches!(fault(connect(address, &client).await), rustls::Error::AlertReceived(_)));
        assert!(matches!(seen.recv().await.unwrap(), Err(HandshakeError::Failed(_))));
    }
    certificate.replace(&good.tls).unwrap();
    assert!(certificate.is_set());
    assert!(connect(address, &Arc::new(trusting(&good.ca, &[&TLS13]))).await.is_ok());
}

#[tokio::test]
async fn both_versions_speak_http_1_1_and_resume_nothing() {
    let good = issued(0, None);
    let certificate = ReloadingCertificate::default();
    certificate.replace(&good.tls).unwrap();
    let (address, _seen) = serve(&certificate).await;
    for (version, expected) in [(&TLS12, ProtocolVersion::TLSv1_2), (&TLS13, ProtocolVersion::TLSv1_3)] {
        let mut client = trusting(&good.ca, &[version]);
        client.alpn_protocols = [b"h2".as_slice(), b"http/1.1"].map(<[u8]>::to_vec).to_vec();
        let client = Arc::new(client);
        for _ in 0..3 {
            let stream = connect(address, &client).await.unwrap();
            let session = stream.get_ref().1;
            assert_eq!(session.protocol_version(), Some(expected));
            assert_eq!(session.alpn_protocol(), Some(b"http/1.1".as_slice()));
            assert_eq!(session.handshake_kind(), Some(HandshakeKind::Full));
        }
        let mut only_h2 = trusting(&good.ca, &[version]);
        only_h2.alpn_protocols = vec![b"h2".to_vec()];
        assert!(matches!(fault(connect(address, &Arc::new(only_h2)).await), rustls::Error::AlertReceived(_)));
    }
}

#[tokio::test]
async fn silent_clients_hold_up_nobody_and_are_dropped() {
    let good = issued(0, None);
    let certificate = ReloadingCertificate::default();
    certificate.replace(&good.tls).unwrap();
    let (address, mut seen) = serve(&certificate).await;
    let client = Arc::new(trusting(&good.ca, &[&TLS13]));
    let mut silent = Vec::new();
    for _ in 0..16 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    assert!(connect(address, &client).await.is_ok());
    // The handshake finished before that of any silent client.
    assert!(seen.recv().await.unwrap().is_ok());
    for mut stream in silent {
        let mut byte = [0];
        let closed = timeout(10 * LIMIT, stream.read(&mut byte)).await.expect("still open");
        assert_eq!(closed.unwrap(), 0);
        assert!(matches!(seen.recv().await.unwrap(), Err(HandshakeError::Timeout(LIMIT))));
    }
}

#[tokio::test]
async fn a_client_without_tls_is_refused_at_once() {
    let certificate = ReloadingCertificate::default();
    let (address, mut seen) = serve(&certificate).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert!(matches!(seen.recv().await.unwrap(), Err(HandshakeError::Failed(_))));
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_is_for_the_whole_handshake() {
    let acceptor = TlsAcceptor::from(server_config(ReloadingCertificate::default(), None).unwrap());
    for interval in [Duration::from_secs(3600), Duration::from_secs(2)] {
        let (mut client, server) = duplex(1024);
        let dribble = tokio::spawn(async move {
            // The head of a record of 512 bytes, then one byte at a time.
            let head = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3].into_iter().chain(std::iter::repeat(7));
            for byte in head {
                sleep(interval).await;
                if client.write_all(&[byte]).await.is_err() {
                    return;
                }
            }
        });
        let begun = Instant::now();
        let result = handshake(&acceptor, server, HANDSHAKE_TIMEOUT).await;
        assert!(matches!(result, Err(HandshakeError::Timeout(HANDSHAKE_TIMEOUT))));
        assert_eq!(begun.elapsed().as_secs(), 10);
        // The connection is closed.
        dribble.await.unwrap();
    }
}
