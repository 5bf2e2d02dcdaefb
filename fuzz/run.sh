#!/usr/bin/env bash
# Runs the fuzz targets, or those named, each for SECONDS_EACH (600) seconds, JOBS (2) at a time.
# Needs a nightly toolchain (cargo +nightly) and a C++ compiler, but not cargo-fuzz. A finding ends the
# run with the input that shows it under fuzz/artifacts/. What the corpus gained is minimised into
# fuzz/corpus/, small enough to be kept.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${SECONDS_EACH:-600}
jobs=${JOBS:-2}
host=$(rustc -vV | sed -n 's/^host: //p')
export CARGO_INCREMENTAL=0
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address -Ccodegen-units=4 -Cdebug-assertions"
cargo +nightly build --release --target "$host" --target-dir target --quiet
if [ $# -gt 0 ]; then targets=("$@"); else mapfile -t targets < <(sed -n 's/^name = "\(.*\)"$/\1/p' Cargo.toml | tail -n +2); fi

one() {
    local name=$1 work
    work=target/work/$name
    mkdir -p "corpus/$name" "$work" "artifacts/$name"
    "target/$host/release/$name" "$work" "corpus/$name" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 \
        -max_len=65536 -artifact_prefix="artifacts/$name/" -print_final_stats=1 >"target/work/$name.log" 2>&1 || {
        echo "FOUND $name: see fuzz/target/work/$name.log"
        return 1
    }
    # Keep few and small inputs: those that together reach everything reached.
    rm -rf "target/work/$name.min" && mkdir "target/work/$name.min"
    "target/$host/release/$name" -merge=1 -max_len=4096 "target/work/$name.min" "corpus/$name" "$work" \
        >>"target/work/$name.log" 2>&1 || true
    find "target/work/$name.min" -type f -size -4k | head -n 60 | while read -r file; do cp "$file" "corpus/$name/"; done
    sed -n 's/^stat::number_of_executed_units: */executions /p' "target/work/$name.log" | tail -1 | sed "s/^/$name: ${seconds} s, /"
}
export -f one
export seconds host
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} bash -c 'one {}'
