//! `bundle`, `key` and `poll` of an entry of `policies`.

use crate::bundle::BundleKey;
use crate::config::BundleSource;
use crate::read::node::Node;
use crate::read::reader::Reader;
use crate::resolve::values::duration;

const POLL: std::time::Duration = std::time::Duration::from_secs(30);

/// The source of an entry of `policies`, if it is a bundle.
pub(crate) fn read(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<BundleSource> {
    let bundle = node.get("bundle");
    if node.as_map().is_some() && bundle.is_some() == node.get("file").is_some() {
        let message = "an entry of `policies` must have exactly one source";
        reader.error(node.span, message, "set either `file` or `bundle`");
        return None;
    }
    let Some(bundle) = bundle else {
        reader.reject_keys(node, &["key", "poll"], "only a bundle is fetched");
        return None;
    };
    let Some(written) = node.get("key") else {
        let help = "add `key`, with the public key that `toolward bundle keygen` printed";
        reader.error(bundle.span, "a bundle needs the key that verifies it", help);
        return None;
    };
    let key = match BundleKey::parse(written.as_str()?) {
        Ok(key) => key,
        Err(why) => {
            reader.error(written.span, "this is not a key", &why.to_string());
            return None;
        }
    };
    let url = bundle.as_str()?.to_owned();
    let poll = duration(node, "poll", POLL);
    Some(BundleSource { url, key, poll, mark: reader.mark(bundle.span) })
}
