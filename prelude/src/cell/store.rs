//! The store of a notebook's variables between cells.
//!
//! It has the interface of the store that evcxr writes into each cell. Here it is compiled once, and only the code that depends on
//! the type of a variable is generic.
//!
//! To the compiler, a struct is still the same type after the type of a field has been redefined. So the store keeps with each value
//! a fingerprint of the definitions behind its type, which the kernel computes, and compares it, too.

use std::any::{Any, TypeId};
use std::collections::{HashMap, HashSet};
use std::panic::{self, AssertUnwindSafe};
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

/// Begins a cell, in which no variable has been taken.
pub(super) fn begin() {
    *taken() = None;
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
}

#[derive(Debug)]
struct Variable {
    /// An `Option` of the variable's type.
    value: Box<dyn Any>,
    /// The fingerprint of the definitions on which the type depends, if the kernel has found any.
    definitions: Option<u64>,
}

impl VariableStore {
    /// Stores a variable.
    pub fn put_variable<T: 'static>(&mut self, name: &str, value: T) {
        self.put(name, Variable { value: Box::new(Some(value)), definitions: None });
    }

    /// Stores a variable whose type depends on definitions with this fingerprint.
    pub fn put_variable_as<T: 'static>(&mut self, name: &str, definitions: u64, value: T) {
        self.put(name, Variable { value: Box::new(Some(value)), definitions: Some(definitions) });
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

    /// Whether the variable exists and has this type. If not, drops the variable and reports that to the supervisor.
    pub fn check_variable<T: 'static>(&mut self, name: &str) -> bool {
        self.check(name, TypeId::of::<Option<T>>(), None)
    }

    /// Does the same as [`VariableStore::check_variable`] for a type that depends on definitions with this fingerprint.
    pub fn check_variable_as<T: 'static>(&mut self, name: &str, definitions: u64) -> bool {
        self.check(name, TypeId::of::<Option<T>>(), Some(definitions))
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
        match self.variables.get(name).and_then(|variable| variable.value.downcast_ref::<Option<Arc<T>>>()) {
            Some(Some(value)) => Arc::clone(value),
            _ => changed(name),
        }
    }

    fn put(&mut self, name: &str, variable: Variable) {
        if let Some(taken) = &mut *taken() {
            taken.remove(name);
        }
        self.variables.insert(name.to_owned(), variable);
    }

    #[expect(clippy::print_stdout, reason = "the supervisor reads this line")]
    fn check(&mut self, name: &str, wanted: TypeId, definitions: Option<u64>) -> bool {
        let Some(variable) = self.variables.get(name) else {
            // The cell cannot run without the variable's value.
            println!("{VARIABLE_CHANGED_TYPE}{name}");
            return false;
        };
        let differs = variable.definitions.zip(definitions).is_some_and(|(kept, wanted)| kept != wanted);
        if (*variable.value).type_id() == wanted && !differs {
            return true;
        }
        println!("{VARIABLE_CHANGED_TYPE}{name}");
        // The code that drops the value belongs to the old type. A panic there must not end the process.
        if panic::catch_unwind(AssertUnwindSafe(|| drop(self.variables.remove(name)))).is_err() {
            eprintln!("dropping the variable {name} panicked");
        }
        false
    }

    fn take(&mut self, name: &str) -> &mut dyn Any {
        match self.variables.remove(name) {
            Some(variable) => {
                taken().get_or_insert_default().insert(name.to_owned());
                &mut **self.emptied.insert(variable.value)
            }
            None => panic!("the variable {name} is gone"),
        }
    }
}

#[cold]
fn changed(name: &str) -> ! {
    panic!("the variable {name} has changed its type");
}

/// A new, empty store, which lives as long as the cell process.
pub fn create_variable_store() -> *mut VariableStore {
    Box::into_raw(Box::default())
}
