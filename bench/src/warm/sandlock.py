"""Runs a command in a sandlock sandbox for each line that it reads, and says how that went.

Its first argument is what the command prints. Files can be read, and nothing else."""

import sys

import sandlock

prints, *command = sys.argv[1:]
READABLE = ["/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/dev"]
box = sandlock.Sandbox(fs_readable=READABLE, fs_writable=["/tmp"])
print(sandlock.__version__, flush=True)
for _ in sys.stdin:
    ran = box.run(command, timeout=60)
    is_good = ran.success and ran.stdout.decode() == prints
    print("good" if is_good else f"bad: {ran}".replace("\n", " "), flush=True)
