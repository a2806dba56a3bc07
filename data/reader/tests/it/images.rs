//! Tests of the values of images: one server gives those that the crates for decoding and resizing give when each image has memory
//! of its own.

use crate::answers::open;
use anyhow::Result;
use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use ferrotune_reader::{Reply, Request, Server, Source};
use image::{DynamicImage, ImageDecoder as _, ImageFormat, ImageReader, Luma, LumaA, Rgb, Rgba};
use std::fs;
use std::io::Cursor;
use std::path::Path;

/// JPEG files of kinds that the crate `image` does not write, made by Pillow 13:
///
/// ```python
/// y, x = numpy.mgrid[0:21, 0:33]
/// picture = Image.fromarray(numpy.stack([x * 7, y * 11, x * y % 256], 2).astype("uint8"))
/// picture.save("progressive.jpg", quality=90, progressive=True)
/// picture.convert("CMYK").save("cmyk.jpg", quality=90)
/// exif = Image.Exif()
/// exif[0x0112] = 6
/// picture.save("turned.jpg", quality=90, exif=exif)
/// ```
const MADE_BY_PILLOW: [(&str, &[u8]); 3] = [
    ("cmyk.jpg", include_bytes!("../images/cmyk.jpg")),
    ("progressive.jpg", include_bytes!("../images/progressive.jpg")),
    ("turned.jpg", include_bytes!("../images/turned.jpg")),
];

/// Images of each format and each type of pixel, of different sizes.
fn files() -> Vec<(String, Vec<u8>)> {
    let value = |x: u32, y: u32, channel: u32| (x * (7 + channel) + y * (11 + 5 * channel) + x * y) as u8;
    let colour = |width, height| {
        let pixel = |x, y| Rgb([0, 1, 2].map(|channel| value(x, y, channel)));
        DynamicImage::ImageRgb8(image::ImageBuffer::from_fn(width, height, pixel))
    };
    let transparent =
        image::ImageBuffer::from_fn(40, 30, |x, y| Rgba([0, 1, 2, 3].map(|channel| value(x, y, channel))));
    let grey = image::ImageBuffer::from_fn(70, 50, |x, y| Luma([value(x, y, 0)]));
    let grey_transparent = image::ImageBuffer::from_fn(17, 19, |x, y| LumaA([value(x, y, 0), value(x, y, 1)]));
    let deep =
        image::ImageBuffer::from_fn(31, 37, |x, y| Rgb([0, 1, 2].map(|channel| 257 * u16::from(value(x, y, channel)))));
    let of = |image: &DynamicImage, format| {
        let mut bytes = Cursor::new(Vec::new());
        image.write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    };
    let named = |name: &str, image: DynamicImage, format| (name.to_owned(), of(&image, format));
    let mut files = vec![
        named("large.jpg", colour(223, 117), ImageFormat::Jpeg),
        named("small.jpg", colour(9, 7), ImageFormat::Jpeg),
        named("right.jpg", colour(24, 20), ImageFormat::Jpeg),
        named("grey.jpg", grey.clone().into(), ImageFormat::Jpeg),
        named("colour.bmp", colour(50, 40), ImageFormat::Bmp),
        named("colour.gif", colour(33, 44), ImageFormat::Gif),
        named("colour.ppm", colour(21, 90), ImageFormat::Pnm),
        named("colour.png", colour(64, 32), ImageFormat::Png),
        named("right.png", colour(24, 20), ImageFormat::Png),
        named("deep.png", deep.into(), ImageFormat::Png),
        named("grey.png", grey.into(), ImageFormat::Png),
        named("grey-transparent.png", grey_transparent.into(), ImageFormat::Png),
        named("transparent.png", DynamicImage::from(transparent.clone()), ImageFormat::Png),
        named("transparent.webp", DynamicImage::from(transparent), ImageFormat::WebP),
        named("colour.webp", colour(41, 23), ImageFormat::WebP),
    ];
    files.extend(MADE_BY_PILLOW.map(|(name, bytes)| (name.to_owned(), bytes.to_vec())));
    files
}

/// The planes of an image, step by step.
fn expected(bytes: &[u8], [channels, height, width]: [usize; 3]) -> Vec<u8> {
    let mut decoder = ImageReader::new(Cursor::new(bytes)).with_guessed_format().unwrap().into_decoder().unwrap();
    let orientation = decoder.orientation().unwrap();
    let mut image = DynamicImage::from_decoder(decoder).unwrap();
    image.apply_orientation(orientation);
    let brightness = |[red, green, blue]: [u32; 3]| (19_595 * red + 38_470 * green + 7_471 * blue + 0x8000) >> 16;
    let pixels: Vec<u8> = match &image {
        DynamicImage::ImageLuma8(grey) if channels == 1 => grey.as_raw().clone(),
        _ if channels == 1 => image.to_rgb8().pixels().map(|pixel| brightness(pixel.0.map(u32::from)) as u8).collect(),
        _ => image.to_rgb8().into_raw(),
    };
    let kind = if channels == 1 { PixelType::U8 } else { PixelType::U8x3 };
    let from = ImageRef::new(image.width(), image.height(), &pixels, kind).unwrap();
    let mut to = Image::new(width as u32, height as u32, kind);
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
    Resizer::new().resize(&from, &mut to, &options).unwrap();
    (0..channels).flat_map(|channel| to.buffer().iter().copied().skip(channel).step_by(channels)).collect()
}

fn answered(server: &mut Server, path: &Path) -> Result<Vec<u8>> {
    match server.answer(Request::Image(path.to_owned()))? {
        Reply::Block(mut block) => Ok(block.remove(0).bytes),
        other => panic!("{other:?}"),
    }
}

#[test]
fn images_have_the_values_of_decoding_and_resizing_step_by_step() {
    let folder = tempfile::tempdir().unwrap();
    let files = files();
    for (name, bytes) in &files {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    for shape in [[3, 20, 24], [1, 20, 24], [3, 64, 1], [1, 5, 300]] {
        let [channels, height, width] = shape;
        let mut server = open(Source::Images { channels, height, width });
        // Each image follows a larger one, and a smaller one.
        for (name, bytes) in files.iter().chain(files.iter().rev()) {
            let values = answered(&mut server, &folder.path().join(name)).unwrap();
            assert!(values == expected(bytes, shape), "{name} as {shape:?}");
        }
    }
}
