//! Tests of models, metrics and losses through the public interface.

mod files;
mod models;
