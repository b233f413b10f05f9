//! Connects libFuzzer with the fuzz targets of the library and of the crates below it (the module
//! `fuzz` of each). `fuzz/run` builds and runs this; the environment variable `FUZZ_TARGET` names
//! the target.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    static TARGET: std::sync::LazyLock<zk_wire::fuzz::Target> = std::sync::LazyLock::new(|| {
        let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
        let all = [
            zk_wire::fuzz::TARGETS,
            zk_test_server::fuzz::TARGETS,
            zk_session::fuzz::TARGETS,
            zk_mutex::fuzz::TARGETS,
        ];
        let target = all.into_iter().flatten().find(|(of, _)| *of == name);
        target.unwrap_or_else(|| panic!("there is no target {name}")).1
    });
    TARGET(bytes);
});

#[cfg(not(fuzzing))]
fn main() {
    eprintln!(
        "build and run this with fuzz/run TARGET SECONDS, which needs cargo-fuzz and nightly Rust"
    );
    std::process::exit(2);
}
