"""The part of CEL that generated policies use, with its three results: true, false and error.

As the contract has it: reading a missing member is an error; an error on one side of `||` or `&&` does not matter if
the other side already decides; the result must be true or false.
"""

import functools
import re

ERROR = "error"
TOKEN = re.compile(r'\s*(\|\||&&|==|!=|<=|>=|[<>!()\[\],.]|"[^"]*"|-?\d+|[A-Za-z_]\w*)')


def tokens(text):
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            raise ValueError(f"not in this part of CEL: {text!r}")
        found.append(match.group(1))
        at = match.end()
    return found


class Parser:
    def __init__(self, text):
        self.left = tokens(text)

    def next(self, wanted=None):
        token = self.left.pop(0)
        if wanted is not None and token != wanted:
            raise ValueError(f"{wanted} wanted, not {token}")
        return token

    def peek(self):
        return self.left[0] if self.left else None

    def whole(self):
        tree = self.either()
        if self.left:
            raise ValueError(f"left over: {self.left}")
        return tree

    def either(self):
        tree = self.both()
        while self.peek() == "||":
            self.next()
            tree = ("||", tree, self.both())
        return tree

    def both(self):
        tree = self.compared()
        while self.peek() == "&&":
            self.next()
            tree = ("&&", tree, self.compared())
        return tree

    def compared(self):
        tree = self.unary()
        if self.peek() in ("==", "!=", "<", "<=", ">", ">=", "in"):
            return (self.next(), tree, self.unary())
        return tree

    def unary(self):
        if self.peek() == "!":
            self.next()
            return ("!", self.unary())
        tree = self.primary()
        while self.peek() == ".":
            self.next()
            name = self.next()
            if self.peek() == "(":
                self.next()
                argument = self.either()
                self.next(")")
                tree = ("call", name, tree, argument)
            else:
                tree = ("member", tree, name)
        return tree

    def primary(self):
        token = self.next()
        if token == "(":
            tree = self.either()
            self.next(")")
            return tree
        if token == "[":
            items = []
            while self.peek() != "]":
                items.append(self.either())
                if self.peek() == ",":
                    self.next()
            self.next("]")
            return ("list", items)
        if token == "has":
            self.next("(")
            tree = self.unary()
            self.next(")")
            return ("has", tree)
        if token.startswith('"'):
            return ("value", token[1:-1])
        if token in ("true", "false", "null"):
            return ("value", {"true": True, "false": False, "null": None}[token])
        if re.fullmatch(r"-?\d+", token):
            return ("value", int(token))
        return ("variable", token)


@functools.lru_cache(maxsize=None)
def parse(text):
    return Parser(text).whole()


class Failed(Exception):
    pass


def evaluate(text, variables):
    try:
        value = run(parse(text), variables)
    except Failed:
        return ERROR
    return value if isinstance(value, bool) else ERROR


def reads(text, name):
    """Whether the expression reads a variable."""
    def within(tree):
        if tree == ("variable", name):
            return True
        parts = tree if isinstance(tree, (tuple, list)) else ()
        return any(within(part) for part in parts if isinstance(part, (tuple, list)))
    return within(parse(text))


def kind(value):
    """The type of a value: Python would call true a number."""
    return bool if isinstance(value, bool) else type(value)


def same(left, right):
    return kind(left) is kind(right) and left == right


def logical(tree, variables, decides):
    failed = False
    for side in tree[1:]:
        try:
            value = run(side, variables)
        except Failed:
            value = None
        if value is decides:
            return decides
        failed = failed or not isinstance(value, bool)
    if failed:
        raise Failed
    return not decides


def run(tree, variables):
    operator = tree[0]
    if operator in ("||", "&&"):
        return logical(tree, variables, operator == "||")
    if operator == "value":
        return tree[1]
    if operator == "variable":
        return variables[tree[1]]
    if operator == "list":
        return [run(item, variables) for item in tree[1]]
    if operator == "has":
        return tree[1][2] in container(run(tree[1][1], variables))
    if operator == "member":
        members = container(run(tree[1], variables))
        if tree[2] not in members:
            raise Failed
        return members[tree[2]]
    if operator == "!":
        value = run(tree[1], variables)
        if not isinstance(value, bool):
            raise Failed
        return not value
    if operator == "call":
        text, argument = run(tree[2], variables), run(tree[3], variables)
        if not isinstance(text, str) or not isinstance(argument, str):
            raise Failed
        return {"startsWith": text.startswith, "endsWith": text.endswith, "contains": text.__contains__}[tree[1]](
            argument
        )
    left, right = run(tree[1], variables), run(tree[2], variables)
    if operator == "==":
        return same(left, right)
    if operator == "!=":
        return not same(left, right)
    if operator == "in":
        if not isinstance(right, list):
            raise Failed
        return any(same(left, item) for item in right)
    if kind(left) is not kind(right) or kind(left) not in (int, str):
        raise Failed
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[operator]


def container(value):
    if not isinstance(value, dict):
        raise Failed
    return value
