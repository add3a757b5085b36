#!/bin/sh
# Checks a policy change: the new policy must be valid, pass its tests, and allow nothing that the policy of the base
# branch denies.
#
#     check-policy.sh BASE [CONFIG]
#
# CONFIG        a file of this repository (default: toolward.yaml)
# TOOL_LISTS    saved tool lists of the servers (default: tools)
# REPORT        where the report for the pull request is written (default: policy-report.md)
# ALLOW_WIDER   1: the change may allow more
set -eu

base=${1:?usage: check-policy.sh BASE [CONFIG]}
config=${2:-toolward.yaml}
lists=${TOOL_LISTS:-tools}
report=${REPORT:-policy-report.md}

# The path of the configuration from the top of the repository. The argument may be absolute or start in a subdirectory.
folder=$(dirname -- "$config")
top=$(git rev-parse --show-toplevel)
if [ "$(git -C "$folder" rev-parse --show-toplevel)" != "$top" ]; then
    echo "refused: $config is not in the repository $top" >&2
    exit 1
fi
path=$(git -C "$folder" rev-parse --show-prefix)$(basename -- "$config")

toolward check --strict --no-secrets -c "$config" --tools "$lists"
toolward test -c "$config" --tools "$lists"

# All files of the base branch, because a configuration may reference others.
before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
git -C "$top" archive --output "$before/base.tar" --prefix base/ "$base"
tar -x -C "$before" -f "$before/base.tar"
if [ ! -e "$before/base/$path" ]; then
    echo "$config is new: there is nothing to compare it with" | tee "$report"
    exit 0
fi

code=0
toolward diff "$before/base/$path" "$config" --tools "$lists" --format markdown > "$report" || code=$?
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
