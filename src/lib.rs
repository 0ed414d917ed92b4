//! Ganglion: a Kubernetes operator for workloads that have to be steered.
//!
//! The rooms, and who may use whom (`tests/rooms.rs` holds them to it):
//!
//! ```text
//! main -> cli -> app -> { controllers, http, clients, caches, lease, telemetry }
//! controllers -> { logic, api, clients (traits), caches, metrics, kube }
//! http        -> { logic, api, caches, metrics }
//! clients     -> { logic (plain facts), metrics }
//! caches      -> { logic (facts and world), api, metrics, kube }
//! lease       -> { metrics, kube }
//! logic       -> { api, API types }              no client, tokio, http, tracing, env, clock
//! api         -> serde, schemars, kube derive    nothing of ours
//! ```
//!
//! A fact flows one way: object → fact → plan → effect → object.

pub mod api;
pub mod app;
pub mod caches;
pub mod cli;
pub mod clients;
pub mod controllers;
pub mod http;
pub mod lease;
pub mod logic;
pub mod metrics;
pub mod settings;
pub mod telemetry;
