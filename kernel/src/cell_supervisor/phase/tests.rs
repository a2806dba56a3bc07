//! Tests of sequences of events, with the effects and the phase that each event leads to. No test starts a process.

mod table;
mod walk;

use super::protocol::{GRACE, SIGNAL_AGAIN};
use super::{Course, Effect, Event, Phase, Protocol, Variables, WAKING};
use ferrotune_link::{CellEnding, CellOrder, KernelFrame, SnapshotKey, SupervisorReply};
use std::time::{Duration, Instant};
use table::{CRASH, LATEST, Table, completed, died, keep, made, order, refused, reply, restored, woken};

#[test]
fn crash_of_a_running_cell_wakes_the_snapshot_and_refuses_the_cell() {
    let mut table = Table::running(1);
    table.check(table.ended(), [Effect::Wake(LATEST)]);
    table.check(woken(), [restored(CRASH, true)]);
    table.check(made(2), [keep(2, None), Effect::Refuse]);
    assert_eq!(table.protocol.phase, Phase::Idle { variables: Variables::Held });
}

#[test]
fn process_that_has_replaced_another_is_not_killed_before_it_has_a_snapshot() {
    let mut table = Table::running(1);
    table.check(table.ended(), [Effect::Wake(LATEST)]);
    table.check(woken(), [restored(CRASH, true)]);
    table.check(table.interrupted(), []);
    table.check(table.interrupted(), []);
    table.due([Effect::Refuse]);
    assert_eq!(table.protocol.phase, Phase::Idle { variables: Variables::Held });
    // The process may make its snapshot late.
    table.check(made(2), [keep(2, None)]);
}

#[test]
fn crash_while_compiling_is_told_and_the_cell_still_runs() {
    let mut table = Table::after(1);
    table.check(Event::Begun { cell: Some(2) }, []);
    table.check(table.ended(), [Effect::Wake(LATEST)]);
    assert!(table.protocol.is_busy(), "evcxr and the kernel wait meanwhile");
    table.check(woken(), [restored(CRASH, false)]);
    table.check(Event::RunOrdered(order()), [Effect::Order(order())]);
    // The woken process may make its snapshot late; that snapshot is not of cell 2.
    table.check(made(3), [keep(3, None)]);
    table.check(completed(0), []);
    table.check(made(4), [keep(4, Some(2)), Effect::Complete]);
}

#[test]
fn thread_that_crashes_between_cells_without_a_snapshot_costs_the_variables() {
    let mut table = Table::after(1);
    table.check(table.ended(), [Effect::Wake(LATEST)]);
    table.check(Event::WakeFailed, [Effect::StartAnew, died(), Effect::HangUp]);
    // evcxr learns of the loss by the closed connection. The new process has no variables to give up.
    table.check(Event::RelayConnected, []);
    assert_eq!(table.protocol.phase, Phase::Idle { variables: Variables::None });
}

#[test]
fn woken_snapshot_that_dies_or_does_not_answer_is_replaced_by_a_process_without_variables() {
    for dies in [true, false] {
        let mut table = Table::running(1);
        table.check(table.ended(), [Effect::Wake(LATEST)]);
        let lost = [Effect::StartAnew, died(), Effect::HangUp];
        if dies {
            let ending = CellEnding::Exited { code: 0 };
            table.check(Event::Ended { ending, now: table.now }, lost);
        } else {
            let asked_at = table.now;
            table.due(lost);
            assert_eq!(table.now - asked_at, WAKING);
        }
        assert_eq!(table.protocol.phase, Phase::Idle { variables: Variables::None });
    }
}

#[test]
fn crash_while_the_snapshot_of_the_next_state_is_made_returns_to_the_state_before_the_cell() {
    let mut table = Table::running(1);
    table.check(completed(0), []);
    table.check(table.ended(), [Effect::Wake(LATEST)]);
    table.check(woken(), [restored(CRASH, true)]);
    // The cell was taken back, so its number cannot be undone with this snapshot.
    table.check(made(2), [keep(2, None), Effect::Refuse]);
}

#[test]
fn interrupted_cell_that_stops_is_concluded_as_ever() {
    let mut table = Table::running(1);
    table.check(table.interrupted(), [Effect::RefuseInput, Effect::Signal]);
    table.due([Effect::Signal]);
    table.check(Event::CellFailed, []);
    table.check(completed(0), []);
    assert_eq!(table.protocol.deadline(), None, "no cell is to be killed any more");
    table.check(made(2), [keep(2, Some(1)), Effect::Complete]);
}

#[test]
fn interrupted_cell_that_does_not_listen_is_killed_after_the_grace() {
    let mut table = Table::running(1);
    let asked_at = table.now;
    table.check(table.interrupted(), [Effect::RefuseInput, Effect::Signal]);
    for again in 1..GRACE.as_millis() / SIGNAL_AGAIN.as_millis() {
        table.due([Effect::Signal]);
        assert_eq!(table.now - asked_at, SIGNAL_AGAIN * u32::try_from(again).unwrap());
    }
    table.due([Effect::Kill]);
    assert_eq!(table.now - asked_at, GRACE);
    // The killed process may still report the end of the cell and a snapshot: that state is given up.
    table.check(completed(0), []);
    table.check(made(2), []);
    table.check(Event::Ended { ending: CellEnding::Signalled { signal: 9 }, now: table.now }, [Effect::Wake(LATEST)]);
    table.check(woken(), [restored(CellEnding::Stopped, true)]);
}

#[test]
fn second_interrupt_leaves_no_more_time() {
    let mut table = Table::running(1);
    table.check(table.interrupted(), [Effect::RefuseInput, Effect::Signal]);
    table.check(table.interrupted(), [Effect::Kill]);
    assert_eq!(table.protocol.phase, Phase::Killed { why: CellEnding::Stopped });
}

#[test]
fn interrupt_while_the_snapshot_is_made_stops_a_process_that_hangs() {
    let mut table = Table::running(1);
    table.check(completed(0), []);
    table.check(table.interrupted(), [Effect::RefuseInput, Effect::Signal]);
    table.check(Event::Due { now: table.now + GRACE }, [Effect::Kill]);
    table.check(table.ended(), [Effect::Wake(LATEST)]);
    table.check(woken(), [restored(CellEnding::Stopped, true)]);
}

#[test]
fn interrupt_while_compiling_cancels_the_cell_until_the_next_begins() {
    let mut table = Table::begun(1);
    table.check(table.interrupted(), []);
    for _ in 0..2 {
        table.check(Event::RunOrdered(order()), [Effect::Tell(KernelFrame::Cancelled), Effect::Refuse]);
    }
    table.check(Event::Begun { cell: Some(2) }, []);
    table.check(Event::RunOrdered(order()), [Effect::Order(order())]);
}

#[test]
fn interrupt_before_the_first_cell_cancels_nothing() {
    let mut table = Table { protocol: Protocol::new(), now: Instant::now() };
    table.check(table.interrupted(), []);
    table.check(Event::RunOrdered(order()), [Effect::Order(order())]);
}

#[test]
fn cell_that_takes_too_much_memory_is_killed_for_it() {
    let mut table = Table::running(1);
    let ending = CellEnding::OutOfMemory { peak_bytes: 3 << 30, limit_bytes: Some(2 << 30) };
    table.check(Event::OutOfMemory(ending.clone()), [Effect::Kill]);
    table.check(table.interrupted(), []);
    table.check(Event::Ended { ending: CellEnding::Signalled { signal: 9 }, now: table.now }, [Effect::Wake(LATEST)]);
    table.check(woken(), [restored(ending, true)]);
}

#[test]
fn cell_that_fails_after_a_move_is_taken_back() {
    let mut table = Table::running(1);
    table.check(Event::CellFailed, []);
    table.check(completed(1), [Effect::Kill]);
    assert_eq!(table.protocol.phase, Phase::Killed { why: CellEnding::TakenBack });

    // Without a snapshot, or if the cell did not fail, the variables that the cell has moved are gone.
    let mut table = Table::running(1);
    table.check(Event::CellFailed, []);
    table.check(Event::Completed { missing: 1, guarded: false }, []);
    table.check(made(2), [keep(2, Some(1)), Effect::Complete]);
    let mut table = Table::running(1);
    table.check(completed(1), []);
    table.check(made(2), [keep(2, Some(1)), Effect::Complete]);
}

#[test]
fn cell_with_a_type_that_was_defined_anew_is_refused_and_the_state_before_is_kept() {
    let mut table = Table::running(1);
    table.check(Event::TypeChanged("a".to_owned()), []);
    table.check(Event::TypeChanged("b".to_owned()), []);
    table.check(Event::CellFailed, []);
    let Phase::Running { course: Course::Changed(_), .. } = table.protocol.phase else { panic!("it does not run") };
    let names = vec!["a".to_owned(), "b".to_owned()];
    table.check(completed(0), [Effect::Tell(KernelFrame::Changed { names })]);
    table.check(made(2), [keep(2, Some(1)), Effect::Refuse]);
    // The kernel runs the cell again without the changed variables. No `%undo` returns to the state between the two runs.
    table.check(Event::RunOrdered(order()), [Effect::Order(order())]);
    table.check(completed(0), []);
    table.check(made(3), [keep(3, None), Effect::Complete]);
}

#[test]
fn process_that_hangs_before_a_refusal_can_be_interrupted() {
    let mut table = Table::running(1);
    table.check(Event::TypeChanged("a".to_owned()), []);
    table.check(completed(0), [Effect::Tell(KernelFrame::Changed { names: vec!["a".to_owned()] })]);
    table.check(table.interrupted(), [Effect::RefuseInput, Effect::Signal]);
    table.check(Event::Due { now: table.now + GRACE }, [Effect::Kill]);
    table.check(table.ended(), [Effect::Wake(LATEST)]);
    table.check(woken(), [restored(CellEnding::Stopped, true)]);
    table.check(made(2), [keep(2, None), Effect::Refuse]);
    // The user has stopped the cell, so its second run is not wanted either.
    table.check(Event::RunOrdered(order()), [Effect::Tell(KernelFrame::Cancelled), Effect::Refuse]);
}

#[test]
fn cell_that_cannot_be_loaded_is_refused() {
    let mut table = Table::running(1);
    let message = "no such file".to_owned();
    table.check(
        Event::LoadFailed { reason: message.clone() },
        [Effect::Tell(KernelFrame::Failed { message, location: None })],
    );
    table.check(made(2), [keep(2, None), Effect::Refuse]);
}

#[test]
fn cell_without_a_snapshot_is_concluded_and_the_user_is_told() {
    let mut table = Table::running(1);
    table.check(completed(0), []);
    let reason = "there is too little memory".to_owned();
    let frame = Effect::Tell(KernelFrame::Unguarded { reason: reason.clone() });
    table.check(Event::Unguarded { reason }, [Effect::Shelve { undo: Some(1) }, frame, Effect::Complete]);
}

#[test]
fn undo_wakes_the_snapshot_before_the_cell_and_evcxr_connects_anew() {
    let mut table = Table::after(1);
    let before = SnapshotKey::Before { cell: 1 };
    table.check(table.return_to(before.clone()), [Effect::Wake(before)]);
    table.check(woken(), [reply(SupervisorReply::Done)]);
    table.check(made(3), [keep(3, None)]);
    // A crash at this point does not change what the next relay means.
    table.check(table.ended(), [Effect::Wake(LATEST)]);
    table.check(woken(), [restored(CRASH, false)]);
    table.check(Event::RelayConnected, []);
    assert_eq!(table.protocol.phase, Phase::Idle { variables: Variables::Held });
}

#[test]
fn return_to_a_name_keeps_the_state_that_is_left_and_names_the_next_snapshot() {
    let mut table = Table::after(1);
    table.check(Event::Begun { cell: Some(2) }, []);
    let named = SnapshotKey::Named { name: "trained".to_owned() };
    table.check(table.return_to(named.clone()), [Effect::Shelve { undo: Some(2) }, Effect::Wake(named)]);
    table.check(woken(), []);
    let effects = [keep(3, None), Effect::Name("trained".to_owned()), reply(SupervisorReply::Done)];
    table.check(made(3), effects);
    assert_eq!(table.protocol.phase, Phase::Idle { variables: Variables::Returned });
}

#[test]
fn snapshot_that_comes_late_gets_its_name_all_the_same() {
    let named = || SnapshotKey::Named { name: "trained".to_owned() };
    let returned = || {
        let mut table = Table::after(1);
        table.check(table.return_to(named()), [Effect::Shelve { undo: None }, Effect::Wake(named())]);
        table.check(woken(), []);
        table.due([reply(SupervisorReply::Done)]);
        table
    };
    let mut table = returned();
    table.check(made(3), [keep(3, None), Effect::Name("trained".to_owned())]);
    table.check(made(4), [keep(4, None)]);
    // The state of another process is not the one with the name.
    let mut table = returned();
    table.check(table.ended(), [Effect::Wake(LATEST)]);
    table.check(woken(), [restored(CRASH, false)]);
    table.check(made(3), [keep(3, None)]);
}

#[test]
fn return_that_fails_is_answered_and_the_variables_are_lost() {
    let lost = || [Effect::StartAnew, reply(SupervisorReply::Lost)];
    let mut table = Table::after(1);
    table.check(table.return_to(LATEST), [Effect::Wake(LATEST)]);
    table.due(lost());

    let mut table = Table::after(1);
    let named = SnapshotKey::Named { name: "trained".to_owned() };
    table.check(table.return_to(named.clone()), [Effect::Shelve { undo: None }, Effect::Wake(named)]);
    table.check(woken(), []);
    table.check(table.ended(), lost());
    table.check(Event::RelayConnected, []);
}

#[test]
fn relay_that_evcxr_restarts_gives_the_variables_up() {
    let mut table = Table::after(1);
    table.check(Event::Begun { cell: Some(2) }, []);
    table.check(Event::RelayConnected, [Effect::Shelve { undo: Some(2) }, Effect::StartAnew]);
    table.check(Event::RelayConnected, []);

    let mut table = Table::running(1);
    table.check(Event::RelayConnected, [Effect::Shelve { undo: Some(1) }, Effect::StartAnew]);
    assert_eq!(table.protocol.phase, Phase::Idle { variables: Variables::None });
}

#[test]
fn running_cell_is_neither_replaced_nor_trimmed() {
    let mut settling = Table::running(1);
    settling.check(completed(0), []);
    for mut table in [Table::running(1), settling] {
        table.check(table.return_to(LATEST), [refused("a cell is running")]);
        let trim = Event::TrimRequested { number: 7, forget: false, now: table.now };
        table.check(trim, [refused("a cell is running")]);
        assert!(table.protocol.is_running());
    }
}

#[test]
fn trimming_ends_with_an_answer_in_time_or_without() {
    let trim = |table: &Table| Event::TrimRequested { number: 7, forget: true, now: table.now };
    let begun = || [Effect::ForgetUndo, Effect::Order(CellOrder::Trim)];
    let silent = || refused("the process of the cells does not answer; run it again");
    let mut table = Table::after(1);
    table.check(trim(&table), begun());
    table.check(made(3), [keep(3, None)]);
    table.check(Event::Trimmed, [reply(SupervisorReply::Done)]);

    let mut table = Table::after(1);
    table.check(trim(&table), begun());
    table.due([silent()]);
    table.check(Event::Trimmed, []);

    let mut table = Table::after(1);
    table.check(trim(&table), begun());
    table.check(table.ended(), [silent(), Effect::Wake(LATEST)]);
    table.check(woken(), [restored(CRASH, false)]);
}

#[test]
fn supervisor_ends_with_the_kernel_in_every_phase() {
    let mut settling = Table::running(1);
    settling.check(completed(0), []);
    let mut waking = Table::running(1);
    waking.check(waking.ended(), [Effect::Wake(LATEST)]);
    for mut table in [Table::begun(1), Table::running(1), Table::after(1), settling, waking] {
        table.check(Event::KernelGone, [Effect::Kill]);
        assert_eq!(table.protocol.phase, Phase::Over);
        table.check(table.ended(), []);
    }
}

#[test]
fn evcxr_hears_lines_only_while_it_waits_for_a_cell() {
    let mut table = Table::running(1);
    assert!(table.protocol.evcxr_listens());
    table.check(table.interrupted(), [Effect::RefuseInput, Effect::Signal]);
    table.check(Event::Due { now: table.now + Duration::from_secs(2) }, [Effect::Kill]);
    assert!(table.protocol.evcxr_listens());
    assert!(!Table::after(1).protocol.evcxr_listens());
}
