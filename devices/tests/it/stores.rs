//! Tests of values that the workers of a cluster share, on the loopback network.

use crate::workers::addresses;
use ferrotune_devices::{Cluster, Store, StoreError, StrategyError};
use std::thread;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(50);

fn cluster(addresses: &[String], index: usize, seconds: u64) -> Cluster {
    Cluster::new(addresses.iter().cloned(), index).expect("a cluster").with_timeouts(seconds, seconds)
}

/// Opens the store in so many workers, each in a thread, and calls `act` in each of them.
fn each<T: Send>(count: u16, act: impl Fn(usize, &Store) -> T + Sync) -> Vec<T> {
    let (addresses, act) = (addresses(count), &act);
    // The values are lost when the worker that keeps them ends, so all workers end together.
    let done = std::sync::Barrier::new(count.into());
    let (addresses, done) = (&addresses, &done);
    thread::scope(|threads| {
        let run = |index| {
            move || {
                let store = Store::open(&cluster(addresses, index, 30)).expect("all workers come");
                let result = act(index, &store);
                done.wait();
                result
            }
        };
        let running: Vec<_> = (0..count.into()).map(|index| threads.spawn(run(index))).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn each_worker_reads_what_another_one_has_stored_or_will_store() {
    let bytes = |worker: usize| vec![worker as u8; 100_000 * worker];
    let read = each(3, |index, store| {
        let next = (index + 1) % 3;
        let waiting = thread::scope(|threads| {
            let waiting = threads.spawn(|| store.get(format!("from {next}").as_bytes(), LONG));
            store.put(format!("from {index}").as_bytes(), &bytes(index)).expect("it is stored");
            waiting.join().expect("no panic")
        });
        waiting.expect("it is there") == bytes(next)
    });
    assert_eq!(read, [true; 3]);
}

#[test]
fn a_worker_may_wait_for_ever() {
    let read = each(2, |index, store| {
        let next = 1 - index;
        thread::scope(|threads| {
            let waiting = threads.spawn(|| store.get(format!("for ever {next}").as_bytes(), Duration::MAX));
            store.put(format!("for ever {index}").as_bytes(), b"it").expect("it is stored");
            waiting.join().expect("no panic")
        })
    });
    assert_eq!(read, [Ok(b"it".to_vec()), Ok(b"it".to_vec())]);
}

#[test]
fn errors_name_the_value_and_the_workers() {
    let texts = each(2, |index, store| {
        let late = store.get(b"nothing", SHORT).expect_err("nobody stores it").to_string();
        let absent = store.get_now(b"nothing").expect_err("nobody stores it").to_string();
        let own = format!("own {index}");
        store.put(own.as_bytes(), b"1").expect("it is stored");
        let taken = store.put(own.as_bytes(), b"2").expect_err("it is there").to_string();
        (late, absent, taken)
    });
    for (index, (late, absent, taken)) in texts.into_iter().enumerate() {
        assert!(late.starts_with(&format!("worker {index} has waited ")), "{late}");
        assert!(late.contains(" s for the value of `nothing`, which no worker has stored"), "{late}");
        assert_eq!(absent, format!("worker {index} finds no value of `nothing`"));
        let expected = format!("worker {index} cannot store `own {index}`, which worker {index} has stored before");
        assert!(taken.starts_with(&expected), "{taken}");
    }
}

#[test]
fn workers_that_differ_all_learn_it() {
    let outcomes = each(3, |index, store| {
        store.agree("program", b"the same").expect("they agree");
        store.agree("program", if index == 2 { b"other" } else { b"same_" })
    });
    let differs = |worker, other| {
        let what = "program 2".to_owned();
        Err(StoreError::Differs { worker, other, what })
    };
    assert_eq!(outcomes, [differs(0, 2), differs(1, 2), differs(2, 0)]);
}

#[test]
fn a_worker_that_is_missing_or_a_stranger_is_named() {
    let pair = addresses(2);
    let missing = |index| Store::open(&cluster(&pair, index, 1)).expect_err("one is missing");
    assert!(matches!(missing(0), StrategyError::Missing { worker: 1, seconds: 1, .. }));
    assert!(matches!(missing(1), StrategyError::Missing { worker: 0, seconds: 1, .. }));
    let other = [pair[0].clone(), "127.0.0.1:9".to_owned()];
    thread::scope(|threads| {
        let first = threads.spawn(|| Store::open(&cluster(&pair, 0, 3)).expect_err("the other one is a stranger"));
        let stranger = Store::open(&cluster(&other, 1, 3)).expect_err("it has other workers");
        assert!(
            matches!(&stranger, StrategyError::Stranger { worker: 0, reason, .. } if reason.contains("it knows")),
            "{stranger}"
        );
        assert!(matches!(first.join().expect("no panic"), StrategyError::Missing { worker: 1, .. }));
    });
}

#[test]
fn a_store_that_is_gone_is_an_error_and_its_port_is_free() {
    let pair = addresses(2);
    let open = |index| Store::open(&cluster(&pair, index, 30)).expect("both come");
    let (first, second) = thread::scope(|threads| {
        let first = threads.spawn(|| open(0));
        let second = open(1);
        (first.join().expect("no panic"), second)
    });
    drop(first);
    let error = second.get(b"name", SHORT).expect_err("nobody answers");
    assert!(matches!(&error, StoreError::Unreachable { worker: 1, key, .. } if key == "name"), "{error}");
    std::net::TcpListener::bind(&pair[0]).expect("the port is free");
}
