//! What any controller stands on. Knows no kind of ours.
//!
//! | file | what it owns |
//! |---|---|
//! | `run`, `queue`, `backoff` | passes over objects: which, when, how many at once, what after a failure |
//! | `watch`, `guard` | feeds of objects, converted to facts |
//! | `store` | the world behind its lock, and which objects a change requeues |
//! | `context` | what all controllers work with |
//! | `writer`, `error` | requests: time limit, leader fence, field managers; what an answer means |
//! | `account`, `discovery` | requests as a service account; where the objects of any kind are |
//! | `events` | Kubernetes Events |
//! | `lease` | leader election |

pub mod account;
pub mod backoff;
pub mod context;
pub mod discovery;
pub mod error;
pub mod events;
pub mod guard;
pub mod lease;
pub mod queue;
pub mod run;
pub mod store;
pub mod watch;
pub mod writer;
