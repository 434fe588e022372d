//! The program: runs come and go, their listeners are accepted on, and each connection is a task of one thread.

mod desk;
mod flow;
mod http;
mod run;
mod secure;
mod share;
mod socket;
mod tunnel;
mod visit;
mod words;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::SocketFlags;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_local;

use self::desk::Desk;
use self::run::Run;
use self::share::{REQUEST, Round};
use self::socket::{Socket, watched};
use self::visit::Visit;
use crate::wire::{FromAirlock, MOST_PACKET, ToAirlock};

/// So many tasks work between two looks at what has arrived. Few, since one of them can work for a while.
const BETWEEN_LOOKS: u32 = 8;
/// How long nothing is accepted where no more descriptors can be open.
const REST: Duration = Duration::from_millis(20);

/// Serves until hotcell closes its end of the socket.
pub fn run(control: OwnedFd) -> io::Result<()> {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .event_interval(BETWEEN_LOOKS)
        .build_local(LocalOptions::default())?;
    runtime.block_on(serve(control))
}

async fn serve(control: OwnedFd) -> io::Result<()> {
    let desk = Rc::new(Desk::new(control)?);
    let round = Rc::new(Round::default());
    let (writing, turning) = (Rc::clone(&desk), Rc::clone(&round));
    // Where nobody listens any more, nothing more is heard either, and that is noticed below.
    spawn_local(async move { drop(writing.write().await) });
    spawn_local(async move { turning.turn().await });
    desk.say(FromAirlock::Ready);
    let mut runs: HashMap<u32, Rc<Run>> = HashMap::new();
    let mut buffer = Vec::with_capacity(MOST_PACKET);
    while let Some(heard) = desk.hear(&mut buffer).await? {
        let complete = heard.is_complete();
        let mut descriptors = heard.descriptors;
        match heard.message {
            // Without its listeners, a run has a passage that nobody can use.
            ToAirlock::Open { run: number, credential, budget } => {
                let run = Rc::new(Run::new(number, credential, budget, Rc::clone(&round)));
                for listener in descriptors {
                    spawn_local(accept(Rc::clone(&desk), Rc::clone(&run), listener));
                }
                if let Some(old) = runs.insert(number, run) {
                    old.close();
                }
            }
            ToAirlock::Close { run } => {
                if let Some(run) = runs.remove(&run) {
                    run.close();
                }
            }
            ToAirlock::Answer { ticket, answer } => {
                desk.answered(ticket, answer, descriptors.pop().filter(|_| complete));
            }
        }
    }
    Ok(())
}

/// Accepts until the run is closed.
async fn accept(desk: Rc<Desk>, run: Rc<Run>, listener: OwnedFd) {
    let closing = Rc::clone(&run);
    tokio::select! {
        biased;
        () = closing.closed() => {}
        // A listener that cannot be accepted on is as good as none.
        result = connections(&desk, &run, listener) => drop(result),
    }
}

async fn connections(desk: &Rc<Desk>, run: &Rc<Run>, listener: OwnedFd) -> io::Result<()> {
    let listener = watched(listener)?;
    loop {
        let mut guard = listener.readable().await?;
        // What is beyond the run's connections stays in the queue of its own listener.
        let Ok(place) = Arc::clone(&run.places).acquire_owned().await else { return Ok(()) };
        run.share.turn().await;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::accept_with(listener.as_fd(), flags) {
            Ok(connection) => {
                run.share.worked(REQUEST);
                if let Ok(client) = Socket::new(connection) {
                    spawn_local(receive(Rc::clone(desk), Rc::clone(run), client, place));
                }
            }
            Err(Errno::AGAIN) => guard.clear_ready(),
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                tokio::time::sleep(REST).await;
            }
            // Who has gone already is nobody's loss.
            Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO | Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

async fn receive(desk: Rc<Desk>, run: Rc<Run>, client: Socket, place: OwnedSemaphorePermit) {
    let visit = Visit { number: desk.number(), run, desk };
    tokio::select! {
        biased;
        () = visit.run.closed() => {}
        () = visit.receive(client) => {}
    }
    drop(place);
}
