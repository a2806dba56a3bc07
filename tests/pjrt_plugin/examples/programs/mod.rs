//! Programs that several examples run.

/// A program that sums two numbers over so many replicas.
pub(crate) fn sum_over(count: usize) -> String {
    let group = (0..count).map(|device| device.to_string()).collect::<Vec<_>>().join(", ");
    format!(
        "module @sum {{
  func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> {{
    %s = \"stablehlo.all_reduce\"(%a) ({{
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %z = stablehlo.add %x, %y : tensor<f32>
        stablehlo.return %z : tensor<f32>
    }}) {{replica_groups = dense<[[{group}]]> : tensor<1x{count}xi64>}} : (tensor<2xf32>) -> tensor<2xf32>
    return %s : tensor<2xf32>
  }}
}}"
    )
}
