//! The base of all controllers. Independent of our own kinds.
//!
//! | file | content |
//! |---|---|
//! | `run`, `queue`, `backoff` | reconciles: queueing, concurrency, retries |
//! | `polls` | polls of machines and servers: start times, concurrency limits |
//! | `background` | tasks beside the reconciles, one per object, whose answers reconciles read |
//! | `watch`, `guard` | feeds of objects, converted to facts |
//! | `store` | the shared state behind its lock, and the queues that changes feed |
//! | `context` | dependencies shared by all controllers |
//! | `writer`, `error`, `eviction` | requests: timeout, leader fence, field managers, error classes, evictions |
//! | `dropped` | fields that the API server dropped from a write |
//! | `children` | objects that a controller creates for its own objects |
//! | `account`, `permissions` | requests as a service account; whether they are allowed |
//! | `refusals` | missing permissions that may be a passing state of the API server |
//! | `discovery`, `dynamic` | discovery of kinds; requests for kinds known only at run time |
//! | `api_server` | addresses of the API server |
//! | `certificate` | the certificate of the extender |
//! | `events` | Kubernetes Events, and when a change of a condition is one |
//! | `body` | a body within the shared limit on bytes in flight |
//! | `fairness` | turns, counts and limits by namespace |
//! | `lease` | leader election |
//! | `tasks` | tasks that must not end unnoticed |

pub mod account;
pub mod api_server;
pub mod background;
pub mod backoff;
pub mod body;
pub mod certificate;
pub mod children;
pub mod context;
pub mod discovery;
mod dropped;
pub mod dynamic;
pub mod error;
pub mod events;
pub mod eviction;
pub mod fairness;
pub mod frame;
pub mod guard;
pub mod lease;
pub mod metrics;
pub mod permissions;
pub mod polls;
pub mod queue;
pub mod refusals;
pub mod run;
pub mod server;
pub mod status;
pub mod store;
pub mod tasks;
pub mod watch;
pub mod writer;
