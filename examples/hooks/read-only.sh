# Read-only mode by a variable: with MYPROJECT_READ_ONLY=1, only tools that change nothing.
mcp_tools_policy_check() {
  local tool_name="$1"
  if [ "${MYPROJECT_READ_ONLY:-}" != "1" ]; then
    return 0
  fi
  case "${tool_name}" in
    myProject.list* | myProject.get* | myProject.describe*) return 0 ;;
  esac
  mcp_tools_error -32602 "Read-only mode: '${tool_name}' is disabled"
  return 1
}
