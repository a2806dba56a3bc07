//! What code borrows from variables of the notebook: which of them are lent to it, and which of its variables may borrow from them.

use super::ContextState;
use super::VariableMoveState;
use super::VariableState;
use crate::code_block::CodeBlock;
use crate::errors::CompilationError;
use crate::lifetimes::LIFETIME;
use crate::lifetimes::converted;
use crate::lifetimes::is_narrowed;
use crate::lifetimes::narrowed;
use crate::lifetimes::opened;
use crate::lifetimes::stored;
use crate::lifetimes::with_lifetime;
use crate::loans::Access;
use crate::loans::Loan;
use crate::loans::NAMELESS;
use crate::loans::is_users;
use crate::pointers;
use crate::unkept::Form;
use crate::unkept::Unkept;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

impl ContextState {
    /// Whether the code has a name in common with the borrows of this variable, or the variable has no part in any borrow.
    pub(super) fn is_used(&self, name: &str) -> bool {
        let borrows = self.is_borrower(name);
        let has_part = borrows || self.has_borrowers(name);
        !has_part || self.is_new(name) || self.loans.names.contains(name)
    }

    /// Whether the code takes this variable out of the store.
    fn is_loaded(&self, name: &str) -> bool {
        self.is_used(name) && !self.loans.shadowed.contains_key(name)
    }

    /// Whether stored variables borrow from this one.
    fn has_borrowers(&self, name: &str) -> bool {
        self.stored_variable_states.values().any(|state| state.borrows.contains_key(name))
    }

    /// Whether a variable of the store is lent to the code.
    pub(super) fn is_lent_from_store(&self, name: &str) -> bool {
        self.loans.lent.contains_key(name) && !self.is_new(name) && self.stored_variable_states.contains_key(name)
    }

    /// Whether the code needs the lifetime of what it borrows.
    pub(super) fn borrows(&self) -> bool {
        let takes = |(name, state): (&String, &VariableState)| !state.borrows.is_empty() && self.is_used(name);
        !self.loans.lent.is_empty() || !self.loans.borrowers.is_empty() || self.stored_variable_states.iter().any(takes)
    }

    /// Lends the owners that the code names, if it can read them, and ends the borrowers of the others.
    pub(super) fn lend_owners(&mut self) {
        let states = self.stored_variable_states.values();
        let mut owners: BTreeMap<String, Access> = BTreeMap::new();
        for (owner, access) in states.flat_map(|state| &state.borrows) {
            let known = owners.entry(owner.clone()).or_insert(*access);
            *known = (*known).max(*access);
        }
        owners.retain(|owner, _| self.loans.names.contains(owner));
        for (owner, access) in owners {
            if access == Access::Shared && !self.is_new(&owner) && self.stored_variable_states.contains_key(&owner) {
                let loan = if self.has_pointers_alone(&owner) { self.loan_of_new(&owner) } else { Loan::Shared };
                self.loans.lent.insert(owner, loan);
            } else {
                self.end_borrowers(&owner);
            }
        }
    }

    /// Lends the variables to which raw pointers of the code point. A pointer that is made of another one points where that does.
    pub(super) fn lend_to_pointers(&mut self, code: &CodeBlock) {
        if self.loans.is_off {
            return;
        }
        let statements = code.segments.iter().filter(|segment| is_users(segment));
        for pointer in statements.flat_map(|segment| pointers::values(&segment.code)) {
            let is_pointer = |state: &VariableState| pointers::is_pointer(&state.type_name);
            if !self.variable_states.get(&pointer.variable).is_some_and(is_pointer) {
                continue;
            }
            let is_inline = |name: &&String| self.state_of(name).is_some_and(|state| pointers::is_inline(&state.type_name));
            let containers = pointer.containers.iter().filter(is_inline).cloned();
            let mut targets: BTreeSet<String> = pointer.targets.iter().cloned().chain(containers).collect();
            targets.retain(|name| self.can_lend(name));
            let points_on = pointer.names.iter().any(|name| self.loans.borrowers.contains(name) || self.is_borrower(name));
            if targets.is_empty() && !points_on {
                continue;
            }
            for target in targets {
                let loan = self.first_loan(&target);
                self.loans.lent.entry(target).or_insert(loan);
            }
            self.loans.borrowers.insert(pointer.variable);
        }
    }

    fn state_of(&self, name: &str) -> Option<&VariableState> {
        self.variable_states.get(name).or_else(|| self.stored_variable_states.get(name))
    }

    fn is_borrower(&self, name: &str) -> bool {
        self.stored_variable_states.get(name).is_some_and(|state| !state.borrows.is_empty())
    }

    /// Ends the variables that borrow from this one: the store drops them before the code gets it.
    fn end_borrowers(&mut self, owner: &str) {
        let borrowers = self.stored_variable_states.iter().filter_map(|(name, state)| Some((name, state.borrows.get(owner)?)));
        let borrowers: Vec<(String, Access)> = borrowers.map(|(name, access)| (name.clone(), *access)).collect();
        for (name, access) in borrowers {
            let Some(state) = self.stored_variable_states.remove(&name) else { continue };
            self.loans.lent.remove(&name);
            if !self.is_new(&name) {
                // What a cell has lent counts for all that the cell has stored.
                let is_certain = state.borrows.len() == 1;
                self.unkeep(&name, Unkept::Ended { owner: owner.to_owned(), access, is_certain });
            }
            self.end_borrowers(&name);
            self.ended.insert(name, state);
        }
    }

    /// The user's code, in which uses of lent variables are uses of what references point to. None if that cannot be written.
    pub(super) fn with_loans(&self, user_code: CodeBlock) -> Option<CodeBlock> {
        self.loans.apply(user_code, |name| {
            let (state, loan) = (self.variable_states.get(name)?, self.loans.lent.get(name)?);
            let borrows = self.loans.borrowers.contains(name);
            let type_name = stored(&state.type_name);
            let (method, value) = if borrows {
                ("settle_borrower", converted(name, &type_name, LIFETIME, "'static"))
            } else {
                ("settle", name.to_owned())
            };
            let in_store = with_lifetime(&type_name, "'static");
            let address = format!("evcxr_variable_store.{method}::<{in_store}>(::std::stringify!({name}), {value})");
            Some(loan.reference(name, &type_name, borrows, &address))
        })
    }

    /// Lends no variable any more. Returns whether any was lent.
    pub(super) fn lend_nothing(&mut self) -> bool {
        let is_lending = !self.loans.lent.is_empty() || !self.loans.borrowers.is_empty();
        self.loans.is_off |= is_lending;
        // No error would say that a pointer points to what is gone.
        let owner = self.loans.lent.keys().next().cloned();
        for name in self.loans.borrowers.clone() {
            if self.is_new(&name) && self.state_of(&name).is_some_and(|state| pointers::is_pointer(&state.type_name)) {
                self.unkeep(&name, Unkept::Borrows(owner.clone()));
            }
        }
        for owner in std::mem::take(&mut self.loans.lent).into_keys() {
            self.end_borrowers(&owner);
        }
        self.loans.borrowers.clear();
        self.loans.nameless.clear();
        self.loans.shadowed.clear();
        is_lending
    }

    /// Lends what the errors say is borrowed. Returns whether anything has changed.
    pub(super) fn change_loans(&mut self, errors: &[CompilationError]) -> bool {
        if self.loans.is_off {
            return false;
        }
        let mut is_changed = false;
        let mut refused = BTreeSet::new();
        for error in errors {
            let owner = error.place();
            if let Some(owner) = owner.filter(|_| error.needs_more_than_to_read())
                && self.is_lent_from_store(owner)
                && self.has_borrowers(owner)
            {
                self.end_borrowers(owner);
                self.loans.lent.remove(owner);
                is_changed = true;
                continue;
            }
            let borrowers: Vec<&String> = error.borrowers.iter().filter(|name| self.can_borrow(name)).collect();
            if borrowers.is_empty() && !error.names_lifetime() {
                continue;
            }
            match owner.filter(|_| error.owner().is_some()) {
                // The new variable has the name of its owner.
                Some(owner) if borrowers.iter().any(|name| *name == owner) && self.stored_variable_states.contains_key(owner) => {
                    if self.is_new(owner) && !self.loans.shadowed.contains_key(owner) {
                        let is_mut = self.stored_variable_states[owner].is_mut;
                        let loan = if is_mut { Loan::Exclusive } else { Loan::Shared };
                        self.loans.shadowed.insert(owner.to_owned(), loan);
                        self.store_as_borrowers(&borrowers);
                        is_changed = true;
                    }
                }
                Some(owner) if self.can_lend(owner) && !error.borrowers.iter().any(|name| name == owner) => {
                    let before = self.loans.borrowers.len();
                    self.store_as_borrowers(&borrowers);
                    let is_known = self.loans.borrowers.len() == before;
                    match self.loans.lent.get(owner) {
                        None => {
                            let loan = self.first_loan(owner);
                            self.loans.lent.insert(owner.to_owned(), loan);
                            is_changed = true;
                        }
                        Some(_) if is_known => {
                            refused.insert(owner.to_owned());
                        }
                        Some(_) => is_changed = true,
                    }
                }
                None if error.code() == Some("E0716") => {
                    is_changed |= self.store_as_borrowers(&borrowers);
                    self.loans.nameless.extend(borrowers.into_iter().filter(|name| self.is_new(name)).cloned().collect::<Vec<_>>());
                }
                // The value has the lifetime of what is lent.
                None if error.code().is_none() && self.borrows() => is_changed |= self.store_as_borrowers(&borrowers),
                _ => {}
            }
        }
        if !is_changed {
            for owner in refused {
                if self.loans.lent.get(&owner) == Some(&Loan::Probed) {
                    self.loans.lent.insert(owner, Loan::Exclusive);
                    is_changed = true;
                }
            }
        }
        // What is behind `&mut` must not have the lifetime of the borrow.
        let clash = |error: &CompilationError| error.code().is_none() && error.message().starts_with("lifetime may not live long");
        is_changed || (errors.iter().any(clash) && self.narrow_borrowers())
    }

    /// Gives a new borrower whose type has several lifetimes the next one of them alone as that of what it borrows. The borrowers change
    /// one after the other; one that has no further lifetime has all of them again. Returns whether any has another type now.
    fn narrow_borrowers(&mut self) -> bool {
        let is_narrow = |name: &&String| self.variable_states.get(*name).is_some_and(|state| is_narrowed(&state.type_name));
        let first = self.loans.borrowers.iter().find(is_narrow).or_else(|| self.loans.borrowers.first()).cloned();
        let Some(first) = first else { return false };
        for name in self.loans.borrowers.range(first..) {
            let Some(state) = self.variable_states.get_mut(name) else { continue };
            if state.move_state != VariableMoveState::New {
                continue;
            }
            if let Some(type_name) = narrowed(&state.type_name) {
                state.type_name = type_name;
                return true;
            }
            state.type_name = opened(&state.type_name);
        }
        false
    }

    fn store_as_borrowers(&mut self, names: &[&String]) -> bool {
        let before = self.loans.borrowers.len();
        for name in names {
            let Some(state) = self.variable_states.get_mut(*name).filter(|state| state.move_state == VariableMoveState::New) else {
                continue;
            };
            if self.loans.borrowers.insert((*name).clone())
                && matches!(state.form, Form::Boxed | Form::Pinned)
                && let Some(bounds) = state.type_name.strip_suffix('>')
            {
                state.type_name = format!("{bounds} + '_>");
            }
        }
        self.loans.borrowers.len() > before
    }

    /// Whether a variable can be stored with what it borrows.
    fn can_borrow(&self, name: &str) -> bool {
        self.is_new(name) || self.is_borrower(name)
    }

    fn can_lend(&self, name: &str) -> bool {
        self.is_new(name) || self.stored_variable_states.contains_key(name)
    }

    fn first_loan(&self, name: &str) -> Loan {
        if self.has_borrowers(name) && !self.has_pointers_alone(name) { Loan::Shared } else { self.loan_of_new(name) }
    }

    /// The loan of a variable from which nothing borrows that the compiler knows of.
    fn loan_of_new(&self, name: &str) -> Loan {
        // What a reference points to can change, although the variable with the reference cannot.
        let can_change = self.state_of(name).is_some_and(|state| state.is_mut || state.type_name.contains("mut "));
        if can_change { Loan::Probed } else { Loan::Shared }
    }

    /// Whether only raw pointers refer to this variable. They leave it to others, as long as it stays where it is.
    fn has_pointers_alone(&self, owner: &str) -> bool {
        let mut borrowers = self.stored_variable_states.values().filter(|state| state.borrows.contains_key(owner));
        borrowers.all(|state| pointers::is_pointer(&state.type_name) && !state.type_name.contains(['&', '\'']))
    }

    /// The state in which code is compiled for its errors alone: everything that it names is there.
    pub(super) fn with_ended_borrowers(&self) -> ContextState {
        let mut state = self.clone();
        for name in std::mem::take(&mut state.loans.borrowers) {
            state.variable_states.remove(&name);
        }
        state.loans.lent.clear();
        state.loans.shadowed.clear();
        for (name, ended) in std::mem::take(&mut state.ended) {
            if !state.is_new(&name) {
                state.variable_states.insert(name.clone(), ended.clone());
            }
            state.stored_variable_states.insert(name, ended);
        }
        state
    }

    /// Records what the variables of code that has run may borrow from, as the store does.
    pub(super) fn record_borrows(&mut self) {
        // A borrower that the code has moved or declared anew counts, too: others may have its value.
        let loaded = self.stored_variable_states.iter();
        let loaded = loaded.filter(|(name, state)| !state.borrows.is_empty() && self.is_loaded(name));
        let mut in_use: BTreeMap<String, Access> =
            self.loans.lent.iter().map(|(name, loan)| (name.clone(), loan.access())).collect();
        let has_nameless = !self.loans.nameless.is_empty() || !self.loans.shadowed.is_empty();
        in_use.extend(has_nameless.then(|| (NAMELESS.to_owned(), Access::Exclusive)));
        let mut borrowers: BTreeSet<String> = self.loans.borrowers.clone();
        for (name, state) in loaded {
            if !self.is_new(name) {
                borrowers.insert(name.clone());
            }
            // Borrowers that are lent have their owners with them.
            let owners = Some(&state.borrows).filter(|_| !self.loans.lent.contains_key(name));
            for (owner, access) in owners.into_iter().flatten() {
                let known = in_use.entry(owner.clone()).or_insert(*access);
                *known = (*known).max(*access);
            }
        }
        in_use.retain(|owner, _| owner == NAMELESS || self.variable_states.contains_key(owner));
        // What the code puts into a borrower may go through it into the variables from which it borrows.
        let mut reached: Vec<&String> = in_use.keys().collect();
        while let Some(name) = reached.pop() {
            let Some(state) = self.stored_variable_states.get(name).filter(|state| !state.borrows.is_empty()) else { continue };
            if !self.is_new(name) && borrowers.insert(name.clone()) {
                reached.extend(state.borrows.keys());
            }
        }
        for name in borrowers {
            let Some(state) = self.variable_states.get_mut(&name) else { continue };
            state.type_name = stored(&state.type_name);
            state.borrows.extend(in_use.clone());
            state.borrows.remove(&name);
            // The store knows the owner.
            if state.borrows.is_empty() {
                state.borrows.insert(NAMELESS.to_owned(), Access::Exclusive);
            }
        }
    }
}
