//! Images, which the crate `image` decodes and `fast_image_resize` resizes.

use super::hidden::is_hidden;
use super::{files, remote};
use crate::wire::{Array, Block, Contents, Shape};
use anyhow::{Context as _, Result, anyhow, bail};
use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use image::{ColorType, DynamicImage, ImageBuffer, ImageDecoder, ImageFormat, ImageReader, Limits, Pixel};
use std::io::{BufRead as _, Cursor};
use std::path::{Path, PathBuf};
use std::{fs, mem};

/// The endings of the names of image files that this module can decode.
const ENDINGS: [&str; 9] = ["bmp", "gif", "jpeg", "jpg", "pgm", "png", "pnm", "ppm", "webp"];

/// The largest memory that stays for the pixels of the next image.
const KEPT_BYTES: usize = 1 << 26;

/// A decoder that resizes all images to one size. It uses the same memory for the pixels of each image: to get new memory from the
/// system takes longer than to resize the image.
pub(super) struct Images {
    channels: usize,
    height: usize,
    width: usize,
    resizer: Resizer,
    /// The pixels of the image before it is resized.
    pixels: Vec<u8>,
    /// The resized image; `None` before the first one.
    resized: Option<Image<'static>>,
}

impl Images {
    pub(super) fn new(channels: usize, height: usize, width: usize) -> Result<Images> {
        if !matches!(channels, 1 | 3) {
            bail!("an image has 1 channel (grey) or 3 (red, green and blue), not {channels}");
        }
        if [height, width].iter().any(|length| !(1..=65_535).contains(length)) {
            bail!("images of {height}×{width} pixels cannot be made; give from 1×1 to 65535×65535");
        }
        Ok(Images { channels, height, width, resizer: Resizer::new(), pixels: Vec::new(), resized: None })
    }

    /// The image in a file, as u8 of shape (channels, height, width).
    pub(super) fn read(&mut self, path: &Path, bytes: &[u8]) -> Result<Block> {
        let name = || files::name(path);
        let image = decoded(bytes, mem::take(&mut self.pixels)).with_context(|| format!("cannot decode {}", name()))?;
        let (width, height) = (image.width(), image.height());
        let mut pixels = image.into_rgb8().into_raw();
        if self.channels == 1 {
            make_grey(&mut pixels);
        }
        let planes = self.planes(width, height, &pixels).with_context(|| format!("cannot resize {}", name()))?;
        if pixels.capacity() <= KEPT_BYTES {
            self.pixels = pixels;
        }
        let shape = Shape { dtype: "u8".to_owned(), dims: vec![self.channels, self.height, self.width] };
        Ok(vec![Array { shape, bytes: planes }])
    }

    /// The planes of an image's channels after resizing. A grey image has three equal channels until then, which are resized
    /// several times faster than one.
    fn planes(&mut self, width: u32, height: u32, pixels: &[u8]) -> Result<Vec<u8>> {
        if (width as usize, height as usize) == (self.width, self.height) {
            return Ok(separated(pixels, self.channels));
        }
        let from = ImageRef::new(width, height, pixels, PixelType::U8x3).map_err(|error| anyhow!("{error}"))?;
        let new = || Image::new(self.width as u32, self.height as u32, PixelType::U8x3);
        let to = self.resized.get_or_insert_with(new);
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
        self.resizer.resize(&from, to, &options)?;
        Ok(separated(to.buffer(), self.channels))
    }
}

/// The first channels of interleaved pixels, as separate planes.
fn separated(pixels: &[u8], channels: usize) -> Vec<u8> {
    let pixels: &[[u8; 3]] = pixels.as_chunks().0;
    if channels == 1 {
        return pixels.iter().map(|[grey, ..]| *grey).collect();
    }
    let mut planes = vec![0; 3 * pixels.len()];
    let (red, others) = planes.split_at_mut(pixels.len());
    let (green, blue) = others.split_at_mut(pixels.len());
    for (((pixel, red), green), blue) in pixels.iter().zip(red).zip(green).zip(blue) {
        [*red, *green, *blue] = *pixel;
    }
    planes
}

/// Gives all channels of a pixel its brightness by ITU-R BT.601, as in Pillow and TensorFlow; the crate `image` uses BT.709. The weights
/// have the sum 2^16, so that grey stays as it is.
fn make_grey(pixels: &mut [u8]) {
    for pixel in pixels.as_chunks_mut::<3>().0 {
        // `map` of an array is not inlined, and takes longer than all else here.
        let (red, green, blue) = (u32::from(pixel[0]), u32::from(pixel[1]), u32::from(pixel[2]));
        *pixel = [((19_595 * red + 38_470 * green + 7_471 * blue + 0x8000) >> 16) as u8; 3];
    }
}

/// The image in its display orientation: turned and mirrored by its EXIF data. Its pixels are in `memory` if they are bytes.
fn decoded(bytes: &[u8], memory: Vec<u8>) -> Result<DynamicImage> {
    let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?;
    // The decoder would invent the missing part.
    if reader.format() == Some(ImageFormat::Jpeg) && !is_whole_jpeg(bytes) {
        bail!("the file ends within the image");
    }
    let mut decoder = reader.into_decoder()?;
    let orientation = decoder.orientation()?;
    let mut limits = Limits::default();
    limits.reserve(decoder.total_bytes())?;
    decoder.set_limits(limits)?;
    let mut image = match decoder.color_type() {
        ColorType::L8 => DynamicImage::ImageLuma8(image_in(memory, decoder)?),
        ColorType::Rgb8 => DynamicImage::ImageRgb8(image_in(memory, decoder)?),
        _ => DynamicImage::from_decoder(decoder)?,
    };
    image.apply_orientation(orientation);
    Ok(image)
}

/// The image of a decoder, with its pixels in `memory`.
fn image_in<P: Pixel<Subpixel = u8>>(
    mut memory: Vec<u8>,
    decoder: impl ImageDecoder,
) -> Result<ImageBuffer<P, Vec<u8>>> {
    let (width, height) = decoder.dimensions();
    // Zeros, so that a decoder that skips damaged parts leaves no pixels of another image there.
    memory.clear();
    memory.resize(usize::try_from(decoder.total_bytes())?, 0);
    decoder.read_image(&mut memory)?;
    ImageBuffer::from_raw(width, height, memory).context("its pixels are fewer than its size says")
}

/// Whether a JPEG file has the marker for the end of the image. Other data may follow the marker, and a preview image
/// may come before it.
///
/// Source: ITU-T T.81, B.1.1: <https://www.w3.org/Graphics/JPEG/itu-t81.pdf>.
fn is_whole_jpeg(mut bytes: &[u8]) -> bool {
    while bytes.skip_until(0xff).is_ok_and(|skipped| skipped > 0) {
        let Some((marker, rest)) = bytes.split_first() else { return false };
        bytes = match marker {
            0xd9 => return true,
            // Markers without a segment: a fill byte, data of a scan, the beginning of the image, and restarts within a scan.
            0xff => bytes,
            0x00 | 0x01 | 0xd0..=0xd8 => rest,
            // The data of a scan follow its segment.
            _ => {
                let length = rest.first_chunk().map_or(0, |length| usize::from(u16::from_be_bytes(*length)));
                let Some(rest) = rest.get(length.max(2)..) else { return false };
                rest
            }
        };
    }
    false
}

/// The images in the subfolders of a folder, in the order of their paths, each with the number of its subfolder; and the sorted
/// names of the subfolders.
pub(super) fn list(folder: &Path) -> Result<Contents> {
    let classes: Vec<PathBuf> = entries(folder)?.into_iter().filter(|path| path.is_dir()).collect();
    let mut files = Vec::new();
    for (class, folder) in (0..).zip(&classes) {
        let before = files.len();
        files.extend(images_below(folder)?.into_iter().map(|path| (path, class)));
        if files.len() == before {
            bail!("{} has no image; images end in {}", folder.display(), ENDINGS.join(", "));
        }
    }
    if let Some((path, _)) = files.iter().find(|(path, _)| path.to_str().is_none()) {
        bail!("the name of {} is not UTF-8; rename it", path.display());
    }
    if classes.is_empty() {
        bail!("{} has no folder; put the images of each class into a folder of its own there", folder.display());
    }
    let classes = classes.iter().map(|path| name(path)).collect();
    Ok(Contents { files, classes, ..Contents::default() })
}

fn images_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut images = Vec::new();
    for path in entries(folder)? {
        if path.is_dir() {
            images.extend(images_below(&path)?);
        } else if is_image(&path) {
            images.push(path);
        }
    }
    Ok(images)
}

fn is_image(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known)))
}

/// The images among the objects below an address, with their classes, as [`list`] returns them for a folder. The first folder
/// in an object's path below the address is its class.
pub(super) fn list_objects(folder: &str) -> Result<Contents> {
    let (mut files, mut classes) = (Vec::new(), Vec::<String>::new());
    let mut objects = remote::within(folder)?;
    objects.retain(|(_, path)| is_image(Path::new(path)) && !path.split('/').any(is_hidden));
    // The order compares names of folders and files, as on a disk: `a-b/1.png` comes after `a/1.png`.
    objects.sort_by(|(_, one), (_, other)| one.split('/').cmp(other.split('/')));
    for (address, path) in objects {
        let Some((class, _)) = path.split_once('/') else { continue };
        if classes.last().is_none_or(|last| last != class) {
            classes.push(class.to_owned());
        }
        files.push((PathBuf::from(address), classes.len() as u32 - 1));
    }
    if classes.is_empty() {
        bail!(
            "{folder} has no folder with images; put those of each class into a folder of its own there, with names that end in {}",
            ENDINGS.join(", ")
        );
    }
    Ok(Contents { files, classes, ..Contents::default() })
}

/// The entries of a folder that are not hidden, in the order of their names.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let unread = || format!("cannot read the folder {}", folder.display());
    let entries = fs::read_dir(folder).with_context(unread)?;
    let mut paths =
        entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<PathBuf>>>().with_context(unread)?;
    paths.retain(|path| !is_hidden(&name(path)));
    paths.sort();
    Ok(paths)
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
