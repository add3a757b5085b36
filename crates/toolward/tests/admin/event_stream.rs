//! A client of an event stream, as a browser is.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use toolward_testkit::wait::TIMEOUT;

use super::kit::Site;

pub struct Watch {
    reader: BufReader<TcpStream>,
    pending: String,
}

/// One event.
#[derive(Debug, Clone, Default)]
pub struct Told {
    pub event: String,
    pub id: String,
    pub data: String,
}

impl Told {
    /// The ids of the rows in it.
    pub fn ids(&self) -> Vec<String> {
        let rows = self.data.split(" data-id=\"").skip(1);
        rows.filter_map(|rest| Some(rest.split_once('"')?.0.to_string())).collect()
    }
}

impl Watch {
    pub fn open(site: &Site, view: &str, headers: &[(&str, &str)]) -> Watch {
        let mut stream = TcpStream::connect(("127.0.0.1", site.port)).unwrap();
        let mut all = vec![("Cookie", &*site.cookie), ("Accept", "text/event-stream")];
        all.extend(headers);
        let request = site.bytes(&format!("GET {}{view} HTTP/1.1", site.path), &all, "");
        stream.write_all(request.as_bytes()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut watch = Watch { reader: BufReader::new(stream), pending: String::new() };
        let head = watch.until(Instant::now() + TIMEOUT, "\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("text/event-stream"), "{head}");
        watch
    }

    /// Reads up to and including a delimiter, until a deadline.
    fn until(&mut self, deadline: Instant, end: &str) -> Option<String> {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end.as_bytes()) {
            match self.reader.fill_buf() {
                Ok([]) => panic!("the stream has ended"),
                Ok([byte, ..]) => {
                    bytes.push(*byte);
                    self.reader.consume(1);
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    if Instant::now() > deadline && bytes.is_empty() {
                        return None;
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
        Some(String::from_utf8(bytes).unwrap())
    }

    /// The next event, if one arrives in time.
    pub fn next(&mut self, within: Duration) -> Option<Told> {
        let deadline = Instant::now() + within;
        loop {
            if let Some((text, rest)) = self.pending.split_once("\n\n") {
                let told = parse(text);
                self.pending = rest.to_string();
                match told {
                    Some(told) => return Some(told),
                    None => continue,
                }
            }
            let size = self.until(deadline, "\r\n")?;
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            let mut chunk = vec![0; size + 2];
            self.reader.get_ref().set_read_timeout(Some(TIMEOUT)).unwrap();
            self.reader.read_exact(&mut chunk).unwrap();
            self.reader.get_ref().set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            chunk.truncate(size);
            self.pending += &String::from_utf8(chunk).unwrap();
        }
    }

    /// The next event of a kind; others are skipped.
    pub fn event(&mut self, kind: &str) -> Told {
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT {
            if let Some(told) = self.next(Duration::from_secs(1)).filter(|told| told.event == kind)
            {
                return told;
            }
        }
        panic!("no `{kind}` has come")
    }

    /// The rows of several events, once they contain this text.
    pub fn rows_with(&mut self, wanted: &str) -> Told {
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT {
            let told = self.event("rows");
            if told.data.contains(wanted) {
                return told;
            }
        }
        panic!("no row has `{wanted}`")
    }
}

fn parse(text: &str) -> Option<Told> {
    let mut told = Told::default();
    let mut data = Vec::new();
    for line in text.lines() {
        match line.split_once(':') {
            Some(("event", value)) => told.event = value.trim().into(),
            Some(("id", value)) => told.id = value.trim().into(),
            Some(("data", value)) => data.push(value.strip_prefix(' ').unwrap_or(value)),
            Some(("retry" | "", _)) => {}
            other => panic!("{other:?} in {text:?}"),
        }
    }
    told.data = data.join("\n");
    (!told.event.is_empty()).then_some(told)
}
