//! Cross-origin requests of web pages (CORS).

use toolward_wire::http::{Method, RequestHead};

use super::response::Response;
use crate::active::reachable::Reachable;

/// Headers that a page may send besides the CORS-safelisted ones; requested `Mcp-Param-*` headers are
/// added.
const SENT: &str = "Accept, Authorization, Content-Type, Last-Event-ID, MCP-Protocol-Version, \
    Mcp-Method, Mcp-Name, Mcp-Session-Id";
/// Response headers that a page may read.
const READ: &str = "Mcp-Session-Id, WWW-Authenticate, Retry-After";
/// How long a browser may cache the preflight response, in seconds.
const REMEMBERED: &str = "600";

/// The origin of the web page that sent a request, if it may read the response.
pub(super) fn page(reachable: &Reachable, head: &RequestHead) -> Option<String> {
    let origin = head.headers.get("origin")?;
    reachable.may_read(origin).then(|| origin.into())
}

/// The response to a CORS preflight request.
pub(super) fn preflight(reachable: &Reachable, head: &RequestHead) -> Option<Response> {
    page(reachable, head)?;
    if head.method != Method::Options || head.headers.count("access-control-request-method") == 0 {
        return None;
    }
    let asked = head.headers.get("access-control-request-headers").unwrap_or_default();
    let marks = asked.split(',').map(str::trim).filter(|name| {
        let name = name.to_ascii_lowercase();
        let rest = name.strip_prefix("mcp-param-");
        rest.is_some_and(|rest| rest.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-'))
    });
    let sent = marks.fold(SENT.to_string(), |sent, mark| sent + ", " + mark);
    Some(
        Response::empty(204)
            .field("Access-Control-Allow-Methods", "GET, POST, DELETE")
            .field("Access-Control-Allow-Headers", sent)
            .field("Access-Control-Max-Age", REMEMBERED),
    )
}

/// Lets a page read a response. Cookies and other ambient credentials are never allowed.
pub(super) fn readable(response: Response, page: String) -> Response {
    response
        .field("Access-Control-Allow-Origin", page)
        .field("Access-Control-Expose-Headers", READ)
        .field("Vary", "Origin")
}
