#!/usr/bin/env bash
# server.d/policy.sh - Tool execution policy for git-hex

mcp_tools_policy_check() {
    local tool_name="$1"
    local metadata="$2"  # Available if needed for schema-based decisions

    # Read-only mode: only allow inspection tools
    if [ "${GIT_HEX_READ_ONLY:-}" = "1" ]; then
        case "${tool_name}" in
            gitHex.getRebasePlan)
                return 0  # Inspection tool - allowed
                ;;
            *)
                mcp_tools_error -32602 "git-hex is running in read-only mode. Tool '${tool_name}' is disabled."
                return 1
                ;;
        esac
    fi

    # Default: allow
    return 0
}
