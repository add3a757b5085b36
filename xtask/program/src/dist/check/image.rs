//! The images: valid for other tools, and they run with the user and command of their configuration.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::dist::{Dist, Result, image, read, remove, run};

use super::gateway::Gateway;
use super::installed::{Installed, exchange, expect, parse};
use super::root::Root;

pub(super) fn check(dist: &Dist) -> Result<()> {
    let [small, large] = image::names(&dist.version);
    let folder = dist.stage.join("check-image");
    remove(&folder)?;
    let config = unpack(dist, &small, &folder.join("small"))?;
    let root = Root::new(&folder.join("small/bundle/rootfs"))?;
    runs(dist, &root, &config, &folder)?;
    drop(root);

    let config = unpack(dist, &large, &folder.join("large"))?;
    let root = Root::new(&folder.join("large/bundle/rootfs"))?;
    runs(dist, &root, &config, &folder)?;
    for (program, version) in [("node", "v"), ("npx", ""), ("uvx", "uv"), ("python3", "Python 3")] {
        let printed = read(inside(&root, &config, program).arg("--version"))?;
        expect(printed.starts_with(version) && !printed.trim().is_empty(), || {
            format!("{program} --version printed {printed:?}")
        })?;
    }
    // A server on Node.js, behind `wrap`.
    root.write("server.js", SERVER)?;
    let mut wrap = inside(&root, &config, "/usr/bin/toolward");
    wrap.args(["wrap", "--audit", "/tmp/audit", "--", "node", "/server.js"]);
    let listed = exchange(&mut wrap)?;
    expect(listed["result"]["tools"][0]["name"] == "hello", || format!("through wrap: {listed}"))
}

/// An MCP server with one tool.
const SERVER: &str = r#"
const tools = [{ name: "hello", inputSchema: { type: "object" }, annotations: { readOnlyHint: true } }];
const answers = {
  initialize: { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "hello", version: "1" } },
  "tools/list": { tools },
};
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method } = JSON.parse(line);
  if (id === undefined) return;
  const answer = answers[method] ? { result: answers[method] } : { error: { code: -32601, message: "unknown" } };
  console.log(JSON.stringify({ jsonrpc: "2.0", id, ...answer }));
});
"#;

/// Reads the archive with skopeo and unpacks it with umoci; returns the configuration of a container.
fn unpack(dist: &Dist, name: &str, folder: &Path) -> Result<Value> {
    crate::dist::create(folder)?;
    let archive = format!("oci-archive:{}", dist.out.join(format!("{name}.tar")).display());
    let layout = format!("{}:{}", folder.join("layout").display(), dist.version);
    let policy = ["--insecure-policy", "--tmpdir=/tmp"];
    run(Command::new("skopeo").args(policy).args([
        "copy",
        "--quiet",
        &archive,
        &format!("oci:{layout}"),
    ]))?;
    let inspected =
        read(Command::new("skopeo").args(policy).args(["inspect", "--config", &archive]))?;
    run(Command::new("umoci").args(["unpack", "--image", &layout]).arg(folder.join("bundle")))?;
    Ok(parse(&inspected)?["config"].clone())
}

/// A program in the image, as a container would be started.
fn inside(root: &Root, config: &Value, program: &str) -> Command {
    let mut command = root.command(config["User"].as_str().unwrap_or_default(), program);
    let variables = config["Env"].as_array().into_iter().flatten().filter_map(Value::as_str);
    command.envs(variables.filter_map(|variable| variable.split_once('=')));
    command
}

fn runs(dist: &Dist, root: &Root, config: &Value, folder: &Path) -> Result<()> {
    let user = format!("{0}:{0}", image::USER);
    expect(config["User"] == user.as_str(), || format!("the user is {}", config["User"]))?;
    let program = config["Entrypoint"][0].as_str().unwrap_or_default();
    let command = || inside(root, config, program);
    Installed { command: &command, program, version: &dist.version, folder }.works()?;
    // A container has it as a volume.
    root.write(
        "etc/toolward/toolward.yaml",
        "state: /var/lib/toolward\naudit: { dir: /var/lib/toolward/audit }\nadmin: off\nbuiltin: true\n\
         agents:\n  default: { allow: { servers: [\"*\"] } }\ndefaults: { deny_on_missing_agent: false }\n",
    )?;
    let words = config["Cmd"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let gateway = Gateway::start(command().args(words), folder)?;
    gateway.list()?;
    gateway.end().map(drop)
}
