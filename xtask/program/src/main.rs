//! Development tasks that need the program itself; `cargo xtask` forwards to them.
//!
//! - `generate` writes the generated files; `--check` fails if one is stale.
//! - `bench` measures the program, compared with others.
//! - `instructions` fails if the program needs more instructions than before.
//! - `torture` kills, reloads and restarts gateways under load.
//! - `conformance` runs the official conformance suite directly and through the gateway.
//! - `tokens` counts the tokens of tool lists.
//! - `picture` takes the README's pictures of the admin UI.
//! - `dist` makes the packages of a release, and checks them.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod conformance;
mod dist;
mod picture;
mod process;
mod tokens;
mod torture;

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["generate"] => generate(false),
        ["generate", "--check"] => generate(true),
        ["bench", ref words @ ..] => bench::main(words),
        ["instructions", ref words @ ..] => bench::instructions::main(words),
        ["torture", ref words @ ..] => torture::main(words),
        ["conformance", ref words @ ..] => conformance::main(words),
        ["tokens", ref words @ ..] => tokens::main(words),
        ["picture", ref words @ ..] => picture::main(words),
        ["dist", ref words @ ..] => dist::main(words),
        _ => {
            let usages = [
                bench::USAGE,
                bench::instructions::USAGE,
                torture::USAGE,
                conformance::USAGE,
                tokens::USAGE,
                picture::USAGE,
                dist::USAGE,
            ];
            let usages = usages.join("\n       ");
            eprintln!("usage: cargo xtask generate [--check]\n       {usages}");
            ExitCode::from(2)
        }
    }
}

fn generate(check: bool) -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = [
        ("docs/reference/commands.md", commands()),
        ("docs/reference/configuration.md", toolward_config::reference()),
        ("docs/reference/toolward.schema.json", format!("{:#}\n", toolward_config::schema())),
        ("examples/tools/files.json", saved_list("files")),
        ("examples/tools/tracker.json", saved_list("tracker")),
    ];
    let mut stale = 0;
    for (name, content) in files {
        let path = root.join(name);
        if std::fs::read_to_string(&path).is_ok_and(|existing| existing == content) {
            continue;
        }
        if check {
            eprintln!("{name} is stale: run `cargo xtask generate`");
            stale += 1;
            continue;
        }
        let folder = path.parent().map(std::fs::create_dir_all);
        if let Err(error) = folder.unwrap_or(Ok(())).and_then(|()| std::fs::write(&path, content)) {
            eprintln!("{name}: {error}");
            return ExitCode::FAILURE;
        }
        println!("{name} written");
    }
    if stale > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The tools of one of the demo's servers, as examples read them with `--tools`.
fn saved_list(server: &str) -> String {
    let lists = include_str!("../../../crates/toolward/src/commands/demo/tools.json");
    let lists: serde_json::Value = serde_json::from_str(lists).unwrap_or_default();
    format!("{:#}\n", serde_json::json!({"server": server, "tools": lists[server]}))
}

/// The commands as their `--help` shows them.
fn commands() -> String {
    let mut page = String::from("# Commands\n\nGenerated from the help texts of the program.\n");
    let mut program = toolward::cli::command();
    program.build();
    program.get_subcommands().for_each(|command| describe("toolward", command, &mut page));
    page
}

/// One command, and those under it.
fn describe(before: &str, command: &clap::Command, page: &mut String) {
    if command.get_name() == "help" || command.is_hide_set() {
        return;
    }
    let name = format!("{before} {}", command.get_name());
    let help = command.clone().term_width(96).disable_help_flag(false).render_long_help();
    let help = help.to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    let _ = write!(page, "\n## `{name}`\n\n```text\n{}\n```\n", lines.join("\n").trim());
    command.get_subcommands().for_each(|command| describe(&name, command, page));
}
