//! The display of tensors as pictures. Infers layouts from shapes; reads the values to the host, and changes no tensor.

use crate::display::png::{self, Pixels};
use crate::display::{Bundle, Handle, show};
use candle_core::{DType, Device, Error, Result, Tensor};

/// The largest number of images of a batch that are shown, and of pixels on each side of an image.
const SHOWN_IMAGES: usize = 64;
const SHOWN_PIXELS: usize = 1024;
/// The width up to which small pictures are enlarged, and the largest factor.
const ENLARGED_WIDTH: usize = 512;
const ENLARGED_TIMES: usize = 8;
/// The width and brightness of the gap between the images of a batch.
const GAP_PIXELS: usize = 2;
const GAP: u8 = 128;

/// Shows a tensor as an image, or a batch of images as a grid.
///
/// | shape | what it is |
/// |---|---|
/// | `[height, width]`, `[1, height, width]`, `[height, width, 1]` | a grey image |
/// | `[3, height, width]`, `[height, width, 3]` | red, green and blue |
/// | `[count, height, width]` | grey images, unless `count` or `width` is 1 or 3 |
/// | `[count, 1 or 3, height, width]`, `[count, height, width, 1 or 3]` | a batch |
///
/// Integers from 0 to 255 and floats from 0 to 1 are brightnesses. If there are other values, the smallest is black and the largest is
/// white. NaN and infinite values are black. Large images are shown with fewer pixels, and small images are enlarged.
///
/// ```no_run
/// # fn main() -> candle_core::Result<()> {
/// let ramp = candle_core::Tensor::arange(0u8, 255, &candle_core::Device::Cpu)?.reshape((5, 51))?;
/// ferrotune::display::image(&ramp)?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// If the shape is not in the table, or the values cannot be read.
pub fn image(tensor: &Tensor) -> Result<Handle> {
    Ok(show(bundle(tensor)?))
}

/// The layout of a batch's pixels in a tensor.
struct Layout {
    count: usize,
    height: usize,
    width: usize,
    pixels: Pixels,
    channels_last: bool,
}

impl Layout {
    fn of(dims: &[usize]) -> Option<Self> {
        let layout = |count, height, width, channels: usize, channels_last| {
            let pixels = if channels == 3 { Pixels::Rgb } else { Pixels::Grey };
            Some(Layout { count, height, width, pixels, channels_last })
        };
        match *dims {
            [height, width] => layout(1, height, width, 1, false),
            [channels @ (1 | 3), height, width] => layout(1, height, width, channels, false),
            [height, width, channels @ (1 | 3)] => layout(1, height, width, channels, true),
            [count, height, width] => layout(count, height, width, 1, false),
            [count, channels @ (1 | 3), height, width] => layout(count, height, width, channels, false),
            [count, height, width, channels @ (1 | 3)] => layout(count, height, width, channels, true),
            _ => None,
        }
        .filter(|_| dims.iter().all(|dim| *dim > 0))
    }

    fn index(&self, image: usize, y: usize, x: usize, channel: usize) -> usize {
        let channels = self.pixels.bytes();
        match self.channels_last {
            true => ((image * self.height + y) * self.width + x) * channels + channel,
            false => ((image * channels + channel) * self.height + y) * self.width + x,
        }
    }

    fn text(&self, shown: usize) -> String {
        let kind = match self.pixels {
            Pixels::Grey => "grey",
            Pixels::Rgb => "RGB",
        };
        let size = format!("{} × {} pixels, {kind}", self.width, self.height);
        match (self.count, shown) {
            (1, _) => format!("<image, {size}>"),
            (count, shown) if count == shown => format!("<{count} images, each {size}>"),
            (count, shown) => format!("<{shown} of {count} images, each {size}>"),
        }
    }
}

fn bundle(tensor: &Tensor) -> Result<Bundle> {
    let layout = Layout::of(tensor.dims()).ok_or_else(|| {
        Error::msg(format!(
            "a tensor of shape {:?} is no image: the shape is [height, width], or has 1 or 3 channels first or last, perhaps \
             with the number of images before; reshape it",
            tensor.dims()
        ))
    })?;
    let shown = layout.count.min(SHOWN_IMAGES);
    let values = match tensor.rank() {
        2 => tensor.clone(),
        _ if layout.count > shown => tensor.narrow(0, 0, shown)?,
        _ => tensor.clone(),
    };
    let brightnesses = brightnesses(&values)?;
    let (width, bytes) = grid(&layout, shown, &brightnesses);
    let file = png::encode(width, layout.pixels, &bytes).ok_or_else(|| Error::msg("the image has no pixels"))?;
    Ok(Bundle::text(layout.text(shown)).with_image("image/png", &file))
}

/// The tensor's values as bytes from black to white.
fn brightnesses(tensor: &Tensor) -> Result<Vec<u8>> {
    let values = tensor.detach().to_device(&Device::Cpu)?;
    if values.dtype() == DType::U8 {
        return values.flatten_all()?.to_vec1();
    }
    let greatest_usual = if values.dtype().is_int() { 255.0 } else { 1.0 };
    let values: Vec<f64> = values.flatten_all()?.to_dtype(DType::F64)?.to_vec1()?;
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let (least, greatest) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
    let (black, white) = match least >= 0.0 && greatest <= greatest_usual {
        true => (0.0, greatest_usual),
        false => (least, greatest),
    };
    let range = if white > black { white - black } else { 1.0 };
    // If the range overflows, the quotient can be NaN, which the conversion makes 0.
    let byte = |value: f64| if value.is_finite() { ((value - black) / range * 255.0).round() as u8 } else { 0 };
    Ok(values.into_iter().map(byte).collect())
}

/// The width of the grid in pixels, and the bytes of all its pixels.
fn grid(layout: &Layout, shown: usize, brightnesses: &[u8]) -> (usize, Vec<u8>) {
    let columns = (1..=shown).find(|columns| columns * columns >= shown).unwrap_or(1);
    let rows = shown.div_ceil(columns);
    let step = layout.height.max(layout.width).div_ceil(SHOWN_PIXELS);
    let (height, width) = (layout.height.div_ceil(step), layout.width.div_ceil(step));
    let times = (ENLARGED_WIDTH / (columns * width)).clamp(1, ENLARGED_TIMES);
    let (tile_height, tile_width) = (height * times + GAP_PIXELS, width * times + GAP_PIXELS);
    let (all_height, all_width) = (rows * tile_height - GAP_PIXELS, columns * tile_width - GAP_PIXELS);
    let channels = layout.pixels.bytes();
    let mut bytes = vec![GAP; all_height * all_width * channels];
    for image in 0..shown {
        let (top, left) = (image / columns * tile_height, image % columns * tile_width);
        for y in 0..height * times {
            for x in 0..width * times {
                let to = ((top + y) * all_width + left + x) * channels;
                for channel in 0..channels {
                    bytes[to + channel] =
                        brightnesses[layout.index(image, y / times * step, x / times * step, channel)];
                }
            }
        }
    }
    (all_width, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(dims: &[usize]) -> Option<(usize, usize, usize, Pixels)> {
        Layout::of(dims).map(|layout| (layout.count, layout.height, layout.width, layout.pixels))
    }

    #[test]
    fn a_shape_says_what_is_in_it() {
        use Pixels::{Grey, Rgb};
        assert_eq!(dims(&[4, 5]), Some((1, 4, 5, Grey)));
        assert_eq!(dims(&[3, 4, 5]), Some((1, 4, 5, Rgb)));
        assert_eq!(dims(&[4, 5, 3]), Some((1, 4, 5, Rgb)));
        assert_eq!(dims(&[7, 4, 5]), Some((7, 4, 5, Grey)));
        assert_eq!(dims(&[7, 1, 4, 5]), Some((7, 4, 5, Grey)));
        assert_eq!(dims(&[7, 4, 5, 3]), Some((7, 4, 5, Rgb)));
        assert_eq!([dims(&[4]), dims(&[0, 4]), dims(&[2, 2, 4, 5]), dims(&[])], [None; 4]);
    }

    #[test]
    fn values_become_brightnesses() {
        let of = |tensor: Result<Tensor>| brightnesses(&tensor.unwrap()).unwrap();
        let cpu = &Device::Cpu;
        assert_eq!(of(Tensor::new(&[0u8, 7, 255], cpu)), [0, 7, 255]);
        assert_eq!(of(Tensor::new(&[0i64, 7, 255], cpu)), [0, 7, 255]);
        assert_eq!(of(Tensor::new(&[-10i64, 0, 10], cpu)), [0, 128, 255]);
        assert_eq!(of(Tensor::new(&[0.0f32, 0.5, f32::NAN], cpu)), [0, 128, 0]);
        assert_eq!(of(Tensor::new(&[-1.0f64, 3.0, f64::INFINITY], cpu)), [0, 255, 0]);
        assert_eq!(of(Tensor::new(&[2.0f64, 2.0], cpu)), [0, 0]);
    }

    #[test]
    fn a_batch_is_a_grid_with_gaps() {
        let layout = Layout::of(&[2, 1, 600, 300]).unwrap();
        let (width, bytes) = grid(&layout, 2, &[[1; 600 * 300], [2; 600 * 300]].concat());
        assert_eq!((width, bytes.len()), (602, 602 * 600));
        assert_eq!(bytes[299..303], [1, GAP, GAP, 2]);
        let layout = Layout::of(&[1, 2, 3]).unwrap();
        let (width, bytes) = grid(&layout, 1, &[1, 2, 3, 4, 5, 6]);
        assert_eq!((width, bytes.len()), (24, 24 * 16));
        assert_eq!((bytes[7], bytes[8], bytes[24 * 8]), (1, 2, 4));
        let layout = Layout::of(&[3, 1, 2]).unwrap();
        assert_eq!(grid(&layout, 1, &[1, 2, 3, 4, 5, 6]).1[21..27], [1, 3, 5, 2, 4, 6]);
    }
}
