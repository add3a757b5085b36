"""Policies and requests: every one of a small scope, and random ones of a larger scope."""

import itertools
import random

from policy import Request

# --- the small scope: two servers, three names, two actions and none, one hint, lists of up to two of twelve selectors

SELECTORS = ["a", "ab", "a.x", "ab.y", "a*", "*", "?b", "a.*", "*.x", "a.?", "hint:read-only", "[!b]"]
DECLARES = {"properties": {"action": {"type": "string"}}}


def small_lists():
    for length in range(3):
        yield from itertools.product(SELECTORS, repeat=length)


def small_requests():
    """36 calls of the agent with rules, and two of one without."""
    calls = [
        Request(
            "dev", server, name,
            arguments={} if action is None else {"action": action},
            annotations={"readOnlyHint": read_only},
            schema=DECLARES if name == "ab" else None,
        )
        for server in ("s", "u") for name in ("a", "ab", "a.x")
        for action in (None, "x", "y") for read_only in (False, True)
    ]
    return calls + [Request("other", "s", "a"), Request(None, "u", "ab", arguments={"action": "x"})]


def small_policies():
    for allow in small_lists():
        for deny in small_lists():
            yield {"agents": {"dev": {
                "allow": {"servers": ["*"], "tools": {"s": list(allow)}},
                "deny": {"tools": {"*": list(deny)}},
            }}}


# --- the large scope

NAMES = ["a", "b", "ab", "A", "a.x", "get_a", "get_b", "", "a.b.c", "[a]"]
SERVERS = ["s", "u", "S", "s.a"]
ACTIONS = ["x", "y", "X", "b.c", ""]
AGENTS = ["dev", "ops", "default", "Dev"]
PARTS = ["a", "b", "ab", "get_*", "*", "?", "[ab]", "[!a]", "[b-a]", "a*", "*b", "A", "[", "a[", "x", "[[]a]"]
TAGS = ["read-only", "destructive", "idempotent", "open-world", "closed-world", "own"]
CONDITIONS = [
    "true", "false", 'args.p == "x"', 'args.n < 3', 'has(args.p)', '!has(args.p)', 'args.p.startsWith("/a")',
    'args.n > 1 || args.p == "x"', 'args.p.contains("..") && args.n == 2', '!(args.p == "x")', 'action == "x"',
    'action in ["x", "y"]', 'tool == "a"', 'server == "s"', 'agent == "dev"', '"read-only" in hints',
    'args.n in [1, 2] || has(args.p)', 'args.p', 'args.p.endsWith("z") || tool == "b"',
]


class Random:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def one(self, values):
        return self.random.choice(values)

    def chance(self, share):
        return self.random.random() < share

    def some(self, make, most, least=0):
        return [make() for _ in range(self.random.randint(least, most))]

    def selector(self, dotted=True):
        if self.chance(0.15):
            return "hint:" + "+".join(self.random.sample(TAGS, self.random.randint(1, 2)))
        if dotted and self.chance(0.4):
            return ".".join(self.some(lambda: self.one(PARTS + ACTIONS), 3, 2))
        return self.one(PARTS + NAMES)

    def entry(self, kind="tool", side="allow"):
        selector = self.selector()
        if selector.startswith("hint:") and kind != "tool":
            selector = "a*"
        options = {}
        if self.chance(0.3):
            options["when"] = self.one(CONDITIONS)
        if side == "allow" and self.chance(0.1):
            options["scope"] = self.one(["r", "w", "r w"])
        return {kind: selector, **options} if options else selector

    def by_server(self, kind, side):
        keys = self.random.sample(["s", "u", "*", "S", "s*", "[su]"], self.random.randint(0, 2))
        return {key: self.some(lambda: self.entry(kind, side), 3) for key in keys}

    def rules(self, side):
        rules = {}
        if self.chance(0.9 if side == "allow" else 0.2):
            rules["servers"] = self.some(lambda: self.one(["*", "s", "u", "S", "[su]"]), 2, 1)
        for key, kind, share in (("tools", "tool", 0.8), ("prompts", "prompt", 0.2)):
            if self.chance(share):
                rules[key] = self.by_server(kind, side)
        return rules

    def agent(self, roles):
        agent = {side: self.rules(side) for side in ("allow", "deny") if self.chance(0.9)}
        if roles and self.chance(0.5):
            agent["roles"] = self.random.sample(sorted(roles), self.random.randint(1, len(roles)))
        if self.chance(0.2):
            agent["case"] = self.one(["sensitive", "insensitive"])
        return agent

    def server(self):
        server = {"command": "x"}
        if self.chance(0.3):
            server["hints"] = {
                key: self.random.sample(TAGS + ["non-destructive"], self.random.randint(0, 2))
                for key in self.random.sample(["a", "b", "a*", "get_*", "*"], self.random.randint(1, 3))
            }
        if self.chance(0.3):
            server["trust_annotations"] = self.chance(0.5)
        if self.chance(0.3):
            server["action_keys"] = self.one([["mode"], ["what"], ["mode", "action"], {"a": ["mode"]}, {"g*": ["action"]}])
        if self.chance(0.2):
            server["expose"] = self.random.sample(["a", "ab", "get_*", "?", "a.x"], self.random.randint(0, 3))
            if self.chance(0.5):
                server["expose"].append({"tool": "internal", "display_name": "get_b"})
        return server

    def policy(self):
        policy = {}
        if self.chance(0.85):
            if self.chance(0.3):
                policy["roles"] = {
                    name: {side: self.rules(side) for side in ("allow", "deny") if self.chance(0.7)}
                    for name in self.random.sample(["r", "q"], self.random.randint(1, 2))
                }
            names = self.random.sample(AGENTS, self.random.randint(1, 3))
            policy["agents"] = {name: self.agent(policy.get("roles")) for name in names}
            if self.chance(0.5):
                policy["defaults"] = {"deny_on_missing_agent": self.chance(0.4)}
        if not policy or self.chance(0.3):
            policy["allowed_tools"] = self.some(self.entry, 4)
            if self.chance(0.3):
                policy["case"] = self.one(["sensitive", "insensitive"])
            if self.chance(0.2):
                policy["allowed_prompts"] = self.some(lambda: self.entry("prompt"), 2)
        if self.chance(0.4):
            policy["servers"] = {name: self.server() for name in self.random.sample(["s", "u"], 1)}
        if self.chance(0.1):
            policy["read_only"] = True
        return policy

    def value(self):
        return self.one(["x", "y", "", "/a", "/a/..", "z", 1, 2, 5, True, None])

    def arguments(self):
        if self.chance(0.15):
            return None
        arguments = {}
        for key, share in (("action", 0.5), ("what", 0.25), ("mode", 0.2), ("Action", 0.05)):
            if self.chance(share):
                arguments[key] = self.one(ACTIONS + ["x", "x", "x"]) if self.chance(0.9) else self.value()
        for key in ("p", "n"):
            if self.chance(0.5):
                arguments[key] = self.value()
        return arguments

    def schema(self):
        if self.chance(0.4):
            return None
        keys = self.random.sample(["action", "what", "mode", "p"], self.random.randint(0, 2))
        properties = {key: {"type": "string"} for key in keys}
        for value in properties.values():
            if self.chance(0.4):
                value["enum"] = self.random.sample(["x", "y", "b.c"], self.random.randint(1, 3))
        return {"type": "object", "properties": properties}

    def annotations(self):
        keys = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"]
        return {key: self.one([True, False, False, True, "yes", None]) for key in keys if self.chance(0.5)}

    def request(self):
        kind = "prompt" if self.chance(0.1) else "tool"
        tool = kind == "tool"
        return Request(
            self.one(AGENTS + ["ghost", None]), self.one(SERVERS), self.one(NAMES), kind,
            arguments=self.arguments() if tool else None,
            annotations=self.annotations() if tool and self.chance(0.7) else None,
            schema=self.schema() if tool else None,
            scope=self.one(["r", "w r", "rw"]) if self.chance(0.5) else None,
        )
