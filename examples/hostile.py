"""Tries what a hostile program would try first, and prints what came of it.

    hotcell run examples/hostile.py

Bounded, so that running it without a sandbox by mistake does no harm.
"""

import os
import socket
import time

FORKS = 200  # above the default limit of 100 processes


def read_secrets():
    with open("/etc/shadow") as file:
        return f"read {len(file.read())} characters"


def read_home():
    return f"saw {os.listdir('/root') + os.listdir('/home')}"


def call_home():
    with socket.create_connection(("1.1.1.1", 53), timeout=3):
        return "connected"


def write_to_the_system():
    with open("/usr/bin/env", "r+b"):
        return "could have changed a program"


def see_other_processes():
    others = [entry for entry in os.listdir("/proc") if entry.isdigit() and int(entry) > 2]
    others = [entry for entry in others if int(entry) != os.getpid()]
    if not others:
        raise PermissionError("no process but its own")
    return f"saw {len(others)} processes"


def steal_from_the_environment():
    found = [key for key in os.environ if "TOKEN" in key or "SECRET" in key or "KEY" in key]
    if not found:
        raise PermissionError("nothing of the caller's environment is here")
    return f"found {found}"


def use_the_powers_of_root():
    os.chroot("/")
    return "changed its root directory"


def fork_a_lot():
    children = []
    try:
        for _ in range(FORKS):
            pid = os.fork()
            if pid == 0:
                time.sleep(1)
                os._exit(0)
            children.append(pid)
        return f"started {len(children)} processes"
    except OSError as error:
        raise OSError(f"{error.strerror} after {len(children)} processes") from error
    finally:
        for pid in children:
            os.waitpid(pid, 0)


ATTEMPTS = [
    read_secrets,
    read_home,
    call_home,
    write_to_the_system,
    see_other_processes,
    steal_from_the_environment,
    use_the_powers_of_root,
    fork_a_lot,
]

for attempt in ATTEMPTS:
    name = attempt.__name__.replace("_", " ")
    try:
        print(f"{name:28} SUCCEEDED  {attempt()}")
    except OSError as error:
        print(f"{name:28} refused    {error}")
