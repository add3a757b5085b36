//! The archive of a bundle: plain files in the ustar format, compressed with gzip.
//!
//! Only what [`archive`] writes is accepted: no links, directories, devices or extended headers, and nothing after the
//! end.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

use super::BundleError;

const BLOCK: usize = 512;
/// Maximum size of one file, and of all files together.
const MAX_FILE_BYTES: usize = 4 << 20;
const MAX_TOTAL_BYTES: usize = 16 << 20;

/// The fields of a header: their offsets and lengths.
const NAME: std::ops::Range<usize> = 0..100;
const SIZE: std::ops::Range<usize> = 124..136;
const CHECKSUM: std::ops::Range<usize> = 148..156;
const KIND: usize = 156;
const MAGIC: std::ops::Range<usize> = 257..265;
/// The fields after the magic: owner names, device numbers and a prefix of the name.
const REST: std::ops::Range<usize> = 265..512;

/// Makes an archive. The same files always make the same bytes.
pub(super) fn archive(entries: &[(&str, &[u8])]) -> Result<Vec<u8>, BundleError> {
    let failed = |_| BundleError::new("the archive cannot be written");
    let mut out = GzEncoder::new(Vec::new(), Compression::best());
    for (name, content) in entries {
        if content.len() > MAX_FILE_BYTES {
            return Err(BundleError::new(format!("`{name}` is too large")));
        }
        out.write_all(&header(name, content.len())).map_err(failed)?;
        out.write_all(content).map_err(failed)?;
        out.write_all(&vec![0; padding(content.len())]).map_err(failed)?;
    }
    out.write_all(&[0; 2 * BLOCK]).map_err(failed)?;
    out.finish().map_err(failed)
}

fn header(name: &str, size: usize) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| {
        let place = block.iter_mut().skip(at);
        place.zip(bytes).for_each(|(byte, own)| *byte = *own);
    };
    put(NAME.start, name.as_bytes());
    put(100, b"0000644\x000000000\x000000000\x00");
    put(SIZE.start, format!("{size:011o}\0").as_bytes());
    put(136, b"00000000000\x00");
    put(KIND, b"0");
    put(MAGIC.start, b"ustar\x0000");
    let sum = checksum(&block);
    let mut put = |at: usize, bytes: &[u8]| {
        let place = block.iter_mut().skip(at);
        place.zip(bytes).for_each(|(byte, own)| *byte = *own);
    };
    put(CHECKSUM.start, format!("{sum:06o}\0 ").as_bytes());
    block
}

/// The sum of a header's bytes, with blanks in the place of the sum.
fn checksum(block: &[u8; BLOCK]) -> u32 {
    let byte =
        |(at, byte): (usize, &u8)| u32::from(if CHECKSUM.contains(&at) { b' ' } else { *byte });
    block.iter().enumerate().map(byte).sum()
}

fn padding(size: usize) -> usize {
    size.next_multiple_of(BLOCK) - size
}

/// Reads the files of an archive one after another.
pub(super) struct ArchiveReader<'a> {
    input: GzDecoder<&'a [u8]>,
    total: usize,
}

impl<'a> ArchiveReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> ArchiveReader<'a> {
        ArchiveReader { input: GzDecoder::new(bytes), total: 0 }
    }

    /// The next file, with its name; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(String, Vec<u8>)>, BundleError> {
        let odd = || BundleError::new("it contains something else than plain files");
        let block = self.block()?;
        if block == [0; BLOCK] {
            self.end()?;
            return Ok(None);
        }
        let field = |range: std::ops::Range<usize>| block.get(range).unwrap_or_default();
        let text = |range| {
            let field: &[u8] = field(range);
            let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
            std::str::from_utf8(field.get(..end).unwrap_or_default()).map_err(|_| odd())
        };
        let number = |range| u64::from_str_radix(text(range)?.trim(), 8).map_err(|_| odd());
        if number(CHECKSUM)? != u64::from(checksum(&block)) {
            return Err(BundleError::new("its archive is damaged"));
        }
        let is_plain = block.get(KIND) == Some(&b'0')
            && field(MAGIC) == b"ustar\x0000"
            && field(REST).iter().all(|byte| *byte == 0);
        if !is_plain {
            return Err(odd());
        }
        let name = text(NAME)?.to_owned();
        let size = usize::try_from(number(SIZE)?).unwrap_or(usize::MAX);
        self.total = self.total.saturating_add(size);
        if size > MAX_FILE_BYTES || self.total > MAX_TOTAL_BYTES {
            return Err(BundleError::new("its files are too large"));
        }
        let mut content = vec![0; size];
        self.read(&mut content)?;
        let mut rest = vec![0; padding(size)];
        self.read(&mut rest)?;
        Ok(Some((name, content)))
    }

    fn block(&mut self) -> Result<[u8; BLOCK], BundleError> {
        let mut block = [0; BLOCK];
        self.read(&mut block)?;
        Ok(block)
    }

    fn read(&mut self, into: &mut [u8]) -> Result<(), BundleError> {
        let cut = |_| BundleError::new("it is cut short or damaged");
        self.input.read_exact(into).map_err(cut)
    }

    /// Checks that nothing follows, which also verifies the checksum of the compressed data.
    fn end(&mut self) -> Result<(), BundleError> {
        if self.block()? != [0; BLOCK] {
            return Err(BundleError::new("its archive is damaged"));
        }
        let more = BundleError::new("something follows its end");
        match self.input.read(&mut [0]) {
            Ok(0) if self.input.get_ref().is_empty() => Ok(()),
            Ok(_) => Err(more),
            Err(_) => Err(BundleError::new("it is cut short or damaged")),
        }
    }
}
