//! The order in which the stages of a pipeline work on micro-batches, without tensors or devices.

/// A pass of a stage, which takes the first micro-batch that has not had this pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Pass {
    Forward,
    /// The backward pass; on the last stage it includes the forward pass, whose output no other stage needs.
    Backward,
}

/// All passes of one step as pairs of stage and pass, each after the passes that it needs. A stage runs its own passes in this order.
///
/// Each stage runs the next backward pass as soon as it can ("one forward, one backward", [PipeDream]), so that the number of inputs
/// that it keeps is at most the number of stages from it to the end. [GPipe], which runs all forward passes first, keeps the inputs
/// of all micro-batches and takes as long.
///
/// [PipeDream]: https://arxiv.org/abs/1806.03377
/// [GPipe]: https://arxiv.org/abs/1811.06965
pub(super) fn schedule(stages: usize, micro_batches: usize) -> Vec<(usize, Pass)> {
    let mut done = vec![Done::default(); stages];
    let mut passes = Vec::new();
    while done.iter().any(|done| done.backward < micro_batches) {
        for stage in 0..stages {
            if let Some(pass) = next(&done, stage, micro_batches) {
                match pass {
                    Pass::Forward => done[stage].forward += 1,
                    Pass::Backward => done[stage].backward += 1,
                }
                passes.push((stage, pass));
            }
        }
    }
    passes
}

/// The number of micro-batches that have passed through a stage, forward and backward.
#[derive(Clone, Copy, Default)]
struct Done {
    forward: usize,
    backward: usize,
}

/// The next pass of a stage, if its inputs have arrived.
fn next(done: &[Done], stage: usize, micro_batches: usize) -> Option<Pass> {
    let Done { forward, backward } = done[stage];
    let arrived = |count: usize| stage == 0 || done[stage - 1].forward > count;
    let Some(later) = done.get(stage + 1) else {
        return (backward < micro_batches && arrived(backward)).then_some(Pass::Backward);
    };
    if forward < micro_batches && forward - backward < done.len() - stage {
        return arrived(forward).then_some(Pass::Forward);
    }
    (later.backward > backward).then_some(Pass::Backward)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The passes of a stage, one letter for each pass.
    fn passes(stages: usize, micro_batches: usize, wanted: usize) -> String {
        let own = schedule(stages, micro_batches).into_iter().filter(|(stage, _)| *stage == wanted);
        own.map(|(_, pass)| if pass == Pass::Forward { 'F' } else { 'B' }).collect()
    }

    #[test]
    fn a_stage_alternates_once_the_pipeline_is_full() {
        let of = |stage| passes(4, 8, stage);
        assert_eq!(of(0), "FFFFBFBFBFBFBBBB");
        assert_eq!(of(1), "FFFBFBFBFBFBFBBB");
        assert_eq!(of(2), "FFBFBFBFBFBFBFBB");
        assert_eq!(of(3), "BBBBBBBB");
        assert_eq!((passes(4, 2, 0), passes(1, 3, 0)), ("FFBB".to_owned(), "BBB".to_owned()));
    }

    #[test]
    fn a_pass_comes_after_what_it_needs() {
        for (stages, micro_batches) in [(1, 1), (1, 5), (2, 1), (3, 2), (4, 8), (6, 4), (5, 20)] {
            let mut done = vec![Done::default(); stages];
            for (stage, pass) in schedule(stages, micro_batches) {
                let before = done[stage];
                match pass {
                    Pass::Forward => {
                        assert!(stage + 1 < stages && (stage == 0 || done[stage - 1].forward > before.forward));
                        done[stage].forward += 1;
                    }
                    Pass::Backward => {
                        let last = stage + 1 == stages;
                        assert!(
                            last || (before.forward > before.backward && done[stage + 1].backward > before.backward)
                        );
                        assert!(!last || stage == 0 || done[stage - 1].forward > before.backward);
                        done[stage].backward += 1;
                    }
                }
                assert!(done[stage].forward <= done[stage].backward + stages - stage, "too many inputs are kept");
            }
            assert!(done.iter().all(|done| done.backward == micro_batches));
        }
    }
}
