//! Going back: `%undo`, `%checkpoint`, `%restore` and `%checkpoints`.
//!
//! The cell supervisor keeps the variables of earlier states; here is what evcxr knew at each of them.

use super::insertions::Insertions;
use super::state::Picture;
use super::{Engine, FIRST_CELL, report};
use crate::execution::Failure;
use crate::prelude;
use evcxr::{Error, EvalOutputs};
use ferrotune_display::{Bundle, table};
use ferrotune_link::{MemoryReport, SnapshotKey, SnapshotReport, SupervisorReply, SupervisorRequest};
use ferrotune_machine::format;

/// What evcxr knew, and when.
#[derive(Default)]
pub(super) struct History {
    /// After the last cell that ran.
    pub(super) now: Picture,
    /// Before each cell that ran, oldest first. The supervisor keeps the variables of the last ones only.
    before: Vec<(u64, Picture)>,
    named: Vec<(String, Picture)>,
}

impl History {
    /// More are never kept.
    const MOST: usize = 64;

    /// A cell has run; what was known before it belongs to its snapshot.
    pub(super) fn ran(&mut self, cell: Option<u64>, now: Picture) {
        let before = std::mem::replace(&mut self.now, now);
        if let Some(cell) = cell.filter(|cell| self.before.last().is_none_or(|(last, _)| last != cell)) {
            self.before.push((cell, before));
            let excess = self.before.len().saturating_sub(Self::MOST);
            self.before.drain(..excess);
        }
    }

    /// The supervisor has ended, and all snapshots with it.
    pub(super) fn lose_variables(&mut self) {
        self.now.lose_variables();
        self.before.clear();
        self.named.clear();
    }
}

impl Engine {
    /// `%undo`: back to the state before the last cells.
    pub(super) fn undo(&mut self, count: u64) -> Result<(), Failure> {
        let kept: Vec<u64> = self.report()?.snapshots.iter().filter_map(before).collect();
        let before = &self.history.before;
        let index = usize::try_from(count).ok().and_then(|count| before.len().checked_sub(count));
        let Some((cell, picture)) = index.and_then(|index| before.get(index)).filter(|(cell, _)| kept.contains(cell))
        else {
            let text = match kept.len() {
                0 => "there is no cell that can be undone".to_owned(),
                1 => "only the last cell can be undone".to_owned(),
                most => format!("only the last {most} cells can be undone"),
            };
            return Err(report::failure("MagicError", text));
        };
        let (cell, picture) = (*cell, picture.clone());
        self.go_back(SnapshotKey::Before { cell }, picture)?;
        self.history.before.retain(|(number, _)| *number < cell);
        // What this cell runs after the magic can be undone.
        self.link.begin(self.cell);
        let cells = if count == 1 { "the last cell".to_owned() } else { format!("the last {count} cells") };
        self.show(Ok(Bundle::text(format!("undone: {cells}; {}", variables(&self.history.now)))))
    }

    /// `%checkpoint`: keeps the state as it is now.
    pub(super) fn checkpoint(&mut self, name: &str) -> Result<(), Failure> {
        self.ask(SupervisorRequest::Keep { name: name.to_owned() })?;
        self.history.named.retain(|(known, _)| known != name);
        self.history.named.push((name.to_owned(), self.history.now.clone()));
        self.show(Ok(Bundle::text(format!("kept as {name}; %restore {name} brings it back"))))
    }

    /// `%restore`: back to a state that has a name.
    pub(super) fn restore_checkpoint(&mut self, name: &str) -> Result<(), Failure> {
        let Some((_, picture)) = self.history.named.iter().find(|(known, _)| known == name) else {
            let names: Vec<&str> = self.history.named.iter().map(|(name, _)| name.as_str()).collect();
            let known = if names.is_empty() { "%checkpoint NAME makes one".to_owned() } else { names.join(", ") };
            return Err(report::failure("MagicError", format!("there is no checkpoint {name}; {known}")));
        };
        let picture = picture.clone();
        let left = self.history.now.clone();
        self.go_back(SnapshotKey::Named { name: name.to_owned() }, picture)?;
        let last = self.history.before.last().map(|(cell, _)| *cell);
        self.history.before.extend(self.cell.filter(|cell| last != Some(*cell)).map(|cell| (cell, left)));
        self.show(Ok(Bundle::text(format!("restored {name}; {}", variables(&self.history.now)))))
    }

    /// `%checkpoints`: what can be gone back to.
    pub(super) fn checkpoints(&mut self) -> Result<(), Failure> {
        let report = self.report()?;
        let rows: Vec<Vec<String>> = report.snapshots.iter().filter_map(|snapshot| self.row(snapshot)).collect();
        if rows.is_empty() {
            return self.show(Ok(Bundle::text("nothing is kept yet; %checkpoint NAME keeps the state as it is now")));
        }
        let header = ["state", "age", "private memory", "share of memory", "fork"];
        self.show(Ok(table(&header, &rows)))
    }

    fn row(&self, snapshot: &SnapshotReport) -> Option<Vec<String>> {
        let state = match &snapshot.key {
            SnapshotKey::Latest => return None,
            SnapshotKey::Named { name } => name.clone(),
            SnapshotKey::Before { cell } => {
                let index = self.history.before.iter().position(|(number, _)| number == cell)?;
                format!("%undo {}", self.history.before.len() - index)
            }
        };
        let age = format::duration(std::time::Duration::from_secs_f64(snapshot.age_s));
        let fork = format!("{:.1} ms", snapshot.cost_us as f64 / 1e3);
        let (private, share) = (format::bytes(snapshot.private_bytes), format::bytes(snapshot.share_bytes));
        Some(vec![state, age, private, share, fork])
    }

    /// `:clear`: another process without variables, and an evcxr that knows nothing.
    pub(super) fn clear(&mut self) -> Result<(), Failure> {
        self.start_anew(Picture::default())
    }

    /// `:restart`: another process without variables; the definitions stay.
    pub(super) fn restart(&mut self) -> Result<(), Failure> {
        let mut picture = self.history.now.clone();
        picture.lose_variables();
        self.start_anew(picture)
    }

    fn start_anew(&mut self, picture: Picture) -> Result<(), Failure> {
        let left = self.history.now.clone();
        let declared = self.redeclare(picture);
        let now = std::mem::replace(&mut self.history.now, left);
        self.history.ran(self.cell, now);
        declared
    }

    /// Brings variables and evcxr back to an earlier state.
    fn go_back(&mut self, to: SnapshotKey, picture: Picture) -> Result<(), Failure> {
        picture.cell().map_err(|error| report::failure("MagicError", crate::chain::in_one_line(&error)))?;
        let reply = self.ask(SupervisorRequest::Return { to })?;
        self.link.begin(None);
        if reply == SupervisorReply::Lost {
            self.history.lose_variables();
            self.redeclare(self.history.now.clone())?;
            return Err(report::failure(
                "EngineError",
                "the snapshot did not wake in time, and the variables are lost",
            ));
        }
        self.redeclare(picture)
    }

    /// Gives evcxr another idea of the notebook.
    pub(super) fn redeclare(&mut self, picture: Picture) -> Result<(), Failure> {
        let own = self.cell.take();
        // An interrupt now would leave evcxr without an idea of the notebook.
        self.link.engine_starts();
        let declared = self.declare(picture);
        self.link.engine_runs();
        self.cell = own;
        match declared {
            Ok(picture) => self.history.now = picture,
            // evcxr has forgotten all, and learned nothing.
            Err(failure) => {
                self.history.now = Picture::default();
                return Err(failure);
            }
        }
        Ok(())
    }

    /// evcxr forgets everything and learns the picture, without the variables whose types had been defined anew by then.
    fn declare(&mut self, mut picture: Picture) -> Result<Picture, Failure> {
        self.evaluate_own(":clear")?;
        let dependencies = prelude::CRATES.iter().map(|name| {
            let (package, value) = self.prelude.analysis_dependency(name);
            format!("{package} = {value}")
        });
        let dependencies = dependencies.chain(picture.dependencies().iter().cloned());
        let dependencies: String = dependencies.map(|dependency| format!(":dep {dependency}\n")).collect();
        self.evaluate_own(&format!("{dependencies}{FIRST_CELL}"))?;
        loop {
            let cell =
                picture.cell().map_err(|error| report::failure("MagicError", crate::chain::in_one_line(&error)))?;
            let result = self.evaluate_once(&cell);
            let changed = self.link.take_changed();
            if changed.is_empty() {
                self.conclude_own(result)?;
                return Ok(picture);
            }
            picture.forget(&changed);
            self.tell_dropped(&changed);
        }
    }

    /// Runs what is no cell of the user's.
    fn evaluate_own(&mut self, source: &str) -> Result<(), Failure> {
        let result = self.evaluate_once(source);
        self.conclude_own(result)
    }

    fn conclude_own(&mut self, result: Result<EvalOutputs, Error>) -> Result<(), Failure> {
        self.conclude("", result, |errors| {
            let mut failure = report::compilation(errors, |_| false, &Insertions::default());
            failure.evalue = format!("the variables are there, but could not be declared anew: {}", failure.evalue);
            failure
        })
        .map(drop)
    }

    /// Asks the supervisor of the cells.
    pub(super) fn ask(&self, request: SupervisorRequest) -> Result<SupervisorReply, Failure> {
        match self.link.request(request) {
            Some(SupervisorReply::Refused { reason }) => Err(report::failure("MagicError", reason)),
            Some(reply) => Ok(reply),
            None => {
                Err(report::failure("EngineError", "the supervisor of the cells does not answer; restart the kernel"))
            }
        }
    }

    pub(super) fn report(&self) -> Result<MemoryReport, Failure> {
        match self.ask(SupervisorRequest::Report)? {
            SupervisorReply::Report { report } => Ok(report),
            _ => Err(report::failure("EngineError", "the supervisor of the cells gave another answer")),
        }
    }
}

fn before(snapshot: &SnapshotReport) -> Option<u64> {
    match &snapshot.key {
        SnapshotKey::Before { cell } => Some(*cell),
        SnapshotKey::Latest | SnapshotKey::Named { .. } => None,
    }
}

fn variables(picture: &Picture) -> String {
    match picture.names().as_slice() {
        [] => "there are no variables".to_owned(),
        names => format!("the variables are {}", names.join(", ")),
    }
}
