"""What a Python zygote does: starts, loads what programs often use, and is forked for each of them.

Everything up to `serve` happens once, and executes nothing but the interpreter's own code. It returns in
a process that is in a jail of its own and was let go; what follows makes that process what
`python3 -u FILE ARGUMENTS...` would be.
"""

import atexit
import builtins
import ctypes
import gc
import importlib.machinery
import importlib.util
import os
import signal
import site
import sys
import threading
import time

# Programs begin with these more often than not. None has a state that matters, but for the generator of
# random numbers, which is seeded anew in every child.
import argparse, base64, bisect, collections, collections.abc, contextlib, copy, csv, dataclasses, datetime
import decimal, enum, fractions, functools, hashlib, heapq, inspect, io, itertools, json, logging, math
import operator, pathlib, random, re, shutil, statistics, string, struct, subprocess, tempfile, textwrap
import traceback, types, typing, urllib.parse, uuid, warnings, weakref


# What a program does to these is its own affair: functions of this file use a copy.
__builtins__ = dict(vars(builtins))
collect, shutdown, run_exitfuncs = gc.collect, threading._shutdown, atexit._run_exitfuncs
SIGINT, SIG_DFL = signal.SIGINT, signal.SIG_DFL


class Task(ctypes.Structure):
    _fields_ = [("args", ctypes.POINTER(ctypes.c_char_p)), ("env", ctypes.POINTER(ctypes.c_char_p))]


def strings(pointers):
    found = []
    while pointers[len(found)] is not None:
        found.append(pointers[len(found)])
    return found


def say_that_site_is_on():
    # It is off only so that what it would execute is executed in the jail.
    index = 6
    if sys.flags[index] != 1 or sys.flags.no_site != 1:
        raise SystemExit("the flags of this interpreter are others")
    put = ctypes.pythonapi.PyStructSequence_SetItem
    put.argtypes, put.restype = [ctypes.py_object, ctypes.c_ssize_t, ctypes.py_object], None
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(0))
    put(sys.flags, index, 0)


def paths_of_site():
    """Does what `site` does, but for what others wrote: gives that, to be executed in the jail."""
    lines = []

    def addpackage(directory, name, known_paths):
        known_paths = site._init_pathinfo() if known_paths is None else known_paths
        try:
            with open(os.path.join(directory, name), encoding="utf-8-sig", errors="strict") as file:
                content = file.read()
        except (OSError, UnicodeDecodeError):
            return known_paths
        for line in content.splitlines():
            if line.startswith(("import ", "import\t")):
                lines.append(line)
            elif line.strip() and not line.startswith("#"):
                path, case = site.makepath(directory, line.rstrip())
                if case not in known_paths and os.path.exists(path):
                    sys.path.append(path)
                    known_paths.add(case)
        return known_paths

    kept = site.addpackage, site.execsitecustomize, site.execusercustomize
    site.addpackage = addpackage
    site.execsitecustomize = site.execusercustomize = lambda: None
    site.main()
    site.addpackage, site.execsitecustomize, site.execusercustomize = kept
    # Whoever wrote these, they import what they like: Debian's belongs to the interpreter, and loads a hook of
    # Apport's from among the packages.
    custom = []
    if importlib.util.find_spec("sitecustomize"):
        custom.append(site.execsitecustomize)
    if site.ENABLE_USER_SITE and importlib.util.find_spec("usercustomize"):
        custom.append(site.execusercustomize)
    return lines, custom


def all_is_the_interpreters():
    """Whatever leads to code of others here, nothing is forked from a process that has it."""

    def is_others(file):
        return "-packages" in file or not file.startswith(library)

    loaded = [vars(module).get("__file__") for name, module in sys.modules.items() if name != "__main__"]
    if any(is_others(file) for file in loaded if file is not None):
        raise SystemExit("there is a module that is not the interpreter's own")


def stamp_of_site():
    """What changes when packages, or the files that `site` executes, are installed or removed."""

    def modified(directory):
        try:
            return os.stat(directory).st_mtime_ns
        except OSError:
            return None

    own = os.path.dirname(os.__file__)
    return [modified(directory) for directory in (own, *site.getsitepackages(), site.getusersitepackages())]


def run_site(lines, custom):
    if stamp_of_site() != stamp:
        lines, custom = paths_of_site()
    for line in lines:
        try:
            exec(line, {"__builtins__": builtins})
        except Exception:
            traceback.print_exc()
            sys.stderr.write("Remainder of file ignored\n")
    for each in custom:
        each()


def rehearse():
    """Does once what every program does first, in the jail, before there is one: memory is copied when it
    is first written to, and that takes longer than anything else here."""
    python.PyOS_AfterFork_Child()
    if hasattr(threading.main_thread(), "_set_native_id"):
        threading.main_thread()._set_native_id()
    # What was not there may be there by now.
    for path in [path for path, finder in sys.path_importer_cache.items() if finder is None]:
        del sys.path_importer_cache[path]
    os.environb[b"HOME"] = os.environb.pop(b"HOME", b"/tmp")
    stamp_of_site()
    names = {"__builtins__": builtins}
    run(libc.fopen(b"/dev/null", b"rb"), b"/dev/null", FILE_INPUT, names, names, 1, None)
    exec(compile("import sys\ndef f(x): return str(x)\nf(1)", "rehearsal", "exec"), names)


def become(args, env):
    """Makes this process that of a program which was started with these, and gives its module."""
    environ = os.environb
    env = dict(text.split(b"=", 1) for text in env)
    for key in set(environ) - set(env) - own_variables:
        del environ[key]
    for key, value in env.items():
        if environ.get(key) != value:
            environ[key] = value
    if b"TZ" in env:
        time.tzset()
    # What the times in log records count from, in seconds or, since Python 3.13, in billionths of one.
    logging._startTime = time.time_ns() if isinstance(logging._startTime, int) else time.time()
    words = [os.fsdecode(word) for word in args]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = words
    sys.argv[:] = words[2:]
    path = sys.argv[0]
    main = type(sys)("__main__")
    main.__dict__.update(
        __annotations__={},
        __builtins__=builtins,
        __cached__=None,
        __file__=path,
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
    )
    sys.modules["__main__"] = main
    return main


def status_of(error):
    """How the interpreter would end with this, after it has said so."""
    if isinstance(error, SystemExit):
        code = error.code
        if code is None:
            return 0
        if isinstance(code, int):
            return code & 0xFF
        sys.stderr.write(f"{code}\n")
        return 1
    # Without the frame of this file.
    trace = error.__traceback__.tb_next
    error.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(type(error), error, trace)
        failed = None
    except BaseException as another:
        failed = another
    if isinstance(failed, SystemExit):
        return status_of(failed)
    if failed is not None:
        failed.__traceback__ = failed.__traceback__.tb_next
        sys.stderr.write("Error in sys.excepthook:\n")
        sys.__excepthook__(type(failed), failed, failed.__traceback__)
        sys.stderr.write("\nOriginal exception was:\n")
        sys.__excepthook__(type(error), error, trace)
    return -SIGINT if isinstance(error, KeyboardInterrupt) else 1


def let_go():
    """Lets go whatever the program made, so that files are written and destructors run."""
    modules = [sys.modules.pop(name) for name in reversed(list(sys.modules)) if name not in common]
    for module in modules:
        names = getattr(module, "__dict__", {})
        for key in sorted(names, key=lambda name: not name.startswith("_")):
            if key != "__builtins__":
                names[key] = None
    collect()


def flush():
    for stream in sys.stdout, sys.stderr:
        if stream is not None and not stream.closed:
            stream.flush()


def end(error, *, exit=os._exit, kill=os.kill, getpid=os.getpid, signal=signal.signal):
    """Ends as the interpreter does, without taking apart what all children have in common."""
    status = 0
    try:
        status = 0 if error is None else status_of(error)
    except BaseException:
        status = 1
    for step, fails_with in (shutdown, 0), (run_exitfuncs, 0), (collect, 0), (let_go, 0), (flush, 120):
        try:
            step()
        except BaseException:
            status = status or fails_with
    if status < 0:
        signal(-status, SIG_DFL)
        kill(getpid(), -status)
    exit(status)


python, libc = ctypes.pythonapi, ctypes.PyDLL(None)
serve = ctypes.PyDLL("/proc/self/fd/4").hotcell_serve
Rehearse = ctypes.PYFUNCTYPE(None)
serve.argtypes, serve.restype = [ctypes.c_void_p, Rehearse], Task
libc.fopen.argtypes, libc.fopen.restype = [ctypes.c_char_p, ctypes.c_char_p], ctypes.c_void_p
# As the interpreter reads a file: encodings, marks and all.
run, FILE_INPUT = python.PyRun_FileExFlags, 257
run.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.py_object, ctypes.py_object]
run.argtypes += [ctypes.c_int, ctypes.c_void_p]
run.restype = ctypes.py_object
python.PyOS_BeforeFork.restype = python.PyOS_AfterFork_Child.restype = None
fork = ctypes.cast(libc.fork, ctypes.c_void_p)
with open("/proc/self/environ", "rb") as file:
    given = file.read().split(b"\0")
# Such as a locale in place of one that is not there.
own_variables = set(os.environb) - {variable.partition(b"=")[0] for variable in given}
del sys.path[0]
library = tuple(os.path.join(path, "") for path in sys.path)
of_others, stamp = paths_of_site(), stamp_of_site()
all_is_the_interpreters()
say_that_site_is_on()
common = frozenset(sys.modules) - {"__main__"}
collect()
gc.freeze()

python.PyOS_BeforeFork()
task = serve(fork, Rehearse(rehearse))
main = become(strings(task.args), strings(task.env))
run_site(*of_others)
sys.path.insert(0, os.path.dirname(main.__file__))
names, path = main.__dict__, os.fsencode(main.__file__)
ended_by = None
try:
    run(libc.fopen(path, b"rb"), path, FILE_INPUT, names, names, 1, None)
except BaseException as error:
    ended_by = error
del main, names
end(ended_by)
