//! The evaluation of a cell, from its text to its outcome: the preparation of the lines, the evaluator and its state, places in the
//! source, errors and warnings in the user's own lines, and the return to earlier states.

pub(super) mod asking;
pub(super) mod commands;
pub(super) mod dependencies;
pub(super) mod evaluator;
pub(super) mod evaluator_state;
pub(super) mod implementations;
pub(super) mod insertions;
pub(super) mod link;
pub(super) mod origins;
pub(super) mod place;
pub(super) mod places;
pub(super) mod preparation;
pub(super) mod redeclaration;
pub(super) mod report;
pub(super) mod sharing;
pub(super) mod syntax;
pub(super) mod undecided;
pub(super) mod undo;
pub(super) mod warnings;
