//! The requests of a poll: their credentials, and what follows where a server refuses them.

use std::time::Duration;

use jiff::Timestamp;

use super::register::host;
use super::{PollTrouble, problem};
use crate::api::node_config::reasons::NodeReason;
use crate::api::refs::{Auth, SecretRef};
use crate::clients::value::ValueError;
use crate::clients::web::Call;
use crate::clients::{self, redfish};
use crate::controllers::node_config::NodeConfigController;
use crate::controllers::node_config::login::{LockedUntil, Login};
use crate::controllers::outbound::{Behalf, Outgoing, REFUSED_SECRET_AGE, SECRET_AGE, Unanswered};
use crate::logic::node_config::asked::Server;
use crate::logic::node_config::readings::Problem;

/// How often a Secret is read again while it is missing or refused; nobody else is asked meanwhile.
const SECRET_PAUSE: Duration = Duration::from_secs(10);

/// A poll of one server.
pub struct Request<'a> {
    controller: &'a NodeConfigController,
    namespace: &'a str,
    server: &'a Server,
    /// Host and port.
    pub host: String,
    /// The request, with its credentials. Its URL may be changed.
    pub call: Call,
    /// Whether the Secret was read again.
    again: bool,
}

impl<'a> Request<'a> {
    /// Prepares a request with an answer of at most so many bytes. Fails where the login was refused a while ago.
    ///
    /// # Errors
    /// A Secret cannot be read, or its login must not be tried now.
    pub async fn prepare(
        controller: &'a NodeConfigController,
        namespace: &'a str,
        server: &'a Server,
        limit: usize,
    ) -> Result<Self, PollTrouble> {
        let host = host(&server.url);
        let login = login(namespace, server, &host);
        let is_refused = login.as_ref().is_some_and(|login| controller.memory.logins.is_refused(login));
        let age = if is_refused { REFUSED_SECRET_AGE } else { SECRET_AGE };
        let call = call(controller, namespace, server, limit, age).await?;
        let request = Self { controller, namespace, server, host, call, again: is_refused };
        match request.locked() {
            Some(until) => Err(request.refused(until)),
            None => Ok(request),
        }
    }

    /// Takes in how the request ended, without an error of the request itself or with one; whether it is to be repeated, with a
    /// newer Secret.
    ///
    /// # Errors
    /// The server refuses the login.
    pub async fn repeats(&mut self, error: Option<&clients::Error>) -> Result<bool, PollTrouble> {
        let login = login(self.namespace, self.server, &self.host);
        let Some(error) = error else {
            if let Some(login) = login {
                self.controller.memory.logins.accept(&login);
            }
            return Ok(false);
        };
        let is_refusal = error.is_refusal() && login.is_some();
        if !is_refusal && !is_distrust(error) {
            return Ok(false);
        }
        if !self.again {
            self.again = true;
            let newer = call(self.controller, self.namespace, self.server, self.call.limit, REFUSED_SECRET_AGE).await?;
            if newer.auth != self.call.auth || newer.ca != self.call.ca {
                self.call = Call { url: self.call.url.clone(), ..newer };
                return Ok(true);
            }
        }
        match (login, &self.call.auth) {
            (Some(login), Some(credentials)) if is_refusal => {
                let until = self.controller.memory.logins.refuse(login, credentials, self.controller.ctx.now());
                Err(self.refused(until))
            }
            _ => Ok(false),
        }
    }

    /// The trouble of an error that was not repeated.
    pub fn trouble_of_value(&self, error: &ValueError) -> PollTrouble {
        trouble(problem::of_value(&self.host, error))
    }

    /// The same for a BMC.
    pub fn trouble_of_bmc(&self, error: &redfish::Error) -> PollTrouble {
        trouble(problem::of_redfish(&self.host, error))
    }

    fn locked(&self) -> Option<LockedUntil> {
        let login = login(self.namespace, self.server, &self.host)?;
        self.controller.memory.logins.locked(&login, self.call.auth.as_ref()?)
    }

    fn refused(&self, until: LockedUntil) -> PollTrouble {
        let secret = self.server.secret.as_deref().unwrap_or_default();
        let words = format!(
            "{} refuses the login of Secret {secret}: it is tried again at {}, or as soon as the Secret changes",
            self.host,
            time(until.shown)
        );
        let left = until.at.saturating_duration_since(tokio::time::Instant::now());
        PollTrouble::waits(Problem::new(NodeReason::LoginRefused, words), left.min(SECRET_PAUSE))
    }
}

/// Whoever needs a Secret that cannot be used waits for it, and asks no server.
fn trouble(problem: Problem) -> PollTrouble {
    match problem.reason {
        NodeReason::SecretUnavailable => PollTrouble::waits(problem, SECRET_PAUSE),
        _ => PollTrouble::failed(problem),
    }
}

/// Whether the server's certificate is not trusted, for which a newer authority may help.
fn is_distrust(error: &clients::Error) -> bool {
    matches!(error, clients::Error::Certificate(_))
}

fn time(at: Timestamp) -> String {
    at.strftime("%H:%M UTC").to_string()
}

fn login(namespace: &str, server: &Server, host: &str) -> Option<Login> {
    let secret = server.secret.clone()?;
    Some(Login { namespace: namespace.to_owned(), host: host.to_owned(), secret })
}

async fn call(
    controller: &NodeConfigController,
    namespace: &str,
    server: &Server,
    limit: usize,
    age: Duration,
) -> Result<Call, PollTrouble> {
    let outbound = &controller.outbound;
    let on = Behalf::Operator { writer: &controller.ctx.writer, namespace };
    let basic = server.secret.as_ref().map(|name| SecretRef { name: name.clone() });
    let auth = basic.map(|basic| Auth { bearer: None, basic: Some(basic) });
    let request =
        Outgoing { url: &server.url, auth: auth.as_ref(), ca: server.ca.as_ref(), within: outbound.request_timeout };
    let call = outbound.call(on, request, age).await.map_err(|Unanswered { words, .. }| {
        PollTrouble::waits(Problem::new(NodeReason::SecretUnavailable, words), SECRET_PAUSE)
    })?;
    Ok(Call { limit, insecure: server.insecure, ..call })
}
