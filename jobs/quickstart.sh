#!/usr/bin/env bash
# From a fresh checkout to the first answers: installs what is missing, builds, converts a small model, and answers the
# sample prompts on two MPI ranks. Run it again at any time: what is done already is not done again.
#
#   bash jobs/quickstart.sh
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=build/src/app/caravan
source_file=models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
model=models/smollm2/SmolLM2-135M-Instruct.h5
prompts=jobs/sample/prompts.jsonl
answers=build/quickstart/answers.jsonl

step() { printf '\n== %s\n' "$*"; }

step "1/5 packages and libraries"
bash jobs/install-dependencies.sh

step "2/5 build"
if [ ! -e build/build.ninja ]; then
  cmake --preset release -DCARAVAN_BUILD_TESTS=OFF --log-level=WARNING >/dev/null
fi
cmake --build --preset release --parallel "$(bash jobs/usable-cpus.sh)" --target caravan
"$program" --version

step "3/5 model"
bash jobs/get-models.sh smollm2
if ! "$program" inspect "$model" >/dev/null 2>&1; then
  rm -f "$model".part-* # of a conversion that was killed
  "$program" convert "$source_file" "$model" --overwrite --name SmolLM2-135M-Instruct
fi
"$program" inspect "$model"

step "4/5 run: two ranks share the model"
if [ "$(id -u)" -eq 0 ]; then # Open MPI wants root to say twice that root is meant
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# Containers often forbid the system call that this would use between ranks of one node.
export OMPI_MCA_btl_vader_single_copy_mechanism=none
mkdir -p "$(dirname "$answers")"
command=(mpirun -n 2 --oversubscribe --bind-to none
  "$program" run --config configs/smollm2-cpu.ini --input "$prompts" --output "$answers" --overwrite)
echo "${command[*]}"
"${command[@]}"

step "5/5 answers ($answers)"
python3 jobs/sample/show_answers.py "$prompts" "$answers"
