//! One connection of a server: the frames that come, in their order, and what they lead to.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::cancel::Cancel;
use crate::crew::Job;
use crate::frame::{
    self, Asked, Frame, FrameError, FrameReader, Of, Patience, Raw, ReadError, Reason,
};
use crate::hub::Hub;
use crate::incoming::{Events, Incoming};
use crate::inlet::Inlet;
use crate::outlet::Outlet;
use crate::problem::Problem;
use crate::transport::Peer;

pub(crate) struct Connection {
    serial: u64,
    peer: Peer,
    outlet: Arc<Outlet>,
    hub: Arc<Hub>,
    state: Mutex<State>,
}

struct State {
    /// The largest id so far: whatever is not above it has been asked already.
    last: Option<u64>,
    going: HashMap<u64, Going>,
    /// Nothing begins any more.
    is_closing: bool,
    idle_since: Instant,
}

/// A request that is being answered.
#[derive(Clone)]
struct Going {
    cancel: Cancel,
    inlet: Arc<Inlet>,
}

impl Connection {
    pub(crate) fn new(
        serial: u64,
        peer: Peer,
        outlet: Arc<Outlet>,
        hub: Arc<Hub>,
    ) -> Arc<Connection> {
        let state = Mutex::new(State {
            last: None,
            going: HashMap::new(),
            is_closing: false,
            idle_since: Instant::now(),
        });
        Arc::new(Connection { serial, peer, outlet, hub, state })
    }

    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when nothing goes on, unless something does.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let state = self.state();
        (state.going.is_empty() && !state.is_closing).then_some(state.idle_since)
    }

    pub(crate) fn send_away_if_idle(&self) -> bool {
        let why = "nothing was going on, and others needed its place";
        let problem = Problem::new(Problem::BUSY, "the connection was ended", why, "connect again");
        self.end_if_idle(Reason::Idle, problem)
    }

    /// Ends it now if nothing goes on, and otherwise when that has been answered.
    pub(crate) fn wind_down(&self) {
        self.state().is_closing = true;
        if self.state().going.is_empty() {
            self.farewell(Reason::Stopping, Problem::stopping(), Vec::new());
        }
    }

    fn end_if_idle(&self, reason: Reason, problem: Problem) -> bool {
        let mut state = self.state();
        if !state.going.is_empty() || state.is_closing {
            return false;
        }
        state.is_closing = true;
        drop(state);
        self.farewell(reason, problem, Vec::new());
        true
    }

    fn farewell(&self, reason: Reason, problem: Problem, cut: Vec<u64>) {
        self.outlet.farewell(&self.hub.end(reason, problem, cut));
    }

    /// Asks everything that goes on to end.
    pub(crate) fn cancel_all(&self) {
        let going: Vec<Going> = self.state().going.values().cloned().collect();
        going.iter().for_each(Going::cancel);
    }

    /// Ends it since nobody knows any more how far it is.
    pub(crate) fn fail(&self) {
        self.cut(Reason::Protocol, Problem::panicked());
        self.hub.leave(self.serial);
    }

    /// Ends it whatever goes on, which is cancelled.
    pub(crate) fn cut(&self, reason: Reason, problem: Problem) {
        let mut state = self.state();
        state.is_closing = true;
        let cut = state.going.keys().copied().collect();
        drop(state);
        self.farewell(reason, problem, cut);
        self.cancel_all();
    }

    /// Takes a request on, if it may be begun.
    fn begin(&self, asked: &Asked) -> Result<Result<Going, Problem>, FrameError> {
        let mut state = self.state();
        let id = asked.id;
        if state.last.is_some_and(|last| id <= last) {
            let what = format!("request {id} does not come after those before it");
            return Err(FrameError::Order(what));
        }
        state.last = Some(id);
        if state.is_closing {
            return Ok(Err(Problem::stopping()));
        }
        let most = self.hub.settings.requests_per_connection;
        if state.going.len() >= most {
            return Ok(Err(Problem::too_many("this connection has no room for a request", most)));
        }
        if let Err(problem) = self.hub.begin() {
            return Ok(Err(problem));
        }
        let inlet = Inlet::new(id, asked.files, asked.stdin, Arc::clone(&self.outlet));
        let going = Going { cancel: Cancel::default(), inlet };
        state.going.insert(id, going.clone());
        Ok(Ok(going))
    }

    /// A part for one that is not known any more is left over from before its answer.
    fn part(&self, id: u64, of: Of, data: Vec<u8>, end: bool) -> Result<(), FrameError> {
        let state = self.state();
        let going = state.going.get(&id).map(|going| Arc::clone(&going.inlet));
        let was_asked = state.last.is_some_and(|last| id <= last);
        drop(state);
        match going {
            Some(inlet) => inlet.put(of, data, end),
            None if was_asked => Ok(()),
            None => {
                Err(FrameError::Order(format!("a part came for request {id}, which is unknown")))
            }
        }
    }

    /// One that is not going on has been answered, or will never be asked for: both are as good.
    fn cancel(&self, id: u64) {
        let going = self.state().going.get(&id).cloned();
        if let Some(going) = going {
            going.cancel();
        }
    }

    /// Sends the one answer. The request counts as going on until that is out: whoever ends the connection
    /// meanwhile names it among those that were cut off.
    fn answer(&self, id: u64, result: Result<Raw, Problem>) {
        let encoded = match &result {
            Ok(answer) => frame::answer(id, answer),
            Err(problem) => frame::problem(id, problem),
        };
        let encoded = encoded.or_else(|error| frame::problem(id, &unsendable(&error)));
        if let Ok(frame) = encoded {
            // Where nobody is left to hear it, the connection is ending already.
            drop(self.outlet.send(&frame));
        }
    }

    fn finish(&self, id: u64) {
        let mut state = self.state();
        if let Some(going) = state.going.remove(&id) {
            going.inlet.close();
        }
        state.idle_since = Instant::now();
        let is_last = state.is_closing && state.going.is_empty();
        drop(state);
        self.hub.finish();
        if is_last && !self.outlet.is_over() {
            self.farewell(Reason::Stopping, Problem::stopping(), Vec::new());
        }
    }
}

impl Going {
    fn cancel(&self) {
        self.cancel.ask();
        self.inlet.close();
    }
}

fn unsendable(error: &FrameError) -> Problem {
    let why = format!("{error}, {}", error.why());
    Problem::new(Problem::ERROR, "the answer cannot be sent", why, "ask for less at once")
}

/// A request that has been taken on.
struct Begun {
    connection: Arc<Connection>,
    incoming: Incoming,
}

impl Begun {
    fn carry_out(self) {
        let Begun { connection, incoming } = self;
        let id = incoming.id;
        // Also if the answer cannot be sent: a request that is counted for ever takes a place.
        let _finished = Finished { connection: &connection, id };
        let outlet = Arc::clone(&connection.outlet);
        let events = Events { id, told: Mutex::new(0), outlet };
        let answerer = Arc::clone(&connection.hub.answerer);
        let result = catch_unwind(AssertUnwindSafe(|| answerer.answer(incoming, &events)));
        connection.answer(id, result.unwrap_or_else(|_| Err(Problem::panicked())));
    }

    fn refuse(self, problem: Problem) {
        let id = self.incoming.id;
        self.connection.answer(id, Err(problem));
        self.connection.finish(id);
    }
}

/// Counts a request as over when it is dropped.
struct Finished<'a> {
    connection: &'a Connection,
    id: u64,
}

impl Drop for Finished<'_> {
    fn drop(&mut self) {
        self.connection.finish(self.id);
    }
}

/// The reading side, which goes from thread to thread.
pub(crate) struct Reading {
    connection: Arc<Connection>,
    reader: FrameReader,
    /// Once a version was agreed on.
    spoken: Option<Spoken>,
}

struct Spoken {
    version: u32,
    who: Arc<str>,
}

impl Reading {
    pub(crate) fn new(connection: Arc<Connection>) -> Reading {
        let reader = FrameReader::within(&connection.hub.room);
        Reading { connection, reader, spoken: None }
    }

    pub(crate) fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection)
    }

    pub(crate) fn turn_away(&self, reason: Reason, problem: Problem) {
        self.connection.cut(reason, problem);
        self.connection.hub.leave(self.connection.serial);
    }

    /// Reads until there is a request, gives the reading to another thread, and answers.
    pub(crate) fn run(mut self: Box<Reading>) {
        loop {
            match self.until_request() {
                Ok(begun) => {
                    let crew = Arc::clone(&self.connection.hub.crew);
                    self = match crew.give(Job::Read(self)) {
                        Ok(()) => return begun.carry_out(),
                        Err(Job::Read(back)) => {
                            let most = back.connection.hub.settings.requests;
                            begun.refuse(Problem::too_many(
                                "there is no thread for a request",
                                most,
                            ));
                            back
                        }
                        Err(Job::Accept(..)) => return,
                    };
                }
                Err(error) => return self.over(error),
            }
        }
    }

    fn until_request(&mut self) -> Result<Begun, ReadError> {
        loop {
            let frame = self.reader.next(self.connection.outlet.transport(), self.patience())?;
            let Some(spoken) = &self.spoken else {
                self.greet(frame)?;
                continue;
            };
            match frame {
                Frame::Request(asked) => {
                    let (version, who) = (spoken.version, Arc::clone(&spoken.who));
                    match self.connection.begin(&asked)? {
                        Ok(going) => return Ok(self.begun(asked, going, version, who)),
                        Err(problem) => self.connection.answer(asked.id, Err(problem)),
                    }
                }
                Frame::Part { id, of, data, end } => self.connection.part(id, of, data, end)?,
                Frame::Cancel { id } => self.connection.cancel(id),
                _ => return Err(out_of_place("only a server says that").into()),
            }
        }
    }

    fn patience(&self) -> Patience {
        let settings = &self.connection.hub.settings;
        match self.spoken {
            None => Patience { begin: Some(settings.handshake), frame: settings.handshake },
            Some(_) => Patience { begin: None, frame: settings.frame },
        }
    }

    fn greet(&mut self, frame: Frame) -> Result<(), ReadError> {
        let Frame::Hello { versions, who } = frame else {
            return Err(out_of_place("a connection begins with a hello").into());
        };
        let hub = &self.connection.hub;
        let Some(version) = hub.settings.versions.choose(&versions) else {
            let speaks = hub.settings.versions.all();
            let what = "there is no version of the protocol that both speak";
            let why = format!("{versions:?} are offered, and the server speaks {speaks:?}");
            let fix = "use a client of the same version as the server";
            self.connection.cut(Reason::Version, Problem::new(Problem::INVALID, what, why, fix));
            return Err(ReadError::Closed);
        };
        let welcome = frame::welcome(version, &hub.settings.who)?;
        self.connection.outlet.send(&welcome).map_err(|_| ReadError::Closed)?;
        self.spoken = Some(Spoken { version, who: who.into() });
        Ok(())
    }

    fn begun(&self, asked: Asked, going: Going, version: u32, who: Arc<str>) -> Begun {
        let Asked { id, ask, context, .. } = asked;
        let Going { cancel, inlet } = going;
        let peer = self.connection.peer;
        let incoming = Incoming { peer, who, version, id, ask, context, cancel, inlet, next: 0 };
        Begun { connection: Arc::clone(&self.connection), incoming }
    }

    /// Whatever the reason, nobody is there any more, or nobody that can be understood.
    fn over(&self, error: ReadError) {
        let problem = match error {
            ReadError::Frame(error) => Some(Problem::from(error)),
            ReadError::Slow | ReadError::Silent => {
                let why = "whoever begins has to go on";
                let what = error.to_string();
                Some(Problem::new(Problem::INVALID, what, why, "send frames as a whole"))
            }
            ReadError::Closed | ReadError::Truncated | ReadError::Io(_) => None,
        };
        match problem {
            Some(problem) => self.connection.cut(Reason::Protocol, problem),
            None => {
                self.connection.state().is_closing = true;
                self.connection.outlet.close();
                self.connection.cancel_all();
            }
        }
        self.connection.hub.leave(self.connection.serial);
    }
}

fn out_of_place(what: &str) -> FrameError {
    FrameError::Order(what.into())
}
