//! The package that a command line starts, such as `npm:@playwright/mcp`.
//!
//! A version is ignored. A package of the same name from another source (an alias, a Git repository, a directory) is
//! another package.

/// The package, image or program of a command line; `None` if that is not clear.
pub(super) fn of_command(command: &str, args: &[&str]) -> Option<String> {
    let program = program_name(command);
    match (program, args) {
        ("npx" | "bunx" | "pnpx", args) => npm(args),
        ("npm", ["exec" | "x", args @ ..]) => npm(args),
        ("pnpm" | "yarn", ["dlx", args @ ..]) => npm(args),
        ("bun", ["x", args @ ..]) => npm(args),
        ("uvx", args) => pypi(args),
        ("uv", ["tool", "run", args @ ..]) => pypi(args),
        ("pipx", ["run", args @ ..]) => pypi(args),
        ("docker" | "podman", ["run", args @ ..]) => image(args),
        ("node" | "bun", args) => args.iter().find(|arg| !arg.starts_with('-')).and_then(installed),
        ("cmd", [flag, command, args @ ..]) if flag.eq_ignore_ascii_case("/c") => {
            of_command(command, args)
        }
        (python, ["-m", module, ..]) if is_python(python) => pypi_name(module),
        (python, _) if is_python(python) => None,
        (program, _) => Some(format!("bin:{program}")),
    }
}

/// The name of a program, without its directory and the extensions of Windows.
fn program_name(command: &str) -> &str {
    let name = command.rsplit(['/', '\\']).next().unwrap_or_default();
    [".exe", ".cmd", ".bat"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name)
}

fn is_python(program: &str) -> bool {
    let rest = program.strip_prefix("python");
    rest.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// The package of `npx` and its relatives.
fn npm(args: &[&str]) -> Option<String> {
    const WITH_VALUE: [&str; 6] =
        ["--registry", "--prefix", "--cache", "--userconfig", "-w", "--workspace"];
    // A shell command could start anything.
    let is_shell = |arg: &str| matches!(arg, "-c" | "--call") || arg.starts_with("--call=");
    let (named, first) = words(args, &WITH_VALUE, &["-p", "--package"], is_shell)?;
    npm_name(named.or(first)?)
}

/// The package of `uvx` and its relatives.
fn pypi(args: &[&str]) -> Option<String> {
    const WITH_VALUE: [&str; 14] = [
        "--with",
        "--with-editable",
        "--with-requirements",
        "-p",
        "--python",
        "-i",
        "--index-url",
        "--index",
        "--default-index",
        "--extra-index-url",
        "--directory",
        "--project",
        "--env-file",
        "--cache-dir",
    ];
    let (named, first) = words(args, &WITH_VALUE, &["--from", "--spec"], |_| false)?;
    pypi_name(named.or(first)?)
}

/// The value of the option that names the package, and the first word that is not an option. `None` if several
/// packages are named, or an option means that the command is not what it seems.
fn words<'a>(
    args: &[&'a str],
    with_value: &[&str],
    naming: &[&str],
    is_other: impl Fn(&str) -> bool,
) -> Option<(Option<&'a str>, Option<&'a str>)> {
    let mut named = None;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let inline = arg.split_once('=').filter(|(name, _)| naming.contains(name));
        if is_other(arg) {
            return None;
        } else if let Some(value) = inline
            .map(|(_, value)| value)
            .or_else(|| naming.contains(arg).then(|| args.next().copied().unwrap_or_default()))
        {
            if named.replace(value).is_some() {
                return None;
            }
        } else if with_value.contains(arg) {
            args.next();
        } else if !arg.starts_with('-') {
            return Some((named, Some(arg)));
        }
    }
    Some((named, None))
}

/// `@scope/name` without its version.
fn npm_name(spec: &str) -> Option<String> {
    let at = spec.char_indices().skip(1).find(|(_, c)| *c == '@');
    let (name, version) = match at {
        Some((at, _)) => spec.split_at(at),
        None => (spec, ""),
    };
    let is_source = |text: &str| text.contains([':', '#']);
    let is_path = name.starts_with(['.', '/'])
        || name.matches('/').count() > usize::from(name.starts_with('@'));
    // `name@npm:other` is another package, and so is `name@github:user/repository`.
    let is_other = is_source(name) || is_source(version) || version.contains('/');
    (!is_path && !is_other).then(|| format!("npm:{name}"))
}

/// The name of a Python package or module, normalized, without its version and extras.
fn pypi_name(spec: &str) -> Option<String> {
    // `name @ URL` and `git+https://…` are other sources.
    if spec.contains([':', '/', '\\']) {
        return None;
    }
    let end = spec.find(['=', '<', '>', '~', '!', '[', '@', ' ', ';']).unwrap_or(spec.len());
    let name = spec.get(..end).filter(|name| !name.is_empty())?;
    Some(format!("pypi:{}", name.to_ascii_lowercase().replace(['_', '.'], "-")))
}

/// The image of `docker run`, without its tag and digest.
fn image(args: &[&str]) -> Option<String> {
    const FLAGS: [&str; 11] = [
        "-i",
        "-t",
        "-it",
        "-ti",
        "--rm",
        "--init",
        "--interactive",
        "--tty",
        "-d",
        "--read-only",
        "--privileged",
    ];
    let mut args = args.iter();
    loop {
        let arg = *args.next()?;
        // Another program of the image could be started.
        if arg == "--entrypoint" || arg.starts_with("--entrypoint=") {
            return None;
        }
        if !arg.starts_with('-') {
            let name = arg.split_once('@').map_or(arg, |(name, _)| name);
            let after = name.rfind('/').map_or(0, |at| at + 1);
            let tag = name.get(after..).and_then(|last| last.find(':'));
            let name = tag.and_then(|tag| name.get(..after + tag)).unwrap_or(name);
            return Some(format!("oci:{}", name.strip_prefix("docker.io/").unwrap_or(name)));
        }
        if !FLAGS.contains(&arg) && !arg.contains('=') {
            args.next();
        }
    }
}

/// The package that a script in `node_modules` belongs to.
fn installed(script: &&str) -> Option<String> {
    let script = script.replace('\\', "/");
    let (_, inside) = script.rsplit_once("/node_modules/")?;
    let mut parts = inside.split('/');
    let first = parts.next().filter(|first| !first.starts_with('.'))?;
    match first.starts_with('@') {
        true => Some(format!("npm:{first}/{}", parts.next()?)),
        false => Some(format!("npm:{first}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<String> {
        let words: Vec<&str> = line.split(' ').collect();
        let (command, args) = words.split_first()?;
        of_command(command, args)
    }

    #[test]
    fn packages_are_found_in_command_lines() {
        let cases = [
            ("npx -y @playwright/mcp@latest --headless", "npm:@playwright/mcp"),
            ("npx chrome-devtools-mcp@1.2.3", "npm:chrome-devtools-mcp"),
            ("/usr/bin/npx --registry https://npm.example -y a", "npm:a"),
            ("npx -p @playwright/mcp@1 mcp-server-playwright", "npm:@playwright/mcp"),
            ("npx --package=a -- b", "npm:a"),
            ("cmd /c npx -y a", "npm:a"),
            ("C:\\nodejs\\npx.cmd -y a", "npm:a"),
            ("npm exec -y a", "npm:a"),
            ("pnpm dlx a", "npm:a"),
            ("bun x a", "npm:a"),
            ("bunx a", "npm:a"),
            ("uvx mcp-server-git --repository /srv", "pypi:mcp-server-git"),
            ("uvx mcp_server_git==2026.1", "pypi:mcp-server-git"),
            ("uvx --python 3.12 mcp-server-git@latest", "pypi:mcp-server-git"),
            ("uvx --from mcp-server-git[all]>=1 git-server", "pypi:mcp-server-git"),
            ("uv tool run mcp-server-git", "pypi:mcp-server-git"),
            ("pipx run --spec mcp-server-git==1 x", "pypi:mcp-server-git"),
            ("/opt/venv/bin/python3.12 -m mcp_server_git", "pypi:mcp-server-git"),
            ("docker run -i --rm -e TOKEN -v /a:/b mcp/github", "oci:mcp/github"),
            ("docker run -i docker.io/mcp/git:1.0@sha256:ab /repo", "oci:mcp/git"),
            ("podman run --env=A=b -i host:5000/mcp/git:2", "oci:host:5000/mcp/git"),
            ("node /x/node_modules/@playwright/mcp/cli.js", "npm:@playwright/mcp"),
            ("node --inspect C:\\x\\node_modules\\a\\b.js", "npm:a"),
            ("/opt/bin/mcp-server-git -v", "bin:mcp-server-git"),
        ];
        for (line, package) in cases {
            assert_eq!(of(line).as_deref(), Some(package), "{line}");
        }
    }

    #[test]
    fn a_package_of_the_same_name_from_elsewhere_is_not_the_package() {
        let others = [
            "npx -y @playwright/mcp@npm:evil@1.0.0",
            "npx -y @playwright/mcp@github:evil/mcp",
            "npx -y @playwright/mcp@https://evil.example/mcp.tgz",
            "npx -y ./@playwright/mcp",
            "npx -y /tmp/@playwright/mcp",
            "npx -y github:evil/mcp",
            "npx -y evil/mcp",
            "npx -p evil -p @playwright/mcp mcp",
            "npx -c @playwright/mcp",
            "npx",
            "uvx --from git+https://evil.example/mcp-server-git mcp-server-git",
            "uvx git+https://evil.example/x#egg=mcp-server-git",
            "uvx /tmp/mcp-server-git",
            "python /tmp/mcp_server_git",
            "docker run --entrypoint sh mcp/git",
            "docker compose run mcp/git",
            "node /tmp/@playwright/mcp/cli.js",
            "node /x/node_modules/.bin/a",
        ];
        for line in others {
            let found = of(line);
            let is_wanted = |name: &str| {
                ["npm:@playwright/mcp", "pypi:mcp-server-git", "oci:mcp/git"].contains(&name)
            };
            assert!(!found.as_deref().is_some_and(is_wanted), "{line}: {found:?}");
        }
        assert_eq!(of("npx -p evil @playwright/mcp").as_deref(), Some("npm:evil"));
        assert_eq!(of("uvx --from evil mcp-server-git").as_deref(), Some("pypi:evil"));
    }
}
