"""A reference model of Toolward's decision function.

Written from docs/reference/policy.md alone, by the letter, without a look at the engine: it is slow, plain and
independent, so that a disagreement with the program is a bug in the program, in the contract, or here.
`compare.py` runs it beside `toolward decide`.

A policy is the parsed form of a policy file (dictionaries and lists). Its `agents` keys are names, as in an inline
policy of `decide`. Not modelled: rate limits, hooks, the wording of reasons, and the normalization of URIs.
"""

import itertools
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import cel

STRICTNESS = {"allow": 0, "depends": 1, "ask": 2, "deny": 3}
DEFAULT_ACTION_KEYS = ["what", "action"]
DEFAULT_CLIENT_REQUESTS = ["elicitation", "roots"]


@dataclass
class Request:
    """One question. `name` is a tool's or prompt's name, or a URI; `arguments` is None if the call has none."""

    agent: str | None
    server: str
    name: str
    kind: str = "tool"
    arguments: dict | None = None
    annotations: object = None
    schema: dict | None = None  # the tool's inputSchema
    hints: list | None = None  # given by the caller instead of derived
    scope: str | None = None  # of the caller's token


@dataclass
class Decision:
    verdict: str
    step: str
    layer: int | None = None
    rule: str | None = None


@dataclass
class Entry:
    """One selector of a list, with its condition and the path that names it."""

    selector: str
    path: str
    when: str | None = None
    ask: bool = False
    scope: str | None = None
    exact: bool = field(init=False)

    def __post_init__(self):
        self.exact = not self.is_hint() and not any(c in self.selector for c in "*?[")

    def is_hint(self):
        return self.selector.startswith("hint:")

    def lacks_scope(self, request):
        """Whether the caller's token does not have all scopes of the entry."""
        return not set((self.scope or "").split()) <= set((request.scope or "").split())


# --- names

def fold(text):
    return "".join(chr(ord(c) + 32) if "A" <= c <= "Z" else c for c in text)


def matches(pattern, name, insensitive=False):
    """fnmatch, or equality to the letter."""
    if insensitive:
        pattern, name = fold(pattern), fold(name)
    return pattern == name or fnmatchcase(name, pattern)


def equal(left, right, insensitive):
    return fold(left) == fold(right) if insensitive else left == right


# --- a tool as one policy sees it

@dataclass
class Tool:
    request: Request
    hints: set
    action_keys: list

    @property
    def declares_action(self):
        properties = (self.request.schema or {}).get("properties")
        return isinstance(properties, dict) and any(key in properties for key in self.action_keys)

    def action_enum(self):
        """The values of the action with a key for each, if every action key that the schema declares has an enum."""
        properties = (self.request.schema or {}).get("properties") or {}
        found = {}
        for key in self.action_keys:
            if key not in properties:
                continue
            values = properties[key].get("enum")
            if not isinstance(values, list):
                return None
            for value in values:
                found.setdefault(value, key)
        return found


def action_keys(server, name):
    keys = server.get("action_keys", DEFAULT_ACTION_KEYS)
    if isinstance(keys, dict):
        fitting = [value for pattern, value in keys.items() if matches(pattern, name)]
        return fitting[0] if fitting else DEFAULT_ACTION_KEYS
    return keys


def hints_of(server, name, annotations):
    stated = stated_hints(server, name)
    if stated is not None:
        tags = set(stated)
        if not tags & {"read-only", "destructive", "non-destructive"}:
            tags.add("destructive")
        if not tags & {"open-world", "closed-world"}:
            tags.add("open-world")
        if "destructive" in tags:
            tags.discard("read-only")
        return tags
    if not server.get("trust_annotations", True) or not isinstance(annotations, dict):
        annotations = {}
    claim = lambda key: annotations.get(key) if isinstance(annotations.get(key), bool) else None
    tags = set()
    if claim("readOnlyHint") is True:
        tags.add("read-only")
    elif claim("destructiveHint") is not False:
        tags.add("destructive")
    if claim("idempotentHint") is True:
        tags.add("idempotent")
    tags.add("closed-world" if claim("openWorldHint") is False else "open-world")
    return tags


def stated_hints(server, name):
    stated = server.get("hints", {})
    if name in stated:
        return stated[name]
    fitting = [tags for pattern, tags in stated.items() if matches(pattern, name)]
    return list(itertools.chain(*fitting)) if fitting else None


# --- one list entry against one tool

def splits(selector):
    """Left and right of each dot whose right part is not `*`."""
    for at, char in enumerate(selector):
        if char == "." and selector[at + 1:] != "*":
            yield selector[:at], selector[at + 1:]


class List:
    """A list of entries: of an agent under the keys of a server, or an allowlist (which also matches `S.T`)."""

    def __init__(self, entries, deny=False, insensitive=False, qualified=False):
        self.entries = entries
        self.deny = deny
        self.insensitive = insensitive
        self.qualified = qualified

    def names(self, request):
        return [request.name] + ([f"{request.server}.{request.name}"] if self.qualified else [])

    def matches_name(self, entry, tool):
        """The entry matches by hints or by the tool's name, whatever the action is."""
        if entry.is_hint():
            return tool.request.kind == "tool" and set(entry.selector[5:].split("+")) <= tool.hints
        patterns = [entry.selector] + ([entry.selector[:-2]] if entry.selector.endswith(".*") else [])
        return any(
            matches(pattern, name, self.insensitive)
            for pattern in patterns
            for name in self.names(tool.request)
        )

    def action_patterns(self, entry, tool):
        """(right part, left part equals the name) of each way in which the entry names an action of the tool."""
        if entry.is_hint() or tool.request.kind != "tool":
            return []
        found = []
        for left, right in splits(entry.selector):
            for name in self.names(tool.request):
                same = equal(left, name, self.insensitive)
                if same or matches(left, name, self.insensitive) and (self.deny or tool.declares_action):
                    found.append((right, same))
        return found

    def covers(self, entry, tool, action):
        if self.matches_name(entry, tool):
            return True
        return action is not None and any(
            matches(right, action, self.insensitive) for right, _ in self.action_patterns(entry, tool)
        )

    def applies(self, entry, tool, call):
        """Whether the entry matches a call: an error in its condition skips an allow and matches a deny."""
        if not self.covers(entry, tool, call.action):
            return False
        if entry.lacks_scope(tool.request):
            return False
        if entry.when is None:
            return True
        value = cel.evaluate(entry.when, call.variables)
        return self.deny if value is cel.ERROR else value


@dataclass
class Call:
    """What is known of a call besides its tool."""

    action: str | None
    variables: dict


def look_up_action(lists, tool):
    """The action of a call, None if there is none or nobody asks for it, or "ambiguous"."""
    wanted = any(
        list_.action_patterns(entry, tool) or entry.when and cel.reads(entry.when, "action")
        for list_ in lists for entry in list_.entries
    )
    if not wanted:
        return None
    arguments = tool.request.arguments or {}
    keys = tool.action_keys
    for key in arguments:
        if key not in keys and any(fold(key) == fold(other) for other in keys):
            return AMBIGUOUS
    found = [arguments[key] for key in keys if key in arguments]
    if any(not isinstance(value, str) for value in found) or len(set(found)) > 1:
        return AMBIGUOUS
    if found:
        return found[0]
    needed = any(
        same or tool.declares_action
        for list_ in lists if list_.deny
        for entry in list_.entries
        for _, same in list_.action_patterns(entry, tool)
    )
    return AMBIGUOUS if needed else None


AMBIGUOUS = object()


# --- layers

def entries_of(values, path):
    found = []
    for index, value in enumerate(values or []):
        if isinstance(value, str):
            value = {"tool": value}
        if value.get("shadow"):
            continue
        selector = next(value[key] for key in ("tool", "prompt", "resource") if key in value)
        found.append(Entry(selector, f"{path}[{index}]", value.get("when"), bool(value.get("ask")),
                           value.get("scope")))
    return found


def member(key):
    plain = key != "" and all(c.isascii() and (c.isalnum() or c in "_-") for c in key)
    return f".{key}" if plain else f'["{key}"]'


class AgentsLayer:
    def __init__(self, policy):
        self.agents = policy.get("agents") or {}
        self.roles = policy.get("roles") or {}
        self.open = (policy.get("defaults") or {}).get("deny_on_missing_agent") is False

    def which(self, name):
        if name is not None and name in self.agents:
            return name
        return "default" if self.open and "default" in self.agents else None

    def sources(self, name):
        """The agent's roles in order, then the agent: each with the path that names it."""
        agent = self.agents[name]
        for role in agent.get("roles") or []:
            yield f"roles{member(role)}", self.roles[role]
        yield f"agents{member(name)}", agent

    def entries(self, name, side, key, server, insensitive):
        found = []
        for path, source in self.sources(name):
            for pattern, values in ((source.get(side) or {}).get(key) or {}).items():
                if matches(pattern, server, insensitive):
                    found += entries_of(values, f"{path}.{side}.{key}{member(pattern)}")
        return found

    def server(self, name, server, insensitive):
        for side, verdict in (("deny", "deny"), ("allow", "allow")):
            for path, source in self.sources(name):
                for index, pattern in enumerate((source.get(side) or {}).get("servers") or []):
                    if matches(pattern, server, insensitive):
                        return Decision(verdict, f"server-{side}", rule=f"{path}.{side}.servers[{index}]")
        return Decision("deny", "server-not-allowed")

    def evaluate(self, tool, walk):
        """`walk` decides the tool by the lists that apply: a call, or a listing."""
        request = tool.request
        name = self.which(request.agent)
        if name is None:
            return Decision("deny", "unknown-agent")
        insensitive = self.agents[name].get("case") == "insensitive"
        server = self.server(name, request.server, insensitive)
        if server.verdict == "deny":
            return server
        key = {"tool": "tools", "prompt": "prompts", "resource": "resources"}[request.kind]
        get = lambda side, key: self.entries(name, side, key, request.server, insensitive)
        deny = List(get("deny", key), deny=True, insensitive=insensitive)
        allow = List(get("allow", key), insensitive=insensitive)
        narrowed = bool(allow.entries) or request.kind != "tool" and bool(get("allow", "tools"))
        last = Decision("deny", "6-default-deny") if narrowed else Decision("allow", "5-implicit-grant")
        steps = [
            (deny, True, "deny", "1-exact-deny"), (deny, False, "deny", "2-wildcard-deny"),
            (allow, True, "allow", "3-exact-allow"), (allow, False, "allow", "4-wildcard-allow"),
        ]
        ordered = [
            (list_, entry, Decision("ask" if entry.ask else verdict, step, rule=entry.path))
            for list_, exact, verdict, step in steps
            for entry in list_.entries if entry.exact == exact
        ]
        return walk(tool, [deny, allow], ordered, last)


class AllowlistLayer:
    def __init__(self, policy):
        self.values = policy["allowed_tools"]
        self.others = {"prompt": policy.get("allowed_prompts"), "resource": policy.get("allowed_resources")}
        self.insensitive = policy.get("case") != "sensitive"

    def evaluate(self, tool, walk):
        kind = tool.request.kind
        key, values = "allowed_tools", self.values
        if kind != "tool" and self.others[kind] is not None:
            key, values = f"allowed_{kind}s", self.others[kind]
        elif kind != "tool":
            # Not named: allowed only beside an allowlist that does not narrow.
            everything = [index for index, value in enumerate(values) if value in ("*", {"tool": "*"})]
            if everything:
                return Decision("allow", "allowlist-match", rule=f"allowed_tools[{everything[0]}]")
            values = []
        list_ = List(entries_of(values, key), insensitive=self.insensitive, qualified=True)
        ordered = [
            (list_, entry, Decision("ask" if entry.ask else "allow", "allowlist-match", rule=entry.path))
            for entry in list_.entries
        ]
        return walk(tool, [list_], ordered, Decision("deny", "allowlist-none"))


class ReadOnlyLayer:
    def evaluate(self, tool, _walk):
        if tool.request.kind != "tool" or "read-only" in tool.hints:
            return Decision("allow", "read-only-mode")
        return Decision("deny", "read-only-mode")


def is_agents_layer(policy):
    """In the main file, agents without rules only define identities. A file without servers is a policy file."""
    rules = ("allow", "deny", "roles")
    has_rules = any(key in agent for agent in (policy.get("agents") or {}).values() for key in rules)
    is_main = "servers" in policy or "read_only" in policy
    return has_rules or "agents" in policy and not is_main or set(policy) <= {"defaults"}


class Policy:
    def __init__(self, policy):
        self.servers = policy.get("servers") or {}
        self.layers = []
        if is_agents_layer(policy):
            self.layers.append(AgentsLayer(policy))
        if "allowed_tools" in policy:
            self.layers.append(AllowlistLayer(policy))
        if policy.get("read_only"):
            self.layers.append(ReadOnlyLayer())

    def tool(self, request):
        server = self.servers.get(request.server) or {}
        hints = request.hints
        if hints is None:
            hints = hints_of(server, request.name, request.annotations)
        return Tool(request, set(hints), action_keys(server, request.name))

    def exposed(self, request):
        server = self.servers.get(request.server) or {}
        if request.kind != "tool" or "expose" not in server:
            return True
        entries = [e if isinstance(e, dict) else {"tool": e} for e in server["expose"]]
        taken = {e["display_name"] for e in entries if "display_name" in e}
        if any(e["tool"] == request.name for e in entries):
            return True
        return request.name not in taken and any(matches(e["tool"], request.name) for e in entries)

    def decide(self, request):
        return self.combine(request, decide_call)

    def list(self, request):
        """What a listing shows of the tool."""
        tool = self.tool(request)
        enum = tool.action_enum() if request.kind == "tool" else None
        if enum and self.exposed(request) and any(names_action(layer, tool) for layer in self.layers):
            # Each value as a call with that action; its other arguments are not known.
            decisions = [
                self.combine(request, lambda *step, value=value: decide_listing(*step, action=value)) for value in enum
            ]
            open_ = [decision for decision in decisions if decision.verdict != "deny"]
            if open_ and len(open_) < len(decisions):
                return Decision("depends", open_[0].step, open_[0].layer, open_[0].rule)
            return max(decisions, key=lambda decision: STRICTNESS[decision.verdict])
        return self.combine(request, decide_listing)

    def combine(self, request, walk):
        if not self.exposed(request):
            return Decision("deny", "not-exposed")
        if not self.layers:
            return Decision("allow", "no-policy")
        tool = self.tool(request)
        decisions = []
        for index, layer in enumerate(self.layers):
            decision = layer.evaluate(tool, walk)
            decision.layer = index
            decisions.append(decision)
        strictest = max(decisions, key=lambda decision: STRICTNESS[decision.verdict])
        return decisions[-1] if strictest.verdict == "allow" else strictest


def names_action(layer, tool):
    """Whether some selector of the layer that applies names an action of the tool."""
    found = []

    def note(tool, lists, _ordered, last):
        found.extend(list_.action_patterns(entry, tool) for list_ in lists for entry in list_.entries)
        return last

    layer.evaluate(tool, note)
    return any(found)


def variables(tool, action):
    request = tool.request
    return {
        "args": request.arguments or {}, "agent": request.agent, "server": request.server,
        "tool": request.name, "action": action, "hints": sorted(tool.hints), "claims": {},
    }


def decide_call(tool, lists, ordered, last):
    action = look_up_action(lists, tool) if tool.request.kind == "tool" else None
    if action is AMBIGUOUS:
        return Decision("deny", "ambiguous-action")
    call = Call(action, variables(tool, action))
    for list_, entry, decision in ordered:
        if list_.applies(entry, tool, call):
            return decision
    return last


UNKNOWN = object()


def decide_listing(tool, lists, ordered, last, action=UNKNOWN):
    """All outcomes: each uncertain entry matches or does not, independently of the others."""
    known = action is not UNKNOWN and any(
        list_.action_patterns(entry, tool) for list_ in lists for entry in list_.entries
    )
    if known and not isinstance(action, str):
        return Decision("deny", "ambiguous-action")
    if not known:
        action = None
    call = Call(action, variables(tool, action))
    outcomes, ending, first_uncertain = [], last, None
    for list_, entry, decision in ordered:
        certain = list_.covers(entry, tool, action)
        if not certain and (known or not list_.action_patterns(entry, tool)):
            continue
        reads_args = entry.when is not None and cel.reads(entry.when, "args")
        reads_action = entry.when is not None and cel.reads(entry.when, "action") and not known
        lacks_scope = entry.lacks_scope(tool.request)
        if not reads_args and not reads_action and not lacks_scope:
            # This condition can be evaluated.
            value = True if entry.when is None else cel.evaluate(entry.when, call.variables)
            if not (list_.deny if value is cel.ERROR else value):
                continue
        outcomes.append(decision)
        if certain and not reads_args and not reads_action and not lacks_scope:
            ending = decision
            break
        first_uncertain = first_uncertain or decision
    else:
        outcomes.append(last)
    verdicts = {decision.verdict for decision in outcomes}
    if len(verdicts) == 1:
        return ending
    if "deny" in verdicts:
        return Decision("depends", first_uncertain.step, rule=first_uncertain.rule)
    # No outcome is a deny: the strictest of them.
    strictest = max(verdicts, key=STRICTNESS.get)
    return next(decision for decision in outcomes if decision.verdict == strictest)
