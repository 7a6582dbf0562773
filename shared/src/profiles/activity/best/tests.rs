//! People with known habits, which the score must find.
#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::base::random;
use crate::base::time::DAY_MS;

/// 2027-01-04T00:00:00Z, a Monday.
const MONDAY: Millis = 1_799_020_800_000;
/// Activity of the population at each hour of a day.
const CURVE: [f64; DAY] = [
    2.0, 1.0, 0.5, 0.5, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 5.0, 6.0, 6.0, 5.0, 5.0, 5.0, 6.0, 7.0, 8.0, 9.0, 9.0, 7.0,
    4.0,
];

fn uniform(state: &mut u64) -> f64 {
    (random::next(state) >> 11) as f64 / (1_u64 << 53) as f64
}

fn offset(minutes: i32) -> UtcOffset {
    UtcOffset::minutes(minutes).unwrap()
}

/// The shares of a person's activity by hour of its week.
#[derive(Clone)]
struct Known([f64; HOURS]);

impl Known {
    /// A person with habits: days, a time of these days in hours, and a weight. The times vary within some minutes
    /// (`spread`), and the share `rest` follows the population.
    fn new(habits: &[(Range<usize>, f64, f64)], spread: f64, rest: f64) -> Self {
        let total: f64 = habits.iter().map(|(days, _, weight)| days.len() as f64 * weight).sum();
        let mut week: [f64; HOURS] =
            std::array::from_fn(|hour| rest * CURVE[hour % DAY] / CURVE.iter().sum::<f64>() / 7.0);
        for (days, time, weight) in habits {
            for day in days.clone() {
                for step in 0..100 {
                    // Quantiles of a symmetric triangular distribution.
                    let part = (f64::from(step) + 0.5) / 100.0;
                    let off = if part < 0.5 { (2.0 * part).sqrt() - 1.0 } else { 1.0 - (2.0 - 2.0 * part).sqrt() };
                    let hour = (day * DAY) as f64 + time + off * spread;
                    week[hour.rem_euclid(HOURS as f64) as usize] += (1.0 - rest) * weight / total / 100.0;
                }
            }
        }
        Self(week)
    }

    /// One of several kinds: active at night, on weekday mornings, at two times of the day, at weekends, in one hour of
    /// the week, on the full hour, at any time, and without habits.
    fn any(kind: usize, rest: f64, state: &mut u64) -> Self {
        let (spread, mut between) = (0.3 + uniform(state), |from: f64, to: f64| from + (to - from) * uniform(state));
        let habits = match kind % 8 {
            0 => vec![(0..7, between(20.5, 24.5), 1.0)],
            1 => vec![(0..5, between(6.5, 9.0), 1.0)],
            2 => vec![(0..5, between(7.0, 9.0), 1.0), (0..7, between(19.0, 22.0), 1.0)],
            3 => vec![(5..7, between(9.0, 13.0), 1.0)],
            4 => {
                let day = between(0.0, 7.0) as usize;
                vec![(day..day + 1, between(0.0, 24.0), 1.0)]
            }
            5 => vec![(0..7, between(18.0, 24.0).floor(), 1.0)],
            6 => vec![(0..7, between(0.0, 24.0), 1.0)],
            _ => return Self::new(&[], 0.0, 1.0),
        };
        Self::new(&habits, if kind % 8 == 5 { 0.2 } else { spread }, rest)
    }

    /// Random facts by a clock at an offset, with `visit` facts per visit on average.
    fn facts(&self, facts: usize, visit: f64, offset: UtcOffset, state: &mut u64) -> ActivityHistogram {
        let mut histogram = ActivityHistogram::default();
        let mut left = facts;
        while left > 0 {
            let mut part = uniform(state);
            let hour = self.0.iter().position(|share| {
                part -= share;
                part < 0.0
            });
            let local = hour.unwrap_or(0) as u64 * HOUR_MS + (uniform(state) * HOUR_MS as f64) as u64;
            let at = MONDAY + local + WEEK_MS - offset.into_week(MONDAY);
            let more = (0..).take_while(|n| *n == 0 || uniform(state) < 1.0 - 1.0 / visit).count().min(left);
            (0..more).for_each(|_| histogram.add(at));
            left -= more;
        }
        histogram
    }

    /// Activity at a minute of the week, relative to the most active of `hours`.
    fn part_of_best(&self, minute: u16, hours: Range<usize>) -> f64 {
        self.0[usize::from(minute) / 60] / self.0[hours].iter().fold(0.0, |most, share| share.max(most))
    }
}

/// The population of a tenant with some thousand people.
fn everybody() -> PopulationActivity {
    let (mut state, mut all) = (1, PopulationActivity::default());
    for kind in 0..2_000 {
        let person = Known::any(kind, 0.3, &mut state);
        all.add(&person.facts(30, 2.0, UtcOffset::UTC, &mut state), UtcOffset::UTC);
    }
    all
}

/// The number of people, out of 400 with a habit, for which a right time is found among 50 facts, 30 % of which are
/// random.
fn found(habits: &[(Range<usize>, f64, f64)], visit: f64, theirs: impl Fn(u16) -> bool) -> usize {
    let known = Known::new(habits, 0.45, 0.3);
    let (population, mut state) = (everybody(), 2);
    let right = |zone: i32| {
        let histogram = known.facts(50, visit, offset(zone * 60), &mut state);
        let best = population.prior(offset(zone * 60)).habits(&histogram).best();
        best.source == BestSendTimeSource::Person && theirs(best.minute / 60)
    };
    (0..400).map(|person| person % 25 - 11).map(right).filter(|right| *right).count()
}

#[test]
fn the_hour_of_a_habit_is_found_among_noise() {
    for (visit, least) in [(1.0, 390), (3.0, 340)] {
        let night = found(&[(0..7, 22.5, 1.0)], visit, |hour| hour % 24 == 22);
        let morning = found(&[(0..5, 7.5, 1.0)], visit, |hour| hour % 24 == 7 && hour < 120);
        let peaks = [(0..5, 8.5, 1.0), (0..7, 20.5, 1.0)];
        let peaks = found(&peaks, visit, |hour| hour % 24 == 20 || hour % 24 == 8 && hour < 120);
        let sunday = found(&[(6..7, 10.5, 1.0)], visit, |hour| hour == 6 * 24 + 10);
        let between = found(&[(0..7, 20.0, 1.0)], visit, |hour| [19, 20].contains(&(hour % 24)));
        let all = [night, morning, peaks, sunday, between];
        println!("of 400, in visits of {visit}: {all:?}");
        assert!(all.iter().all(|right| *right >= least), "of 400, in visits of {visit}: {all:?}");
    }
}

/// Activity in the found hours relative to the best hours of 1,600 people: over the week and on one day, first by the
/// score, then by a plain posterior mean of counts and the population's shares.
fn captured(facts: usize, visit: f64) -> [f64; 4] {
    let (prior, mut state, mut sums) = (everybody().prior(UtcOffset::UTC), 3, [0.0; 4]);
    for kind in 0..1_600 {
        let known = Known::any(kind, 0.3, &mut state);
        let histogram = known.facts(facts, visit, UtcOffset::UTC, &mut state);
        let counts = histogram.counts().map(f32::from);
        let plain: Vec<f32> = counts.iter().zip(prior.week).map(|(count, everybody)| count + everybody).collect();
        let day = random::next(&mut state) as usize % 7 * DAY;
        for (score, sums) in [&prior.habits(&histogram).week[..], &plain].into_iter().zip(sums.as_chunks_mut::<2>().0) {
            for (hours, sum) in [0..HOURS, day..day + DAY].into_iter().zip(sums) {
                let first = hours.clone().rev().max_by(|a, b| score[*a].total_cmp(&score[*b])).unwrap();
                *sum += known.part_of_best(first as u16 * 60, hours) / 1_600.0;
            }
        }
    }
    sums
}

#[test]
fn counting_days_and_roots_finds_more_habits_than_plain_counts() {
    for (facts, visit, more) in
        [(10, 1.0, [0.04, 0.15]), (50, 1.0, [-0.01, -0.01]), (10, 3.0, [0.04, 0.15]), (50, 3.0, [0.05, 0.1])]
    {
        let [week, day, plain_week, plain_day] = captured(facts, visit);
        println!("{facts} in visits of {visit}: week {week:.3} {plain_week:.3}, day {day:.3} {plain_day:.3}");
        assert!(week >= plain_week + more[0], "{facts} in visits of {visit}: {week} {plain_week}");
        assert!(day >= plain_day + more[1], "{facts} in visits of {visit}: {day} {plain_day}");
    }
}

#[test]
fn a_person_with_few_facts_gets_the_hour_of_the_population() {
    let population = everybody();
    let (prior, no_facts) = (population.prior(UtcOffset::UTC), ActivityHistogram::default());
    let most = population.hours().iter().max().unwrap();
    let best = prior.habits(&no_facts).best();
    assert_eq!(population.hours()[usize::from(best.minute / 60)], *most);
    assert_eq!((best.source, best.confidence), (BestSendTimeSource::Population, 0));
    let mut histogram = no_facts.clone();
    for fact in 0..LEAST_FACTS {
        assert_eq!(prior.habits(&histogram).best(), best, "{fact} facts");
        histogram.add(MONDAY + 3 * HOUR_MS);
    }
    let own = prior.habits(&histogram).best();
    assert_eq!((own.minute, own.source), (180, BestSendTimeSource::Person));
    // Without any activity, every hour is equal, so the first of the week is best.
    let empty = PopulationActivity::default().prior(UtcOffset::UTC).habits(&no_facts).best();
    assert_eq!((empty.minute, empty.source), (0, BestSendTimeSource::Population));
}

#[test]
fn more_facts_move_the_hour_from_the_population_to_the_person() {
    let prior = everybody().prior(UtcOffset::UTC);
    let (here, popular) = (3 * DAY + 4, usize::from(prior.habits(&ActivityHistogram::default()).best().minute / 60));
    let mut histogram = ActivityHistogram::default();
    let lead = |histogram: &ActivityHistogram| {
        let week = prior.habits(histogram).week;
        let all: f32 = week.iter().sum();
        (week[here] - week[popular]) / all
    };
    let mut before = lead(&histogram);
    assert!(before < 0.0, "the population does nothing then: {before}");
    for fact in 1..200_u32 {
        histogram.add(MONDAY + here as u64 * HOUR_MS);
        let now = lead(&histogram);
        assert!(if fact < LEAST_FACTS { now == before } else { now > before }, "{fact}: {before} {now}");
        before = now;
    }
    assert!(before > 0.1, "{before}");
}

#[test]
fn a_stated_confidence_holds() {
    let (prior, mut state) = (everybody().prior(UtcOffset::UTC), 4);
    // By number of facts and tenth of the confidence: number of people, number with a right hour (at least half as
    // active as the best), and sum of the confidences.
    let amounts = [5, 8, 15, 30, 60, 150];
    let mut tallies = [[(0_u32, 0_u32, 0_u32); 10]; 6];
    for person in 0..12_000 {
        let amount = person / 8 % 6;
        let visit = [1.0, 2.0, 3.0][person / 48 % 3];
        let known = Known::any(person, [0.2, 0.3, 0.5][person / 144 % 3], &mut state);
        let best = prior.habits(&known.facts(amounts[amount], visit, UtcOffset::UTC, &mut state)).best();
        let (people, right, sum) = &mut tallies[amount][usize::from(best.confidence) / 10];
        *people += 1;
        *right += u32::from(known.part_of_best(best.minute, 0..HOURS) >= 0.5);
        *sum += u32::from(best.confidence);
    }
    let part = |of: u32, people: u32| f64::from(of) / f64::from(people);
    let mut whole = [(0, 0, 0); 10];
    for (facts, tenths) in amounts.into_iter().zip(tallies) {
        for (tenth, (whole, (people, right, sum))) in whole.iter_mut().zip(tenths).enumerate() {
            *whole = (whole.0 + people, whole.1 + right, whole.2 + sum);
            let (stated, correct) = (part(sum, people) / 100.0, part(right, people));
            // At most three standard deviations for this number of people.
            let chance = 1.5 / f64::from(people).sqrt();
            assert!(
                people < 20 || correct > stated - chance,
                "{tenth}, {facts} facts: {people} people, {stated}, {correct}"
            );
        }
    }
    for (tenth, (people, right, sum)) in whole.into_iter().enumerate().skip(4) {
        let (stated, correct) = (part(sum, people) / 100.0, part(right, people));
        println!("{tenth}: {people} people, stated {stated:.3}, right {correct:.3}");
        assert!(people >= 400 && correct >= stated, "{tenth}: {people} people, stated {stated}, right {correct}");
    }
}

#[test]
fn confidence_grows_when_the_same_facts_repeat() {
    let (prior, mut state) = (everybody().prior(UtcOffset::UTC), 5);
    for kind in 0..400 {
        let once = Known::any(kind, 0.3, &mut state).facts(20, 2.0, UtcOffset::UTC, &mut state);
        let found = prior.habits(&once).best();
        let hour = usize::from(found.minute) / 60 % DAY;
        let mut histogram = once.clone();
        let mut before = prior.habits(&once).confidence(hour);
        for times in 2..20 {
            histogram = histogram.plus(&once);
            let now = prior.habits(&histogram).confidence(hour);
            assert!(
                if found.confidence >= 50 { now >= before } else { now <= before },
                "{kind}, {times}: {before} {now}"
            );
            before = now;
        }
    }
    for x in 0..400 {
        let x = f64::from(x) / 100.0;
        assert!(normal(x) <= normal(x + 0.01) && (normal(x) + normal(-x) - 1.0).abs() < 1e-12);
    }
    let known = [(0.0, 0.5), (1.0, 0.841_345), (-1.0, 0.158_655), (2.0, 0.977_250), (3.0, 0.998_650)];
    assert!(known.iter().all(|(x, exact)| (normal(*x) - exact).abs() < 3e-4));
}

#[test]
fn a_person_on_two_browsers_has_the_best_hour_of_both_histories() {
    let prior = everybody().prior(UtcOffset::UTC);
    let visitor = |facts: &[(u64, usize)]| {
        let mut histogram = ActivityHistogram::default();
        facts.iter().for_each(|(hour, times)| (0..*times).for_each(|_| histogram.add(MONDAY + hour * HOUR_MS)));
        histogram
    };
    // Active at work mostly at 9:00, on the phone mostly at 23:00, on both at 13:00.
    let (work, phone) = (visitor(&[(9, 16), (13, 12)]), visitor(&[(23, 16), (13, 12)]));
    let hour = |histogram: &ActivityHistogram| prior.habits(histogram).best().minute / 60;
    assert_eq!([hour(&work), hour(&phone), hour(&work.plus(&phone))], [9, 23, 13]);
    assert_eq!(prior.habits(&work.plus(&phone)), prior.habits(&phone.plus(&work)));
}

/// Berlin's clock in 2027: summer time from 2027-03-28T01:00Z to 2027-10-31T01:00Z.
const SPRING: Millis = 1_806_195_600_000;
const AUTUMN: Millis = 1_824_944_400_000;

fn berlin() -> ZoneOffsets {
    ZoneOffsets::new(offset(60), vec![(AUTUMN, offset(60)), (SPRING, offset(120))])
}

/// A person that is active in one hour of the week only, by its clock.
fn only(hour: u64, offset: UtcOffset) -> PersonHabits {
    let mut histogram = ActivityHistogram::default();
    let at = MONDAY + WEEK_MS + hour * HOUR_MS - offset.into_week(0) + 72 * HOUR_MS;
    (0..50).for_each(|_| histogram.add(at));
    PopulationActivity::default().prior(offset).habits(&histogram)
}

#[test]
fn a_habit_stays_at_its_local_hour_when_the_clocks_change() {
    let zone = berlin();
    // Sundays at 20:00, recorded in winter. On the Sunday of the change, 20:00 is 18:00 UTC; one week earlier it was
    // 19:00 UTC.
    let habits = only(6 * 24 + 20, zone.at(MONDAY));
    assert_eq!(habits.best().minute, (6 * 24 + 20) * 60);
    let before = SPRING - WEEK_MS + 18 * HOUR_MS;
    let next = |now: Millis| habits.next(now, now..now + 2 * WEEK_MS, &zone).unwrap();
    assert_eq!(next(before - DAY_MS), before);
    assert_eq!(next(before + HOUR_MS), SPRING + 17 * HOUR_MS);
    assert_eq!(next(AUTUMN - HOUR_MS), AUTUMN + 18 * HOUR_MS);
    for at in [before, SPRING + 17 * HOUR_MS, AUTUMN + 18 * HOUR_MS] {
        let (best, offset) = (habits.best(), zone.at(at));
        assert!(best.is_now(at, offset) && best.is_now(at + HOUR_MS - 1, offset));
        assert!(!best.is_now(at - 1, offset) && !best.is_now(at + HOUR_MS, offset));
        assert!(best.edge(offset).is_now(at) && !best.edge(offset).is_now(at - 1));
    }
    // Sundays at 2:00: that hour is skipped in spring and occurs twice in autumn.
    let habits = only(6 * 24 + 2, zone.at(MONDAY));
    let next = |from: Millis, to: Millis| habits.next(from, from..to, &zone);
    assert_eq!(next(SPRING - DAY_MS, SPRING + 2 * WEEK_MS), Some(SPRING + WEEK_MS - HOUR_MS), "a week later");
    let night = next(SPRING - 4 * HOUR_MS, SPRING + 3 * HOUR_MS).unwrap();
    assert!([SPRING - HOUR_MS, SPRING].contains(&night), "beside the hour that is not there: {night}");
    assert_eq!(next(AUTUMN - DAY_MS, AUTUMN + DAY_MS), Some(AUTUMN - HOUR_MS), "the first of two");
    assert_eq!(next(AUTUMN, AUTUMN + DAY_MS), Some(AUTUMN), "the second");
}

#[test]
fn an_activity_histogram_is_read_with_the_offset_of_its_recording() {
    let zone = berlin();
    assert_eq!(zone.usual(SPRING - 9 * DAY_MS..SPRING + 10 * DAY_MS), offset(120));
    assert_eq!(zone.usual(SPRING - 11 * DAY_MS..SPRING + 10 * DAY_MS), offset(60));
    assert_eq!(zone.usual(0..Millis::MAX), offset(60));
    assert_eq!((zone.usual(SPRING..SPRING), zone.usual(MONDAY..MONDAY)), (offset(120), offset(60)), "one fact");
    // Recorded between two clock changes and sent after the second: still at 20:00 by the clock.
    let habits = only(20, zone.usual(SPRING..AUTUMN));
    assert_eq!(habits.best().minute, 20 * 60);
    let after = habits.next(AUTUMN, AUTUMN..AUTUMN + WEEK_MS, &zone).unwrap();
    assert_eq!(offset(60).into_week(after), 20 * HOUR_MS);
}

#[test]
fn a_send_time_within_the_window_is_found() {
    let (habits, utc) = (only(50, UtcOffset::UTC), ZoneOffsets::default());
    let best = MONDAY + 50 * HOUR_MS;
    let next = |now: Millis, window: Range<Millis>| habits.next(now, window, &utc);
    assert_eq!(next(MONDAY, MONDAY..MONDAY + WEEK_MS), Some(best));
    assert_eq!(next(0, MONDAY..MONDAY + WEEK_MS), Some(best), "the window is yet to come");
    assert_eq!(next(best + 7, MONDAY..best + 8), Some(best + 7), "in the middle of it");
    assert_eq!(next(best + HOUR_MS, MONDAY..MONDAY + 2 * WEEK_MS), Some(best + WEEK_MS));
    assert_eq!(next(best + HOUR_MS, MONDAY..Millis::MAX), Some(best + WEEK_MS));
    assert_eq!(next(Millis::MAX - 1, 0..Millis::MAX), Some(Millis::MAX - 1));
    // Without the best hour: the same time on another day, otherwise the best-scored hour, cut by the window.
    assert_eq!(next(MONDAY, MONDAY..MONDAY + DAY_MS), Some(MONDAY + 2 * HOUR_MS));
    assert_eq!(next(MONDAY, best - 3 * HOUR_MS + 5..best), Some(best - HOUR_MS), "beside the best");
    assert_eq!(next(best, best - 9..best), None);
    assert_eq!(next(best, Range { start: best + 9, end: best }), None);
    // Without own facts: the most popular hour of the window.
    let unknown = everybody().prior(UtcOffset::UTC).habits(&ActivityHistogram::default());
    let at = unknown.next(MONDAY, MONDAY + 6 * HOUR_MS..MONDAY + 12 * HOUR_MS, &utc).unwrap();
    let score = |hour: usize| unknown.week[hour];
    let hour = offset(0).into_week(at) / HOUR_MS;
    assert!((6..12).all(|other| score(other) <= score(hour as usize)) && at.is_multiple_of(HOUR_MS));
}

#[test]
fn hours_of_half_hour_zones_begin_at_half_past() {
    let (india, nepal, newfoundland) = (offset(330), offset(345), offset(-210));
    for (zone, past) in [(india, 30), (nepal, 45), (newfoundland, 30)] {
        for hour in [0, 1, 50, 161, 167] {
            // In the middle of a UTC hour.
            let at = MONDAY + hour * HOUR_MS;
            let mut histogram = ActivityHistogram::default();
            (0..9).for_each(|_| histogram.add(at + HOUR_MS / 2));
            let best = everybody().prior(zone).habits(&histogram).best();
            assert_eq!((u64::from(best.minute) * MINUTE_MS, best.minute % 60), (zone.into_week(at), past));
            assert!(best.is_now(at, zone) && best.is_now(at + HOUR_MS - 1, zone) && !best.is_now(at + HOUR_MS, zone));
            assert_eq!(u64::from(best.edge(zone).utc_hour_of_week), hour);
            // The population's activity is divided between two hours of the clock.
            let mut all = PopulationActivity::default();
            all.add(&histogram, zone);
            let first = usize::from(best.minute / 60);
            let parts = [u64::from(60 - past) * 9, u64::from(past) * 9];
            assert_eq!([all.hours()[first], all.hours()[(first + 1) % HOURS]], parts);
            assert_eq!(all.hours().iter().sum::<u64>(), 540);
            assert_eq!(all.prior(zone).habits(&ActivityHistogram::default()).best().minute, best.minute, "and back");
        }
    }
    // Activity from 20:00 to 21:00 makes 19:30 and 20:30 equally good: the first of the week is best.
    let mut all = PopulationActivity::default();
    all.add(&only_hour(20), UtcOffset::UTC);
    assert_eq!(all.prior(india).habits(&ActivityHistogram::default()).best().minute, 19 * 60 + 30);
    // Lord Howe Island's clock changes by half an hour: the edge then uses the later of the two overlapping UTC hours.
    let best = only(20, offset(600)).best();
    assert_eq!((best.edge(offset(600)).utc_hour_of_week, best.edge(offset(630)).utc_hour_of_week), (10, 10));
    assert_eq!(UtcOffset::minutes(1_440), None);
    assert_eq!(UtcOffset::minutes(-1_440), None);
}

fn only_hour(hour: u64) -> ActivityHistogram {
    let mut histogram = ActivityHistogram::default();
    (0..9).for_each(|_| histogram.add(MONDAY + hour * HOUR_MS));
    histogram
}

#[test]
fn a_habit_is_found_at_the_same_local_hour_in_every_zone() {
    let mut state = 6;
    let known = Known::any(2, 0.3, &mut state);
    for zone in -12..=14 {
        let (zone, mut all, mut same) = (offset(zone * 60), PopulationActivity::default(), 7);
        let histogram = known.facts(40, 2.0, zone, &mut same);
        all.add(&histogram, zone);
        let (mut utc, mut again) = (PopulationActivity::default(), 7);
        let in_utc = known.facts(40, 2.0, UtcOffset::UTC, &mut again);
        utc.add(&in_utc, UtcOffset::UTC);
        assert_eq!(all, utc);
        assert_eq!(all.prior(zone).habits(&histogram), utc.prior(UtcOffset::UTC).habits(&in_utc));
        let mut twice = all.clone();
        twice.join(&utc);
        assert_eq!(twice.prior(zone), all.prior(zone), "twice as many of the same");
        assert_eq!(PopulationActivity::new(*twice.hours()), twice);
    }
}
