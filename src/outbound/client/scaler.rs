//! Questions to external scalers of KEDA, with credentials and certificates from Secrets.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::sleep;

use super::{Behalf, OutboundClient, Outgoing, REFUSED_SECRET_AGE, SECRET_AGE, Unanswered};
use crate::Error;
use crate::external_scaler::wire::ScaledObjectRef;
use crate::external_scaler::{ExternalScaler, ReconnectPauses, ScalerQuestion, server_url};
use crate::web::grpc::GrpcCall;
use ganglion_api::closed_loop::scaler::ScalerTls;
use ganglion_api::refs::Auth;
use ganglion_runtime::account::Account;

/// Keys of a Secret of type `kubernetes.io/tls`.
const TLS_KEYS: [&str; 2] = ["tls.crt", "tls.key"];

/// Minimum time between two messages of a stream: a scaler that sends without a pause is read slowly, and has to wait.
const READ_PAUSE: Duration = Duration::from_millis(100);

/// External scaler as specified by a user.
#[derive(Clone, Copy)]
pub struct AskedScaler<'a> {
    /// Host and port.
    pub address: &'a str,
    /// None: the connection is not encrypted.
    pub tls: Option<&'a ScalerTls>,
    pub auth: Option<&'a Auth>,
    /// Object that the request is about.
    pub object: &'a ScaledObjectRef,
    /// Timeout of a question.
    pub within: Duration,
}

/// News of a stream.
#[derive(Debug)]
pub enum ActivityNews {
    /// The scaler says that it is active.
    Active,
    /// The stream could not be opened, has ended, or is broken. It says nothing about the activity.
    Closed(String),
}

impl AskedScaler<'_> {
    /// Adds the address of the scaler to an error.
    fn unanswered(&self, error: impl Into<Unanswered>) -> Unanswered {
        let error = error.into();
        Unanswered { words: format!("external scaler {}: {}", self.address, error.words), ..error }
    }
}

impl OutboundClient {
    /// Asks a scaler. If it refuses the Secrets, they are read again, and if they have changed, the question is
    /// repeated.
    pub async fn ask_scaler(
        &self,
        account: &Account,
        asked: AskedScaler<'_>,
        question: ScalerQuestion<'_>,
    ) -> Result<String, Unanswered> {
        let web = self.web();
        let call = self.scaler_call(account, asked, SECRET_AGE).await?;
        let mut answer = ExternalScaler { web, call: &call, object: asked.object }.ask(question).await;
        if asked.auth.is_some() && answer.as_ref().is_err_and(Error::is_refusal) {
            let again = self.scaler_call(account, asked, REFUSED_SECRET_AGE).await?;
            if again.call.auth != call.call.auth {
                answer = ExternalScaler { web, call: &again, object: asked.object }.ask(question).await;
            }
        }
        answer.map_err(|error| asked.unanswered(error))
    }

    /// Keeps the stream of the activity open, and opens it again after a pause whenever it is closed. Streams are
    /// limited in number, and fair by namespace; others wait.
    pub async fn follow_scaler(
        &self,
        account: &Account,
        asked: AskedScaler<'_>,
        report: impl Fn(ActivityNews),
    ) -> Infallible {
        let _permit = self.streams.acquire(&account.namespace, 1).await;
        let mut pauses = ReconnectPauses::default();
        loop {
            let closed = self.read_activity(account, asked, &mut pauses, &report).await;
            report(ActivityNews::Closed(closed.words));
            sleep(pauses.pause()).await;
        }
    }

    /// Reads one stream to its end. Returns why it has ended.
    async fn read_activity(
        &self,
        account: &Account,
        asked: AskedScaler<'_>,
        pauses: &mut ReconnectPauses,
        report: &impl Fn(ActivityNews),
    ) -> Unanswered {
        let call = match self.scaler_call(account, asked, SECRET_AGE).await {
            Ok(call) => call,
            Err(error) => return error,
        };
        let scaler = ExternalScaler { web: self.web(), call: &call, object: asked.object };
        let mut stream = match scaler.open_activity().await {
            Ok(stream) => stream,
            Err(error) => return asked.unanswered(error),
        };
        loop {
            match stream.message().await {
                Ok(Some(activity)) => {
                    pauses.reset();
                    if activity.result {
                        report(ActivityNews::Active);
                    }
                    sleep(READ_PAUSE).await;
                }
                Ok(None) => return asked.unanswered("the stream has ended".to_owned()),
                Err(error) => return asked.unanswered(error),
            }
        }
    }

    /// Creates a call with credentials and certificates from Secrets that are not older than `age`.
    async fn scaler_call(
        &self,
        account: &Account,
        asked: AskedScaler<'_>,
        age: Duration,
    ) -> Result<GrpcCall, Unanswered> {
        let on = Behalf::from(account);
        let url = server_url(asked.address, asked.tls.is_some()).map_err(|error| asked.unanswered(error))?;
        let ca = asked.tls.and_then(|tls| tls.ca.as_ref());
        let request = Outgoing { url: &url, auth: asked.auth, ca, headers: &[], within: asked.within };
        let call = self.call(on, request, age).await?;
        let identity = match asked.tls.and_then(|tls| tls.certificate.as_ref()) {
            None => None,
            Some(secret) => {
                let [certificate, key] = self.secret(on, &secret.name, TLS_KEYS, age).await?;
                Some([certificate.as_slice(), b"\n", &key].concat().into())
            }
        };
        Ok(GrpcCall { call, identity })
    }
}
