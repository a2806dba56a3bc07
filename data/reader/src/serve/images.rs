//! Images, which the crate `image` decodes and `fast_image_resize` resizes.

use super::hidden::is_hidden;
use super::{files, remote};
use crate::wire::{Array, Block, Contents, Shape};
use anyhow::{Context as _, Result, anyhow, bail};
use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use image::{DynamicImage, ImageDecoder as _, ImageFormat, ImageReader, Limits};
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// The endings of the names of image files that this module can decode.
const ENDINGS: [&str; 9] = ["bmp", "gif", "jpeg", "jpg", "pgm", "png", "pnm", "ppm", "webp"];

/// A decoder that resizes all images to one size.
pub(super) struct Images {
    channels: usize,
    height: usize,
    width: usize,
    resizer: Resizer,
}

impl Images {
    pub(super) fn new(channels: usize, height: usize, width: usize) -> Result<Images> {
        if !matches!(channels, 1 | 3) {
            bail!("an image has 1 channel (grey) or 3 (red, green and blue), not {channels}");
        }
        if [height, width].iter().any(|length| !(1..=65_535).contains(length)) {
            bail!("images of {height}×{width} pixels cannot be made; give from 1×1 to 65535×65535");
        }
        Ok(Images { channels, height, width, resizer: Resizer::new() })
    }

    /// The image in a file, as u8 of shape (channels, height, width).
    pub(super) fn read(&mut self, path: &Path, bytes: &[u8]) -> Result<Block> {
        let name = || files::name(path);
        let image = decoded(bytes).with_context(|| format!("cannot decode {}", name()))?;
        let pixels = self.resized(&image).with_context(|| format!("cannot resize {}", name()))?;
        // Interleaved channels become separate planes.
        let bytes = (0..self.channels).flat_map(|channel| pixels.iter().skip(channel).step_by(self.channels)).copied();
        let mut planes = Vec::with_capacity(pixels.len());
        planes.extend(bytes);
        let shape = Shape { dtype: "u8".to_owned(), dims: vec![self.channels, self.height, self.width] };
        Ok(vec![Array { shape, bytes: planes }])
    }

    fn resized(&mut self, image: &DynamicImage) -> Result<Vec<u8>> {
        let (width, height) = (image.width(), image.height());
        let (pixels, kind) = match self.channels {
            1 => (grey(image), PixelType::U8),
            _ => (image.to_rgb8().into_raw(), PixelType::U8x3),
        };
        if (width as usize, height as usize) == (self.width, self.height) {
            return Ok(pixels);
        }
        let from = ImageRef::new(width, height, &pixels, kind).map_err(|error| anyhow!("{error}"))?;
        let mut to = Image::new(self.width as u32, self.height as u32, kind);
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
        self.resizer.resize(&from, &mut to, &options)?;
        Ok(to.into_vec())
    }
}

/// The brightness of each pixel by ITU-R BT.601, as in Pillow and TensorFlow; the crate `image` uses BT.709.
fn grey(image: &DynamicImage) -> Vec<u8> {
    if let DynamicImage::ImageLuma8(pixels) = image {
        return pixels.as_raw().clone();
    }
    let brightness = |pixel: &[u8; 3]| {
        let [red, green, blue] = pixel.map(u32::from);
        ((19_595 * red + 38_470 * green + 7_471 * blue + 0x8000) >> 16) as u8
    };
    image.to_rgb8().as_raw().as_chunks().0.iter().map(brightness).collect()
}

/// The image in its display orientation: turned and mirrored by its EXIF data.
fn decoded(bytes: &[u8]) -> Result<DynamicImage> {
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
    let mut image = DynamicImage::from_decoder(decoder)?;
    image.apply_orientation(orientation);
    Ok(image)
}

/// Whether a JPEG file has the marker for the end of the image. Other data may follow the marker, and a preview image
/// may come before it.
///
/// Source: ITU-T T.81, B.1.1: <https://www.w3.org/Graphics/JPEG/itu-t81.pdf>.
fn is_whole_jpeg(mut bytes: &[u8]) -> bool {
    while let Some(at) = bytes.iter().position(|byte| *byte == 0xff) {
        let Some((marker, rest)) = bytes[at + 1..].split_first() else { return false };
        bytes = match marker {
            0xd9 => return true,
            // Markers without a segment: a fill byte, data of a scan, the beginning of the image, and restarts within a scan.
            0xff => &bytes[at + 1..],
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
