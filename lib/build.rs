//! Tells the build scripts of who depends on this package where its sources are (`DEP_ALLOTMENT_SOURCE`): the command
//! builds the library that it preloads from them, in the repository and from packages alike.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::metadata=source={}", std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
}
