#!/usr/bin/env python3
"""Verifies the hash chains of an audit log without Toolward: verify.py DIR"""
import hashlib
import json
import pathlib
import re
import sys

START = "0" * 64


def verify(segments, head):
    """Walks one stream; returns the number of records and the hash of the last one."""
    previous, count = None, 0
    for path in segments:
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            record = json.loads(line)
            # The first segments of a log may have been deleted: trust the oldest one that is left.
            oldest = previous is None and (record["prev"] == START or record["kind"] == "segment")
            if record["prev"] != previous and not oldest:
                sys.exit(f"{path.name}:{number}: does not continue the record before it")
            previous, count = hashlib.sha256(line).hexdigest(), count + 1
    if head.exists() and json.loads(head.read_bytes())["hash"] != previous:
        sys.exit(f"{head.name}: has another hash than the last record")
    return count, previous


directory = pathlib.Path(sys.argv[1])
streams = {}
for path in directory.glob("audit*.jsonl"):
    stream, segment = re.fullmatch(r"(audit(?:\.\d+)?)(?:-(\d+))?\.jsonl", path.name).groups()
    streams.setdefault(stream, []).append((int(segment or 10**9), path))
for stream, segments in sorted(streams.items()):
    count, last = verify([path for _, path in sorted(segments)], directory / f"{stream}.head")
    print(f"{stream}: {count} records, the chain is intact, head {last}")
