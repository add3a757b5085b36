# Writes a line for each call to the file MYPROJECT_AUDIT_LOG. If it cannot be written, the call is refused.
# Names are quoted, so that none can forge a second line.
mcp_tools_policy_check() {
  local tool_name="$1"
  if [ -z "${MYPROJECT_AUDIT_LOG:-}" ]; then
    return 0
  fi
  if ! printf '%s tool_invocation tool=%q\n' "$(date -Iseconds)" "${tool_name}" >>"${MYPROJECT_AUDIT_LOG}"; then
    mcp_tools_error -32603 "Tool '${tool_name}' cannot be written down"
    return 1
  fi
}
