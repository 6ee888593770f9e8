#!/usr/bin/env bash
# A refusal is sent while the client still uploads: curl must get to see it, and
# not a connection that was reset; whether it asks before it sends (it does, for
# a large body) or sends at once.
set -euo pipefail

refusal() { # KEY [ARGUMENT...]
	head -c 48M /dev/zero | curl -sS "$PICTOR_BASE_URL/upscale" -w ' %{http_code}' \
		-H "X-Api-Key: $1" -H 'Content-Type: image/png' --data-binary @- "${@:2}"
}

check() { # CODE STATUS KEY [ARGUMENT...]
	local got
	got=$(refusal "${@:3}") && [[ $got == *"\"$1\""*" $2" ]] || {
		printf 'curl %s: got %s, want %s %s\n' "${*:4}" "$got" "$2" "$1" >&2
		exit 1
	}
}

check file_too_large 413 "$PICTOR_API_KEY"
check file_too_large 413 "$PICTOR_API_KEY" -H 'Expect:'
check invalid_key 401 pictor_nonsense
check invalid_key 401 pictor_nonsense -H 'Expect:'
echo 'curl: 4 passed, 0 failed'
