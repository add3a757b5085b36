#!/usr/bin/env python3
"""Compares `toolward decide` with the reference model.

    tests/model/compare.py PROGRAM --all             every decision of the small scope (about 0.9 million)
    tests/model/compare.py PROGRAM --sample N        N random policies of the large scope, 20 requests each
                                                     (--seed S), and the same number of the small scope
"""

import argparse
import itertools
import json
import multiprocessing
import os
import subprocess
import sys

from generate import Random, small_policies, small_requests
from policy import Policy

COMPARED = ("verdict", "step", "layer", "rule")


def line(policy, request, query):
    question = {
        "policy": policy, "agent": request.agent, "server": request.server, request.kind: request.name,
        "arguments": request.arguments, "query": query,
    }
    if request.scope is not None:
        question["scope"] = request.scope
    if request.schema is not None:
        question["definition"] = {"name": request.name, "inputSchema": request.schema}
    if request.annotations is not None:
        question["annotations"] = request.annotations
    return json.dumps(question)


def program_answers(program, lines):
    # Run where no configuration is found: every line carries its own policy.
    run = subprocess.run([program, "decide"], input="\n".join(lines), capture_output=True, text=True, cwd="/")
    answers = [json.loads(answer) for answer in run.stdout.splitlines()]
    if len(answers) != len(lines):
        raise SystemExit(f"{len(lines)} requests, {len(answers)} answers: {run.stderr}")
    return answers


def compare(job):
    """Number of decisions, of rejected policies' requests, and the disagreements of a batch."""
    program, cases = job
    lines, expected = [], []
    for policy, requests in cases:
        model = Policy(policy)
        for request, query in requests:
            lines.append(line(policy, request, query))
            expected.append(vars(model.list(request) if query == "list" else model.decide(request)))
    wrong, rejected = [], 0
    for question, want, got in zip(lines, expected, program_answers(program, lines)):
        if "error" in got:
            rejected += 1
            if rejected < 3:
                print("rejected:", got["error"], file=sys.stderr)
        elif any(want[key] != got[key] for key in COMPARED):
            wrong.append(f"{question}\n  model:   {want}\n  program: {got}")
    return len(lines), rejected, wrong


def batches(values, size):
    values = iter(values)
    while batch := list(itertools.islice(values, size)):
        yield batch


def small(policies):
    requests = [(request, "call") for request in small_requests()]
    return ((policy, requests) for policy in policies)


def large(count, seed):
    make = Random(seed)
    for _ in range(count):
        policy = make.policy()
        yield policy, [(make.request(), make.one(["call", "call", "list"])) for _ in range(20)]


def main():
    options = argparse.ArgumentParser()
    options.add_argument("program")
    options.add_argument("--all", action="store_true")
    options.add_argument("--sample", type=int, default=0)
    options.add_argument("--seed", type=int, default=1)
    options = options.parse_args()
    cases = large(options.sample, options.seed)
    if options.all:
        cases = itertools.chain(small(small_policies()), cases)
    else:
        every = list(small_policies())
        cases = itertools.chain(small(Random(options.seed).random.sample(every, options.sample)), cases)
    program = os.path.abspath(options.program)
    jobs = ((program, batch) for batch in batches(cases, 200))
    decisions, rejected, wrong = 0, 0, []
    with multiprocessing.Pool() as pool:
        for count, refused, found in pool.imap_unordered(compare, jobs):
            decisions, rejected = decisions + count, rejected + refused
            wrong += found
    for text in wrong[:10]:
        print(text)
    print(f"{decisions} decisions, {len(wrong)} disagreements, {rejected} of rejected policies")
    # A generator whose policies do not load would compare nothing.
    sys.exit(1 if wrong or decisions == 0 or rejected > decisions // 20 else 0)


if __name__ == "__main__":
    main()
