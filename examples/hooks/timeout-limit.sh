# With MYPROJECT_RESTRICTED=1, tools that may take longer than a minute are refused. Needs jq; without it,
# or without a number, the tool is refused.
mcp_tools_policy_check() {
  local tool_name="$1" metadata="$2" timeout
  if [ "${MYPROJECT_RESTRICTED:-}" != "1" ]; then
    return 0
  fi
  timeout="$(printf '%s' "${metadata}" | jq -r '.timeoutSecs // 30')"
  case "${timeout}" in
    "" | *[!0-9]*) ;;
    *) if [ "${timeout}" -le 60 ]; then return 0; fi ;;
  esac
  mcp_tools_error -32602 "Tool '${tool_name}' exceeds max timeout in restricted mode"
  return 1
}
