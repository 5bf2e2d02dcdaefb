#!/usr/bin/env bash
# Everything that must hold before a change is taken. Needs a Rust toolchain; the few other tools are installed
# where that is allowed, else said to be missing.
#
#   ./test.sh              all of it
#   ./test.sh --quick      without the fuzz targets, the documentation and the run as an ordinary user
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

quick=no
for word in "$@"; do
    case "$word" in
        --quick) quick=yes ;;
        *) echo "test.sh: unknown option $word (there is only --quick)" >&2; exit 2 ;;
    esac
done

# Nothing is compiled twice, so what would help a second compilation only costs time and room.
export CARGO_INCREMENTAL=0
target=${CARGO_TARGET_DIR:-$PWD/target}
export CARGO_TARGET_DIR=$target
# The settings of whoever runs this are no concern of the tests.
unset "${!TIDEGATE_@}"

note() { printf '    %s\n' "$*"; }

# step NAME COMMAND...: says what is done, and how long it took.
step() {
    local name=$1 began=$SECONDS
    shift
    printf '==> %s\n' "$name"
    if "$@"; then
        printf '    %s: %d s\n' "$name" $((SECONDS - began))
    else
        printf '    %s: FAILED after %d s\n' "$name" $((SECONDS - began)) >&2
        exit 1
    fi
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

may_install() {
    command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }
}

# The C compiler is for one dependency (ring) and for the linker; the others are used by single tests, which
# say so and pass where they are missing.
tools() {
    local missing=() tool
    command -v cc >/dev/null || missing+=(gcc libc6-dev)
    # Not where a service manager would start it as a server of the machine.
    [ -x /usr/sbin/nginx ] || [ -d /run/systemd/system ] || missing+=(nginx-light)
    command -v mkfs.ext4 >/dev/null || [ -x /usr/sbin/mkfs.ext4 ] || missing+=(e2fsprogs)
    if [ ${#missing[@]} -gt 0 ]; then
        if may_install; then
            note "installing ${missing[*]}"
            as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >/dev/null || true
            as_root env DEBIAN_FRONTEND=noninteractive \
                apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1 \
                || note "could not be installed: ${missing[*]}"
        else
            note "missing, and not installed without being root: ${missing[*]}"
        fi
    fi
    command -v cc >/dev/null || { note "no C compiler (cc): ring cannot be built"; return 1; }
    for tool in fmt clippy; do
        cargo "$tool" --version >/dev/null 2>&1 && continue
        note "adding cargo $tool"
        rustup component add "${tool/fmt/rustfmt}" >/dev/null
    done
    note "$(rustc --version), $(nproc) processors, uid $(id -u)"
}

documentation() {
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
}

# Compiling is all that is asked here: running them needs a nightly compiler (see CONTRIBUTING.md). A check
# links nothing, so the C++ runtime of libFuzzer need not be built; any path makes its build script content.
fuzz_targets() {
    CUSTOM_LIBFUZZER_PATH=/nowhere/libfuzzer.a CUSTOM_LIBFUZZER_STD_CXX=none \
        cargo check --manifest-path fuzz/Cargo.toml --locked --quiet
}

# What may be used of these crates is in deny.toml.
licences() {
    cargo deny --offline --log-level error check licenses bans sources
}

# The binaries that `cargo test` would run, one a line, with their whole paths.
test_binaries() {
    cargo test --workspace --locked --no-run 2>&1 \
        | sed -n -e 's/.*Executable .*(\(.*\))$/\1/p' | sed -e "s,^[^/],$PWD/&,"
}

# Root may do what others may not, so what only passes as root proves little: everything that touches files,
# sockets or processes runs once more as nobody. Each binary has five minutes.
as_ordinary_user() {
    if [ "$(id -u)" != 0 ] || ! command -v setpriv >/dev/null; then
        note "not root (or no setpriv): the tests run as an ordinary user anyway, or only as root"
        return 0
    fi
    local home log binary failed=0
    home=$(mktemp -d)
    log=$(mktemp)
    chown 65534:65534 "$home"
    nobody() {
        (cd "$home" && env -i PATH="$PATH" HOME="$home" TMPDIR="$home" LANG=C.UTF-8 \
            setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs "$@")
    }
    while read -r binary; do
        case "${binary##*/}" in
            # These know no files, sockets or processes, or are about the sources.
            tidegate_core-* | tidegate_queue-* | recorded_disk-* | arrows-* | fences-*) continue ;;
        esac
        local together=()
        case "${binary##*/}" in
            # These look at all threads of their process, so one test runs at a time.
            churn-* | child-* | endings-* | orders-*) together=(--test-threads=1) ;;
        esac
        if ! nobody test -x "$binary"; then
            note "left out, since an ordinary user cannot reach it: $binary"
        elif ! nobody timeout 300 "$binary" --quiet "${together[@]}" >"$log" 2>&1; then
            note "as an ordinary user, ${binary##*/} failed:"
            tail -n 60 "$log"
            failed=1
        fi
    done < <(test_binaries)
    rm -rf "$home" "$log"
    return "$failed"
}

build() {
    cargo test --workspace --locked --no-run --quiet
}

tests() {
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run --workspace --locked --status-level slow --final-status-level slow
    else
        note "no cargo-nextest: using cargo test"
        cargo test --workspace --locked --lib --bins --tests
    fi
}

# What is promised is the same wherever the engine runs: the tests of its crate have it on threads of theirs, and here
# in a process of its own. Left out are those that start no engine, or say themselves where it is to run.
engine_in_a_process() {
    local others='^(attacks|child|hostile|landing|recorded_disk|write_allocations)$'
    if cargo nextest --version >/dev/null 2>&1; then
        TIDEGATE_TEST_CHILD=1 cargo nextest run --package tidegate-engine --locked \
            -E "kind(test) - binary(/$others/)" --status-level slow --final-status-level slow
    else
        TIDEGATE_TEST_CHILD=1 cargo test --package tidegate-engine --locked --tests
    fi
}

# And the other way round: the program has it in a process of its own unless it is told otherwise.
program_in_one_process() {
    if cargo nextest --version >/dev/null 2>&1; then
        TIDEGATE_ENGINE=in-process cargo nextest run --package tidegate --locked \
            -E 'binary(server_cases)' --status-level slow --final-status-level slow
    else
        TIDEGATE_ENGINE=in-process cargo test --package tidegate --locked --test server_cases
    fi
}

began=$SECONDS
step "tools" tools
step "format" cargo fmt --all --check
step "format of the fuzz targets" cargo fmt --manifest-path fuzz/Cargo.toml --check
step "lints" cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
if [ "$quick" = no ]; then
    step "documentation" documentation
    step "fuzz targets compile" fuzz_targets
    if cargo deny --version >/dev/null 2>&1; then
        step "licences" licences
    fi
fi
step "build" build
step "documentation's examples" cargo test --workspace --locked --doc --quiet
if [ "$quick" = no ]; then
    step "tests as an ordinary user" as_ordinary_user
fi
step "tests" tests
step "the engine's tests with the engine in a process of its own" engine_in_a_process
step "the program's cases with the engine in the same process" program_in_one_process
printf '==> all is well after %d s\n' $((SECONDS - began))
