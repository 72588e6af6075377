#!/bin/sh
# Sets everything up, sends messages between two processes over the transport that this host picks, and shows what it can do.
. "$(dirname "$0")/setup.sh"
native_part
bun run --silent demo "$@" && bun run --silent zap-info
