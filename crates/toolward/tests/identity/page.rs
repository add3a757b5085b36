//! What the page about identities shows is what loads.

use std::process::Command;

#[test]
fn the_examples_of_the_page_load() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/identity.md");
    let page = std::fs::read_to_string(page).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("toolward.yaml");
    let mut blocks = 0;
    for block in page.split("```yaml\n").skip(1) {
        std::fs::write(&file, block.split("```").next().unwrap()).unwrap();
        let toolward = env!("CARGO_BIN_EXE_toolward");
        let checked = Command::new(toolward).arg("check").arg("-c").arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{block}\n{said}");
        blocks += 1;
    }
    assert!(blocks >= 5);
}
