//! CMA-ES.
mod eigen;
mod margin;
mod rates;
mod strategy;
