//! Tests of replicas that compute together in one process.

use ferrotune_devices::probe::{Identity, OpenDevice, Opened};
use ferrotune_devices::{Cluster, Precision, Replica, Strategy, StrategyError};
use std::panic::{AssertUnwindSafe, catch_unwind};

const FEATURES: usize = 5;
const EXAMPLES: usize = 24;
const STEPS: usize = 200;

/// The weights after a linear regression by gradient descent on the examples of one replica.
fn fit(replica: &Replica<'_>) -> Result<Vec<f32>, StrategyError> {
    let value = |example: usize, feature: usize| ((example * FEATURES + feature) as f32 * 0.7).sin();
    let target = |example: usize| (example as f32 * 1.3).cos();
    let share = EXAMPLES / replica.count();
    let own = replica.index() * share..(replica.index() + 1) * share;
    let mut weights = vec![0.0_f32; FEATURES];
    for _ in 0..STEPS {
        let mut gradient = vec![0.0_f32; FEATURES];
        for example in own.clone() {
            let predicted: f32 = (0..FEATURES).map(|feature| weights[feature] * value(example, feature)).sum();
            let slope = 2.0 * (predicted - target(example)) / share as f32;
            (0..FEATURES).for_each(|feature| gradient[feature] += slope * value(example, feature));
        }
        replica.all_reduce_mean(&mut gradient)?;
        weights.iter_mut().zip(&gradient).for_each(|(weight, slope)| *weight -= 0.1 * slope);
    }
    Ok(weights)
}

#[test]
fn replicas_on_parts_of_a_batch_give_what_one_gives_on_the_whole() {
    let one = Strategy::on("cpu").scope(fit).swap_remove(0).expect("one replica needs nobody");
    for count in [2, 3, 4] {
        let strategy = Strategy::mirrored(vec!["cpu"; count]).expect("there are devices");
        let all: Vec<Vec<f32>> = strategy.scope(fit).into_iter().map(|weights| weights.expect("all step")).collect();
        assert!(all.iter().all(|weights| weights == &all[0]), "bit for bit the same on each of {count}");
        let worst = one.iter().zip(&all[0]).map(|(one, all)| (one - all).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-6, "{count} replicas are off by {worst}");
    }
}

#[test]
fn a_replica_that_leaves_does_not_hold_up_the_others() {
    let strategy = Strategy::mirrored(["cpu", "cpu", "cpu"]).expect("there are devices");
    let ended =
        strategy.scope(|replica| if replica.index() == 1 { Ok(()) } else { replica.all_reduce_mean(&mut [1.0]) });
    assert_eq!(ended[1], Ok(()));
    assert_eq!(
        (&ended[0], &ended[2]),
        (&Err(StrategyError::Alone { replica: 0 }), &Err(StrategyError::Alone { replica: 2 }))
    );
}

#[test]
fn a_panic_of_one_replica_is_the_callers() {
    let strategy = Strategy::mirrored(["cpu", "cpu"]).expect("there are devices");
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        strategy.scope(|replica| {
            assert!(replica.index() != 0, "the first one fails");
            replica.all_reduce_mean(&mut [1.0])
        })
    }));
    assert!(outcome.is_err());
}

#[test]
fn different_models_are_refused_on_every_replica() {
    let strategy = Strategy::mirrored(["cpu", "cpu"]).expect("there are devices");
    let ended = strategy.scope(|replica| replica.all_reduce_mean(&mut vec![0.0; 1 + replica.index()]));
    assert_eq!(ended, vec![Err(StrategyError::Lengths { first: 1, other: 2 }); 2]);
}

#[test]
fn different_types_are_refused_on_every_replica() {
    let strategy = Strategy::mirrored(["cpu", "cpu"]).expect("there are devices");
    let ended = strategy.scope(|replica| match replica.index() {
        0 => replica.all_reduce_mean(&mut [1.0_f32]),
        _ => replica.all_reduce_mean(&mut [1.0_f64]),
    });
    assert_eq!(ended, vec![Err(StrategyError::Types); 2]);
}

#[test]
fn a_strategy_travels_as_json() {
    let mirrored = Strategy::mirrored(["cpu", "cuda:1"]).expect("there are devices").with_precision(Precision::Bf16);
    let json = r#"{"devices":{"strategy":"mirrored","devices":["cpu","cuda:1"]},"precision":"bf16"}"#;
    assert_eq!(serde_json::to_string(&mirrored).expect("plain data"), json);
    assert_eq!(serde_json::from_str::<Strategy>(json).expect("as it was written"), mirrored);
    assert_eq!((mirrored.num_replicas_in_sync(), mirrored.global_batch_size(16)), (2, 32));
    assert_eq!(Strategy::on("cpu").num_replicas_in_sync(), 1);
    assert_eq!(Strategy::mirrored(Vec::<String>::new()), Err(StrategyError::NoDevice));
}

#[test]
fn the_first_cards_of_a_plugin_are_its_cores() {
    let mirrored = |devices: &[&str]| Strategy::mirrored(devices.iter().copied()).expect("there are devices");
    assert_eq!(Ok(mirrored(&["cuda:0", "cuda:1"])), Strategy::cores("cuda", 2));
    assert_eq!(Ok(mirrored(&["rocm", "rocm:1", "rocm:2"])), Strategy::cores("rocm", 3));
    for others in [&["cuda:1", "cuda:2"][..], &["cuda", "cuda"], &["cuda"], &["cuda", "rocm:1"], &["cpu", "cpu"]] {
        assert_eq!((mirrored(others).spread(), mirrored(others).devices().len()), (None, others.len()));
    }
}

#[test]
fn a_strategy_over_processes_travels_as_json_and_is_checked() {
    let strategy = Strategy::multi_worker(["a:1", "b:2", "c:3"], 2).expect("a place");
    assert_eq!((strategy.num_replicas_in_sync(), strategy.devices()), (3, &["cpu".to_owned()][..]));
    let json = serde_json::to_string(&strategy).expect("plain data");
    assert_eq!(serde_json::from_str::<Strategy>(&json).expect("as it was written"), strategy);
    let error =
        serde_json::from_str::<Strategy>(&json.replace("\"index\":2", "\"index\":3")).expect_err("no such place");
    assert!(error.to_string().contains("there is no worker 3 among 3"), "{error}");
}

#[test]
fn a_tpu_is_described_by_its_cores() {
    let core = |id| OpenDevice { id, kind: "TPU v4".into(), memory_bytes: None };
    let identity = Identity { api: (0, 116), attributes: Vec::new() };
    let (platform, version) = ("tpu".to_owned(), "made up".to_owned());
    let mut opened = Opened { identity, platform, version, devices: vec![core(0), core(1), core(4)] };
    let strategy = Strategy::tpu(&opened).expect("it has cores");
    assert_eq!((strategy.num_replicas_in_sync(), strategy.global_batch_size(128)), (3, 384));
    assert_eq!(
        strategy.scope(|replica| (replica.index(), replica.count(), replica.device().to_owned())),
        [(0, 1, "tpu".into())]
    );
    assert_eq!((strategy.spread(), Strategy::on("tpu").spread()), (Some(3), None));
    let cluster = Cluster::new(["a:1", "b:2"], 1).expect("a place");
    let across = strategy.clone().across(cluster);
    assert_eq!((across.spread(), across.num_replicas_in_sync(), across.global_batch_size(128)), (Some(3), 6, 768));
    // A plugin's cores divide and average nothing, so no process waits for another one here.
    let alone = across.scope(|replica| {
        let mut values = [1.0_f32, 2.0];
        replica.all_reduce_mean(&mut values).map(|()| (replica.index(), replica.count(), values))
    });
    assert_eq!(alone, [Ok((0, 1, [1.0, 2.0]))]);
    let json = r#"{"devices":{"strategy":"tpu","device":"tpu","cores":3},"precision":"f32"}"#;
    assert_eq!(serde_json::to_string(&strategy).expect("plain data"), json);
    assert_eq!(serde_json::from_str::<Strategy>(json).expect("as it was written"), strategy);
    opened.devices.clear();
    assert_eq!(Strategy::tpu(&opened), Err(StrategyError::NoDevice));
    opened.platform = "cpu".into();
    assert_eq!(Strategy::tpu(&opened), Err(StrategyError::NoTpu { platform: "cpu".into() }));
}
