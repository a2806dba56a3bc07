//! `%who` and `%whos`. The kernel knows a variable's name and type. The cell process finds its size and value: the kernel generates
//! a call of `ferrotune::cell::variables` for each variable.

use crate::engine::Engine;
use crate::failure::Failure;
use evcxr::{Access, Variable};
use ferrotune_magics::{Who, WhoStyle};

/// The import of the traits, one of which is chosen by the type of a variable.
const TRAITS: &str = "use ::ferrotune::cell::variables::{OfAny as _, OfDebug as _, OfElements as _, OfVector as _};";

impl Engine {
    pub(in crate::engine) fn who(&mut self, request: &Who) -> Result<(), Failure> {
        let wanted = request.type_name.as_deref().unwrap_or_default();
        let all = self.evaluator.variables();
        let mut variables = all.clone();
        variables.retain(|variable| variable.type_name.contains(wanted));
        let undecided = self.undecided().filter(|_| wanted.is_empty());
        match request.style {
            _ if variables.is_empty() && undecided.is_some() => {}
            _ if variables.is_empty() && wanted.is_empty() => self.show_text("there are no variables"),
            _ if variables.is_empty() => self.show_text(format!("no variable has {wanted} in its type")),
            WhoStyle::Names => {
                let names: Vec<String> = variables.into_iter().map(|variable| variable.name).collect();
                self.show_text(names.join("  "));
            }
            WhoStyle::Table => self.look(&table_of(&variables, &all))?,
        }
        if let Some(undecided) = undecided {
            self.show_text(undecided);
        }
        Ok(())
    }

    /// A line for the variables whose types no cell has decided yet.
    fn undecided(&self) -> Option<String> {
        let statements = &self.undo.now.undecided;
        let names: Vec<&str> = statements.iter().flat_map(|undecided| &undecided.names).map(String::as_str).collect();
        (!names.is_empty()).then(|| format!("undecided, until a cell uses them: {}", names.join("  ")))
    }

    /// Runs generated Rust that changes nothing, so that `%undo` does not count it.
    pub(in crate::engine) fn look(&mut self, source: &str) -> Result<(), Failure> {
        let cell = self.notebook.cell.take();
        self.link.begin(None);
        let looked = self.run_generated(source);
        self.notebook.cell = cell;
        self.link.begin(cell);
        looked
    }
}

fn table_of(variables: &[Variable], all: &[Variable]) -> String {
    // A look at a variable ends what borrows from it for itself alone.
    let sole_borrower = |owner: &str| {
        let borrows = |variable: &&Variable| variable.borrows.get(owner) == Some(&Access::Exclusive);
        all.iter().find(borrows).map(|variable| &variable.name)
    };
    let facts = |variable: &Variable| {
        let (name, type_name) = (&variable.name, variable.shown_type());
        let facts = match sole_borrower(name) {
            Some(borrower) => format!("::ferrotune::cell::variables::Facts::of_borrowed({borrower:?})"),
            None if !variable.borrows.is_empty() => {
                format!("(&&::ferrotune::cell::variables::Borrower(&{name})).facts()")
            }
            None => format!("(&&&&::ferrotune::cell::variables::Variable(&{name})).facts()"),
        };
        format!("(\"{name}\", {type_name:?}, {facts}),\n")
    };
    let facts: String = variables.iter().map(facts).collect();
    format!("{{ {TRAITS} ::ferrotune::cell::variables::show([\n{facts}]); }}")
}
