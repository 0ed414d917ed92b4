//! For whom the API server is read: a loop, which has an account, or an object that has none.

use http::Response;
use kube::client::Body;

use super::objects::ReadError;
use ganglion_runtime::account::{Account, ObjectPath};
use ganglion_runtime::error::Error;
use ganglion_runtime::writer::Writer;

/// See the module.
#[derive(Clone, Copy)]
pub enum Behalf<'a> {
    /// A loop. ConfigMaps are read as its account.
    Account(&'a Account),
    /// An object without an account, in this namespace. ConfigMaps are read as the operator, where a RoleBinding of the namespace
    /// lets it.
    Operator { writer: &'a Writer, namespace: &'a str },
}

impl<'a> From<&'a Account> for Behalf<'a> {
    fn from(account: &'a Account) -> Self {
        Self::Account(account)
    }
}

impl Behalf<'_> {
    /// The namespace of the object.
    #[must_use]
    pub fn namespace(&self) -> &str {
        match self {
            Self::Account(account) => &account.namespace,
            Self::Operator { namespace, .. } => namespace,
        }
    }

    /// Reads an object as the account, or as the operator where there is none; the body is left to the caller, who bounds it.
    ///
    /// # Errors
    /// There is no answer. An error status is an answer.
    pub async fn open(&self, path: ObjectPath<'_>) -> Result<Response<Body>, Error> {
        match self {
            Self::Account(account) => account.open(path).await,
            Self::Operator { .. } => self.open_as_operator(path).await,
        }
    }

    /// Reads an object as the operator itself; the body is left to the caller, who bounds it.
    ///
    /// # Errors
    /// There is no answer. An error status is an answer.
    pub async fn open_as_operator(&self, path: ObjectPath<'_>) -> Result<Response<Body>, Error> {
        let writer = match self {
            Self::Account(account) => &account.writer,
            Self::Operator { writer, .. } => writer,
        };
        writer.send(path.request()?).await
    }

    /// Explains why [`Self::open`] gave nothing to read.
    #[must_use]
    pub fn words(&self, error: ReadError, what: &str) -> String {
        match self {
            Self::Account(account) => error.for_account(account, what),
            Self::Operator { namespace, .. } => error.for_operator(namespace, what),
        }
    }
}
