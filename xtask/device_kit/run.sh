#!/bin/sh
# Runs Ferrotune's checks on the device of this machine, without a network: `sh run.sh [--plugin cuda|cpu|FILE] FOLDER-OF-PARTS`.
#
# Each check has a limit of time and a section in report.md, which is written into the current folder. A check that fails does not stop
# the others, and the exit status is then 1. PYTHON names the Python that has the plugin's package, JAX and PyTorch: python3, unless set.
set -u

usage() {
    echo "usage: sh run.sh [--plugin cuda|cpu|FILE] FOLDER-OF-PARTS" >&2
    exit 2
}

plugin=cuda
if [ "${1-}" = --plugin ]; then
    [ $# -ge 2 ] || usage
    plugin=$2
    shift 2
fi
[ $# = 1 ] && [ -d "$1" ] || usage

kit=$(cd "$(dirname "$0")" && pwd)
parts=$(cd "$1" && pwd)
report=$PWD/report.md
python=${PYTHON:-python3}

packages() {
    "$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
}

# The library of a plugin. A package has it below the folder of Python's packages.
library_of() {
    case $1 in
    cuda) set -- "$(packages)"/jax_plugins/xla_cuda*/xla_cuda_plugin.so ;;
    cpu) set -- "$(packages)"/fastatomstruct_xla_cpu/libpjrt_cpu.so ;;
    esac
    [ -f "$1" ] && echo "$(cd "$(dirname "$1")" && pwd)/$(basename "$1")"
}

if ! library=$(library_of "$plugin"); then
    echo "run.sh: $plugin is no plugin's file, and $python has no package of it; set PYTHON to a Python that has it" >&2
    exit 2
fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
trap 'exit 1' HUP INT TERM
log=$root/log
failures=0
: >"$root/rows"
: >"$root/sections"

# Writes the report as far as it is known. A machine that is taken back in the middle leaves what came before.
publish() {
    {
        cat "$root/head"
        printf '\n| check | result | seconds |\n|---|---|---|\n'
        cat "$root/rows" "$root/sections"
    } >"$report"
}

# check NAME SECONDS COMMAND…: runs a command within a limit of time, and adds it to the report.
check() {
    name=$1 limit=$2
    shift 2
    echo "== $name (at most $limit s)"
    began=$(date +%s)
    timeout -k 10 "$limit" "$@" >"$log" 2>&1 </dev/null
    status=$?
    took=$(($(date +%s) - began))
    case $status in
    0) result=passed ;;
    124) result="FAILED: no end in $limit s" ;;
    137) result="FAILED: killed, after its limit or by the system" ;;
    *) result="FAILED: exit status $status" ;;
    esac
    [ "$status" = 0 ] || failures=$((failures + 1))
    echo "   $result, $took s"
    echo "| $name | $result | $took |" >>"$root/rows"
    {
        printf '\n## %s: %s\n\n```text\n$ %s\n' "$name" "$result" "$*"
        tail -n 150 "$log" | sed 's/\x1b\[[0-9;?]*[A-Za-z]//g' | cut -c1-240
        printf '```\n'
    } >>"$root/sections"
    publish
    return "$status"
}

left_out() {
    echo "== $1: left out, $2"
    echo "| $1 | left out: $2 | |" >>"$root/rows"
    publish
}

has() {
    for module in "$@"; do "$python" -c "import $module" >/dev/null 2>&1 || return 1; done
}

{
    printf '# Report of the device kit\n\n'
    echo "* date: $(date -u '+%Y-%m-%d %H:%M UTC')"
    echo "* Ferrotune: $(cat "$kit/VERSION")"
    echo "* machine: $(uname -srm), $(nproc) cores"
    nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null |
        sed 's/^/* card, memory, driver: /' | grep . || echo "* card: none that nvidia-smi knows"
    echo "* plugin: $library"
} >"$root/head"

export TF_CPP_MIN_LOG_LEVEL=3 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
check contract 120 "$kit/bin/contract" "$library"
about=$(sed -n 's/^ok: versions are told: //p' "$log")
echo "* plugin's version: ${about:-unknown, as the contract failed}" >>"$root/head"
devices=$(echo "$about" | sed -n 's/.*\[\([0-9, ]*\)\].*/\1/p' | wc -w)
check throughput 120 "$kit/bin/throughput" "$library"

set -- --test-threads 4
# The tests that need four devices.
[ "$devices" -ge 4 ] || set -- "$@" --skip pipeline:: --skip sharding:: --skip cores_draw --skip _replicas --skip a_mesh_ \
    --skip a_device_is_opened_by_its_number
# Products are in full f32, as on the CPU, and not in TF32.
check parity 600 env NVIDIA_TF32_OVERRIDE=0 FERROTUNE_XLA_CPU="$library" "$kit/bin/parity" "$@"
if has numpy scipy jax; then
    for mode in lazy compiled; do
        # JAX computes the right values, on the CPU.
        check "numbers, $mode" 600 env NVIDIA_TF32_OVERRIDE=0 JAX_PLATFORMS=cpu FERROTUNE_XLA_CPU="$library" \
            PYTHONPATH="$kit/tests/numbers${PYTHONPATH:+:$PYTHONPATH}" "$python" -m differences --mode "$mode"
    done
else
    left_out numbers "this Python lacks NumPy, SciPy or JAX"
fi
check "cost of a step" 300 "$kit/bin/steps" "$library"

check unpack 300 sh "$kit/unpack.sh" "$parts" "$root"
whole=$?
has jupyter_client || check "Jupyter's client" 120 "$python" -m pip install --quiet --no-index --find-links "$kit/wheels" \
    --target "$root/packages" jupyter_client
# The kernel, its toolchain, and folders of its own instead of the user's.
export PATH="$root/bin:$PATH" FERROTUNE_TOOLCHAIN="$root" JUPYTER_PATH="$root/ferrotune/share/jupyter" \
    JUPYTER_RUNTIME_DIR="$root/runtime" JUPYTER_CONFIG_DIR="$root/config" XDG_CACHE_HOME="$root/cache" XDG_DATA_HOME="$root/data" \
    XDG_CONFIG_HOME="$root/config" PYTHONPATH="$root/packages${PYTHONPATH:+:$PYTHONPATH}"

case $about in
*', cpu '*) place=cpu works="mlp:128 resnet18:2" steps=10 ;;
*) place=card works="mlp:1024 resnet18:64 gpt2:4" steps=50 ;;
esac
for work in $works; do
    if [ "$whole" = 0 ]; then
        check "train $work, Ferrotune" 300 "$python" "$kit/training.py" "$library" "$work" "$steps"
    else
        left_out "train $work, Ferrotune" "the parts are not whole"
    fi
    for peer in jax torch; do
        if has "$peer"; then
            check "train $work, $peer" 300 "$python" "$kit/peers.py" "$peer" "$place" "$work" "$steps"
        else
            left_out "train $work, $peer" "this Python does not have it"
        fi
    done
done

for notebook in 01_quickstart 05_tpu; do
    if [ "$whole" = 0 ]; then
        check "notebook $notebook" 400 "$python" "$kit/notebook.py" "$library" "$kit/notebooks/$notebook.ipynb"
    else
        left_out "notebook $notebook" "the parts are not whole"
    fi
done

echo "$failures checks failed; the report is $report"
[ "$failures" = 0 ]
