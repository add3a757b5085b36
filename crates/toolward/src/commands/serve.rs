//! `toolward serve`: the gateway over Streamable HTTP.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ArgMatches;
use toolward_config::Level;
use toolward_config::config::Config;
use toolward_config::config::Listen;
use toolward_config::sanitize;
use toolward_gateway::downstream::accept::{Ending, Grace, Socket, serve};
use toolward_gateway::downstream::http::{Endpoint, Setup};
use toolward_gateway::upstream::Server;

use crate::admin::{Admin, ServeContext};
use crate::bundle_poll;
use crate::bundles;
use crate::cli::{OnInvalid, PolicyArgs, ServeArgs};
use crate::control;
use crate::descriptors;
use crate::exit::{self, Failure};
use crate::gateway::{GRACE, Signal, began, build, state_folder, terminated};
use crate::guards;
use crate::handover::{self, Handover};
use crate::identity::tls;
use crate::load::{Input, invalid, options};
use crate::log;
use crate::metrics_listener::MetricsListener;
use crate::ownership;
use crate::policy_gate::passes;
use crate::prepared::Prepare;
use crate::reload::{InitialLoad, ReloadContext, Restart};
use crate::startup;

/// The maximum time to wait for requests after a handover.
const LONGEST: Duration = Duration::from_secs(600);
/// How long aborted requests may take to be recorded.
const ABORT: Duration = Duration::from_secs(5);

pub(crate) fn run(args: ServeArgs, matches: Option<&ArgMatches>) -> Result<u8, Failure> {
    serve_until_told(args, matches, Around::default())
}

/// Settings of a gateway that another command starts, such as `demo`.
pub(crate) struct Around {
    /// Sockets that are already open, by address.
    pub(crate) sockets: Vec<(String, OwnedFd)>,
    /// How long in-flight requests may take during shutdown, instead of `drain.wait`.
    pub(crate) grace: Option<Duration>,
    /// Called when the gateway listens.
    pub(crate) ready: Box<dyn FnOnce() -> std::io::Result<()>>,
    /// Called before the process ends without waiting for anything.
    pub(crate) leave: Box<dyn FnOnce() + Send>,
}

impl Default for Around {
    fn default() -> Around {
        let (ready, leave) = (Box::new(|| Ok(())), Box::new(|| {}));
        Around { sockets: Vec::new(), grace: None, ready, leave }
    }
}

/// Serves until the process is terminated.
pub(crate) fn serve_until_told(
    args: ServeArgs,
    matches: Option<&ArgMatches>,
    around: Around,
) -> Result<u8, Failure> {
    let input = load(&args.policy, matches, args.on_invalid_policy, |_| Ok(()))?;
    let first = InitialLoad::of(&input);
    let denies_all = input.denying.is_some();
    let needs_name = input.needs_name();
    // Without known callers, no request can be authenticated.
    if !denies_all {
        startup::check(&startup::serve_refusals(&input, true))?;
    }
    if args.allow_all && input.loaded.config.listens_beyond_loopback() {
        return Err(Failure::invalid(
            "error: `listen` can be reached from other machines, and `--allow-all` forwards every \
             call\n  help: listen on 127.0.0.1 while you debug",
        ));
    }
    let allow_all = args.allow_all;
    let prepare = Prepare { allow_all, servers: None, only: None, authenticates: true };
    let (gateway, config) = build(input, &prepare)?;
    // Nothing here may hold the first configuration: a reload drops it and ends the processes of its hooks.
    let (for_everyone, can_name) = {
        let active = gateway.active();
        // If users are distinguished, all of them must be able to connect.
        (!active.identities.uids.is_empty(), active.identities.can_name())
    };
    let tls = tls(&config)?;
    let state = state_folder(&config)?;
    let wanted: Vec<String> = config.listen.iter().map(written).collect();
    let inherited = match args.take_over {
        true => handover::inherit(&state, &wanted),
        false => None,
    };
    let before = inherited.as_ref().map(|inherited| inherited.process);
    // Socket files that another process created are not removed.
    let (mut open, mut kept) = inherited.map(|from| (from.sockets, from.kept)).unwrap_or_default();
    let activated = activated()?;
    kept.extend(activated.iter().map(|(address, _)| address.clone()));
    let anew = if kept.is_empty() { Restart::InPlace } else { Restart::ByOthers };
    open.extend(activated);
    open.extend(around.sockets);
    let sockets = config
        .listen
        .iter()
        .map(|listen| given(listen, &mut open).map_or_else(|| bind(listen, for_everyone), Ok));
    let sockets: Vec<Socket> = sockets.collect::<Result<_, _>>()?;
    let own = sockets.iter().filter(|socket| !kept.contains(&socket.address()));
    let socket_files: Vec<PathBuf> = own.filter_map(Socket::path).collect();
    let given_page = |address| given(&Listen::Tcp(address), &mut open);
    let admin = Admin::open(&config, &state, given_page)?;
    let metrics = MetricsListener::open(&config)?;
    if let Some((address, _)) = open.first() {
        tracing::warn!(target: "serve", "closing an inherited socket that is not in `listen`: {address}");
    }
    drop(open);
    if needs_name && !can_name {
        tracing::warn!(
            target: "authn",
            "no agent has a credential and unnamed callers are rejected: no client can connect"
        );
    }
    if config.listens_beyond_loopback() && tls.is_none() && config.trusted_proxies.is_empty() {
        tracing::warn!(
            target: "serve",
            "credentials cross the network unencrypted: set `tls`, or listen on 127.0.0.1"
        );
    }
    let gateway = Arc::new(gateway);
    let setup = Setup {
        tls,
        sealer: gateway.context.sealer.clone(),
        state: state.clone(),
        request_bytes: usize::try_from(config.limits_of.request_bytes).unwrap_or(usize::MAX),
        waiting_requests: config.limits_of.waiting_requests as usize,
        session_idle: None,
    };
    let endpoint = Arc::new(Endpoint::new(gateway.clone(), setup));
    let (end, ending) = tokio::sync::watch::channel(Ending::No);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(64);
    let most = descriptors::connections(config.limits_of.streams as usize);
    let grace = Grace {
        otherwise: around.grace.unwrap_or(config.drain.wait),
        handed_over: longest(&gateway.active().servers),
    };
    let delay = config.drain.delay(config.listens_beyond_loopback());
    let draining = endpoint.clone();

    // Signals are handled on a separate thread; the other threads serve.
    let signals = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    signals.block_on(began(&gateway));
    if let Err(why) = signals.block_on(gateway.start()) {
        return Err(Failure::invalid(format!("error: {}", sanitize(&why))));
    }
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let again = ReloadContext {
        options: options(&args.policy, matches),
        prepare,
        begun: config,
        first,
        anew,
        bearer: None,
        socket_files: socket_files.clone(),
    };
    let reloader = again.reloader(gateway.clone());
    let page = admin.as_ref().map(Admin::socket);
    let mine = sockets.iter().chain(page).map(Socket::try_clone).collect::<Result<_, _>>()?;
    let heritage = Arc::new(Handover::new(mine, kept, end.clone()));
    if let Some(admin) = admin {
        let (asking, ending) = (signals.handle().clone(), ending.clone());
        admin.serve(ServeContext { reloader: &reloader, asking, ending })?;
    }
    if let Some(metrics) = metrics {
        metrics.serve(&reloader)?;
    }
    if let Some(before) = before {
        tracing::info!(target: "handover", "taking over from process {before}");
        std::thread::spawn(move || handover::retire(&state, before));
    }
    let registered = reloader.clone();
    let mut handed_over = ending.clone();
    let leave = around.leave;
    let (hears, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        signals.block_on(async {
            control::open(&reloader, Some(heritage.clone()));
            let reloading = tokio::spawn(reloader.clone().run());
            let polling = tokio::spawn(bundle_poll::poll(reloader.clone()));
            let listening = async {
                let _ = hears.send(());
                std::future::pending().await
            };
            let signal = tokio::select! {
                biased;
                signal = terminated() => signal,
                _ = handed_over.wait_for(|ending| *ending != Ending::No) => {
                    tracing::info!(
                        target: "handover",
                        "draining: another process has taken over; each connection serves one more request"
                    );
                    reloader.state().draining = true;
                    heritage.close();
                    terminated().await;
                    Signal::Interrupt
                }
                () = listening => Signal::Interrupt,
            };
            reloading.abort();
            polling.abort();
            draining.drain();
            let mut ending = Ending::Now;
            if signal == Signal::Terminate && !delay.is_zero() {
                tracing::info!(target: "serve", "shutting down: still accepting requests for {delay:?}");
                tokio::select! {
                    () = tokio::time::sleep(delay) => {}
                    _ = terminated() => ending = Ending::AtOnce,
                }
            }
            tracing::info!(target: "serve", "shutting down: finishing requests in flight");
            heritage.close();
            let _ = end.send(ending);
            // A second signal aborts what is in flight.
            if ending == Ending::Now {
                terminated().await;
                let _ = end.send(Ending::AtOnce);
            }
            tracing::warn!(target: "serve", "a second signal: requests in flight are aborted");
            // Until their outcomes are recorded, or a third signal.
            tokio::select! {
                () = tokio::time::sleep(ABORT) => {}
                _ = terminated() => {}
            }
            toolward_gateway::guard::end_all();
            leave();
            log::flush();
            std::process::exit(i32::from(exit::NO));
        });
    });
    // The signal handlers must be installed before anyone is notified that the gateway runs.
    let _ = heard.recv();
    // Logged only now, because `toolward reload` must be able to reach a gateway that has logged its address.
    for socket in &sockets {
        let address = socket.address();
        match socket {
            Socket::Tcp(_) => {
                tracing::info!(target: "serve", "listening on {scheme}://{address}/mcp");
            }
            Socket::Unix(..) => tracing::info!(target: "serve", "listening on {address}"),
        }
    }
    (around.ready)()?;
    serve(endpoint, sockets, threads, most, &ending, grace)?;
    registered.registration().take();
    // Their outcome is recorded.
    gateway.context.held.clear();
    gateway.context.audit.close();
    // A socket file that was handed over belongs to the other process.
    let ended = *ending.borrow();
    if ended != Ending::HandedOver {
        socket_files.iter().for_each(|path| Socket::remove(path));
    }
    Ok(if ended == Ending::AtOnce { exit::NO } else { exit::OK })
}

/// Loads everything and starts the log. If that fails, every call may be denied instead.
pub(crate) fn load(
    policy: &PolicyArgs,
    matches: Option<&ArgMatches>,
    on_invalid: OnInvalid,
    restrict: impl FnOnce(&mut Config) -> Result<(), Failure>,
) -> Result<Input, Failure> {
    let failure = match load_valid(policy, matches, restrict) {
        Err(failure) if on_invalid == OnInvalid::DenyAll => failure,
        other => return other,
    };
    let denying = Input::denying(&options(policy, matches), failure.text());
    let denying = denying.map_err(|found| invalid(&found))?;
    log::start(&denying.loaded.config.telemetry);
    tracing::error!(target: "config", diagnostic = failure.text(), "the configuration is not valid");
    tracing::error!(
        target: "policy",
        "EVERY CALL IS DENIED until the configuration is valid (--on-invalid-policy deny-all)"
    );
    Ok(denying)
}

fn load_valid(
    policy: &PolicyArgs,
    matches: Option<&ArgMatches>,
    restrict: impl FnOnce(&mut Config) -> Result<(), Failure>,
) -> Result<Input, Failure> {
    let options = options(policy, matches);
    let candidates = bundles::fetch_missing(&options)?;
    let reads = bundles::reads_with(&candidates);
    let mut input = Input::from(&options, Vec::new(), &reads).map_err(|found| invalid(&found))?;
    log::start(&input.loaded.config.telemetry);
    input.report_warnings(policy)?;
    restrict(&mut input.loaded.config)?;
    can_run(&input)?;
    bundles::store(&candidates)?;
    Ok(input)
}

/// Checks that the gateway can be built.
fn can_run(input: &Input) -> Result<(), Failure> {
    passes(input)?;
    ownership::log_warnings(&ownership::refuse(&input.loaded)?);
    let mut wrong = startup::refusals(input, true);
    wrong.extend(guards::findings(&input.loaded.config));
    wrong.retain(|finding| finding.level == Level::Error);
    startup::check(&wrong)
}

/// The longest time that a call may take: after a handover, the old process completes its calls.
fn longest(servers: &[Arc<Server>]) -> Duration {
    let longest = servers.iter().map(|server| server.definition.timeouts.longest()).max();
    longest.unwrap_or(GRACE).clamp(GRACE, LONGEST)
}

/// Sockets passed by a service manager, by address.
fn activated() -> Result<Vec<(String, OwnedFd)>, Failure> {
    let mut given = listenfd::ListenFd::from_env();
    let mut sockets = Vec::new();
    for at in 0..given.len() {
        if let Ok(Some(listener)) = given.take_tcp_listener(at) {
            listener.set_nonblocking(true)?;
            sockets.push((listener.local_addr()?.to_string(), listener.into()));
        } else if let Ok(Some(listener)) = given.take_unix_listener(at) {
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            let path = address.as_pathname().map(|path| path.display().to_string());
            sockets.push((format!("unix:{}", path.unwrap_or_default()), listener.into()));
        }
    }
    Ok(sockets)
}

/// A socket that another process has opened for this address.
fn given(listen: &Listen, sockets: &mut Vec<(String, OwnedFd)>) -> Option<Socket> {
    let address = written(listen);
    let at = sockets.iter().position(|(given, _)| *given == address)?;
    let (_, socket) = sockets.swap_remove(at);
    Some(match listen {
        Listen::Tcp(_) => Socket::Tcp(socket.into()),
        Listen::Unix(path) => Socket::Unix(socket.into(), path.clone()),
    })
}

fn bind(listen: &Listen, for_everyone: bool) -> Result<Socket, Failure> {
    let bound = match listen {
        Listen::Tcp(address) => Socket::tcp(*address),
        Listen::Unix(path) => Socket::unix(path.clone(), for_everyone),
    };
    bound.map_err(|error| {
        let at = written(listen);
        Failure::invalid(format!("error: cannot listen on {}: {error}", sanitize(&at)))
    })
}

fn written(listen: &Listen) -> String {
    match listen {
        Listen::Tcp(address) => address.to_string(),
        Listen::Unix(path) => format!("unix:{}", path.display()),
    }
}
