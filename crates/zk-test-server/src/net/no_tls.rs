//! Stands in for `tls` where the feature is off: no connection is over TLS.

use std::io;

use mio::net::TcpStream;

#[derive(Clone, Debug)]
pub(crate) enum ServerTls {}

#[derive(Debug)]
pub(crate) enum Acceptor {}

#[derive(Debug)]
pub(super) enum Tls {}

impl ServerTls {
    pub(super) fn load(&self) -> io::Result<Acceptor> {
        match *self {}
    }
}

impl Tls {
    pub(super) fn new(acceptor: &Acceptor) -> io::Result<Tls> {
        match *acceptor {}
    }

    pub(super) fn is_plain(&self, _: &[u8]) -> bool {
        match *self {}
    }

    pub(super) fn take(&mut self, _: &[u8], _: &TcpStream) -> Result<Vec<u8>, String> {
        match *self {}
    }

    pub(super) fn take_subject(&mut self) -> Option<String> {
        match *self {}
    }

    pub(super) fn write(&mut self, _: &TcpStream, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    pub(super) fn flush(&mut self, _: &TcpStream) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn has_unwritten(&self) -> bool {
        match *self {}
    }

    pub(super) fn close(&mut self, _: &TcpStream) {
        match *self {}
    }
}
