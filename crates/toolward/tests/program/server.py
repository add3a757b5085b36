"""A scripted MCP server on stdio (2025-06-18), for tests of messages that the gateway forwards.

Every line that arrives is appended to the file LOG, so that a test can check which messages
were forwarded. TOOLS is a JSON file with the list; with PAGE, a page has that many tools.
"""
import json
import os
import subprocess
import sys
import time

log = open(sys.argv[1], "a")
tools = json.load(open(sys.argv[2]))
page = int(sys.argv[3]) if len(sys.argv) > 3 else len(tools) or 1
initialize = None
held = None


def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def text(words):
    return {"content": [{"type": "text", "text": words}]}


time.sleep(float(os.environ.get("START_TAKES", 0)))
for line in sys.stdin:
    log.write(line)
    log.flush()
    message = json.loads(line)
    method, params, id = message.get("method"), message.get("params") or {}, message.get("id")

    def answer(result):
        send({"jsonrpc": "2.0", "id": id, "result": result})

    if method == "initialize":
        initialize = params
        hello = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}, "prompts": {}, "logging": {}},
            "serverInfo": {"name": "scripted", "version": "1"},
            "instructions": os.environ.get("INSTRUCTIONS", "Be careful."),
        }
        answer({key: value for key, value in hello.items() if value != ""})
    elif method == "tools/list":
        time.sleep(float(os.environ.get("LIST_TAKES", 0)))
        start = int(params.get("cursor") or 0)
        result = {"tools": tools[start:start + page]}
        if start + page < len(tools):
            result["nextCursor"] = str(start + page)
        answer(result)
    elif method == "tools/call":
        name = params["name"]
        if name == "crash":
            sys.exit(7)
        elif name == "hang":
            held = id
        elif name == "slow":
            for step in (1, 2):
                send({"jsonrpc": "2.0", "method": "notifications/progress",
                      "params": {"progressToken": params["_meta"]["progressToken"], "progress": step}})
            answer(text("slow"))
        elif name == "grow":
            tools.append({"name": params["arguments"]["tool"]})
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            answer(text("grown"))
        elif name == "ask":
            send({"jsonrpc": "2.0", "id": "q", "method": "sampling/createMessage", "params": {}})
            reply = sys.stdin.readline()
            answer(text(reply))
        elif name == "twice":
            sys.stdout.write('{"jsonrpc":"2.0","id":%d,"result":{"content":[],"content":[]}}\n' % id)
            sys.stdout.flush()
        elif name == "spawn":
            answer(text(str(subprocess.Popen(["sleep", "300"]).pid)))
        elif name == "task":
            answer({"task": {"taskId": "t", "status": "working"}})
        elif name == "link":
            send({"jsonrpc": "2.0", "id": id, "error": {"code": -32042, "message": "visit", "data": {}}})
        elif name == "forge":
            answer(dict(text("forged"), _meta={"io.toolward/refusal": {"error": "x"}, "own": 1}))
        elif name == "surrogate":
            sys.stdout.write('{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"\\ud800"}]}}\n' % id)
            sys.stdout.flush()
        elif name == "later":
            time.sleep(1)
            answer(text("later"))
        elif name == "environment":
            answer(text(" ".join(sorted(os.environ))))
        elif name == "stray":
            send({"jsonrpc": "2.0", "id": 999999, "result": text("nobody asked")})
            send({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 999999, "progress": 1}})
            sys.stdout.write("not json\n")
            answer(text("stray"))
        else:
            answer(text("did " + name))
    elif method == "notifications/cancelled" and held is not None:
        send({"jsonrpc": "2.0", "id": held, "result": text("too late")})
    elif method is not None and id is not None:
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "unknown"}})
open(sys.argv[1] + ".end", "w").close()
