//! The entries of a tool list as bytes, which a parsed value does not keep.

/// The elements of the first `"tools"` array in a message, byte for byte.
pub fn entries(message: &str) -> Vec<&str> {
    let begin = message.find("\"tools\"").unwrap_or_else(|| panic!("no tools: {message:.300}"));
    let rest = &message[begin + "\"tools\"".len()..];
    let rest = rest.trim_start().strip_prefix(':').unwrap().trim_start();
    let rest = rest.strip_prefix('[').unwrap();
    let (mut found, mut depth, mut begun) = (Vec::new(), 0, 0);
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => {
                if depth == 0 {
                    begun = at;
                }
                depth += 1;
            }
            b'}' | b']' if depth == 0 => break,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    found.push(&rest[begun..=at]);
                }
            }
            _ => {}
        }
    }
    found
}
