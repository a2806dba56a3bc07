//! The display of a tensor as a table: its shape, type and device, and a corner of its values. Only the corner is read from an
//! accelerator, unless the tensor is small.

use crate::device;
use crate::display::{Bundle, escape};
use candle_core::{DType, Device, Result, Tensor};

/// The longest side that is shown whole, and the number of values at each end of a longer side.
const WHOLE_SIDE: usize = 12;
const SIDE_ENDS: usize = 5;

/// The size up to which a tensor is read whole, because each read of a part is a program for an accelerator's compiler.
const WHOLE_BYTES: usize = 1 << 20;

/// The tensor as aligned text, and as a table.
pub(crate) fn bundle(tensor: &Tensor) -> Bundle {
    let title = format!("Tensor {:?} {} on {}", tensor.dims(), tensor.dtype().as_str(), device::place(tensor.device()));
    match Corner::of(tensor) {
        Ok(corner) => corner.bundle(&title),
        Err(error) => {
            // candle adds a backtrace to its errors.
            let error = error.to_string();
            let line = format!("its values cannot be read: {}", error.lines().next().unwrap_or_default());
            Bundle::text(format!("{title}\n{line}"))
        }
    }
}

/// The tensors of a tuple, one below the other, each after its index.
pub(crate) fn bundle_of_all(tensors: &[&Tensor]) -> Bundle {
    let bundles: Vec<Bundle> = tensors.iter().map(|tensor| bundle(tensor)).collect();
    let text = bundles.iter().enumerate().map(|(place, bundle)| format!("{place}: {}", bundle.text_of("text/plain")));
    let text: Vec<String> = text.collect();
    let html = bundles.iter().enumerate().map(|(place, bundle)| match bundle.text_of("text/html") {
        "" => format!("<pre>{place}: {}</pre>", escape::html(bundle.text_of("text/plain"))),
        html => format!("<div>{place}: {html}</div>"),
    });
    let html: String = html.collect();
    Bundle::text(text.join("\n\n")).with_text("text/html", &html)
}

/// Some values of the last two dimensions of a tensor.
struct Corner {
    /// The matrix of these values, if the tensor has several matrices.
    of: Option<String>,
    /// The rows of numbers, with `…` for skipped values.
    rows: Vec<Vec<String>>,
}

impl Corner {
    fn of(tensor: &Tensor) -> Result<Self> {
        let (dims, count) = (tensor.dims(), tensor.elem_count());
        if count == 0 {
            return Ok(Self { of: Some("no values".to_owned()), rows: Vec::new() });
        }
        let matrices: usize = dims.iter().rev().skip(2).product();
        let of = (matrices > 1).then(|| {
            let zeros = "0, ".repeat(dims.len() - 2);
            format!("the values at [{zeros}.., ..], the first of {matrices} matrices")
        });
        let mut tensor = tensor.detach();
        if count.saturating_mul(tensor.dtype().size_in_bytes()) <= WHOLE_BYTES {
            tensor = tensor.to_device(&Device::Cpu)?;
        }
        while tensor.rank() > 2 {
            tensor = tensor.get(0)?;
        }
        while tensor.rank() < 2 {
            tensor = tensor.unsqueeze(0)?;
        }
        let gaps = [tensor.dim(0)? > WHOLE_SIDE, tensor.dim(1)? > WHOLE_SIDE];
        let values = ends(&ends(&tensor, 0)?, 1)?.to_device(&Device::Cpu)?;
        Ok(Self { of, rows: with_gaps(texts(&values)?, gaps) })
    }

    fn bundle(&self, title: &str) -> Bundle {
        let widths: Vec<usize> = (0..self.rows.first().map_or(0, Vec::len))
            .map(|column| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
            .collect();
        let line = |row: &Vec<String>| {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
            cells.join("  ")
        };
        let mut text: Vec<String> = std::iter::once(title.to_owned()).chain(self.rows.iter().map(line)).collect();
        text.extend(self.of.clone());
        let html_row = |row: &Vec<String>| {
            let cells: String = row.iter().map(|cell| format!("<td>{cell}</td>")).collect();
            format!("<tr>{cells}</tr>")
        };
        let rows: String = self.rows.iter().map(html_row).collect();
        let of = self.of.as_ref().map(|of| format!("<div>{of}</div>")).unwrap_or_default();
        // JupyterLab's own style aligns the cells of a table to the right.
        let style = "font-family: monospace; text-align: right";
        let html = format!("<div><b>{}</b></div><table style=\"{style}\">{rows}</table>{of}", escape::html(title));
        Bundle::text(text.join("\n")).with("text/html", html)
    }
}

/// The values at the beginning and the end of a side.
fn ends(tensor: &Tensor, side: usize) -> Result<Tensor> {
    let len = tensor.dim(side)?;
    match len > WHOLE_SIDE {
        true => {
            Tensor::cat(&[tensor.narrow(side, 0, SIDE_ENDS)?, tensor.narrow(side, len - SIDE_ENDS, SIDE_ENDS)?], side)
        }
        false => Ok(tensor.clone()),
    }
}

fn with_gaps(mut rows: Vec<Vec<String>>, [skips_rows, skips_columns]: [bool; 2]) -> Vec<Vec<String>> {
    let gap = || "…".to_owned();
    if skips_columns {
        rows.iter_mut().for_each(|row| row.insert(SIDE_ENDS, gap()));
    }
    if skips_rows {
        rows.insert(SIDE_ENDS, rows[0].iter().map(|_| gap()).collect());
    }
    rows
}

fn texts(values: &Tensor) -> Result<Vec<Vec<String>>> {
    if values.dtype().is_int() {
        let rows: Vec<Vec<i64>> = values.to_dtype(DType::I64)?.to_vec2()?;
        return Ok(rows.iter().map(|row| row.iter().map(i64::to_string).collect()).collect());
    }
    let rows: Vec<Vec<f64>> = values.to_dtype(DType::F64)?.to_vec2()?;
    let format = Format::of(rows.iter().flatten().copied());
    Ok(rows.iter().map(|row| row.iter().map(|value| format.text(*value)).collect()).collect())
}

/// The format of all floats of a corner, so that their decimal points are aligned.
enum Format {
    Decimals(usize),
    Scientific,
}

impl Format {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let finite = values.filter(|value| value.is_finite());
        let magnitudes = finite.clone().filter(|value| *value != 0.0).map(f64::abs);
        let greatest = magnitudes.clone().fold(0.0, f64::max);
        let least = magnitudes.fold(f64::INFINITY, f64::min);
        if greatest >= 1e6 || (greatest > 0.0 && least < 1e-4 && greatest < 1e-2) || greatest / least >= 1e8 {
            return Self::Scientific;
        }
        match finite.clone().all(|value| value.fract() == 0.0) {
            true => Self::Decimals(1),
            false => Self::Decimals(4),
        }
    }

    fn text(&self, value: f64) -> String {
        match self {
            Self::Decimals(decimals) => format!("{value:.decimals$}"),
            Self::Scientific if value.is_finite() => format!("{value:.4e}"),
            Self::Scientific => value.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(tensor: Result<Tensor>) -> String {
        bundle(&tensor.unwrap()).text_of("text/plain").to_owned()
    }

    #[test]
    fn values_stand_below_each_other() {
        let cpu = &Device::Cpu;
        let expected = "Tensor [2, 2] f32 on cpu\n1.0000  -20.5000\n   NaN      -inf";
        assert_eq!(text(Tensor::new(&[[1f32, -20.5], [f32::NAN, f32::NEG_INFINITY]], cpu)), expected);
        assert_eq!(text(Tensor::new(&[1f64, 2.0], cpu)), "Tensor [2] f64 on cpu\n1.0  2.0");
        assert_eq!(text(Tensor::new(&[1e-7f64, 2.0e3], cpu)), "Tensor [2] f64 on cpu\n1.0000e-7  2.0000e3");
        assert_eq!(text(Tensor::new(7u8, cpu)), "Tensor [] u8 on cpu\n7");
        assert_eq!(text(Tensor::new(&[i64::MAX, -1], cpu)), "Tensor [2] i64 on cpu\n9223372036854775807  -1");
        let half = Tensor::new(&[0.5f32], cpu).and_then(|tensor| tensor.to_dtype(DType::BF16));
        assert_eq!(text(half), "Tensor [1] bf16 on cpu\n0.5000");
        assert_eq!(text(Tensor::zeros((2, 0), DType::F32, cpu)), "Tensor [2, 0] f32 on cpu\nno values");
        assert_eq!(text(Tensor::new(&[f32::NAN], cpu)), "Tensor [1] f32 on cpu\nNaN");
    }

    #[test]
    fn a_large_tensor_shows_its_corner() {
        let large = Tensor::arange(0u32, 3 * 20 * 30, &Device::Cpu).and_then(|all| all.reshape((3, 20, 30)));
        let text = text(large.and_then(|tensor| tensor.transpose(1, 2)));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Tensor [3, 30, 20] u32 on cpu");
        assert_eq!(lines[1], " 0  30  60   90  120  …  450  480  510  540  570");
        assert_eq!((lines.len(), lines[6].starts_with(" …   …")), (1 + 11 + 1, true));
        assert_eq!(lines[11], "29  59  89  119  149  …  479  509  539  569  599");
        assert_eq!(lines[12], "the values at [0, .., ..], the first of 3 matrices");
    }

    #[test]
    fn only_a_corner_of_a_huge_tensor_is_read() {
        let huge = Tensor::new(1f32, &Device::Cpu).and_then(|one| one.broadcast_as((1 << 40, 1 << 20))).unwrap();
        assert!(text(Ok(huge)).starts_with("Tensor [1099511627776, 1048576] f32 on cpu\n1.0  1.0  1.0  1.0  1.0  …"));
    }
}
