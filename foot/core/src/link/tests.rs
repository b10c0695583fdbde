#![allow(clippy::unwrap_used)]
//! Stories on a virtual clock, and a property over any order of events.

use proptest::prelude::*;

use super::*;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const WALL_AT_ZERO: Duration = Duration::from_secs(1_700_000_000);

fn tick(link: &mut Link, now: Duration, heard: Duration) -> Vec<Action> {
    link.apply(now, Event::Tick { wall: WALL_AT_ZERO + now, heard }, u32::MAX)
}

fn broken() -> Event {
    Event::Ended(End::Broken("refused".to_owned()))
}

fn welcomed() -> Event {
    Event::Welcomed { heartbeat: ms(10_000), misses: 3 }
}

fn online_at(now: Duration) -> Link {
    let mut link = Link::new();
    link.apply(now, Event::Start, 0);
    link.apply(now, welcomed(), 0);
    tick(&mut link, now, now);
    link
}

#[test]
fn it_connects_at_once_then_ever_slower_and_never_gives_up() {
    let mut link = Link::new();
    let mut now = ms(0);
    assert_eq!(link.apply(now, Event::Start, 0), [Action::Connect]);
    let mut waits = Vec::new();
    for round in 0..100 {
        let actions = link.apply(now, broken(), u32::MAX);
        let want: &[Action] = if round == 0 { &[Action::SayLost { why: "refused".to_owned() }] } else { &[] };
        assert_eq!(actions, want, "it is said once");
        let failed_at = now;
        loop {
            now += link.next_tick(now).max(ms(1));
            if tick(&mut link, now, ms(0)) == [Action::Connect] {
                break;
            }
        }
        waits.push((now - failed_at).as_millis());
    }
    assert_eq!(waits[..8], [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
    assert_eq!(waits[99], 30000);
    assert_eq!(link.apply(now, welcomed(), 0), []);
    assert!(link.is_online());
}

#[test]
fn jitter_takes_at_most_half() {
    assert_eq!(backoff(0, 0), ms(0));
    assert_eq!((backoff(1, 0), backoff(1, u32::MAX)), (ms(250), ms(500)));
    assert_eq!((backoff(60, 0), backoff(60, u32::MAX)), (ms(15_000), ms(30_000)));
}

#[test]
fn a_cut_line_is_mended_at_once_and_a_loop_of_cuts_is_not_hot() {
    let mut link = online_at(ms(0));
    let actions = link.apply(ms(100), broken(), u32::MAX);
    assert_eq!(actions, [Action::SayLost { why: "refused".to_owned() }, Action::Connect]);
    link.apply(ms(110), welcomed(), 0);
    let actions = link.apply(ms(120), broken(), u32::MAX);
    assert_eq!(actions, [Action::SayLost { why: "refused".to_owned() }]);
    assert_eq!(link.next_tick(ms(120)), ms(500));
    // A line that held is mended at once again.
    tick(&mut link, ms(620), ms(0));
    link.apply(ms(630), welcomed(), 0);
    assert!(link.apply(ms(11_000), broken(), 0).contains(&Action::Connect));
}

#[test]
fn silence_is_noticed_by_missed_heartbeats_and_any_frame_is_life() {
    let mut link = online_at(ms(0));
    let mut pings = 0;
    for second in 1..=60 {
        let now = ms(second * 1000);
        pings += tick(&mut link, now, now).len();
    }
    assert_eq!(pings, 6);
    let heard = ms(60_000);
    for second in 61..90 {
        assert!(tick(&mut link, ms(second * 1000), heard).iter().all(|a| *a == Action::Ping));
    }
    let actions = tick(&mut link, ms(90_000), heard);
    assert!(matches!(&actions[..], [Action::Drop { .. }, Action::SayLost { .. }, Action::Connect]), "{actions:?}");
}

#[test]
fn a_sleep_tests_the_line_at_once() {
    let slept = Duration::from_secs(600);
    for answers in [true, false] {
        let mut link = online_at(ms(0));
        tick(&mut link, ms(1000), ms(1000));
        let wall = |now: Duration| Event::Tick { wall: WALL_AT_ZERO + slept + now, heard: ms(1000) };
        assert_eq!(link.apply(ms(2000), wall(ms(2000)), 0), [Action::Ping]);
        assert!(link.next_tick(ms(2000)) <= PROBE_WITHIN);
        let heard = if answers { ms(2100) } else { ms(1000) };
        let actions = link.apply(ms(5000), Event::Tick { wall: WALL_AT_ZERO + slept + ms(5000), heard }, 0);
        assert_eq!(actions.is_empty(), answers, "{actions:?}");
        assert_eq!(link.is_online(), answers);
    }
}

#[test]
fn a_sleep_ends_the_wait_for_the_next_attempt() {
    let mut link = Link::new();
    link.apply(ms(0), Event::Start, 0);
    for _ in 0..20 {
        link.apply(ms(0), broken(), u32::MAX);
        link.attempts = 10;
    }
    assert_eq!(tick(&mut link, ms(10), ms(0)), []);
    let wall = WALL_AT_ZERO + Duration::from_secs(3600);
    assert_eq!(link.apply(ms(20), Event::Tick { wall, heard: ms(0) }, 0), [Action::Connect]);
}

#[test]
fn a_black_hole_does_not_hold_the_attempt() {
    let mut link = Link::new();
    link.apply(ms(0), Event::Start, 0);
    assert_eq!(tick(&mut link, ms(14_999), ms(0)), []);
    assert!(matches!(&tick(&mut link, ms(15_000), ms(0))[..], [Action::Drop { .. }, Action::SayLost { .. }]));
}

#[test]
fn some_ends_stop_it_and_say_what_to_do() {
    let closed = |code| End::Closed { code, reason: String::new() };
    for (end, want) in [
        (closed(4409), Some(Stop::Superseded)),
        (closed(4401), Some(Stop::Unauthorized)),
        (End::Refused { status: 401 }, Some(Stop::Unauthorized)),
        (closed(4403), Some(Stop::Forbidden)),
        (End::Refused { status: 403 }, Some(Stop::Forbidden)),
        (closed(4406), Some(Stop::Protocol)),
        (closed(4400), None),
        (closed(4408), None),
        (closed(4503), None),
        (closed(1000), None),
        (closed(1006), None),
        (End::Refused { status: 404 }, None),
        (End::Refused { status: 503 }, None),
        (End::Broken("reset".to_owned()), None),
    ] {
        let mut link = online_at(ms(0));
        let actions = link.apply(ms(1), Event::Ended(end.clone()), 0);
        match want {
            Some(stop) => {
                assert_eq!(actions, [Action::Stop(stop)], "{end:?}");
                assert_eq!(tick(&mut link, ms(60_000), ms(0)), []);
                assert_eq!(link.apply(ms(60_000), Event::Start, 0), [Action::Connect]);
            }
            None => assert!(actions.contains(&Action::Connect), "{end:?}"),
        }
    }
}

#[test]
fn a_refusal_that_may_pass_is_tried_again_rarely_and_said_once() {
    let closed = |code| Event::Ended(End::Closed { code, reason: String::new() });
    for (code, knocks) in [(4401, true), (4403, true), (4409, false), (4406, false)] {
        let mut link = online_at(ms(0));
        assert!(matches!(&link.apply(ms(1), closed(code), u32::MAX)[..], [Action::Stop(_)]), "{code}");
        assert_eq!(tick(&mut link, ms(90_000), ms(0)), [], "{code}");
        let again = tick(&mut link, ms(90_001), ms(0));
        assert_eq!(again, if knocks { vec![Action::Connect] } else { vec![] }, "{code}");
        if !knocks {
            continue;
        }
        assert_eq!(link.apply(ms(90_100), closed(code), 0), [], "the same refusal: {code}");
        assert_eq!(tick(&mut link, ms(150_100), ms(0)), [Action::Connect], "{code}");
        // It passed; the next one is news again.
        link.apply(ms(150_200), welcomed(), 0);
        assert!(matches!(&link.apply(ms(160_000), closed(code), 0)[..], [Action::Stop(_)]), "{code}");
        // And so is the one after somebody asked for another attempt.
        assert_eq!(link.apply(ms(161_000), Event::Start, 0), [Action::Connect]);
        assert!(matches!(&link.apply(ms(161_100), closed(code), 0)[..], [Action::Stop(_)]), "{code}");
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Start),
        (0..100_000u64).prop_map(|h| Event::Welcomed { heartbeat: ms(h), misses: 3 }),
        Just(broken()),
        (4400..4500u16).prop_map(|code| Event::Ended(End::Closed { code, reason: String::new() })),
        (0..10_000_000u64, 0..10_000_000u64).prop_map(|(wall, heard)| Event::Tick { wall: ms(wall), heard: ms(heard) }),
    ]
}

proptest! {
    #[test]
    fn there_is_one_line_at_a_time_and_an_attempt_always_comes(events in prop::collection::vec((0..40_000u64, event(), any::<u32>()), 1..80)) {
        let mut link = Link::new();
        let mut now = ms(0);
        let mut open = false;
        link.apply(now, Event::Start, 0);
        open |= true;
        for (pause, event, jitter) in events {
            now += ms(pause);
            if matches!(event, Event::Ended(_)) {
                open = false;
            }
            for action in link.apply(now, event, jitter) {
                match action {
                    Action::Connect => {
                        prop_assert!(!open, "a second line");
                        open = true;
                    }
                    Action::Drop { .. } => open = false,
                    Action::Ping => prop_assert!(link.is_online()),
                    Action::SayLost { .. } | Action::Stop(_) => {}
                }
            }
            prop_assert_eq!(open, matches!(link.state, State::Connecting { .. } | State::Online { .. }));
        }
        if !link.is_stopped() && !open {
            let wait = ms(30_001);
            let actions = link.apply(now + wait, Event::Tick { wall: now + wait, heard: now }, 0);
            prop_assert_eq!(actions, vec![Action::Connect]);
        }
    }
}
