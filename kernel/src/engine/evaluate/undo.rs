//! `%undo`, `%checkpoint`, `%restore` and `%checkpoints`, which keep and restore states of the notebook.
//!
//! The cell supervisor keeps snapshots with the variables of earlier states. This file keeps evcxr's state for each snapshot.

use crate::engine::Engine;
use crate::engine::evaluate::evaluator_state::EvaluatorState;
use crate::failure::{ErrorName, Failure};
use ferrotune_display::table;
use ferrotune_link::{SnapshotKey, SnapshotReport, SupervisorReply, SupervisorRequest};
use ferrotune_machine::format;
use std::time::Duration;

/// The present state of evcxr, and its states at the moments to which the notebook can return.
pub(in crate::engine) struct UndoStates {
    /// The state after the last cell that ran.
    pub(in crate::engine) now: EvaluatorState,
    /// The state before each cell that ran, oldest first. The supervisor keeps snapshots only of the most recent of these states.
    before: Vec<(u64, EvaluatorState)>,
    named: Vec<(String, EvaluatorState)>,
}

impl UndoStates {
    /// The largest number of kept states. The supervisor never keeps more snapshots.
    const MAX_STATES: usize = 64;

    pub(in crate::engine) fn new(now: EvaluatorState) -> Self {
        Self { now, before: Vec::new(), named: Vec::new() }
    }

    /// Records that a cell has run: the state before the cell belongs to the supervisor's snapshot of the same moment.
    pub(in crate::engine) fn record(&mut self, cell: Option<u64>, now: EvaluatorState) {
        let before = std::mem::replace(&mut self.now, now);
        self.add(cell, before);
        let excess = self.before.len().saturating_sub(Self::MAX_STATES);
        self.before.drain(..excess);
    }

    /// Adds the state before a cell. Only the first state of a cell is kept, since `%undo` undoes whole cells.
    fn add(&mut self, cell: Option<u64>, before: EvaluatorState) {
        let last = self.before.last().map(|(cell, _)| *cell);
        self.before.extend(cell.filter(|cell| last != Some(*cell)).map(|cell| (cell, before)));
    }

    /// The names of the checkpoints.
    pub(in crate::engine) fn names(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(|(name, _)| name.as_str())
    }

    /// Forgets the variables and all states, because the supervisor has ended or a snapshot did not wake.
    pub(in crate::engine) fn lose_variables(&mut self) {
        self.now.lose_variables();
        self.before.clear();
        self.named.clear();
    }
}

impl Engine {
    /// Carries out `%undo`, which returns to the state before the last cells.
    pub(in crate::engine) fn undo(&mut self, count: u64) -> Result<(), Failure> {
        let kept: Vec<u64> = self.supervisor.report()?.snapshots.iter().filter_map(cell_of).collect();
        let before = &self.undo.before;
        let index = usize::try_from(count).ok().and_then(|count| before.len().checked_sub(count));
        let Some((cell, state)) = index.and_then(|index| before.get(index)).filter(|(cell, _)| kept.contains(cell))
        else {
            let text = match kept.len() {
                0 => "there is no cell that can be undone".to_owned(),
                1 => "only the last cell can be undone".to_owned(),
                most => format!("only the last {most} cells can be undone"),
            };
            return Err(Failure::new(ErrorName::MagicError, text));
        };
        let (cell, state) = (*cell, state.clone());
        self.return_to(SnapshotKey::Before { cell }, state)?;
        self.undo.before.retain(|(number, _)| *number < cell);
        // The rest of this cell can be undone.
        self.link.begin(self.notebook.cell);
        let cells = if count == 1 { "the last cell".to_owned() } else { format!("the last {count} cells") };
        self.show_text(format!("undone: {cells}; {}", variables(&self.undo.now)));
        Ok(())
    }

    /// Carries out `%checkpoint`, which keeps the present state under a name.
    pub(in crate::engine) fn checkpoint(&mut self, name: &str) -> Result<(), Failure> {
        self.supervisor.ask(SupervisorRequest::Keep { name: name.to_owned() })?;
        self.undo.named.retain(|(known, _)| known != name);
        self.undo.named.push((name.to_owned(), self.undo.now.clone()));
        self.show_text(format!("kept as {name}; %restore {name} brings it back"));
        Ok(())
    }

    /// Carries out `%restore`, which returns to a state with a name.
    pub(in crate::engine) fn restore_checkpoint(&mut self, name: &str) -> Result<(), Failure> {
        let Some((_, state)) = self.undo.named.iter().find(|(known, _)| known == name) else {
            let names: Vec<&str> = self.undo.names().collect();
            let known = if names.is_empty() { "%checkpoint NAME makes one".to_owned() } else { names.join(", ") };
            return Err(Failure::new(ErrorName::MagicError, format!("there is no checkpoint {name}; {known}")));
        };
        let state = state.clone();
        let left = self.undo.now.clone();
        self.return_to(SnapshotKey::Named { name: name.to_owned() }, state)?;
        self.undo.add(self.notebook.cell, left);
        self.show_text(format!("restored {name}; {}", variables(&self.undo.now)));
        Ok(())
    }

    /// Carries out `%checkpoints`, which lists the states to which the notebook can return.
    pub(in crate::engine) fn checkpoints(&mut self) -> Result<(), Failure> {
        let report = self.supervisor.report()?;
        let rows: Vec<Vec<String>> = report.snapshots.iter().filter_map(|snapshot| self.row(snapshot)).collect();
        if rows.is_empty() {
            self.show_text("nothing is kept yet; %checkpoint NAME keeps the state as it is now");
        } else {
            self.show(table(&["state", "age", "private memory", "share of memory", "fork"], &rows));
        }
        Ok(())
    }

    fn row(&self, snapshot: &SnapshotReport) -> Option<Vec<String>> {
        let state = match &snapshot.key {
            SnapshotKey::Latest => return None,
            SnapshotKey::Named { name } => name.clone(),
            SnapshotKey::Before { cell } => {
                let index = self.undo.before.iter().position(|(number, _)| number == cell)?;
                format!("%undo {}", self.undo.before.len() - index)
            }
        };
        let age = format::duration(Duration::from_secs_f64(snapshot.age_s));
        let fork = format!("{:.1} ms", snapshot.cost_us as f64 / 1e3);
        let (private, share) = (format::bytes(snapshot.private_bytes), format::bytes(snapshot.share_bytes));
        Some(vec![state, age, private, share, fork])
    }

    /// Returns to an earlier state: the variables first, then evcxr.
    fn return_to(&mut self, to: SnapshotKey, state: EvaluatorState) -> Result<(), Failure> {
        let reply = self.supervisor.ask(SupervisorRequest::Return { to })?;
        self.link.begin(None);
        if reply == SupervisorReply::Lost {
            self.lose_variables()?;
            let text = "the snapshot did not wake in time, and the variables are lost";
            return Err(Failure::new(ErrorName::EngineError, text));
        }
        self.notebook.origins.returned();
        self.redeclare(state)
    }
}

/// The cell that a snapshot can undo.
fn cell_of(snapshot: &SnapshotReport) -> Option<u64> {
    match &snapshot.key {
        SnapshotKey::Before { cell } => Some(*cell),
        SnapshotKey::Latest | SnapshotKey::Named { .. } => None,
    }
}

fn variables(state: &EvaluatorState) -> String {
    match state.names().as_slice() {
        [] => "there are no variables".to_owned(),
        names => format!("the variables are {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evcxr::Variable;
    use std::collections::BTreeMap;

    /// A state whose only variable has this name.
    fn state(name: &str) -> EvaluatorState {
        let (name, type_name) = (name.to_owned(), "u8".to_owned());
        let variable = Variable { name, type_name, is_mut: false, borrows: BTreeMap::new() };
        EvaluatorState::new(String::new(), vec![variable], Vec::new())
    }

    fn before(states: &UndoStates) -> Vec<(u64, Vec<&str>)> {
        states.before.iter().map(|(cell, state)| (*cell, state.names())).collect()
    }

    #[test]
    fn a_cell_is_undone_to_the_state_before_its_first_part() {
        let mut states = UndoStates::new(state("a"));
        states.record(Some(1), state("b"));
        states.record(Some(1), state("c"));
        states.record(None, state("d"));
        states.record(Some(2), state("e"));
        assert_eq!(before(&states), [(1, vec!["a"]), (2, vec!["d"])]);
        assert_eq!(states.now.names(), ["e"]);
        states.lose_variables();
        assert_eq!((before(&states), states.now.names()), (vec![], vec![]));
    }

    #[test]
    fn the_oldest_states_are_forgotten() {
        let mut states = UndoStates::new(state("a"));
        (1..=100).for_each(|cell| states.record(Some(cell), state("a")));
        assert_eq!((states.before.len(), states.before[0].0), (UndoStates::MAX_STATES, 37));
    }
}
