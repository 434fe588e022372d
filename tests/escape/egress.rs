//! The way out of a run that has one: sockets that listen in its namespaces, for somebody outside. And what is
//! handed to a program on its standard input.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;
use std::time::Duration;

use hotcell_sandbox::{Refusal, Running, Stdin};
use hotcell_tests::{Answers, Attack, Quiet, compile, hole};
use hotcell_types::{Exit, Layer, Outcome, Profile};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// The ends that a run's connections come to, without waiting for any.
struct Ends {
    local: UnixListener,
    tcp: Option<TcpListener>,
}

impl Ends {
    fn of(running: &mut Running) -> Ends {
        let mut listeners = running.listeners().into_iter();
        let local = UnixListener::from(listeners.next().expect("a proxied run has a listener"));
        let ends = Ends { local, tcp: listeners.next().map(TcpListener::from) };
        assert!(listeners.next().is_none() && running.listeners().is_empty());
        ends
    }

    /// Says its name to everybody who comes, until the run has ended, and counts them.
    fn serve(self, name: &'static str) -> JoinHandle<(usize, usize)> {
        std::thread::spawn(move || {
            let greet = |mut stream: Box<dyn Talk>| {
                let mut heard = [0; 5];
                stream.read_exact(&mut heard).unwrap();
                assert_eq!(&heard, b"hello");
                stream.write_all(name.as_bytes()).unwrap();
            };
            let (mut local, mut tcp) = (0, 0);
            // A run says at its end that it has.
            loop {
                if let Some(Ok((stream, _))) = self.tcp.as_ref().map(TcpListener::accept) {
                    stream.set_nonblocking(false).unwrap();
                    greet(Box::new(stream));
                    tcp += 1;
                }
                match self.local.accept() {
                    Ok((mut stream, _)) => {
                        stream.set_nonblocking(false).unwrap();
                        let mut first = [0; 1];
                        stream.read_exact(&mut first).unwrap();
                        if first == *b"e" {
                            return (local, tcp);
                        }
                        assert_eq!(first, *b"h");
                        stream.read_exact(&mut [0; 4]).unwrap();
                        stream.write_all(name.as_bytes()).unwrap();
                        local += 1;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        })
    }
}

trait Talk: Read + Write {}
impl<T: Read + Write> Talk for T {}

const PYTHON: &str = r"
import socket
PATH = '/run/hotcell/proxy.sock'
def ask(family, address):
    with socket.socket(family) as s:
        s.settimeout(20); s.connect(address); s.sendall(b'hello'); return s.recv(100).decode()
def asked(family, address):
    try: return ask(family, address)
    except OSError as e: return name_of(e.errno)
def local(): return asked(socket.AF_UNIX, PATH)
def tcp(): return asked(socket.AF_INET, ('127.0.0.1', 3128))
def end():
    with socket.socket(socket.AF_UNIX) as s: s.connect(PATH); s.sendall(b'e')
";

fn attack(code: &str) -> Attack {
    Attack::python(&format!("{PYTHON}{code}"))
}

/// Runs something whose end is said, and gives how often each end was come to.
fn served(attack: Attack, name: &'static str) -> (Outcome, (usize, usize)) {
    let mut running = attack.start().unwrap();
    let serving = Ends::of(&mut running).serve(name);
    let outcome = running.wait(&mut Quiet, None).unwrap();
    assert_eq!(outcome.exit, Some(Exit::Code(0)), "{outcome:?}");
    (outcome, serving.join().unwrap())
}

#[test]
fn net_06_a_proxied_run_reaches_whoever_accepts_and_nothing_else() {
    let code = "say('local', local()); say('tcp', tcp()); end()";
    for (profile, tcp) in [
        (Profile::Strict, "EACCES"),
        (Profile::Standard, "EACCES"),
        (Profile::StandardNet, "the outside"),
    ] {
        let (outcome, came) = served(attack(code).profile(profile).proxied(), "the outside");
        Answers::of(&outcome).are(&[("local", "the outside"), ("tcp", tcp)]);
        assert_eq!(came, (1, usize::from(profile == Profile::StandardNet)), "{profile}");
        let layer = outcome.layers.iter().find(|l| l.layer == Layer::NetNamespace).unwrap();
        assert!(layer.active && layer.seen.ends_with("proxy only"), "{layer:?}");
    }
}

#[test]
fn without_it_there_is_nothing_at_its_place() {
    let code = "say('local', local()); say('tcp', tcp()); say('there', os.listdir('/run/hotcell'))";
    for (profile, tcp) in [(Profile::Standard, "EACCES"), (Profile::StandardNet, "ECONNREFUSED")] {
        let mut running = attack(code).profile(profile).start().unwrap();
        assert!(running.listeners().is_empty());
        let outcome = running.wait(&mut Quiet, None).unwrap();
        Answers::of(&outcome).are(&[("local", "ENOENT"), ("tcp", tcp), ("there", "[]")]);
        let layer = outcome.layers.iter().find(|l| l.layer == Layer::NetNamespace).unwrap();
        assert!(layer.active && !layer.seen.contains("proxy"), "{layer:?}");
    }
}

#[test]
fn when_nobody_holds_the_ends_connections_are_refused() {
    let code = "
import time
for _ in range(2000):
    if tcp() == local() == 'ECONNREFUSED': break
    time.sleep(0.01)
say('local', local()); say('tcp', tcp())";
    let mut running = attack(code).profile(Profile::StandardNet).proxied().start().unwrap();
    drop(running.listeners());
    let outcome = running.wait(&mut Quiet, None).unwrap();
    Answers::of(&outcome).are(&[("local", "ECONNREFUSED"), ("tcp", "ECONNREFUSED")]);
}

/// One that is there until its standard input ends.
fn resident(layers: u32) -> (Running, Ends) {
    let mut waiting = attack("sys.stdin.read()").profile(Profile::StandardNet).proxied();
    waiting = waiting.without(layers);
    waiting.job.stdin = Stdin::Held;
    let mut running = waiting.start().unwrap();
    let ends = Ends::of(&mut running);
    (running, ends)
}

#[test]
fn net_25_no_other_run_reaches_it() {
    let code = "say('local', local()); say('tcp', tcp()); end()";
    let (mut first, ends) = resident(0);
    let other = attack(code).profile(Profile::StandardNet).proxied();
    let (outcome, came) = served(other, "its own");
    Answers::of(&outcome).all("its own");
    assert_eq!(came, (1, 1));
    let none = attack("say('local', local()); say('tcp', tcp())").profile(Profile::StandardNet);
    none.answers().are(&[("local", "ENOENT"), ("tcp", "ECONNREFUSED")]);
    // Nor does this process.
    assert!(TcpStream::connect(("127.0.0.1", 3128)).is_err());
    assert!(UnixStream::connect("/run/hotcell/proxy.sock").is_err());
    for came in [ends.local.accept().err(), ends.tcp.unwrap().accept().err()] {
        assert_eq!(came.unwrap().kind(), ErrorKind::WouldBlock);
    }
    drop(first.talk());
    first.wait(&mut Quiet, None).unwrap();
    without_a_namespace_it_is_reached();
}

/// What keeps it apart is the network namespace: without, its port is this host's own, and stays so with the cell
/// that is made for the next one.
fn without_a_namespace_it_is_reached() {
    let (mut first, ends) = resident(hole::NET);
    let code = "
s = socket.socket(); s.settimeout(20); say('tcp', attempt(s.connect, ('127.0.0.1', 3128)))";
    let other = attack(code).profile(Profile::StandardNet);
    other.without(hole::NET).answers().is("tcp", "ok");
    assert!(ends.tcp.unwrap().accept().is_ok());
    drop(first.talk());
    first.wait(&mut Quiet, None).unwrap();
}

#[test]
fn the_run_cannot_put_anything_in_its_place() {
    let code = r"
import shutil
say('unlink', attempt(os.unlink, PATH))
say('rename', attempt(os.rename, PATH, '/tmp/x'))
say('over', attempt(os.rename, '/tmp/mine', PATH))
say('chmod', attempt(os.chmod, PATH, 0))
say('chmod above', attempt(os.chmod, '/run/hotcell', 0o777))
say('beside', attempt(os.open, '/run/hotcell/x', os.O_CREAT | os.O_WRONLY))
say('socket', attempt(socket.socket(socket.AF_UNIX).bind, '/run/hotcell/x.sock'))
say('rmdir', attempt(os.rmdir, '/run/hotcell'))
say('move above', attempt(os.rename, '/run/hotcell', '/run/x'))
def bind(address, *options):
    s = socket.socket()
    for option in options: s.setsockopt(socket.SOL_SOCKET, option, 1)
    s.bind((address, 3128)); s.listen()
for address in ('127.0.0.1', '0.0.0.0'):
    say('bind ' + address, attempt(bind, address, socket.SO_REUSEADDR, socket.SO_REUSEPORT))
";
    let refused = "EROFS|EACCES|EXDEV|EBUSY|EADDRINUSE|EPERM|ENOENT";
    let full = attack(code).profile(Profile::StandardNet).proxied();
    full.answers().all(refused).is("bind 127.0.0.1", "EADDRINUSE");
    // The mount alone.
    let alone = attack(code).profile(Profile::StandardNet).proxied().without(hole::LANDLOCK);
    alone.answers().are(&[("unlink", "EROFS"), ("chmod", "EROFS"), ("beside", "EROFS")]);
}

/// What a program gets by the line, and gives back.
#[test]
fn descriptors_are_passed_to_and_from_a_program_by_its_standard_input() {
    let code = r"
import socket
line = socket.socket(fileno=0)
word, fds, _, _ = socket.recv_fds(line, 100, 4)
os.write(fds[0], b'from inside')
r, w = os.pipe()
os.write(w, word)
socket.send_fds(line, [b'x'], [r])
say('family', line.family == socket.AF_UNIX)
say('open', sorted(int(n) for n in os.listdir('/proc/self/fd'))[:3])
";
    let (ours, theirs) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let mut attack = Attack::executed(code);
    attack.job.stdin = Stdin::Line(theirs);
    let running = attack.start().unwrap();
    let (mut read, write) = std::io::pipe().unwrap();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [write.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let word = [rustix::io::IoSlice::new(b"from outside")];
    rustix::net::sendmsg(&ours, &word, &mut control, SendFlags::empty()).unwrap();
    drop(write);
    let outcome = running.wait(&mut Quiet, None).unwrap();
    Answers::of(&outcome).are(&[("family", "True"), ("open", "[0, 1, 2]")]);
    let mut said = String::new();
    read.read_to_string(&mut said).unwrap();
    assert_eq!(said, "from inside");
    let back = receive(&ours);
    let mut said = String::new();
    std::fs::File::from(back).read_to_string(&mut said).unwrap();
    assert_eq!(said, "from outside");
    // And its end is seen: nobody else has the program's end of the line.
    assert_eq!(rustix::net::recv(&ours, &mut [0_u8; 8][..], RecvFlags::empty()).unwrap().0, 0);
    let session = outcome.layers.iter().find(|l| l.layer == Layer::Session).unwrap();
    assert!(session.active && session.seen.contains("3 descriptors"), "{session:?}");
}

fn receive(line: &OwnedFd) -> OwnedFd {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [rustix::io::IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(line, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let mut fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    fds.next().unwrap()
}

#[test]
fn only_a_unix_socket_can_be_such_a_line() {
    for other in [std::fs::File::open("/").unwrap(), std::fs::File::open("/dev/null").unwrap()] {
        let mut attack = Attack::shell("true");
        attack.job.stdin = Stdin::Line(other.into());
        assert!(matches!(attack.start(), Err(Refusal::Invalid { .. })));
    }
    let mut attack = Attack::shell("true");
    attack.job.stdin = Stdin::Line(TcpListener::bind("127.0.0.1:0").unwrap().into());
    assert!(matches!(attack.start(), Err(Refusal::Invalid { .. })));
}

/// Tries what the profile of the airlock is there to refuse, and what it must have.
const AIRLOCK: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
static void say(const char *name, long answer) {
    if (answer < 0) printf("%s=%s\n", name, strerrorname_np(errno)); else printf("%s=ok\n", name);
    fflush(stdout);
}
int main(void) {
    struct sockaddr_un at = {AF_UNIX, "/work/x"};
    char byte = 'x';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    int pair[2];
    say("line", send(0, &byte, 1, 0));
    say("socket", socket(AF_UNIX, SOCK_STREAM, 0));
    say("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    say("connect", connect(0, (void *)&at, sizeof at) < 0 && errno == EPERM ? -1 : 0);
    say("bind", bind(0, (void *)&at, sizeof at) < 0 && errno == EPERM ? -1 : 0);
    say("listen", listen(0, 1) < 0 && errno == EPERM ? -1 : 0);
    say("sendto", sendto(0, &byte, 1, MSG_DONTWAIT, (void *)&at, sizeof at) < 0 && errno == EPERM ? -1 : 0);
    say("fastopen", sendmsg(0, &message, MSG_FASTOPEN) < 0 && errno == EPERM ? -1 : 0);
    say("sendmsg", sendmsg(0, &message, MSG_NOSIGNAL));
    say("epoll", epoll_create1(0));
    int child = syscall(SYS_clone, 17, 0, 0, 0, 0);
    if (!child) _exit(0);
    say("fork", child);
    say("anonymous", mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
    void *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    say("memory", page == MAP_FAILED ? -1 : 0);
    say("mprotect", mprotect(page, 4096, PROT_READ | PROT_EXEC));
    say("write a file", open("/tmp/x", O_WRONLY | O_CREAT, 0600));
    int own = open("/proc/self/exe", O_RDONLY);
    say("read a file", own);
    say("a library", mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, own, 0) == MAP_FAILED ? -1 : 0);
    say("exec", execl("/bin/true", "true", (char *)0));
    return 0;
}
"#;

fn airlock(image: &[u8]) -> Attack {
    let (_, theirs) = UnixStream::pair().map(|(a, b)| (Box::leak(Box::new(a)), b)).unwrap();
    let mut attack = Attack::program("/work/a", &["a"]).input_with("a", image, 0o755);
    attack.job.stdin = Stdin::Line(theirs.into());
    attack.profile(Profile::Airlock)
}

const REFUSED: [&str; 13] = [
    "socket",
    "socketpair",
    "connect",
    "bind",
    "listen",
    "sendto",
    "fastopen",
    // It could hand what it was given to a run.
    "sendmsg",
    "fork",
    "anonymous",
    "mprotect",
    "write a file",
    "exec",
];
const ALLOWED: [&str; 5] = ["line", "epoll", "memory", "read a file", "a library"];

#[test]
fn the_profile_of_the_airlock_leaves_it_its_sockets_and_nothing_to_make_others() {
    let Some(image) = compile("the airlock's profile", AIRLOCK, &[]) else { return };
    let answers = airlock(&image).answers();
    for name in REFUSED {
        answers.is(name, "EPERM");
    }
    for name in ALLOWED {
        answers.is(name, "ok");
    }
    let free = airlock(&image).without_seccomp().answers();
    for name in REFUSED.into_iter().filter(|name| *name != "exec") {
        free.is(name, "ok");
    }
    // What a loader does, it can.
    let dynamic = Attack::program("/bin/true", &["true"]).profile(Profile::Airlock).run();
    assert_eq!(dynamic.exit, Some(Exit::Code(0)), "{dynamic:?}");
}
