//! A closed-loop load: a number of connections, each with one request in flight.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::cpu::Cpu;
use crate::http1::Connection;
use crate::stop::Stop;

/// An answer that takes longer is a fault of the measured process.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest warm-up.
const WARM_MOST: Duration = Duration::from_secs(20);

/// Duration and load of a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pressure {
    pub(crate) connections: usize,
    pub(crate) warm_up: Duration,
    /// Number of answers that the warm-up waits for, at most for [`WARM_MOST`].
    pub(crate) warm_requests: u64,
    pub(crate) measured: Duration,
}

/// The results of one window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// Requests with an answer of the expected length.
    pub(crate) requests: u64,
    /// Requests with an answer of another length, such as an answer with a fault.
    pub(crate) odd: u64,
    /// All answered requests, including those before and after the window.
    pub(crate) answered: u64,
    /// Answers of another length among all answered requests.
    pub(crate) odd_of_all: u64,
    pub(crate) seconds: f64,
    /// CPU time of the measured process, in microseconds.
    pub(crate) cpu_us: u64,
    /// CPU time of this process, in microseconds.
    pub(crate) own_cpu_us: u64,
}

impl Window {
    pub(crate) fn rate(&self) -> f64 {
        per(self.requests, self.seconds)
    }

    pub(crate) fn cpu_a_request(&self) -> f64 {
        per(self.cpu_us, self.requests as f64)
    }

    pub(crate) fn own_cpu_a_request(&self) -> f64 {
        per(self.own_cpu_us, self.requests as f64)
    }
}

fn per(amount: u64, of: f64) -> f64 {
    amount as f64 / of.max(f64::MIN_POSITIVE)
}

/// A connection to a port of this machine.
pub(crate) fn connect(port: u16) -> Result<Connection<TcpStream>> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(Connection::new(stream))
}

/// A request, and the length of the body of its correct answer.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) port: u16,
    pub(crate) request: Vec<u8>,
    pub(crate) body_bytes: usize,
}

#[derive(Debug, Default)]
struct Counts {
    right: AtomicU64,
    odd: AtomicU64,
    over: AtomicBool,
    /// The first answer of another length, which is printed.
    first_odd: OnceLock<String>,
}

/// Repeats the call over all connections, and measures the window after the warm-up.
pub(crate) fn press(call: &Call, pressure: Pressure, process: Cpu, stop: &Stop) -> Result<Window> {
    let counts = Counts::default();
    std::thread::scope(|scope| {
        let work = || {
            let worked = one(call, &counts);
            // A failed worker ends the window, whose figures would be wrong.
            counts.over.fetch_or(worked.is_err(), Ordering::Relaxed);
            worked
        };
        let workers: Vec<_> = (0..pressure.connections).map(|_| scope.spawn(work)).collect();
        let window = measure(pressure, &counts, process, stop);
        counts.over.store(true, Ordering::Relaxed);
        for worker in workers {
            match worker.join() {
                Ok(worked) => worked?,
                Err(_) => bail!("a thread of the load panicked"),
            }
        }
        if let Some(body) = counts.first_odd.get() {
            eprintln!("an answer differs in length from the checked answer: {body}");
        }
        let odd_of_all = counts.odd.load(Ordering::Relaxed);
        let answered = counts.right.load(Ordering::Relaxed) + odd_of_all;
        window.map(|window| Window { answered, odd_of_all, ..window })
    })
}

fn measure(pressure: Pressure, counts: &Counts, process: Cpu, stop: &Stop) -> Result<Window> {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    rest(pressure.warm_up, counts, stop)?;
    let warming = Instant::now();
    while count(&counts.right) < pressure.warm_requests
        && warming.elapsed() < WARM_MOST
        && !counts.over.load(Ordering::Relaxed)
    {
        rest(Duration::from_millis(50), counts, stop)?;
    }
    let (start, right, odd) = (Instant::now(), count(&counts.right), count(&counts.odd));
    let (cpu_us, own_us) = (process.micros()?, Cpu::own().micros()?);
    rest(pressure.measured, counts, stop)?;
    Ok(Window {
        requests: count(&counts.right) - right,
        odd: count(&counts.odd) - odd,
        // The number is known when all workers have ended.
        answered: 0,
        odd_of_all: 0,
        seconds: start.elapsed().as_secs_f64(),
        cpu_us: process.micros()? - cpu_us,
        own_cpu_us: Cpu::own().micros()? - own_us,
    })
}

/// Waits until the time is over, a worker failed or a signal arrived.
fn rest(time: Duration, counts: &Counts, stop: &Stop) -> Result<()> {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        stop.check()?;
        if counts.over.load(Ordering::Relaxed) {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
    Ok(())
}

fn one(call: &Call, counts: &Counts) -> Result<()> {
    let mut connection = connect(call.port)?;
    while !counts.over.load(Ordering::Relaxed) {
        let answer = connection.exchange(&call.request)?;
        let status = answer.status();
        ensure!(status == Some(200), "an answer with status {status:?} under load");
        let right = answer.body.len() == call.body_bytes;
        let counter = if right { &counts.right } else { &counts.odd };
        counter.fetch_add(1, Ordering::Relaxed);
        if !right {
            counts.first_odd.get_or_init(|| String::from_utf8_lossy(answer.body).into_owned());
        }
    }
    Ok(())
}
