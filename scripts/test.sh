#!/bin/sh
# Sets everything up and runs the tests. Arguments go to `bun test`.
. "$(dirname "$0")/setup.sh"
native_part
exec bun test "$@"
