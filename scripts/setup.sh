# Sourced by the scripts beside it: leaves a Bun of the pinned version or newer on the PATH and the dependencies installed.
# A Bun that it has to fetch goes to .tools/; outside of this folder only the caches of npm and Bun change.

cd "$(dirname "$0")/.." || exit 1
wanted=$(cat .bun-version)

# Is the first version at least the second?
at_least() {
  [ "$(printf '%s\n%s\n' "$1" "$2" | sort -t. -k1,1n -k2,2n -k3,3n | head -n 1)" = "$2" ]
}

has_bun() {
  found=$(bun --version 2>/dev/null) && at_least "$found" "$wanted"
}

PATH="$PATH:$HOME/.bun/bin"
if ! has_bun; then
  PATH="$PWD/.tools/node_modules/.bin:$PWD/.tools/bun/bin:$PATH"
fi
if ! has_bun; then
  echo "Bun $wanted or newer is not here; fetching it into .tools/" >&2
  if command -v npm >/dev/null 2>&1; then
    npm install --prefix .tools --no-save --no-audit --no-fund --loglevel=error "bun@$wanted" >&2
  elif command -v curl >/dev/null 2>&1 && command -v unzip >/dev/null 2>&1; then
    curl -fsSL https://bun.sh/install | SHELL=/bin/sh BUN_INSTALL="$PWD/.tools/bun" bash -s "bun-v$wanted" >&2
  fi
fi
hash -r
if ! has_bun; then
  echo "Bun $wanted or newer is needed, and neither npm nor curl with unzip could fetch it." >&2
  echo "Install it by hand (curl -fsSL https://bun.sh/install | bash), then run this again." >&2
  exit 1
fi
export PATH
bun install --frozen-lockfile >&2 || exit 1

# The native libraries of this machine, where zig is here or can be fetched; without them all but `default` is out of reach.
native_part() {
  bun run --silent build >&2 || echo "Going on without the native part: what needs it is left out." >&2
}
