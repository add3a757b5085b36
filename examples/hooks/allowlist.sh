# An allowlist in a variable: MYPROJECT_ALLOWED_TOOLS="tool1,tool2". Names are compared
# literally: neither a pattern nor a name with a comma can match another tool.
mcp_tools_policy_check() {
  local tool_name="$1"
  local allowed="${MYPROJECT_ALLOWED_TOOLS:-}"
  if [ -z "${allowed}" ]; then
    return 0
  fi
  case "${tool_name}" in
    *,*) ;;
    *) case ",${allowed}," in *",${tool_name},"*) return 0 ;; esac ;;
  esac
  mcp_tools_error -32602 "Tool '${tool_name}' is not in the allowed list"
  return 1
}
