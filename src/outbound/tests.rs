//! Requests to servers that answer, fail or hang, and to addresses that are refused.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prometheus_client::metrics::counter::Counter;
use reqwest::header::HeaderMap;
use rstest::rstest;
use testkit::servers::http::{Authority, Manner, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use super::address::{Names, Rules, System, system};
use super::client::login::Login;
use super::client::session::Sessions;
use super::private::{AddressOrigin, PrivateRule};
use super::prometheus::Point;
use super::redfish::{Bmc, Fetch};
use super::trust::Distrust;
use super::web::{Call, Credentials, Web};
use super::{Error, prometheus};
use ganglion_runtime::fairness::FairLimit;

const LIMIT: usize = 64 << 10;

/// Rules for tests: servers are on this host, and errors show the cause.
fn loopback() -> Rules {
    let allowed_networks = vec!["127.0.0.0/8".parse().unwrap(), "::1".parse().unwrap()];
    let allowed_hosts = vec![".example".parse().unwrap(), "localhost".parse().unwrap()];
    Rules { allowed_networks, allowed_hosts, ..Rules::default() }
}

fn web_with(rules: Rules, names: System) -> Web {
    Web::new(Names::new(rules, names), FairLimit::new(1 << 20, Counter::default()))
}

fn web() -> Web {
    web_with(loopback(), system)
}

fn call(url: impl Into<String>) -> Call {
    let within = Duration::from_secs(5);
    let (auth, ca, insecure, redirects) = (None, None, false, false);
    let (limit, tenant, origin) = (LIMIT, "a".into(), AddressOrigin::User);
    Call { url: url.into(), auth, headers: Vec::new(), ca, insecure, redirects, within, limit, tenant, origin }
}

async fn number(web: &Web, call: &Call, path: &str) -> Result<String, Error> {
    web.get(call).await?.number(path)
}

async fn instant(web: &Web, call: &Call, query: &str) -> Result<Point, Error> {
    let url = prometheus::query_url(&call.url, query)?.into();
    let answer = web.get(&Call { url, ..call.clone() }).await?;
    prometheus::point(answer.status, answer.body())
}

async fn says(status: &'static str, body: &str) -> Server {
    Server::start(Manner::Says(status, body.to_owned())).await
}

#[tokio::test]
async fn a_number_is_fetched_and_the_connection_kept() {
    let server = says("200 OK", r#"{"items": [{"load": 0.75}]}"#).await;
    let web = web();
    for _ in 0..3 {
        let found = number(&web, &call(server.url("/load?of=a")), "items.0.load").await;
        assert_eq!(found.as_deref(), Ok("0.75"));
    }
    assert_eq!(*server.connections.lock().unwrap(), 1);
    assert!(server.heard().starts_with("GET /load?of=a HTTP/1.1\r\n"), "{}", server.heard());
    assert!(!server.heard().to_lowercase().contains("authorization"));
}

#[rstest]
#[case("401 Unauthorized", "{}", "the server answers 401 Unauthorized")]
#[case("500 Internal Server Error", r#"{"a": 1}"#, "the server answers 500 Internal Server Error")]
#[case("302 Found\nLocation: http://127.0.0.2/\r\n", "", "the server answers 302, a redirect, which is not followed")]
#[case("200 OK", "<html>", "the answer is no JSON document: error at line 1, column 1")]
#[case("200 OK", "", "the answer is no JSON document: error at line 1, column 0")]
#[case("200 OK", r#"{"a": "x"}"#, "a is a text of 1 character, not a number")]
#[case("200 OK", r#"{"a": NaN}"#, "the answer is no JSON document: error at line 1, column 7")]
#[case("200 OK", r#"{"b": 1}"#, "there is no a")]
#[case("206 Partial Content", r#"{"a": 1}"#, "the answer is partial: the server answers 206 Partial Content")]
#[case("200 OK", r#"{"timed_out": true, "a": 1}"#, "the answer is partial: timed_out is true")]
#[tokio::test]
async fn what_is_no_number_has_words(#[case] status: &'static str, #[case] body: &str, #[case] expected: &str) {
    let server = says(status, body).await;
    let error = number(&web(), &call(server.url("/")), "a").await.unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[rstest]
#[case(Manner::Hangs)]
#[case(Manner::Stops)]
#[tokio::test]
async fn who_hangs_is_left_in_time(#[case] manner: Manner) {
    let server = Server::start(manner).await;
    let call = Call { within: Duration::from_millis(300), ..call(server.url("/")) };
    let begun = Instant::now();
    let error = number(&web(), &call, "a").await.unwrap_err();
    assert_eq!(error.to_string(), "no answer within 0.3 s");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn no_more_is_read_than_may_be() {
    let endless = Server::start(Manner::Floods).await;
    assert_eq!(number(&web(), &call(endless.url("/")), "a").await, Err(Error::TooLong(LIMIT)));
    let full = says("200 OK", &" ".repeat(LIMIT)).await;
    assert!(web().get(&call(full.url("/"))).await.is_ok(), "as much as may be");
    let large = Call { limit: 2 * LIMIT, ..call(says("200 OK", &format!("{}7", " ".repeat(LIMIT))).await.url("/")) };
    assert!(web().get(&large).await.is_ok(), "another purpose has another limit");
}

#[tokio::test]
async fn nobody_there_is_told_from_no_answer() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = web().get(&call(format!("http://{address}"))).await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable(words) if words.contains("refused")), "{error:?}");
    let error = web().get(&call("http://no-such-host.invalid/")).await.unwrap_err();
    assert!(matches!(&error, Error::Unresolved(words) if words.contains("has no address")), "{error:?}");
}

#[tokio::test]
async fn who_we_are_is_shown() {
    let server = says("200 OK", r#"{"a": 1}"#).await;
    let basic = Credentials::Basic { username: "me".into(), password: "word".into() };
    for auth in [Credentials::Bearer("secret".into()), basic] {
        let call = Call { auth: Some(auth), ..call(server.url("/")) };
        assert!(!format!("{call:?}").contains("secret") && !format!("{call:?}").contains("word"), "{call:?}");
        number(&web(), &call, "a").await.unwrap();
    }
    let heard = server.heard();
    assert!(heard.contains("authorization: Bearer secret\r\n"), "{heard}");
    assert!(heard.contains("authorization: Basic bWU6d29yZA==\r\n"), "{heard}");
    server.turn(Manner::Guarded("authorization: Bearer secret\r\n", r#"{"a": 2}"#.to_owned()));
    let call = Call { auth: Some(Credentials::Bearer("other".into())), ..call(server.url("/")) };
    let error = number(&web(), &call, "a").await.unwrap_err();
    assert_eq!(error, Error::Status(reqwest::StatusCode::UNAUTHORIZED));
    let call = Call { auth: Some(Credentials::Bearer("two\nlines".into())), ..call };
    let error = number(&web(), &call, "a").await.unwrap_err();
    assert!(matches!(error, Error::Unfit(_)) && !error.to_string().contains("two"), "{error}");
}

/// Prometheus behind a tenant header, as Mimir and Cortex have it.
#[tokio::test]
async fn further_headers_are_sent_and_not_shown() {
    let server = says("200 OK", "").await;
    server.turn(Manner::Guarded("x-scope-orgid: shop\r\n", r#"{"a": 2}"#.to_owned()));
    assert_eq!(
        number(&web(), &call(server.url("/")), "a").await,
        Err(Error::Status(reqwest::StatusCode::UNAUTHORIZED))
    );
    let mut value = reqwest::header::HeaderValue::from_static("shop");
    value.set_sensitive(true);
    let headers = vec![("x-scope-orgid".parse().unwrap(), value)];
    let call = Call { headers, ..call(server.url("/")) };
    assert_eq!(number(&web(), &call, "a").await.as_deref(), Ok("2"));
    assert!(!format!("{call:?}").contains("shop"), "{call:?}");
}

/// The receiver of an event may need a header too. The operator itself describes the body.
#[tokio::test]
async fn further_headers_go_with_a_body_and_do_not_replace_ours() {
    let server = says("200 OK", "").await;
    let further = [("x-scope-orgid", "shop"), ("content-type", "text/plain")];
    let headers = further.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    let call = Call { headers: headers.to_vec(), ..call(server.url("/")) };
    let ours = [(reqwest::header::CONTENT_TYPE, "application/json".parse().unwrap())];
    web().post(&call, HeaderMap::from_iter(ours), b"{}".to_vec()).await.unwrap();
    let heard = server.heard();
    assert!(heard.contains("x-scope-orgid: shop\r\n"), "{heard}");
    assert!(heard.contains("content-type: application/json\r\n") && !heard.contains("text/plain"), "{heard}");
    web().ask(&call, "application/json", b"{}".to_vec()).await.unwrap();
    let heard = server.heard();
    assert!(
        heard.matches("content-type: application/json\r\n").count() == 2 && !heard.contains("text/plain"),
        "{heard}"
    );
}

#[tokio::test]
async fn a_question_is_answered_with_a_body() {
    let server = says("200 OK", r#"{"outputs": [1]}"#).await;
    let (web, call) = (web(), call(server.url("/infer")));
    let answer = web.ask(&call, "application/json", b"{}".to_vec()).await.unwrap();
    assert_eq!(answer.good(), Ok(br#"{"outputs": [1]}"#.as_slice()));
    let answer = web.post(&call, HeaderMap::new(), b"{}".to_vec()).await.unwrap();
    assert_eq!(answer.good(), Ok(b"".as_slice()), "only the status is read");
    let heard = server.heard();
    assert!(heard.starts_with("POST /infer HTTP/1.1\r\ncontent-type: application/json\r\n"), "{heard}");
}

#[tokio::test]
async fn only_the_named_authority_is_believed() {
    let (ours, other) = (Authority::create(), Authority::create());
    let server = Server::secure(Manner::Says("200 OK", r#"{"a": 1}"#.into()), &ours).await;
    let url = format!("https://localhost:{}/", server.address.port());
    let web = web();
    let with = |ca: Option<Vec<u8>>| Call { ca: ca.map(Into::into), ..call(url.clone()) };
    let both = [other.pem(), ours.pem()].concat();
    for ca in [ours.pem(), both] {
        assert_eq!(number(&web, &with(Some(ca)), "a").await.as_deref(), Ok("1"));
    }
    for ca in [Some(other.pem()), None] {
        let error = number(&web, &with(ca), "a").await.unwrap_err();
        assert_eq!(error, Error::Certificate(Distrust::Issuer));
    }
    for pem in [b"nothing".as_slice(), b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let error = number(&web, &with(Some(pem.to_vec())), "a").await.unwrap_err();
        assert!(matches!(error, Error::Unfit(_)), "{error:?}");
    }
    let insecure = Call { insecure: true, ..with(Some(other.pem())) };
    assert_eq!(number(&web, &insecure, "a").await.as_deref(), Ok("1"));
}

#[rstest]
#[case::name("DNS:other.example", 2, Distrust::Name, "it is for another name")]
#[case::expired("DNS:localhost", -1, Distrust::Expired, "it has expired")]
#[tokio::test]
async fn what_is_wrong_with_a_certificate_is_told(
    #[case] names: &str,
    #[case] days: i32,
    #[case] expected: Distrust,
    #[case] words: &str,
) {
    let authority = Authority::create();
    authority.issue(names, days);
    let server = Server::secure(Manner::Says("200 OK", r#"{"a": 1}"#.into()), &authority).await;
    let ca = Some(authority.pem().into());
    let call = Call { ca, ..call(format!("https://localhost:{}/", server.address.port())) };
    let error = number(&web(), &call, "a").await.unwrap_err();
    assert_eq!(error, Error::Certificate(expected));
    assert_eq!(error.to_string(), format!("the certificate of the server is not trusted: {words}"));
    // If `ca` is the server certificate itself, exactly this certificate is trusted.
    let cert = std::fs::read(authority.files().0).unwrap();
    let call = Call { ca: Some(cert.into()), ..call };
    assert_eq!(number(&web(), &call, "a").await.as_deref(), Ok("1"));
}

#[rstest]
#[case(2, Distrust::OwnMaking)]
#[case(-1, Distrust::Expired)]
#[tokio::test]
async fn a_certificate_of_own_making_is_believed_where_it_is_named(#[case] days: i32, #[case] expected: Distrust) {
    let (bmc, other) = (Authority::of_own_making(days), Authority::of_own_making(days));
    let manner = Manner::Says("200 OK", r#"{"a": 1}"#.into());
    let server = Server::secure(manner.clone(), &bmc).await;
    let web = web();
    let with =
        |ca: Option<Vec<u8>>, port| Call { ca: ca.map(Into::into), ..call(format!("https://127.0.0.1:{port}/")) };
    let port = server.address.port();
    assert_eq!(number(&web, &with(Some(bmc.pem()), port), "a").await.as_deref(), Ok("1"));
    for ca in [None, Some(other.pem())] {
        let error = number(&web, &with(ca, port), "a").await.unwrap_err();
        assert_eq!(error, Error::Certificate(expected));
    }
    let insecure = Call { insecure: true, ..with(None, port) };
    assert_eq!(number(&web, &insecure, "a").await.as_deref(), Ok("1"));
    // Anyone who has seen the certificate can present it; only the machine has its key.
    let impostor = Server::impostor(manner, &bmc).await;
    let error = number(&web, &with(Some(bmc.pem()), impostor.address.port()), "a").await.unwrap_err();
    assert_eq!(error, Error::Certificate(Distrust::Unusable));
    assert_eq!(impostor.heard(), "");
}

#[tokio::test]
async fn a_certificate_is_told_of_hosts_that_are_not_listed() {
    let server = Server::secure(Manner::Hangs, &Authority::create()).await;
    let hidden = web_with(Rules { allowed_hosts: Vec::new(), ..loopback() }, by_name);
    let call = call(format!("https://api.example:{}/", server.address.port()));
    let begun = Instant::now();
    assert_eq!(number(&hidden, &call, "a").await, Err(Error::Certificate(Distrust::Issuer)));
    assert!(begun.elapsed() < call.within, "{:?}", begun.elapsed());
}

#[rstest]
#[case::cipher(40)]
#[case::version(70)]
#[tokio::test]
async fn a_tls_server_with_nothing_in_common_is_told_of_any_host(#[case] alert: u8) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut hello = [0; 5];
            connection.read_exact(&mut hello).await.unwrap();
            // Fatal alert of TLS 1.2.
            connection.write_all(&[21, 3, 3, 0, 2, 2, alert]).await.unwrap();
            // The client closes first, so that the alert is not lost with unread bytes.
            let _ = tokio::io::copy(&mut connection, &mut tokio::io::sink()).await;
        }
    });
    let hidden = web_with(Rules { allowed_hosts: Vec::new(), ..loopback() }, by_name);
    let call = call(format!("https://api.example:{port}/"));
    assert_eq!(number(&hidden, &call, "a").await, Err(Error::Incompatible));
    server.abort();
}

/// Starts a server that answers each request, of which it gets the head and the body, with these bytes.
async fn answers(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut request = String::new();
            while !is_whole(&request) {
                let mut part = [0; 4096];
                let length = connection.read(&mut part).await.unwrap();
                request.push_str(&String::from_utf8_lossy(&part[..length]));
            }
            connection.write_all(&answer(&request)).await.unwrap();
        }
    });
    port
}

/// Whether a request has its head and its body.
fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let length = head.to_lowercase().split_once("content-length: ").map(|(_, rest)| rest.to_owned());
    let length = length.and_then(|rest| rest.lines().next()?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

fn encoded(encoding: &str, body: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nConnection: close\r\n\r\n");
    [head.into_bytes(), STANDARD.decode(body).unwrap()].concat()
}

/// A number, and 80 KiB of blanks with a number.
const GZIP: &str = "H4sIAAAAAAACA6tWSlSyUjCvBQARKfutCAAAAA==";
const DEFLATE: &str = "eJyrVkpUslIwrwUACfECLw==";
const LARGE: &str = "H4sIAAAAAAACA+3BsQAAAAACMJUs8jdLo2NbAgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAMCDDqAZYPoBQAEA";

#[tokio::test]
async fn compressed_answers_are_read_up_to_their_limit() {
    for (encoding, body) in [("gzip", GZIP), ("deflate", DEFLATE)] {
        let port = answers(move |request| {
            assert!(request.to_lowercase().contains("accept-encoding: gzip"), "{request}");
            encoded(encoding, body)
        });
        let call = call(format!("http://127.0.0.1:{}/", port.await));
        assert_eq!(number(&web(), &call, "a").await.as_deref(), Ok("7"), "{encoding}");
    }
    // The limit is that of the content, whatever its compressed size.
    let large = call(format!("http://127.0.0.1:{}/", answers(|_| encoded("gzip", LARGE)).await));
    assert_eq!(web().get(&large).await.err(), Some(Error::TooLong(LIMIT)));
    assert!(web().get(&Call { limit: 2 * LIMIT, ..large }).await.is_ok());
    let broken = call(format!("http://127.0.0.1:{}/", answers(|_| encoded("gzip", DEFLATE)).await));
    assert!(matches!(web().get(&broken).await, Err(Error::Broken(_))));
}

#[tokio::test]
async fn a_bmc_without_basic_authentication_gets_a_session_that_is_closed() {
    let closed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&closed);
    let port = answers(move |request| {
        let is_begun_with = |begin: &str| request.starts_with(begin);
        let answer = match request.to_lowercase() {
            _ if is_begun_with("POST /redfish/v1/SessionService/Sessions ")
                && request.contains(r#""Password":"word""#) =>
            {
                "201 Created\r\nX-Auth-Token: tick\r\nLocation: /redfish/v1/SessionService/Sessions/7"
            }
            head if !head.contains("x-auth-token: tick\r\n") => "401 Unauthorized",
            _ if is_begun_with("DELETE /redfish/v1/SessionService/Sessions/7 ") => {
                count.fetch_add(1, Ordering::Relaxed);
                "204 No Content"
            }
            _ => "200 OK",
        };
        format!("HTTP/1.1 {answer}\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}").into_bytes()
    });
    let (web, sessions) = (web(), Sessions::default());
    let login = || Login { namespace: "a".into(), host: "bmc:443".into(), secret: "s".into() };
    let basic = |word: &str| Credentials::Basic { username: "me".into(), password: word.into() };
    let call = Call { auth: Some(basic("word")), ..call(format!("http://127.0.0.1:{}/redfish/v1/", port.await)) };
    let bmc = Bmc::new(&web, call.clone());
    assert!(bmc.get("/redfish/v1/Systems").await.unwrap_err().is_refusal());
    assert!(bmc.refuses_basic());
    let token = sessions.open(&web, login(), &call).await.unwrap();
    assert_eq!(sessions.token(&login(), &basic("word")), Some(token.clone()));
    assert_eq!(sessions.token(&login(), &basic("other")), None);
    let bmc = Bmc::new(&web, Call { auth: Some(token), ..call.clone() });
    assert!(bmc.get("/redfish/v1/Systems").await.is_ok());
    sessions.close(&web, true).await;
    assert_eq!(closed.load(Ordering::Relaxed), 0, "it is in use");
    sessions.close(&web, false).await;
    assert_eq!((closed.load(Ordering::Relaxed), sessions.token(&login(), &basic("word"))), (1, None));
    let wrong = Call { auth: Some(basic("wrong")), ..call };
    assert!(sessions.open(&web, login(), &wrong).await.unwrap_err().is_refusal());
}

/// Starts a server that answers `/` with this status and head, in which PORT is its port, and serves a number at
/// `/found`.
async fn moved(status: &str) -> Server {
    let server = says("204 No Content", "").await;
    let status = status.replace("PORT", &server.address.port().to_string()).leak();
    let found = Manner::Guarded("authorization: Basic bWU6d29yZA==\r\n", r#"{"a": 1}"#.to_owned());
    server.turn(Manner::Paths(vec![("/", Manner::Says(status, String::new())), ("/found", found)]));
    server
}

#[rstest]
#[case::path("301 Moved Permanently\nLocation: /found\r\n")]
#[case::relative("308 Permanent Redirect\nLocation: found#part\r\n")]
#[case::host("307 Temporary Redirect\nLocation: //127.0.0.1:PORT/found\r\n")]
#[case::whole("302 Found\nLocation: http://127.0.0.1:PORT/found\r\n")]
#[tokio::test]
async fn redirects_on_the_same_server_are_followed_where_asked(#[case] status: &str) {
    let server = moved(status).await;
    let auth = Some(Credentials::Basic { username: "me".into(), password: "word".into() });
    let follow = Call { auth, redirects: true, ..call(server.url("/")) };
    assert_eq!(number(&web(), &follow, "a").await.as_deref(), Ok("1"));
    let error = number(&web(), &Call { redirects: false, ..follow }, "a").await.unwrap_err();
    assert!(matches!(error, Error::Redirect(301..=308)), "{error:?}");
}

#[rstest]
#[case::round("302 Found\nLocation: /\r\n")]
#[case::host("302 Found\nLocation: http://127.0.0.2:PORT/found\r\n")]
#[case::name("302 Found\nLocation: http://localhost:PORT/found\r\n")]
#[case::port("302 Found\nLocation: http://127.0.0.1/found\r\n")]
#[case::scheme("302 Found\nLocation: https://127.0.0.1:PORT/found\r\n")]
#[case::user("302 Found\nLocation: http://you:there@127.0.0.1:PORT/found\r\n")]
#[case::nowhere("302 Found\n")]
#[case::file("302 Found\nLocation: file:///etc/passwd\r\n")]
#[tokio::test]
async fn no_redirect_leaves_the_server(#[case] status: &str) {
    let server = moved(status).await;
    let call = Call { redirects: true, ..call(server.url("/")) };
    assert_eq!(number(&web(), &call, "a").await, Err(Error::Redirect(302)));
    assert!(server.asked.lock().unwrap().len() <= 4, "{}", server.heard());
    assert!(!server.heard().contains("/found"), "{}", server.heard());
}

#[tokio::test]
async fn many_authorities_do_not_pile_up() {
    let server = says("200 OK", r#"{"a": 1}"#).await;
    let web = web().with_client_bytes(160 << 10);
    let pem = Authority::create().pem();
    let url = format!("https://{}/", server.address);
    for nth in 0..20_u8 {
        let ca = Some([pem.as_slice(), &vec![b'\n'; usize::from(nth)]].concat().into());
        let tenant = if nth == 0 { "other" } else { "shop" }.to_owned();
        let _ = web.get(&Call { ca, tenant, within: Duration::from_millis(50), ..call(url.clone()) }).await;
    }
    assert!((8..20).contains(&web.kept(None)), "{}", web.kept(None));
    assert_eq!(web.kept(Some("other")), 1, "the namespace with most of them loses its own");
}

/// Holds lookups until a test opens it.
struct HeldLookups {
    waiting: AtomicUsize,
    is_open: Mutex<bool>,
    opens: Condvar,
}

static GATE: HeldLookups =
    HeldLookups { waiting: AtomicUsize::new(0), is_open: Mutex::new(false), opens: Condvar::new() };

/// Resolver for tests: the name determines the result.
fn by_name(name: &str) -> io::Result<Vec<IpAddr>> {
    match name {
        "metadata.example" => Ok(vec!["169.254.169.254".parse().unwrap()]),
        "both.example" => Ok(vec!["::1".parse().unwrap(), "127.0.0.1".parse().unwrap()]),
        "api.example" => Ok(vec!["127.0.0.1".parse().unwrap()]),
        "db.prod.svc" => Ok(vec!["10.255.255.1".parse().unwrap()]),
        // A reserved address, which is private and has no server anywhere.
        "reserved.prod.svc" => Ok(vec!["240.255.255.1".parse().unwrap()]),
        "open.prod.svc" => Ok(vec!["1.0.0.1".parse().unwrap()]),
        name if name.starts_with("gate-") => {
            GATE.waiting.fetch_add(1, Ordering::Relaxed);
            drop(GATE.opens.wait_while(GATE.is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
            Err(io::ErrorKind::TimedOut.into())
        }
        "hangs.example" => {
            std::thread::sleep(Duration::from_secs(2));
            Err(io::ErrorKind::TimedOut.into())
        }
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

#[rstest]
#[case("http://127.0.0.1:PORT/", "127.0.0.1 is a loopback address")]
#[case("http://2130706433:PORT/", "127.0.0.1 is a loopback address")]
#[case("http://127.1:PORT/", "127.0.0.1 is a loopback address")]
#[case("http://[::1]:PORT/", "::1 is a loopback address")]
#[case("http://[::ffff:127.0.0.1]:PORT/", "::ffff:127.0.0.1 is a loopback address")]
#[case("http://[64:ff9b::7f00:1]:PORT/", "64:ff9b::7f00:1 is a loopback address")]
#[case("http://0.0.0.0:PORT/", "0.0.0.0 is not a host's address")]
#[case("http://[::]:PORT/", ":: is not a host's address")]
#[case("http://224.0.0.1/", "224.0.0.1 is not a host's address")]
#[case("http://169.254.169.254/latest/meta-data", "169.254.169.254 is a link-local address")]
#[case("http://[fe80::1]/", "fe80::1 is a link-local address")]
#[case("http://[fd00:ec2::254]/", "fd00:ec2::254 is an address of cloud metadata")]
#[case("http://[fd00:ec2::23]/", "fd00:ec2::23 is an address of cloud metadata")]
#[case("http://[fd20:ce::254]/", "fd20:ce::254 is an address of cloud metadata")]
#[case("http://[fd00:c1::a9fe:a9fe]/", "fd00:c1::a9fe:a9fe is an address of cloud metadata")]
#[case("http://[64:ff9b:1::7f00:1]/", "64:ff9b:1::7f00:1 is an address of a translator")]
#[case("http://[64:ff9b:1:ffff::1]/", "64:ff9b:1:ffff::1 is an address of a translator")]
#[case("http://[::ffff:0:7f00:1]/", "::ffff:0:7f00:1 is an address of a translator")]
#[case("http://both.example:PORT/", "127.0.0.1 is a loopback address")]
#[case("http://metadata.example/", "169.254.169.254 is a link-local address")]
#[case("https://metadata.example/", "169.254.169.254 is a link-local address")]
#[case("ftp://a.example/", "only http and https are allowed")]
#[case("http://me:word@a.example/", "it contains a user or password: name a Secret in auth instead")]
#[case("http://", "it cannot be read: empty host")]
#[tokio::test]
async fn addresses_that_must_not_be_asked_are_not(#[case] url: &str, #[case] expected: &str) {
    let server = says("200 OK", r#"{"a": 1}"#).await;
    let web = web_with(Rules::default(), by_name);
    let url = url.replace("PORT", &server.address.port().to_string());
    let error = web.get(&call(url)).await.unwrap_err();
    assert_eq!(error, Error::Refused(expected.to_owned()));
    assert_eq!(*server.connections.lock().unwrap(), 0);
}

#[tokio::test]
async fn the_api_server_is_not_asked_by_address_nor_by_name() {
    let (api, beside) = (says("200 OK", "{}").await, says("200 OK", "{}").await);
    let port = api.address.port();
    for host in ["127.0.0.1", "api.example"] {
        let rules = Rules { api_server: Some((host.to_owned(), port)), ..loopback() };
        let web = web_with(rules, by_name);
        for host in ["127.0.0.1", "api.example"] {
            let error = web.get(&call(format!("http://{host}:{port}/"))).await.unwrap_err();
            assert_eq!(error, Error::Refused("127.0.0.1 is the API server's".into()));
            let other = format!("http://{host}:{}/", beside.address.port());
            assert!(web.get(&call(other)).await.is_ok(), "another port of that host");
        }
    }
}

#[tokio::test]
async fn a_name_that_hangs_is_resolved_once_at_a_time() {
    let web = Arc::new(web_with(loopback(), by_name));
    let server = says("200 OK", "{}").await;
    let hanging: Vec<_> = (0..600)
        .map(|_| {
            let web = web.clone();
            let call = Call { within: Duration::from_millis(500), ..call("http://hangs.example/") };
            tokio::spawn(async move { web.get(&call).await })
        })
        .collect();
    tokio::task::yield_now().await;
    let begun = Instant::now();
    let healthy = format!("http://api.example:{}/", server.address.port());
    assert!(web.get(&call(healthy)).await.is_ok());
    assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
    for one in hanging {
        assert_eq!(one.await.unwrap().err(), Some(Error::Timeout(Duration::from_millis(500))));
    }
}

#[tokio::test]
async fn a_namespace_whose_names_hang_does_not_delay_the_names_of_others() {
    let web = Arc::new(web_with(loopback(), by_name));
    let server = says("200 OK", "{}").await;
    let mut hanging = JoinSet::new();
    for nth in 0..200 {
        let (web, url) = (web.clone(), format!("http://gate-{nth}.example/"));
        let call = Call { tenant: "hangs".to_owned(), within: Duration::from_secs(60), ..call(url) };
        hanging.spawn(async move { web.get(&call).await.err() });
    }
    while GATE.waiting.load(Ordering::Relaxed) < 32 {
        tokio::task::yield_now().await;
    }
    let healthy = format!("http://api.example:{}/", server.address.port());
    let (error, waiting) = (web.get(&call(healthy)).await.err(), GATE.waiting.load(Ordering::Relaxed));
    hanging.shutdown().await;
    *GATE.is_open.lock().unwrap() = true;
    GATE.opens.notify_all();
    assert_eq!((error, waiting), (None, 32), "a quarter for one namespace");
}

fn success(data: &str) -> String {
    format!(r#"{{"status": "success", "data": {data}}}"#)
}

#[rstest]
#[case(r#"{"resultType": "vector", "result": [{"metric": {}, "value": [1763719200.25, "0.5"]}]}"#, "0.5")]
#[case(r#"{"resultType": "scalar", "result": [1763719200.25, "12"]}"#, "12")]
#[tokio::test]
async fn a_query_gives_one_number_and_its_time(#[case] data: &str, #[case] expected: &str) {
    let server = says("200 OK", &success(data)).await;
    for base in ["", "/", "/prom?dedup=true"] {
        let point = instant(&web(), &call(server.url(base)), "a + b").await.unwrap();
        assert_eq!((point.value.as_str(), point.at.as_microsecond()), (expected, 1_763_719_200_250_000));
    }
    let heard = server.heard();
    assert!(heard.contains("GET /api/v1/query?query=a+%2B+b HTTP"), "{heard}");
    assert!(heard.contains("GET /prom/api/v1/query?dedup=true&query=a+%2B+b HTTP"), "{heard}");
}

#[rstest]
#[case("200 OK", &success(r#"{"resultType": "vector", "result": []}"#), "the query gives no series: check its names and labels; if no series means 0, write `sum(QUERY) or 0 * max(up{job=\"NAME\"} == 1)`, which is 0 only while that job is scraped (`or vector(0)` would also count an outage as 0)")]
#[case("200 OK", &success(r#"{"resultType": "vector", "result": [{}, {}]}"#), "the query gives 2 series, not one: aggregate them")]
#[case("200 OK", &success(r#"{"resultType": "vector", "result": [{"histogram": []}]}"#), "the query gives a histogram, not a number")]
#[case("200 OK", &success(r#"{"resultType": "scalar", "result": [1, "NaN"]}"#), "the query gives NaN, which is not a number")]
#[case("200 OK", &success(r#"{"resultType": "scalar", "result": [1, "+Inf"]}"#), "the query gives +Inf, which is not a number")]
#[case("200 OK", &success(r#"{"resultType": "string", "result": [1, "5"]}"#), "the query gives a string, not a number")]
#[case("200 OK", &success(r#"{"resultType": "matrix", "result": []}"#), "the query gives a matrix, not a number")]
#[case("200 OK", &success(r#"{"resultType": "scalar", "result": [1, "hunter2"]}"#), "the query gives a text of 7 characters, not a number")]
#[case("200 OK", &success(r#"{"resultType": "hunter2", "result": []}"#), "the answer is not a Prometheus reply")]
#[case("200 OK", &success(r#"{"resultType": "scalar", "result": [1]}"#), "the answer is not a Prometheus reply")]
#[case("200 OK", &success(r#"{"resultType": "scalar", "result": [1e300, "1"]}"#), "the answer is not a Prometheus reply")]
#[case("200 OK", r#"{"status": "success"}"#, "the answer is not a Prometheus reply")]
#[case(
    "200 OK",
    r#"{"status": "success", "warnings": ["half is missing"], "data": {"resultType": "scalar", "result": [1, "5"]}}"#,
    "the answer is partial: the server warns \"half is missing\""
)]
#[case(
    "200 OK",
    r#"{"status": "success", "isPartial": true, "data": {"resultType": "scalar", "result": [1, "5"]}}"#,
    "the answer is partial: isPartial is true"
)]
#[case(
    "206 Partial Content",
    &success(r#"{"resultType": "scalar", "result": [1, "5"]}"#),
    "the answer is partial: the server answers 206 Partial Content"
)]
#[case(
    "400 Bad Request",
    r#"{"status": "error", "errorType": "bad_data", "error": "parse error"}"#,
    "the server answers 400 Bad Request (bad_data): check the query"
)]
#[case(
    "422 Unprocessable Entity",
    r#"{"status": "error", "errorType": "hunter2", "error": "hunter2"}"#,
    "the server answers 422 Unprocessable Entity"
)]
#[case("401 Unauthorized", "Unauthorized\n", "the server answers 401 Unauthorized")]
#[case("503 Service Unavailable", "", "the server answers 503 Service Unavailable")]
#[case("200 OK", "hello", "the answer is not a Prometheus reply")]
#[tokio::test]
async fn a_query_that_gives_no_number_has_words(#[case] status: &'static str, #[case] body: &str, #[case] words: &str) {
    let server = says(status, body).await;
    let error = instant(&web(), &call(server.url("")), "q").await.unwrap_err();
    assert_eq!(error.to_string(), words);
}

/// Prometheus 2.48 to 2.53 list notes on the style of a query as warnings, later versions as infos.
#[rstest]
#[case(r#""warnings": ["PromQL info: metric might not be a counter, name does not end in _total"]"#)]
#[case(r#""infos": ["PromQL info: metric might not be a counter, name does not end in _total"]"#)]
#[case(r#""isPartial": false, "warnings": []"#)]
#[tokio::test]
async fn a_note_on_the_style_of_a_query_does_not_make_its_value_unknown(#[case] note: &str) {
    let data = r#"{"resultType": "scalar", "result": [1763719200, "5"]}"#;
    let server = says("200 OK", &format!(r#"{{"status": "success", {note}, "data": {data}}}"#)).await;
    assert_eq!(instant(&web(), &call(server.url("")), "q").await.map(|point| point.value).as_deref(), Ok("5"));
}

/// Each kind of failed connection, to a host that the settings do not list.
#[rstest]
#[case::closed(None)]
#[case::hangs(Some(Manner::Hangs))]
#[case::stops(Some(Manner::Stops))]
#[case::no_http(Some(Manner::Says("", String::new())))]
#[tokio::test]
async fn an_open_port_looks_like_a_closed_one(#[case] manner: Option<Manner>, #[values("http", "https")] scheme: &str) {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let server = match manner {
        Some(manner) => Some(Server::start(manner).await),
        None => None,
    };
    let port = server.as_ref().map_or(closed, |server| server.address).port();
    let listed = web_with(loopback(), by_name);
    let hidden = web_with(Rules { allowed_hosts: Vec::new(), ..loopback() }, by_name);
    let call = Call { within: Duration::from_millis(300), ..call(format!("{scheme}://api.example:{port}/")) };
    let begun = Instant::now();
    let error = number(&hidden, &call, "a").await.unwrap_err();
    assert_eq!(error.to_string(), format!("no answer from api.example:{port}; the operator's log says why"));
    assert!(begun.elapsed() >= call.within, "it tells by the time: {:?}", begun.elapsed());
    assert!(!matches!(number(&listed, &call, "a").await, Err(Error::NoAnswer(_))));
}

#[rstest]
#[case("http://10.1.2.3/", "10.1.2.3 is in a denied network (setting outbound.deniedNetworks)")]
#[case("http://[::ffff:10.1.2.3]/", "::ffff:10.1.2.3 is in a denied network (setting outbound.deniedNetworks)")]
#[case("http://127.0.0.9/", "127.0.0.9 is in a denied network (setting outbound.deniedNetworks)")]
#[case("http://db.denied.example./", "db.denied.example. is denied (setting outbound.deniedHosts)")]
#[case("http://DB.denied.example/", "db.denied.example is denied (setting outbound.deniedHosts)")]
#[case("http://203.0.113.1/", "203.0.113.1 is not allowed (settings outbound.allowedNetworks and allowedHosts)")]
#[case("http://metadata.example/", "169.254.169.254 is a link-local address")]
#[tokio::test]
async fn settings_deny_and_allow(#[case] url: &str, #[case] expected: &str) {
    let rules = Rules {
        denied_networks: ["10.0.0.0/8", "127.0.0.9"].map(|text| text.parse().unwrap()).to_vec(),
        denied_hosts: vec![".denied.example".parse().unwrap()],
        only_allowed: true,
        ..loopback()
    };
    let web = web_with(rules, by_name);
    assert_eq!(number(&web, &call(url), "a").await, Err(Error::Refused(expected.to_owned())));
    let server = says("200 OK", r#"{"a": 1}"#).await;
    for host in ["127.0.0.1", "api.example"] {
        let url = format!("http://{host}:{}/", server.address.port());
        assert_eq!(number(&web, &call(url), "a").await.as_deref(), Ok("1"), "{host}");
    }
}

#[tokio::test]
async fn endpoints_of_the_api_server_are_not_asked() {
    let (api, beside) = (says("200 OK", "{}").await, says("200 OK", "{}").await);
    let names = Names::new(Rules { api_server: Some(("10.0.0.1".to_owned(), 443)), ..loopback() }, by_name);
    let web = Web::new(names.clone(), FairLimit::new(1 << 20, Counter::default()));
    let url = format!("http://api.example:{}/", api.address.port());
    assert!(web.get(&call(url.clone())).await.is_ok());
    names.guard(vec![api.address]);
    let refused = Some(Error::Refused("127.0.0.1 is the API server's".into()));
    assert_eq!(web.get(&call(url)).await.err(), refused);
    assert_eq!(web.get(&call(api.url("/"))).await.err(), refused);
    assert!(web.get(&call(beside.url("/"))).await.is_ok());
}

fn line(server: &str, method: &str) -> String {
    format!(
        "a cluster administrator permits it by a line in outbound.privateNetworks of the operator's settings: - \
         {{namespaces: [a], {server}, ports: [9], methods: [{method}]}}"
    )
}

#[rstest]
#[case("10.255.255.1", "10.255.255.1 is a private address", r#"networks: ["10.255.255.1"]"#)]
#[case("[::ffff:10.255.255.1]", "::ffff:10.255.255.1 is a private address", r#"networks: ["::ffff:10.255.255.1"]"#)]
#[case("100.64.0.1", "100.64.0.1 is a private address", r#"networks: ["100.64.0.1"]"#)]
#[case("[fd12::1]", "fd12::1 is a private address", r#"networks: ["fd12::1"]"#)]
#[case("db.prod.svc", "10.255.255.1 is a private address", "hosts: [db.prod.svc]")]
#[case("open.prod.svc", "1.0.0.1 is the address of a name of the cluster", "hosts: [open.prod.svc]")]
#[tokio::test]
async fn private_addresses_are_refused_with_the_line_that_permits_them(
    #[case] host: &str,
    #[case] words: &str,
    #[case] server: &str,
) {
    let other = PrivateRule { namespaces: vec!["b".into()], ..PrivateRule::default() };
    let web = web_with(Rules { private: vec![other], ..Rules::default() }, by_name);
    let call = call(format!("http://{host}:9/"));
    let refused = Err(Error::Refused(format!("{words}: {}", line(server, "GET"))));
    assert_eq!(web.get(&call).await.map(drop), refused);
    let refused = Err(Error::Refused(format!("{words}: {}", line(server, "POST"))));
    assert_eq!(web.post(&call, HeaderMap::new(), Vec::new()).await.map(drop), refused);
    assert_eq!(web.ask(&call, "text/plain", Vec::new()).await.map(drop), refused);
}

/// The connections of one namespace are not used by another one with other permissions.
#[tokio::test]
async fn who_may_not_ask_a_private_address_is_refused_after_somebody_who_may() {
    let rule = PrivateRule {
        namespaces: vec!["platform".into(), "metal".into()],
        methods: vec![reqwest::Method::GET],
        ..PrivateRule::default()
    };
    let web = web_with(Rules { private: vec![rule], ..Rules::default() }, by_name);
    let within = Duration::from_millis(200);
    let is_refused = |error: Option<Error>| matches!(error, Some(Error::Refused(_)));
    for url in ["http://reserved.prod.svc:9/", "http://240.255.255.1:9/"] {
        let of = |tenant: &str| Call { tenant: tenant.into(), within, ..call(url) };
        for tenant in ["platform", "metal"] {
            assert!(!is_refused(web.get(&of(tenant)).await.err()), "{tenant}");
            let posted = web.post(&of(tenant), HeaderMap::new(), Vec::new()).await;
            assert!(is_refused(posted.err()), "the rule is for GET");
        }
        assert!(is_refused(web.get(&of("shop")).await.err()));
        let worker = Call { origin: AddressOrigin::OwnPod, ..of("shop") };
        assert!(!is_refused(web.get(&worker).await.err()), "a pod of the object");
    }
    assert_eq!(web.kept(None), 3, "one for the rule, one for no rule, one for pods");
}
