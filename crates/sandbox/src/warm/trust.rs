//! Whose code a zygote would run. What is executed before there is a jail has to be the system's own, or that
//! of the user who runs hotcell: everything else is executed in the jail, as ever.

use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Written to by its group or by everybody.
const WRITABLE_BY_OTHERS: u32 = 0o022;
const ROOT: u32 = 0;
/// What makes its directory, or the one above, a virtual environment: its content says where Python has its
/// library from.
const VENV_FILE: &str = "pyvenv.cfg";
/// Where packages are that others installed, and the library's own tests, which are most of it. A zygote
/// executes nothing of them.
const NEVER_LOADED: [&str; 3] = ["site-packages", "dist-packages", "test"];
/// Most files of a standard library. It has some 2000.
const MOST_FILES: usize = 50_000;

/// Whether this is an interpreter with its own standard library, neither of which anybody could have
/// replaced whom this process does not trust anyway. Asked for each job: only directories are looked at.
pub(super) fn is_trusted(program: &Path, argv0: &Path) -> bool {
    // By another name than its own it may be in a virtual environment.
    let Some(bin) = program.parent().filter(|bin| argv0.parent() == Some(*bin)) else {
        return false;
    };
    let Some(prefix) = bin.parent().filter(|_| bin.file_name().is_some_and(|name| name == "bin"))
    else {
        return false;
    };
    let is_venv = [bin, prefix].iter().any(|dir| dir.join(VENV_FILE).symlink_metadata().is_ok());
    let is_real = fs::canonicalize(bin).is_ok_and(|real| real == bin);
    let libraries = libraries(prefix);
    is_real
        && !is_venv
        && !libraries.is_empty()
        && is_ours_up(program)
        && libraries.iter().all(|l| is_ours_up(l))
        && archives(prefix).iter().all(|archive| is_ours_up(archive))
}

/// Whether that holds of every file that it could load. Asked once for each zygote.
pub(super) fn has_trusted_library(program: &Path) -> bool {
    let Some(prefix) = program.parent().and_then(Path::parent) else { return false };
    let mut left = MOST_FILES;
    libraries(prefix).iter().all(|library| is_ours_below(library, &mut left))
}

/// Its standard libraries: one, or two where there is a `lib64`.
fn libraries(prefix: &Path) -> Vec<PathBuf> {
    beside_each_other(prefix, |name, path| name.starts_with(b"python3.") && path.is_dir())
}

/// Libraries in one file, which come before those: `python312.zip`.
fn archives(prefix: &Path) -> Vec<PathBuf> {
    beside_each_other(prefix, |name, _| name.starts_with(b"python3") && name.ends_with(b".zip"))
}

fn beside_each_other(prefix: &Path, is_one: impl Fn(&[u8], &Path) -> bool) -> Vec<PathBuf> {
    let entries = ["lib", "lib64"].iter().flat_map(|lib| fs::read_dir(prefix.join(lib)));
    let paths = entries.flatten().flatten().map(|entry| entry.path());
    paths.filter(|path| is_one(path.file_name().unwrap_or_default().as_bytes(), path)).collect()
}

/// A path without links, and every directory above it.
fn is_ours_up(path: &Path) -> bool {
    let real = fs::canonicalize(path);
    real.is_ok_and(|real| {
        real.ancestors().all(|each| fs::symlink_metadata(each).is_ok_and(|about| is_ours(&about)))
    })
}

fn is_ours_below(dir: &Path, left: &mut usize) -> bool {
    let Ok(entries) = fs::read_dir(dir) else { return false };
    entries.into_iter().all(|entry| {
        let Some(less) = left.checked_sub(1) else { return false };
        *left = less;
        let Ok(entry) = entry else { return false };
        let (path, Ok(about)) = (entry.path(), entry.metadata()) else { return false };
        if NEVER_LOADED.iter().any(|name| entry.file_name() == *name) {
            return true;
        }
        if about.is_symlink() {
            return !path.exists() || is_ours_up(&path);
        }
        is_ours(&about) && (!about.is_dir() || is_ours_below(&path, left))
    })
}

fn is_ours(about: &Metadata) -> bool {
    let own = rustix::process::geteuid().as_raw();
    (about.uid() == ROOT || about.uid() == own) && about.mode() & WRITABLE_BY_OTHERS == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// An installation in a directory that nobody else can write to, all the way up.
    fn installation() -> Option<(tempfile::TempDir, PathBuf)> {
        let target = Path::new(env!("CARGO_MANIFEST_DIR"));
        let place = [Path::new("/var/lib"), target].into_iter().find_map(|dir| {
            let dir = tempfile::tempdir_in(dir).ok()?;
            is_ours_up(dir.path()).then_some(dir)
        });
        let dir = place?;
        let python = dir.path().join("bin/python3.12");
        fs::create_dir_all(dir.path().join("bin")).unwrap();
        fs::create_dir_all(dir.path().join("lib/python3.12/json")).unwrap();
        fs::create_dir_all(dir.path().join("lib/python3.12/site-packages")).unwrap();
        for file in [
            "bin/python3.12",
            "lib/python312.zip",
            "lib/python3.12/os.py",
            "lib/python3.12/json/decoder.py",
        ] {
            fs::write(dir.path().join(file), "x").unwrap();
        }
        for each in ["", "bin", "lib", "lib/python3.12", "lib/python3.12/json"] {
            chmod(&dir.path().join(each), 0o755);
        }
        Some((dir, python))
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn both(python: &Path) -> (bool, bool) {
        (is_trusted(python, python), has_trusted_library(python))
    }

    #[test]
    fn an_interpreter_that_only_its_owner_can_write_to_is_trusted() {
        let Some((_dir, python)) = installation() else { return };
        assert_eq!(both(&python), (true, true));
        let beside = python.with_file_name("python3");
        symlink("python3.12", &beside).unwrap();
        assert!(is_trusted(&python, &beside), "by a name beside it");
        assert!(!is_trusted(&python, Path::new("/elsewhere/bin/python3")));
    }

    #[test]
    fn what_others_can_write_to_is_not() {
        for (path, expected) in [
            ("", (false, true)),
            ("bin", (false, true)),
            ("bin/python3.12", (false, true)),
            ("lib", (false, true)),
            ("lib/python3.12", (false, true)),
            ("lib/python3.12/json", (true, false)),
            ("lib/python3.12/json/decoder.py", (true, false)),
            ("lib/python3.12/site-packages", (true, true)),
            ("lib/python312.zip", (false, true)),
        ] {
            for mode in [0o775, 0o757] {
                let Some((dir, python)) = installation() else { return };
                chmod(&dir.path().join(path), mode);
                assert_eq!(both(&python), expected, "{path} {mode:o}");
            }
        }
    }

    #[test]
    fn what_somebody_else_owns_is_not() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        for (path, expected) in [
            ("bin/python3.12", (false, true)),
            ("lib", (false, true)),
            ("lib/python3.12/os.py", (true, false)),
        ] {
            let Some((dir, python)) = installation() else { return };
            std::os::unix::fs::chown(dir.path().join(path), Some(12_345), None).unwrap();
            assert_eq!(both(&python), expected, "{path}");
        }
        let Some((dir, python)) = installation() else { return };
        let (os, elsewhere) = (dir.path().join("lib/python3.12/os.py"), dir.path().join("os.py"));
        fs::rename(&os, &elsewhere).unwrap();
        symlink(&elsewhere, &os).unwrap();
        assert_eq!(both(&python), (true, true), "a link to what is ours");
        std::os::unix::fs::chown(&elsewhere, Some(12_345), None).unwrap();
        assert_eq!(both(&python), (true, false), "a link to what is not");
    }

    #[test]
    fn a_virtual_environment_is_never_trusted_whatever_is_in_it() {
        for at in ["pyvenv.cfg", "bin/pyvenv.cfg"] {
            let Some((dir, python)) = installation() else { return };
            fs::write(dir.path().join(at), "home = /usr/bin\n").unwrap();
            assert!(!is_trusted(&python, &python), "{at}");
        }
        let Some((dir, python)) = installation() else { return };
        fs::remove_dir_all(dir.path().join("lib/python3.12")).unwrap();
        assert!(!is_trusted(&python, &python), "its library is somewhere else");
    }
}
