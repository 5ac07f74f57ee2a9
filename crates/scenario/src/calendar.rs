//! Dates in UTC as text, by patterns of Java's `SimpleDateFormat` as far as load scripts use them.

use std::fmt::Write as _;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar.
#[must_use]
pub fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year - era * 400;
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Returns year, month and day of a number of days since 1970-01-01.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days - era * 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_place = (5 * day_of_year + 2) / 153;
    let month = if month_place < 10 { month_place + 3 } else { month_place - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day_of_year - (153 * month_place + 2) / 5 + 1)
}

/// Returns a time (ms since 1970) as text.
///
/// # Errors
/// The letter of the pattern that is not known.
pub fn format(pattern: &str, ms: i64) -> Result<String, char> {
    let (seconds, days) = (ms.div_euclid(1000), ms.div_euclid(86_400_000));
    let (year, month, day) = date_of(days);
    let of_day = seconds.rem_euclid(86_400);
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut letters = pattern.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == '\'' {
            quoted(&mut letters, &mut out);
            continue;
        }
        if !letter.is_ascii_alphabetic() {
            out.push(letter);
            continue;
        }
        let mut width = 1;
        while letters.next_if_eq(&letter).is_some() {
            width += 1;
        }
        let number = match letter {
            'y' | 'u' if width == 2 => year.rem_euclid(100),
            'y' | 'u' => year,
            'M' | 'L' if width >= 3 => {
                let name = MONTHS[(month - 1) as usize];
                out.push_str(if width == 3 { &name[..3] } else { name });
                continue;
            }
            'M' | 'L' => month,
            'd' => day,
            'D' => days - days_since_1970(year, 1, 1) + 1,
            'E' => {
                let name = WEEKDAYS[days.rem_euclid(7) as usize];
                out.push_str(if width <= 3 { &name[..3] } else { name });
                continue;
            }
            'H' => of_day / 3600,
            'h' => (of_day / 3600 + 11) % 12 + 1,
            'k' => (of_day / 3600 + 23) % 24 + 1,
            'K' => of_day / 3600 % 12,
            'm' => of_day / 60 % 60,
            's' => of_day % 60,
            'S' => ms.rem_euclid(1000),
            'a' => {
                out.push_str(if of_day < 43_200 { "AM" } else { "PM" });
                continue;
            }
            'z' => {
                out.push_str("UTC");
                continue;
            }
            'Z' => {
                out.push_str("+0000");
                continue;
            }
            'X' => {
                out.push('Z');
                continue;
            }
            unknown => return Err(unknown),
        };
        let _ = write!(out, "{number:0width$}");
    }
    Ok(out)
}

/// Appends a text in quotes; two quotes are one.
fn quoted(letters: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) {
    if letters.next_if_eq(&'\'').is_some() {
        return out.push('\'');
    }
    while let Some(letter) = letters.next() {
        if letter != '\'' {
            out.push(letter);
        } else if letters.next_if_eq(&'\'').is_some() {
            out.push('\'');
        } else {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{days_since_1970, format};

    #[test]
    fn dates_are_written_by_their_pattern() {
        let ms = 1_445_412_480_007;
        for (pattern, text) in [
            ("yyyy-MM-dd'T'HH:mm:ss.SSSX", "2015-10-21T07:28:00.007Z"),
            ("EEE, d MMM yy h:mm a", "Wed, 21 Oct 15 7:28 AM"),
            ("EEEE MMMM D 'o''clock'", "Wednesday October 294 o'clock"),
            ("", ""),
        ] {
            assert_eq!(format(pattern, ms).as_deref(), Ok(text), "{pattern}");
        }
        assert_eq!(format("yyyyw", ms), Err('w'));
        assert_eq!(format("yyyy-MM-dd HH:mm", -1).as_deref(), Ok("1969-12-31 23:59"));
    }

    #[test]
    fn days_are_counted_through_leap_years() {
        assert_eq!(days_since_1970(1970, 1, 1), 0);
        assert_eq!(days_since_1970(2000, 3, 1), 11_017);
        assert_eq!(days_since_1970(1969, 12, 31), -1);
    }
}
