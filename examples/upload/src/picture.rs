//! A picture to its thumbnail, within bounds: some bytes of a file can say that
//! they are a picture of terabytes.

use std::{io::Cursor, path::Path};

use image::{ImageError, ImageFormat, ImageReader, Limits};

/// Both sides of a thumbnail fit into it.
const SIDE: u32 = 128;
const SIDE_MAX: u32 = 10_000;
/// While a picture is decoded; there are as many at a time as the worker has jobs.
const MEMORY_MAX_BYTES: u64 = 96 * 1_024 * 1_024;

/// A thumbnail as a file has it.
pub(crate) struct Thumbnail {
    pub(crate) png: Vec<u8>,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

/// Why there is none.
#[derive(Debug)]
pub(crate) enum NoThumbnail {
    /// It would take more memory than a picture may.
    TooLarge,
    /// It is no PNG or JPEG, or not a whole one.
    NoPicture,
    /// It cannot be read at the moment.
    Unread,
}

/// The same bytes for the same file, so that whoever does it again does nothing
/// else.
pub(crate) fn thumbnail(path: &Path) -> Result<Thumbnail, NoThumbnail> {
    let reader = ImageReader::open(path).and_then(ImageReader::with_guessed_format);
    let mut reader = reader.map_err(|_| NoThumbnail::Unread)?;
    let mut limits = Limits::default();
    limits.max_image_width = Some(SIDE_MAX);
    limits.max_image_height = Some(SIDE_MAX);
    limits.max_alloc = Some(MEMORY_MAX_BYTES);
    reader.limits(limits);
    let picture = reader.decode().map_err(|error| match error {
        ImageError::Limits(_) => NoThumbnail::TooLarge,
        _ => NoThumbnail::NoPicture,
    })?;
    let small = picture.thumbnail(SIDE, SIDE).into_rgba8();
    let mut png = Cursor::new(Vec::new());
    small.write_to(&mut png, ImageFormat::Png).map_err(|_| NoThumbnail::NoPicture)?;
    Ok(Thumbnail { png: png.into_inner(), width: small.width(), height: small.height() })
}
