//! The program `toolward`: commands and their output. It makes no policy decisions itself.

mod active_config;
mod admin;
mod allow;
mod approvals;
mod arguments;
mod audit_log;
mod bundle_poll;
mod bundles;
pub mod cli;
mod clients;
mod commands;
mod completion;
mod control;
mod control_approvals;
mod control_client;
mod descriptors;
mod discovery;
mod downgrade_guard;
mod exit;
mod fetch_tools;
mod gateway;
mod guards;
mod handover;
mod identity;
mod listing;
mod load;
mod log;
mod logins;
mod metrics;
mod metrics_listener;
mod ownership;
mod pin_review;
mod pins;
mod policy_gate;
mod prepared;
mod query;
mod reads;
mod reload;
mod render;
mod replay;
mod report;
mod running;
mod server_settings;
mod sinks;
mod startup;
mod status_report;
mod tool_lists;
mod traces;
mod version;
mod watch;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use crate::cli::{Cli, Command};
use crate::exit::Failure;

/// Runs the program with these arguments.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    toolward_gateway::groups::guard_with(guard);
    if completion::completes() {
        return ExitCode::from(exit::OK);
    }
    let matches = match Cli::command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            // Help and version are not errors; everything else is wrong usage.
            let text = error.render().to_string();
            let printed = match toolward_config::sanitize(&text.replace('\n', "")) {
                std::borrow::Cow::Borrowed(_) => error.print(),
                // An argument contains control characters.
                harmless => writeln!(std::io::stderr(), "{harmless}"),
            };
            return match printed {
                _ if error.use_stderr() => ExitCode::from(exit::USAGE),
                Ok(()) => ExitCode::from(exit::OK),
                Err(error) => Failure::from(error).report(),
            };
        }
    };
    let outcome = match Cli::from_arg_matches(&matches) {
        Ok(cli) => dispatch(cli, matches.subcommand().map(|(_, matches)| matches)),
        Err(error) => Err(Failure::usage(error.to_string())),
    };
    let code = match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(),
    };
    log::flush();
    code
}

/// The process that ends children if this one is killed: the same program, also if its file was replaced.
fn guard() -> std::process::Command {
    let mut command = std::process::Command::new("/proc/self/exe");
    command.arg("guard");
    command
}

fn dispatch(cli: Cli, matches: Option<&clap::ArgMatches>) -> Result<u8, Failure> {
    match cli.command {
        Command::Demo(args) => commands::demo::run(&args),
        Command::DemoServer(args) => commands::demo::server::run(&args),
        Command::Guard => {
            toolward_gateway::groups::watch(std::io::stdin().lock());
            Ok(exit::OK)
        }
        Command::Serve(args) => commands::serve::run(args, matches),
        Command::Stdio(args) => commands::stdio::run(args, matches),
        Command::Init(args) => commands::init::run(&args),
        Command::Uninit(args) => commands::uninit::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Wrap(args) => commands::wrap::run(args, matches),
        Command::Check(args) => commands::check::run(args, matches),
        Command::Ls(args) => commands::ls::run(args, matches),
        Command::CanI(args) => commands::can_i::run(args, matches),
        Command::Explain(args) => commands::explain::run(args, matches),
        Command::Decide(args) => commands::decide::run(args, matches),
        Command::Diff(args) => commands::analysis::diff::run(&args),
        Command::Equal(args) => commands::analysis::equal::run(&args),
        Command::CanEver(args) => commands::analysis::can_ever::run(&args, matches),
        Command::WhoCan(args) => commands::analysis::who_can::run(args, matches),
        Command::Plan(args) => commands::plan::run(&args),
        Command::Learn(args) => commands::learn::run(&args),
        Command::Pending(args) => commands::approvals::pending(&args),
        Command::Approve(args) => commands::approvals::approve(&args),
        Command::Deny(args) => commands::approvals::deny(&args),
        Command::Grants(args) => commands::approvals::grants(&args),
        Command::Revoke(args) => commands::approvals::revoke(&args),
        Command::Login(args) => commands::login::run(&args, matches),
        Command::Logins(args) => commands::login::list(&args, matches),
        Command::Logout(args) => commands::login::logout(&args, matches),
        Command::Status(args) => commands::status::run(&args),
        Command::Reload(args) => commands::reload::run(&args),
        Command::Audit(args) => commands::audit::run(args),
        Command::Tail(args) => commands::tail::run(args),
        Command::Match(args) => commands::matching::run(args),
        Command::Token(args) => commands::token::run(&args),
        Command::Bundle(args) => commands::bundle::run(&args),
        Command::Tools(args) => {
            commands::tools::run(args, matches.and_then(|matches| Some(matches.subcommand()?.1)))
        }
        Command::Allow(args) => commands::allow::run(&args, matches),
        Command::Lock(args) => commands::pins::lock::run(&args, matches),
        Command::Changes(args) => commands::pins::changes::run(&args, matches),
        Command::Accept(args) => commands::pins::accept::run(&args, matches),
        Command::Test(args) => commands::test::run(args, matches),
        Command::Import(args) => commands::import::run(args),
        Command::Schema(args) => commands::schema::run(args),
        Command::Completions(args) => commands::completions::run(args),
        Command::Man(args) => commands::man::run(&args),
    }
}
