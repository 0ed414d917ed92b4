//! Reads objects and lists of the API server for loops, bounded in bytes like the answers of other servers.
//!
//! Errors contain the kind and name of the object and the HTTP status. They do not contain the text of the API server,
//! which may quote another server.

use http::{Response, StatusCode};
use kube::client::Body;
use kube::core::Status;

use super::OutboundClient;
use crate::body::{self, Bounded, Unread};
use ganglion_core::names::is_name;
use ganglion_runtime::account::{Account, binding_advice};
use ganglion_runtime::error::{Class, Error};

/// Maximum size of the API server's error text in bytes.
const MAX_STATUS: usize = 64 << 10;

/// Why an answer of the API server was not read.
pub enum ReadError {
    Api(Error),
    TooLong(usize),
    Full,
}

impl OutboundClient {
    /// Reads an answer for the account of a loop. The error text explains what to do.
    pub async fn read(
        &self,
        account: &Account,
        what: &str,
        opened: Result<Response<Body>, Error>,
        limit: usize,
    ) -> Result<Bounded, String> {
        match self.body(&account.namespace, opened, limit).await {
            Ok(body) => Ok(body),
            Err(error) => Err(error.for_account(account, what)),
        }
    }

    /// Reads an answer of at most this many bytes.
    pub async fn body(
        &self,
        namespace: &str,
        opened: Result<Response<Body>, Error>,
        limit: usize,
    ) -> Result<Bounded, ReadError> {
        let (head, body) = opened.map_err(ReadError::Api)?.into_parts();
        let limit = if head.status.is_success() { limit } else { MAX_STATUS };
        let body = body::read(body, limit, self.web.bytes(), namespace).await.map_err(|unread| match unread {
            Unread::TooLong => ReadError::TooLong(limit),
            Unread::Full => ReadError::Full,
            Unread::Broken(error) => ReadError::Api(error.into()),
        })?;
        if head.status.is_success() {
            return Ok(body);
        }
        let code = head.status.as_u16();
        let status = serde_json::from_slice::<Status>(&body.bytes).unwrap_or_else(|_| Status::failure("", ""));
        Err(ReadError::Api(kube::Error::Api(status.with_code(code).boxed()).into()))
    }
}

impl ReadError {
    /// Describes an error of a read with the account of a loop.
    pub fn for_account(self, account: &Account, what: &str) -> String {
        match self {
            Self::Api(Error::Forbidden(refused)) => account.refusal_message(&refused),
            error => error.words(&account.namespace, what),
        }
    }

    /// Describes an error of a read with the operator's own permissions.
    pub fn for_operator(self, namespace: &str, what: &str) -> String {
        match self {
            Self::Api(Error::Forbidden(refused)) => {
                format!("{what} cannot be read: {}", binding_advice(&refused, namespace))
            }
            error => error.words(namespace, what),
        }
    }

    /// Whether the next attempt may succeed without a change by a user.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Full => true,
            Self::TooLong(_) => false,
            Self::Api(error) => match error.class() {
                Class::After(_) => true,
                Class::Retry => !matches!(error, Error::NotFound(_)),
                Class::Terminal => matches!(error, Error::NotLeader),
            },
        }
    }

    fn words(self, namespace: &str, what: &str) -> String {
        match self {
            Self::Api(Error::NotFound(_)) => format!("there is no {what} in namespace {namespace}"),
            Self::Api(error) => format!("{what} cannot be read: {}", api_words(&error)),
            Self::TooLong(limit) => format!("{what} has more than {limit} bytes (setting outbound.maxBytes)"),
            Self::Full => crate::Error::Full.to_string(),
        }
    }
}

/// Describes an error without the text of the API server.
pub fn api_words(error: &Error) -> String {
    match error {
        Error::Unavailable(cause) => match &**cause {
            kube::Error::Api(status) => match StatusCode::from_u16(status.code) {
                Ok(code) => format!("the API server answers {code}"),
                Err(_) => "the API server answers with an error".to_owned(),
            },
            _ => "the API server cannot be reached".to_owned(),
        },
        Error::NotLeader | Error::Throttled(_) | Error::Timeout(_) => error.to_string(),
        Error::Conflict(_)
        | Error::AlreadyExists(_)
        | Error::NotFound(_)
        | Error::Forbidden(_)
        | Error::Denied(_)
        | Error::Doubtful(_)
        | Error::Malformed(_)
        | Error::Broken => format!("the request failed ({})", error.reason()),
    }
}

/// Checks an object name from a user before it becomes part of a URL path.
pub fn name(text: &str) -> Result<&str, String> {
    is_name(text).then_some(text).ok_or_else(|| format!("{text:?} is not a valid object name"))
}
