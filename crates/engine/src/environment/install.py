"""Installs wheels into a directory. Runs in a sandbox without a network; what it says is not believed."""

import compileall
import os
import py_compile
import subprocess
import sys

wheels, target, temporary, requirements = sys.argv[1:]
for directory in (target, temporary):
    os.mkdir(directory)
pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
pip += ["--no-color", "--no-cache-dir", "--no-index", "--find-links", wheels, "--only-binary", ":all:"]
pip += ["--no-compile", "--no-warn-script-location", "--root-user-action", "ignore"]
pip += ["--target", target, "--requirement", os.path.join(wheels, requirements)]
if os.path.getsize(pip[-1]):
    # In the same place, so that what is unpacked is moved and not copied.
    code = subprocess.call(pip, env={**os.environ, "TMPDIR": temporary, "PYTHONHASHSEED": "0"})
    if code != 0:
        sys.exit(code)
# By content and not by time, so that the same packages are the same files. What does not compile is not
# compiled: packages have templates and files of other versions.
unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
compileall.compile_dir(target, ddir="/env", quiet=2, invalidation_mode=unchecked)
