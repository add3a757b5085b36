#!/usr/bin/env python3
"""Compares the answers of `toolward diff` and of `never` tests with those of z3, on small random policies.

    tests/model/referee.py PROGRAM --pairs N [--seed S]

Needs the package z3-solver. A policy is turned into a formula over a tool's name, two hints, whether its schema declares
an action key, and the action of a call; z3 looks for a call that becomes wider, or that must never be allowed. Examples
that `toolward` or z3 find are decided by `toolward decide`.
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import z3

SELECTORS = [
    "a", "b", "ab", "a*", "*b", "*", "?a", "[ab]", "[!a]*", "a.*", "a.b", "*.b", "b.a*", "*a*b*", "a_*", "a.a.b",
    "hint:read-only", "hint:destructive",
]
SERVER = "s"

# --- formulas


def pattern(text):
    """fnmatch as a regular expression."""
    anything = z3.AllChar(z3.ReSort(z3.StringSort()))
    parts, at = [], 0
    while at < len(text):
        char = text[at]
        if char == "[" and "]" in text[at + 2:]:
            end = text.index("]", at + 2)
            inner = text[at + 1:end]
            chars = z3.Union(*[z3.Re(c) for c in inner.lstrip("!")] + [z3.Re(inner[-1])])
            parts.append(z3.Intersect(anything, z3.Complement(chars)) if inner[0] == "!" else chars)
            at = end + 1
            continue
        parts.append(z3.Star(anything) if char == "*" else anything if char == "?" else z3.Re(char))
        at += 1
    if not parts:
        return z3.Re("")
    return parts[0] if len(parts) == 1 else z3.Concat(*parts)


class Call:
    """The variables of a call."""

    def __init__(self):
        self.name = z3.String("name")
        self.read_only = z3.Bool("read_only")
        self.destructive = z3.Bool("destructive")
        self.declares = z3.Bool("declares")
        self.has_action = z3.Bool("has_action")
        self.ambiguous = z3.Bool("ambiguous")
        self.action = z3.String("action")
        self.sane = z3.And(
            z3.Length(self.name) > 0, z3.Length(self.name) < 8, z3.Length(self.action) < 8,
            z3.Not(z3.And(self.has_action, self.ambiguous)), z3.Not(z3.And(self.read_only, self.destructive)),
            plain(self.name), plain(self.action),
        )


def plain(text):
    return z3.InRe(text, z3.Star(z3.Union(z3.Range("a", "z"), *[z3.Re(char) for char in "_.[]!*?"])))


def matches(text, value):
    return z3.Or(value == z3.StringVal(text), z3.InRe(value, pattern(text)))


def names_tool(selector, call, names):
    if selector.startswith("hint:"):
        return call.read_only if selector == "hint:read-only" else call.destructive
    texts = [selector] + ([selector[:-2]] if selector.endswith(".*") else [])
    return z3.Or(*[matches(text, name) for text in texts for name in names])


def acts(selector, call, names, deny):
    """(names an action, its left part is the name, the action matches) for each split."""
    found = []
    for at, char in enumerate(selector):
        left, right = selector[:at], selector[at + 1:]
        if selector.startswith("hint:") or char != "." or right == "*":
            continue
        for name in names:
            same = name == z3.StringVal(left)
            named = z3.Or(same, z3.And(matches(left, name), z3.BoolVal(True) if deny else call.declares))
            found.append((named, same, z3.And(call.has_action, matches(right, call.action))))
    return found


def layer(call, deny, allow, names, implicit):
    splits = [(acts(s, call, names, True), True) for s in deny] + [(acts(s, call, names, False), False) for s in allow]
    looked_up = z3.Or(*[named for found, _ in splits for named, _, _ in found], False)
    needed = z3.Or(
        *[z3.And(named, z3.Or(same, call.declares)) for found, is_deny in splits if is_deny for named, same, _ in found],
        False,
    )
    ambiguous = z3.And(looked_up, z3.Or(call.ambiguous, z3.And(z3.Not(call.has_action), needed)))

    def hit(selector, is_deny):
        by_action = [z3.And(named, fits) for named, _, fits in acts(selector, call, names, is_deny)]
        return z3.Or(names_tool(selector, call, names), *by_action)

    denied = z3.Or(*[hit(selector, True) for selector in deny], False)
    allowed = z3.BoolVal(True) if implicit else z3.Or(*[hit(selector, False) for selector in allow], False)
    return z3.And(z3.Not(ambiguous), z3.Not(denied), allowed)


def allowed(call, policy):
    rules = policy["agents"]["dev"]
    deny, allow = rules["deny"]["tools"][SERVER], rules["allow"]["tools"][SERVER]
    parts = [layer(call, deny, allow, [call.name], not allow)]
    if "allowed_tools" in policy:
        names = [call.name, z3.Concat(z3.StringVal(SERVER + "."), call.name)]
        parts.append(layer(call, [], policy["allowed_tools"], names, False))
    return z3.And(*parts)


def solve(formula, call):
    solver = z3.Solver()
    solver.set("timeout", 20_000)
    solver.add(call.sane, formula)
    answer = solver.check()
    if answer == z3.unknown:
        return None, None
    return answer == z3.sat, solver.model() if answer == z3.sat else None


# --- policies

def some(random_, most):
    return [random_.choice(SELECTORS) for _ in range(random_.randint(0, most))]


def policy(random_):
    made = {
        "agents": {"dev": {
            "allow": {"servers": [SERVER], "tools": {SERVER: some(random_, 4)}},
            "deny": {"tools": {SERVER: some(random_, 3)}},
        }},
    }
    if random_.random() < 0.3:
        made["allowed_tools"] = some(random_, 3)
        made["case"] = "sensitive"
    return made


def changed(random_, old):
    """One entry is added, removed or replaced; sometimes everything is."""
    if random_.random() < 0.2:
        return policy(random_)
    new = json.loads(json.dumps(old))
    rules = new["agents"]["dev"]
    lists = [rules["allow"]["tools"][SERVER], rules["deny"]["tools"][SERVER]] + (
        [new["allowed_tools"]] if "allowed_tools" in new else []
    )
    entries = random_.choice(lists)
    at = random_.randint(0, len(entries))
    if at < len(entries) and random_.random() < 0.6:
        entries.pop(at)
    if random_.random() < 0.6:
        entries.insert(at, random_.choice(SELECTORS))
    return new


# --- the program

def run(program, words):
    found = subprocess.run([program, *words], capture_output=True, text=True, cwd="/")
    return found.returncode, found.stdout, found.stderr


def decides(program, policies, example):
    """The verdicts of `toolward decide` about an example, by each policy."""
    lines = "\n".join(json.dumps({**example, "policy": policy}) for policy in policies)
    found = subprocess.run([program, "decide"], input=lines, capture_output=True, text=True, cwd="/")
    return [json.loads(line)["verdict"] for line in found.stdout.splitlines()]


def example_of(model, call):
    """z3's answer as a request."""
    text = lambda value: model.eval(value, model_completion=True).as_string()
    true = lambda value: z3.is_true(model.eval(value, model_completion=True))
    arguments = {}
    if true(call.has_action):
        arguments["action"] = text(call.action)
    elif true(call.ambiguous):
        arguments["action"] = 1
    annotations = {"readOnlyHint": true(call.read_only), "destructiveHint": true(call.destructive)}
    definition = {"annotations": annotations}
    if true(call.declares):
        definition["inputSchema"] = {"properties": {"action": {}}}
    return {
        "agent": "dev", "server": SERVER, "tool": text(call.name), "definition": definition, "arguments": arguments,
    }


def main():
    options = argparse.ArgumentParser()
    options.add_argument("program")
    options.add_argument("--pairs", type=int, default=100)
    options.add_argument("--seed", type=int, default=1)
    options = options.parse_args()
    random_ = random.Random(options.seed)
    program = str(pathlib.Path(options.program).resolve())
    counts = {"wider": 0, "never": 0, "undecided": 0, "unknown to z3": 0}
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/old.json", f"{folder}/new.json"]
        for pair in range(options.pairs):
            old = policy(random_)
            new = changed(random_, old)
            diff(program, paths, (old, new), counts, wrong)
            never(program, paths[0], old, random_.choice(SELECTORS), counts, wrong)
    for text in wrong[:10]:
        print(text)
    print(f"{options.pairs} pairs: {counts}, {len(wrong)} wrong")
    sys.exit(1 if wrong or counts["undecided"] * 100 > 2 * options.pairs else 0)


def diff(program, paths, policies, counts, wrong):
    for path, made in zip(paths, policies):
        pathlib.Path(path).write_text(json.dumps(made))
    code, out, err = run(program, ["diff", "--json", "--as", "dev", *paths])
    if code not in (0, 1, 4):
        raise SystemExit(f"{policies}\n{err}")
    report = json.loads(out)
    # Only tools of this server are in the formula.
    about = lambda change: "tool" in change["example"] and change["example"]["server"] == SERVER
    changes = [change for change in report["changes"] if about(change)]
    wider = [change for change in changes if change["wider"]]
    for change in changes:
        if decides(program, policies, change["example"]) != [change["before"]["verdict"], change["after"]["verdict"]]:
            wrong.append(f"not confirmed by decide: {policies} {change}")
    if report["undecided"]:
        counts["undecided"] += 1
        return
    call = Call()
    found, model = solve(z3.And(allowed(call, policies[1]), z3.Not(allowed(call, policies[0]))), call)
    if found is None:
        counts["unknown to z3"] += 1
        return
    counts["wider"] += found
    if found:
        example = example_of(model, call)
        if decides(program, policies, example) != ["deny", "allow"]:
            wrong.append(f"z3's example is not confirmed by decide: {policies} {example}")
        if not wider:
            wrong.append(f"missed: {policies} {example}")
    elif wider:
        wrong.append(f"z3 finds nothing wider: {policies} {wider[0]}")


def never(program, path, made, selector, counts, wrong):
    made = {**made, "tests": [{"never": {"as": "dev", "calls": [f"{SERVER}/{selector}"]}}]}
    pathlib.Path(path).write_text(json.dumps(made))
    code, out, err = run(program, ["test", "--json", "--policy", path])
    if code not in (0, 1):
        raise SystemExit(f"{made}\n{err}")
    case = json.loads(out)["cases"][0]
    if not case["passed"] and case["example"] is None:
        counts["undecided"] += 1
        return
    call = Call()
    # A question about an action is about every tool of that name, whatever its schema declares.
    asked = z3.Or(
        names_tool(selector, call, [call.name]),
        *[z3.And(named, fits) for named, _, fits in acts(selector, call, [call.name], True)],
    )
    found, _ = solve(z3.And(allowed(call, made), asked), call)
    if found is None:
        counts["unknown to z3"] += 1
        return
    counts["never"] += not found
    if found == case["passed"]:
        wrong.append(f"never {selector}: z3 {found}, {made} {case}")
    if not case["passed"] and decides(program, [made], case["example"]) == ["deny"]:
        wrong.append(f"not confirmed by decide: {made} {case}")


if __name__ == "__main__":
    main()
