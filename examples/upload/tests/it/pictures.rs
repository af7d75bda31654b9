//! Pictures, and what only looks like one.

use std::io::Cursor;

use image::{ImageFormat, Rgb, RgbImage};

/// A picture of its own for each number.
pub(crate) fn picture(number: u32) -> Vec<u8> {
    encoded(number, ImageFormat::Png)
}

pub(crate) fn encoded(number: u32, format: ImageFormat) -> Vec<u8> {
    let shade = |x: u32| u8::try_from((x + number) % 256).unwrap();
    let picture = RgbImage::from_fn(320, 200, |x, y| Rgb([shade(x), shade(y), shade(x + y)]));
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// A PNG of some dozen bytes that says that both of its sides have so many pixels.
pub(crate) fn bomb(side: u32) -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = [side.to_be_bytes(), side.to_be_bytes()].concat();
    header.extend([8, 2, 0, 0, 0]);
    chunk(&mut png, *b"IHDR", &header);
    // A stored block of zlib, of one row's beginning.
    chunk(&mut png, *b"IDAT", &[0x78, 0x01, 0x01, 0x04, 0x00, 0xfb, 0xff, 0, 0, 0, 0]);
    chunk(&mut png, *b"IEND", &[]);
    png
}

/// Length, type, data and checksum (PNG, 5.3).
fn chunk(png: &mut Vec<u8>, kind: [u8; 4], data: &[u8]) {
    png.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
    png.extend(kind);
    png.extend(data);
    let crc = kind.iter().chain(data).fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 }
        })
    });
    png.extend((!crc).to_be_bytes());
}
