//! A minimal HTML reader for the facts in a view.

/// Text as it was before it was escaped.
pub fn unescaped(text: &str) -> String {
    let pairs = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&#96;", "`")];
    let text = pairs.iter().fold(text.to_string(), |text, (from, to)| text.replace(from, to));
    text.replace("&amp;", "&")
}

/// Text as it is in a view: sanitized, then escaped.
pub fn escaped(text: &str) -> String {
    let text = toolward_config::sanitize(text).replace('&', "&amp;");
    let pairs = [("<", "&lt;"), (">", "&gt;"), ("\"", "&quot;"), ("'", "&#39;"), ("`", "&#96;")];
    pairs.iter().fold(text, |text, (from, to)| text.replace(from, to))
}

/// A part of a URL, decoded.
pub fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digits: Vec<u8> = if byte == b'%' { rest.by_ref().take(2).collect() } else { vec![] };
        let digits = std::str::from_utf8(&digits).unwrap();
        bytes.push(if byte == b'%' { u8::from_str_radix(digits, 16).unwrap() } else { byte });
    }
    String::from_utf8(bytes).unwrap()
}

/// Any text as a part of a URL.
pub fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The texts between two marks.
pub fn between<'h>(html: &'h str, start: &str, end: &str) -> Vec<&'h str> {
    html.split(start).skip(1).filter_map(|rest| Some(rest.split_once(end)?.0)).collect()
}

/// The value of an attribute in the tag at the beginning of `html`.
pub fn attribute<'h>(html: &'h str, name: &str) -> Option<&'h str> {
    let tag = html.split('>').next()?;
    let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
    Some(rest.split_once('"')?.0)
}

/// The text of a part of a view, without markup.
pub fn plain(html: &str) -> String {
    let html = format!(">{html}");
    let text: String = html.split('>').map(|part| part.split('<').next().unwrap()).collect();
    unescaped(&text)
}

/// A reason as shown: without backticks, and with the file's name as the location of each rule.
pub fn in_prose(reason: &str) -> String {
    let reason = toolward_config::sanitize(reason).replace('`', "");
    let mut parts = reason.split(" (");
    let mut shown = parts.next().unwrap().to_string();
    for part in parts {
        match part.split_once(')') {
            Some((place, after)) if place.matches(':').count() >= 2 => {
                shown += &format!(" {}{after}", place.rsplit('/').next().unwrap());
            }
            _ => shown += &format!(" ({part}"),
        }
    }
    shown
}
