//! Says to the library's sources where they take the world from.

fn main() {
    println!("cargo::rustc-cfg=zk_sim");
    println!("cargo::rerun-if-changed=build.rs");
}
