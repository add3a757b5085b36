//! Derives the name of the server from its command line.
//!
//! Rules refer to servers by name, and `npx` would be a poor one: the package, module, image or script that the
//! command runs is what people call the server.

use std::ffi::OsString;
use std::path::Path;

/// Used if nothing of the command line can be a name.
const FALLBACK: &str = "server";

/// The name of the server that a command line runs, e.g. `server-filesystem`.
pub(crate) fn of_command(command: &[OsString]) -> String {
    let words: Vec<String> = command.iter().map(|word| word.to_string_lossy().into()).collect();
    let (program, rest) = match words.split_first() {
        Some((program, rest)) => (stem(program), rest),
        None => return FALLBACK.into(),
    };
    let named = named(&program, rest).map(|name| valid(&name)).filter(|name| !name.is_empty());
    let name = named.unwrap_or_else(|| valid(&program));
    if name.is_empty() { FALLBACK.into() } else { name }
}

/// The package or module that a known launcher runs; `None` for a program that is the server itself.
fn named(program: &str, rest: &[String]) -> Option<String> {
    let python = program.starts_with("python") || program == "pypy3";
    match program {
        "npx" | "bunx" | "pnpx" => {
            let flagged = option(rest, &["-p", "--package"]);
            flagged.or_else(|| word(rest, &["-p", "--package", "-c", "--call"])).map(package)
        }
        "npm" | "pnpm" | "yarn" => match rest.split_first() {
            Some((verb, rest)) if matches!(verb.as_str(), "exec" | "x" | "dlx" | "create") => {
                named("npx", rest)
            }
            _ => None,
        },
        "uvx" => {
            let flagged = option(rest, &["--from"]);
            word(rest, UV_VALUES).or(flagged).map(requirement)
        }
        "uv" => {
            let verb = rest.iter().position(|word| matches!(word.as_str(), "run" | "tool"))?;
            let after = rest.get(verb + 1..)?;
            match after.split_first() {
                Some((run, after)) if rest.get(verb)?.as_str() == "tool" && run == "run" => {
                    named("uvx", after)
                }
                _ => {
                    let started = word(after, UV_VALUES)?;
                    let at = after.iter().position(|word| *word == started)?;
                    launched(&started, after.get(at + 1..)?)
                }
            }
        }
        "pipx" => match rest.split_first() {
            Some((verb, rest)) if verb == "run" => {
                word(rest, &["--spec", "--python", "--pip-args"]).map(requirement)
            }
            _ => None,
        },
        "docker" | "podman" | "nerdctl" => {
            let run = rest.iter().position(|word| word == "run")?;
            image(rest.get(run + 1..)?)
        }
        "env" => {
            let at = rest.iter().position(|word| !word.contains('=') && !word.starts_with('-'))?;
            launched(rest.get(at)?, rest.get(at + 1..)?)
        }
        "bun" | "deno" => match rest.split_first() {
            Some((verb, rest)) if matches!(verb.as_str(), "run" | "x") => {
                word(rest, &[]).map(|target| script(&target))
            }
            _ => word(rest, &[]).map(|target| script(&target)),
        },
        "node" | "tsx" | "ts-node" => {
            word(rest, &["-r", "--require", "--import", "--loader"]).map(|file| script(&file))
        }
        _ if python => match option(rest, &["-m"]) {
            Some(module) => Some(module.split('.').next().unwrap_or_default().replace('_', "-")),
            None => word(rest, &["-c", "-W", "-X"]).map(|file| script(&file)),
        },
        _ => None,
    }
}

/// A program with its arguments, without its launcher.
fn launched(program: &str, rest: &[String]) -> Option<String> {
    named(&stem(program), rest).or_else(|| Some(script(program)))
}

/// Options of uv that have a value.
const UV_VALUES: &[&str] = &[
    "--from",
    "--with",
    "--python",
    "-p",
    "--directory",
    "--project",
    "--index",
    "--index-url",
    "--extra-index-url",
    "--env-file",
    "--with-editable",
    "--with-requirements",
    "--extra",
    "--group",
    "--refresh-package",
    "--default-index",
    "--cache-dir",
    "--config-file",
];

/// The first word that is neither an option nor the value of one.
fn word(words: &[String], with_values: &[&str]) -> Option<String> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            return words.next().cloned();
        }
        if with_values.contains(&word.as_str()) {
            words.next();
        } else if !word.starts_with('-') {
            return Some(word.clone());
        }
    }
    None
}

/// The value of the first of these options: `--name value`, or `--name=value`.
fn option(words: &[String], names: &[&str]) -> Option<String> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            return None;
        }
        if names.contains(&word.as_str()) {
            return words.next().cloned();
        }
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        if !value.is_empty() && names.contains(&name) {
            return Some(value.into());
        }
    }
    None
}

/// `@scope/server-x@1.2.3` is `server-x`; a URL or path is its last part.
fn package(spec: String) -> String {
    let spec = spec.split('#').next().unwrap_or_default().trim_end_matches('/');
    let last = spec.rsplit('/').next().unwrap_or_default();
    // The version follows an `@` that is not the first character.
    let name = match last.char_indices().skip(1).find(|(_, c)| *c == '@') {
        Some((at, _)) => last.get(..at).unwrap_or(last),
        None => last,
    };
    name.trim_start_matches('@').trim_end_matches(".git").trim_end_matches(".tgz").into()
}

/// `mcp-server-x[extra]==1.2` and `mcp-server-x@latest` are `mcp-server-x`.
fn requirement(spec: String) -> String {
    if spec.contains("://") || spec.starts_with(['.', '/']) {
        return package(spec.split('@').next().unwrap_or_default().into());
    }
    let end = spec.find(['[', '=', '<', '>', '~', '!', '@', ' ', ';']).unwrap_or(spec.len());
    spec.get(..end).unwrap_or_default().into()
}

/// The image of `docker run`: the first word after its options.
fn image(words: &[String]) -> Option<String> {
    // Options without a value; every other one has one.
    let flags =
        ["--rm", "--init", "--interactive", "--tty", "--privileged", "--read-only", "--detach"];
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if let Some(long) = word.strip_prefix("--") {
            if !long.contains('=') && !flags.contains(&word.as_str()) {
                words.next();
            }
        } else if let Some(short) = word.strip_prefix('-') {
            // `-i`, `-it`, `-di`; others have a value, in the same word or the next.
            let has_value = !short.chars().all(|c| matches!(c, 'i' | 't' | 'd' | 'q' | 'P'));
            if has_value && short.chars().count() == 1 {
                words.next();
            }
        } else {
            let name = word.split('@').next().unwrap_or_default();
            let name = name.rsplit('/').next().unwrap_or_default();
            return Some(name.split(':').next().unwrap_or_default().into());
        }
    }
    None
}

/// The file's name; a generic one, such as `dist/index.js`, is replaced by its directory's.
fn script(path: &str) -> String {
    let own = stem(path);
    let vague = ["index", "main", "__main__", "server", "cli", "app", "start", "stdio"];
    if !vague.contains(&own.as_str()) {
        return own;
    }
    let above = Path::new(path).parent().into_iter().flat_map(Path::ancestors);
    let names = above.filter_map(|directory| directory.file_name()?.to_str().map(String::from));
    let built = ["dist", "build", "src", "lib", "bin", "out", "..", "."];
    names.into_iter().find(|name| !built.contains(&name.as_str())).unwrap_or(own)
}

fn stem(path: &str) -> String {
    let name = Path::new(path).file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let endings = [".js", ".mjs", ".cjs", ".ts", ".mts", ".py", ".sh", ".exe", ".cmd", ".bat"];
    let ending = endings.iter().find(|ending| name.len() > ending.len() && name.ends_with(*ending));
    let end = name.len() - ending.map_or(0, |ending| ending.len());
    name.get(..end).unwrap_or_default().into()
}

/// Characters that a server's name may have, without the separator of tool names.
fn valid(name: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let mut name: String = name.chars().map(|c| if allowed(c) { c } else { '-' }).collect();
    while name.contains("__") {
        name = name.replace("__", "_");
    }
    name.trim_matches(['-', '_', '.']).into()
}

#[cfg(test)]
mod tests {
    use super::of_command;

    #[test]
    fn a_server_is_named_after_what_its_command_runs() {
        let cases = [
            ("npx -y @modelcontextprotocol/server-filesystem .", "server-filesystem"),
            ("npx @modelcontextprotocol/server-github@2025.4.8", "server-github"),
            ("npx --yes --package=@scope/pkg@latest run-it", "pkg"),
            ("npx -p typescript tsc", "typescript"),
            ("/usr/local/bin/npx -y mcp-remote@0.1 https://x.example/mcp", "mcp-remote"),
            ("npx -y github:owner/repo-name#main", "repo-name"),
            ("npm exec -y -- @playwright/mcp@latest", "mcp"),
            ("pnpm dlx @scope/thing", "thing"),
            ("bunx some-server", "some-server"),
            ("uvx mcp-server-git --repository .", "mcp-server-git"),
            ("uvx mcp-server-fetch@2025.1", "mcp-server-fetch"),
            ("uvx --from git+https://host/owner/repo.git@v1 start-it", "start-it"),
            ("uvx --with httpx --python 3.12 mcp-server-time[cli]==1.0", "mcp-server-time"),
            ("uv tool run mcp-server-git", "mcp-server-git"),
            ("uv --directory /srv/weather run weather.py", "weather"),
            ("uv run --with mcp mcp-thing --port 1", "mcp-thing"),
            ("uv run python -m my_server.main", "my-server"),
            ("pipx run mcp-server-git==1.0", "mcp-server-git"),
            ("pipx run --spec pkg==1 the-script", "the-script"),
            ("python -m mcp_server_time --local-timezone UTC", "mcp-server-time"),
            ("python3.12 -u /srv/weather.py", "weather"),
            ("python3 /srv/weather/server.py", "weather"),
            ("node /srv/files-server/dist/index.js", "files-server"),
            ("node --import tsx src/tools.ts", "tools"),
            ("deno run -A jsr.ts", "jsr"),
            ("docker run -i --rm mcp/filesystem", "filesystem"),
            (
                "docker run -it -e TOKEN --name x -v /a:/b ghcr.io/github/github-mcp-server:v1 stdio",
                "github-mcp-server",
            ),
            ("docker run --rm -i --env=A=b registry:5000/team/img@sha256:00", "img"),
            ("env A=b FOO=c npx -y @a/b-server", "b-server"),
            ("github-mcp-server stdio", "github-mcp-server"),
            ("/opt/bin/tool.sh", "tool"),
            ("./server.py", "server"),
            ("npx", "npx"),
            ("npx -y", "npx"),
            ("my__server_", "my_server"),
            ("/", "server"),
        ];
        for (line, name) in cases {
            let words: Vec<_> = line.split(' ').map(std::ffi::OsString::from).collect();
            assert_eq!(of_command(&words), name, "{line}");
        }
    }
}
