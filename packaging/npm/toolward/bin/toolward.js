#!/usr/bin/env node
// Starts the program of this platform's package. Standard streams, signals and the exit status are the program's own:
// MCP clients talk to it over stdio, and end it with a signal.
"use strict";
const { spawn } = require("node:child_process");
const { readFileSync } = require("node:fs");
const { constants } = require("node:os");

const platform = `${process.platform}-${process.arch}`;
const packages = Object.keys(require("../package.json").optionalDependencies);
const args = process.argv.slice(2);

const program = locate();
if (process.execve) {
  // Node.js 22.15 and later can become the program, which saves a process.
  process.execve(program, [program, ...args]);
}
start(program);

function locate() {
  const name = `@toolward/${platform}`;
  if (!packages.includes(name)) {
    const platforms = packages.map((one) => one.replace("@toolward/", "")).join(", ");
    fail(`there is no package for ${platform}, only for ${platforms}`, "build it from source with cargo");
  }
  try {
    return require.resolve(`${name}/bin/toolward`);
  } catch {
    const help = "install it again without --omit=optional; Linux needs glibc, which Alpine does not have";
    fail(`the package ${name} is not installed`, help);
  }
}

function fail(problem, help) {
  console.error(`error: ${problem}\n  help: ${help}`);
  process.exit(1);
}

function start(program) {
  const signals = ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM"];
  let child;
  for (const signal of signals) {
    process.on(signal, () => {
      // A terminal sends Ctrl-C to both processes, and a second one would cut a graceful shutdown short.
      const sentToBoth = (signal === "SIGINT" || signal === "SIGQUIT") && inForeground();
      if (!sentToBoth) child.kill(signal);
    });
  }
  child = spawn(program, args, { stdio: "inherit" });
  child.on("error", (error) => fail(`${program} cannot be started: ${error.message}`, "install the package again"));
  child.on("exit", (code, signal) => {
    if (signal === null) process.exit(code);
    signals.forEach((one) => process.removeAllListeners(one));
    // For a signal that does not end Node.js.
    process.exitCode = 128 + constants.signals[signal];
    process.kill(process.pid, signal);
  });
}

// Whether the terminal sends its signals to this process's group.
function inForeground() {
  const stat = readFileSync("/proc/self/stat", "latin1");
  const [, , group, , , foreground] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return group === foreground;
}
