//! Logins of servers, as the configuration has them.

use std::path::Path;

use toolward_config::config::{Login, LoginFlow, LoginOf, LoginResource, Secret};
use toolward_config::sanitize;
use toolward_gateway::http_client::{Address, ClientTls};
use toolward_gateway::login::settings::DEFAULT_REDIRECT;
use toolward_gateway::login::{self, Flow, LoginSettings, Of, Resource};

use crate::exit::Failure;

/// `login` of a server, and what else a login depends on.
pub(crate) struct LoginOfServer<'a> {
    pub(crate) name: &'a str,
    pub(crate) login: &'a Login,
    /// The server's URL.
    pub(crate) url: &'a str,
    pub(crate) tls: Option<ClientTls>,
    pub(crate) state: Option<&'a Path>,
}

/// The settings of a login, with its secrets resolved.
pub(crate) fn settings(of: LoginOfServer<'_>) -> Result<LoginSettings, Failure> {
    let LoginOfServer { name, login, url, tls, state } = of;
    let wrong = |why: String| {
        Failure::invalid(format!("error: `login` of the server `{}`: {why}", sanitize(name)))
    };
    let address = Address::parse(url).map_err(wrong)?;
    if !address.tls && !address.is_loopback() {
        let why = "the token would be sent over `http` in plain text\n  help: use `https`";
        return Err(wrong(why.into()));
    }
    let help = "logins need a state directory\n  help: set it: `state: DIR`";
    let state = state.ok_or_else(|| wrong(help.into()))?;
    let value = |secret: &Secret| {
        let value = secret.value().map(String::from);
        value.ok_or_else(|| wrong("a value is not resolved".into()))
    };
    let secret = login.client_secret.as_ref().map(&value).transpose()?;
    let id = login.client_id.as_ref().map(&value).transpose()?;
    let redirect = login.redirect.clone().unwrap_or_else(|| DEFAULT_REDIRECT.into());
    Address::parse(&redirect).map_err(|why| wrong(format!("`redirect`: {why}")))?;
    Ok(LoginSettings {
        server: name.into(),
        // The query may contain a secret.
        url: url.split(['?', '#']).next().unwrap_or(url).into(),
        address,
        tls,
        client: id.map(|id| (id, secret.map(login::Secret::new))),
        scope: login.scope.clone(),
        flow: match login.flow {
            LoginFlow::Browser => Flow::Browser,
            LoginFlow::Device => Flow::Device,
            LoginFlow::Paste => Flow::Paste,
        },
        of: match login.of {
            LoginOf::Gateway => Of::Gateway,
            LoginOf::Agent => Of::Agent,
        },
        resource: match &login.resource {
            LoginResource::Discovered => Resource::Discovered,
            LoginResource::Omitted => Resource::Omitted,
            LoginResource::Url(url) => Resource::Configured(url.clone()),
        },
        redirect,
        client_metadata_url: login.client_metadata_url.clone(),
        issuer: login.issuer.clone(),
        state: state.to_owned(),
    })
}
