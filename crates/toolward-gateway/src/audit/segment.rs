//! The files of the log: `audit.jsonl` is the live segment, `audit-00000001.jsonl` and so on are
//! closed.
//!
//! Processes that share a directory do not share a file: the second one writes `audit.2.jsonl`.
//! Each such stream has its own chain, and a head that contains the end of the chain.

use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::facts::write_number;
use super::line::{Hash, NOTHING, hash, write_hex};

/// The maximum size of a head.
const MAX_HEAD_BYTES: usize = 4096;

/// The maximum number of processes that can share a directory.
const MAX_STREAMS: u32 = 256;

/// The files of one writer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stream {
    pub(super) folder: PathBuf,
    pub(super) number: u32,
}

/// The end of a chain, as stored in the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub segment: u64,
    pub bytes: u64,
    pub hash: Hash,
}

impl Stream {
    /// All streams of a directory, in order.
    pub fn all(folder: &Path) -> Result<Vec<Stream>> {
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let name = entry?.file_name();
            let parsed = name.to_str().and_then(parse);
            numbers.extend(parsed.map(|(number, _)| number));
        }
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers.into_iter().map(|number| Stream { folder: folder.into(), number }).collect())
    }

    /// Claims the first stream that no other process writes to; the file holds the lock. A process
    /// keeps its previous stream if that is still free.
    pub(super) fn claim(folder: &Path, before: Option<u32>) -> Result<(Stream, File)> {
        for number in before.into_iter().chain(1..=MAX_STREAMS) {
            let stream = Stream { folder: folder.into(), number };
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let head = open_file(&stream.head_path(), &mut options)?;
            match flock(&head, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok((stream, head)),
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::other(format!("{MAX_STREAMS} processes already write to this directory")))
    }

    fn stem(&self) -> String {
        match self.number {
            1 => "audit".into(),
            number => format!("audit.{number}"),
        }
    }

    /// The live segment.
    pub(crate) fn live_path(&self) -> PathBuf {
        self.folder.join(format!("{}.jsonl", self.stem()))
    }

    pub(crate) fn closed_path(&self, segment: u64) -> PathBuf {
        self.folder.join(format!("{}-{segment:08}.jsonl", self.stem()))
    }

    pub(super) fn head_path(&self) -> PathBuf {
        self.folder.join(format!("{}.head", self.stem()))
    }

    /// The existing closed segments, by number.
    pub fn closed(&self) -> Result<Vec<(u64, PathBuf)>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            if let Some((number, Some(segment))) = entry.file_name().to_str().and_then(parse)
                && number == self.number
            {
                found.push((segment, entry.path()));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// The end of the chain according to the head.
    pub fn head(&self) -> Option<Head> {
        Head::read(&open_file(&self.head_path(), OpenOptions::new().read(true)).ok()?)
    }
}

impl Head {
    /// The end of an empty chain.
    pub(crate) const NOTHING: Head = Head { segment: 0, bytes: 0, hash: NOTHING };

    /// Parses the contents of a file.
    pub(crate) fn read(file: &File) -> Option<Head> {
        let mut bytes = [0; MAX_HEAD_BYTES];
        let read = file.read_at(&mut bytes, 0).ok()?;
        let text = std::str::from_utf8(bytes.get(..read)?).ok()?;
        let head: serde_json::Value = serde_json::from_str(text.trim()).ok()?;
        let digits = head["hash"].as_str()?;
        let mut hash = NOTHING;
        for (at, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        Some(Head { segment: head["segment"].as_u64()?, bytes: head["bytes"].as_u64()?, hash })
    }

    /// Writes the head to a file with other content.
    pub(crate) fn overwrite(&self, file: &File) -> Result<()> {
        self.write(file)?;
        file.set_len(self.text().len() as u64)
    }

    /// Every head has the same length, so that it can be overwritten in place.
    fn text(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(128);
        text.extend_from_slice(b"{\"hash\":\"");
        write_hex(&self.hash, &mut text);
        for (name, number, width) in
            [(&b"\",\"segment\":"[..], self.segment, 12), (b",\"bytes\":", self.bytes, 14)]
        {
            text.extend_from_slice(name);
            let end = text.len() + width;
            write_number(number, &mut text);
            text.resize(end.max(text.len()), b' ');
        }
        text.extend_from_slice(b"}\n");
        text
    }

    pub(super) fn write(&self, file: &File) -> Result<()> {
        file.write_all_at(&self.text(), 0)
    }
}

/// The numbers of a stream and, for a closed segment, the segment.
fn parse(name: &str) -> Option<(u32, Option<u64>)> {
    let stem = name.strip_prefix("audit")?.strip_suffix(".jsonl")?;
    let (stream, segment) = match stem.split_once('-') {
        Some((stream, segment)) if segment.len() >= 8 => (stream, Some(segment.parse().ok()?)),
        Some(_) => return None,
        None => (stem, None),
    };
    match stream.strip_prefix('.') {
        Some(number) => Some((number.parse().ok().filter(|number| *number > 1)?, segment)),
        None => stream.is_empty().then_some((1, segment)),
    }
}

/// The end of a file of records.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// The hash of the last complete line, if there is one.
    pub(super) last: Option<Hash>,
    /// The length of the file up to the end of that line.
    pub(super) whole: u64,
    /// The rest: an incomplete line.
    pub(super) torn: Vec<u8>,
}

/// The number of bytes read at a time.
const CHUNK: u64 = 64 << 10;

/// Reads a file's last line from the end, so the size of the file does not matter.
pub(super) fn tail(file: &File) -> Result<Tail> {
    tail_at(file, file.metadata()?.len())
}

/// The same for a file that is cut at `length`.
pub(super) fn tail_at(file: &File, length: u64) -> Result<Tail> {
    let mut end = Vec::new();
    let mut begin = length;
    // Until there are two newlines, or the whole file.
    while begin > 0 && end.iter().filter(|byte| **byte == b'\n').count() < 2 {
        let size = CHUNK.min(begin);
        let mut chunk = vec![0; usize::try_from(size).unwrap_or(0)];
        begin -= size;
        file.read_exact_at(&mut chunk, begin)?;
        chunk.append(&mut end);
        end = chunk;
    }
    let Some(stop) = end.iter().rposition(|byte| *byte == b'\n') else {
        return Ok(Tail { last: None, whole: 0, torn: end });
    };
    let (lines, torn) = end.split_at(stop);
    let line = lines.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let torn = torn.get(1..).unwrap_or_default().to_vec();
    Ok(Tail { last: Some(hash(line)), whole: length - torn.len() as u64, torn })
}

/// The first line of a file, if it is short enough to be a segment's first record.
pub(crate) fn first_line(file: &File) -> Option<serde_json::Value> {
    let mut begin = [0; 1024];
    let read = file.read_at(&mut begin, 0).ok()?;
    let line = begin.get(..read)?.split(|byte| *byte == b'\n').next()?;
    serde_json::from_slice(line).ok()
}

/// Opens the live segment. A pipe is rejected: it would block until it is read, and its end cannot
/// be read back.
pub(super) fn open_live(path: &Path) -> Result<File> {
    open_file(path, OpenOptions::new().read(true).append(true).create(true).mode(0o600))
}

/// Opens a regular file, without blocking on a pipe or socket.
pub(crate) fn open_file(path: &Path, options: &mut OpenOptions) -> Result<File> {
    let file = match options.custom_flags(unblocked()).open(path) {
        Ok(file) => file,
        // A pipe without a reader, or a socket.
        Err(_) if path.metadata().is_ok_and(|found| !found.is_file()) => {
            return Err(not_a_file(path));
        }
        Err(error) => return Err(error),
    };
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(not_a_file(path)),
    }
}

fn unblocked() -> i32 {
    i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0)
}

fn not_a_file(path: &Path) -> Error {
    Error::other(format!("{} is not a file: move it away", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_contain_stream_and_segment() {
        assert_eq!(parse("audit.jsonl"), Some((1, None)));
        assert_eq!(parse("audit-00000007.jsonl"), Some((1, Some(7))));
        assert_eq!(parse("audit.2.jsonl"), Some((2, None)));
        assert_eq!(parse("audit.12-00000001.jsonl"), Some((12, Some(1))));
        for other in ["audit.head", "audit.1.jsonl", "audit.x.jsonl", "audit-1.jsonl", "x.jsonl"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_last_line_is_found_however_long_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let long = "x".repeat(200_000);
        for (text, last, torn) in [
            ("", None, ""),
            ("torn", None, "torn"),
            ("a\n", Some("a"), ""),
            ("a\nb\nto", Some("b"), "to"),
            (&format!("a\n{long}\n"), Some(&*long), ""),
            (&format!("a\n{long}\n{long}"), Some(&*long), &*long),
        ] {
            std::fs::write(&path, text).unwrap();
            let found = tail(&File::open(&path).unwrap()).unwrap();
            assert_eq!(found.last, last.map(|line| hash(line.as_bytes())));
            assert_eq!(found.torn, torn.as_bytes());
            assert_eq!(found.whole as usize, text.len() - torn.len());
        }
    }
}
