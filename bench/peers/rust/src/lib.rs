//! A worker that does only the work of its features, so that its cost is the cost of the `worker` crate.

use worker::{Context, Env, Request, Response, Result, event};

/// The names of the bindings and the key, as the bench configures them for all peers.
#[cfg(feature = "read")]
const KEY: &str = "v:bench:01930000-0000-7000-8000-000000000001";

#[event(fetch)]
async fn fetch(_request: Request, _env: Env, _ctx: Context) -> Result<Response> {
    #[cfg(feature = "queue")]
    send(&_env, &_ctx)?;
    #[cfg(feature = "read")]
    return read(&_env).await;
    #[cfg(not(feature = "read"))]
    Response::ok("empty")
}

#[cfg(feature = "read")]
async fn read(env: &Env) -> Result<Response> {
    let value = env.kv("PROFILES")?.get(KEY).text().await?;
    Response::ok(value.map_or(0, |value| value.len()).to_string())
}

/// Sends the message after the answer, as the edge does. The crate has no content type for bytes; a text costs no more.
#[cfg(feature = "queue")]
fn send(env: &Env, ctx: &Context) -> Result<()> {
    use worker::{QueueContentType, RawMessageBuilder};

    let queue = env.queue("FACTS")?;
    // The bench passes the length of the edge's message.
    let bytes = env.var("MESSAGE_BYTES")?.to_string().parse().map_err(|_| "MESSAGE_BYTES is not a number")?;
    ctx.wait_until(async move {
        let message = RawMessageBuilder::new("x".repeat(bytes).into()).build_with_content_type(QueueContentType::Text);
        // An error is ignored, because the bench counts the messages.
        let _ = queue.send_raw(message).await;
    });
    Ok(())
}
