//! Ganglion: a Kubernetes operator that changes workloads on request and by closed loops.
//!
//! The modules and their allowed dependencies, which `tests/rooms.rs` checks:
//!
//! ```text
//! main -> cli -> { app, logic, api }
//! app         -> { controllers, http, clients, caches, runtime, settings }
//! controllers -> { logic, api, caches, clients, runtime, metrics, kube }
//! http        -> { logic, api, caches, runtime, metrics }
//! clients     -> { logic (plain facts), metrics }
//! caches      -> { logic, api, runtime }
//! runtime     -> { logic (facts and world), metrics, kube }   no kind of ours
//! logic       -> { api, API types }              no client, tokio, http, tracing, env, clock
//! api         -> serde, schemars, kube derive    nothing of ours
//! ```
//!
//! Data flows one way: object → fact → plan → effect → object.

pub mod api;
pub mod app;
pub mod caches;
pub mod cli;
pub mod clients;
pub mod controllers;
pub mod http;
pub mod logic;
pub mod metrics;
pub mod runtime;
pub mod settings;
pub mod telemetry;
