#!/bin/sh
# Checks a policy change: the new policy must be valid, pass its tests, and allow nothing that the policy of the base
# branch denies.
#
#     check-policy.sh BASE [CONFIG]
#
# TOOL_LISTS    saved tool lists of the servers (default: tools)
# REPORT        where the report for the pull request is written (default: policy-report.md)
# ALLOW_WIDER   1: the change may allow more
set -eu

base=${1:?usage: check-policy.sh BASE [CONFIG]}
config=${2:-toolward.yaml}
lists=${TOOL_LISTS:-tools}
report=${REPORT:-policy-report.md}

toolward check --strict --no-secrets -c "$config" --tools "$lists"
toolward test -c "$config" --tools "$lists"

# All files of the base branch, because a configuration may reference others.
before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
git archive "$base" | tar -x -C "$before"
if [ ! -e "$before/$config" ]; then
    echo "$config is new: there is nothing to compare it with" | tee "$report"
    exit 0
fi

code=0
toolward diff "$before/$config" "$config" --tools "$lists" --format markdown > "$report" || code=$?
cat "$report"
case $code in
    0) ;;
    1 | 4)
        if [ "${ALLOW_WIDER:-}" != 1 ]; then
            echo "refused: the change allows more, or it is undecided whether it does" >&2
            exit 1
        fi
        ;;
    *) exit "$code" ;;
esac
