//! A time that never runs back and never stands still, whatever is done to the clock. What was expired
//! stays expired (the highest time seen is kept with the rows), and what was minted while the clock was
//! ahead expires all the same (time goes on from there by the kernel's count since the system was booted).

use std::fs;
use std::io;
use std::sync::OnceLock;

use hotcell_types::hex;
use rustix::time::{ClockId, clock_gettime};

/// Where the kernel says which boot this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// A clock that is beyond this (the year 2200) is broken, and is not followed.
pub const MAX_TIME: i64 = 7_258_118_400_000_000_000;
/// Nothing lives longer, so that nothing more needs to pass, in nanoseconds: seven days.
const MAX_LIFE: i64 = 7 * 24 * 3600 * 1_000_000_000;

/// What all clocks say at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds since 1970, as the caller's clock says.
    pub clock: i64,
    /// Which boot of the system this is.
    pub boot: [u8; 16],
    /// Nanoseconds since then, with the time that it slept.
    pub uptime: i64,
}

impl Moment {
    /// What the other clocks say when the caller's says this.
    pub fn at(clock: i64) -> io::Result<Moment> {
        let since_boot = clock_gettime(ClockId::Boottime);
        let uptime = since_boot.tv_sec.saturating_mul(1_000_000_000);
        Ok(Moment { clock, boot: boot()?, uptime: uptime.saturating_add(since_boot.tv_nsec) })
    }
}

fn boot() -> io::Result<[u8; 16]> {
    static BOOT: OnceLock<[u8; 16]> = OnceLock::new();
    if let Some(boot) = BOOT.get() {
        return Ok(*boot);
    }
    let text = fs::read_to_string(BOOT_ID)?.trim_end().replace('-', "");
    let boot = hex::parse(&text).ok_or(io::ErrorKind::InvalidData)?;
    Ok(*BOOT.get_or_init(|| boot))
}

/// The highest time that was seen, and when in the life of the system that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) time: i64,
    pub(crate) boot: [u8; 16],
    pub(crate) uptime: i64,
}

impl Mark {
    /// What time it is, as the next mark; `None` if that is no time.
    pub(crate) fn at(&self, moment: &Moment) -> Option<Mark> {
        let is_same_boot = self.boot == moment.boot;
        let passed = match is_same_boot {
            true => moment.uptime.saturating_sub(self.uptime).max(0),
            // That was before this boot, and so much has passed since then at least. Only if the clock is
            // wrong for sure: it is right on a machine that the home was moved to.
            false if moment.clock < self.time => moment.uptime.clamp(0, MAX_LIFE),
            false => 0,
        };
        let time = moment.clock.max(self.time.saturating_add(passed));
        // Moments do not come in their order, and what has passed must not pass again.
        let uptime = if is_same_boot { moment.uptime.max(self.uptime) } else { moment.uptime };
        (0..=MAX_TIME).contains(&time).then_some(Mark { time, boot: moment.boot, uptime })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_whatever_the_clock_does() {
        let mark = Mark { time: 1000, boot: [1; 16], uptime: 50 };
        for (clock, boot, uptime, now) in [
            // The clock is right.
            (1010, 1, 60, Some(1010)),
            // It was set back: time goes on from the mark.
            (5, 1, 60, Some(1010)),
            (-5, 1, 60, Some(1010)),
            // It was set ahead.
            (9000, 1, 60, Some(9000)),
            // Another boot: the count begins anew, and counts if the clock is behind.
            (5, 2, 3, Some(1003)),
            (1000, 2, 3, Some(1000)),
            (1001, 2, 3, Some(1001)),
            (5, 2, i64::MAX, Some(1000 + MAX_LIFE)),
            // The count runs back, which it never does.
            (5, 1, 40, Some(1000)),
            // A broken clock.
            (i64::MAX, 1, 60, None),
            (5, 1, i64::MAX, None),
        ] {
            let moment = Moment { clock, boot: [boot; 16], uptime };
            assert_eq!(mark.at(&moment).map(|mark| mark.time), now, "{moment:?}");
        }
    }

    #[test]
    fn moments_out_of_order_do_not_make_time_run_fast() {
        let mut mark = Mark { time: 1000, boot: [1; 16], uptime: 100 };
        for round in 1..100 {
            for late in [0, 7, 3] {
                let uptime = 100 + 10 * round - late;
                mark = mark.at(&Moment { clock: 5, boot: [1; 16], uptime }).unwrap();
            }
            assert_eq!(mark.time, 1000 + 10 * round);
        }
    }

    #[test]
    fn the_system_says_how_long_it_is_up() {
        let (one, two) = (Moment::at(7).unwrap(), Moment::at(7).unwrap());
        assert!(one.boot == two.boot && one.boot != [0; 16] && one.clock == 7);
        assert!(0 < one.uptime && one.uptime <= two.uptime);
    }
}
