//! Makes the library's sources take their world from the simulation.

fn main() {
    println!("cargo::rustc-cfg=zk_sim");
    println!("cargo::rerun-if-changed=build.rs");
}
