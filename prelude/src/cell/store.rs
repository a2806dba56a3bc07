//! The store of a notebook's variables between cells.
//!
//! It has the interface of the store that evcxr writes into each cell. Here it is compiled once, and only the code that depends on
//! the type of a variable is generic: each cell compiles that code again. It must not drop a [`Pinned`] or anything larger.
//!
//! To the compiler, a struct is still the same type after the type of a field has been redefined. So the store keeps with each value
//! a fingerprint of the definitions behind its type, which the kernel computes, and compares it, too.
//!
//! A variable from which others borrow, their owner, stays at its address: cells get references to it, whose lifetime is a parameter
//! of the cell's function. So what borrows neither leaves the cell, but for the variables that it stores here, nor borrows
//! from the cell's own values. Whatever a cell has lent, or has loaded what borrows from it, counts as an owner of each borrower that
//! the cell stores. Before an owner is moved or dropped, its borrowers are dropped.

mod pinned;

use pinned::Pinned;
use std::any::{Any, TypeId};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::panic::{self, AssertUnwindSafe};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The message to the supervisor that a variable does not have the type that the cell expects.
pub const VARIABLE_CHANGED_TYPE: &str = "EVCXR_VARIABLE_CHANGED_TYPE:";
/// The message to evcxr that the cell ended at a `?`.
pub const USER_ERROR_OCCURRED: &str = "EVCXR_ERROR_OCCURRED";

/// The names of the variables that the running cell has taken and not put back.
static TAKEN: Mutex<Option<HashSet<String>>> = Mutex::new(None);

fn taken() -> MutexGuard<'static, Option<HashSet<String>>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of the running cell.
static CELL: AtomicU64 = AtomicU64::new(0);

/// Begins a cell, in which no variable has been taken.
pub(super) fn begin() {
    *taken() = None;
    CELL.fetch_add(1, Ordering::Relaxed);
}

/// The number of variables that the cell has moved: taken and not put back.
pub(super) fn missing() -> usize {
    taken().as_ref().map_or(0, HashSet::len)
}

fn is_missing(name: &str) -> bool {
    taken().as_ref().is_some_and(|taken| taken.contains(name))
}

/// The variables of a notebook, by name.
#[derive(Debug, Default)]
pub struct VariableStore {
    variables: HashMap<String, Variable>,
    /// The box of the variable that was taken last. It is dropped here, so that cells need no code for that.
    emptied: Option<Box<dyn Any>>,
    /// Owners that have no name any more, since a later variable has it.
    nameless: Vec<Variable>,
    /// The new variables of the running cell from which others borrow, with their names.
    settled: Vec<(String, Variable)>,
    /// The ids of the owners from which values of the running cell may borrow.
    in_use: BTreeSet<u64>,
    /// The number of the last cell that used the store.
    cell: u64,
    last_id: u64,
}

#[derive(Debug)]
struct Variable {
    id: u64,
    /// An `Option` of the variable's type.
    value: Pinned,
    /// The fingerprint of the definitions on which the type depends, if the kernel has found any.
    definitions: Option<u64>,
    /// The ids of the variables from which this one may borrow.
    owners: BTreeSet<u64>,
}

impl VariableStore {
    /// Stores a variable.
    pub fn put_variable<T: 'static>(&mut self, name: &str, value: T) {
        self.store(name, Pinned::new(Some(value)), None, false);
    }

    /// Stores a variable whose type depends on definitions with this fingerprint.
    pub fn put_variable_as<T: 'static>(&mut self, name: &str, definitions: u64, value: T) {
        self.store(name, Pinned::new(Some(value)), Some(definitions), false);
    }

    /// Stores a variable again that the cell has taken and shadowed, if the cell ended before it stored the new variable of that name.
    pub fn put_back<T: 'static>(&mut self, name: &str, value: T) {
        if is_missing(name) {
            self.put_variable(name, value);
        }
    }

    /// Does the same as [`VariableStore::put_back`] for a type that depends on definitions with this fingerprint.
    pub fn put_back_as<T: 'static>(&mut self, name: &str, definitions: u64, value: T) {
        if is_missing(name) {
            self.put_variable_as(name, definitions, value);
        }
    }

    /// Stores a variable that may borrow from whatever the cell has lent, and from the owners of what it has taken.
    pub fn put_borrower<T: 'static>(&mut self, name: &str, value: T) {
        self.store(name, Pinned::new(Some(value)), None, true);
    }

    /// Does the same as [`VariableStore::put_borrower`] for a type that depends on definitions with this fingerprint.
    pub fn put_borrower_as<T: 'static>(&mut self, name: &str, definitions: u64, value: T) {
        self.store(name, Pinned::new(Some(value)), Some(definitions), true);
    }

    /// Lends a variable to the cell, which may read it. The address is valid until the variable is moved or dropped.
    ///
    /// # Panics
    /// If the variable does not exist or has another type. [`VariableStore::check_variable`] detects that before.
    pub fn lend<T: 'static>(&mut self, name: &str) -> NonNull<T> {
        match pinned::content(self.lent(name)) {
            Some(address) => address,
            None => changed(name),
        }
    }

    /// Puts a new variable of the cell where it stays, and lends it to the cell. [`VariableStore::keep_settled`] stores it.
    pub fn settle<T: 'static>(&mut self, name: &str, value: T) -> NonNull<T> {
        self.settle_with(name, value, false)
    }

    /// Does the same as [`VariableStore::settle`] for a variable that may borrow, as of [`VariableStore::put_borrower`].
    pub fn settle_borrower<T: 'static>(&mut self, name: &str, value: T) -> NonNull<T> {
        self.settle_with(name, value, true)
    }

    /// Puts a value without a name where it stays as long as something borrows from it, and lends it to the cell.
    pub fn settle_nameless<T: 'static>(&mut self, value: T) -> NonNull<T> {
        self.settle("", value)
    }

    fn settle_with<T: 'static>(&mut self, name: &str, value: T, borrows: bool) -> NonNull<T> {
        match pinned::content(self.settled(name, Pinned::new(Some(value)), borrows)) {
            Some(address) => address,
            None => changed(name),
        }
    }

    /// Stores a variable that the cell has settled.
    pub fn keep_settled<T: 'static>(&mut self, name: &str) {
        self.keep(name, None);
    }

    /// Does the same as [`VariableStore::keep_settled`] for a type that depends on definitions with this fingerprint.
    pub fn keep_settled_as<T: 'static>(&mut self, name: &str, definitions: u64) {
        self.keep(name, Some(definitions));
    }

    /// Whether the variable exists, has this type and borrows from none. If not, drops the variable and reports that to the
    /// supervisor.
    pub fn check_variable<T: 'static>(&mut self, name: &str) -> bool {
        self.check(name, TypeId::of::<Option<T>>(), None, false)
    }

    /// Does the same as [`VariableStore::check_variable`] for a type that depends on definitions with this fingerprint.
    pub fn check_variable_as<T: 'static>(&mut self, name: &str, definitions: u64) -> bool {
        self.check(name, TypeId::of::<Option<T>>(), Some(definitions), false)
    }

    /// Does the same as [`VariableStore::check_variable`] for a variable that may borrow.
    pub fn check_borrower<T: 'static>(&mut self, name: &str) -> bool {
        self.check(name, TypeId::of::<Option<T>>(), None, true)
    }

    /// Does the same as [`VariableStore::check_borrower`] for a type that depends on definitions with this fingerprint.
    pub fn check_borrower_as<T: 'static>(&mut self, name: &str, definitions: u64) -> bool {
        self.check(name, TypeId::of::<Option<T>>(), Some(definitions), true)
    }

    /// Takes a variable out of the store.
    ///
    /// # Panics
    /// If the variable does not exist or has another type. [`VariableStore::check_variable`] detects that before.
    pub fn take_variable<T: 'static>(&mut self, name: &str) -> T {
        match self.take(name).downcast_mut().and_then(Option::take) {
            Some(value) => value,
            None => changed(name),
        }
    }

    /// A value that is made at the first call for its name.
    ///
    /// # Panics
    /// If a value of another type has this name.
    pub fn lazy_arc<T: 'static, F: FnOnce() -> T>(&mut self, name: &str, create: F) -> Arc<T> {
        if !self.variables.contains_key(name) {
            self.put_variable(name, Arc::new(create()));
        }
        let address = self.variables.get(name).and_then(|variable| pinned::content::<Arc<T>>(&variable.value));
        pinned::copied(address.unwrap_or_else(|| changed(name)))
    }

    fn lent(&mut self, name: &str) -> &Pinned {
        self.begin_cell();
        let Some(variable) = self.variables.get(name) else { gone(name) };
        self.in_use.insert(variable.id);
        &variable.value
    }

    fn settled(&mut self, name: &str, value: Pinned, borrows: bool) -> &Pinned {
        self.begin_cell();
        let variable = self.variable(value, None, borrows);
        self.in_use.insert(variable.id);
        let (_, variable) = self.settled.push_mut((name.to_owned(), variable));
        &variable.value
    }

    fn store(&mut self, name: &str, value: Pinned, definitions: Option<u64>, borrows: bool) {
        self.begin_cell();
        let variable = self.variable(value, definitions, borrows);
        self.put(name, variable);
    }

    fn keep(&mut self, name: &str, definitions: Option<u64>) {
        let Some(at) = self.settled.iter().rposition(|(settled, _)| settled == name) else { gone(name) };
        let (_, variable) = self.settled.remove(at);
        self.put(name, Variable { definitions, ..variable });
    }

    fn variable(&mut self, value: Pinned, definitions: Option<u64>, borrows: bool) -> Variable {
        self.last_id += 1;
        let owners = if borrows { self.in_use.clone() } else { BTreeSet::new() };
        Variable { id: self.last_id, value, definitions, owners }
    }

    fn put(&mut self, name: &str, variable: Variable) {
        if let Some(taken) = &mut *taken() {
            taken.remove(name);
        }
        if let Some(before) = self.variables.insert(name.to_owned(), variable)
            && (self.in_use.contains(&before.id) || self.has_borrowers(before.id))
        {
            self.nameless.push(before);
        }
    }

    #[expect(clippy::print_stdout, reason = "the supervisor reads this line")]
    fn check(&mut self, name: &str, wanted: TypeId, definitions: Option<u64>, may_borrow: bool) -> bool {
        self.begin_cell();
        let Some(variable) = self.variables.get(name) else {
            // The cell cannot run without the variable's value.
            println!("{VARIABLE_CHANGED_TYPE}{name}");
            return false;
        };
        let differs = variable.definitions.zip(definitions).is_some_and(|(kept, wanted)| kept != wanted);
        // A cell that does not know of a borrow would store the variable without its owners.
        let is_known = may_borrow || variable.owners.is_empty();
        if variable.value.type_id() == wanted && !differs && is_known {
            return true;
        }
        println!("{VARIABLE_CHANGED_TYPE}{name}");
        let variable = self.variables.remove(name);
        self.drop_after_borrowers(variable);
        false
    }

    fn take(&mut self, name: &str) -> &mut dyn Any {
        self.begin_cell();
        let Some(variable) = self.variables.remove(name) else { gone(name) };
        assert!(!self.in_use.contains(&variable.id), "the variable {name} is lent to this cell");
        self.drop_borrowers(variable.id);
        self.in_use.extend(&variable.owners);
        taken().get_or_insert_default().insert(name.to_owned());
        &mut **self.emptied.insert(variable.value.into_box())
    }

    /// Prepares for the first use by a cell: nothing is lent, and owners from which nothing borrows any more are dropped.
    fn begin_cell(&mut self) {
        let cell = CELL.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.cell, cell) == cell {
            return;
        }
        self.nameless.extend(std::mem::take(&mut self.settled).into_iter().map(|(_, variable)| variable));
        self.extend_owners();
        self.in_use.clear();
        while let Some(at) = self.nameless.iter().position(|owner| !self.has_borrowers(owner.id)) {
            let owner = self.nameless.swap_remove(at);
            self.drop_after_borrowers(Some(owner));
        }
    }

    /// Records that the last cell may have put borrows of all that it had in use into the borrowers which it had in use, and into those
    /// from which they borrow.
    fn extend_owners(&mut self) {
        let mut reached = self.in_use.clone();
        loop {
            let owners =
                self.variables.values().chain(&self.nameless).filter(|variable| reached.contains(&variable.id));
            let more: Vec<u64> = owners.flat_map(|variable| &variable.owners).copied().collect();
            let before = reached.len();
            reached.extend(more);
            if reached.len() == before {
                break;
            }
        }
        for variable in self.variables.values_mut().chain(&mut self.nameless) {
            if reached.contains(&variable.id) && !variable.owners.is_empty() {
                variable.owners.extend(self.in_use.iter().filter(|id| **id != variable.id));
            }
        }
    }

    fn has_borrowers(&self, id: u64) -> bool {
        self.variables.values().chain(&self.nameless).any(|variable| variable.owners.contains(&id))
    }

    fn drop_borrowers(&mut self, id: u64) {
        let borrows = |variable: &Variable| variable.owners.contains(&id);
        while let Some(name) =
            self.variables.iter().find(|(_, variable)| borrows(variable)).map(|(name, _)| name.clone())
        {
            let borrower = self.variables.remove(&name);
            self.drop_after_borrowers(borrower);
        }
        while let Some(at) = self.nameless.iter().position(borrows) {
            let borrower = self.nameless.swap_remove(at);
            self.drop_after_borrowers(Some(borrower));
        }
    }

    fn drop_after_borrowers(&mut self, variable: Option<Variable>) {
        let Some(variable) = variable else { return };
        self.drop_borrowers(variable.id);
        // The code that drops the value may belong to an old type. A panic there must not end the process.
        if panic::catch_unwind(AssertUnwindSafe(|| drop(variable))).is_err() {
            eprintln!("dropping a variable panicked");
        }
    }
}

#[cold]
fn gone(name: &str) -> ! {
    panic!("the variable {name} is gone");
}

#[cold]
fn changed(name: &str) -> ! {
    panic!("the variable {name} has changed its type");
}

/// A new, empty store, which lives as long as the cell process.
pub fn create_variable_store() -> *mut VariableStore {
    Box::into_raw(Box::default())
}

#[cfg(test)]
mod tests;
