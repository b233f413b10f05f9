//! The process that becomes the command.
//!
//! It is started in a process group of its own, with a socket in the place of stdin, and waits
//! there. When the guard knows the group, and the terminal is the group's, zk-lock sends the
//! command's stdin over the socket: that is the word to begin. If the socket ends without it,
//! zk-lock has gone, and so does this process.

use std::ffi::OsString;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::exit::{CANNOT_RUN, Failure, NOT_FOUND, SYSTEM};
use crate::output::Output;

pub const NAME: &str = "__start";

pub fn main(words: &[OsString], output: &Output) -> ExitCode {
    let Some((program, arguments)) = words.split_first() else {
        return ExitCode::from(SYSTEM);
    };
    let Some(stdin) = receive() else { return ExitCode::from(SYSTEM) };
    let error = Command::new(program).args(arguments).stdin(stdin).exec();
    let is_missing = error.kind() == ErrorKind::NotFound;
    let code = if is_missing { NOT_FOUND } else { CANNOT_RUN };
    let text = format!("cannot run {}: {error}", program.to_string_lossy());
    output.failed(&Failure::new(code, "command", text));
    ExitCode::from(code)
}

/// Lets the starter go, with this stdin.
pub fn release(gate: &UnixStream, stdin: BorrowedFd<'_>) -> std::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [stdin];
    control.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(gate, &[IoSlice::new(b"go")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The command's stdin; `None` if zk-lock has gone.
fn receive() -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut word = [0; 2];
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut word)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        match recvmsg(rustix::stdio::stdin(), &mut parts, &mut control, flags) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received.ok()?,
        }
    };
    if received.bytes == 0 {
        return None;
    }
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    })
}
