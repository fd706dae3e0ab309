#!/bin/bash -eu
# Builds every target with its dictionary and seed corpus into $OUT. The base image sets SRC, OUT and the compilers' flags.
cd "$SRC/lastbit"

# Optimised, and as everywhere else with debug assertions and overflow checks. .cargo/config.toml is read from here: it leads
# GMP's configure to tools/config.site.
cargo fuzz build -O --debug-assertions

for source in fuzz/fuzz_targets/*.rs; do
  target=$(basename "$source" .rs)
  cp "fuzz/target/x86_64-unknown-linux-gnu/release/$target" "$OUT/"
  cp fuzz/case.dict "$OUT/$target.dict"
  rm -f "$OUT/${target}_seed_corpus.zip"
  # Every target reads case files too.
  zip -qj "$OUT/${target}_seed_corpus.zip" corpora/fuzz/"$target"/* corpora/seeds/attention/*.case corpora/regressions/attention/*.case
done
