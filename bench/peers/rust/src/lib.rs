//! A worker that does as little as its features say. What it costs is what the `worker` crate costs.

use worker::{Context, Env, Request, Response, Result, event};

/// The bindings' names and the key, as the bench configures them for all peers.
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

/// After the answer, as the edge does it. The crate has no content type for bytes; a text costs no more.
#[cfg(feature = "queue")]
fn send(env: &Env, ctx: &Context) -> Result<()> {
    use worker::{QueueContentType, RawMessageBuilder};

    let queue = env.queue("FACTS")?;
    // The bench says how long the edge's own message is.
    let bytes = env.var("MESSAGE_BYTES")?.to_string().parse().map_err(|_| "MESSAGE_BYTES is not a number")?;
    ctx.wait_until(async move {
        let message = RawMessageBuilder::new("x".repeat(bytes).into()).build_with_content_type(QueueContentType::Text);
        // A message that is not taken shows itself when the bench counts them.
        let _ = queue.send_raw(message).await;
    });
    Ok(())
}
