//! Files that may be packed: by what they begin with when read, by their name when written.

use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use lzma_rust2::{XzOptions, XzReader, XzWriter};
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    path::Path,
};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const XZ: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];

/// What a packed or plain input says.
pub(crate) fn unpacked<'a>(input: impl Read + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    let mut input = BufReader::with_capacity(1 << 16, input);
    let begins = input.fill_buf()?;
    Ok(if begins.starts_with(&GZIP) {
        Box::new(BufReader::with_capacity(
            1 << 16,
            MultiGzDecoder::new(input),
        ))
    } else if begins.starts_with(&XZ) {
        Box::new(BufReader::with_capacity(
            1 << 16,
            XzReader::new(input, true),
        ))
    } else {
        Box::new(input)
    })
}

/// An output that packs what it is given, to be ended by [`Packer::finish`].
pub(crate) enum Packer<W: Write> {
    Plain(W),
    Gzip(GzEncoder<W>),
    Xz(Box<XzWriter<W>>),
}

impl<W: Write> Packer<W> {
    /// Packs as the name ends: `.gz`, `.xz`, or not at all.
    pub(crate) fn by_name(name: &Path, out: W) -> io::Result<Self> {
        Ok(match name.extension().and_then(|end| end.to_str()) {
            Some("gz") => Self::Gzip(GzEncoder::new(out, Compression::fast())),
            Some("xz") => Self::Xz(Box::new(XzWriter::new(out, XzOptions::with_preset(1))?)),
            _ => Self::Plain(out),
        })
    }

    pub(crate) fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(out) => Ok(out),
            Self::Gzip(encoder) => encoder.finish(),
            Self::Xz(writer) => writer.finish(),
        }?
        .flush()
    }
}

impl<W: Write> Write for Packer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(out) => out.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Xz(writer) => writer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.flush(),
            Self::Gzip(encoder) => encoder.flush(),
            Self::Xz(writer) => writer.flush(),
        }
    }
}
