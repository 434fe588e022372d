# In front of every attack: one line `name=answer` for each thing that it tries.
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def name_of(number): return errno.errorcode.get(number, str(number))
def say(name, answer): os.write(1, f'{name}={answer}\n'.encode('utf-8', 'backslashreplace'))
def call(number, *args):
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    ctypes.set_errno(0)
    answer = libc.syscall(ctypes.c_long(number), *words)
    return 'ok' if answer != -1 else name_of(ctypes.get_errno())
def attempt(f, *args, **named):
    try: f(*args, **named)
    except OSError as e: return name_of(e.errno)
    return 'ok'
def read(path):
    try:
        with open(path, 'rb') as f: return f.read().decode('utf-8', 'backslashreplace').replace('\n', '|')
    except OSError as e: return name_of(e.errno)
def field(text, name):
    for line in text.split('|'):
        if line.startswith(name): return line[len(name):].strip()
    return 'absent'
