//! The base of all controllers. Knows no kind of ours.
//!
//! | file | what it owns |
//! |---|---|
//! | `run`, `queue`, `backoff` | reconciles: queueing, concurrency, retries |
//! | `polls` | polls of machines and servers: when each begins, how many run at the same time |
//! | `watch`, `guard` | feeds of objects, converted to facts |
//! | `store` | the shared state behind its lock, and the queues to which a change adds objects |
//! | `context` | the dependencies that all controllers share |
//! | `writer`, `error`, `eviction` | requests: timeout, leader fence, field managers, error classes, evictions |
//! | `account`, `impersonation`, `discovery` | requests as a service account; whether they are allowed; discovery of kinds |
//! | `api_server` | the API server's own addresses |
//! | `certificate` | the certificate of the extender |
//! | `events` | Kubernetes Events |
//! | `lease` | leader election |
//! | `tasks` | tasks that must not end unnoticed |

pub mod account;
pub mod api_server;
pub mod backoff;
pub mod certificate;
pub mod context;
pub mod discovery;
pub mod dynamic;
pub mod error;
pub mod events;
pub mod eviction;
pub mod guard;
pub mod impersonation;
pub mod invalid;
pub mod lease;
pub mod metrics;
pub mod polls;
pub mod queue;
pub mod run;
pub mod server;
pub mod store;
pub mod tasks;
pub mod watch;
pub mod writer;
