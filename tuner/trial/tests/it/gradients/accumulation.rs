//! Tests of `backward`: which tensors have gradients, in which memory, and the gradients of a whole training step.

use super::difference::{Draws, assert_close, values};
use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::loss;

fn variable(seed: u64, dims: &[usize]) -> Var {
    Var::from_tensor(&Draws::new(seed).tensor(dims, (-1., 1.))).unwrap()
}

/// A sum passes the same gradient to both arguments, and a concatenation passes out parts of one gradient.
#[test]
fn a_gradient_that_is_changed_in_place_changes_no_other() {
    let (a, b, c) = (variable(1, &[2, 3]), variable(2, &[2, 3]), variable(3, &[2, 3]));
    let sum = a.add(b.as_tensor()).unwrap();
    let joined = Tensor::cat(&[&sum, c.as_tensor(), a.as_tensor()], 0).unwrap();
    let gradients = joined.sum_all().unwrap().backward().unwrap();
    let [first, second, third] = [&a, &b, &c].map(|variable| gradients.get(variable).unwrap());
    second.zero_set().unwrap();
    assert_eq!(values(first), [2.; 6]);
    third.zero_set().unwrap();
    assert_eq!(values(first), [2.; 6]);
    first.zero_set().unwrap();
    assert_eq!(values(second), [0.; 6]);
}

#[test]
fn gradients_of_variables_are_contiguous_and_detached() {
    let (a, b, c) = (variable(1, &[2, 3]), variable(2, &[4, 3]), variable(3, &[1, 3]));
    let product = a.matmul(&b.t().unwrap()).unwrap().t().unwrap();
    let moved = product.sum_all().unwrap().broadcast_add(&c.broadcast_as((5, 3)).unwrap()).unwrap();
    let gradients = moved.sum_all().unwrap().backward().unwrap();
    for variable in [&a, &b, &c] {
        let gradient = gradients.get(variable).unwrap();
        assert!(gradient.is_contiguous());
        assert!(!gradient.track_op());
        assert_eq!(gradient.dims(), variable.dims());
    }
}

#[test]
fn only_what_leads_to_a_variable_has_a_gradient() {
    let weight = variable(1, &[3, 2]);
    let x = Draws::new(2).tensor(&[4, 3], (-1., 1.));
    let unused = variable(3, &[2]);
    let gradients = x.matmul(&weight).unwrap().sqr().unwrap().sum_all().unwrap().backward().unwrap();
    assert!(gradients.get(&weight).is_some());
    assert!(gradients.get(&x).is_none());
    assert!(gradients.get(&unused).is_none());
    assert_eq!(gradients.get_ids().count(), 1);
}

/// A perceptron with one hidden layer: softmax minus labels, and back through the layers, by the textbook's formulas.
#[test]
fn the_gradients_of_a_perceptron_are_those_of_the_formulas() -> Result<()> {
    let (batch, device) = (8, &Device::Cpu);
    let x = Draws::new(1).tensor(&[batch, 5], (-1., 1.));
    let labels = Draws::new(2).indexes(&[batch], 3);
    let (w1, b1, w2, b2) = (variable(3, &[6, 5]), variable(4, &[6]), variable(5, &[3, 6]), variable(6, &[3]));
    let before = x.matmul(&w1.t()?)?.broadcast_add(&b1)?;
    let hidden = before.relu()?;
    let logits = hidden.matmul(&w2.t()?)?.broadcast_add(&b2)?;
    let gradients = loss::cross_entropy(&logits, &labels)?.backward()?;

    let classes = Tensor::arange(0u32, 3, device)?.unsqueeze(0)?;
    let one_hot = labels.unsqueeze(1)?.broadcast_eq(&classes)?.to_dtype(DType::F64)?;
    let logits_grad = (candle_nn::ops::softmax(&logits.detach(), 1)?.sub(&one_hot)? / batch as f64)?;
    let active = before.detach().gt(0.)?.to_dtype(DType::F64)?;
    let before_grad = logits_grad.matmul(&w2.detach())?.mul(&active)?;
    let expected = [
        (&w1, before_grad.t()?.matmul(&x)?),
        (&b1, before_grad.sum(0)?),
        (&w2, logits_grad.t()?.matmul(&hidden.detach())?),
        (&b2, logits_grad.sum(0)?),
    ];
    for (variable, expected) in expected {
        let gradient = gradients.get(variable).unwrap();
        assert_close("perceptron", &(gradient * 100.)?, &(expected * 100.)?, 1e-14);
    }
    Ok(())
}
