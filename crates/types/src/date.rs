//! Dates, in UTC and the Gregorian calendar, before and after it was introduced. Own code: the way from
//! seconds to a date is a dozen lines, and holds for every 64-bit number of seconds.

const DAY: i64 = 86_400;

/// A second, as calendars and clocks in UTC show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utc {
    pub year: i64,
    /// From 1.
    pub month: i64,
    /// From 1.
    pub day: i64,
    /// From 1.
    pub day_of_year: i64,
    /// From Sunday, which is 0.
    pub weekday: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
}

impl Utc {
    /// Years are counted from March, so that the day which only leap years have is the last one, and in
    /// eras of 400 years, after which everything repeats.
    pub fn at(seconds_since_1970: i64) -> Utc {
        const ERA: i64 = 146_097;
        let days = seconds_since_1970.div_euclid(DAY);
        let second = seconds_since_1970.rem_euclid(DAY);
        // 719468 days lie between 0000-03-01 and 1970-01-01.
        let from_march = days + 719_468;
        let (era, day_of_era) = (from_march.div_euclid(ERA), from_march.rem_euclid(ERA));
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // Five months from March on have 153 days, and so have the next five.
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let day_of_year = match month {
            1 | 2 => day_of_year - 305,
            _ => day_of_year + 60 + i64::from(is_leap),
        };
        Utc {
            year,
            month,
            day,
            day_of_year,
            weekday: (days + 4).rem_euclid(7),
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_leap(year: i64) -> bool {
        year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0)
    }

    fn length(year: i64, month: i64) -> i64 {
        match month {
            2 => 28 + i64::from(is_leap(year)),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }

    #[test]
    fn each_day_of_eight_centuries_follows_the_one_before() {
        let (mut year, mut month, mut day, mut of_year, mut weekday) = (1600, 1, 1, 1, 6);
        for days in -135_140..157_054 {
            let date = Utc::at(days * DAY);
            assert_eq!(
                (date.year, date.month, date.day, date.day_of_year, date.weekday),
                (year, month, day, of_year, weekday),
                "{days}"
            );
            weekday = (weekday + 1) % 7;
            (day, of_year) = (day + 1, of_year + 1);
            if day > length(year, month) {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month, of_year) = (year + 1, 1, 1);
            }
        }
        assert_eq!((year, month, day), (2400, 1, 1));
    }

    proptest! {
        #[test]
        fn every_number_of_seconds_has_a_date(seconds: i64) {
            let date = Utc::at(seconds);
            prop_assert!((1..=12).contains(&date.month));
            prop_assert!((1..=length(date.year, date.month)).contains(&date.day));
            prop_assert!((1..=365 + i64::from(is_leap(date.year))).contains(&date.day_of_year));
            let of_day = (date.hour * 60 + date.minute) * 60 + date.second;
            prop_assert_eq!(of_day, seconds.rem_euclid(DAY));
            prop_assert!(date.minute < 60 && date.second < 60);
        }
    }
}
