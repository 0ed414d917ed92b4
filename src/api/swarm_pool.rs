//! SwarmPool: jobs that are dealt out to the pods of a workload. Members of the spec, status and reasons have a file each below.

pub mod assignment;
