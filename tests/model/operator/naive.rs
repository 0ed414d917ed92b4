//! Naive.
