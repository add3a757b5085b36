# Runs mcp_tools_policy_check for calls. $1 is the file that defines it. A request is a line with its id
# and the lengths of name and metadata in bytes, followed by these two. An answer is five fields, each
# terminated by NUL: id, verdict, code, message, data.

# The policy's output goes to the log, and it cannot read our input.
exec 199>&1 198<&0 1>&2 0</dev/null
__toolward_file=$1
shift
. "$__toolward_file"
if ! declare -F mcp_tools_policy_check >/dev/null; then
  echo "it defines no mcp_tools_policy_check" >&2
  exit 3
fi

mcp_tools_error() {
  __toolward_error=1 __toolward_code=${1-} __toolward_message=${2-} __toolward_data=${3-}
}

__toolward_answer() { # NAME METADATA
  __toolward_error= __toolward_code= __toolward_message= __toolward_data=
  # A check that exits the shell has not answered.
  trap 'printf "%s\0fail\0\0\0\0" "$__toolward_id" >&199' EXIT
  local __toolward_verdict=deny
  if mcp_tools_policy_check "$1" "$2"; then
    __toolward_verdict=allow
  elif [ -n "$__toolward_error" ]; then
    __toolward_verdict=error
  fi
  trap - EXIT
  # Answers of concurrent calls do not interleave, because each is one short write.
  local LC_ALL=C
  if [ "${#__toolward_data}" -gt 1500 ]; then
    __toolward_data=
  fi
  printf '%s\0%s\0%s\0%s\0%s\0' "$__toolward_id" "$__toolward_verdict" "${__toolward_code:0:32}" \
    "${__toolward_message:0:2000}" "$__toolward_data" >&199
}

while IFS=' ' read -r -u 198 __toolward_id __toolward_n __toolward_m &&
  LC_ALL=C IFS= read -r -u 198 -N "$__toolward_n" __toolward_name &&
  LC_ALL=C IFS= read -r -u 198 -N "$__toolward_m" __toolward_metadata; do
  __toolward_answer "$__toolward_name" "$__toolward_metadata" &
done
