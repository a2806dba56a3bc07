//! Tests of strategies over several processes, on the loopback network.

use ferrotune_devices::{Cluster, Replica, Strategy, StrategyError};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// A time that is far longer than a worker needs to end.
const LONG: Duration = Duration::from_secs(30);
const FOR_EVER: &str = "1000000000";

/// Path of the example `worker`, which cargo builds with the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    test.parent().and_then(|folder| folder.parent()).expect("a folder").join("examples/worker")
}

/// Addresses on the loopback network that no other test uses, and no outgoing connection, which uses 127.0.0.1.
pub(crate) fn addresses(count: u16) -> Vec<String> {
    static NEXT_PORT: AtomicU16 = AtomicU16::new(4000);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let first = NEXT_PORT.fetch_add(count, Ordering::Relaxed);
    (first..first + count).map(|port| format!("127.{}.{middle}.{low}:{port}", 1 + high % 254)).collect()
}

/// A worker in a child process.
struct Worker {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Worker {
    fn start(addresses: &[String], index: usize, arguments: &[&str]) -> Worker {
        let config =
            format!(r#"{{"cluster": {{"worker": {addresses:?}}}, "task": {{"type": "worker", "index": {index}}}}}"#);
        Worker::of(Command::new(program()).args(arguments).env("TF_CONFIG", config))
    }

    fn of(command: &mut Command) -> Worker {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        Worker { child, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    /// Waits for the end of the worker's first step.
    fn begin(&mut self) {
        assert_eq!(self.line(), "begun");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is ours");
    }

    /// The worker's weights, once it has ended with success.
    fn weights(mut self) -> Vec<f64> {
        self.begin();
        let line = self.line();
        let (success, words) = self.end();
        assert!(success, "{words}");
        line.split(' ').map(|bits| f64::from_bits(u64::from_str_radix(bits, 16).expect("bits"))).collect()
    }

    /// Whether the worker ended with success, and its standard error.
    fn end(&mut self) -> (bool, String) {
        let mut words = String::new();
        self.child.stderr.take().expect("it is piped").read_to_string(&mut words).expect("text");
        (self.child.wait().expect("it ends").success(), words)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is dead");
    }
}

#[test]
fn processes_with_parts_of_a_batch_give_what_one_gives_on_the_whole() {
    let alone = Worker::of(Command::new(program()).arg("200").env_remove("TF_CONFIG")).weights();
    for count in [2, 3] {
        let addresses = addresses(count);
        let workers: Vec<_> = (0..count.into()).map(|index| Worker::start(&addresses, index, &["200"])).collect();
        let all: Vec<Vec<f64>> = workers.into_iter().map(Worker::weights).collect();
        assert!(all.iter().all(|weights| weights == &all[0]), "bit for bit the same on each of {count}");
        let worst = alone.iter().zip(&all[0]).map(|(one, all)| (one - all).abs()).fold(0.0, f64::max);
        assert!(worst < 1e-12, "{count} workers are off by {worst}");
    }
}

#[test]
fn a_worker_that_is_killed_ends_the_others_with_its_name() {
    let addresses = addresses(3);
    let mut workers: Vec<_> = (0..3).map(|index| Worker::start(&addresses, index, &[FOR_EVER])).collect();
    workers.iter_mut().for_each(Worker::begin);
    let started = Instant::now();
    workers[1].signal(Signal::KILL);
    for index in [0, 2] {
        let (success, words) = workers[index].end();
        assert!(!success);
        assert!(words.contains(&format!("worker 1 ({}) is gone: ", addresses[1])), "worker {index}: {words}");
    }
    assert!(started.elapsed() < LONG, "{:?}", started.elapsed());
}

#[test]
fn a_worker_that_hangs_ends_the_others_at_the_deadline_with_its_name() {
    let addresses = addresses(3);
    let mut workers: Vec<_> = (0..3).map(|index| Worker::start(&addresses, index, &[FOR_EVER, "2"])).collect();
    workers.iter_mut().for_each(Worker::begin);
    let started = Instant::now();
    workers[2].signal(Signal::STOP);
    for index in [0, 1] {
        let (success, words) = workers[index].end();
        assert!(!success);
        assert!(words.contains(&format!("worker 2 ({})", addresses[2])), "worker {index}: {words}");
        // The worker has found the timeout itself, or received it from a worker that had waited longer.
        assert!(words.contains("did not reach this step within 2 s: "), "worker {index}: {words}");
    }
    assert!(started.elapsed() < LONG, "{:?}", started.elapsed());
}

/// The results of several workers, which are threads of this process but connected over TCP.
fn together<T: Send>(strategies: &[Strategy], compute: impl Fn(&Strategy) -> T + Sync) -> Vec<T> {
    let compute = &compute;
    std::thread::scope(|threads| {
        let running: Vec<_> = strategies.iter().map(|strategy| threads.spawn(move || compute(strategy))).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn strategies(count: u16, devices: usize) -> Vec<Strategy> {
    let addresses = addresses(count);
    let strategy = |index| {
        let cluster = Cluster::new(addresses.clone(), index).expect("a place").with_timeouts(20, 20);
        Strategy::mirrored(vec!["cpu"; devices]).expect("devices").across(cluster)
    };
    (0..count.into()).map(strategy).collect()
}

#[test]
fn many_values_are_reduced_as_threads_reduce_them() {
    // The values fill more than a frame for each connection, in parts of different sizes.
    let value = |replica: usize, index: usize| ((replica * 31 + index) as f64 * 0.37).sin();
    let reduce = |strategy: &Strategy| {
        strategy.scope(|replica| {
            let mut values: Vec<f64> = (0..100_003).map(|index| value(replica.index(), index)).collect();
            replica.all_reduce_mean(&mut values).map(|()| values)
        })
    };
    let expected = reduce(&Strategy::mirrored(["cpu"; 3]).expect("devices")).swap_remove(0).expect("all are there");
    for worker in together(&strategies(3, 1), reduce) {
        assert!(worker == [Ok(expected.clone())], "another mean");
    }
}

#[test]
fn each_process_may_have_several_replicas() {
    let strategies = strategies(2, 2);
    assert_eq!((strategies[1].num_replicas_in_sync(), strategies[1].global_batch_size(8)), (4, 32));
    let means = together(&strategies, |strategy| {
        strategy.scope(|replica| {
            assert_eq!(replica.count(), 4);
            let mut values = [replica.index() as f64];
            (0..3).try_for_each(|_| replica.all_reduce_mean(&mut values)).map(|()| values[0])
        })
    });
    assert_eq!(means, vec![vec![Ok(1.5); 2]; 2]);
}

#[test]
fn fewer_values_than_workers_and_none_at_all_are_reduced() {
    let means = together(&strategies(3, 1), |strategy| {
        strategy.scope(|replica| {
            replica.all_reduce_mean::<f32>(&mut [])?;
            let mut values = [replica.index() as f32];
            replica.all_reduce_mean(&mut values).map(|()| values[0])
        })
    });
    assert_eq!(means, vec![vec![Ok(1.0)]; 3]);
}

#[test]
fn scopes_follow_each_other() {
    let means = together(&strategies(2, 1), |strategy| (0..3).map(|_| reduced(strategy)).collect::<Vec<_>>());
    assert_eq!(means, vec![vec![Ok(0.5); 3]; 2]);
}

#[test]
fn a_worker_that_takes_fewer_steps_is_named() {
    let strategies = strategies(2, 1);
    let ended = together(&strategies, |strategy| {
        strategy
            .scope(|replica| {
                let steps = if replica.index() == 0 { 1 } else { 2 };
                (0..steps).try_for_each(|_| replica.all_reduce_mean(&mut [1.0_f32]))
            })
            .swap_remove(0)
    });
    let address = strategies[0].cluster().expect("a cluster").workers()[0].clone();
    assert_eq!(ended[0], Ok(()));
    assert_eq!(ended[1], Err(StrategyError::Gone { worker: 0, address, reason: "it has ended its part".into() }));
}

#[test]
fn different_models_are_refused_in_every_process() {
    let ended = together(&strategies(2, 1), |strategy| {
        strategy.scope(|replica| replica.all_reduce_mean(&mut vec![0.0_f32; 5 + replica.index()])).swap_remove(0)
    });
    assert!(ended.iter().any(|ended| matches!(ended, Err(StrategyError::Lengths { .. }))), "{ended:?}");
    assert!(
        ended.iter().all(|ended| ended.as_ref().is_err_and(|error| error.to_string().contains("same model"))),
        "{ended:?}"
    );
}

#[test]
fn a_worker_that_does_not_come_is_named_at_the_deadline() {
    let addresses = addresses(2);
    let cluster = Cluster::new(addresses.clone(), 0).expect("a place").with_timeouts(1, 1);
    let started = Instant::now();
    let ended =
        Strategy::on("cpu").across(cluster).scope(|replica| replica.all_reduce_mean(&mut [1.0_f32])).swap_remove(0);
    let expected =
        format!("worker 1 ({}) did not come within 1 s: there was no answer; start all workers", addresses[1]);
    assert_eq!(ended.expect_err("nobody is there").to_string(), expected);
    assert!(started.elapsed() < LONG);
    let cluster = Cluster::new(addresses.clone(), 1).expect("a place").with_timeouts(1, 1);
    let first = Strategy::on("cpu").across(cluster).scope(|replica| {
        let first = replica.all_reduce_mean(&mut [1.0_f32]);
        // The replica does not try again to use a cluster that has failed.
        let started = Instant::now();
        assert_eq!(replica.all_reduce_mean(&mut [1.0_f32]), first);
        assert!(started.elapsed() < Duration::from_secs(1));
        first
    });
    let text = first[0].as_ref().expect_err("nobody is there").to_string();
    assert!(
        text.starts_with(&format!("worker 0 ({}) did not come within 1 s: Connection refused", addresses[0])),
        "{text}"
    );
}

#[test]
fn connection_from_another_program_is_ignored() {
    let strategies = strategies(2, 1);
    let address = strategies[0].cluster().expect("a cluster").workers()[0].clone();
    let means = std::thread::scope(|threads| {
        let first = threads.spawn(|| reduced(&strategies[0]));
        let mut caller = loop {
            match TcpStream::connect(&address) {
                Ok(stream) => break stream,
                Err(_) => std::thread::yield_now(),
            }
        };
        caller.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it listens");
        let second = threads.spawn(|| reduced(&strategies[1]));
        [first, second].map(|thread| thread.join().expect("no panic"))
    });
    assert_eq!(means, [Ok(0.5), Ok(0.5)]);
}

/// The mean of the replicas' numbers.
fn reduced(strategy: &Strategy) -> Result<f32, StrategyError> {
    let mean = |replica: &Replica<'_>| {
        let mut value = [replica.index() as f32];
        replica.all_reduce_mean(&mut value).map(|()| value[0])
    };
    strategy.scope(mean).swap_remove(0)
}

#[test]
fn workers_with_different_descriptions_are_strangers() {
    let addresses = addresses(3);
    let strategy = |workers: &[String], index| {
        let cluster = Cluster::new(workers.to_vec(), index).expect("a place").with_timeouts(2, 2);
        Strategy::on("cpu").across(cluster)
    };
    let ended = together(&[strategy(&addresses[..2], 0), strategy(&addresses, 1)], reduced);
    let texts: Vec<String> = ended.into_iter().map(|ended| ended.expect_err("they differ").to_string()).collect();
    assert!(
        texts[1]
            .contains(&format!("worker 0 ({}) does not belong to this cluster: it knows the workers", addresses[0])),
        "{texts:?}"
    );
    assert!(
        texts[0].contains(&format!("worker 1 ({}) did not come within 2 s: it knows the workers", addresses[1])),
        "{texts:?}"
    );
}

#[test]
fn an_address_of_another_host_is_refused() {
    let ended = reduced(&Strategy::multi_worker(["192.0.2.1:4000", "127.0.0.1:4001"], 0).expect("a place"));
    let text = ended.expect_err("it is not ours").to_string();
    assert!(text.starts_with("worker 0 cannot listen on 192.0.2.1:4000: "), "{text}");
}

#[test]
fn tf_config_is_read_as_tensorflow_reads_it() {
    let place =
        |text: &str| Cluster::from_tf_config(text).map(|cluster| (cluster.workers().join(" "), cluster.index()));
    let ok = |workers: &str, index| Ok((workers.to_owned(), index));
    let workers = r#"{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}"#;
    assert_eq!(place(workers), ok("a:1 b:2", 1));
    assert_eq!(place(&workers.replace('1', "\"0\"").replace("a:\"0\"", "a:1")), ok("a:1 b:2", 0));
    let chief =
        r#"{"cluster": {"chief": ["c:0"], "worker": ["a:1"], "ps": ["p:1"]}, "task": {"type": "TYPE", "index": 0}}"#;
    assert_eq!(place(&chief.replace("TYPE", "chief")), ok("c:0 a:1", 0));
    assert_eq!(place(&chief.replace("TYPE", "worker")), ok("c:0 a:1", 1));
    for (text, expected) in [
        ("", "it is not JSON"),
        ("{}", "task.index is null, not a number"),
        (&*chief.replace("TYPE", "ps"), "task.type is \"ps\", not worker or chief"),
        (&*workers.replace("\"index\": 1", "\"index\": 2"), "task.index is 2, and there are 2 of its type"),
        (&*workers.replace("b:2", "a:1"), "worker 1 has the address a:1 of an earlier one"),
        (&*workers.replace("b:2", "b"), "`b` has no port"),
        (r#"{"cluster": {"worker": "a:1"}, "task": {"index": 0}}"#, "cluster.worker is not a list of strings"),
    ] {
        let error = place(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{error}");
    }
}
