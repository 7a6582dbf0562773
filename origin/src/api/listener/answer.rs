//! The body of an answer. The request counts as in progress until hyper has taken the whole body, in pieces.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::table::RequestUnderWay;

/// Most bytes that hyper takes at once. The request and its proof end with the last piece: if hyper took a large answer
/// as a whole, a slow reader's connection could be closed while the reader is still at the beginning.
const PIECE_BYTES: usize = 16 * 1024;

/// The body of an answer.
#[derive(Debug)]
pub(super) struct AnswerBody {
    inner: Body,
    /// Rest of the last piece.
    rest: Bytes,
    /// The request in progress; dropped with the body.
    _under_way: RequestUnderWay,
}

impl AnswerBody {
    pub(super) fn new(inner: Body, under_way: RequestUnderWay) -> Self {
        Self { inner, rest: Bytes::new(), _under_way: under_way }
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)).map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.rest = data,
                Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                None => return Poll::Ready(None),
            }
        }
        let piece = self.rest.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.inner.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
