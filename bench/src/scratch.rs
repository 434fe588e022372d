//! A directory that goes away with the measurement, beside this program: what is measured there ends on a
//! disk, where a temporary directory may be memory.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::peers::Failure;

#[derive(Debug)]
pub(crate) struct Scratch {
    directory: TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Result<Scratch, Failure> {
        let own = std::env::current_exe()?;
        let beside = own.parent().ok_or("this program lies nowhere")?;
        // Somebody else may have built it.
        let directory = TempDir::with_prefix_in("bench-", beside)
            .or_else(|_| TempDir::with_prefix("bench-"))?;
        let scratch = Scratch { directory };
        fs::create_dir(scratch.home())?;
        // As low as what else is measured here.
        fs::write(scratch.home().join("config.toml"), "min_level = \"no-proc\"\n")?;
        Ok(scratch)
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// For `hotcell` as a command.
    pub(crate) fn home(&self) -> PathBuf {
        self.path().join("home")
    }

    /// The kind of file system that this is on.
    pub(crate) fn file_system(&self) -> Option<String> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let mounts = mounts.lines().filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            Some((Path::new(fields.next()?), fields.next()?))
        });
        let around = mounts.filter(|(place, _)| self.path().starts_with(place));
        let (_, kind) = around.max_by_key(|(place, _)| place.components().count())?;
        Some(kind.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_it() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        assert!(scratch.home().is_dir() && scratch.file_system().is_some());
        drop(scratch);
        assert!(!path.exists());
    }
}
