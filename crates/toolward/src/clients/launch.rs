//! How a client starts the program of an entry: command, arguments, environment and directory, with the client's
//! references replaced by the rules of its documentation.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::clients::table::{Fields, References};

/// A program as a client starts it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Launch {
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
    /// Variables of the entry, in addition to the client's environment.
    pub(crate) env: Vec<(String, String)>,
    pub(crate) directory: Option<PathBuf>,
}

/// The values that references refer to.
pub(crate) struct Surroundings<'a> {
    pub(crate) home: &'a Path,
    /// The directory of the project.
    pub(crate) workspace: Option<&'a Path>,
    pub(crate) variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Launch {
    /// Reads an entry. The error is the reason why only the client can start it.
    pub(crate) fn of(
        entry: &Value,
        fields: &Fields,
        references: References,
        around: &Surroundings<'_>,
    ) -> Result<Launch, String> {
        if entry.get("envFile").is_some() {
            return Err("its `envFile` is read by its client".into());
        }
        let is_in_args = references != References::Dollar;
        let replaced = |text: &str, is_replaced: bool| match is_replaced {
            true => replace(text, references, around),
            false => Ok(text.to_owned()),
        };
        let words = |value: &Value| -> Result<Vec<String>, String> {
            let texts = value.as_array().into_iter().flatten().filter_map(Value::as_str);
            texts.map(|text| replaced(text, is_in_args)).collect()
        };
        let command = entry.get(fields.command).ok_or("it has no command")?;
        let mut args = words(&entry["args"])?;
        let program = match fields.is_command_list {
            true => {
                args = words(command)?;
                if args.is_empty() {
                    return Err("its command is empty".into());
                }
                args.remove(0)
            }
            false => replaced(command.as_str().unwrap_or_default(), is_in_args)?,
        };
        let mut env = Vec::new();
        for (name, value) in entry[fields.env].as_object().into_iter().flatten() {
            let text = match value {
                Value::String(text) => replaced(text, true)?,
                Value::Null => continue,
                other => other.to_string(),
            };
            env.push((name.clone(), text));
        }
        let named = entry["env_vars"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for name in named.filter(|_| fields.has_env_vars) {
            let value = (around.variable)(name);
            env.push((name.into(), value.ok_or_else(|| format!("`{name}` is not set here"))?));
        }
        let directory = match entry["cwd"].as_str() {
            Some(written) => Some(PathBuf::from(replaced(written, is_in_args)?)),
            None => around.workspace.map(PathBuf::from),
        };
        Ok(Launch { program, args, env, directory })
    }
}

/// Replaces all references in a text.
fn replace(
    text: &str,
    references: References,
    around: &Surroundings<'_>,
) -> Result<String, String> {
    let (open, close) = match references {
        References::None => return Ok(text.into()),
        References::Secrets => ("${{", "}}"),
        References::EnvBraces => ("{", "}"),
        References::Braces | References::EnvPrefix | References::Dollar => ("${", "}"),
    };
    let mut replaced = String::new();
    let mut rest = text;
    while let Some((before, name, after)) = next(rest, open, close) {
        replaced.push_str(&bare(before, references, around));
        match value(name, references, around)? {
            Some(value) => replaced.push_str(&value),
            None => replaced.extend([open, name, close]),
        }
        rest = after;
    }
    replaced.push_str(&bare(rest, references, around));
    Ok(replaced)
}

fn next<'t>(text: &'t str, open: &str, close: &str) -> Option<(&'t str, &'t str, &'t str)> {
    let (before, rest) = text.split_once(open)?;
    let (name, after) = rest.split_once(close)?;
    Some((before, name, after))
}

/// The value of one reference; `None` if the client leaves the text as it is.
fn value(
    name: &str,
    references: References,
    around: &Surroundings<'_>,
) -> Result<Option<String>, String> {
    let unknown = || Err(format!("the value of `{name}` is known to its client only"));
    let path = |path: &Path| Ok(Some(path.to_string_lossy().into_owned()));
    let variable = around.variable;
    match references {
        References::Secrets => unknown(),
        References::EnvBraces => match name.split_once(':') {
            Some(("env", name)) => Ok(Some(variable(name).unwrap_or_default())),
            Some(("file", _)) => unknown(),
            _ => Ok(None),
        },
        References::EnvPrefix => match (name, name.split_once(':')) {
            ("userHome", _) => path(around.home),
            ("workspaceFolder", _) => around.workspace.map_or_else(unknown, path),
            (_, Some(("env", name))) => Ok(Some(variable(name).unwrap_or_default())),
            _ => unknown(),
        },
        References::Dollar => Ok(Some(variable(name).unwrap_or_default())),
        // A variable that is not set stays as it is written.
        References::Braces => Ok(match name.split_once(":-") {
            Some((name, default)) => Some(variable(name).unwrap_or_else(|| default.into())),
            None => variable(name),
        }),
        References::None => Ok(None),
    }
}

/// `$NAME` without braces, if the client replaces it.
fn bare(text: &str, references: References, around: &Surroundings<'_>) -> String {
    if references != References::Dollar {
        return text.into();
    }
    let mut parts = text.split('$');
    let mut replaced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = part.find(|c| !is_name(c)).unwrap_or(part.len());
        match part.split_at(end) {
            ("", rest) => replaced.extend(["$", rest]),
            (name, rest) => {
                replaced.push_str(&(around.variable)(name).unwrap_or_default());
                replaced.push_str(rest);
            }
        }
    }
    replaced
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::clients::table::client;

    fn launch(id: &str, entry: Value) -> Result<Launch, String> {
        let variable = |name: &str| (name == "KEY").then(|| "k 1".to_owned());
        let around = Surroundings {
            home: Path::new("/home/me"),
            workspace: Some(Path::new("/srv/app")),
            variable: &variable,
        };
        let client = client(id).ok_or("no such client")?;
        Launch::of(&entry, client.fields, client.references, &around)
    }

    fn env(id: &str, value: &str) -> Result<String, String> {
        let fields = client(id).ok_or("no such client")?.fields;
        let mut entry = json!({"args": []});
        entry[fields.command] = match fields.is_command_list {
            true => json!(["x"]),
            false => json!("x"),
        };
        entry[fields.env] = json!({"A": value});
        Ok(launch(id, entry)?.env.pop().ok_or("no variable")?.1)
    }

    #[test]
    fn each_client_replaces_its_own_references() {
        for (id, written, expected) in [
            ("claude-code", "Bearer ${KEY}", "Bearer k 1"),
            ("claude-code", "${NO:-other} ${NO} $KEY", "other ${NO} $KEY"),
            ("cursor", "${env:KEY}${userHome}", "k 1/home/me"),
            ("vscode", "${workspaceFolder}/x", "/srv/app/x"),
            ("windsurf", "${env:NO}", ""),
            ("gemini-cli", "a$KEY-${KEY}$NO.$ 5$", "ak 1-k 1.$ 5$"),
            ("opencode", "{env:KEY} {x} ${KEY}", "k 1 {x} ${KEY}"),
            ("claude-desktop", "${KEY} $KEY", "${KEY} $KEY"),
            ("zed", "${KEY}", "${KEY}"),
            ("kiro", "${KEY}", "k 1"),
        ] {
            assert_eq!(env(id, written).as_deref(), Ok(expected), "{id}");
        }
    }

    #[test]
    fn values_that_only_the_client_knows_are_named() {
        for (id, written, name) in [
            ("vscode", "${input:tok}", "input:tok"),
            ("continue", "${{ secrets.KEY }}", "secrets.KEY"),
            ("opencode", "{file:~/x}", "file:~/x"),
        ] {
            let why = env(id, written).err().unwrap_or_default();
            assert!(why.contains(name) && why.contains("client only"), "{id}: {why}");
        }
        let why = launch("vscode", json!({"command": "x", "envFile": ".env"})).err();
        assert_eq!(why.as_deref(), Some("its `envFile` is read by its client"));
        let entry = json!({"command": "x", "env_vars": ["NO"]});
        assert_eq!(launch("codex", entry).err().as_deref(), Some("`NO` is not set here"));
    }

    #[test]
    fn command_arguments_and_directory_follow_the_fields_of_the_client() {
        let entry =
            json!({"type": "local", "command": ["a", "{env:KEY}"], "environment": {"B": "1"}});
        let found = launch("opencode", entry);
        let expected = Launch {
            program: "a".into(),
            args: vec!["k 1".into()],
            env: vec![("B".into(), "1".into())],
            directory: Some("/srv/app".into()),
        };
        assert_eq!(found, Ok(expected));
        let entry = json!({"cmd": "a", "args": ["$KEY"], "envs": {"N": 5}, "cwd": "/x"});
        let found = launch("goose", entry);
        let expected = Launch {
            program: "a".into(),
            args: vec!["$KEY".into()],
            env: vec![("N".into(), "5".into())],
            directory: Some("/x".into()),
        };
        assert_eq!(found, Ok(expected));
        // Gemini CLI replaces references in the environment only.
        let entry = json!({"command": "a", "args": ["$KEY"], "env": {"A": "$KEY"}});
        let found = launch("gemini-cli", entry).map(|found| (found.args, found.env));
        assert_eq!(found, Ok((vec!["$KEY".into()], vec![("A".into(), "k 1".into())])));
        let entry = json!({"command": "a", "env_vars": ["KEY"]});
        let found = launch("codex", entry).map(|found| found.env);
        assert_eq!(found, Ok(vec![("KEY".into(), "k 1".into())]));
    }
}
