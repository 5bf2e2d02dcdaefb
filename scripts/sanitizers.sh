#!/usr/bin/env bash
# Runs the tests where mistakes with memory and between threads show themselves.
#
#   scripts/sanitizers.sh address [FILTER...]   the tests of all crates under AddressSanitizer, leaks included
#   scripts/sanitizers.sh thread [FILTER...]    the tests that have threads under ThreadSanitizer
#   scripts/sanitizers.sh load [TIMES]          20 files of 8 connections each under ThreadSanitizer, 50 times
#   scripts/sanitizers.sh model                 the engine's limiter, queue and handle in all kinds of interleavings
#   scripts/sanitizers.sh miri                  the rules, and what needs no kernel, in the interpreter
#   scripts/sanitizers.sh all                   all of these
#
# A FILTER is one of cargo-nextest's. Linux on x86-64, cargo-nextest and a C compiler are needed. The compiler is
# the stable one: RUSTC_BOOTSTRAP lets it take the options. Its standard library is not instrumented; what that
# means is in CONTRIBUTING.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=x86_64-unknown-linux-gnu
root=${CARGO_TARGET_DIR:-$PWD/target}
root=$(mkdir -p "$root/sanitizers" && cd "$root/sanitizers" && pwd)
# Nothing is compiled twice. Sanitized code is slow enough to be worth compiling well.
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_OPT_LEVEL=1
# The settings of whoever runs this are no concern of the tests.
unset "${!TIDEGATE_@}"

# Bounds, in seconds, for a whole command: what is not done by then has failed.
readonly BUILD=3600 TESTS=7200 ONE_LOAD=300 MODEL=1800 MIRI=7200

# Tests that cannot work here in principle, as a filter of cargo-nextest, each with its reason.
skipped() {
    local filters=()
    case "$1" in
        thread) filters+=(
            # Five gigabytes through one thread: hours.
            'binary(beyond_4_gib)'
        ) ;;
    esac
    local text="none()" filter
    for filter in "${filters[@]}"; do text+=" | $filter"; done
    printf '%s' "$text"
}

say() { printf '==> %s\n' "$*"; }
die() { printf 'sanitizers.sh: %s\n' "$*" >&2; exit 1; }

# What the linker puts in front of functions of the standard library; see sanitizers/thread.c. Each line: the macro
# there, and how the mangled name ends.
wrapped() {
    cat <<'NAMES'
MUTEX_LOCK 5futexNt[A-Za-z0-9]*_5Mutex14lock_contended
RWLOCK_READ 6RwLock14read_contended
RWLOCK_WRITE 6RwLock15write_contended
CONDVAR_WAIT 5futexNt[A-Za-z0-9]*_7Condvar4wait
CONDVAR_WAIT_TIMEOUT 5futexNt[A-Za-z0-9]*_7Condvar12wait_timeout
ONCE_CALL 5futexNt[A-Za-z0-9]*_4Once4call
SCOPE_END 9ScopeData29decrement_num_running_threads
NAMES
}

# prepare KIND: sets $dir, $reports and the flags, and compiles what is linked into every program.
prepare() {
    local kind=$1 options name ending symbol library defines=() flags
    dir=$root/$kind
    reports=$dir/reports
    rm -rf "$reports"
    mkdir -p "$reports"
    export CARGO_TARGET_DIR=$dir RUSTC_BOOTSTRAP=1
    flags=("-Zsanitizer=$kind" -Cunsafe-allow-abi-mismatch=sanitizer -Cforce-frame-pointers=yes)
    # Every process that has something to report leaves a file, even one whose exit code nobody looks at.
    options="exitcode=66:log_path='$reports/report'"
    # The names in a report, also where PATH is empty.
    if command -v llvm-symbolizer >/dev/null; then
        options+=":external_symbolizer_path='$(command -v llvm-symbolizer)'"
    else
        say "$kind: no llvm-symbolizer: reports will have no names, and suppressions do not work"
    fi
    case "$kind" in
        address) options+=:detect_leaks=1:detect_stack_use_after_return=1 ;;
        thread)
            options+=:history_size=4
            library=$(echo "$(rustc --print sysroot)/lib/rustlib/$target/lib"/libstd-*.rlib)
            while read -r name ending; do
                symbol=$(strings -a "$library" | grep -xE "_R[A-Za-z0-9_]*$ending" | sort -u)
                [ "$(wc -w <<<"$symbol")" = 1 ] \
                    || die "$name is not one function in this standard library: see scripts/sanitizers/thread.c"
                defines+=("-D$name=$symbol")
                flags+=("-Clink-arg=-Wl,--wrap=$symbol")
            done < <(wrapped)
            for symbol in thread_fence 64_fetch_sub 64_compare_exchange_val; do
                flags+=("-Clink-arg=-Wl,--wrap=__tsan_atomic${symbol/#thread/_thread}")
            done
            ;;
    esac
    cc -O2 -Wall -Wextra -Werror "${defines[@]}" "-DOPTIONS=\"$options\"" -c "scripts/sanitizers/$kind.c" -o "$dir/$kind.o"
    # cargo does not know of what is linked beside: when it has changed, whatever is ours is linked again.
    if [ "$(cksum <"$dir/$kind.o")" != "$(cat "$dir/$kind.sum" 2>/dev/null)" ]; then
        rm -rf "$dir/$target"/debug/.fingerprint/tidegate*
        cksum <"$dir/$kind.o" >"$dir/$kind.sum"
    fi
    flags+=("-Clink-arg=$dir/$kind.o")
    # With a target of its own, so that build scripts and macros are compiled as usual.
    CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f'; printf '%s' "${flags[*]}")
    export CARGO_ENCODED_RUSTFLAGS
}

# A tool that finds nothing must be shown to look.
probe() {
    local kind=$1 flags
    say "$kind: does it find what is there?"
    IFS=$'\x1f' read -r -a flags <<<"$CARGO_ENCODED_RUSTFLAGS"
    rustc --edition 2024 -g --target "$target" "${flags[@]}" -o "$dir/probe" "scripts/sanitizers/$kind-probe.rs"
    timeout 60 "$dir/probe" right || die "$kind: something is reported where nothing is wrong: see $reports"
    if timeout 60 "$dir/probe" wrong; then die "$kind: a mistake is not found"; fi
    [ -n "$(ls "$reports")" ] || die "$kind: a mistake is not reported in $reports"
    rm -f "$reports"/*
}

# Says what the processes have left.
verdict() {
    local files
    files=$(find "$reports" -type f | wc -l)
    if [ "$files" != 0 ]; then
        grep -h '^SUMMARY' "$reports"/* | sort | uniq -c | sort -rn | head -n 40
        die "$1: $files processes have something to report: see $reports"
    fi
    say "$1: nothing to report"
}

# The packages whose tests are run.
packages() {
    case "$1" in
        # Rules without threads: the other sanitizer runs them.
        thread) printf '%s\n' --exclude=tidegate-core --exclude=tidegate-queue ;;
    esac
}

build() {
    say "$1: build"
    local packages
    mapfile -t packages < <(packages "$1")
    timeout "$BUILD" cargo build --workspace "${packages[@]}" --bins --tests --locked --target "$target" --quiet
}

suite() {
    local kind=$1 status=0 began=$SECONDS packages
    shift
    mapfile -t packages < <(packages "$kind")
    prepare "$kind"
    probe "$kind"
    build "$kind"
    say "$kind: tests, but for $(skipped "$kind")"
    local filter
    filter="not ($(skipped "$kind"))"
    if [ $# -gt 0 ]; then filter+=" & ($*)"; fi
    timeout "$TESTS" cargo nextest run --workspace "${packages[@]}" --locked --target "$target" --profile sanitizers --no-fail-fast \
        --status-level slow --final-status-level slow -E "$filter" || status=$?
    verdict "$kind"
    [ "$status" = 0 ] || die "$kind: tests failed"
    say "$kind: passed after $((SECONDS - began)) s"
}

load() {
    local times=${1:-50} time began=$SECONDS out
    prepare thread
    probe thread
    build thread
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
    say "load: 20 files of 8 connections each, $times times with syncs and without"
    for ((time = 1; time <= times; time++)); do
        # Each connection is held to a rate, so that all 160 are there together.
        if ! timeout "$ONE_LOAD" "$dir/$target/debug/tidegate-bench" load --tasks 20 --segments 8 --task-size 1M \
            --rate 32k --no-peers --runs 1 --json --dir "$out" >"$out/report.json" 2>"$out/report.txt"; then
            cat "$out/report.txt" "$out/report.json"
            verdict load
            die "load: run $time of $times failed"
        fi
        [ -z "$(ls "$reports")" ] || verdict load
        if ((time % 10 == 0)); then say "load: $time of $times, after $((SECONDS - began)) s"; fi
    done
    verdict load
}

model() {
    say "model: interleavings"
    CARGO_TARGET_DIR=$root/model RUSTFLAGS="--cfg shuttle" \
        timeout "$MODEL" cargo test -p tidegate-engine --lib --locked model
}

miri() {
    if ! cargo +nightly miri --version >/dev/null 2>&1; then
        say "miri: not installed (rustup +nightly component add miri rust-src): left out"
        return 0
    fi
    say "miri: the rules"
    # Random tests would take days: a few cases each. What reads a clock or a file needs the isolation lifted.
    MIRIFLAGS="-Zmiri-disable-isolation" PROPTEST_CASES=2 CARGO_TARGET_DIR=$root/miri \
        timeout "$MIRI" cargo +nightly miri test -p tidegate-core --lib --locked
}

command=${1:-}
shift || true
case "$command" in
    address | thread) suite "$command" "$@" ;;
    load) load "$@" ;;
    model) model ;;
    miri) miri ;;
    all)
        model
        miri
        for command in address thread load; do "$0" "$command"; done
        ;;
    *) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
