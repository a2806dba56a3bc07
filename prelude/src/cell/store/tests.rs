//! Tests of the store: what stays where it is, and what is dropped before what.

use super::*;
use std::rc::Rc;

/// The cell number is one for the whole process, so that one test at a time has cells.
static CELLS: Mutex<()> = Mutex::new(());

/// A value that writes its name down when it is dropped.
struct Named(&'static str, Rc<Mutex<Vec<&'static str>>>);

impl Drop for Named {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(self.0);
    }
}

/// A store with an owner `a` and its borrower `b`, in a new cell, and the names of what is dropped.
fn borrowed() -> (VariableStore, Rc<Mutex<Vec<&'static str>>>, MutexGuard<'static, ()>) {
    let alone = CELLS.lock().unwrap_or_else(PoisonError::into_inner);
    let dropped = Rc::new(Mutex::new(Vec::new()));
    let mut store = VariableStore::default();
    begin();
    store.put_variable("a", Named("a", Rc::clone(&dropped)));
    begin();
    store.lend::<Named>("a");
    store.put_borrower("b", Named("b", Rc::clone(&dropped)));
    begin();
    (store, dropped, alone)
}

#[test]
fn an_owner_stays_at_its_address_until_it_is_moved() {
    let (mut store, dropped, _alone) = borrowed();
    let address = store.lend::<Named>("a");
    begin();
    store.put_variable("c", 1);
    assert_eq!(store.lend::<Named>("a"), address);
    begin();
    let moved = store.take_variable::<Named>("a");
    assert_eq!(*dropped.lock().unwrap(), ["b"]);
    assert!(!store.check_borrower::<Named>("b"));
    drop(moved);
}

#[test]
fn what_a_borrower_lends_is_dropped_before_it() {
    let (mut store, dropped, _alone) = borrowed();
    store.lend::<Named>("b");
    store.put_borrower("c", Named("c", Rc::clone(&dropped)));
    begin();
    drop(store.take_variable::<Named>("a"));
    assert_eq!(*dropped.lock().unwrap(), ["c", "b", "a"]);
}

#[test]
fn a_borrower_may_borrow_from_all_that_a_cell_has_lent() {
    let (mut store, dropped, _alone) = borrowed();
    let borrower = store.take_variable::<Named>("b");
    store.settle("d", Named("d", Rc::clone(&dropped)));
    store.keep_settled::<Named>("d");
    store.put_borrower("b", borrower);
    begin();
    drop(store.take_variable::<Named>("d"));
    assert_eq!(*dropped.lock().unwrap(), ["b", "d"]);
}

#[test]
fn an_owner_whose_name_is_taken_lives_as_long_as_its_borrowers() {
    let (mut store, dropped, _alone) = borrowed();
    store.put_variable("a", 1);
    begin();
    assert!(store.check_variable::<i32>("a"));
    assert_eq!(*dropped.lock().unwrap(), [""; 0]);
    drop(store.take_variable::<Named>("b"));
    begin();
    store.put_variable("c", 1);
    assert_eq!(*dropped.lock().unwrap(), ["b", "a"]);
}

#[test]
fn what_a_failing_cell_has_settled_goes_with_its_borrowers() {
    let (mut store, dropped, _alone) = borrowed();
    let borrower = store.take_variable::<Named>("b");
    store.settle("d", Named("d", Rc::clone(&dropped)));
    store.put_borrower("b", borrower);
    begin();
    assert!(!store.check_variable::<Named>("d"));
    drop(store.take_variable::<Named>("b"));
    begin();
    store.put_variable("c", 1);
    assert_eq!(*dropped.lock().unwrap(), ["b", "d"]);
}

#[test]
#[should_panic(expected = "the variable a is lent to this cell")]
fn a_lent_variable_cannot_be_taken() {
    let (mut store, _, _alone) = borrowed();
    store.lend::<Named>("a");
    store.take_variable::<Named>("a");
}

#[test]
fn a_cell_that_knows_of_no_borrow_gets_no_borrower() {
    let (mut store, dropped, _alone) = borrowed();
    assert!(store.check_variable::<Named>("a"));
    assert!(store.check_borrower::<Named>("b"));
    assert!(!store.check_variable::<Named>("b"));
    assert_eq!(*dropped.lock().unwrap(), ["b"]);
}

#[test]
fn a_borrower_that_is_lent_may_borrow_from_what_is_lent_beside_it() {
    let (mut store, dropped, _alone) = borrowed();
    store.put_variable("d", Named("d", Rc::clone(&dropped)));
    begin();
    store.lend::<Named>("b");
    store.lend::<Named>("d");
    begin();
    drop(store.take_variable::<Named>("d"));
    assert_eq!(*dropped.lock().unwrap(), ["b", "d"]);
}

#[test]
fn what_goes_through_a_borrower_into_its_owner_is_borrowed_by_both() {
    let (mut store, dropped, _alone) = borrowed();
    store.put_variable("d", Named("d", Rc::clone(&dropped)));
    begin();
    store.lend::<Named>("b");
    store.put_borrower("c", Named("c", Rc::clone(&dropped)));
    begin();
    let through = store.take_variable::<Named>("c");
    store.lend::<Named>("d");
    store.put_borrower("c", through);
    begin();
    drop(store.take_variable::<Named>("d"));
    assert_eq!(*dropped.lock().unwrap(), ["c", "b", "d"]);
}
