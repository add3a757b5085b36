//! What is said to a store and what it answers, as bytes (RESP2).

use bytes::{Buf, BytesMut};

/// The longest answer that is read; ours are a few words.
const LONGEST: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Text(String),
    Error(String),
    Number(i64),
    Nothing,
    List(Vec<Reply>),
}

impl Reply {
    pub(super) fn number(&self) -> Option<i64> {
        match self {
            Reply::Number(number) => Some(*number),
            Reply::Text(text) => text.parse().ok(),
            _ => None,
        }
    }
}

/// The store says something that is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotSpoken;

/// Appends a command.
pub(super) fn command(words: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Takes the next whole answer off the buffer.
pub(super) fn reply(buffer: &mut BytesMut) -> Result<Option<Reply>, NotSpoken> {
    match read(buffer, 0, 0)? {
        Some((reply, end)) => {
            buffer.advance(end);
            Ok(Some(reply))
        }
        None if buffer.len() > LONGEST => Err(NotSpoken),
        None => Ok(None),
    }
}

/// An answer that begins at `at`, and where it ends.
fn read(bytes: &[u8], at: usize, depth: usize) -> Result<Option<(Reply, usize)>, NotSpoken> {
    let rest = bytes.get(at..).unwrap_or_default();
    let Some(length) = rest.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let line = rest.get(..length).unwrap_or_default();
    let (kind, text) = line.split_first().ok_or(NotSpoken)?;
    let text = std::str::from_utf8(text).map_err(|_| NotSpoken)?;
    let number = || text.parse::<i64>().map_err(|_| NotSpoken);
    let end = at + length + 2;
    let reply = match kind {
        b'+' => Reply::Text(text.into()),
        b'-' => Reply::Error(text.into()),
        b':' => Reply::Number(number()?),
        b'$' => {
            let Ok(length) = usize::try_from(number()?) else {
                return Ok(Some((Reply::Nothing, end)));
            };
            if length > LONGEST {
                return Err(NotSpoken);
            }
            let Some(whole) = bytes.get(end..end + length + 2) else { return Ok(None) };
            let text = whole.strip_suffix(b"\r\n").ok_or(NotSpoken)?;
            let text = String::from_utf8_lossy(text).into_owned();
            return Ok(Some((Reply::Text(text), end + length + 2)));
        }
        b'*' => {
            let Ok(count) = usize::try_from(number()?) else {
                return Ok(Some((Reply::Nothing, end)));
            };
            if count > LONGEST || depth > 1 {
                return Err(NotSpoken);
            }
            let (mut list, mut at) = (Vec::new(), end);
            for _ in 0..count {
                let Some((reply, end)) = read(bytes, at, depth + 1)? else { return Ok(None) };
                list.push(reply);
                at = end;
            }
            return Ok(Some((Reply::List(list), at)));
        }
        _ => return Err(NotSpoken),
    };
    Ok(Some((reply, end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_however_they_are_cut() {
        let whole = b"+OK\r\n:-7\r\n$3\r\na\r\n\r\n$-1\r\n*2\r\n:1\r\n$1\r\nx\r\n-ERR no\r\n";
        for cut in 0..=whole.len() {
            let mut buffer = BytesMut::new();
            let mut read = Vec::new();
            for part in [&whole[..cut], &whole[cut..]] {
                buffer.extend_from_slice(part);
                while let Some(one) = reply(&mut buffer).unwrap() {
                    read.push(one);
                }
            }
            let list = Reply::List(vec![Reply::Number(1), Reply::Text("x".into())]);
            let want = [
                Reply::Text("OK".into()),
                Reply::Number(-7),
                Reply::Text("a\r\n".into()),
                Reply::Nothing,
                list,
                Reply::Error("ERR no".into()),
            ];
            assert_eq!(read, want, "{cut}");
        }
    }

    #[test]
    fn what_is_no_answer_is_not_waited_for() {
        for bad in [
            "HTTP/1.1 200 OK\r\n",
            "$x\r\n",
            "$99999999\r\n",
            "\r\n",
            "*1\r\n*1\r\n*1\r\n:1\r\n",
            "$1\r\nabc",
        ] {
            assert_eq!(reply(&mut bad.as_bytes().into()), Err(NotSpoken), "{bad}");
        }
        let endless = vec![b'+'; LONGEST + 1];
        assert_eq!(reply(&mut endless[..].into()), Err(NotSpoken));
    }

    #[test]
    fn a_command_is_counted_words() {
        let mut out = Vec::new();
        command(&[b"GET", b"a\r\nb"], &mut out);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n");
    }
}
