//! Trainings beside loops written by hand, on the CPU and on XLA:CPU.

mod cpu;
mod plugin;
