//! The echo server over stdio.

use std::io::{self, BufRead, Write};

use super::{Outcome, Server};

/// Serves one request per line until the input ends.
pub fn serve(server: &Server, mut input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let (mut line, mut out) = (Vec::new(), Vec::new());
    while input.read_until(b'\n', &mut line)? > 0 {
        if server.answer(&line, &mut out).1 != Outcome::Nothing {
            out.push(b'\n');
            output.write_all(&out)?;
            output.flush()?;
        }
        line.clear();
        out.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_gets_one_line() {
        let server = Server::new("[]").unwrap();
        let input = concat!(
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            "\n",
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            "\n",
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#,
            "\n",
        );
        let mut output = Vec::new();
        serve(&server, input.as_bytes(), &mut output).unwrap();
        assert_eq!(
            String::from_utf8(output).unwrap(),
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\
             {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"tools\":[]}}\n"
        );
    }
}
