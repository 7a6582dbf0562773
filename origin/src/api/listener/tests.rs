#![expect(clippy::unwrap_used, reason = "tests")]

use std::net::SocketAddr;

use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use super::*;

/// Limits that no test reaches by chance.
pub(crate) const LIMITS: HttpLimits = HttpLimits {
    connections: 64,
    head_bytes: 32 * 1024,
    head_time: Duration::from_secs(60),
    body_time: Duration::from_secs(60),
    idle_time: Duration::from_secs(60),
    write_time: Duration::from_secs(60),
};
/// More than all buffers between the origin and a reader hold.
const LARGE: usize = 2 * 1024 * 1024;
/// How long what comes by itself may take.
const SOON: Duration = Duration::from_secs(30);

/// A listener with a large answer at `/`, and at `/proven` to a request that proves its sender.
struct TestListener {
    address: SocketAddr,
    metrics: Arc<Metrics>,
    stop: watch::Sender<bool>,
    served: tokio::task::JoinHandle<bool>,
}

impl TestListener {
    async fn start(limits: HttpLimits, drain: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let metrics = Arc::new(Metrics::default());
        let (stop, stopping) = watch::channel(false);
        let large = || async { vec![b'x'; LARGE] };
        let proven = move |parts: Parts| {
            record_proof(&parts, RequestProof::Token);
            large()
        };
        let router = Router::new().route("/", get(large)).route("/proven", get(proven));
        let listener = HttpListener::new(listener, limits, Arc::clone(&metrics));
        Self { address, metrics, stop, served: tokio::spawn(listener.serve(router, stopping, drain)) }
    }

    /// Asks for the large answer over a connection whose receiving end holds little.
    async fn ask(&self, path: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        let mut stream = socket.connect(self.address).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await.unwrap();
        stream
    }

    fn timeouts(&self, limit: ConnectionLimit) -> u64 {
        self.metrics.connection_timeouts.get_or_create(&[("limit", limit.name())]).get()
    }
}

/// Reads to the end, an error too, and gives how many bytes came.
async fn read_all(stream: &mut TcpStream) -> usize {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(SOON, stream.read_to_end(&mut bytes)).await;
    drop(read.unwrap());
    bytes.len()
}

#[tokio::test]
async fn a_slow_reader_gets_all_of_an_answer_and_one_that_stalls_is_closed() {
    let second = Duration::from_secs(1);
    let limits = HttpLimits { idle_time: second, write_time: second, ..LIMITS };
    let listener = TestListener::start(limits, second).await;
    let (mut slow, mut stalled) = (listener.ask("/").await, listener.ask("/").await);
    let (began, mut bytes, mut piece) = (tokio::time::Instant::now(), 0, vec![0; 64 * 1024]);
    while bytes < LARGE {
        bytes += slow.read_exact(&mut piece).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(began.elapsed() > 2 * second, "it was to take longer than any limit");
    assert_eq!(listener.timeouts(ConnectionLimit::Write), 1);
    assert!(read_all(&mut stalled).await < LARGE);
    // The slow one is idle now.
    read_all(&mut slow).await;
    assert_eq!(listener.timeouts(ConnectionLimit::Idle), 1);
    assert_eq!(listener.metrics.connections.get(), 0);
}

#[tokio::test]
async fn a_stop_closes_what_waits_at_once_and_gives_an_answer_under_way_its_time() {
    let listener = TestListener::start(LIMITS, SOON).await;
    let mut half = listener.ask("/proven").await;
    half.read_exact(&mut [0; 64]).await.unwrap();
    let mut idle = TcpStream::connect(listener.address).await.unwrap();
    let mut late = TcpStream::connect(listener.address).await.unwrap();
    late.write_all(b"GET / HT").await.unwrap();
    // Accepted in order: those before it are known.
    let mut last = listener.ask("/proven").await;
    last.read_exact(&mut [0; 64]).await.unwrap();
    listener.stop.send_replace(true);
    let (idle, late) = tokio::join!(read_all(&mut idle), read_all(&mut late));
    assert_eq!((idle, late), (0, 0));
    // Slow readers, whose requests proved their senders.
    tokio::time::sleep(2 * UNPROVEN_DRAIN).await;
    let (half, last) = tokio::join!(read_all(&mut half), read_all(&mut last));
    assert!(half >= LARGE && last >= LARGE, "{half} {last}");
    assert!(tokio::time::timeout(SOON, listener.served).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_stop_ends_within_its_time_with_readers_that_stall() {
    // One that proved nothing has no time of its own; one that proved its sender has that of the drain.
    for (path, drain, all_ended) in [("/", SOON, true), ("/proven", 2 * UNPROVEN_DRAIN, false)] {
        let listener = TestListener::start(LIMITS, drain).await;
        let mut stalled = listener.ask(path).await;
        stalled.read_exact(&mut [0; 64]).await.unwrap();
        let began = tokio::time::Instant::now();
        listener.stop.send_replace(true);
        let ended = tokio::time::timeout(SOON / 2, listener.served).await;
        assert_eq!(ended.unwrap().unwrap(), all_ended, "{path}");
        assert!(all_ended || began.elapsed() >= drain, "{path}");
        assert!(read_all(&mut stalled).await < LARGE, "{path}");
    }
}

mod of_the_table {
    use super::super::table::*;
    use super::*;

    fn table(connections: usize) -> (ConnectionTable, Arc<Metrics>) {
        let metrics = Arc::new(Metrics::default());
        (ConnectionTable::new(connections, Arc::clone(&metrics)), metrics)
    }

    async fn is_closed(connection: &OpenConnection) -> bool {
        tokio::time::timeout(Duration::ZERO, connection.closed()).await.is_ok()
    }

    /// Closes one for a newcomer and gives which.
    async fn displaced(table: &ConnectionTable, all: &[Arc<OpenConnection>]) -> Vec<usize> {
        table.displace();
        let mut closed = Vec::new();
        for (place, connection) in all.iter().enumerate() {
            if is_closed(connection).await {
                closed.push(place);
            }
        }
        closed
    }

    #[tokio::test]
    async fn the_connection_without_an_answer_for_longest_is_closed_for_a_newcomer() {
        let (table, metrics) = table(4);
        let all: Vec<_> = (0..4).map(|_| Arc::new(table.open())).collect();
        // The first was answered, the second is: by its age alone it would be closed.
        drop(all[0].begin_request());
        let under_way = all[1].begin_request();
        all[1].prove(RequestProof::Token);
        for expected in [2, 3, 0] {
            assert_eq!(displaced(&table, &all).await, [expected]);
        }
        assert_eq!(displaced(&table, &all).await, [0; 0], "it proved its sender");
        drop(under_way);
        assert_eq!(displaced(&table, &all).await, [1]);
        assert_eq!((metrics.connections.get(), metrics.connections_displaced.get()), (4, 4));
        drop(all);
        assert_eq!(metrics.connections.get(), 0);
    }

    #[tokio::test]
    async fn syncs_and_tokens_have_rooms_of_their_own_and_neither_fills_the_table() {
        let (table, _) = table(8);
        let all: Vec<_> = (0..8).map(|_| Arc::new(table.open())).collect();
        let under_way: Vec<_> = all.iter().map(OpenConnection::begin_request).collect();
        // Six with a token: four have room. Then two with a sync, which have theirs.
        all[..6].iter().for_each(|connection| connection.prove(RequestProof::Token));
        all[6..].iter().for_each(|connection| connection.prove(RequestProof::Sync));
        assert_eq!(displaced(&table, &all).await, [4]);
        assert_eq!(displaced(&table, &all).await, [5]);
        assert_eq!(displaced(&table, &all).await, [0; 0]);
        // Answered: its room is another's.
        let mut under_way = under_way.into_iter();
        drop(under_way.next());
        assert_eq!(displaced(&table, &all).await, [0]);
        let next = Arc::new(table.open());
        let _next = next.begin_request();
        next.prove(RequestProof::Token);
        next.prove(RequestProof::Sync);
        assert_eq!(displaced(&table, &[next]).await, [0; 0]);
    }

    #[tokio::test]
    async fn a_head_begins_with_its_first_byte_and_ends_with_its_request() {
        let (table, _) = table(1);
        let connection = Arc::new(table.open());
        let in_phase = |phase| connection.in_phase_since(phase);
        assert!(in_phase(ConnectionPhase::Idle).is_some());
        connection.note_read();
        let since = in_phase(ConnectionPhase::Head).unwrap();
        connection.note_read();
        assert_eq!(in_phase(ConnectionPhase::Head), Some(since));
        let under_way = connection.begin_request();
        // A body.
        connection.note_read();
        assert!(in_phase(ConnectionPhase::Request).is_some());
        drop(under_way);
        assert!(in_phase(ConnectionPhase::Idle).is_some());
    }
}
