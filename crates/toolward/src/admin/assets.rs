//! Embedded styles and scripts. They contain no data and are served without authentication.

use std::sync::OnceLock;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use toolward_gateway::downstream::response::{Content, Response};

pub(super) const PATH: &str = "/assets/";

const SCRIPT: &str = "text/javascript; charset=utf-8";
const ASSETS: [(&str, &str, &[u8]); 8] = [
    ("page.css", "text/css; charset=utf-8", include_bytes!("../../assets/page.css")),
    ("page.js", SCRIPT, include_bytes!("../../assets/page.js")),
    ("review.css", "text/css; charset=utf-8", include_bytes!("../../assets/review.css")),
    ("review.js", SCRIPT, include_bytes!("../../assets/review.js")),
    ("approvals.js", SCRIPT, include_bytes!("../../assets/approvals.js")),
    ("live.js", SCRIPT, include_bytes!("../../assets/live.js")),
    ("htmx.min.js", SCRIPT, include_bytes!("../../assets/htmx.min.js")),
    ("icon.svg", "image/svg+xml", include_bytes!("../../assets/icon.svg")),
];

/// The directory of all assets, named by a hash of their content: `assets/HASH/`.
pub(super) fn folder() -> String {
    static HASH: OnceLock<String> = OnceLock::new();
    let hash = HASH.get_or_init(|| {
        let mut hash = Sha256::new();
        ASSETS.iter().for_each(|(_, _, bytes)| hash.update(bytes));
        hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    });
    format!("assets/{hash}/")
}

pub(super) fn answer(path: &str) -> Response {
    let name = path.strip_prefix('/').and_then(|path| path.strip_prefix(folder().as_str()));
    let found = ASSETS.iter().find(|(asset, _, _)| Some(*asset) == name);
    match found {
        Some((_, kind, bytes)) => {
            // An asset never changes under its address.
            Response::new(200, Content::Bytes(kind, Bytes::from_static(bytes)))
                .field("Cache-Control", "private, max-age=31536000, immutable")
        }
        None => Response::empty(404),
    }
}
