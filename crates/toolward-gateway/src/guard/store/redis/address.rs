//! The URL of a store: a single server, a Sentinel group or a Cluster.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
const SCHEMES: &str =
    "redis, rediss, redis-sentinel, rediss-sentinel, redis-cluster and rediss-cluster";

/// The address and credentials of a store.
pub(super) struct StoreAddress {
    pub(super) topology: Topology,
    pub(super) is_tls: bool,
    login: Login,
    database: u32,
    /// Hosts and ports, for the log.
    pub(super) shown: String,
}

pub(super) enum Topology {
    Single(Host),
    Sentinel { sentinels: Vec<Host>, master: String, login: Login },
    Cluster(Vec<Host>),
}

/// Host name or address, without brackets, and port.
pub(super) type Host = (String, u16);

#[derive(Default)]
pub(super) struct Login {
    user: Option<String>,
    password: Option<String>,
}

impl StoreAddress {
    /// Reads a URL: `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`,
    /// `redis-sentinel://[USER:PASSWORD@]HOST[:PORT],…/MASTER[/DATABASE][?sentinel_password=…]`, or
    /// `redis-cluster://[USER:PASSWORD@]HOST[:PORT],…`; with `rediss` instead of `redis`, over TLS.
    pub(super) fn parse(url: &str) -> Result<StoreAddress, String> {
        let (scheme, rest) = url.split_once("://").ok_or("it has no `redis://`")?;
        let (secure, kind) = match scheme.split_once('-') {
            Some((secure, kind)) => (secure, Some(kind)),
            None => (scheme, None),
        };
        let is_tls = match secure {
            "redis" => false,
            "rediss" => true,
            _ => return Err(format!("`{scheme}` is not supported, only {SCHEMES}")),
        };
        if rest.contains('#') {
            return Err("it has a fragment (`#`)".into());
        }
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, q)| (rest, Some(q)));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (Login::parse(credentials)?, hosts),
            None => (Login::default(), authority),
        };
        let port = if kind == Some("sentinel") { SENTINEL_PORT } else { REDIS_PORT };
        let shown = hosts.to_owned();
        let hosts: Vec<Host> =
            hosts.split(',').map(|one| host(one, port)).collect::<Result<_, _>>()?;
        let (topology, database) = match kind {
            None => (Topology::Single(only(hosts)?), database(path)?),
            Some("cluster") if path.is_empty() => (Topology::Cluster(hosts), 0),
            Some("cluster") => return Err("a cluster has no databases".into()),
            Some("sentinel") => {
                let (master, number) = path.split_once('/').unwrap_or((path, ""));
                let master = Some(decoded(master)?).filter(|name| !name.is_empty());
                let master =
                    master.ok_or("write the master's name as `/MASTER` after the hosts")?;
                let login = Login::of_sentinels(query.unwrap_or_default())?;
                (Topology::Sentinel { sentinels: hosts, master, login }, database(number)?)
            }
            Some(_) => return Err(format!("`{scheme}` is not supported, only {SCHEMES}")),
        };
        if query.is_some() && kind != Some("sentinel") {
            return Err("it has options (`?`), and none are supported".into());
        }
        Ok(StoreAddress { topology, is_tls, login, database, shown })
    }

    /// How to connect to one of its servers.
    pub(super) fn server(&self, host: &Host) -> Result<ConnectionInfo, String> {
        self.info(host, &self.login, i64::from(self.database))
    }

    /// How to connect to one of its Sentinels.
    pub(super) fn sentinel(&self, host: &Host, login: &Login) -> Result<ConnectionInfo, String> {
        self.info(host, login, 0)
    }

    fn info(&self, host: &Host, login: &Login, db: i64) -> Result<ConnectionInfo, String> {
        let (host, port) = host.clone();
        let address = match self.is_tls {
            true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            false => ConnectionAddr::Tcp(host, port),
        };
        let mut settings = RedisConnectionInfo::default().set_db(db).set_skip_set_lib_name();
        if let Some(user) = &login.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &login.password {
            settings = settings.set_password(password);
        }
        let info = address.into_connection_info().map_err(|error| error.to_string())?;
        Ok(info.set_redis_settings(settings))
    }
}

impl Login {
    fn parse(credentials: &str) -> Result<Login, String> {
        let (user, password) =
            credentials.split_once(':').ok_or("write a password as `:PASSWORD@`")?;
        let user = Some(decoded(user)?).filter(|user| !user.is_empty());
        Ok(Login { user, password: Some(decoded(password)?) })
    }

    /// Sentinels can have a login of their own.
    fn of_sentinels(query: &str) -> Result<Login, String> {
        let mut login = Login::default();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match name {
                "sentinel_user" => login.user = Some(decoded(value)?),
                "sentinel_password" => login.password = Some(decoded(value)?),
                _ => {
                    return Err(
                        "its options (`?`) are `sentinel_user` and `sentinel_password`".into()
                    );
                }
            }
        }
        Ok(login)
    }
}

fn only(hosts: Vec<Host>) -> Result<Host, String> {
    match <[Host; 1]>::try_from(hosts) {
        Ok([host]) => Ok(host),
        Err(_) => {
            Err("it has several hosts: write `redis-sentinel://` or `redis-cluster://`".into())
        }
    }
}

fn database(text: &str) -> Result<u32, String> {
    match text {
        "" => Ok(0),
        number => number.parse().map_err(|_| "its database is not a number".into()),
    }
}

fn host(text: &str, usual_port: u16) -> Result<Host, String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("it has a `[` without `]`")?;
            (host, port.strip_prefix(':').or((port.is_empty()).then_some("")))
        }
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, Some("")),
        },
    };
    let port = match port {
        Some("") if !text.ends_with(':') => usual_port,
        port => port
            .and_then(|port| port.parse().ok().filter(|port| *port != 0))
            .ok_or("its port is not a number from 1 to 65535")?,
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%');
    if host.is_empty() || !host.chars().all(is_plain) {
        return Err("it has no valid host".into());
    }
    Ok((host.into(), port))
}

/// Percent-decodes a user name or password.
fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or("it contains a `%`: write it as `%25`")?);
        rest = after.get(2..).unwrap_or_default();
    }
    String::from_utf8(bytes).map_err(|_| "its password is not UTF-8".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> StoreAddress {
        StoreAddress::parse(url).unwrap_or_else(|why| panic!("{url}: {why}"))
    }

    fn login(login: &Login) -> (Option<&str>, Option<&str>) {
        (login.user.as_deref(), login.password.as_deref())
    }

    #[test]
    fn a_single_server_has_a_login_and_a_database() {
        let full = parse("redis://me:p%40ss@db.example:7000/3");
        assert_eq!((full.shown.as_str(), full.database), ("db.example:7000", 3));
        assert_eq!(login(&full.login), (Some("me"), Some("p@ss")));
        let short = parse("rediss://:s3@[::1]");
        assert_eq!((login(&short.login), short.is_tls), ((None, Some("s3")), true));
        let Topology::Single(host) = &short.topology else { panic!() };
        assert_eq!(host, &("::1".into(), 6379));
    }

    #[test]
    fn sentinels_and_cluster_nodes_are_lists() {
        let group = parse("redis-sentinel://u:p@a,b:7,[::1]:8/main/2?sentinel_password=s%26");
        let Topology::Sentinel { sentinels, master, login: own } = &group.topology else {
            panic!()
        };
        assert_eq!(sentinels, &[("a".into(), 26379), ("b".into(), 7), ("::1".into(), 8)]);
        assert_eq!((master.as_str(), group.database), ("main", 2));
        assert_eq!((login(&group.login), login(own)), ((Some("u"), Some("p")), (None, Some("s&"))));
        let cluster = parse("rediss-cluster://a:1,b");
        let Topology::Cluster(nodes) = &cluster.topology else { panic!() };
        assert_eq!((nodes, cluster.is_tls), (&vec![("a".into(), 1), ("b".into(), 6379)], true));
    }

    #[test]
    fn anything_else_is_an_error() {
        for bad in [
            "db:6379",
            "http://db",
            "redis-http://db",
            "redis+sentinel://db/main",
            "redis://",
            "redis://a,b",
            "redis://db/x",
            "redis://db:x",
            "redis://db:0",
            "redis://db:",
            "redis://[::1]x",
            "redis://x@db",
            "redis://:%zz@db",
            "redis://db?a",
            "redis://db#a",
            "redis://d b",
            "redis-cluster://a,/",
            "redis-cluster://a/1",
            "redis-cluster://a?sentinel_password=x",
            "redis-sentinel://a,b",
            "redis-sentinel://a,b/",
            "redis-sentinel://a/main?x=1",
        ] {
            assert!(StoreAddress::parse(bad).is_err(), "{bad}");
        }
    }
}
