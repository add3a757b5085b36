//! Where a store is, and how one gets in.

use std::io;
use std::time::{Duration, Instant};

use super::resp::{self, Reply};
use super::{GIVE_BACK, TAKE};
use crate::upstream::Address;
use crate::upstream::pool::Connection;

/// A store.
pub(super) struct Target {
    address: Address,
    /// Host and port, for people.
    pub(super) authority: String,
    user: Option<String>,
    password: Option<String>,
    database: u32,
    pub(super) timeout: Duration,
}

/// The names that the store gave our scripts.
pub(super) struct Scripts {
    pub(super) take: String,
    pub(super) give_back: String,
}

/// What the store's clock says, as far as that is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    /// In microseconds, not before `at`.
    time: u64,
    at: Instant,
    /// By how much it may be off: as long as it took to hear of it.
    slack: Duration,
}

impl Clock {
    pub(super) fn new(time: u64, asked: Instant) -> Clock {
        let at = Instant::now();
        Clock { time, at, slack: at.saturating_duration_since(asked) }
    }

    /// The store's time after so long from now; 0 where it has no clock.
    pub(super) fn after(&self, wait: Duration) -> u64 {
        let ahead = self.at.elapsed() + self.slack + wait;
        match self.time {
            0 => 0,
            time => time.saturating_add(u64::try_from(ahead.as_micros()).unwrap_or(u64::MAX / 2)),
        }
    }

    /// Every answer to a call says what time it is.
    pub(super) fn learn(&mut self, reply: &Reply, asked: Instant) {
        if let Reply::List(parts) = reply
            && let Some(time) = parts.get(1).and_then(Reply::number)
        {
            *self = Clock::new(u64::try_from(time).unwrap_or(0), asked);
        }
    }
}

impl Target {
    /// Reads `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, or `rediss://` with TLS.
    pub(super) fn parse(url: &str, timeout: Duration) -> Result<Target, String> {
        let (scheme, rest) = url.split_once("://").ok_or("it has no `redis://`")?;
        let tls = match scheme {
            "redis" => false,
            "rediss" => true,
            other => return Err(format!("`{other}` is not known here, only redis and rediss")),
        };
        if rest.contains(['?', '#']) {
            return Err("it has options, and none are known here".into());
        }
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let database = match database {
            "" => 0,
            number => number.parse().map_err(|_| "its database is not a number")?,
        };
        let (credentials, authority) = match authority.rsplit_once('@') {
            Some((credentials, authority)) => (Some(credentials), authority),
            None => (None, authority),
        };
        let (user, password) = match credentials {
            None => (None, None),
            Some(credentials) => {
                let (user, password) =
                    credentials.split_once(':').ok_or("write a password as `:PASSWORD@`")?;
                (Some(user).filter(|user| !user.is_empty()), Some(password))
            }
        };
        // The rest is read as any other address, under a port that is the usual one here.
        let bare = authority.rsplit_once(']').map_or(authority, |(_, after)| after);
        let authority = match bare.contains(':') {
            true => authority.to_owned(),
            false => format!("{authority}:6379"),
        };
        let address = Address::parse(&format!("http://{authority}"))?;
        Ok(Target {
            address: Address { tls, ..address },
            authority,
            user: user.map(decoded).transpose()?,
            password: password.map(decoded).transpose()?,
            database,
            timeout,
        })
    }

    /// A connection that is let in, in the right database, with our scripts known.
    pub(super) async fn connect(&self) -> io::Result<(Connection, Scripts, Clock)> {
        let mut connection = Connection::open(&self.address).await?;
        let mut out = Vec::new();
        let database = self.database.to_string();
        let mut asked = Vec::new();
        if let Some(password) = &self.password {
            let mut words: Vec<&[u8]> = vec![b"AUTH"];
            words.extend(self.user.as_ref().map(|user| user.as_bytes()));
            words.push(password.as_bytes());
            resp::command(&words, &mut out);
            asked.push("it refuses the password");
        }
        if self.database != 0 {
            resp::command(&[b"SELECT", database.as_bytes()], &mut out);
            asked.push("it has no such database");
        }
        for script in [TAKE, GIVE_BACK] {
            resp::command(&[b"SCRIPT", b"LOAD", script.as_bytes()], &mut out);
            asked.push("it does not take scripts");
        }
        resp::command(&[b"TIME"], &mut out);
        asked.push("it has no clock");
        let begun = Instant::now();
        connection.write(&out).await?;
        let mut clock = Clock::new(0, begun);
        let mut answers = Vec::new();
        for refused in asked {
            let reply = loop {
                let reply = resp::reply(&mut connection.buffer);
                let reply =
                    reply.map_err(|_| io::Error::other("it does not speak Redis' protocol"))?;
                if let Some(reply) = reply {
                    break reply;
                }
                if !connection.read_more().await? {
                    return Err(io::Error::other("it closed the connection"));
                }
            };
            match reply {
                Reply::Text(text) => answers.push(text),
                Reply::List(parts) => {
                    let part = |at: usize| parts.get(at).and_then(Reply::number);
                    let (Some(seconds), Some(micros)) = (part(0), part(1)) else {
                        return Err(io::Error::other(refused));
                    };
                    let time = seconds.saturating_mul(1_000_000).saturating_add(micros);
                    clock = Clock::new(u64::try_from(time).unwrap_or(0), begun);
                }
                Reply::Error(why) => return Err(io::Error::other(format!("{refused}: {why}"))),
                _ => return Err(io::Error::other(refused)),
            }
        }
        let strange = || io::Error::other("it does not take scripts");
        let give_back = answers.pop().ok_or_else(strange)?;
        let take = answers.pop().ok_or_else(strange)?;
        Ok((connection, Scripts { take, give_back }, clock))
    }
}

/// `%40` and the like in a user name or password.
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
        bytes.push(byte.ok_or("its password holds a `%`: write it as `%25`")?);
        rest = after.get(2..).unwrap_or_default();
    }
    String::from_utf8(bytes).map_err(|_| "its password is not UTF-8".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Target, String> {
        Target::parse(url, Duration::from_millis(50))
    }

    #[test]
    fn a_url_says_where_and_how() {
        let full = parse("redis://me:p%40ss@db.example:7000/3").unwrap();
        assert_eq!(full.authority, "db.example:7000");
        assert_eq!((full.user.as_deref(), full.password.as_deref()), (Some("me"), Some("p@ss")));
        assert_eq!(full.database, 3);
        let short = parse("redis://:s3@[::1]").unwrap();
        assert_eq!((&*short.authority, short.user, short.database), ("[::1]:6379", None, 0));
        assert!(parse("rediss://db").is_ok());
        for bad in [
            "db:6379",
            "http://db",
            "redis://",
            "redis://db/x",
            "redis://x@db",
            "redis://:%zz@db",
            "redis://db?a",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
