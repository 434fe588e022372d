//! The binary that is tested.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// `HOTCELL_BIN`, or the release build of this repository, made on the first call.
pub(crate) fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("HOTCELL_BIN") {
        Some(path) => path.into(),
        None => {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let built = Command::new(cargo)
                .args(["build", "--quiet", "--release", "-p", "hotcell"])
                .current_dir(&root)
                .status();
            assert!(built.unwrap().success(), "hotcell cannot be built");
            let target = std::env::var_os("CARGO_TARGET_DIR");
            target.map_or(root.join("target"), PathBuf::from).join("release/hotcell")
        }
    })
}
