//! One segment over one connection: request, check, write, report. The only file that touches content.
//!
//! The rule for each byte of an accepted body: what is already on the disk is compared, what is
//! missing is written, and nothing is ever written over. So an overlap before a segment, the seam
//! behind it, a tail that two connections bring, and a whole answer over the remains of another are
//! all the same few lines, and a byte of another version is found wherever the two meet.

use crate::connect::{ConnectOptions, Connected, Endpoint, Stream, connect};
use crate::data::{BUFFER, Buffers, Connection, Shared, with_buffers};
use crate::decode::{Coding, Decoder};
use crate::failure::FetchError;
use crate::gather::Gather;
use crate::http1::{Body, Head, HeadBuffer, RequestLine, encode_request, read_head};
use crate::limiter::ConnectionLimit;
use crate::loan::Loan;
use crate::part_file::Version;
use crate::splice::{self, Pipe};
use crate::target::{Here, Target};
use std::future::poll_fn;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidegate_core::transfer::{BodyPlan, End};
use tidegate_core::units::show_size;
use tidegate_core::{Answer, Code, DownloadId, Failure, SegmentId};
use tokio::io::{AsyncRead, AsyncWriteExt, Interest, ReadBuf};
use tokio::sync::oneshot;
use url::Url;

/// The rest of a body that is read and thrown away so that its connection can be used again, at most.
const DRAIN: u64 = 64 << 10;

/// How long that may take.
const DRAIN_FOR: Duration = Duration::from_millis(500);

/// Bytes of a coded body that are read at a time, at most.
const CODED: usize = 16 << 10;

/// Pieces of content smaller than this, small chunks above all, are cheaper by way of the buffer, which takes
/// many of them at once.
const LEAST_SPLICED: u64 = 64 << 10;

/// After so many bytes in a row others of the thread have their turn. A server that is always ahead would else keep
/// it to one connection for as long as the runtime allows, tens of MiB, and whoever ended that would wait for it.
const TURN: u64 = 2 * BUFFER as u64;

/// Output of a decoder, at most; a bound for bombs whose ratio stays below that of honest files.
const MOST_DECODED: u64 = 1 << 40;

/// What the control thread sees of a running fetch without asking.
#[derive(Debug)]
pub(crate) struct Cell {
    /// One past the last byte that is on the disk or was equal to what was there.
    pub(crate) pos: AtomicU64,
    /// Where to stop; moved by the control thread.
    pub(crate) end: AtomicU64,
    /// Bytes of content received.
    pub(crate) received: AtomicU64,
    /// Waits for tokens, not for the network.
    pub(crate) limited: AtomicBool,
    /// Its connection was opened for less than it may have now, and can never be as fast.
    pub(crate) outgrown: AtomicBool,
    /// Nobody wants any more of it: it ends where it next waits.
    pub(crate) over: AtomicBool,
}

impl Cell {
    pub(crate) fn new(start: u64) -> Self {
        Self {
            pos: AtomicU64::new(start),
            end: AtomicU64::new(u64::MAX),
            received: AtomicU64::new(0),
            limited: AtomicBool::new(false),
            outgrown: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }
    }
}

/// What a data thread tells the control thread.
#[derive(Debug)]
pub(crate) enum Report {
    /// The head of an answer; its body waits for the verdict.
    Head { answer: Box<Answer>, verdict: oneshot::Sender<Verdict> },
    /// It is over.
    Ended { end: End, pos: u64, received: u64 },
}

/// What becomes of an answer whose head was told.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Take the body.
    Accept { body: BodyPlan, target: Target, version: Option<Version>, loan: Loan },
    /// It is not wanted.
    Drop,
}

/// Names one launch of a fetch. A segment may be launched again, and numbers of segments begin anew
/// when a download does; a launch is never repeated, so no late report is taken for another's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FetchId {
    pub(crate) download: DownloadId,
    pub(crate) segment: SegmentId,
    pub(crate) launch: u64,
}

/// Where reports go.
pub(crate) type Reporter = Box<dyn Fn(FetchId, Report) + Send + Sync>;

/// One request to send.
pub(crate) struct Job {
    pub(crate) id: FetchId,
    pub(crate) url: Url,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) connect_timeout: Duration,
    /// The most bytes that the file may have.
    pub(crate) max_size: Option<u64>,
    pub(crate) cell: Arc<Cell>,
    /// How many bytes all fetches of this download may write before its disk is looked at again, where there was
    /// not found to be room for the whole.
    pub(crate) granted: Arc<AtomicU64>,
    pub(crate) report: Arc<Reporter>,
}

impl Job {
    /// The host by whose limits it goes.
    fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }
}

/// Carries out one request to its end. Dropping the future closes the connection; no byte is in
/// flight then, since writes happen inside a poll.
pub(crate) async fn run(job: Job, shared: Arc<Shared>) {
    // Whatever happens here, a panic of ours included, the control thread hears of the end.
    let guard = Guard { job: &job, told: false };
    let mut kept = None;
    let end = match fetch(&job, &shared, &mut kept).await {
        Ok(end) => end,
        Err(stop) => Some(stop.into_end()),
    };
    guard.tell(end);
    // The file is returned before the rest of a body is waited for.
    drop(job);
    if let Some(kept) = kept {
        kept.make_reusable(&shared).await;
    }
}

struct Guard<'a> {
    job: &'a Job,
    told: bool,
}

impl Guard<'_> {
    fn tell(mut self, end: Option<End>) {
        self.told = true;
        if let Some(end) = end {
            self.report(end);
        }
    }

    fn report(&self, end: End) {
        let cell = &self.job.cell;
        let (pos, received) = (cell.pos.load(Ordering::Relaxed), cell.received.load(Ordering::Relaxed));
        (self.job.report)(self.job.id, Report::Ended { end, pos, received });
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.told && std::thread::panicking() {
            self.report(End::Failed(Failure::new(Code::Internal, "a fetch of ours broke; nothing was lost")));
        }
    }
}

/// Why a body is not read on.
enum Stop {
    /// It came to where it was to stop.
    AtEnd,
    /// All came that the head had announced, and more.
    Excess,
    Differs(u64),
    Failed(Failure),
}

impl Stop {
    fn into_end(self) -> End {
        match self {
            Self::AtEnd | Self::Excess => End::Failed(Failure::new(Code::Internal, "an end that is none")),
            Self::Differs(at) => End::Differs { at },
            Self::Failed(failure) => End::Failed(failure),
        }
    }
}

impl From<FetchError> for Stop {
    fn from(error: FetchError) -> Self {
        Self::Failed(error.failure())
    }
}

/// A connection after its answer.
struct Kept {
    connection: Connection,
    endpoint: Endpoint,
    body: Body,
    /// Nothing is limited, so what is left of the body may be read at once.
    drains: bool,
}

impl Kept {
    /// Reads what little is left of the body, so that the connection can carry another request.
    async fn make_reusable(mut self, shared: &Shared) {
        let small =
            self.body.length().is_some_and(|length| length - self.body.received().min(length) <= DRAIN);
        if !self.body.is_done() && small && self.drains {
            let _ = tokio::time::timeout(DRAIN_FOR, self.drain()).await;
        }
        if self.body.is_reusable() {
            shared.keep_idle(&self.endpoint, self.connection);
        }
    }

    async fn drain(&mut self) {
        while !self.body.is_done() {
            let Self { connection: Connection { stream, .. }, body, .. } = self;
            let going = poll_fn(|cx| {
                with_buffers(|Buffers { read, .. }| {
                    let most = usize::try_from(DRAIN).unwrap_or(read.len()).min(read.len());
                    let mut room = ReadBuf::new(&mut read[..most]);
                    Pin::new(&mut *stream).poll_read(cx, &mut room).map(|result| {
                        let filled = room.filled_mut();
                        let some = result.is_ok() && !filled.is_empty();
                        // More than the body is nothing that we asked for.
                        let all = filled.len();
                        some && body.compact(filled).is_ok_and(|step| step.consumed == all)
                    })
                })
            })
            .await;
            if !going {
                return;
            }
        }
    }
}

/// The whole of one request; `Ok(None)` if its answer was not wanted.
async fn fetch(job: &Job, shared: &Shared, kept: &mut Option<Kept>) -> Result<Option<End>, Stop> {
    let endpoint = Endpoint::of(&job.url)?;
    // Before it connects, so that those who connect at the same time know of each other.
    let mut limit = shared.limiter.register(job.id.download, job.host());
    let (mut connection, head, buffer) = ask(job, shared, &endpoint, limit.share()).await?;
    let now =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(0));
    let answer = Answer::parse(head.status, head.http10, &head.headers, now);
    let mut body = Body::of(&head)?;
    let announced_end = announced_end(&answer);
    drop(head);

    let (sender, verdict) = oneshot::channel();
    (job.report)(job.id, Report::Head { answer: Box::new(answer), verdict: sender });
    let verdict = verdict.await.unwrap_or(Verdict::Drop);
    // It has been read, head and all, and is accounted for before anything else is.
    let mut owed = buffer.taken();
    while owed > 0 {
        owed -= may_read(&mut limit, &job.cell, owed).await.min(owed);
    }
    let drains = !limit.is_limited();
    let mut leftover = buffer.into_leftover();
    let Verdict::Accept { body: plan, target, version, loan: _loan } = verdict else {
        // Whatever is wrong with the rest of it, it is not wanted, and nobody is to hear of it.
        if body.compact(&mut leftover).is_ok_and(|step| step.consumed == leftover.len()) {
            *kept = Some(Kept { connection, endpoint, body, drains });
        }
        return Ok(None);
    };

    if plan.doubtful && plan.write {
        // The map is held by whoever saves it, and so for as long as the disk takes.
        shared.writing(|| target.doubt(version));
    }
    let mut writer = Writer::new(job, shared, limit, &plan, (target, version), announced_end);
    let end = writer.take_body(&mut connection, &mut body, &mut leftover).await?;
    if let Some(socket) = connection.stream.socket() {
        writer.gather.stop(socket);
    }
    *kept = Some(Kept { connection, endpoint, body, drains });
    Ok(Some(end))
}

/// Sends the request over a kept or a new connection, and reads the head of the answer.
async fn ask(
    job: &Job,
    shared: &Shared,
    endpoint: &Endpoint,
    share: Option<u64>,
) -> Result<(Connection, Head, HeadBuffer), Stop> {
    let mut kept = shared.take_idle(endpoint, share);
    loop {
        let reused = kept.is_some();
        let mut connection = match kept.take() {
            Some(kept) => kept,
            None => {
                let options = ConnectOptions { timeout: job.connect_timeout, share };
                let Connected { stream, form, window, .. } =
                    connect(&shared.network, endpoint, options).await?;
                Connection { stream, form, window }
            }
        };
        let Connection { stream, form, .. } = &mut connection;
        let mut headers = job.headers.clone();
        let for_the_proxy = form.proxy_authorization();
        headers.extend(for_the_proxy.map(|value| ("Proxy-Authorization".to_owned(), value.to_owned())));
        let line = RequestLine { url: &job.url, absolute_form: form.is_absolute() };
        let request = encode_request(&line, &headers)?;
        let mut buffer = HeadBuffer::new(reused).sparing(share.is_some());
        let sent = async {
            stream.write_all(&request).await?;
            stream.flush().await
        };
        let outcome = match sent.await {
            Ok(()) => read_head(stream, &endpoint.host, &mut buffer).await,
            Err(error) => Err(FetchError::from_io(error, &endpoint.host, reused, true)),
        };
        match outcome {
            Ok(head) => return Ok((connection, head, buffer)),
            // The server had closed a kept connection: that says nothing of the server.
            Err(error) if error.was_idle_close() => kept = shared.take_idle(endpoint, share),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Where the part that an answer brings ends in the file, if it brings a part. The framing of a body need not
/// agree: chunks go on for as long as the server likes.
fn announced_end(answer: &Answer) -> Option<u64> {
    let range = answer.content_range.as_ref()?.as_ref().ok()?;
    range.span().filter(|_| answer.status == 206 && answer.codings.is_empty()).map(|span| span.end())
}

/// A decoder, if the body is coded. Unknown codings were refused with the head.
fn decoder_for(codings: &[tidegate_core::headers::Coding]) -> Option<Decoder> {
    use tidegate_core::headers::Coding as Named;
    let known: Vec<Coding> = codings
        .iter()
        .filter_map(|coding| match coding {
            Named::Gzip => Some(Coding::Gzip),
            Named::Deflate => Some(Coding::Deflate),
            Named::Brotli => Some(Coding::Brotli),
            Named::Zstd => Some(Coding::Zstd),
            Named::Unknown(_) => None,
        })
        .collect();
    (!known.is_empty()).then(|| Decoder::new(&known, Some(MOST_DECODED)))
}

/// The file has, or would have, more bytes than it may.
pub(crate) fn too_large(length: Option<u64>, most: u64) -> Failure {
    let most = show_size(most);
    let message = match length {
        Some(length) => format!("the file has {}, and --max-size allows {most}", show_size(length)),
        None => format!("the server goes on sending after {most}, and --max-size allows no more"),
    };
    Failure::new(Code::TooLarge, message)
}

fn only_the_reserve_is_left(target: &Target) -> Failure {
    let message = format!(
        "the server does not say how long the file is, and {} fills the disk up to what is kept for others; make \
         room there, then resume: everything is kept",
        target.place().display()
    );
    Failure::new(Code::DiskFull, message)
}

/// How many of `want` bytes may be read now. Says meanwhile that it is not the network that is silent.
async fn may_read(limit: &mut ConnectionLimit, cell: &Cell, want: usize) -> usize {
    let take = limit.take(want);
    tokio::pin!(take);
    poll_fn(|cx| {
        let polled = take.as_mut().poll(cx);
        cell.limited.store(polled.is_pending(), Ordering::Relaxed);
        polled
    })
    .await
}

/// How the next bytes are to be taken.
enum Next {
    /// Not at all: this fetch is where it is to stop.
    End,
    /// Through the buffer.
    Read,
    /// Through the pipe, at most so many.
    Splice(usize),
}

/// Puts the content of one body where it belongs.
struct Writer<'a> {
    job: &'a Job,
    shared: &'a Shared,
    /// Where its bytes belong, as it was when the answer was accepted: not always what it was when the
    /// request was sent.
    target: Target,
    version: Option<Version>,
    limit: ConnectionLimit,
    gather: Gather,
    decoder: Option<Decoder>,
    /// The offset of the next byte of content.
    at: u64,
    /// Where the part ends that the head announced; what comes after that is nothing.
    announced_end: u64,
    seam: u64,
    write: bool,
    splice: bool,
    /// There is room for the whole file, as was found before its first byte.
    measured: bool,
    /// The byte of which alone everything so far consisted.
    flat: Option<u8>,
    any: bool,
    is_flat: bool,
}

impl<'a> Writer<'a> {
    fn new(
        job: &'a Job,
        shared: &'a Shared,
        limit: ConnectionLimit,
        plan: &BodyPlan,
        (target, version): (Target, Option<Version>),
        announced_end: Option<u64>,
    ) -> Self {
        Self {
            job,
            shared,
            target,
            version,
            limit,
            gather: Gather::new(),
            decoder: decoder_for(&plan.codings),
            at: plan.offset,
            announced_end: announced_end.unwrap_or(u64::MAX),
            seam: plan.seam,
            write: plan.write,
            splice: shared.splice,
            measured: plan.measured,
            flat: None,
            any: false,
            is_flat: true,
        }
    }

    async fn take_body(
        &mut self,
        connection: &mut Connection,
        body: &mut Body,
        leftover: &mut Vec<u8>,
    ) -> Result<End, Stop> {
        self.job.cell.pos.store(self.at, Ordering::Relaxed);
        let mut first = std::mem::take(leftover);
        let mut outcome = with_buffers(|buffers| self.take(body, &mut first, &mut buffers.compare));
        drop(first);
        let mut turn = self.job.cell.received.load(Ordering::Relaxed);
        loop {
            match outcome {
                Ok(()) if body.is_done() => return self.finish(true),
                Ok(()) => {}
                Err(Stop::AtEnd) => return self.finish(body.is_done()),
                Err(Stop::Excess) => {
                    body.do_not_reuse();
                    return self.finish(true);
                }
                Err(stop) => return Err(stop),
            }
            let received = self.job.cell.received.load(Ordering::Relaxed);
            if received.saturating_sub(turn) >= TURN || self.job.cell.over.load(Ordering::Relaxed) {
                turn = received;
                tokio::task::yield_now().await;
            }
            self.fit_window(connection);
            let stream = &mut connection.stream;
            let next = self.next(stream, body)?;
            if matches!(next, Next::End) {
                return self.finish(body.is_done());
            }
            // A coded body can grow a thousandfold: less at a time, so that the thread is not held up.
            let want = if self.decoder.is_some() { CODED } else { BUFFER };
            let allowed = may_read(&mut self.limit, &self.job.cell, want).await;
            let read = match next {
                Next::Splice(most) => self.splice(stream, body, allowed, most).await,
                Next::Read | Next::End => self.read(stream, body, allowed).await,
            };
            outcome = match read {
                Ok(ControlFlow::Continue(result)) => result,
                Ok(ControlFlow::Break(())) => {
                    body.on_eof()?;
                    return self.finish(true);
                }
                Err(error) => {
                    return Err(FetchError::from_io(error, self.job.host(), false, false).into());
                }
            };
        }
    }

    /// Lets the window of a connection that was opened under a limit grow with its share.
    fn fit_window(&mut self, connection: &mut Connection) {
        let Connection { stream, window: Some(window), .. } = connection else { return };
        let Some((share, socket)) = self.limit.new_share().zip(stream.socket()) else { return };
        let outgrown = !window.fit(socket, share);
        self.job.cell.outgrown.store(outgrown, Ordering::Relaxed);
    }

    /// One read into the shared buffer, and what it brought at once to the disk, inside the poll: the
    /// buffer is free again for the next connection before this returns. `Break` is an orderly end.
    async fn read(
        &mut self,
        stream: &mut Stream,
        body: &mut Body,
        allowed: usize,
    ) -> io::Result<ControlFlow<(), Result<(), Stop>>> {
        poll_fn(|cx| {
            with_buffers(|Buffers { read, compare, .. }| {
                let most = allowed.min(read.len());
                let mut room = ReadBuf::new(&mut read[..most]);
                let polled = Pin::new(&mut *stream).poll_read(cx, &mut room);
                let filled = room.filled_mut();
                match polled {
                    Poll::Pending => {
                        if let Some(socket) = stream.socket() {
                            self.gather.wait(socket, cx);
                        }
                        Poll::Pending
                    }
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                    Poll::Ready(Ok(())) if filled.is_empty() => Poll::Ready(Ok(ControlFlow::Break(()))),
                    Poll::Ready(Ok(())) => {
                        self.limit.give_back(allowed - filled.len());
                        if let Some(socket) = stream.socket() {
                            let to_come = self.to_come(body).saturating_sub(filled.len() as u64);
                            self.gather.read(socket, filled.len(), to_come, self.limit.is_limited());
                        }
                        Poll::Ready(Ok(ControlFlow::Continue(self.take(body, filled, compare))))
                    }
                }
            })
        })
        .await
    }

    /// What to do for the next bytes.
    fn next(&mut self, stream: &Stream, body: &Body) -> Result<Next, Stop> {
        let end = self.job.cell.end.load(Ordering::Relaxed);
        // The map is held by whoever saves it, and so for as long as the disk takes.
        let gap = match self.shared.writing(|| self.target.here(self.at)) {
            Here::Known(_) | Here::Gone(_) if self.at >= end.saturating_add(self.seam) => {
                return Ok(Next::End);
            }
            Here::Known(_) | Here::Gone(_) => return Ok(Next::Read),
            Here::Missing(_) if !self.write || self.at >= end => return Ok(Next::End),
            Here::Missing(gap) => gap,
        };
        // Content that goes into a part file as it comes need not be seen.
        let run = body.run().unwrap_or(u64::MAX);
        let plain = self.splice && self.decoder.is_none() && stream.tcp().is_some();
        if !plain || run < LEAST_SPLICED || !matches!(self.target, Target::Part { .. }) {
            return Ok(Next::Read);
        }
        // Whatever comes beyond these is looked at before it is judged.
        let bound = gap.min(end).min(self.announced_end).saturating_sub(self.at).min(self.growth()?);
        Ok(match bound.min(run).min(splice::MOST as u64) {
            0 => Next::Read,
            most => Next::Splice(usize::try_from(most).unwrap_or(splice::MOST)),
        })
    }

    /// How many more bytes this fetch wants and the server has announced, at least. Chunks and the end of a
    /// connection announce nothing.
    fn to_come(&self, body: &Body) -> u64 {
        let announced = body.length().map_or(0, |length| length.saturating_sub(body.received()));
        let end = self.job.cell.end.load(Ordering::Relaxed);
        announced.min(end.saturating_sub(self.at))
    }

    /// How many bytes from here on may still go into the file unseen. Asked again right before they do: while
    /// this fetch waited, another may have brought them, or the end may have been moved.
    fn missing(&self) -> usize {
        let Here::Missing(gap) = self.shared.writing(|| self.target.here(self.at)) else { return 0 };
        let end = self.job.cell.end.load(Ordering::Relaxed);
        let count = gap.min(end).min(self.announced_end).saturating_sub(self.at);
        let granted = if self.measured { u64::MAX } else { self.job.granted.load(Ordering::Relaxed) };
        let count = count.min(granted);
        usize::try_from(count).unwrap_or(usize::MAX)
    }

    /// As [`Writer::read`], by way of this thread's pipe, and at most `most` bytes: fewer if fewer are missing by
    /// then, and none, with nothing decided, if none are.
    async fn splice(
        &mut self,
        stream: &mut Stream,
        body: &mut Body,
        allowed: usize,
        most: usize,
    ) -> io::Result<ControlFlow<(), Result<(), Stop>>> {
        // By `move`, since a connection may be sent to another thread but not shared with one.
        poll_fn(move |cx| {
            let Some(socket) = stream.tcp() else {
                return Poll::Ready(Err(io::ErrorKind::Unsupported.into()));
            };
            loop {
                let Poll::Ready(is_ready) = socket.poll_read_ready(cx) else {
                    self.gather.wait(socket, cx);
                    return Poll::Pending;
                };
                is_ready?;
                let wanted = most.min(allowed).min(self.missing());
                if wanted == 0 {
                    self.limit.give_back(allowed);
                    return Poll::Ready(Ok(ControlFlow::Continue(Ok(()))));
                }
                let moved = with_buffers(|buffers| {
                    let pipe = match buffers.pipe.take() {
                        Some(pipe) => pipe,
                        None => Pipe::new()?,
                    };
                    let fill = || pipe.fill(socket.as_fd(), wanted);
                    let count = match socket.try_io(Interest::READABLE, fill) {
                        Ok(count) => count,
                        Err(error) => {
                            // Nothing went in.
                            buffers.pipe = Some(pipe);
                            return Err(error);
                        }
                    };
                    self.limit.give_back(allowed - count);
                    let to_come = self.to_come(body).saturating_sub(count as u64);
                    self.gather.read(socket, count, to_come, self.limit.is_limited());
                    if count < wanted {
                        self.gather.taken(socket);
                    }
                    self.job.cell.received.fetch_add(count as u64, Ordering::Relaxed);
                    body.advance(count as u64);
                    let (target, version, at) = (&self.target, self.version, self.at);
                    let put = || target.splice_at(version, at, pipe.reader(), count);
                    let outcome = match count {
                        0 => Ok(()),
                        _ => self.shared.writing(put),
                    };
                    // Only an empty pipe is used again.
                    if outcome.is_ok() {
                        buffers.pipe = Some(pipe);
                    }
                    Ok((count, outcome))
                });
                return Poll::Ready(match moved {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                    Err(error) => Err(error),
                    Ok((0, _)) => Ok(ControlFlow::Break(())),
                    Ok((_, Err(failure))) => Ok(ControlFlow::Continue(Err(Stop::Failed(failure)))),
                    Ok((count, Ok(()))) => {
                        self.grew(count as u64);
                        Ok(ControlFlow::Continue(Ok(())))
                    }
                });
            }
        })
        .await
    }

    /// Takes what one read brought: framing away, content to its place.
    fn take(&mut self, body: &mut Body, bytes: &mut [u8], compare: &mut [u8]) -> Result<(), Stop> {
        let step = body.compact(bytes)?;
        if step.consumed < bytes.len() {
            // Bytes after the end of the answer would be read as the beginning of the next.
            body.do_not_reuse();
        }
        let content = &bytes[..step.content];
        self.job.cell.received.fetch_add(step.content as u64, Ordering::Relaxed);
        let Some(mut decoder) = self.decoder.take() else {
            return self.place(content, compare);
        };
        let mut stop = None;
        let fed = decoder.feed(content, &mut |decoded| {
            self.place(decoded, compare).map_err(|reason| {
                stop = Some(reason);
                io::ErrorKind::Other.into()
            })
        });
        self.decoder = Some(decoder);
        match (stop, fed) {
            (Some(stop), _) => Err(stop),
            (None, Err(error)) => Err(FetchError::from(error).into()),
            (None, Ok(())) => Ok(()),
        }
    }

    /// Compares what is here, writes what is missing, up to where this fetch is to stop.
    fn place(&mut self, mut bytes: &[u8], compare: &mut [u8]) -> Result<(), Stop> {
        self.note_flat(bytes);
        while !bytes.is_empty() {
            if self.at >= self.announced_end {
                return Err(Stop::Excess);
            }
            let end = self.job.cell.end.load(Ordering::Relaxed);
            // The map is held by whoever saves it, and so for as long as the disk takes.
            let here = self.shared.writing(|| self.target.here(self.at));
            let (until, stop_at) = match here {
                Here::Known(until) | Here::Gone(until) => (until, end.saturating_add(self.seam)),
                Here::Missing(until) if self.write => (until, end),
                // Only comparing, and there is nothing to compare with.
                Here::Missing(_) => return Err(Stop::AtEnd),
            };
            let until = until.min(stop_at).min(self.announced_end);
            if self.at >= until {
                return Err(Stop::AtEnd);
            }
            let until = match here {
                Here::Known(_) | Here::Gone(_) => until,
                Here::Missing(_) => until.min(self.at.saturating_add(self.growth()?)),
            };
            if self.at >= until {
                let most = self.job.max_size.unwrap_or(until);
                return Err(Stop::Failed(too_large(None, most)));
            }
            let count = usize::try_from(until - self.at).unwrap_or(usize::MAX).min(bytes.len());
            let (now, rest) = bytes.split_at(count);
            match here {
                Here::Known(_) => {
                    self.compare(now, compare)?;
                    self.passed(count as u64);
                }
                Here::Gone(_) => self.passed(count as u64),
                Here::Missing(_) => {
                    let (target, version, at) = (&self.target, self.version, self.at);
                    let written = self.shared.writing(|| target.write_at(version, at, now));
                    written.map_err(Stop::Failed)?;
                    self.grew(count as u64);
                }
            }
            bytes = rest;
        }
        Ok(())
    }

    /// How many bytes may be written from here on before this is asked again: a body without a length may
    /// never end. None at all where the file has every byte that it may have.
    fn growth(&mut self) -> Result<u64, Stop> {
        let allowed = self.job.max_size.map_or(u64::MAX, |most| most.saturating_sub(self.at));
        if self.measured {
            return Ok(allowed);
        }
        let mut granted = self.job.granted.load(Ordering::Relaxed);
        if granted == 0 {
            let target = &self.target;
            granted = match self.shared.writing(|| target.room()) {
                None => u64::MAX,
                Some(room) => room.grant().ok_or_else(|| Stop::Failed(only_the_reserve_is_left(target)))?,
            };
            self.job.granted.store(granted, Ordering::Relaxed);
        }
        Ok(allowed.min(granted))
    }

    /// So many bytes were written.
    fn grew(&mut self, bytes: u64) {
        // Nobody else changes it meanwhile: all fetches of a download are on one thread.
        let left = self.job.granted.load(Ordering::Relaxed).saturating_sub(bytes);
        self.job.granted.store(left, Ordering::Relaxed);
        self.passed(bytes);
    }

    /// So many bytes are on the disk, or equal to what was there.
    fn passed(&mut self, bytes: u64) {
        self.at += bytes;
        self.job.cell.pos.store(self.at, Ordering::Relaxed);
    }

    fn compare(&self, bytes: &[u8], buffer: &mut [u8]) -> Result<(), Stop> {
        let mut at = self.at;
        for part in bytes.chunks(buffer.len()) {
            let room = &mut buffer[..part.len()];
            let read = self.shared.writing(|| self.target.read_at(at, room)).map_err(|error| {
                Stop::Failed(crate::landing::disk_failure(
                    "read",
                    std::path::Path::new("the part file"),
                    &error,
                ))
            })?;
            if let Some(first) = (0..part.len()).find(|i| *i >= read || room[*i] != part[*i]) {
                return Err(Stop::Differs(at + first as u64));
            }
            at += part.len() as u64;
        }
        Ok(())
    }

    fn note_flat(&mut self, bytes: &[u8]) {
        // Only of interest where nothing but comparing is done.
        if self.write || !self.is_flat || bytes.is_empty() {
            return;
        }
        let byte = *self.flat.get_or_insert(bytes[0]);
        self.any = true;
        self.is_flat = bytes.iter().all(|b| *b == byte);
    }

    fn finish(&mut self, whole_body: bool) -> Result<End, Stop> {
        if let (Some(decoder), true) = (&mut self.decoder, whole_body) {
            decoder.finish().map_err(FetchError::from)?;
        }
        Ok(End::Finished { pos: self.at, whole_body, flat: self.any && self.is_flat })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::{Form, Network, NetworkConfig};
    use crate::data::DataThread;
    use crate::engine::Disk;
    use crate::http1::Framing;
    use crate::landing::{Begin, Landing, LandingRequest};
    use crate::limiter::RateLimiter;
    use crate::part_file::{Basis, PartFile};
    use std::io::Write;
    use std::path::{Path, PathBuf};
    use tidegate_core::Identity;
    use tidegate_core::message::Limits;
    use tidegate_core::request::{Options, Resume};

    const LENGTH: u64 = 1 << 20;

    fn landing(dir: &Path, url: &Url, length: u64) -> (Landing, Version) {
        let request = LandingRequest {
            dir: dir.to_owned(),
            name: PathBuf::from("f"),
            explicit_name: false,
            url: url.clone(),
            resume: Resume::Auto,
            adopt: None,
        };
        let mut landing = Landing::open(request).unwrap();
        let identity = Identity { length: Some(length), ..Identity::default() };
        match landing.begin(&identity, "f".as_ref(), Basis::Nothing, &Options::default()).unwrap() {
            Begin::Fetch(version) => (landing, version),
            begun => panic!("{begun:?}"),
        }
    }

    /// A fetch whose answer has begun: what moves it, and what the server writes into.
    struct Begun {
        _folder: tempfile::TempDir,
        part: Arc<PartFile>,
        version: Version,
        job: Job,
        thread: DataThread,
        target: Target,
        server: std::net::TcpStream,
        connection: Connection,
    }

    fn begin(length: u64, splice: bool) -> Begun {
        let folder = tempfile::tempdir().unwrap();
        let url = Url::parse("http://127.0.0.1/f").unwrap();
        let (landing, version) = landing(folder.path(), &url, length);
        let part = Arc::clone(landing.part());
        let network = Network::new(NetworkConfig::default()).unwrap();
        let limiter = RateLimiter::new(&Limits::default());
        let thread = DataThread::start(Disk::Nowhere, network, limiter, splice, &Arc::default()).unwrap();
        let job = Job {
            id: FetchId { download: DownloadId(1), segment: SegmentId(1), launch: 1 },
            url,
            headers: Vec::new(),
            connect_timeout: Duration::from_secs(1),
            max_size: None,
            cell: Arc::new(Cell::new(0)),
            granted: Arc::default(),
            report: Arc::new(Box::new(|_, _| {})),
        };
        let (part_of, path) = (Arc::clone(&part), Arc::new(landing.part_path()));
        let target = Target::Part { part: part_of, path, only_to_read: false };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (client, _) = listener.accept().unwrap();
        client.set_nonblocking(true).unwrap();
        let stream = Stream::from(tokio::net::TcpStream::from_std(client).unwrap());
        let connection = Connection { stream, form: Form::Origin, window: None };
        Begun { _folder: folder, part, version, job, thread, target, server, connection }
    }

    fn plan(length: u64) -> BodyPlan {
        BodyPlan {
            offset: 0,
            end: length,
            seam: 0,
            write: true,
            doubtful: false,
            measured: true,
            codings: Vec::new(),
        }
    }

    #[tokio::test]
    async fn what_another_fetch_brought_meanwhile_is_compared_and_not_written_over() {
        let mut begun = begin(LENGTH, true);
        let Begun { part, version, job, thread, target, connection, server, .. } = &mut begun;
        let (plan, target) = (plan(LENGTH), (target.clone(), Some(*version)));
        let mut body = Body::new(Framing::Length(LENGTH));
        let limit = thread.shared.limiter.register(job.id.download, job.host());
        let mut writer = Writer::new(job, &thread.shared, limit, &plan, target, None);
        // It is decided how many bytes go on unseen, and then it waits. Meanwhile others come to lie there.
        let Ok(Next::Splice(most)) = writer.next(&connection.stream, &body) else {
            panic!("by way of memory")
        };
        part.write_at(*version, 0, &[1; 1000]).unwrap();
        server.write_all(&[2; 1000]).unwrap();
        let gone_by = writer.splice(&mut connection.stream, &mut body, BUFFER, most).await.unwrap();
        assert!(matches!(gone_by, ControlFlow::Continue(Ok(()))));
        let mut here = [0; 1000];
        part.read_at(0, &mut here).unwrap();
        assert_eq!(here, [1; 1000]);
        // Looked at, they are found to differ.
        let met = writer.take_body(connection, &mut body, &mut Vec::new()).await;
        assert!(matches!(met, Err(Stop::Differs(0))));
    }

    #[tokio::test]
    async fn a_server_that_is_always_ahead_does_not_keep_the_thread_to_itself() {
        const MUCH: usize = 64 << 20;
        for splice in [true, false] {
            let length = MUCH as u64;
            let mut begun = begin(length, splice);
            let Begun { version, job, thread, target, connection, server, .. } = &mut begun;
            let shared = &thread.shared;
            let (plan, target) = (plan(length), (target.clone(), Some(*version)));
            let mut body = Body::new(Framing::Length(length));
            let limit = shared.limiter.register(job.id.download, job.host());
            let cell = Arc::clone(&job.cell);
            cell.end.store(length, Ordering::Relaxed);
            let mut writer = Writer::new(job, shared, limit, &plan, target, None);
            let mut server = server.try_clone().unwrap();
            let serving = std::thread::spawn(move || server.write_all(&vec![7; MUCH]).unwrap());
            let received = || cell.received.load(Ordering::Relaxed);
            let mut leftover = Vec::new();
            let mut taking = std::pin::pin!(writer.take_body(connection, &mut body, &mut leftover));
            // Of what nobody wants any more nothing is taken.
            cell.over.store(true, Ordering::Relaxed);
            let pending = poll_fn(|cx| Poll::Ready(taking.as_mut().poll(cx).is_pending())).await;
            assert!(pending);
            assert_eq!(received(), 0);
            cell.over.store(false, Ordering::Relaxed);
            let end = poll_fn(|cx| {
                let before = received();
                let polled = taking.as_mut().poll(cx);
                assert!(received() - before < TURN + BUFFER as u64, "{} bytes at once", received() - before);
                polled
            });
            assert!(end.await.is_ok());
            assert_eq!(received(), length);
            serving.join().unwrap();
        }
    }

    #[tokio::test]
    async fn little_that_comes_after_much_does_not_wait_for_more() {
        const FAST: usize = 8 << 20;
        const LITTLE: usize = 1000;
        for splice in [true, false] {
            let length = 64 << 20;
            let mut begun = begin(length, splice);
            let Begun { version, job, thread, target, connection, server, .. } = &mut begun;
            let shared = &thread.shared;
            let (plan, target) = (plan(length), (target.clone(), Some(*version)));
            let mut body = Body::new(Framing::Length(length));
            let limit = shared.limiter.register(job.id.download, job.host());
            let cell = Arc::clone(&job.cell);
            let mut writer = Writer::new(job, shared, limit, &plan, target, None);
            let mut server = server.try_clone().unwrap();
            let (sender, sent) = std::sync::mpsc::sync_channel(1);
            let serving = std::thread::spawn(move || {
                server.write_all(&vec![7; FAST]).unwrap();
                let () = sent.recv().unwrap();
                server.write_all(&[7; LITTLE]).unwrap();
                server
            });
            let received = || cell.received.load(Ordering::Relaxed) as usize;
            let mut leftover = Vec::new();
            let mut taking = std::pin::pin!(writer.take_body(connection, &mut body, &mut leftover));
            for (until, then) in [(FAST, true), (FAST + LITTLE, false)] {
                poll_fn(|cx| {
                    assert!(taking.as_mut().poll(cx).is_pending(), "there is more to come");
                    if received() == until { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                if then {
                    sender.send(()).unwrap();
                }
            }
            drop(serving.join().unwrap());
        }
    }
}
