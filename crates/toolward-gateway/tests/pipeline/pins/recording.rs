//! Changed definitions are recorded before anyone sees their effect.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_change_is_recorded_before_the_client_sees_the_list_or_else_with_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = lock(folder.path(), ListKind::Tools, &[tool("echo", "Echoes.")]);
    for kind in Kind::ALL {
        let server = Server::both(&[]);
        server.set_tools(vec![tool("echo", "Echoes."), tool("fresh", "New.")]);
        let gate = gate(&pinned("classify"), &server).lock(&file).start();
        let client = gate.client(kind).await;
        gate.break_audit();
        let unrecorded = client.request("tools/list", json!({})).await;
        assert!(!unrecorded.to_string().contains("fresh"), "{kind:?}: {unrecorded}");
        gate.repair_audit();
        assert_eq!(client.list().await, ["s__echo"], "{kind:?}");
        // Read at once: no time passes in which a record could be written later.
        let log = std::fs::read_to_string(gate.audit_dir().join("audit.jsonl")).unwrap();
        let changes = log.lines().filter(|line| line.contains(r#""kind":"pin-change""#));
        assert_eq!(changes.count(), 1, "{kind:?}: {log}");
    }
}
