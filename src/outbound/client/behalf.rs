//! Identity with which objects are read from the API server: the account of a loop, or the operator for objects without
//! an account.

use http::Response;
use kube::client::Body;

use super::objects::ReadError;
use ganglion_runtime::account::{Account, ObjectPath};
use ganglion_runtime::error::Error;
use ganglion_runtime::writer::Writer;

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
