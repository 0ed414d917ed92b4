//! Calls of gRPC methods, with the limits of [`Web`]: allowed addresses, trust, timeout, size, bytes in flight.
//!
//! A call is a POST request over HTTP/2. tonic encodes its messages and reads the status at the end of the answer. The
//! calls of one namespace to one server with the same certificates share one connection; namespaces share none, so that
//! the unread answers of one cannot stop another. An unused connection is closed like those of other requests.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http_body_util::BodyExt;
use prost::Message;
use prost::bytes::Buf;
use reqwest::{Body, Method, StatusCode};
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder, Streaming};
use tonic::{Code, Request, Status};
use tower::service_fn;

use super::{Call, Web, asked, authorized, failure, parse, root};
use crate::address::TENANT;
use crate::private::PrivateAccess;
use crate::{Error, trust};

/// Timeout of a connection for a stream, which has no other timeout.
pub(super) const CONNECT: Duration = Duration::from_secs(30);

/// Call of a gRPC method.
#[derive(Clone, Debug)]
pub struct GrpcCall {
    /// Its URL is that of the server; its path is not used. `limit` is the maximum size of a message.
    pub call: Call,
    /// Certificate and key of the client, in PEM.
    pub identity: Option<Arc<[u8]>>,
}

/// Properties of a connection that other requests do not have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GrpcConnection {
    /// Namespace that uses the connection.
    namespace: String,
    /// See [`GrpcCall::identity`].
    pub identity: Option<Arc<[u8]>>,
}

/// Messages of an answer.
pub struct GrpcAnswers<A> {
    messages: Streaming<A>,
    limit: usize,
}

impl<A> GrpcAnswers<A> {
    /// The next message; None at the regular end of the answer.
    pub async fn message(&mut self) -> Result<Option<A>, Error> {
        self.messages.message().await.map_err(|status| error(&status, self.limit))
    }
}

impl Web {
    /// Calls a method that answers with one message. The server is not told the end, at which the call is cancelled: it
    /// would break the call at about the same time, and the error would be another one.
    pub async fn unary<Q, A>(&self, grpc: &GrpcCall, path: &'static str, question: Q, end: Instant) -> Result<A, Error>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let (call, url) = (&grpc.call, parse(&grpc.call.url)?);
        let asked = asked(call, &url, &Method::POST);
        let access = PrivateAccess::of(&self.names.rules().private, asked, call.origin);
        let work = async {
            let mut answers = self.open::<Q, A>(grpc, path, question).await?;
            let _permit = self.bytes.acquire(&call.tenant, call.limit).await;
            let answer = answers.message().await?.ok_or_else(|| no_grpc("its answer has no message"))?;
            match answers.message().await? {
                None => Ok(answer),
                Some(_) => Err(no_grpc("its answer has more than one message")),
            }
        };
        self.in_time(call, asked, &access, end, work).await
    }

    /// Calls a method that answers with a stream. Only the connection has a timeout: a server may be silent for long,
    /// and sends nothing before its first message.
    pub async fn open<Q, A>(&self, grpc: &GrpcCall, path: &'static str, question: Q) -> Result<GrpcAnswers<A>, Error>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let limit = grpc.call.limit;
        let mut client = Grpc::new(service_fn(|request| self.exchange(grpc, request))).max_decoding_message_size(limit);
        let path = PathAndQuery::from_static(path);
        let answer = client.server_streaming(Request::new(question), path, MessageCodec::<Q, A>(PhantomData)).await;
        Ok(GrpcAnswers { messages: answer.map_err(|status| error(&status, limit))?.into_inner(), limit })
    }

    /// Sends the request that tonic has made. The body of the answer is not read.
    async fn exchange(
        &self,
        grpc: &GrpcCall,
        request: http::Request<tonic::body::Body>,
    ) -> Result<http::Response<Body>, Error> {
        let (call, mut url) = (&grpc.call, parse(&grpc.call.url)?);
        let (head, body) = request.into_parts();
        // One small message, which is complete.
        let body = body.collect().await.map_err(|_| Error::Unfit("the request cannot be encoded".to_owned()))?;
        url.set_path(head.uri.path());
        let asked = asked(call, &url, &Method::POST);
        let access = PrivateAccess::of(&self.names.rules().private, asked, call.origin);
        let connection = GrpcConnection { namespace: call.tenant.clone(), identity: grpc.identity.clone() };
        let client = self.client(&url, call, asked, &access, Some(connection)).await?;
        let request = client.post(url.clone()).headers(head.headers).body(body.to_bytes());
        let request = authorized(request, call)?;
        let sent = TENANT.scope(call.tenant.clone(), request.send()).await;
        let response = sent.map_err(|error| failure(&error, asked))?;
        let content = response.headers().get(CONTENT_TYPE).map(|content| content.as_bytes());
        match response.status() {
            StatusCode::OK if content.is_some_and(|content| content.starts_with(b"application/grpc")) => {
                Ok(response.into())
            }
            StatusCode::OK => Err(no_grpc("its answer has another content type")),
            status => Err(super::good(status).err().unwrap_or_else(|| no_grpc("its answer has another status"))),
        }
    }
}

/// The server does not follow the protocol.
fn no_grpc(what: &str) -> Error {
    Error::Answer(format!("the server does not speak gRPC: {what}"))
}

/// Start of tonic's text about a message that is larger than the limit.
const TOO_LARGE: &str = "Error, decoded message length too large";

/// Error of a call: of this client if it made the status, otherwise the status that the server has sent. Its text is
/// not passed on.
fn error(status: &Status, limit: usize) -> Error {
    for cause in trust::causes(status) {
        if let Some(error) = cause.downcast_ref::<Error>() {
            return error.clone();
        }
        if let Some(broken) = cause.downcast_ref::<reqwest::Error>() {
            return Error::Broken(root(broken));
        }
    }
    match status.code() {
        Code::OutOfRange if status.message().starts_with(TOO_LARGE) => Error::TooLong(limit),
        code => Error::Grpc(code),
    }
}

/// Encodes questions, and decodes answers.
struct MessageCodec<Q, A>(PhantomData<(Q, A)>);

impl<Q, A> Codec for MessageCodec<Q, A>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    type Encode = Q;
    type Decode = A;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self(PhantomData)
    }

    fn decoder(&mut self) -> Self {
        Self(PhantomData)
    }
}

impl<Q, A> Encoder for MessageCodec<Q, A>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    type Item = Q;
    type Error = Status;

    fn encode(&mut self, question: Q, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        question.encode(into).map_err(|error| Status::from_error(error.into()))
    }
}

impl<Q, A> Decoder for MessageCodec<Q, A>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    type Item = A;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<A>, Status> {
        // The text of the error may quote the answer.
        let decoded = A::decode(from as &mut dyn Buf);
        decoded.map(Some).map_err(|_| Status::from_error(no_grpc("its message cannot be decoded").into()))
    }
}
