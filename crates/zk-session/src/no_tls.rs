//! Stands in for `tls` and `connection/tls` where the feature `tls` is off: there is no
//! configuration of TLS then, and so no connection over TLS.

use std::io;

use super::connect_string::Host;
use crate::error::Result;
use crate::world::TcpStream;

#[derive(Clone)]
pub(crate) enum TlsConfig {}

impl TlsConfig {
    pub(super) fn has_certificate(&self) -> bool {
        match *self {}
    }

    pub(super) fn check(&self, _: &[Host]) -> Result<()> {
        match *self {}
    }
}

pub(crate) enum TlsStream {}

impl TlsStream {
    pub(crate) fn new(config: &TlsConfig, _: &str) -> Result<Self, String> {
        match *config {}
    }

    pub(crate) fn has_begun(&self) -> bool {
        match *self {}
    }

    pub(crate) fn handshake(&mut self, _: &TcpStream) -> Result<bool, String> {
        match *self {}
    }

    pub(crate) fn read(&mut self, _: &TcpStream, _: &mut [u8]) -> io::Result<Option<usize>> {
        match *self {}
    }

    pub(crate) fn write(&mut self, _: &TcpStream, _: &mut Vec<u8>) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn has_unread(&mut self) -> bool {
        match *self {}
    }

    pub(crate) fn has_unwritten(&self) -> bool {
        match *self {}
    }

    pub(crate) fn close(&mut self, _: &TcpStream) {
        match *self {}
    }
}
