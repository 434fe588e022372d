//! What all connections of a server share: who is there, and how much goes on.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::bounds::ACCEPT_REST;
use crate::connection::{Connection, Reading};
use crate::crew::{Crew, Job};
use crate::frame::{self, End, Reason};
use crate::incoming::Answerer;
use crate::listen::Listener;
use crate::outlet::Outlet;
use crate::problem::Problem;
use crate::room::Room;
use crate::server::Settings;
use crate::transport::{Peer, Transport};

pub(crate) struct Hub {
    pub(crate) answerer: Arc<dyn Answerer>,
    pub(crate) settings: Settings,
    pub(crate) crew: Arc<Crew>,
    pub(crate) room: Arc<Room>,
    tally: Mutex<Tally>,
    changed: Condvar,
}

struct Tally {
    connections: HashMap<u64, Arc<Connection>>,
    /// The number of the next connection.
    next: u64,
    requests: usize,
    /// When a request was last under way, or a connection made.
    busy: Instant,
    is_stopping: bool,
}

impl Hub {
    pub(crate) fn new(answerer: Arc<dyn Answerer>, settings: Settings) -> Arc<Hub> {
        let readers = settings.connections.saturating_mul(2);
        let crew = Crew::new(readers.saturating_add(settings.requests).saturating_add(8));
        let room = Room::new(settings.reading);
        let tally = Mutex::new(Tally {
            connections: HashMap::new(),
            next: 0,
            requests: 0,
            busy: Instant::now(),
            is_stopping: false,
        });
        Arc::new(Hub { answerer, settings, crew, room, tally, changed: Condvar::new() })
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a connection, and gives the accepting to another thread before it returns it. None when the
    /// listener is closed.
    pub(crate) fn accept(self: &Arc<Hub>, listener: &Arc<Listener>) -> Option<Box<Reading>> {
        loop {
            match listener.accept() {
                Ok(stream) => {
                    let Some(reading) = self.admit(Arc::new(stream)) else { continue };
                    match self.crew.give(Job::Accept(Arc::clone(self), Arc::clone(listener))) {
                        Ok(()) => return Some(reading),
                        Err(_) => reading.turn_away(Reason::Busy, self.no_thread()),
                    }
                }
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    // Those who wait for nothing make room; otherwise it takes a moment.
                    if !self.send_away_idlest(|_| true) {
                        thread::sleep(ACCEPT_REST);
                    }
                }
                // The listener was closed, and whoever still waited has been told.
                Err(Errno::INVAL) => return None,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => thread::sleep(ACCEPT_REST),
            }
        }
    }

    /// Takes a connection in, or tells it why not.
    pub(crate) fn admit(self: &Arc<Hub>, transport: Arc<dyn Transport>) -> Option<Box<Reading>> {
        let peer = transport.peer().ok()?;
        let outlet = Arc::new(Outlet::new(transport, Some(self.settings.stall)).ok()?);
        if !peer.is_ours() {
            let why = "only the user of the server and root may ask it";
            let problem = Problem::new("refused", "you may not ask here", why, "ask as that user");
            self.dismiss(&outlet, Reason::Peer, problem);
            return None;
        }
        match self.enter(peer, &outlet) {
            Ok(connection) => Some(Box::new(Reading::new(connection))),
            Err(refused) => {
                let (reason, problem) = *refused;
                self.dismiss(&outlet, reason, problem);
                None
            }
        }
    }

    fn enter(
        self: &Arc<Hub>,
        peer: Peer,
        outlet: &Arc<Outlet>,
    ) -> Result<Arc<Connection>, Box<(Reason, Problem)>> {
        let Settings { connections, per_user, .. } = self.settings;
        loop {
            let mut tally = self.tally();
            if tally.is_stopping {
                return Err(Box::new((Reason::Stopping, Problem::stopping())));
            }
            let same = |other: &Connection| other.peer().uid == peer.uid;
            let of_user = tally.connections.values().filter(|other| same(other)).count();
            let is_full = tally.connections.len() >= connections;
            if !is_full && of_user < per_user {
                let serial = tally.next;
                tally.next += 1;
                tally.busy = Instant::now();
                let connection =
                    Connection::new(serial, peer, Arc::clone(outlet), Arc::clone(self));
                tally.connections.insert(serial, Arc::clone(&connection));
                return Ok(connection);
            }
            drop(tally);
            let made_room = match of_user < per_user {
                true => self.send_away_idlest(|_| true),
                false => self.send_away_idlest(same),
            };
            if !made_room {
                let problem = Problem::too_many("there is no room for a connection", connections);
                return Err(Box::new((Reason::Busy, problem)));
            }
        }
    }

    /// Sends away the one of these that has been without a request for longest. Whether there was one.
    fn send_away_idlest(&self, of: impl Fn(&Connection) -> bool) -> bool {
        loop {
            // A connection asks the hub while it is locked itself, and so must not be asked under its lock.
            let all: Vec<Arc<Connection>> = self.tally().connections.values().cloned().collect();
            let idle = all.iter().filter(|other| of(other));
            let idle = idle.filter_map(|other| Some((other.idle_since()?, other)));
            let idlest = idle.min_by_key(|(since, _)| *since).map(|(_, other)| other);
            let Some(idlest) = idlest else { return false };
            // It may have begun something meanwhile; then it is another's turn.
            if idlest.send_away_if_idle() {
                self.leave(idlest.serial());
                return true;
            }
        }
    }

    fn dismiss(&self, outlet: &Outlet, reason: Reason, problem: Problem) {
        outlet.farewell(&self.end(reason, problem, Vec::new()));
    }

    /// The last frame of a connection.
    pub(crate) fn end(&self, reason: Reason, problem: Problem, cut: Vec<u64>) -> Vec<u8> {
        let speaks = self.settings.versions.all().to_vec();
        frame::end(&End { reason, problem, cut, speaks }).unwrap_or_default()
    }

    fn no_thread(&self) -> Problem {
        Problem::too_many("there is no thread for a connection", self.settings.connections)
    }

    pub(crate) fn leave(&self, serial: u64) {
        self.tally().connections.remove(&serial);
        self.changed.notify_all();
    }

    /// Counts a request, if there may be one more.
    pub(crate) fn begin(&self) -> Result<(), Problem> {
        let mut tally = self.tally();
        if tally.is_stopping {
            return Err(Problem::stopping());
        }
        if tally.requests >= self.settings.requests {
            let most = self.settings.requests;
            return Err(Problem::too_many("there is no room for a request", most));
        }
        tally.requests += 1;
        Ok(())
    }

    pub(crate) fn finish(&self) {
        let mut tally = self.tally();
        tally.requests = tally.requests.saturating_sub(1);
        tally.busy = Instant::now();
        let is_quiet = tally.requests == 0;
        drop(tally);
        // Nobody waits for less than that.
        if is_quiet {
            self.changed.notify_all();
        }
    }

    pub(crate) fn counts(&self) -> (usize, usize) {
        let tally = self.tally();
        (tally.connections.len(), tally.requests)
    }

    /// Waits until nothing was asked for that long.
    pub(crate) fn wait_idle(&self, quiet: Duration) {
        let mut tally = self.tally();
        loop {
            let wait = match tally.requests {
                0 => quiet.saturating_sub(tally.busy.elapsed()),
                _ => quiet,
            };
            if tally.is_stopping || (wait.is_zero() && tally.requests == 0) {
                return;
            }
            let wait = wait.max(Duration::from_millis(1));
            tally = match self.changed.wait_timeout(tally, wait) {
                Ok((tally, _)) => tally,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// Nothing new begins from here on.
    pub(crate) fn stop(&self) -> Vec<Arc<Connection>> {
        let mut tally = self.tally();
        tally.is_stopping = true;
        let connections = tally.connections.values().map(Arc::clone).collect();
        drop(tally);
        self.changed.notify_all();
        connections
    }

    /// Waits until nothing goes on and nobody is there. How many requests there still are.
    pub(crate) fn wait_empty(&self, most: Duration) -> usize {
        let until = Instant::now() + most;
        let mut tally = self.tally();
        while tally.requests > 0 || !tally.connections.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            tally = match self.changed.wait_timeout(tally, left) {
                Ok((tally, _)) => tally,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        tally.requests
    }
}
