//! Saved tool lists: responses to `tools/list`, in files.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toolward_config::sanitize;
use toolward_config::text::Text;
use toolward_config::{Disk, Files, json};
use toolward_policy::ToolSet;
use toolward_policy::tool::DropReason;

use crate::exit::Failure;

/// One server's tools.
pub(crate) struct ToolList {
    pub(crate) server: String,
    pub(crate) tools: ToolSet,
    /// The file, if it was given explicitly. A directory may contain lists of other servers too.
    pub(crate) file: Option<String>,
}

/// Reads the argument of `--tools`: a file, a directory of files, or `SERVER=FILE`.
pub(crate) fn read(arguments: &[String]) -> Result<Vec<ToolList>, Failure> {
    let mut lists = Vec::new();
    for argument in arguments {
        let path = Path::new(argument);
        if path.is_dir() {
            let mut files = folder(path)?;
            files.sort();
            for file in files {
                lists.push(ToolList { file: None, ..list(&file, None)? });
            }
        } else {
            match argument.split_once('=') {
                Some((server, file)) if !path.exists() => {
                    lists.push(list(Path::new(file), Some(server))?);
                }
                _ => lists.push(list(path, None)?),
            }
        }
    }
    Ok(lists)
}

fn folder(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let name = path.display().to_string();
    let unreadable = |error| Failure::usage(format!("error: {}: {error}", sanitize(&name)));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        if file.extension().is_some_and(|extension| extension == "json") {
            files.push(file);
        }
    }
    Ok(files)
}

fn list(path: &Path, server: Option<&str>) -> Result<ToolList, Failure> {
    let name = path.display().to_string();
    let fail = |why: String| Failure::usage(format!("error: {}: {why}", sanitize(&name)));
    let bytes = Disk.read(path).map_err(|error| fail(error.to_string()))?;
    let text =
        Text::from_bytes(&name, bytes).map_err(|finding| Failure::usage(finding.render(true)))?;
    let value = json::parse(text.content())
        .map_err(|fault| Failure::usage(fault.in_text(&text).render(true)))?
        .to_json();
    // A saved list, a bare result, or a whole response.
    let tools = [&value["tools"], &value["result"]["tools"]].into_iter().find_map(Value::as_array);
    let Some(tools) = tools else {
        return Err(fail("it has no `tools` list: save a server's response to tools/list".into()));
    };
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    if !matches!(value["server"], Value::Null | Value::String(_)) {
        return Err(fail("`server` must be a string".into()));
    }
    if let (Some(given), Some(own)) = (server, value["server"].as_str())
        && given != own
    {
        let (name, given, own) = (sanitize(&name), sanitize(given), sanitize(own));
        writeln!(
            anstream::stderr(),
            "warning: {name}: the file has the tools of `{own}`, and is used for `{given}`"
        )?;
    }
    let server = server.map(String::from).or_else(|| value["server"].as_str().map(String::from));
    let Some(server) = server.or(stem) else {
        return Err(fail("the server's name is not known: write SERVER=FILE".into()));
    };
    let (tools, dropped) = ToolSet::read(tools);
    let mut stderr = anstream::stderr();
    for entry in dropped {
        let why = match entry.why {
            DropReason::NotAnObject => "is not an object".into(),
            DropReason::NoName => "has no name".into(),
            DropReason::Repeats(name) => format!("repeats the name `{}`", sanitize(&name)),
        };
        let name = sanitize(&name);
        writeln!(stderr, "warning: {name}: entry {} {why} and is left out", entry.index)?;
    }
    let cut = [&value["nextCursor"], &value["result"]["nextCursor"]];
    if cut.iter().any(|cursor| cursor.is_string()) {
        let name = sanitize(&name);
        writeln!(stderr, "warning: {name}: the list is incomplete, because it has a `nextCursor`")?;
    }
    Ok(ToolList { server, tools, file: Some(name) })
}
