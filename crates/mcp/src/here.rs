//! An engine of this process, for one caller.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hotcell_api::{Ask, Problem, ProblemKind, With, answer};
use hotcell_engine::{Attached, Engine};
use hotcell_request::{Tool, ToolName};
use hotcell_types::Caller;
use tokio::sync::Semaphore;

use crate::found::Found;
use crate::gate::{Behind, Ear, Held, Room, Talk, Waiting};

/// Most calls that the engine has from here at once, and most that wait for a person; others wait before.
const CALLS_MOST: usize = 16;
const WAITS_MOST: usize = 32;
/// Most short looks at once.
const LOOKS_MOST: usize = 8;

/// Room for one client, who has nobody else to share it with.
#[derive(Debug)]
pub struct Rooms {
    calls: Arc<Semaphore>,
    waits: Arc<Semaphore>,
    looks: Arc<Semaphore>,
}

impl Default for Rooms {
    fn default() -> Rooms {
        let room = |most| Arc::new(Semaphore::new(most));
        Rooms { calls: room(CALLS_MOST), waits: room(WAITS_MOST), looks: room(LOOKS_MOST) }
    }
}

impl Rooms {
    pub fn enter(&self, room: Room) -> Waiting<'_> {
        let room = match room {
            Room::Call => &self.calls,
            Room::Wait => &self.waits,
            Room::Look | Room::Watch => &self.looks,
        };
        let turn = Arc::clone(room).acquire_owned();
        Box::pin(async {
            let turn = turn.await.map_err(|error| {
                Problem::new(ProblemKind::Busy, "there is no room", error.to_string(), "")
            })?;
            Ok(Box::new(turn) as Held)
        })
    }
}

/// The engine, for somebody.
#[derive(Debug)]
pub struct Here {
    engine: Arc<Engine>,
    caller: Caller,
    rooms: Rooms,
}

impl Here {
    pub fn new(engine: Arc<Engine>, caller: Caller) -> Here {
        Here { engine, caller, rooms: Rooms::default() }
    }
}

impl Behind for Here {
    fn room(&self, room: Room) -> Waiting<'_> {
        self.rooms.enter(room)
    }

    fn ask(&self, ask: Ask, talk: &Talk) -> Result<Found, Problem> {
        ask_engine(&self.engine, &self.caller, ask, talk)
    }

    fn end(&self, talk: &Talk) {
        end_in_engine(&self.engine, &self.caller, talk);
    }

    fn tool(&self, name: &ToolName) -> Option<Tool> {
        tool_of(&self.engine, name)
    }
}

/// Through the one path, whoever has the engine.
pub fn ask_engine(
    engine: &Engine,
    caller: &Caller,
    ask: Ask,
    talk: &Talk,
) -> Result<Found, Problem> {
    let mut ear = Ear(talk);
    let attached = Attached {
        id: Some(talk.id),
        sink: Some(&mut ear),
        started: Some(Box::new(|_| talk.is_running.store(true, Ordering::Relaxed))),
        ..Attached::default()
    };
    let with = With { attached, interrupt: &talk.interrupt, log: &mut |_, _| true };
    answer(engine, caller, ask, with).map(Found::from)
}

/// Where there is nothing to end yet, or any more, the next look tells.
pub fn end_in_engine(engine: &Engine, caller: &Caller, talk: &Talk) {
    let with =
        With { attached: Attached::default(), interrupt: &talk.interrupt, log: &mut |_, _| true };
    answer(engine, caller, Ask::Cancel { call: talk.id }, with).ok();
}

pub fn tool_of(engine: &Engine, name: &ToolName) -> Option<Tool> {
    engine.registry().get(name, None).ok().map(|found| found.tool().clone())
}
