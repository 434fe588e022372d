//! Python's standard library, as far as it talks to the kernel.

use crate::support::{Case, check};

#[test]
fn processes_and_threads() {
    check(&[
        Case::new(
            "threads",
            "python",
            "import threading, queue
q = queue.Queue()
workers = [threading.Thread(target=lambda i=i: q.put(i * i)) for i in range(50)]
for w in workers: w.start()
for w in workers: w.join()
print(sum(q.queue))
with __import__('concurrent.futures').futures.ThreadPoolExecutor(8) as pool:
    print(list(pool.map(len, ['a', 'bb', 'ccc'])))
",
            "40425\n[1, 2, 3]\n",
        ),
        Case::new(
            "multiprocessing",
            "python",
            "import multiprocessing as mp, os
def square(n): return n * n
def child(pipe): pipe.send(os.getpid() != os.getppid())
if __name__ == '__main__':
    for how in ['fork', 'spawn', 'forkserver']:
        context = mp.get_context(how)
        with context.Pool(3) as pool: print(how, pool.map(square, range(6)))
        ours, theirs = context.Pipe()
        process = context.Process(target=child, args=(theirs,))
        process.start(); print(ours.recv()); process.join(); print(process.exitcode)
        lock, value, queue = context.Lock(), context.Value('i', 5), context.Queue()
        with lock: value.value += 1
        queue.put(value.value); print(queue.get())
",
            "fork [0, 1, 4, 9, 16, 25]\nTrue\n0\n6\nspawn [0, 1, 4, 9, 16, 25]\nTrue\n0\n6\n\
             forkserver [0, 1, 4, 9, 16, 25]\nTrue\n0\n6\n",
        ),
        Case::new(
            "process pool and shared memory",
            "python",
            "from concurrent.futures import ProcessPoolExecutor
from multiprocessing import shared_memory, Manager
def fill(name):
    memory = shared_memory.SharedMemory(name); memory.buf[0] = 42; memory.close(); return True
if __name__ == '__main__':
    memory = shared_memory.SharedMemory(create=True, size=4096)
    with ProcessPoolExecutor(2) as pool: print(pool.submit(fill, memory.name).result(), memory.buf[0])
    memory.close(); memory.unlink()
    with Manager() as manager:
        shared = manager.dict(); shared['a'] = 1; print(dict(shared))
",
            "True 42\n{'a': 1}\n",
        ),
        Case::new(
            "subprocess",
            "python",
            "import subprocess, sys
print(subprocess.run(['echo', 'hello'], capture_output=True, text=True, check=True).stdout, end='')
print(subprocess.run([sys.executable, '-c', 'print(6 * 7)'], capture_output=True, text=True).stdout, end='')
print(subprocess.run('cat | tr a-z A-Z', shell=True, input='piped', capture_output=True, text=True).stdout)
print(subprocess.run('exit 3', shell=True).returncode)
p = subprocess.Popen(['sleep', '60'], start_new_session=True); p.terminate(); print(p.wait())
try: subprocess.run(['sleep', '60'], timeout=0.1)
except subprocess.TimeoutExpired: print('timed out')
try: subprocess.run(['no-such-program'])
except FileNotFoundError: print('not found')
",
            "hello\n42\nPIPED\n3\n-15\ntimed out\nnot found\n",
        ),
        Case::new(
            "asyncio",
            "python",
            "import asyncio, sys, signal, os
async def child(word):
    p = await asyncio.create_subprocess_exec(sys.executable, '-c', f'print({word!r})', stdout=asyncio.subprocess.PIPE)
    return (await p.communicate())[0].decode().strip()
async def main():
    print(await asyncio.gather(*(child(w) for w in ['a', 'b', 'c'])))
    print(await asyncio.to_thread(sum, [1, 2, 3]))
    await asyncio.sleep(0.01)
    got = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, got.set)
    os.kill(os.getpid(), signal.SIGUSR1)
    await asyncio.wait_for(got.wait(), 5)
    try: await asyncio.wait_for(asyncio.sleep(60), 0.01)
    except TimeoutError: print('timed out')
    async def echo(reader, writer): writer.write(await reader.readline()); await writer.drain(); writer.close()
    server = await asyncio.start_unix_server(echo, '/tmp/echo')
    reader, writer = await asyncio.open_unix_connection('/tmp/echo')
    writer.write(b'through a socket\\n'); print((await reader.readline()).decode(), end='')
    writer.close(); server.close()
asyncio.run(main())
",
            "['a', 'b', 'c']\n6\ntimed out\nthrough a socket\n",
        ),
        Case::new(
            "signals, timers and fork",
            "python",
            "import os, signal, time, resource
hits = []
signal.signal(signal.SIGALRM, lambda *_: hits.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.pause(); print(len(hits))
pid = os.fork()
if pid == 0: os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(resource.getrlimit(resource.RLIMIT_CORE), time.monotonic() > 0)
print(os.getuid(), os.getcwd(), os.path.expanduser('~'), __import__('getpass').getuser())
",
            "1\n7\n(0, 0) True\n1000 /work /tmp sandbox\n",
        ),
    ]);
}

#[test]
fn files_and_text() {
    check(&[
        Case::new(
            "tempfile, pathlib and shutil",
            "python",
            "import tempfile, pathlib, shutil, os
with tempfile.TemporaryDirectory() as d:
    p = pathlib.Path(d, 'a'); p.write_text('x' * 10); p.rename(p.with_name('b'))
    shutil.copytree(d, d + '/c'); print(sorted(os.listdir(d)), d.startswith('/tmp/'))
with tempfile.NamedTemporaryFile() as f: f.write(b'y'); f.flush(); print(os.stat(f.name).st_size)
with tempfile.TemporaryFile() as f: f.write(b'z'); f.seek(0); print(f.read())
with tempfile.SpooledTemporaryFile(4) as f: f.write(b'12345'); f.seek(0); print(f.read())
os.symlink('there', 'link'); print(os.readlink('link')); os.link(__file__, 'hard')
os.mkfifo('fifo'); print(os.stat('hard').st_nlink)
os.chmod('hard', 0o600); os.utime('hard', (1, 1)); os.truncate('hard', 1)
for name in ['link', 'hard', 'fifo']: os.unlink(name)
shutil.make_archive('/tmp/all', 'gztar', '.'); shutil.unpack_archive('/tmp/all.tar.gz', '/tmp/un')
print(os.listdir('/tmp/un'))
",
            "['b', 'c'] True\n1\nb'z'\nb'12345'\nthere\n2\n['main.py']\n",
        ),
        Case::new(
            "mmap, locks, pipes and select",
            "python",
            "import mmap, os, fcntl, select, socket, selectors
with open('map', 'w+b') as f:
    f.truncate(8192); m = mmap.mmap(f.fileno(), 0); m[4096:4101] = b'hello'; m.flush(); print(m[4096:4101])
    fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_UN)
anonymous = mmap.mmap(-1, 1 << 20); anonymous[:2] = b'ok'; print(anonymous[:2])
r, w = os.pipe(); os.write(w, b'x'); print(select.select([r], [], [], 5)[0] == [r])
poll = select.epoll(); poll.register(r); print(len(poll.poll(5)))
a, b = socket.socketpair(); a.sendall(b'unix'); print(b.recv(9))
fd = os.memfd_create('m'); os.write(fd, b'12'); print(os.fstat(fd).st_size)
e = os.eventfd(3); print(os.eventfd_read(e))
os.unlink('map')
",
            "b'hello'\nb'ok'\nTrue\n1\nb'unix'\n2\n3\n",
        ),
        Case::new(
            "locale and unicode",
            "python",
            "import locale, sys, os, unicodedata
print(locale.setlocale(locale.LC_ALL, ''), sys.stdout.encoding, sys.getfilesystemencoding())
print('Zürich 日本語 🦀', unicodedata.name('é'), 'ß'.upper(), 'İ'.lower().encode())
open('naïve 🦀', 'w').write('✓'); print(os.listdir('.')[-1] if len(os.listdir('.')) == 1 else sorted(os.listdir('.')))
print(open('naïve 🦀').read()); os.unlink('naïve 🦀')
",
            "C.UTF-8 utf-8 utf-8\nZürich 日本語 🦀 LATIN SMALL LETTER E WITH ACUTE SS b'i\\xcc\\x87'\n\
             ['main.py', 'naïve 🦀']\n✓\n",
        ),
        Case::new(
            "time zones",
            "python",
            "import zoneinfo, datetime, os, time
t = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.timezone.utc)
print(t.astimezone(zoneinfo.ZoneInfo('Europe/Berlin')).isoformat())
print(t.astimezone(zoneinfo.ZoneInfo('America/New_York')).tzname(), len(zoneinfo.available_timezones()) > 300)
os.environ['TZ'] = 'Asia/Tokyo'; time.tzset(); print(time.localtime(0).tm_hour)
",
            "2024-07-01T14:00:00+02:00\nEDT True\n9\n",
        ),
        Case::new(
            "ssl, hashes and randomness",
            "python",
            "import ssl, hashlib, secrets, uuid, hmac, zlib, lzma, bz2, random
context = ssl.create_default_context()
print(context.verify_mode.name, context.check_hostname, len(context.get_ca_certs()) > 50)
print(hashlib.sha256(b'abc').hexdigest()[:8], hashlib.scrypt(b'p', salt=b's', n=16, r=1, p=1)[:2].hex())
print(len(secrets.token_bytes(16)), uuid.uuid4().version, random.SystemRandom().random() < 1)
print([len(m.decompress(m.compress(b'a' * 1000))) for m in (zlib, lzma, bz2)])
",
            "CERT_REQUIRED True True\nba7816bf 13a6\n16 4 True\n[1000, 1000, 1000]\n",
        ),
        Case::new(
            "sqlite",
            "python",
            "import sqlite3, os
for path in [':memory:', 'file.db']:
    db = sqlite3.connect(path); db.execute('pragma journal_mode = wal')
    db.execute('create table t (n integer primary key, s text)')
    with db: db.executemany('insert into t (s) values (?)', [('a',), ('é',), (None,)])
    print(db.execute('select count(*), max(s), sum(n) from t').fetchone()); db.close()
print(sorted(os.listdir('.'))); os.unlink('file.db')
",
            "(3, 'é', 6)\n(3, 'é', 6)\n['file.db', 'main.py']\n",
        ),
        Case::new(
            "ctypes, imports and dynamic loading",
            "python",
            "import ctypes, importlib, json, decimal, xml.etree.ElementTree as xml, platform, logging, venv
libc = ctypes.CDLL(None, use_errno=True); print(libc.strlen(b'four'), ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 5)())
open('mine.py', 'w').write('x = 1'); importlib.invalidate_caches(); print(importlib.import_module('mine').x)
print(platform.system(), xml.fromstring('<a><b/></a>')[0].tag, decimal.Decimal('0.1') + 1)
import os; os.unlink('mine.py'); print(os.listdir('.'))
",
            "4 5\n1\nLinux b 1.1\n['main.py']\n",
        ),
    ]);
}

#[test]
fn a_terminal_a_network_and_a_user_list_are_politely_absent() {
    check(&[Case::new(
        "what is not there",
        "python",
        "import os, sys, socket, pwd
print(sys.stdin.read() == '', os.isatty(1), len(pwd.getpwall()))
try: socket.create_connection(('192.0.2.1', 80), 1)
except OSError as e: print('refused')
print(socket.gethostname(), os.cpu_count() >= 1)
",
        "True False 3\nrefused\nhotcell True\n",
    )]);
}
