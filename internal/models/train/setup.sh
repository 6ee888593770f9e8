#!/usr/bin/env bash
# Makes a Python environment with the pinned packages in .venv. With the
# argument "eval" without PyTorch, which evaluating does not need.
set -euo pipefail
cd "$(dirname "$0")"
[ "${1:-}" = eval ] && requirements=requirements-eval.txt || requirements=requirements.txt
python3 -c 'import venv, ensurepip' 2>/dev/null || {
	echo 'setup: Python has no venv. Install it: apt-get install python3-venv' >&2
	exit 1
}
[ -x .venv/bin/python ] || python3 -m venv .venv
.venv/bin/pip install --quiet --disable-pip-version-check --requirement "$requirements"
