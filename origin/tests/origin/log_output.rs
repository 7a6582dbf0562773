//! The service while its log cannot be written.

use std::fs::File;
use std::os::fd::OwnedFd;

use super::support::{Place, SOON, once, page, visitor, within};

/// A pipe: its reader, and its writer.
fn pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = std::io::pipe().unwrap();
    (reader.into(), writer.into())
}

/// Serves with a trace log, accepts facts and ends after a signal. Returns the number of lost log lines.
fn serve_and_end(place: &Place, stderr: OwnedFd) -> u64 {
    let mut origin = place.serve_with_log("trace", stderr);
    for n in 0..5 {
        assert_eq!(origin.send(&[page(visitor(n), n)]).accepted, 1);
        assert_eq!(origin.get("/readyz").status, 200);
    }
    let lost = || origin.metric("causeway_log_lines_lost_total").parse::<u64>();
    let found = within(SOON, "lines were lost", || once(lost().unwrap(), |lost| *lost > 0));
    origin.signal("-TERM");
    assert_eq!(origin.wait(), Some(0));
    found
}

#[test]
fn a_full_disk_under_the_log_costs_lines_and_not_the_service() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    assert!(serve_and_end(&Place::new(), full.into()) > 0);
}

#[test]
fn a_closed_pipe_costs_lines_and_not_the_service() {
    let (reader, writer) = pipe();
    drop(reader);
    assert!(serve_and_end(&Place::new(), writer) > 0);
}

#[test]
fn a_reader_that_takes_nothing_costs_lines_and_not_the_service() {
    let (reader, writer) = pipe();
    let place = Place::new();
    // As in `causeway serve 2>&1 | reader`.
    let mut origin = place.serve_with_output("trace", writer.try_clone().unwrap(), writer);
    let lost = |origin: &super::support::Origin| origin.metric("causeway_log_lines_lost_total").parse::<u64>().unwrap();
    // The pipe and the queue of lines fill first.
    let mut n = 0;
    while lost(&origin) == 0 {
        for _ in 0..10 {
            assert_eq!(origin.send(&[page(visitor(n), n)]).accepted, 1);
            n += 1;
        }
    }
    origin.signal("-TERM");
    assert_eq!(origin.wait(), Some(0));
    drop(reader);
}

/// In a process of its own, because the log's filter is cached for all threads of a process.
#[test]
fn the_log_names_the_route_of_a_request_and_neither_its_visitor_nor_its_token() {
    let place = Place::new();
    let log = place.path().join("trace");
    let origin = place.serve_with_log("trace", File::create(&log).unwrap());
    let path = format!("/admin/v1/visitors/{}?tenant=demo", visitor(1));
    let headers = [("authorization", "Bearer secret".to_owned()), ("x-request-id", "proxy-7".to_owned())];
    assert_eq!(origin.call("GET", &path, &headers, b"").status, 401);
    origin.stop();
    let said = std::fs::read_to_string(log).unwrap();
    for part in ["proxy-7", "/admin/v1/visitors/{id}", "status=401"] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    for part in [&visitor(1).to_string(), "secret", "tenant=demo"] {
        assert!(!said.contains(part), "{part} is in {said}");
    }
}
