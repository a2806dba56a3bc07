//! Trainings by several replicas.

use crate::waves;
use candle_core::Device;
use ferrotune_data::digits;
use ferrotune_devices::Strategy;
use ferrotune_fit::{Fit, History};
use ferrotune_nn::{self as nn, Model as _, metrics};
use ferrotune_state::Result;
use ferrotune_trial::optim;

#[test]
fn replicas_train_as_one_does_on_the_whole_batch() -> Result<()> {
    let [train, valid] = digits()?.split([0.8, 0.2], 7)?;
    let trained = |replica: Option<&ferrotune_devices::Replica<'_>>| -> Result<(History, Vec<f32>)> {
        let model = nn::mlp(64, &[16], 10).build(&Device::Cpu)?;
        // Only the first replica has the right weights.
        if replica.is_none_or(|replica| replica.index() == 0) {
            waves(&model)?;
        }
        let fit =
            Fit::classifier(&model).optimizer(optim::SGD::lr(0.1)).batch(96).metric("auc", metrics::auc()).epochs(3);
        let fit = if let Some(replica) = replica { fit.replica(replica) } else { fit };
        let history = fit.accumulate(2).run(&train, &valid)?;
        let weights = model.trainable().into_iter().map(|var| Ok(var.flatten_all()?.to_vec1::<f32>()?));
        Ok((history, weights.collect::<Result<Vec<_>>>()?.concat()))
    };
    let (alone, weights) = trained(None)?;
    for count in [2, 3] {
        let strategy = Strategy::mirrored(vec!["cpu"; count])?;
        let all = strategy.scope(|replica| trained(Some(replica)));
        let all = all.into_iter().collect::<Result<Vec<_>>>()?;
        for (history, of_replica) in &all {
            assert_eq!(*of_replica, all[0].1, "all replicas have the same bits");
            for name in alone.names() {
                assert_eq!(history.get(name), all[0].0.get(name));
                for (one, other) in alone.get(name).iter().zip(history.get(name)) {
                    assert!((one - other).abs() < 1e-4, "{name} of {count} replicas: {one} and {other}");
                }
            }
            assert!(weights.iter().zip(of_replica).all(|(one, other)| (one - other).abs() < 1e-4));
        }
    }
    Ok(())
}

#[test]
fn statistics_of_batch_norm_are_the_same_in_all_replicas() -> Result<()> {
    let [train, valid] = digits()?.split([0.8, 0.2], 7)?;
    let strategy = Strategy::mirrored(["cpu", "cpu"])?;
    let losses = |batch: usize, rows: u64| {
        let train = train.take(rows);
        strategy.scope(|replica| -> Result<Vec<f64>> {
            let model = nn::mlp(64, &[16], 10).batch_norm().build(&Device::Cpu)?;
            let history = Fit::classifier(&model).batch(batch).epochs(2).replica(replica).run(&train, &valid)?;
            Ok([history.get("loss"), history.get("val_loss")].concat())
        })
    };
    let even = losses(100, 1400).into_iter().collect::<Result<Vec<_>>>()?;
    assert_eq!(even[0], even[1]);
    let told: Vec<String> =
        losses(100, 1337).into_iter().map(|ended| ended.expect_err("37 rows").to_string()).collect();
    assert!(told.iter().any(|told| told.contains("2 replicas cannot share a batch of 37 rows")), "{told:?}");
    Ok(())
}

#[test]
fn batches_that_replicas_cannot_share_are_refused() -> Result<()> {
    let [train, _] = digits()?.split([0.8, 0.2], 7)?;
    let strategy = Strategy::mirrored(["cpu", "cpu", "cpu"])?;
    let told = strategy.scope(|replica| -> Result<History> {
        let model = nn::mlp(64, &[16], 10).build(&Device::Cpu)?;
        Fit::classifier(&model).batch(32).replica(replica).run(&train, None)
    });
    for told in told {
        let told = told.expect_err("refused").to_string();
        assert!(told.contains("3 replicas cannot share batches of 32 rows; choose a multiple of 3"), "{told}");
    }
    Ok(())
}
