//! Reads objects and lists of the API server, bounded in bytes like the answers of other servers, with the account of a
//! loop, or as the operator for objects without an account.
//!
//! Errors contain the kind and name of the object and the HTTP status. They do not contain the text of the API server,
//! which may quote another server.

use http::{Response, StatusCode};
use kube::client::Body;
use kube::core::Status;

use super::OutboundClient;
use ganglion_core::names::is_name;
use ganglion_core::words::quoted;
use ganglion_runtime::account::{Account, ObjectPath, binding_advice};
use ganglion_runtime::body::{self, BoundedBody, Unread};
use ganglion_runtime::error::{Class, Error};
use ganglion_runtime::writer::Writer;

/// Maximum size of the API server's error text in bytes.
const MAX_STATUS: usize = 64 << 10;

/// Identity with which objects are read.
#[derive(Clone, Copy)]
pub enum Behalf<'a> {
    /// Account of a loop, which reads ConfigMaps.
    Account(&'a Account),
    /// The operator, for an object without an account in this namespace. The operator reads ConfigMaps if a RoleBinding
    /// of the namespace allows it.
    Operator { writer: &'a Writer, namespace: &'a str },
}

impl<'a> From<&'a Account> for Behalf<'a> {
    fn from(account: &'a Account) -> Self {
        Self::Account(account)
    }
}

impl Behalf<'_> {
    /// Namespace of the object.
    pub fn namespace(&self) -> &str {
        match self {
            Self::Account(account) => &account.namespace,
            Self::Operator { namespace, .. } => namespace,
        }
    }

    /// Reads an object with the account if there is one, otherwise with the operator's own permissions. The caller
    /// bounds the body. An HTTP error status is not an `Err`.
    pub async fn open(&self, path: ObjectPath<'_>) -> Result<Response<Body>, Error> {
        match self {
            Self::Account(account) => account.open(path).await,
            Self::Operator { .. } => self.open_as_operator(path).await,
        }
    }

    /// Reads an object with the operator's own permissions. The caller bounds the body. An HTTP error status is not an
    /// `Err`.
    pub async fn open_as_operator(&self, path: ObjectPath<'_>) -> Result<Response<Body>, Error> {
        let writer = match self {
            Self::Account(account) => &account.writer,
            Self::Operator { writer, .. } => writer,
        };
        writer.send(path.request()?).await
    }

    /// Describes why an answer of [`Self::open`] was not read.
    pub fn words(&self, error: ReadError, what: &str) -> String {
        match self {
            Self::Account(account) => error.for_account(account, what),
            Self::Operator { namespace, .. } => error.for_operator(namespace, what),
        }
    }
}

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
    ) -> Result<BoundedBody, String> {
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
    ) -> Result<BoundedBody, ReadError> {
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

    /// Status of an answer with which the API server, or the server behind it, says that it failed.
    pub fn failure_status(&self) -> Option<StatusCode> {
        match self {
            Self::Api(Error::Unavailable(cause)) => match &**cause {
                kube::Error::Api(status) => StatusCode::from_u16(status.code).ok(),
                _ => None,
            },
            Self::Api(_) | Self::TooLong(_) | Self::Full => None,
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
        | Error::Dropped(_)
        | Error::Full
        | Error::Broken => format!("the request failed ({})", error.reason()),
    }
}

/// Checks an object name from a user before it becomes part of a URL path.
pub fn name(text: &str) -> Result<&str, String> {
    is_name(text).then_some(text).ok_or_else(|| format!("{} is not a valid object name", quoted(text)))
}
