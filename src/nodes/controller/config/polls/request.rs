//! Requests of a poll to a server of a NodeConfig, and conversion of their errors.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};

use super::{PollTrouble, problem};
use crate::config::NodeConfigController;
use ganglion_api::node_config::reasons::NodeReason;
use ganglion_api::refs::{Auth, SecretRef};
use ganglion_nodes_plan::node_spec::SourceServer;
use ganglion_nodes_plan::readings::Problem;
use ganglion_outbound as clients;
use ganglion_outbound::client::attempt::{AskedServer, Asker, Attempt, SECRET_PAUSE, Withheld, WithheldWhy};
use ganglion_outbound::redfish;
use ganglion_outbound::value::ValueError;

/// Requests to one server.
pub struct NodeRequest<'a>(Attempt<'a>);

impl<'a> NodeRequest<'a> {
    /// Prepares a request with an answer of at most `limit` bytes. Fails if a Secret cannot be read or if the server
    /// refused its login recently.
    pub async fn prepare(
        controller: &'a NodeConfigController,
        namespace: &'a str,
        server: &'a SourceServer,
        limit: usize,
    ) -> Result<Self, PollTrouble> {
        let NodeConfigController { ctx, outbound, .. } = controller;
        let basic = server.secret.as_ref().map(|name| SecretRef { name: name.clone() });
        let auth = basic.map(|basic| Cow::Owned(Auth { bearer: None, basic: Some(basic) }));
        let (url, ca, insecure) = (server.url.as_str(), server.ca.as_ref(), server.insecure);
        let headers = &server.headers;
        let server = AskedServer { url, namespace, auth, ca, insecure, headers, limit };
        Ok(Self(Attempt::prepare(Asker { ctx, outbound }, server).await?))
    }

    /// See [`Attempt::repeats`].
    pub async fn repeats(&mut self, error: Option<&clients::Error>) -> Result<bool, PollTrouble> {
        Ok(self.0.repeats(error).await?)
    }

    /// Trouble for an error that was not repeated.
    pub fn trouble_of_value(&self, error: &ValueError) -> PollTrouble {
        trouble(problem::of_value(&self.host, error))
    }

    /// Same as [`Self::trouble_of_value`], for a BMC.
    pub fn trouble_of_bmc(&self, error: &redfish::Error) -> PollTrouble {
        trouble(problem::of_redfish(&self.host, error))
    }
}

impl<'a> Deref for NodeRequest<'a> {
    type Target = Attempt<'a>;

    fn deref(&self) -> &Attempt<'a> {
        &self.0
    }
}

impl DerefMut for NodeRequest<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl From<Withheld> for PollTrouble {
    fn from(Withheld { why, words, pause }: Withheld) -> Self {
        let reason = match why {
            WithheldWhy::Unreadable => NodeReason::SecretUnavailable,
            WithheldWhy::Refused => NodeReason::LoginRefused,
        };
        Self::waits(Problem::new(reason, words), pause)
    }
}

/// If a Secret is unusable, the poll waits for it instead of sending requests.
fn trouble(problem: Problem) -> PollTrouble {
    match problem.reason {
        NodeReason::SecretUnavailable => PollTrouble::waits(problem, SECRET_PAUSE),
        _ => PollTrouble::failed(problem),
    }
}
