//! The settings of servers that a policy is evaluated with: exposure, hints, action keys, and who can approve.

use toolward_policy::source::Source;

/// The part of a configuration's policy that is not rules.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerSettings {
    source: Source,
}

impl ServerSettings {
    pub(crate) fn of(source: &Source) -> ServerSettings {
        let Source { servers, expose_everywhere, approvers, .. } = source.clone();
        ServerSettings {
            source: Source { servers, expose_everywhere, approvers, ..Source::default() },
        }
    }

    /// Adds the servers to a policy that has none, or only exposures, as a plugin file has.
    pub(crate) fn join(&self, policy: &mut Source) {
        let Source { servers, expose_everywhere, approvers, .. } = self.source.clone();
        let own = std::mem::replace(&mut policy.servers, servers);
        for server in own {
            match policy.servers.iter_mut().find(|known| known.name == server.name) {
                Some(known) => known.expose = server.expose.or(known.expose.take()),
                None => policy.servers.push(server),
            }
        }
        policy.approvers = approvers;
        policy.expose_everywhere = policy.expose_everywhere.take().or(expose_everywhere);
    }
}
