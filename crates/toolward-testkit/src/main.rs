//! `testkit`: an MCP echo server and a load generator.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{Args, Parser};
use toolward_testkit::authorization_server::{
    AuthorizationServer, ProtectedServer, ProtectedSwitches, Switches,
};
use toolward_testkit::echo::others::Others;
use toolward_testkit::echo::{self, Server};
use toolward_testkit::load::{self, Era, Kind, Plan, Report, Target, Until};

#[derive(Parser)]
#[command(
    name = "testkit",
    about = "An MCP echo server and a load generator, for tests and benchmarks"
)]
enum Testkit {
    /// Serve MCP over HTTP at `/mcp`; the first line of output is the URL
    EchoHttp {
        /// Address to listen on; port 0 selects a free port
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        #[command(flatten)]
        tools: Tools,
        /// Respond with event streams
        #[arg(long)]
        sse: bool,
    },
    /// Serve MCP over standard input and output
    EchoStdio {
        #[command(flatten)]
        tools: Tools,
    },
    /// Serve a fake authorization server and an MCP server that it protects
    ///
    /// The first line of output is the issuer, the second the MCP server's URL. Requests to
    /// `/control/…` change switches and return the received requests; see the module
    /// `authorization_server`.
    AuthorizationServer {
        /// Address of the authorization server; port 0 selects a free port
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        /// Address of the MCP server
        #[arg(long, default_value = "127.0.0.1:0")]
        protected_listen: SocketAddr,
        /// JSON object with switches of the authorization server
        #[arg(long, default_value = "{}")]
        switches: String,
        /// JSON object with switches of the MCP server
        #[arg(long, default_value = "{}")]
        protected_switches: String,
    },
    /// Run as a persistent hook that allows everything
    Hook,
    /// Send requests over HTTP, each as soon as the last one is answered
    Load {
        #[arg(long)]
        url: String,
        /// The bearer token
        #[arg(long)]
        token: Option<String>,
        #[arg(long, default_value_t = 1)]
        connections: usize,
        /// Use the same id for every request, for a server that sends a fixed response
        #[arg(long)]
        fixed_id: bool,
        #[command(flatten)]
        load: Load,
    },
    /// Send requests over stdio, one after the other
    LoadStdio {
        #[command(flatten)]
        load: Load,
        /// Command that starts the server
        #[arg(last = true, required = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
}

#[derive(Args)]
struct Tools {
    /// Number of tools; the first is `echo`
    #[arg(long, default_value_t = 1, conflicts_with = "list")]
    tools: usize,
    /// Approximate size of each tool, in bytes
    #[arg(long, default_value_t = 0, conflicts_with = "list")]
    tool_bytes: usize,
    /// JSON file with an array of tools, or an object with the array in `tools`
    #[arg(long)]
    list: Option<PathBuf>,
    /// Number of resources. With any, there are also the prompt `echo` and the tools `touch` and `ask`
    #[arg(long, default_value_t = 0)]
    resources: usize,
    /// Approximate size of each entry in the list of resources, in bytes
    #[arg(long, default_value_t = 0)]
    resource_bytes: usize,
    /// Support only legacy protocol versions
    #[arg(long)]
    legacy: bool,
}

impl Tools {
    fn server(&self) -> io::Result<Server> {
        let mut server = match &self.list {
            Some(file) => Server::new(&std::fs::read_to_string(file)?)?,
            None => Server::new(&echo::tools(self.tools, self.tool_bytes))?,
        };
        server.legacy = self.legacy;
        match self.resources {
            0 => Ok(server),
            count => server.offer(Others::new(count, self.resource_bytes)),
        }
    }
}

#[derive(Args)]
#[group(skip)]
struct Load {
    /// Duration in seconds
    #[arg(long, default_value_t = 3.0)]
    duration: f64,
    /// Total number of requests, instead of a duration
    #[arg(long)]
    requests: Option<u64>,
    #[arg(long, value_enum, default_value = "call")]
    kind: Kind,
    #[arg(long, value_enum, default_value = "modern")]
    era: Era,
    /// Tool to call, prompt to get, or URI to read; with `--kind resources` the cursor, if any
    #[arg(long, default_value = "echo")]
    tool: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Load {
    fn plan(&self, connections: usize, fixed_id: bool) -> Result<Plan, io::Error> {
        let duration = Duration::try_from_secs_f64(self.duration).map_err(io::Error::other)?;
        let until = self.requests.map_or(Until::Time(duration), Until::Requests);
        Ok(Plan { kind: self.kind, era: self.era, connections, until, fixed_id })
    }

    fn print(&self, report: &Report) {
        match self.json {
            true => println!("{}", report.to_json()),
            false => println!("{report}"),
        }
    }
}

fn main() -> ExitCode {
    match run(Testkit::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("testkit: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(testkit: Testkit) -> io::Result<()> {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    match testkit {
        Testkit::EchoHttp { listen, tools, sse } => {
            let mut server = tools.server()?;
            server.sse = sse;
            let listener = TcpListener::bind(listen)?;
            println!("http://{}/mcp", listener.local_addr()?);
            match runtime()?.block_on(echo::http::serve(listener, server))? {}
        }
        Testkit::EchoStdio { tools } => {
            let server = tools.server()?;
            echo::stdio::serve(&server, BufReader::new(io::stdin()), io::stdout())
        }
        Testkit::AuthorizationServer { listen, protected_listen, switches, protected_switches } => {
            let (mut own, mut protected) = (Switches::default(), ProtectedSwitches::default());
            own.apply(&serde_json::from_str(&switches)?)?;
            protected.apply(&serde_json::from_str(&protected_switches)?)?;
            let server = AuthorizationServer::listen(listen, own)?;
            let protected = ProtectedServer::listen(protected_listen, &server, protected)?;
            println!("{}\n{}", server.issuer(), protected.url());
            loop {
                std::thread::park();
            }
        }
        Testkit::Hook => hook(io::stdin().lock(), io::stdout()),
        Testkit::Load { url, token, connections, fixed_id, load } => {
            let target = Target { token, tool: load.tool.clone(), ..Target::parse(&url)? };
            let plan = load.plan(connections, fixed_id)?;
            load.print(&runtime()?.block_on(load::run(&target, &plan))?);
            Ok(())
        }
        Testkit::LoadStdio { load, command } => {
            let plan = load.plan(1, false)?;
            let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
            let report = load::run_stdio(Command::new(program).args(arguments), &load.tool, &plan)?;
            load.print(&report);
            Ok(())
        }
    }
}

/// Reads one request per line and writes one decision per line.
fn hook(requests: impl BufRead, mut decisions: impl Write) -> io::Result<()> {
    for line in requests.lines() {
        let line = line?;
        let id = line.split_once("\"id\":").and_then(|(_, rest)| rest.split([',', '}']).next());
        let id = id.ok_or(io::ErrorKind::InvalidData)?;
        decisions.write_all(format!("{{\"id\":{id},\"decision\":\"allow\"}}\n").as_bytes())?;
        decisions.flush()?;
    }
    Ok(())
}
