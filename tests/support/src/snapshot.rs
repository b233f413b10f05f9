//! Writes a snapshot as ZooKeeper 3.8 does, with one node whose counter has a chosen value: 2^31
//! creates would take too long.
//!
//! The format is that of `FileSnap` and `SerializeUtils.serializeSnapshot`: a header, no sessions,
//! no ACLs but the open one (-1), the nodes (path, data, ACL, stat), and an Adler-32 checksum
//! followed by "/".
use super::wire::Writer;
use std::{fs, io, path::Path};

/// No other transaction of these servers has this zxid.
const ZXID: i64 = 0x100;
const MAGIC: i32 = i32::from_be_bytes(*b"ZKSN");
const OPEN_ACL: i64 = -1;
/// The owner that marks a container.
const CONTAINER: i64 = i64::MIN;

/// Writes a snapshot into `data`, the directory of a server that was not started yet. It has the
/// container `path` below the root, and the number of its next sequential child.
pub fn write(data: &Path, path: &str, next: i32) -> io::Result<()> {
    let mut body = Writer::new().i32(MAGIC).i32(2).i64(-1).i32(0).i32(0);
    for (path, created, owner) in
        [("", 0, 0), ("/zookeeper", 0, 0), ("/zookeeper/quota", 0, 0), (path, next, CONTAINER)]
    {
        // Times, then the versions of the data, of the children (creates only) and of the ACL.
        body = body.string(path).buffer(b"").i64(OPEN_ACL);
        body = body.i64(0).i64(0).i64(0).i64(0).i32(0).i32(created).i32(0).i64(owner).i64(0);
    }
    let body = body.string("/").frame().split_off(4);
    let seal = Writer::new().i64(i64::from(adler32(&body))).string("/").frame().split_off(4);
    let dir = data.join("version-2");
    fs::create_dir_all(&dir)?;
    fs::write(dir.join(format!("snapshot.{ZXID:x}")), [body, seal].concat())
}

fn adler32(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1, 0), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65521;
        (a, (b + a) % 65521)
    });
    b << 16 | a
}
