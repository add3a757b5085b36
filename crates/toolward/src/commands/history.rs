//! The audit log and the current configuration, for `plan` and `learn`.

use toolward_config::{Disk, LoadedConfig, Loader, Options, ProcessEnv};
use toolward_gateway::audit::read::StreamSnapshot;

use crate::audit_log::clock::Clock;
use crate::audit_log::dir::{folder, look};
use crate::audit_log::time::point;
use crate::cli::{HistoryArgs, PolicyArgs, RecordArgs, ToolsArgs};
use crate::exit::Failure;
use crate::fetch_tools;
use crate::load::Input;
use crate::replay::Period;

/// Records of a period, and the configuration of the gateway that wrote them.
pub(super) struct History {
    pub(super) found: Vec<StreamSnapshot>,
    pub(super) period: Period,
    /// The current configuration, with the tools of its servers.
    pub(super) current: Input,
    /// The same before it was compiled.
    pub(super) loaded: LoadedConfig,
    pub(super) clock: Clock,
}

impl History {
    pub(super) fn new(args: &HistoryArgs) -> Result<History, Failure> {
        let clock = Clock::new(args.utc);
        let until = args.until.as_deref().map(|until| point("--until", until, &clock));
        let since = Some(point("--since", &args.since, &clock)?);
        let period = Period { since, until: until.transpose()?, max_records: None };
        let record = RecordArgs {
            dir: args.dir.clone(),
            config: args.config.clone().filter(|_| args.dir.is_none()),
        };
        let found = look(&folder(&record)?)?;
        let policy = PolicyArgs {
            config: args.config.clone(),
            policy: Vec::new(),
            allowlist_config: Vec::new(),
            format: None,
            read_only: false,
            whole_configurations: false,
            search: true,
        };
        let mut current =
            Input::load_silently(&policy, &ToolsArgs { lists: args.lists.clone() }, None)?;
        if args.lists.is_empty() {
            fetch_tools::ask(&mut current, None)?;
        }
        let options = Options { main: args.config.clone(), search: true, ..Options::default() };
        let loaded = (Loader { files: Disk, env: ProcessEnv }).load(&options);
        let loaded = loaded.map_err(|failed| crate::load::invalid(&failed.diagnostics))?;
        Ok(History { found, period, current, loaded, clock })
    }
}
