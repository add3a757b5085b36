//! Where a store is, and how one gets in.

use std::io;
use std::time::Duration;

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
    pub(super) async fn connect(&self) -> io::Result<(Connection, Scripts)> {
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
        connection.write(&out).await?;
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
                Reply::Error(why) => return Err(io::Error::other(format!("{refused}: {why}"))),
                _ => return Err(io::Error::other(refused)),
            }
        }
        let strange = || io::Error::other("it does not take scripts");
        let give_back = answers.pop().ok_or_else(strange)?;
        let take = answers.pop().ok_or_else(strange)?;
        Ok((connection, Scripts { take, give_back }))
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
