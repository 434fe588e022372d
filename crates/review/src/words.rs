//! The words of the queue, as they are stored and shown.

use std::fmt;

/// What is to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A call that the policy wants somebody to agree to.
    Review,
    /// A call that the policy refused. Whether an approval changes that is for the policy to say.
    Blocked,
    /// A change of the policy.
    Policy,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Review, Kind::Blocked, Kind::Policy];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Review => "review",
            Kind::Blocked => "blocked",
            Kind::Policy => "policy",
        }
    }
}

/// How far an item has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    Waiting,
    /// There is a grant that nobody has taken yet.
    Approved,
    Rejected,
    Expired,
    Cancelled,
    /// The grant was taken.
    CarriedOut,
}

impl State {
    pub const ALL: [State; 6] = [
        State::Waiting,
        State::Approved,
        State::Rejected,
        State::Expired,
        State::Cancelled,
        State::CarriedOut,
    ];

    pub fn name(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Approved => "approved",
            State::Rejected => "rejected",
            State::Expired => "expired",
            State::Cancelled => "cancelled",
            State::CarriedOut => "carried_out",
        }
    }

    /// Whether it stays so.
    pub fn is_end(self) -> bool {
        !matches!(self, State::Waiting | State::Approved)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
