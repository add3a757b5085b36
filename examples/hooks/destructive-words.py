#!/usr/bin/env python3
"""A hook that stays: one request a line in, one answer a line out, matched by `id`."""
import json
import sys

FORBIDDEN = ("production", "billing")

for line in sys.stdin:
    request = json.loads(line)
    text = json.dumps(request.get("arguments", {})).lower()
    found = [word for word in FORBIDDEN if word in text]
    answer = {"id": request["id"], "decision": "deny" if found else "allow"}
    if found:
        answer["message"] = f"{request['tool']} may not touch {found[0]}"
    print(json.dumps(answer), flush=True)
