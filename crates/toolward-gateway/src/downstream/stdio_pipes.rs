//! Asynchronous standard input and output: the runtime polls pipes and sockets directly, everything else
//! goes through tokio's blocking threads.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::fs::{FileType, fstat};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe;

/// Standard input, for the client's messages.
pub fn input() -> Box<dyn AsyncRead + Unpin + Send> {
    let direct = || -> io::Result<Box<dyn AsyncRead + Unpin + Send>> {
        let stdin = io::stdin();
        let own = stdin.as_fd().try_clone_to_owned()?;
        match kind(&stdin)? {
            FileType::Fifo => Ok(Box::new(pipe::Receiver::from_owned_fd(own)?)),
            FileType::Socket => Ok(Box::new(socket(own)?)),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    };
    direct().unwrap_or_else(|_| Box::new(tokio::io::stdin()))
}

/// Standard output, for responses.
pub fn output() -> Box<dyn AsyncWrite + Unpin + Send> {
    let direct = || -> io::Result<Box<dyn AsyncWrite + Unpin + Send>> {
        let stdout = io::stdout();
        let own = stdout.as_fd().try_clone_to_owned()?;
        // Non-blocking mode is shared with a log on the same pipe, whose lines would be lost when the
        // pipe is full.
        if same(&stdout, &io::stderr())? {
            return Err(io::ErrorKind::Unsupported.into());
        }
        match kind(&stdout)? {
            FileType::Fifo => Ok(Box::new(pipe::Sender::from_owned_fd(own)?)),
            FileType::Socket => Ok(Box::new(socket(own)?)),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    };
    direct().unwrap_or_else(|_| Box::new(tokio::io::stdout()))
}

fn kind(file: &impl AsFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(fstat(file)?.st_mode))
}

fn same(one: &impl AsFd, other: &impl AsFd) -> io::Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

fn socket(own: OwnedFd) -> io::Result<tokio::net::UnixStream> {
    let socket = UnixStream::from(own);
    socket.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(socket)
}
